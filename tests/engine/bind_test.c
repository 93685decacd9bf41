/* Binding: what is refused is refused on all ranks with one text, and the comm goes on; what may share
 * memory and what may not; binding again. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/conformance.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/tensors.h"

struct pair {
    weft_layout *src, *dst;
    weft_plan *plan;
};

static int pair_bind(struct pair *p, const char *src, const char *dst, int rank, const weft_lower_opts *opts)
{
    *p = (struct pair){0};
    int err = weft_layout_parse(src, &p->src);
    if (!err)
        err = weft_layout_parse(dst, &p->dst);
    return err ? err : weft_lower(&(weft_move){"w", p->src, p->dst}, 1, rank, opts, &p->plan);
}

static void pair_release(struct pair *p)
{
    weft_plan_free(p->plan);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
}

/* ---- refusals ---- */

enum fault {
    SMALL,
    MISSING,
    UNALIGNED,
    NEGATIVE,
    ODD_STRIDE,
    SELF,
    ENDLESS,
    ON_DEVICE,
    NO_SUCH_KIND,
    HOST_DEVICE,
    RESERVED,
    LATE,
    OTHER_PLAN,
    OTHER_RANK,
    NO_PLAN,
    BARRIER
};
struct refusal {
    enum fault fault;
    int code;
    const char *text;
};

static const struct refusal refusals[] = {
    {SMALL, WEFT_EINVAL, "rank 2: tensor 'w': destination buffer has 255 bytes, 256 are needed"},
    {MISSING, WEFT_EINVAL, "rank 2: tensor 'w': there is no source buffer"},
    {UNALIGNED, WEFT_EINVAL, "rank 2: tensor 'w': the source buffer is not aligned to the element's 4 bytes"},
    {NEGATIVE, WEFT_EINVAL, "rank 2: tensor 'w': destination stride of dim 1 is -4: it must not be negative"},
    {ODD_STRIDE, WEFT_EINVAL,
     "rank 2: tensor 'w': destination stride of dim 0 is 18: not a multiple of the element's 4 bytes"},
    {SELF, WEFT_EINVAL, "rank 2: tensor 'w': the destination strides put several elements at one address"},
    {ENDLESS, WEFT_EINVAL, "rank 2: tensor 'w': the destination strides reach beyond the end of memory"},
    {ON_DEVICE, WEFT_EINVAL, "rank 2: tensor 'w': source: the buffer is not in memory of device 0, but in host memory"},
    {NO_SUCH_KIND, WEFT_EUNSUPPORTED, "rank 2: tensor 'w': destination: there is no memory of kind 77: "},
    {HOST_DEVICE, WEFT_EINVAL, "rank 2: tensor 'w': source: host memory has no device 1: set device to 0"},
    {RESERVED, WEFT_EINVAL, "rank 2: tensor 'w': destination: the reserved words of the view are not zero: "},
    {LATE, WEFT_EINVAL, "rank 2: weft_bind: opts.deadline_ns is 9223372036854775807: it must be 0 to"},
    {OTHER_PLAN, WEFT_EMISMATCH,
     "rank 2: its plan differs from rank 0's: the destination of tensor 0 'w' is f32[16,16/x] @x4=3,2,1,0, and on rank "
     "0 "
     "f32[16,16/x] @x4: all ranks must give the same layouts, names and options"},
    {OTHER_RANK, WEFT_EINVAL, "rank 2: the plan was lowered for rank 1"},
    {NO_PLAN, WEFT_EINVAL, "rank 2: the plan is NULL"},
    {BARRIER, WEFT_EMISMATCH,
     "rank 0 is in weft_bind, rank 2 in weft_comm_barrier: all ranks must make the same calls in one order"},
};

