/* weft trace: the traces of all ranks of a job as one, its longest waits, and what the simulation foresaw. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/trace/trace_calls.h"
#include "cli/trace/trace_merge.h"
#include "cli/trace/trace_runs.h"
#include "foresee/scene.h"
#include "foresee/story.h"
#include "tool/args.h"
#include "tool/readable.h"

#define WAITS 10

struct options {
    const struct args_verb *verb;
    const char *out, *machine, *plans;
    bool json, sim;
};

/* What the simulation of an exec's plan says; total < 0: it was not simulated, and why is said. */
struct foreseen {
    double total, *ranks;
    char why[160];
};

struct report {
    struct trace_files t;
    struct trace_runs_list runs;
    struct trace_calls_list calls;
    const struct trace_slice *waits[WAITS];
    int nwaits;
    struct foreseen *foreseen; /* one for each of runs; NULL: nobody asked */
};

/* ---- what is found ---- */

static void find_waits(struct report *r)
{
    for (size_t i = 0; i < r->t.nslices; i++) {
        const struct trace_slice *s = &r->t.slices[i];
        if (!trace_files_is(&r->t, s, "wait") || (r->nwaits == WAITS && s->ns <= r->waits[WAITS - 1]->ns))
            continue;
        int at = r->nwaits < WAITS ? r->nwaits++ : WAITS - 1;
        for (; at && s->ns > r->waits[at - 1]->ns; at--)
            r->waits[at] = r->waits[at - 1];
        r->waits[at] = s;
    }
}

/* A rank is done when the last copy and the last message of its own are. */
static void ends_of(const struct scene_run *run, double *ranks)
{
    for (size_t i = 0; i < run->graph.nodes.n; i++) {
        const struct links_load *x = &run->graph.nodes.v[i].load;
        const struct events_span *s = &run->events.span[i];
        double there = s->end + links_latency(&run->links, x->from, x->to);
        if (s->end < 0)
            continue;
        ranks[x->from] = s->end > ranks[x->from] ? s->end : ranks[x->from];
        ranks[x->to] = there > ranks[x->to] ? there : ranks[x->to];
    }
}

/* Where the ranks of the job are; NULL: on one host, or the exec is of a comm that has other ranks. */
static int *hosts_of(const struct trace_files *t, const struct trace_runs *of)
{
    int *host = t->nhosts > 1 && !strcmp(of->comm, t->files[0].job) ? calloc((size_t)t->ranks, sizeof *host) : NULL;
    for (int i = 0; host && i < t->n; i++)
        host[t->files[i].rank] = t->files[i].host_number;
    return host;
}

static int foresee(const struct options *o, const struct trace_files *t, const struct trace_runs *of,
                   struct foreseen *out, struct failure *f)
{
    struct scene s = {.moves = {0}};
    struct scene_run run = {0};
    struct scene_how how = {.algorithm = of->algorithm, .quiet = true};
    char *path;
    out->total = -1;
    if (asprintf(&path, "%s/weft-plan-%s.plan", o->plans, of->plan) < 0)
        return failure_set(f, CLI_WRONG, "memory is out");
    int code = machine_file_open(o->machine, &how.machine, f);
    if (!code && access(path, R_OK)) {
        snprintf(out->why, sizeof out->why, "weft-plan-%.40s.plan is not beside the traces", of->plan);
        free(path);
        return 0;
    }
    if (!code)
        code = scene_plan(&s, path, f);
    if (!code && s.world > t->ranks)
        code = failure_set(f, CLI_BAD, "%s: it is for %d ranks, the job has %d", path, s.world, t->ranks);
    int *host = code ? NULL : hosts_of(t, of);
    how.host = host;
    if (!code)
        code = scene_simulate(&s, &how, &run, f);
    out->ranks = calloc((size_t)t->ranks, sizeof *out->ranks);
    if (!code && !out->ranks)
        code = failure_set(f, CLI_WRONG, "memory is out");
    if (!code) {
        out->total = run.events.total;
        ends_of(&run, out->ranks);
    }
    scene_run_free(&run);
    scene_free(&s);
    free(host);
    free(path);
    return code;
}

