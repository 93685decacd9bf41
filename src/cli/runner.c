/* Comms and execs on a team; see runner.h. */
#include "cli/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int runner_place(const char *url, int world, struct runner_place *out, struct failure *why)
{
    static const char threads[] = "threads:";
    if (!url)
        url = threads;
    if (!strcmp(url, "self:")) {
        *out = (struct runner_place){.url = "self:", .ranks = 1};
    } else if (!strncmp(url, threads, strlen(threads))) {
        const char *rest = url + strlen(threads);
        char *name = (char *)rest;
        long n = world;
        errno = 0;
        if (*rest && *rest != '/')
            n = strtol(rest, &name, 10);
        if (errno || n < 1 || n > INT32_MAX || (*name && *name != '/'))
            return failure_set(why, CLI_BAD, "--on %s: expected threads:N/NAME, with N ranks", url);
        out->ranks = (int)n;
        if ((size_t)snprintf(out->url, sizeof out->url, "threads:%ld%s", n, *name ? name : "/weft") >= sizeof out->url)
            return failure_set(why, CLI_BAD, "--on %s: the name is too long", url);
    } else {
        weft_comm *c = NULL;
        if (weft_comm_open(url, NULL, &c))
            return failure_set(why, CLI_BAD, "--on %s", weft_errmsg());
        weft_comm_close(c);
        return failure_set(why, CLI_BAD, "--on %s: ranks are started here on self: and threads: only", url);
    }
    if (out->ranks < world)
        return failure_set(why, CLI_BAD, "--on %s: the layouts use ranks up to %d, and there are %d ranks", url,
                           world - 1, out->ranks);
    return CLI_OK;
}

static int open_rank(void *arg, int rank)
{
    struct runner *r = arg;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .staged = r->staged};
    return weft_comm_open(r->place->url, &opts, &r->comms[rank]);
}

static int bind_rank(void *arg, int rank)
{
    struct runner *r = arg;
    return weft_bind(r->plans[rank], r->comms[rank], &r->src[rank], &r->dst[rank], NULL, &r->execs[rank]);
}

static int run_rank(void *arg, int rank)
{
    struct runner *r = arg;
    return weft_exec_run(r->execs[rank]);
}

static int close_rank(void *arg, int rank)
{
    struct runner *r = arg;
    weft_exec_free(r->execs[rank]);
    weft_comm_close(r->comms[rank]);
    return 0;
}

int runner_open(struct runner *r, struct failure *why)
{
    r->comms = calloc((size_t)r->place->ranks, sizeof(weft_comm *));
    r->execs = calloc((size_t)r->place->ranks, sizeof(weft_exec *));
    if (!r->comms || !r->execs)
        return failure_set(why, CLI_WRONG, "no memory for %d ranks", r->place->ranks);
    if (team_do(r->team, open_rank, r, why))
        return CLI_WRONG;
    int err = team_do(r->team, bind_rank, r, why);
    if (err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED)
        why->code = CLI_BAD;
    return err ? why->code : CLI_OK;
}

int runner_run(struct runner *r, struct failure *why)
{
    return team_do(r->team, run_rank, r, why) ? CLI_WRONG : CLI_OK;
}

void runner_close(struct runner *r)
{
    struct failure none;
    if (r->comms && r->execs)
        team_do(r->team, close_rank, r, &none);
    free(r->comms);
    free(r->execs);
    r->comms = NULL;
    r->execs = NULL;
}