static void run_refusal(struct ranks_rank *r)
{
    const struct refusal *f = r->arg;
    bool bad = r->rank == 2;
    struct pair p, other;
    float in[64], out[4][64];
    int64_t strides[2] = {16, 4};
    weft_exec *x = NULL;
    RANKS_OK(r,
             pair_bind(&p, "f32[16/x,16] @x4", "f32[16,16/x] @x4", bad && f->fault == OTHER_RANK ? 1 : r->rank, NULL));
    RANKS_OK(r, pair_bind(&other, "f32[16/x,16] @x4", "f32[16,16/x] @x4=3,2,1,0", r->rank, NULL));
    weft_view from = WEFT_VIEW(in, sizeof in), to = {.data = out, .bytes = 256, .strides = strides};
    const weft_plan *plan = bad && f->fault == OTHER_PLAN ? other.plan : bad && f->fault == NO_PLAN ? NULL : p.plan;
    if (bad && f->fault == SMALL)
        to.bytes--;
    if (bad && f->fault == MISSING)
        from.data = NULL;
    if (bad && f->fault == UNALIGNED)
        from.data = (char *)in + 2;
    if (bad && f->fault == NEGATIVE)
        strides[1] = -4;
    if (bad && f->fault == ODD_STRIDE)
        strides[0] = 18;
    if (bad && f->fault == SELF)
        strides[0] = 12;
    if (bad && f->fault == ENDLESS) {
        strides[0] = INT64_MAX - 3;
        to.bytes = SIZE_MAX;
    }
    if (bad && f->fault == ON_DEVICE)
        from.memory = WEFT_MEMORY_CUDA;
    if (bad && f->fault == NO_SUCH_KIND)
        to.memory = 77;
    if (bad && f->fault == HOST_DEVICE)
        from.device = 1;
    if (bad && f->fault == RESERVED)
        to.reserved[1] = 1;
    weft_bind_opts opts = {.size = sizeof opts, .deadline_ns = bad && f->fault == LATE ? INT64_MAX : 0};
    if (bad && f->fault == BARRIER)
        r->code = weft_comm_barrier(r->comm, WEFT_DEADLINE);
    else
        r->code = weft_bind(plan, r->comm, &from, &to, &opts, &x);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    RANKS_CHECK(r, r->code && !x);
    /* The comm is as good as before. */
    strides[0] = 16;
    strides[1] = 4;
    from = (weft_view){.data = in, .bytes = sizeof in};
    to = (weft_view){.data = out, .bytes = 256, .strides = strides};
    pair_release(&p);
    RANKS_OK(r, pair_bind(&p, "f32[16/x,16] @x4", "f32[16,16/x] @x4", r->rank, NULL));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_OK(r, weft_bind(p.plan, r->comm, &from, &to, NULL, &x));
    tensors_fill(p.src, r->rank, in, 3);
    RANKS_CHECK(r, weft_exec_start_on(x, NULL) == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "weft_exec_start"));
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out, 3));
    weft_exec_close(x);
    pair_release(&p);
    pair_release(&other);
}

static void bad_binds_are_refused_with_one_text_on_all_ranks(void **state)
{
    (void)state;
    struct ranks_rank out[4];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct refusal f = refusals[i];
        if (!conformance_takes((int)i))
            continue;
        ranks_run(4, NULL, run_refusal, &f, out);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(out[k].code, f.code);
            assert_memory_equal(out[k].text, f.text, strlen(f.text));
            assert_string_equal(out[k].text, out[0].text);
        }
    }
}

/* A plan for more ranks than the comm has; a view for which the rank needs nothing may be anything. */
static void run_sizes(struct ranks_rank *r)
{
    struct pair p;
    weft_exec *x;
    float in[8], out[8];
    weft_view from = WEFT_VIEW(in, sizeof in), to = WEFT_VIEW(out, sizeof out);
    RANKS_OK(r, pair_bind(&p, "f32[8/x] @x3", "f32[8] @x3", r->rank, NULL));
    r->code = weft_bind(p.plan, r->comm, &from, &to, NULL, &x);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    pair_release(&p);
    RANKS_OK(r, pair_bind(&p, "f32[8] @x1=0", "f32[8] @x1=1", r->rank, NULL));
    tensors_fill(p.src, r->rank, in, 1);
    RANKS_OK(r, weft_bind(p.plan, r->comm, r->rank == 0 ? &from : NULL, r->rank == 1 ? &to : NULL, NULL, &x));
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out, 1));
    weft_exec_close(x);
    pair_release(&p);
}

