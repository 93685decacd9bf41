/* Lower, verify, run, compare; see check_pair.h. */
#include "cli/check/check_pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/inplace.h"
#include "cli/check/scalar.h"
#include "cli/move/runner.h"

#define UNTOUCHED 0x5a /* what a destination holds before a run; not a NaN in any dtype */

/* A rank's memory. With one buffer for both sides, src and dst are dense copies of its contents. */
struct rank {
    unsigned char *src, *dst, *want, *both;
    int64_t src_bytes, dst_bytes;
    struct inplace in_place;
    int64_t wrong; /* the first slot that is wrong, or -1 */
};

struct check {
    const struct check_opts *opts;
    struct runner_place place;
    struct layout_pair pair;
    const char *algorithm; /* the algorithm that was chosen */
    struct oracle *oracle;
    struct rank *ranks;
    const void **sources;
    weft_view *src_views, *dst_views;
    uint64_t seed; /* of the current run */
    enum oracle_values values;
};

/* ---- what each rank does, on its own thread ---- */

/* Replicas of a source have the same data: one is made, the others copy it. */
static int make_rank(void *arg, int rank)
{
    struct check *c = arg;
    if (c->ranks[rank].src && oracle_replica_of(c->oracle, rank) == rank)
        oracle_fill(c->oracle, c->seed, c->values, rank, c->ranks[rank].src);
    return 0;
}

static int fill_rank(void *arg, int rank)
{
    struct check *c = arg;
    struct rank *r = &c->ranks[rank];
    int from = oracle_replica_of(c->oracle, rank);
    if (r->src && from != rank)
        memcpy(r->src, c->ranks[from].src, (size_t)r->src_bytes);
    if (r->dst)
        memset(r->dst, UNTOUCHED, (size_t)r->dst_bytes);
    if (r->in_place.shared) {
        memset(r->both, UNTOUCHED, (size_t)r->in_place.bytes);
        inplace_scatter(&r->in_place.src, r->both, r->src);
        inplace_gather(&r->in_place.dst, r->both, r->dst);
    }
    if (r->dst)
        memcpy(r->want, r->dst, (size_t)r->dst_bytes);
    return 0;
}

static int expect_rank(void *arg, int rank)
{
    struct check *c = arg;
    struct rank *r = &c->ranks[rank];
    if (r->dst)
        oracle_expect(c->oracle, rank, r->want);
    return 0;
}

static int compare_rank(void *arg, int rank)
{
    struct check *c = arg;
    struct rank *r = &c->ranks[rank];
    if (!runner_has(&c->place, rank))
        return 0;
    if (r->in_place.shared)
        inplace_gather(&r->in_place.dst, r->both, r->dst);
    r->wrong = r->dst ? oracle_compare(c->oracle, rank, r->dst, r->want) : -1;
    return 0;
}

/* ---- setting up ---- */

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory to check this pair");
}

static int share_rank(struct check *c, int rank, bool *any, struct failure *why)
{
    struct rank *r = &c->ranks[rank];
    if (inplace_fit(c->pair.src, c->pair.dst, rank, &r->in_place))
        return no_memory(why);
    if (!r->in_place.shared)
        return CLI_OK;
    *any = true;
    if (!(r->both = runner_alloc(&c->place, (size_t)r->in_place.bytes)))
        return no_memory(why);
    const struct inplace *p = &r->in_place;
    c->src_views[rank] = (weft_view){
        .data = r->both + p->src.first, .bytes = (size_t)(p->bytes - p->src.first), .strides = p->src.strides};
    c->dst_views[rank] = (weft_view){
        .data = r->both + p->dst.first, .bytes = (size_t)(p->bytes - p->dst.first), .strides = p->dst.strides};
    return CLI_OK;
}