static int foresee_all(const struct options *o, struct report *r, struct failure *f)
{
    int code = 0;
    r->foreseen = calloc((size_t)r->runs.n + 1, sizeof *r->foreseen);
    if (!r->foreseen)
        return failure_set(f, CLI_WRONG, "memory is out");
    for (int i = 0; i < r->runs.n && !code; i++)
        code = foresee(o, &r->t, &r->runs.of[i], &r->foreseen[i], f);
    return code;
}

/* ---- text ---- */

static char *time_text(double ns, char buf[32])
{
    return story_time(ns, buf, 32);
}

static void print_clocks(const struct trace_files *t)
{
    char a[32], b[32];
    for (int i = 1; i < t->nhosts; i++) {
        const struct trace_host *h = &t->hosts[i];
        if (h->hops < 0) {
            printf("clock: that of %s was not compared with that of %s: its times are as they were\n", h->name,
                   t->hosts[0].name);
            continue;
        }
        double apart = (double)h->looks[0].offset;
        printf("clock: that of %s is %s %s that of %s, give or take %s\n", h->name,
               time_text(apart < 0 ? -apart : apart, a), apart < 0 ? "ahead of" : "behind", t->hosts[h->to].name,
               time_text((double)h->error, b));
    }
    if (t->backwards)
        printf("clock: %zu messages seem to arrive before they leave\n", t->backwards);
}

/* The rank that asked for a notify: that of the file in which it was done, or one of another host. */
static int asker(const struct trace_files *t, int file, const struct trace_slice *wait)
{
    static const char *const keys[] = {"window", "signal", "value"};
    for (size_t i = 0; i < t->nslices; i++) {
        const struct trace_slice *s = &t->slices[i];
        bool same = s->file == file && trace_files_is(t, s, "notify") && trace_files_int(t, s, "of", -1) >= 0 &&
                    trace_files_int(t, s, "to", -1) == t->files[wait->file].rank;
        for (int k = 0; k < 3 && same; k++)
            same = trace_files_int(t, s, keys[k], -1) == trace_files_int(t, wait, keys[k], -2);
        if (same)
            return (int)trace_files_int(t, s, "of", -1);
    }
    return t->files[file].rank;
}

/* The rank whose notify ended a wait for a signal; -1: its trace is not there. */
static int notifier(const struct trace_files *t, const struct trace_slice *s)
{
    for (size_t i = 0; i < t->narrows; i++) {
        const struct trace_arrow *a = &t->arrows[i];
        if (a->signal && a->ends && a->file == s->file && a->at >= s->at && a->at <= s->at + s->ns)
            return asker(t, a->other, s);
    }
    return -1;
}

/* A wait in a window or an exchange. */
static void print_call_wait(const struct trace_files *t, const struct trace_slice *s)
{
    int64_t window = trace_files_int(t, s, "window", -1), on = trace_files_int(t, s, "for", -1);
    if (window < 0) {
        if (on < 0)
            printf("waited, for no rank, ");
        else
            printf("waited for rank %" PRId64 " to %s, ", on, trace_files_text(t, s, "to"));
        printf("in round %" PRId64 " of exchange %" PRId64 "\n", trace_files_int(t, s, "round", 0),
               trace_files_int(t, s, "exchange", 0));
        return;
    }
    int by = notifier(t, s);
    printf("waited for signal %" PRId64 " of window %" PRId64, trace_files_int(t, s, "signal", 0), window);
    if (by >= 0)
        printf(", which rank %d notified", by);
    puts("");
}

static void print_wait(const struct trace_files *t, const struct trace_slice *s)
{
    char a[32], b[32], bytes[64];
    int64_t on = trace_files_int(t, s, "for", -1);
    printf("  %10s from %10s on: rank %d ", time_text((double)s->ns, a), time_text((double)(s->at - t->begin), b),
           t->files[s->file].rank);
    if (s->exec < 0) {
        print_call_wait(t, s);
        return;
    }
    if (on < 0) {
        printf("waited, for no rank, in run %" PRId64 " of exec %" PRId64 "\n", s->run, s->exec);
        return;
    }
    const char *name = trace_files_text(t, s, "name");
    printf("waited for rank %" PRId64 " to %s message %" PRId64 ", %s of tensor ", on, trace_files_text(t, s, "to"),
           trace_files_int(t, s, "message", 0) + 1,
           readable_bytes(trace_files_int(t, s, "bytes", 0), bytes, sizeof bytes));
    if (*name)
        printf("'%s'", name);
    else
        printf("%" PRId64, trace_files_int(t, s, "tensor", 0));
    printf(", by %s; run %" PRId64 " of exec %" PRId64 "\n", trace_files_text(t, s, "way"), s->run, s->exec);
}

