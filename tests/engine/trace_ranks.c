/* Ranks of a job that is traced or measured, for trace_test.sh and metrics_test.sh: trace_ranks RUNS [THREADS [calls]].
 * Each rank binds a small reshard of a tensor with a long name, a large one with messages of 64 KiB and a sum, and runs
 * each RUNS times. With THREADS the ranks are threads of this process; otherwise this is one rank of a job. With
 * WEFT_TEST_LATE rank 1 comes so many milliseconds late to the first run of the large one. With `calls` the ranks use a
 * window and an exchange instead: in each of RUNS turns a rank puts 1000 bytes to the next one, adds 40 bytes there,
 * notifies it and waits for the one before; then all meet; then it sends all others 24 bytes and 100,000 bytes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft.h"

#define SIDE 512 /* of the large matrix */

static int runs, nthreads;
static bool calls;

struct rank {
    int rank, err;
    float *src, *dst;
};

static int complain(const char *what, int err)
{
    fprintf(stderr, "%s: %s: %s\n", what, weft_strerror(err), weft_errmsg());
    return err;
}

static FILE *open_file(const weft_comm *c, const char *what)
{
    char path[512];
    const char *folder = getenv("WEFT_TEST_METRICS");
    snprintf(path, sizeof path, "%s/%s.%d", folder ? folder : "", what, weft_comm_rank(c));
    return folder ? fopen(path, "ae") : NULL;
}

/* For metrics_test.sh: what the exec says of its messages. */
static void explain(weft_comm *c, const weft_exec *x)
{
    static _Thread_local char text[65536];
    size_t n;
    FILE *f = open_file(c, "explain");
    if (f && !weft_exec_explain(x, true, text, sizeof text, &n) && n < sizeof text)
        for (size_t i = 0; i < n; i++)
            putc(text[i] == '\n' ? ' ' : text[i], f);
    if (f) {
        putc('\n', f);
        fclose(f);
    }
}

static void count(void *arg, const weft_metric *m)
{
    long *samples = arg;
    *samples += m->size == sizeof *m && m->name && m->help && m->unit && m->labels && m->nlabels >= 2 &&
                (m->type != WEFT_METRIC_HISTOGRAM || m->buckets[m->nbuckets - 1] <= m->count);
}

/* And the comm, as text and by callback; then it stays until the file "end" is there, if it is to. */
static void measure(weft_comm *c)
{
    static _Thread_local char text[65536];
    size_t n;
    long samples = 0;
    FILE *f = open_file(c, "metrics"), *end = NULL;
    if (!f)
        return;
    if (weft_comm_metrics(c, count, &samples) || weft_comm_metrics_text(c, text, sizeof text, &n) || n >= sizeof text)
        complain("metrics", 0);
    fprintf(f, "%s# samples %ld\n", text, samples);
    fclose(f);
    char path[512];
    snprintf(path, sizeof path, "%s/end", getenv("WEFT_TEST_METRICS"));
    while (getenv("WEFT_TEST_STAYS") && !(end = fopen(path, "re")))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    if (end)
        fclose(end);
}

static int move(weft_comm *c, struct rank *r, const char *name, const char *from, const char *to, int64_t bucket)
{
    char texts[2][80];
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    weft_exec *x = NULL;
    size_t bytes = (size_t)SIDE * SIDE * sizeof(float);
    weft_view a = WEFT_VIEW(r->src, bytes), b = WEFT_VIEW(r->dst, bytes);
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    opts.bucket = bucket;
    snprintf(texts[0], sizeof texts[0], from, weft_comm_size(c));
    snprintf(texts[1], sizeof texts[1], to, weft_comm_size(c));
    int err = weft_layout_parse(texts[0], &src);
    if (!err)
        err = weft_layout_parse(texts[1], &dst);
    if (!err)
        err = weft_lower(&(weft_move){name, src, dst}, 1, weft_comm_rank(c), &opts, &plan);
    if (!err)
        err = weft_bind(plan, c, &a, &b, NULL, &x);
    const char *late = strcmp(name, "large") ? NULL : getenv("WEFT_TEST_LATE");
    if (!err && late && weft_comm_rank(c) == 1)
        nanosleep(&(struct timespec){atol(late) / 1000, atol(late) % 1000 * 1000000}, NULL);
    for (int i = 0; i < runs && !err; i++)
        err = weft_exec_run(x);
    if (!err)
        explain(c, x);
    weft_exec_close(x);
    weft_plan_free(plan);
    weft_layout_free(src);
    weft_layout_free(dst);
    return err;
}

