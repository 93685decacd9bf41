/* Arrivals piece by piece. The law, for many pairs by every algorithm, in all ways that messages travel: the boxes
 * that a run tells of are those of weft_plan_arrivals, each once and disjoint; what stands in a box when it is told
 * stays; and what no box covers the run does not touch. Every run starts from other bytes, so what is told too early
 * is seen. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/conformance.h"
#include "support/pairs.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/tensors.h"

enum { WORLD = 16, RUNS = 3 };

static const struct {
    const char *src, *dst;
} large[] = {
    {"f32[512/x,512] @x4", "f32[512,512/x] @x4"},
    {"f32[512,512/x] @x4", "bf16[512/x,512] @x4"},
    {"f32[40000] @x4 +sum(x)", "f32[40000] @x4"},
    {"f64[40000] @x6 +sum(x)", "f64[40000/x] @x6"},
    {"f32[50000/x] @x5", "f32[50000] @x5"},
    {"f32[40/y,5000/x] @y2.x4", "f32[40/y~2o,5000/x~1:2] @y2.x4"},
    {"f64[500/p:4,300/q:4] @p2.q2", "f64[500/p:3,300/q:50] @p1.q4"},
    {"i32[40000] @x1=3", "i32[40000] @x8"},
    {"i32[8/x,8,2000] @x8", "i32[8,8/x,2000] @x8"},
};
enum { LARGE = sizeof large / sizeof *large };

struct watch {
    struct ranks_rank *r;
    const weft_layout *dst;
    weft_local local;
    size_t size; /* of an element */
    const unsigned char *data;
    unsigned char *seen;  /* what the boxes had when they were told */
    unsigned char *times; /* each element was told */
    unsigned char *told;  /* each box was */
    weft_arrival *boxes;
    size_t n, count;
};

/* Calls visit for the elements of a box. */
static void visit_box(struct watch *w, const weft_box *b, void (*visit)(struct watch *w, size_t element))
{
    int64_t n = 1;
    for (int d = 0; d < w->local.ndim; d++)
        n *= b->len[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i, size = n;
        for (int d = 0; d < w->local.ndim; d++) {
            size /= b->len[d];
            at = at * w->local.shape[d] + b->local[d] + rest / size;
            rest %= size;
        }
        visit(w, (size_t)at);
    }
}

static void take_down(struct watch *w, size_t element)
{
    memcpy(w->seen + element * w->size, w->data + element * w->size, w->size);
    w->times[element]++;
}

static void arrived(void *arg, size_t i, const weft_arrival *a)
{
    struct watch *w = arg;
    if (i >= w->n || memcmp(a, &w->boxes[i], sizeof *a))
        ranks_note(w->r, __FILE__, __LINE__, "box %zu of %zu is not the plan's", i, w->n);
    else if (w->told[i]++)
        ranks_note(w->r, __FILE__, __LINE__, "box %zu was told twice", i);
    else
        visit_box(w, &a->box, take_down);
    w->count++;
}

/* Looks at what a run that began with `before` in all bytes has left. */
static void judge(struct watch *w, const weft_exec *x, unsigned char before, const char *what)
{
    struct ranks_rank *r = w->r;
    size_t come = 0, *order = calloc(w->n + 1, sizeof *order);
    int err = weft_exec_arrived(x, order, w->n, &come);
    bool all = !err && come == w->n && w->count == w->n, right = true;
    for (size_t k = 0; k < w->n && all; k++)
        all = order[k] < w->n && w->told[order[k]] == 1;
    for (size_t e = 0; e < (size_t)w->local.count && right; e++) {
        right = w->times[e] <= 1;
        for (size_t b = e * w->size; b < (e + 1) * w->size; b++)
            right = right && w->data[b] == (w->times[e] ? w->seen[b] : before);
    }
    free(order);
    if (!all)
        ranks_note(r, __FILE__, __LINE__, "%s: %zu of %zu boxes were told, %zu counted", what, w->count, w->n, come);
    if (!right)
        ranks_note(r, __FILE__, __LINE__, "%s: a box was told early or twice, or more than boxes was written", what);
}

