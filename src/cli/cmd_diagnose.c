/* weft diagnose: which ranks wait for which in a job that hung or failed, and which are missing, from the files of its
 * ranks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/diagnose/wait_ends.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/readable.h"

struct diagnosis {
    struct flight_files fl;
    struct wait_ends ends;
    size_t *by_on, *first_on; /* the waits, sorted by the rank that is waited for; where those for each rank begin */
    int *list, n;             /* ranks to be shown, ascending; a rank may be there several times */
};

/* ---- lists of ranks ---- */

static void list_missing(struct diagnosis *d)
{
    d->n = 0;
    for (int r = 0; r < d->fl.ranks; r++)
        if (!d->fl.here[r])
            d->list[d->n++] = r;
}

/* The ranks that wait for this one. */
static void list_waiting(struct diagnosis *d, int on)
{
    d->n = 0;
    for (size_t i = d->first_on[on]; i < d->first_on[on + 1]; i++)
        d->list[d->n++] = d->fl.waits[d->by_on[i]].rank;
}

/* The members of a set from its first one on. */
static void list_set(struct diagnosis *d, int first)
{
    d->n = 0;
    for (int r = first; r < d->fl.ranks && d->n < d->ends.size[d->ends.set[first]]; r++)
        if (d->ends.set[r] == d->ends.set[first])
            d->list[d->n++] = r;
}

static void list_telling(struct diagnosis *d, const char *failure)
{
    d->n = 0;
    for (int i = 0; i < d->fl.n; i++)
        if (!strcmp(d->fl.files[i].failure, failure))
            d->list[d->n++] = d->fl.files[i].rank;
}

/* The waits of one rank in one meeting follow each other. */
static bool same_meeting(const struct flight_wait *w, const struct flight_wait *v)
{
    return w->call && v->call && w->rank == v->rank && !strcmp(w->comm, v->comm);
}

static void list_missed(struct diagnosis *d, const struct flight_wait *w)
{
    d->n = 0;
    for (const struct flight_wait *v = w; v < d->fl.waits + d->fl.nwaits && same_meeting(w, v); v++)
        d->list[d->n++] = v->on;
}

/* "rank 3", or with several hosts "rank 3 on host b". */
static void print_rank(const struct diagnosis *d, int rank)
{
    printf("rank %d", rank);
    if (d->fl.hosts[rank])
        printf(" on host %s", d->fl.hosts[rank]);
}

/* The same for one rank, "ranks 0, 2-5" for several; true: there is only one. */
static bool print_list(const struct diagnosis *d)
{
    bool one = d->list[0] == d->list[d->n - 1];
    if (one) {
        print_rank(d, d->list[0]);
        return true;
    }
    const char *before = "ranks ";
    for (int i = 0, last; i < d->n; i = last + 1, before = ", ") {
        for (last = i; last + 1 < d->n && d->list[last + 1] <= d->list[last] + 1; last++) {
        }
        int lo = d->list[i], hi = d->list[last];
        if (hi > lo + 1)
            printf("%s%d-%d", before, lo, hi);
        else if (hi > lo)
            printf("%s%d, %d", before, lo, hi);
        else
            printf("%s%d", before, lo);
    }
    return false;
}

static void json_list(struct json *j, const char *key, const struct diagnosis *d)
{
    json_write_open(j, key, '[', true);
    for (int i = 0; i < d->n; i++)
        if (!i || d->list[i] != d->list[i - 1])
            json_write_int(j, NULL, d->list[i]);
    json_write_close(j, ']');
}

/* ---- findings ---- */

static bool failure_is_new(const struct flight_files *fl, int i)
{
    if (!*fl->files[i].failure)
        return false;
    for (int k = 0; k < i; k++)
        if (!strcmp(fl->files[k].failure, fl->files[i].failure))
            return false;
    return true;
}

/* A file before this one whose rank is in the same meeting of the same comm with another call or another plan. */
static const struct flight_file *disagrees(const struct flight_files *fl, int i)
{
    const struct flight_file *b = &fl->files[i];
    for (int k = 0; k < i && b->call; k++) {
        const struct flight_file *a = &fl->files[k];
        if (a->call && a->meeting == b->meeting && !strcmp(a->comm, b->comm) &&
            (strcmp(a->call, b->call) || strcmp(a->plan, b->plan)))
            return a;
    }
    return NULL;
}

/* What is known of a rank that holds up others and waits for none. */
static const char *state_of(const struct diagnosis *d, int rank)
{
    bool unstarted = false;
    for (size_t i = d->first_on[rank]; i < d->first_on[rank + 1]; i++) {
        const struct flight_wait *w = &d->fl.waits[d->by_on[i]];
        if (!strcmp(w->peer, "died"))
            return d->fl.hosts[rank] ? "has died or cannot be reached" : "has died";
        if (!strcmp(w->peer, "lost"))
            return "cannot be reached";
        if (!strcmp(w->peer, "left"))
            return "has closed its comm";
        unstarted |= w->call || !w->started;
    }
    if (d->fl.here[rank])
        return unstarted ? "waits for nobody in weft and has not come to what the others are in"
                         : "waits for nobody in weft";
    return unstarted ? "has no file and has not come to what the others are in: it is stopped, or busy outside weft"
                     : "has no file: it is stopped, or busy outside weft";
}

