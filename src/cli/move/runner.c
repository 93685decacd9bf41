/* Comms and execs of all ranks; see runner.h. */
#define _GNU_SOURCE
#include "cli/move/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define RANKS_MAX 65536 /* the library's own limit, for threads: */

/* A rank's buffer and its copy in window memory. */
struct runner_window {
    char *outside, *inside;
    size_t bytes;
};

/* ---- where ranks run ---- */

static int place_shm(const char *url, int world, struct runner_place *out, struct failure *why)
{
    uint64_t random = 0;
    if (!url[4] && getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return failure_set(why, CLI_WRONG, "no random number: %s", strerror(errno));
    *out = (struct runner_place){.ranks = world, .processes = true};
    int n = url[4] ? snprintf(out->url, sizeof out->url, "%s", url)
                   : snprintf(out->url, sizeof out->url, "shm:weft-%ld-%016llx", (long)getpid(),
                              (unsigned long long)random);
    return (size_t)n < sizeof out->url ? CLI_OK : failure_set(why, CLI_BAD, "--on %.80s...: the name is too long", url);
}

int runner_join(weft_comm *job, int world, struct runner_place *out, struct failure *why)
{
    *out = (struct runner_place){.ranks = weft_comm_size(job), .job = job};
    if (out->ranks < world)
        return failure_set(why, CLI_BAD, "the layouts use ranks up to %d, and the job has %d", world - 1, out->ranks);
    return CLI_OK;
}

bool runner_has(const struct runner_place *p, int rank)
{
    return !p->job || weft_comm_rank(p->job) == rank;
}

void *runner_alloc(const struct runner_place *p, size_t bytes)
{
    return p->processes ? worker_processes_alloc(bytes) : calloc(1, bytes ? bytes : 1);
}

void runner_free(const struct runner_place *p, void *memory, size_t bytes)
{
    if (p->processes)
        worker_processes_free(memory, bytes);
    else
        free(memory);
}

/* Checked before all plans are made. */
static int check_number(const char *url, const struct runner_place *p, int world, struct failure *why)
{
    if (p->ranks > RANKS_MAX || world > RANKS_MAX)
        return failure_set(why, CLI_BAD, "--on %s: at most %d ranks can be run, and these are %d", url, RANKS_MAX,
                           p->ranks > world ? p->ranks : world);
    if (p->ranks < world)
        return failure_set(why, CLI_BAD, "--on %s has %d of the %d ranks that the layouts use", url, p->ranks, world);
    return CLI_OK;
}

int runner_place(const char *url, int world, struct runner_place *out, struct failure *why)
{
    static const char threads[] = "threads:";
    if (!url)
        url = threads;
    if (!strcmp(url, "self:")) {
        *out = (struct runner_place){.url = "self:", .ranks = 1};
    } else if (!strncmp(url, "shm:", 4)) {
        int code = place_shm(url, world, out, why);
        return code ? code : check_number(url, out, world, why);
    } else if (!strncmp(url, threads, strlen(threads))) {
        const char *rest = url + strlen(threads);
        char *name = (char *)rest;
        long n = world;
        errno = 0;
        if (*rest && *rest != '/')
            n = strtol(rest, &name, 10);
        if (errno || n < 1 || n > INT32_MAX || (*name && *name != '/'))
            return failure_set(why, CLI_BAD, "--on %s: expected threads:N/NAME, with N ranks", url);
        *out = (struct runner_place){.ranks = (int)n};
        if ((size_t)snprintf(out->url, sizeof out->url, "threads:%ld%s", n, *name ? name : "/weft") >= sizeof out->url)
            return failure_set(why, CLI_BAD, "--on %s: the name is too long", url);
    } else {
        weft_comm *c = NULL;
        if (weft_comm_open(url, NULL, &c))
            return failure_set(why, CLI_BAD, "--on %s", weft_errmsg());
        weft_comm_close(c);
        return failure_set(why, CLI_BAD, "--on %s: ranks are started here on self:, threads: and shm: only", url);
    }
    return check_number(url, out, world, why);
}

/* ---- what each rank does ---- */

static int open_rank(void *arg, int rank)
{
    struct runner *r = arg;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .staged = r->staged};
    if (r->place->processes)
        opts.ranks = r->place->ranks;
    return weft_comm_open(r->place->url, &opts, &r->comms[rank]);
}