static void *memory_of(struct ranks_rank *r, size_t bytes, bool window)
{
    void *memory = NULL;
    if (!window)
        return malloc(bytes + 1);
    return weft_comm_alloc(r->comm, bytes + 1, WEFT_MEMORY_HOST, 0, &memory) ? NULL : memory;
}

static void memory_free(struct ranks_rank *r, void *memory, bool window)
{
    if (window)
        weft_comm_free(r->comm, memory);
    else
        free(memory);
}

static void watch_runs(struct ranks_rank *r, const weft_plan *p, const weft_layout *src, const weft_layout *dst,
                       bool window, const char *what)
{
    struct watch w = {.r = r, .dst = dst};
    weft_local in_local;
    RANKS_OK(r, weft_layout_local(src, r->rank, &in_local));
    RANKS_OK(r, weft_layout_local(dst, r->rank, &w.local));
    RANKS_OK(r, weft_plan_arrivals(p, NULL, 0, &w.n));
    w.size = w.local.count ? (size_t)(w.local.bytes / w.local.count) : 1;
    size_t bytes = (size_t)w.local.bytes, elements = (size_t)w.local.count;
    unsigned char *in = memory_of(r, (size_t)in_local.bytes, window), *out = memory_of(r, bytes, window);
    w.data = out;
    w.seen = malloc(bytes + 1);
    w.times = malloc(elements + 1);
    w.told = malloc(w.n + 1);
    w.boxes = malloc((w.n + 1) * sizeof *w.boxes);
    weft_exec *x;
    RANKS_CHECK(r, in && out && w.seen && w.times && w.told && w.boxes);
    RANKS_OK(r, weft_plan_arrivals(p, w.boxes, w.n, &w.n));
    weft_view from = WEFT_VIEW(in, (size_t)in_local.bytes), to = WEFT_VIEW(out, bytes);
    RANKS_OK(r, weft_bind(p, r->comm, &from, &to, NULL, &x));
    RANKS_OK(r, weft_exec_on_arrival(x, arrived, &w));
    for (int run = 0; run < RUNS; run++) {
        unsigned char before = (unsigned char)(0x51 + run);
        memset(out, before, bytes);
        memset(w.times, 0, elements);
        memset(w.told, 0, w.n);
        w.count = 0;
        tensors_fill(src, r->rank, in, run);
        RANKS_OK(r, weft_exec_run(x));
        judge(&w, x, before, what);
    }
    weft_exec_close(x);
    memory_free(r, in, window);
    memory_free(r, out, window);
    free(w.seen);
    free(w.times);
    free(w.told);
    free(w.boxes);
}

static int lowered; /* by rank 0, so that the law is not kept by having nothing to judge */

static void one_case(struct ranks_rank *r, const char *from, const char *to, const weft_lower_opts *o, bool window)
{
    weft_layout *src, *dst;
    weft_plan *p;
    char what[256];
    RANKS_OK(r, weft_layout_parse(from, &src));
    RANKS_OK(r, weft_layout_parse(to, &dst));
    snprintf(what, sizeof what, "%s to %s by %s, bucket %lld%s", from, to, o->algorithm ? o->algorithm : "choice",
             (long long)o->bucket, window ? ", windows" : "");
    int err = weft_lower(&(weft_move){"w", src, dst}, 1, r->rank, o, &p);
    if (!err) {
        watch_runs(r, p, src, dst, window, what);
        weft_plan_free(p);
        r->code++;
    }
    weft_layout_free(src);
    weft_layout_free(dst);
}

static int64_t all_cases(void)
{
    int64_t n = conformance_on_hosts() ? test_share(40, 600) : test_share(150, 6000);
    return n < 6 ? 6 : n; /* of fewer it may be that no algorithm fits any */
}