static int use_window(weft_comm *c, const struct rank *r)
{
    int me = weft_comm_rank(c), size = weft_comm_size(c), next = (me + 1) % size;
    const weft_buffer buffers[] = {WEFT_BUFFER("put here", WEFT_U8, 4000), WEFT_BUFFER("sums", WEFT_F32, 10)};
    weft_window *w = NULL;
    int err = weft_window_open(c, buffers, 2, 3, &w);
    for (int i = 0; i < runs && !err; i++) {
        err = weft_window_put(w, 0, next, 0, r->src, 1000);
        err = err ? err : weft_window_put_add(w, 1, next, 0, r->src, 10);
        err = err ? err : weft_window_notify(w, next, 2, WEFT_NOTIFY_ADD, 1);
        err = err ? err : weft_window_wait(w, 2, WEFT_GE, (uint64_t)i + 1, WEFT_DEADLINE);
        err = err ? err : weft_window_barrier(w, WEFT_DEADLINE);
    }
    weft_window_close(w);
    return err;
}

static int use_exchange(weft_comm *c, const struct rank *r)
{
    int me = weft_comm_rank(c), n = 0, others[8];
    for (int i = 0; i < weft_comm_size(c); i++)
        if (i != me)
            others[n++] = i;
    weft_exchange *x = NULL;
    int err = weft_exchange_open(c, others, (size_t)n, others, (size_t)n, NULL, &x);
    for (int i = 0; i < runs && !err; i++) {
        for (int k = 0; k < n && !err; k++) {
            err = weft_exchange_put(x, others[k], "8 bytes", 8, r->src, 16);
            err = err ? err : weft_exchange_put(x, others[k], NULL, 0, r->src, 100000);
        }
        err = err ? err : weft_exchange_finish(x, false);
        err = err ? err : weft_exchange_wait(x, WEFT_DEADLINE);
        weft_message *m;
        while (!err && !(err = weft_exchange_take(x, -1, &m)) && m)
            weft_message_free(m);
    }
    weft_exchange_close(x);
    return err;
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    weft_comm *c;
    char url[64];
    opts.rank = r->rank;
    snprintf(url, sizeof url, "threads:%d/trace", nthreads);
    r->src = calloc((size_t)SIDE * SIDE, sizeof *r->src);
    r->dst = calloc((size_t)SIDE * SIDE, sizeof *r->dst);
    int err = r->src && r->dst ? weft_comm_open(nthreads ? url : NULL, nthreads ? &opts : NULL, &c) : WEFT_ENOMEM;
    if (err) {
        r->err = complain("open", err);
    } else if (calls) {
        err = use_window(c, r);
        err = err ? err : use_exchange(c, r);
        r->err = err ? complain("calls", err) : 0;
        weft_comm_close(c);
    } else {
        char name[3000]; /* longer than what a trace keeps of it, and each letter is two there */
        memset(name, '"', sizeof name - 1);
        name[sizeof name - 1] = 0;
        err = move(c, r, name, "f32[64/x,64] @x%d", "f32[64,64/x] @x%d", 0);
        err = err ? err : move(c, r, "large", "f32[512/x,512] @x%d", "f32[512,512/x] @x%d", 65536);
        err = err ? err : move(c, r, "sum", "f32[512,512] @x%d +sum(x)", "f32[512,512] @x%d", 65536);
        err = err ? err : weft_comm_barrier(c, WEFT_DEADLINE);
        r->err = err ? complain("run", err) : 0;
        if (!err)
            measure(c);
        weft_comm_close(c);
    }
    free(r->src);
    free(r->dst);
    return NULL;
}

int main(int argc, char **argv)
{
    struct rank ranks[8] = {{0}};
    pthread_t threads[8];
    int failed = 0;
    runs = argc > 1 ? atoi(argv[1]) : 1;
    nthreads = argc > 2 ? atoi(argv[2]) : 0;
    calls = argc > 3;
    if (nthreads < 0 || nthreads > 8)
        return 2;
    for (int i = 0; i < nthreads; i++) {
        ranks[i].rank = i;
        if (pthread_create(&threads[i], NULL, rank_main, &ranks[i]))
            return 2;
    }
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    if (!nthreads)
        rank_main(&ranks[0]);
    for (int i = 0; i < 8; i++)
        failed |= ranks[i].err != 0;
    return failed;
}