static bool overlap(const weft_view *a, const weft_view *b)
{
    return (uintptr_t)a->data < (uintptr_t)b->data + b->bytes && (uintptr_t)b->data < (uintptr_t)a->data + a->bytes;
}

static int move_inside(weft_comm *c, struct runner_window *w)
{
    void *inside;
    int err = weft_comm_alloc(c, w->bytes, WEFT_MEMORY_HOST, 0, &inside);
    if (!err)
        w->inside = inside;
    return err;
}

/* Puts a rank's two views into window memory. If they share a buffer, the copies do, too. */
static int make_windows(weft_comm *c, struct runner_window *w, weft_view *src, weft_view *dst)
{
    w[0] = (struct runner_window){.outside = src->data, .bytes = src->bytes};
    w[1] = (struct runner_window){.outside = dst->data, .bytes = dst->bytes};
    bool one = src->data && dst->data && overlap(src, dst);
    if (one) {
        char *end = w[0].outside + w[0].bytes, *other = w[1].outside + w[1].bytes;
        if (w[1].outside < w[0].outside)
            w[0].outside = w[1].outside;
        w[0].bytes = (size_t)((end > other ? end : other) - w[0].outside);
        w[1].bytes = 0;
    }
    for (int i = 0; i < 2; i++) {
        int err = w[i].bytes ? move_inside(c, &w[i]) : 0;
        if (err)
            return err;
    }
    if (src->data)
        src->data = w[0].inside + ((char *)src->data - w[0].outside);
    if (dst->data)
        dst->data = one ? w[0].inside + ((char *)dst->data - w[0].outside) : w[1].inside;
    return 0;
}

static int explain(const weft_exec *x)
{
    size_t len, again;
    int err = weft_exec_explain(x, false, NULL, 0, &len);
    char *text = err ? NULL : malloc(len + 1);
    if (text && !weft_exec_explain(x, false, text, len + 1, &again)) {
        fputs(text, stdout);
        fflush(stdout); /* the rank may be a process of its own */
    }
    free(text);
    return err;
}

static int bind_rank(void *arg, int rank)
{
    struct runner *r = arg;
    weft_view src = r->src[rank], dst = r->dst[rank];
    int err = r->window ? make_windows(r->comms[rank], &r->windows[2 * rank], &src, &dst) : 0;
    if (!err)
        err = weft_bind(r->plans[rank], r->comms[rank], &src, &dst, NULL, &r->execs[rank]);
    return !err && r->explain && !rank ? explain(r->execs[rank]) : err;
}

static int run_rank(void *arg, int rank)
{
    struct runner *r = arg;
    struct runner_window *w = &r->windows[2 * rank];
    for (int i = 0; i < 2 && r->window; i++)
        if (w[i].bytes)
            memcpy(w[i].inside, w[i].outside, w[i].bytes);
    int err = weft_exec_run(r->execs[rank]);
    for (int i = 0; i < 2 && r->window; i++)
        if (w[i].bytes)
            memcpy(w[i].outside, w[i].inside, w[i].bytes);
    return err;
}

static int close_rank(void *arg, int rank)
{
    struct runner *r = arg;
    weft_exec_close(r->execs[rank]);
    r->execs[rank] = NULL;
    if (r->window)
        for (int i = 0; i < 2; i++)
            weft_comm_free(r->comms[rank], r->windows[2 * rank + i].inside);
    if (!r->place->job)
        weft_comm_close(r->comms[rank]);
    return 0;
}

/* ---- all ranks together ---- */

/* The result of one process of a job. */
struct outcome {
    int32_t err;
    char text[1020];
};