static void print_runs(const struct report *r, int i)
{
    const struct trace_runs *of = &r->runs.of[i];
    const struct foreseen *sim = r->foreseen ? &r->foreseen[i] : NULL;
    char a[32], b[32], c[32];
    printf("exec %" PRId64 " of %s: %s by %s, driver %s, plan %s: %d runs of all %d ranks", of->exec, of->comm,
           of->kind, of->algorithm, of->driver, of->plan, of->runs, of->members);
    if (of->runs)
        printf(", median %s", time_text((double)of->median, a));
    if (sim && sim->total < 0)
        printf("; not foreseen: %s", sim->why);
    else if (sim)
        printf("; foreseen %s", time_text(sim->total, b));
    if (sim && sim->total > 0 && of->runs)
        printf(", measured is %.2f times that", (double)of->median / sim->total);
    puts("");
    for (int k = 0; k < r->t.ranks; k++) {
        const struct trace_rank_runs *rank = &of->ranks[k];
        if (!rank->runs)
            continue;
        printf("  rank %d: %d runs, median %s, waits %s on average", k, rank->runs, time_text((double)rank->median, a),
               time_text((double)rank->waited, b));
        if (sim && sim->total >= 0)
            printf("; foreseen %s", time_text(sim->ranks[k], c));
        puts("");
    }
}

static void print_calls(const struct trace_calls *c)
{
    char a[32], b[32], bytes[64];
    printf("%s %" PRId64 " of %s: ", c->exchange ? "exchange" : "window", c->number, c->comm);
    if (c->exchange) {
        printf("%d rounds of all %d ranks", c->rounds, c->members);
        if (c->rounds)
            printf(", median %s", time_text((double)c->median, a));
        printf(", %" PRId64 " messages of %s", c->messages, readable_bytes(c->bytes, bytes, sizeof bytes));
    } else {
        printf("%" PRId64 " puts of %s, %" PRId64 " notifies, %" PRId64 " barriers", c->puts,
               readable_bytes(c->bytes, bytes, sizeof bytes), c->notifies, c->barriers);
        if (c->arrived)
            printf(", %" PRId64 " operations between hosts", c->arrived);
    }
    printf("; %" PRId64 " waits, %s in all\n", c->waits, time_text((double)c->waited, b));
}

static void print_text(const struct report *r)
{
    const struct trace_files *t = &r->t;
    int64_t recorded = 0, dropped = 0;
    for (int i = 0; i < t->n; i++) {
        recorded += t->files[i].recorded;
        dropped += t->files[i].dropped;
    }
    printf("%s: %d ranks, %d files, %" PRId64 " events, of which %" PRId64
           " were dropped, %zu messages with both ends, "
           "%zu with one",
           t->files[0].job, t->ranks, t->n, recorded, dropped, t->narrows / 2 - t->signals, t->unpaired);
    if (t->signals)
        printf(", %zu notifies that ended a wait", t->signals);
    puts("");
    print_clocks(t);
    for (int i = 0; i < r->runs.n; i++)
        print_runs(r, i);
    for (size_t i = 0; i < r->calls.n; i++)
        print_calls(&r->calls.of[i]);
    puts(r->nwaits ? "longest waits:" : "no rank waited");
    for (int i = 0; i < r->nwaits; i++)
        print_wait(t, r->waits[i]);
}

/* ---- JSON ---- */

static void json_call_wait(struct json *j, const struct trace_files *t, const struct trace_slice *s)
{
    bool window = trace_files_int(t, s, "window", -1) >= 0;
    int64_t on = window ? notifier(t, s) : trace_files_int(t, s, "for", -1);
    if (on < 0)
        json_write_text(j, "for", NULL);
    else
        json_write_int(j, "for", on);
    json_write_text(j, "comm", t->files[s->file].comm);
    for (int i = window ? 0 : 2; i < (window ? 2 : 4); i++) {
        static const char *const keys[] = {"window", "signal", "exchange", "round"};
        json_write_int(j, keys[i], trace_files_int(t, s, keys[i], 0));
    }
    json_write_close(j, '}');
}