static void plan_for_more_ranks_than_the_comm_is_refused(void **state)
{
    (void)state;
    struct ranks_rank out[2];
    ranks_run(2, NULL, run_sizes, NULL, out);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].code, WEFT_EINVAL);
        assert_string_equal(out[k].text, "rank 0: the plan is for 3 ranks, the comm has 2: start as many, or lower for "
                                         "those that there are");
    }
}

/* ---- sharing memory ---- */

struct sharing {
    const char *src, *dst;
    int64_t src_at, dst_at;     /* in bytes */
    int64_t src_step, dst_step; /* what each rank adds to them */
    const int64_t *src_strides, *dst_strides;
    bool in_place;       /* the option */
    const char *refusal; /* a part of the text; NULL: legal */
};

static const int64_t padded[2] = {64, 4}, transposed[2] = {4, 16}, narrow[2] = {16, 4};
static const struct sharing sharings[] = {
    {"f32[32/x] @x4", "f32[32/x~2] @x4", 8, 0, 0, 0, NULL, NULL, false, NULL}, /* the interior of a halo */
    {"f32[32/x] @x4", "f32[32/x~2o] @x4", 8, 0, 0, 0, NULL, NULL, false, NULL},
    {"f32[32/x~2o] @x4", "f32[32/x~2o] @x4", 0, 0, 0, 0, NULL, NULL, false, NULL}, /* ghosts made new */
    {"f32[32/x~2] @x4", "f32[32/x~2] @x4", 0, 0, 0, 0, NULL, NULL, false, NULL},
    {"f32[32/x] @x4", "f32[32/x~2] @x4", 4, 0, 0, 0, NULL, NULL, false, "stands for different elements"},
    {"f32[32/x] @x4", "f32[32/x~2] @x4", 10, 0, 0, 0, NULL, NULL, false, "aligned"},
    {"f32[32/x] @x4", "f32[32] @x4", 0, 0, 32, 0, NULL, NULL, false, NULL}, /* a rank's slice of an allgather */
    {"f32[32/x] @x4", "f32[32] @x4", 0, 0, 0, 0, NULL, NULL, false,
     "rank 1: tensor 'w': source and destination overlap where"},
    {"f32[32] @x4", "f32[32/x] @x4", 0, 0, 0, 32, NULL, NULL, false, NULL}, /* and back */
    {"f32[32] @x4", "f32[32/x] @x4", 0, 0, 0, 0, NULL, NULL, false,
     "rank 1: tensor 'w': source and destination overlap where"},
    {"f32[32/x] @x4", "f32[32/x] @x4", 0, 0, 0, 0, NULL, NULL, false, NULL},
    {"f32[32/x] @x4", "f32[32/x] @x4=1,2,3,0", 0, 0, 0, 0, NULL, NULL, false, "stands for different elements"},
    {"f32[32/x] @x4", "f32[32/x] @x4=1,2,3,0", 0, 32, 0, 0, NULL, NULL, false, NULL}, /* side by side */
    {"f32[32/x:2] @x4", "f32[32/x:2] @x4", 0, 0, 0, 0, NULL, NULL, false, NULL},
    {"f32[32/x:2] @x4", "f32[32/x:1] @x4", 0, 0, 0, 0, NULL, NULL, false, "stands for different elements"},
    {"f32[32] @x4", "f32[32/x:2] @x4", 0, 0, 0, 0, NULL, NULL, false, /* what lies under the second block is not read */
     "rank 0: tensor 'w': source and destination overlap where"},
    {"f32[16/x,4] @x4", "f32[16,4/x] @x4", 0, 0, 0, 0, NULL, NULL, false, "different strides"},
    {"f32[16/x,4] @x4", "f32[16,4/x] @x4", 0, 256, 0, 0, NULL, NULL, false, NULL},
    {"f32[4,16/x] @x4", "f32[4,16] @x4", 0, 0, 16, 0, padded, padded, false, NULL}, /* a column block of the whole */
    {"f32[4,16/x] @x4", "f32[4,16/x] @x4=1,2,3,0", 0, 16, 0, 0, padded, padded, false, NULL}, /* interleaved rows */
    {"f32[4,16/x] @x4", "f32[4,16/x] @x4=1,2,3,0", 0, 12, 0, 0, padded, padded, false, "stands for different elements"},
    {"f32[4,16/x] @x4", "f32[4,16/x] @x4", 0, 0, 0, 0, transposed, narrow, false, "different strides"},
    {"f32[32/x] @x4", "i32[32/x] @x4", 0, 0, 0, 0, NULL, NULL, false, "different dtypes"},
    {"f32[32] @x4 +sum(x)", "f32[32] @x4", 0, 0, 0, 0, NULL, NULL, false, "in_place option"},
    {"f32[32] @x4 +sum(x)", "f32[32] @x4", 0, 0, 0, 0, NULL, NULL, true, NULL},
    {"f32[32] @x4 +sum(x)", "f32[32] @x4", 0, 4, 0, 0, NULL, NULL, true, "stands for different elements"},
    {"f32[32] @x4 +sum(x)", "f32[32/x] @x4", 0, 0, 0, 32, NULL, NULL, true, NULL},
    {"f32[32/x:2] @x2.y2 +sum(y)", "f32[32/x:2] @x2.y2", 0, 0, 0, 0, NULL, NULL, true,
     NULL}, /* each reads half of it */
    {"f32[32] @x4 +max(x)", "f32[32] @x1=2", 0, 0, 0, 0, NULL, NULL, true, NULL},
};