static int allocate(struct check *c, struct failure *why)
{
    int ranks = c->place.ranks;
    c->ranks = calloc((size_t)ranks, sizeof *c->ranks);
    c->sources = calloc((size_t)ranks, sizeof *c->sources);
    c->src_views = calloc((size_t)ranks, sizeof *c->src_views);
    c->dst_views = calloc((size_t)ranks, sizeof *c->dst_views);
    if (!c->ranks || !c->sources || !c->src_views || !c->dst_views)
        return no_memory(why);
    bool any = false;
    for (int i = 0; i < ranks; i++) {
        struct rank *r = &c->ranks[i];
        r->wrong = -1;
        r->src_bytes = oracle_src_bytes(c->oracle, i);
        r->dst_bytes = oracle_dst_bytes(c->oracle, i);
        if (r->src_bytes && !(r->src = runner_alloc(&c->place, (size_t)r->src_bytes)))
            return no_memory(why);
        if (r->dst_bytes &&
            (!(r->dst = runner_alloc(&c->place, (size_t)r->dst_bytes)) || !(r->want = malloc((size_t)r->dst_bytes))))
            return no_memory(why);
        c->sources[i] = r->src;
        c->src_views[i] = (weft_view){.data = r->src, .bytes = (size_t)r->src_bytes};
        c->dst_views[i] = (weft_view){.data = r->dst, .bytes = (size_t)r->dst_bytes};
        if (c->opts->in_place) {
            int code = share_rank(c, i, &any, why);
            if (code)
                return code;
        }
    }
    if (c->opts->in_place && !any)
        return failure_set(why, CLI_BAD, "--in-place: on no rank does one side stand inside the other");
    return CLI_OK;
}

static void release(struct check *c)
{
    for (int i = 0; c->ranks && i < c->place.ranks; i++) {
        struct rank *r = &c->ranks[i];
        runner_free(&c->place, r->src, (size_t)r->src_bytes);
        runner_free(&c->place, r->dst, (size_t)r->dst_bytes);
        runner_free(&c->place, r->both, (size_t)r->in_place.bytes);
        free(r->want);
    }
    free(c->ranks);
    free(c->sources);
    free(c->src_views);
    free(c->dst_views);
    oracle_free(c->oracle);
    layout_pair_free(&c->pair);
}

static int lower_and_verify(struct check *c, struct check_result *out, struct failure *why)
{
    weft_machine machine = WEFT_MACHINE_INIT;
    machine.ranks_per_host = (int)c->opts->per_host;
    weft_lower_opts lower = {.size = sizeof lower,
                             .bucket = c->opts->bucket,
                             .algorithm = c->opts->algorithm,
                             .machine = &machine,
                             .in_place = c->opts->in_place,
                             .world = c->pair.world};
    if (c->opts->job && !c->opts->per_host && weft_comm_machine(c->opts->job, &machine))
        return failure_set(why, CLI_WRONG, "%s", weft_errmsg());
    int code = layout_pair_lower(&c->pair, &lower, why);
    if (code)
        return code;
    layout_pair_totals_start(&out->totals);
    for (int r = 0; r < c->pair.world; r++)
        if ((code = layout_pair_totals_add(&out->totals, &c->pair, c->pair.plans[r], why)))
            return code;
    c->algorithm = out->totals.algorithm;
    if (weft_plan_verify((const weft_plan *const *)c->pair.plans, (size_t)c->pair.world))
        return failure_set(why, CLI_WRONG, "the plans are not right: %s", weft_errmsg());
    return CLI_OK;
}

static int check_bound(struct check *c, const struct layout_pair_totals *t, struct failure *why)
{
    int64_t bound = oracle_bound(c->oracle);
    if (bound < 0)
        return no_memory(why);
    if (bound != t->bound)
        return failure_set(why, CLI_WRONG, "the plans give %" PRId64 " B as the lower bound, the oracle %" PRId64 " B",
                           t->bound, bound);
    if (t->sent != t->stated)
        return failure_set(why, CLI_WRONG, "%s moves %" PRId64 " B and states %" PRId64 " B", t->algorithm, t->sent,
                           t->stated);
    return CLI_OK;
}

/* ---- running ---- */