static void json_wait(struct json *j, const struct trace_files *t, const struct trace_slice *s)
{
    json_write_open(j, NULL, '{', true);
    json_write_int(j, "ns", s->ns);
    json_write_int(j, "at_ns", s->at - t->begin);
    json_write_int(j, "rank", t->files[s->file].rank);
    if (s->exec < 0) {
        json_call_wait(j, t, s);
        return;
    }
    if (trace_files_int(t, s, "for", -1) >= 0) {
        json_write_int(j, "for", trace_files_int(t, s, "for", -1));
        json_write_text(j, "to", trace_files_text(t, s, "to"));
        json_write_int(j, "message", trace_files_int(t, s, "message", 0));
        json_write_int(j, "bytes", trace_files_int(t, s, "bytes", 0));
        json_write_text(j, "way", trace_files_text(t, s, "way"));
        json_write_int(j, "tensor", trace_files_int(t, s, "tensor", 0));
        json_write_text(j, "name", trace_files_text(t, s, "name"));
    } else {
        json_write_text(j, "for", NULL);
    }
    json_write_text(j, "comm", t->files[s->file].comm);
    json_write_int(j, "exec", s->exec);
    json_write_int(j, "run", s->run);
    json_write_close(j, '}');
}

static void json_runs(struct json *j, const struct report *r, int i)
{
    const struct trace_runs *of = &r->runs.of[i];
    const struct foreseen *sim = r->foreseen ? &r->foreseen[i] : NULL;
    bool known = sim && sim->total >= 0;
    json_write_open(j, NULL, '{', false);
    json_write_text(j, "comm", of->comm);
    json_write_int(j, "exec", of->exec);
    json_write_text(j, "plan", of->plan);
    json_write_text(j, "kind", of->kind);
    json_write_text(j, "algorithm", of->algorithm);
    json_write_text(j, "driver", of->driver);
    json_write_int(j, "runs", of->runs);
    json_write_int(j, "median_ns", of->median);
    if (known)
        json_write_real(j, "foreseen_ns", sim->total);
    json_write_open(j, "ranks", '[', false);
    for (int k = 0; k < r->t.ranks; k++) {
        if (!of->ranks[k].runs)
            continue;
        json_write_open(j, NULL, '{', true);
        json_write_int(j, "rank", k);
        json_write_int(j, "runs", of->ranks[k].runs);
        json_write_int(j, "median_ns", of->ranks[k].median);
        json_write_int(j, "waited_ns", of->ranks[k].waited);
        if (known)
            json_write_real(j, "foreseen_ns", sim->ranks[k]);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
    json_write_close(j, '}');
}

static void json_calls(struct json *j, const struct trace_calls *c)
{
    json_write_open(j, NULL, '{', true);
    json_write_text(j, "comm", c->comm);
    json_write_int(j, c->exchange ? "exchange" : "window", c->number);
    if (c->exchange) {
        json_write_int(j, "rounds", c->rounds);
        json_write_int(j, "median_ns", c->median);
        json_write_int(j, "messages", c->messages);
    } else {
        json_write_int(j, "puts", c->puts);
        json_write_int(j, "notifies", c->notifies);
        json_write_int(j, "barriers", c->barriers);
        json_write_int(j, "between_hosts", c->arrived);
    }
    json_write_int(j, "bytes", c->bytes);
    json_write_int(j, "waits", c->waits);
    json_write_int(j, "waited_ns", c->waited);
    json_write_close(j, '}');
}

static void print_json(const struct report *r)
{
    const struct trace_files *t = &r->t;
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "job", t->files[0].job);
    json_write_int(&j, "ranks", t->ranks);
    json_write_open(&j, "files", '[', false);
    for (int i = 0; i < t->n; i++) {
        const struct trace_file *file = &t->files[i];
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "path", file->path);
        json_write_int(&j, "rank", file->rank);
        json_write_text(&j, "host", file->host);
        json_write_text(&j, "comm", file->comm);
        json_write_int(&j, "recorded", file->recorded);
        json_write_int(&j, "dropped", file->dropped);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_open(&j, "clocks", '[', false);
    for (int i = 0; i < t->nhosts; i++) {
        const struct trace_host *h = &t->hosts[i];
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "host", h->name);
        json_write_bool(&j, "aligned", h->hops >= 0);
        if (h->hops > 0) {
            json_write_text(&j, "with", t->hosts[h->to].name);
            json_write_int(&j, "offset_ns", h->looks[0].offset);
            json_write_int(&j, "error_ns", h->error);
        }
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_int(&j, "messages", (int64_t)(t->narrows / 2 - t->signals));
    json_write_int(&j, "messages_with_one_end", (int64_t)t->unpaired);
    json_write_int(&j, "messages_backwards", (int64_t)t->backwards);
    json_write_int(&j, "signals", (int64_t)t->signals);
    json_write_open(&j, "execs", '[', false);
    for (int i = 0; i < r->runs.n; i++)
        json_runs(&j, r, i);
    json_write_close(&j, ']');
    for (int exchanges = 0; exchanges < 2; exchanges++) {
        json_write_open(&j, exchanges ? "exchanges" : "windows", '[', false);
        for (size_t i = 0; i < r->calls.n; i++)
            if (r->calls.of[i].exchange == (exchanges > 0))
                json_calls(&j, &r->calls.of[i]);
        json_write_close(&j, ']');
    }
    json_write_open(&j, "waits", '[', false);
    for (int i = 0; i < r->nwaits; i++)
        json_wait(&j, t, r->waits[i]);
    json_write_close(&j, ']');
    json_write_close(&j, '}');
}