/* A case is refused on all ranks or on none, so they stay together. */
static void run_cases(struct ranks_rank *r)
{
    struct random random = {*(const uint64_t *)r->arg + 10 * conformance_row};
    int64_t cases = all_cases();
    int algorithms = 0;
    while (weft_algorithm_name((size_t)algorithms))
        algorithms++;
    for (int64_t i = 0; i < cases && !r->failed[0]; i++) {
        int pair = (int)random_in(&random, 0, PAIRS + LARGE - 1);
        weft_lower_opts o = {.size = sizeof o, .world = WORLD};
        o.bucket = (int64_t[]){0, 1, 300, 20000}[random_in(&random, 0, 3)];
        o.algorithm = weft_algorithm_name((size_t)random_in(&random, 0, algorithms));
        bool window = random_once_in(&random, 2);
        if (pair < PAIRS)
            one_case(r, pairs[pair].src, pairs[pair].dst, &o, window);
        else
            one_case(r, large[pair - PAIRS].src, large[pair - PAIRS].dst, &o, window);
    }
}

static void campaign(uint64_t seed, const weft_comm_opts *opts)
{
    struct ranks_rank out[WORLD];
    ranks_run(WORLD, opts, run_cases, &seed, out);
    lowered += out[0].code;
}

static void told_boxes_are_the_plans_boxes_once_each(void **state)
{
    (void)state;
    lowered = 0;
    campaign(1, NULL);
    campaign(2, &(weft_comm_opts){.staged = true});
    campaign(3, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
    assert_true(lowered > all_cases() / 4);
}

/* ---- what is refused ---- */

static void ignore(void *arg, size_t i, const weft_arrival *a)
{
    (void)arg;
    (void)i;
    (void)a;
}

static void run_refused(struct ranks_rank *r)
{
    weft_layout *src, *dst;
    weft_plan *p;
    weft_exec *x;
    size_t n = 7;
    bool done = false;
    float in = 1, out = 0;
    RANKS_OK(r, weft_layout_parse("f32[2/x] @x2", &src));
    RANKS_OK(r, weft_layout_parse("f32[2/x] @x2=1,0", &dst));
    RANKS_OK(r, weft_lower(&(weft_move){"w", src, dst}, 1, r->rank, NULL, &p));
    weft_view from = WEFT_VIEW(&in, sizeof in), to = WEFT_VIEW(&out, sizeof out);
    RANKS_OK(r, weft_bind(p, r->comm, &from, &to, NULL, &x));
    RANKS_CHECK(r, weft_plan_arrivals(p, NULL, 1, &n) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_exec_on_arrival(NULL, ignore, NULL) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_exec_arrived(x, NULL, 0, &n) == WEFT_EINVAL && n == 7);
    RANKS_CHECK(r,
                !strcmp(weft_errmsg(), "weft_exec_arrived: arrivals are not watched: call weft_exec_on_arrival first"));
    RANKS_OK(r, weft_exec_on_arrival(x, NULL, NULL)); /* for who polls */
    RANKS_OK(r, weft_exec_arrived(x, NULL, 0, &n));
    RANKS_CHECK(r, n == 0);
    if (r->rank == 0) {
        RANKS_OK(r, weft_exec_start(x));
        RANKS_CHECK(r, weft_exec_on_arrival(x, ignore, NULL) == WEFT_EBUSY);
    }
    ranks_meet(r);
    if (r->rank == 1)
        RANKS_OK(r, weft_exec_start(x));
    while (!done)
        RANKS_OK(r, weft_exec_test(x, &done));
    RANKS_OK(r, weft_exec_arrived(x, NULL, 0, &n));
    RANKS_CHECK(r, n == 1 && out == 1);
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(src);
    weft_layout_free(dst);
}

static void bad_arrival_calls_are_refused(void **state)
{
    (void)state;
    ranks_run(2, NULL, run_refused, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_boxes_are_the_plans_boxes_once_each),
        cmocka_unit_test(bad_arrival_calls_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