static void run_sharing(struct ranks_rank *r)
{
    const struct sharing *s = r->arg;
    struct pair p;
    weft_exec *x = NULL;
    weft_local a, b;
    weft_lower_opts o = {.size = sizeof o, .in_place = s->in_place, .world = r->size};
    _Alignas(64) unsigned char memory[1024];
    RANKS_OK(r, pair_bind(&p, s->src, s->dst, r->rank, &o));
    RANKS_OK(r, weft_layout_local(p.src, r->rank, &a));
    RANKS_OK(r, weft_layout_local(p.dst, r->rank, &b));
    unsigned char *in = memory + s->src_at + r->rank * s->src_step, *out = memory + s->dst_at + r->rank * s->dst_step;
    weft_view from = {.data = in, .bytes = (size_t)(memory + sizeof memory - in), .strides = s->src_strides};
    weft_view to = {.data = out, .bytes = (size_t)(memory + sizeof memory - out), .strides = s->dst_strides};
    r->code = weft_bind(p.plan, r->comm, &from, &to, NULL, &x);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    for (int seed = 0; !r->code && seed < 3; seed++) {
        /* Through dense copies, so that strides are no matter of the oracle's. */
        float dense_in[64] = {0}, dense_out[64] = {0};
        tensors_fill(p.src, r->rank, dense_in, seed);
        for (int64_t i = 0; i < a.count; i++) {
            int64_t inner = a.ndim > 1 ? a.shape[1] : a.count;
            int64_t row = s->src_strides ? s->src_strides[0] : inner * 4, col = s->src_strides ? s->src_strides[1] : 4;
            memcpy(in + i / inner * row + i % inner * col, &dense_in[i], 4);
        }
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        RANKS_OK(r, weft_exec_run(x));
        for (int64_t i = 0; i < b.count; i++) {
            int64_t inner = b.ndim > 1 ? b.shape[1] : b.count;
            int64_t row = s->dst_strides ? s->dst_strides[0] : inner * 4, col = s->dst_strides ? s->dst_strides[1] : 4;
            memcpy(&dense_out[i], out + i / inner * row + i % inner * col, 4);
        }
        if (tensors_wrong(p.src, p.dst, r->rank, dense_out, seed))
            ranks_note(r, __FILE__, __LINE__, "%s -> %s", s->src, s->dst);
    }
    weft_exec_close(x);
    pair_release(&p);
}