static bool nothing_wrong(const struct diagnosis *d)
{
    for (int i = 0; i < d->fl.n; i++)
        if (*d->fl.files[i].failure || *d->fl.files[i].timeout)
            return false;
    return !d->fl.nwaits;
}

/* ---- text ---- */

static void print_wait(struct diagnosis *d, const struct flight_wait *w)
{
    char bytes[64];
    if (w->call) {
        printf("rank %d waits for ", w->rank);
        list_missed(d, w);
        print_list(d);
        printf(" in %s (meeting %" PRId64 " of %s)\n", w->call, w->meeting, w->comm);
        return;
    }
    printf("rank %d waits for ", w->rank);
    print_rank(d, w->on);
    printf("%s%s",
           !strcmp(w->peer, "died")
               ? d->fl.hosts[w->on] ? ", which has died or cannot be reached," : ", which has died,"
           : !strcmp(w->peer, "lost") ? ", which cannot be reached,"
           : !strcmp(w->peer, "left") ? ", which has left,"
           : w->started               ? ""
                                      : ", which has not started the run,",
           w->sends ? " to take" : " to send");
    printf(" message %" PRId64 " of %" PRId64 ", %s of tensor ", w->message, w->messages,
           readable_bytes(w->bytes, bytes, sizeof bytes));
    if (*w->name)
        printf("'%s'", w->name);
    else
        printf("%" PRId64, w->tensor);
    if (w->parts > 1)
        printf(" (the first of %" PRId64 " parts)", w->parts);
    printf("; run %" PRId64 " of exec %" PRId64 " of %s: %s by %s, plan %s\n", w->run, w->exec, w->comm, w->kind,
           w->algorithm, w->plan);
}

/* The culprits, and the circles at their first ranks. */
static void print_ends(struct diagnosis *d)
{
    for (int r = 0; r < d->fl.ranks; r++) {
        int s = d->ends.set[r];
        if (!d->ends.is_end[s])
            continue;
        if (d->ends.size[s] == 1) {
            fputs("culprit: ", stdout);
            print_rank(d, r);
            printf(" %s; ", state_of(d, r));
            list_waiting(d, r);
            puts(print_list(d) ? " waits for it" : " wait for it");
        } else {
            fputs("circle: ", stdout);
            list_set(d, r);
            print_list(d);
            puts(" wait for each other and for nobody else");
            d->ends.is_end[s] = false; /* it has been printed */
        }
    }
}

static void print_text(struct diagnosis *d)
{
    const struct flight_files *fl = &d->fl;
    printf("%s: %d ranks, %d files\n", fl->files[0].job, fl->ranks, fl->n);
    list_missing(d);
    if (d->n) {
        fputs("missing: ", stdout);
        puts(print_list(d) ? " has no file" : " have no file");
    }
    for (int i = 0; i < fl->n; i++) {
        const struct flight_file *other = disagrees(fl, i), *file = &fl->files[i];
        if (failure_is_new(fl, i)) {
            printf("failure: %s (told by ", file->failure);
            list_telling(d, file->failure);
            print_list(d);
            puts(")");
        }
        if (*file->timeout)
            printf("timeout: rank %d: %s\n", file->rank, file->timeout);
        if (other)
            printf("differs: in meeting %" PRId64 " of %s rank %d is in %s (plan %s), rank %d in %s (plan %s)\n",
                   file->meeting, file->comm, other->rank, other->call, other->plan, file->rank, file->call,
                   file->plan);
    }
    for (size_t i = 0; i < fl->nwaits; i++)
        if (!i || !same_meeting(&fl->waits[i - 1], &fl->waits[i]))
            print_wait(d, &fl->waits[i]);
    if (!fl->nwaits)
        puts("nobody waits for another rank");
    print_ends(d);
}

/* ---- JSON ---- */

static void json_wait(struct json *j, const struct flight_wait *w)
{
    json_write_open(j, NULL, '{', true);
    json_write_int(j, "rank", w->rank);
    json_write_int(j, "for", w->on);
    json_write_text(j, "peer", w->peer);
    json_write_text(j, "comm", w->comm);
    json_write_text(j, "call", w->call);
    if (w->call) {
        json_write_int(j, "meeting", w->meeting);
    } else {
        json_write_bool(j, "started", w->started);
        json_write_text(j, "way", w->sends ? "to" : "from");
        json_write_int(j, "exec", w->exec);
        json_write_int(j, "run", w->run);
        json_write_text(j, "plan", w->plan);
        json_write_int(j, "message", w->message);
        json_write_int(j, "messages", w->messages);
        json_write_int(j, "bytes", w->bytes);
        json_write_int(j, "tensor", w->tensor);
        json_write_text(j, "name", w->name);
    }
    json_write_close(j, '}');
}