static int say_difference(const struct check *c, int rank, struct failure *why)
{
    const struct rank *r = &c->ranks[rank];
    weft_layout_desc desc = {.size = sizeof desc};
    weft_layout_describe(c->pair.dst, &desc);
    int dtype = (int)desc.dtype;
    size_t width = weft_dtype_size(dtype), at = (size_t)r->wrong * width, n = 0;
    int64_t index[WEFT_MAX_DIMS];
    char where[WEFT_MAX_DIMS * 24 + 64] = "", want[64], got[64];
    if (oracle_locate(c->oracle, rank, r->wrong, index)) {
        n = (size_t)snprintf(where, sizeof where, "element [");
        for (int d = 0; d < desc.ndim; d++)
            n += (size_t)snprintf(where + n, sizeof where - n, "%s%" PRId64, d ? "," : "", index[d]);
        snprintf(where + n, sizeof where - n, "]");
    } else {
        snprintf(where, sizeof where, "a slot that stands for nothing");
    }
    scalar_print(dtype, r->want + at, want, sizeof want);
    scalar_print(dtype, r->dst + at, got, sizeof got);
    return failure_set(why, CLI_WRONG, "rank %d, %s, at %" PRId64 " of its buffer: expected %s, got %s", rank, where,
                       r->wrong, want, got);
}

/* Only the general lowering promises the oracle's order of folds. */
static enum oracle_values values_of(const struct check *c, int64_t seed)
{
    if (c->opts->values)
        return (enum oracle_values)c->opts->values;
    return strcmp(c->algorithm, "direct") || seed & 1 ? ORACLE_EXACT : ORACLE_WILD;
}

static int run_once(struct check *c, struct runner *runner, int64_t seed, struct failure *why)
{
    struct failure none;
    c->seed = (uint64_t)seed;
    c->values = values_of(c, seed);
    worker_threads_do(runner->threads, make_rank, c, &none);
    worker_threads_do(runner->threads, fill_rank, c, &none);
    if (oracle_take(c->oracle, c->sources))
        return no_memory(why);
    worker_threads_do(runner->threads, expect_rank, c, &none);
    int code = runner_run(runner, why);
    if (code)
        return code;
    worker_threads_do(runner->threads, compare_rank, c, &none);
    for (int r = 0; r < c->pair.world && !code; r++)
        if (c->ranks[r].wrong >= 0)
            code = say_difference(c, r, why);
    return runner_agree(&c->place, code, why);
}

static bool is_boxes(const weft_layout *l)
{
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    return !weft_layout_describe(l, &desc) && desc.boxes;
}

int check_pair(const char *src, const char *dst, const struct check_opts *opts, struct check_result *out,
               struct failure *why)
{
    struct check c = {.opts = opts};
    struct runner runner = {.place = &c.place, .staged = opts->staged, .explain = opts->explain};
    *out = (struct check_result){0};
    int code = layout_pair_parse(&c.pair, src, dst, why);
    if (code)
        return code;
    code = opts->job ? runner_join(opts->job, c.pair.world, &c.place, why)
                     : runner_place(opts->url, c.pair.world, &c.place, why);
    if (code)
        goto out;
    if (is_boxes(c.pair.src) || is_boxes(c.pair.dst)) {
        code = failure_set(
            why, CLI_BAD,
            "check computes what a mesh holds, and not what boxes hold: weft plan lowers and verifies them");
        goto out;
    }
    code = layout_pair_unscaled(&c.pair, "check", why);
    if (code)
        goto out;
    runner.window = !opts->private && (c.place.processes || opts->job);
    c.pair.world = out->world = c.place.ranks;
    code = lower_and_verify(&c, out, why);
    if (code)
        goto out;
    if (oracle_open(c.pair.src, c.pair.dst, &c.oracle)) {
        code = no_memory(why);
        goto out;
    }
    out->elements = oracle_elements(c.oracle);
    code = allocate(&c, why);
    if (code)
        goto out;
    runner.plans = c.pair.plans;
    runner.src = c.src_views;
    runner.dst = c.dst_views;
    code = runner_begin(&runner, why);
    if (!code)
        code = worker_threads_open(c.place.ranks, &runner.threads, why);
    if (!code)
        code = runner_open(&runner, why);
    for (int64_t k = 0; k < opts->repeat && !code; k++) {
        code = run_once(&c, &runner, opts->seed + k, why);
        out->runs += !code;
    }
    runner_close(&runner);
    worker_threads_close(runner.threads);
    if (!code)
        code = check_bound(&c, &out->totals, why);
out:
    release(&c);
    return code;
}