static void overlapping_views_are_refused_unless_in_place(void **state)
{
    (void)state;
    struct ranks_rank out[4];
    for (size_t i = 0; i < sizeof sharings / sizeof *sharings; i++) {
        struct sharing s = sharings[i];
        if (!conformance_takes((int)i))
            continue;
        for (int staged = 0; staged < 2; staged++) {
            ranks_run(4, &(weft_comm_opts){.staged = staged}, run_sharing, &s, out);
            for (int k = 0; k < 4; k++) {
                if (s.refusal ? out[k].code != WEFT_EINVAL || !strstr(out[k].text, s.refusal) : out[k].code)
                    fail_msg("%zu: %s -> %s: rank %d: code %d, %s", i, s.src, s.dst, k, out[k].code, out[k].text);
            }
        }
    }
}

/* Two tensors: sources may share memory, a destination may share with nobody else. */
static int two_tensors(int64_t a_src, int64_t a_dst, int64_t b_src, int64_t b_dst, const int64_t *strides)
{
    weft_layout *l;
    weft_plan *p;
    weft_comm *c;
    weft_exec *x;
    static float memory[256];
    char *m = (char *)memory;
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_layout_parse("f32[4,8] @x1", &l), 0);
    assert_int_equal(weft_lower((weft_move[]){{"a", l, l}, {"b", l, l}}, 2, 0, NULL, &p), 0);
    weft_view src[] = {{.data = m + a_src, .bytes = 512, .strides = strides},
                       {.data = m + b_src, .bytes = 512, .strides = strides}};
    weft_view dst[] = {{.data = m + a_dst, .bytes = 512, .strides = strides},
                       {.data = m + b_dst, .bytes = 512, .strides = strides}};
    int err = weft_bind(p, c, src, dst, NULL, &x);
    if (!err)
        weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(l);
    weft_comm_close(c);
    return err;
}

static void destinations_of_two_tensors_may_not_overlap(void **state)
{
    (void)state;
    static const int64_t wide[] = {64, 4}, spread[] = {64, 8};
    assert_int_equal(two_tensors(0, 128, 256, 384, NULL), 0);
    assert_int_equal(two_tensors(0, 128, 0, 256, NULL), 0); /* one source for both */
    assert_int_equal(two_tensors(0, 256, 64, 384, NULL), 0);
    assert_int_equal(two_tensors(0, 128, 256, 128, NULL), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(),
                        "rank 0: the destination of tensor 'a' and the destination of tensor 'b' overlap");
    assert_int_equal(two_tensors(0, 128, 252, 384, NULL), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "rank 0: the destination of tensor 'a' and the source of tensor 'b' overlap");
    /* Column blocks of one matrix lie between each other and share nothing. */
    assert_int_equal(two_tensors(256, 0, 256, 32, wide), 0);
    assert_int_equal(two_tensors(256, 0, 256, 28, wide), WEFT_EINVAL);
    assert_int_equal(two_tensors(256, 32, 256, 0, wide), 0);
    assert_int_equal(two_tensors(256, 36, 256, 0, wide), WEFT_EINVAL);
    /* So do elements that skip every other place. */
    assert_int_equal(two_tensors(256, 0, 256, 4, spread), 0);
    assert_int_equal(two_tensors(256, 0, 256, 8, spread), WEFT_EINVAL);
}

/* ---- again ---- */