static void json_files(struct json *j, const struct flight_files *fl)
{
    json_write_open(j, "files", '[', false);
    for (int i = 0; i < fl->n; i++) {
        const struct flight_file *file = &fl->files[i], *other = disagrees(fl, i);
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "path", file->path);
        json_write_text(j, "comm", file->comm);
        json_write_int(j, "rank", file->rank);
        json_write_text(j, "host", file->host);
        json_write_text(j, "why", file->why);
        json_write_text(j, "failure", *file->failure ? file->failure : NULL);
        json_write_text(j, "timeout", *file->timeout ? file->timeout : NULL);
        json_write_text(j, "call", file->call);
        if (other)
            json_write_int(j, "differs_from", other->rank);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
}

static void print_json(struct diagnosis *d)
{
    const struct flight_files *fl = &d->fl;
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "job", fl->files[0].job);
    json_write_int(&j, "ranks", fl->ranks);
    list_missing(d);
    json_list(&j, "missing", d);
    json_files(&j, fl);
    json_write_open(&j, "waits", '[', false);
    for (size_t i = 0; i < fl->nwaits; i++)
        json_wait(&j, &fl->waits[i]);
    json_write_close(&j, ']');
    json_write_open(&j, "culprits", '[', false);
    for (int r = 0; r < fl->ranks; r++) {
        int s = d->ends.set[r];
        if (!d->ends.is_end[s] || d->ends.size[s] > 1)
            continue;
        json_write_open(&j, NULL, '{', true);
        json_write_int(&j, "rank", r);
        json_write_text(&j, "host", d->fl.hosts[r]);
        json_write_text(&j, "state", state_of(d, r));
        list_waiting(d, r);
        json_list(&j, "waiting", d);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_open(&j, "circles", '[', true);
    for (int r = 0; r < fl->ranks; r++) {
        if (!d->ends.is_end[d->ends.set[r]] || d->ends.size[d->ends.set[r]] == 1)
            continue;
        list_set(d, r);
        json_list(&j, NULL, d);
        d->ends.is_end[d->ends.set[r]] = false;
    }
    json_write_close(&j, ']');
    json_write_close(&j, '}');
}

/* ---- the verb ---- */

/* The waits, sorted by the rank that is waited for, and then by the rank that waits. */
static void index_waits(struct diagnosis *d)
{
    for (size_t i = 0; i < d->fl.nwaits; i++)
        d->first_on[d->fl.waits[i].on + 2]++;
    for (int r = 0; r < d->fl.ranks; r++)
        d->first_on[r + 2] += d->first_on[r + 1];
    for (size_t i = 0; i < d->fl.nwaits; i++)
        d->by_on[d->first_on[d->fl.waits[i].on + 1]++] = i;
}

static int diagnose(void *arg, const char *const *paths, int n, struct failure *f)
{
    const bool *json = arg;
    struct diagnosis d = {.n = 0};
    int code = flight_files_read(paths, n, &d.fl, f);
    if (code)
        return code;
    size_t ranks = (size_t)d.fl.ranks, most = ranks > d.fl.nwaits ? ranks : d.fl.nwaits;
    d.by_on = calloc(d.fl.nwaits + 1, sizeof *d.by_on);
    d.first_on = calloc(ranks + 2, sizeof *d.first_on);
    d.list = calloc(most + (size_t)n, sizeof *d.list);
    if (!d.by_on || !d.first_on || !d.list)
        code = failure_set(f, CLI_WRONG, "memory is out");
    if (!code)
        code = wait_ends_find(&d.fl, &d.ends, f);
    if (!code) {
        index_waits(&d);
        if (*json)
            print_json(&d);
        else
            print_text(&d);
        code = nothing_wrong(&d) ? CLI_OK : CLI_WRONG;
    }
    wait_ends_free(&d.ends);
    free(d.by_on);
    free(d.first_on);
    free(d.list);
    flight_files_free(&d.fl);
    return code;
}

int cmd_diagnose(int argc, char **argv)
{
    bool json = false;
    const struct args_option rows[] = {{"json", ARGS_FLAG, NULL, "print the same as JSON", &json, 0, 0}, {0}};
    const struct args_verb verb = {
        "diagnose", "[--json] FILE...",
        "Shows which rank waits for which in a job that hung or failed, and which ranks are missing. The files are "
        "those that the\n"
        "ranks wrote into the folder WEFT_FLIGHT when a wait ran out of time, when the comm failed, or after SIGUSR2.\n"
        "Exit code 0: no rank waits; 1: a rank waits, or something failed; 2: a file cannot be used.",
        rows, argc};
    return args_files(&verb, argc, argv, "there is no file", diagnose, &json);
}