/* ---- the verb ---- */

static int report(const struct options *o, const char *const *paths, int n, struct failure *f)
{
    struct report r = {.nwaits = 0};
    int code = trace_files_read(paths, n, &r.t, f);
    if (code)
        return code;
    code = trace_runs_find(&r.t, &r.runs, f);
    if (!code)
        code = trace_calls_find(&r.t, &r.calls, f);
    find_waits(&r);
    if (!code && o->sim)
        code = foresee_all(o, &r, f);
    if (!code && o->out)
        code = trace_merge_write(&r.t, o->out, f);
    if (!code && o->json)
        print_json(&r);
    else if (!code)
        print_text(&r);
    for (int i = 0; r.foreseen && i < r.runs.n; i++)
        free(r.foreseen[i].ranks);
    free(r.foreseen);
    trace_calls_free(&r.calls);
    trace_runs_free(&r.runs);
    trace_files_free(&r.t);
    return code;
}

/* A folder, or that of a file; the caller frees it. */
static char *folder_of(const char *path)
{
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return strdup(path);
    const char *slash = strrchr(path, '/');
    return !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int trace(void *arg, const char *const *paths, int n, struct failure *f)
{
    struct options *o = arg;
    if (o->machine && !o->sim)
        return args_complain(o->verb, "--machine is for --sim");
    o->machine = o->machine ? o->machine : "plain";
    char *folder = folder_of(paths[0]);
    o->plans = folder;
    int code = folder ? report(o, paths, n, f) : failure_set(f, CLI_WRONG, "memory is out");
    free(folder);
    return code;
}

int cmd_trace(int argc, char **argv)
{
    struct options o = {.machine = NULL};
    const struct args_option rows[] = {
        {"out", ARGS_TEXT, "FILE", "write all traces as one file, for Perfetto (ui.perfetto.dev) or chrome://tracing",
         &o.out, 0, 0},
        {"sim", ARGS_FLAG, NULL, "also simulate the plans, which stand beside the traces, and compare", &o.sim, 0, 0},
        {"machine", ARGS_TEXT, "FILE", "of the simulation: a machine file, or the name of a machine (default: plain)",
         &o.machine, 0, 0},
        {"json", ARGS_FLAG, NULL, "print the same as JSON", &o.json, 0, 0},
        {0}};
    const struct args_verb verb = {
        "trace", "[--out FILE] [--sim [--machine FILE]] [--json] FOLDER|FILE...",
        "Puts the traces of all ranks of a job together, on one clock, and prints its runs and its ten longest waits. "
        "The files are\nthose that the ranks wrote into the folder WEFT_TRACE.",
        rows, argc};
    o.verb = &verb;
    return args_files(&verb, argc, argv, "there is no folder or file", trace, &o);
}