static void run_rebind(struct ranks_rank *r)
{
    struct pair p;
    weft_exec *x, *y;
    float in[3][16], out[3][64];
    RANKS_OK(r, pair_bind(&p, "f32[64/x] @x4", "f32[64] @x4", r->rank, NULL));
    weft_view from[3], to[3];
    for (int k = 0; k < 3; k++) {
        from[k] = (weft_view){.data = in[k], .bytes = sizeof in[k]};
        to[k] = (weft_view){.data = out[k], .bytes = sizeof out[k]};
    }
    RANKS_OK(r, weft_bind(p.plan, r->comm, &from[0], &to[0], NULL, &x));
    RANKS_OK(r, weft_bind(p.plan, r->comm, &from[2], &to[2], NULL, &y));
    for (int run = 0; run < 20; run++) {
        int k = run % 2;
        tensors_fill(p.src, r->rank, in[k], run);
        RANKS_OK(r, weft_exec_rebind(x, &from[k], &to[k]));
        RANKS_OK(r, weft_exec_run(x));
        RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out[k], run));
    }
    /* Refused on all ranks, and the old views stay. */
    weft_view small = WEFT_VIEW(out[0], r->rank == 3 ? 255 : 256);
    RANKS_CHECK(r, weft_exec_rebind(x, &from[0], &small) == WEFT_EINVAL);
    RANKS_CHECK(r, !strcmp(ranks_said(), "rank 3: tensor 'w': destination buffer has 255 bytes, 256 are needed"));
    tensors_fill(p.src, r->rank, in[1], 99);
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out[1], 99));
    /* Different execs, different calls. */
    RANKS_CHECK(r, weft_exec_rebind(r->rank == 1 ? y : x, &from[0], &to[0]) == WEFT_EMISMATCH);
    RANKS_CHECK(r, !strncmp(ranks_said(), "weft_exec_rebind: rank 0 means exec ", 36));
    weft_exec *z = NULL;
    int err =
        r->rank == 2 ? weft_bind(p.plan, r->comm, &from[0], &to[0], NULL, &z) : weft_exec_rebind(x, &from[0], &to[0]);
    RANKS_CHECK(r, err == WEFT_EMISMATCH && !z);
    /* In flight on one rank. */
    tensors_fill(p.src, r->rank, in[2], 7);
    if (r->rank == 1)
        RANKS_OK(r, weft_exec_start(y));
    RANKS_CHECK(r, weft_exec_rebind(y, &from[2], &to[2]) == WEFT_EBUSY);
    RANKS_CHECK(r, !strcmp(ranks_said(), "rank 1: the exec is in flight"));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    if (r->rank != 1)
        RANKS_OK(r, weft_exec_start(y));
    RANKS_OK(r, weft_exec_wait(y, WEFT_FOREVER));
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out[2], 7));
    weft_exec_close(x);
    weft_exec_close(y);
    pair_release(&p);
}

static void rebound_exec_uses_the_new_memory(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_rebind, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_rebind, NULL, NULL);
    /* Room for the two execs, none for a third: binding again takes no more. */
    ranks_run(4, &(weft_comm_opts){.staged = true, .inflight_bytes = 192, .inflight_buckets = 3}, run_rebind, NULL,
              NULL);
}

/* Without destinations_of_two_tensors_may_not_overlap, which is about self: alone. */
static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(bad_binds_are_refused_with_one_text_on_all_ranks),
    cmocka_unit_test(plan_for_more_ranks_than_the_comm_is_refused),
    cmocka_unit_test(overlapping_views_are_refused_unless_in_place),
    cmocka_unit_test(rebound_exec_uses_the_new_memory),
};

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_binds_are_refused_with_one_text_on_all_ranks),
        cmocka_unit_test(plan_for_more_ranks_than_the_comm_is_refused),
        cmocka_unit_test(overlapping_views_are_refused_unless_in_place),
        cmocka_unit_test(destinations_of_two_tensors_may_not_overlap),
        cmocka_unit_test(rebound_exec_uses_the_new_memory),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts));
}