/* Gives the results of all processes to every process of the job: an allgather on the job's own comm. */
static int share_outcomes(weft_comm *job, const struct outcome *mine, struct outcome *all)
{
    char src[64], dst[64];
    int n = weft_comm_size(job);
    weft_layout *a = NULL, *b = NULL;
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    snprintf(src, sizeof src, "u8[%zu/x] @x%d", (size_t)n * sizeof *all, n);
    snprintf(dst, sizeof dst, "u8[%zu] @x%d", (size_t)n * sizeof *all, n);
    weft_view from = {.data = (void *)(uintptr_t)mine, .bytes = sizeof *mine};
    weft_view to = {.data = all, .bytes = (size_t)n * sizeof *all};
    int err = weft_layout_parse(src, &a);
    if (!err)
        err = weft_layout_parse(dst, &b);
    if (!err)
        err = weft_lower(&(weft_move){.name = "outcome", .src = a, .dst = b}, 1, weft_comm_rank(job), NULL, &plan);
    if (!err)
        err = weft_bind(plan, job, &from, &to, NULL, &exec);
    if (!err)
        err = weft_exec_run(exec);
    weft_exec_close(exec);
    weft_plan_free(plan);
    weft_layout_free(a);
    weft_layout_free(b);
    return err;
}

static int say(struct failure *why, int rank, int err, const char *text)
{
    if (strstr(text, "rank "))
        failure_set(why, CLI_WRONG, "%s", text);
    else
        failure_set(why, CLI_WRONG, "rank %d: %s", rank, text);
    return err;
}

/* The code of the first rank whose code is not 0, and its text. */
static int job_agree(const struct runner_place *p, const struct outcome *mine, struct failure *why)
{
    int rank = weft_comm_rank(p->job);
    struct outcome *all = calloc((size_t)p->ranks, sizeof *all);
    int err = all ? share_outcomes(p->job, mine, all) : WEFT_ENOMEM;
    if (err)
        err = say(why, rank, err, mine->err ? mine->text : weft_errmsg());
    for (int i = 0; i < p->ranks && !err; i++)
        if (all[i].err)
            err = say(why, i, all[i].err, all[i].text);
    free(all);
    return err;
}

int runner_agree(const struct runner_place *p, int code, struct failure *why)
{
    if (!p->job)
        return code;
    struct outcome mine = {.err = code};
    if (code)
        snprintf(mine.text, sizeof mine.text, "%.1019s", why->text);
    return job_agree(p, &mine, why) ? CLI_WRONG : CLI_OK;
}

static int job_do(struct runner *r, worker_work *work, struct failure *why)
{
    struct outcome mine = {.err = work(r, weft_comm_rank(r->place->job))};
    if (mine.err)
        snprintf(mine.text, sizeof mine.text, "%.1019s", weft_errmsg());
    return job_agree(r->place, &mine, why);
}

static int ranks_do(struct runner *r, worker_work *work, struct failure *why)
{
    if (r->place->job)
        return job_do(r, work, why);
    return r->processes ? worker_processes_do(r->processes, work, r, why) : worker_threads_do(r->threads, work, r, why);
}

int runner_begin(struct runner *r, struct failure *why)
{
    size_t n = (size_t)r->place->ranks;
    r->comms = calloc(n, sizeof(weft_comm *));
    r->execs = calloc(n, sizeof(weft_exec *));
    r->windows = calloc(2 * n, sizeof *r->windows);
    if (!r->comms || !r->execs || !r->windows)
        return failure_set(why, CLI_WRONG, "no memory for %d ranks", r->place->ranks);
    return r->place->processes ? worker_processes_open(r->place->ranks, &r->processes, why) : CLI_OK;
}

int runner_open(struct runner *r, struct failure *why)
{
    r->opened = true;
    if (r->place->job)
        r->comms[weft_comm_rank(r->place->job)] = r->place->job;
    else if (ranks_do(r, open_rank, why))
        return CLI_WRONG;
    int err = ranks_do(r, bind_rank, why);
    if (err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED)
        why->code = CLI_BAD;
    return err ? why->code : CLI_OK;
}

int runner_run(struct runner *r, struct failure *why)
{
    return ranks_do(r, run_rank, why) ? CLI_WRONG : CLI_OK;
}

void runner_close(struct runner *r)
{
    struct failure none;
    if (r->opened)
        r->place->job ? close_rank(r, weft_comm_rank(r->place->job)) : ranks_do(r, close_rank, &none);
    worker_processes_close(r->processes);
    free(r->comms);
    free(r->execs);
    free(r->windows);
    r->opened = false;
    r->processes = NULL;
    r->comms = NULL;
    r->execs = NULL;
    r->windows = NULL;
}
