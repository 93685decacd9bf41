/* Collectives in one call against brute force: all kinds, dtypes and operations, in place and apart, small and large;
 * which plans are kept; what ranks are told that do not agree. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/scalar.h"
#include "collective/kept.h"
#include "support/conformance.h"
#include "support/suite.h"
#include "support/unwatched.h"
#include "weft/collective.h"

static const int sizes[] = {1, 2, 3, 5};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
#define EACH_SIZE(i, first)             \
    for (int i = first; i < SIZES; i++) \
        if (conformance_takes(sizes[i]))

enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, ALLGATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, KINDS };
/* Where the destination is: in a buffer of its own; where the source is; in the midst of it. */
enum place { APART, SAME, SHIFTED, PLACES };

struct sample {
    enum kind kind;
    enum weft_dtype dtype;
    enum weft_op op;
    int64_t count;
    int root;
    enum place place;
    uint64_t seed;
};

static bool folds(enum kind kind)
{
    return kind == ALLREDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
}

static bool fits(enum weft_dtype dtype, enum weft_op op)
{
    bool bits = op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR;
    if (dtype == WEFT_BOOL)
        return bits || op == WEFT_MIN || op == WEFT_MAX;
    if (dtype == WEFT_F8E8M0)
        return op == WEFT_PROD || op == WEFT_MIN || op == WEFT_MAX;
    if (scalar_part((int)dtype) != (int)dtype)
        return op == WEFT_SUM || op == WEFT_AVG;
    return !bits || !scalar_is_float(dtype);
}

/* Parts of one rank's source and destination, each of count elements. */
static int src_parts(const struct sample *s, int rank, int size)
{
    switch (s->kind) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL: return size;
    case SCATTER: return rank == s->root ? size : 0;
    case BROADCAST: return rank == s->root;
    default: return 1;
    }
}

static int dst_parts(const struct sample *s, int rank, int size)
{
    switch (s->kind) {
    case ALLGATHER:
    case ALL_TO_ALL: return size;
    case GATHER: return rank == s->root ? size : 0;
    case REDUCE: return rank == s->root;
    default: return 1;
    }
}

/* Element i of a rank's source: 0, 1 or 2, which every dtype has and whose folds are exact; powers of two have 1 or 2.
 */
UNWATCHED static struct scalar element(const struct sample *s, int rank, int64_t i)
{
    uint64_t h = (s->seed * 31 + (uint64_t)rank * 1000003 + (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t v = (h >> 33) % (s->dtype == WEFT_BOOL ? 2 : 3);
    if (s->dtype == WEFT_F8E8M0 && v == 0)
        v = 1;
    if (scalar_is_float(scalar_part((int)s->dtype)))
        return (struct scalar){.f = (double)v, .im = scalar_is_float((int)s->dtype) ? 0 : (double)(2 - v)};
    return (struct scalar){.u = v};
}

UNWATCHED static struct scalar folded(const struct sample *s, int size, int64_t i)
{
    int acc = scalar_acc(s->dtype);
    struct scalar sum = scalar_cast(s->dtype, acc, element(s, 0, i));
    for (int r = 1; r < size; r++)
        sum = scalar_fold(s->op, acc, sum, scalar_cast(s->dtype, acc, element(s, r, i)));
    if (s->op == WEFT_AVG)
        sum = scalar_divide(acc, sum, size);
    return scalar_cast(acc, s->dtype, sum);
}

UNWATCHED static struct scalar expected(const struct sample *s, int rank, int size, int64_t i)
{
    int part = (int)(i / s->count);
    int64_t at = i % s->count;
    switch (s->kind) {
    case ALLREDUCE:
    case REDUCE: return folded(s, size, i);
    case REDUCE_SCATTER: return folded(s, size, rank * s->count + at);
    case SCATTER: return element(s, s->root, rank * s->count + at);
    case BROADCAST: return element(s, s->root, i);
    case ALL_TO_ALL: return element(s, part, rank * s->count + at);
    default: return element(s, part, at);
    }
}

static int call(weft_comm *c, const struct sample *s, const void *src, void *dst)
{
    switch (s->kind) {
    case ALLREDUCE: return weft_allreduce(c, src, dst, s->count, s->dtype, s->op);
    case REDUCE: return weft_reduce(c, src, dst, s->count, s->dtype, s->op, s->root);
    case REDUCE_SCATTER: return weft_reduce_scatter(c, src, dst, s->count, s->dtype, s->op);
    case ALLGATHER: return weft_allgather(c, src, dst, s->count, s->dtype);
    case GATHER: return weft_gather(c, src, dst, s->count, s->dtype, s->root);
    case SCATTER: return weft_scatter(c, src, dst, s->count, s->dtype, s->root);
    case BROADCAST: return weft_broadcast(c, dst, s->count, s->dtype, s->root);
    default: return weft_all_to_all(c, src, dst, s->count, s->dtype);
    }
}

static void fill(const struct sample *s, int rank, char *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        scalar_store(s->dtype, src + (size_t)i * weft_dtype_size(s->dtype), element(s, rank, i));
}

#define GUARD 64 /* bytes behind a destination, which are not written */

static void compare(const struct sample *s, int rank, int size, const char *dst, int64_t n, bool guarded)
{
    size_t bytes = weft_dtype_size(s->dtype);
    values_begin();
    for (int64_t i = 0; i < n; i++) {
        char want[16];
        scalar_store(s->dtype, want, expected(s, rank, size, i));
        if (!scalar_same(s->dtype, dst + (size_t)i * bytes, want))
            values_differ(i, 0, NULL, want[0], dst[(size_t)i * bytes]);
    }
    for (size_t i = 0; i < (guarded ? GUARD : 0); i++)
        VALUES_CHECK(n + (int64_t)i, dst[(size_t)n * bytes + i], 0x55);
}

/* Does the sample in new memory and compares. */
static void try(struct ranks_rank *r, const struct sample *s)
{
    int64_t from = s->count * src_parts(s, r->rank, r->size), to = s->count * dst_parts(s, r->rank, r->size);
    size_t each = weft_dtype_size(s->dtype), room = (size_t)(from > to ? from : to) * each + each + GUARD;
    bool apart = s->place == APART && s->kind != BROADCAST;
    char *src = malloc(room), *other = malloc(room);
    char *dst = apart ? other : src + (s->place == SHIFTED && s->kind != BROADCAST ? each : 0);
    RANKS_CHECK(r, src && other);
    memset(src, 0x55, room);
    memset(other, 0x55, room);
    fill(s, r->rank, src, from);
    int err = call(r->comm, s, from ? src : NULL, to ? dst : NULL);
    if (err)
        ranks_note(r, __FILE__, __LINE__, "kind %d %s %s count %lld root %d place %d: %s", (int)s->kind,
                   weft_dtype_name(s->dtype), weft_op_name(s->op), (long long)s->count, s->root, (int)s->place,
                   weft_errmsg());
    else
        compare(s, r->rank, r->size, dst, to, apart || s->kind == BROADCAST);
    if (!err && apart)
        for (int64_t i = 0; i < from; i++) { /* a source stays as it was */
            char want[16];
            scalar_store(s->dtype, want, element(s, r->rank, i));
            if (memcmp(src + (size_t)i * each, want, each))
                values_differ(i, 0, NULL, want[0], src[(size_t)i * each]);
        }
    free(src);
    free(other);
    if (!err)
        RANKS_VALUES(r);
}

static struct sample sample_of(uint64_t seed, enum kind kind, int dtype, int op, int64_t count, int size)
{
    return (struct sample){.kind = kind,
                           .dtype = (enum weft_dtype)dtype,
                           .op = (enum weft_op)op,
                           .count = count,
                           .root = (int)(seed % (uint64_t)size),
                           .place = (enum place)(seed / 7 % PLACES),
                           .seed = seed};
}

/* Each sample twice: the second time the plan is kept. The calls of one dtype go round before the next begins. */
static void small_samples(struct ranks_rank *r)
{
    uint64_t seed = 1;
    for (int dtype = WEFT_BOOL; dtype <= WEFT_C128; dtype++) {
        if (conformance_on_hosts() && dtype % 5 != r->size % 5) /* the folds are the same there */
            continue;
        for (int round = 0; round < 2; round++) {
            uint64_t at = seed;
            for (int kind = 0; kind < KINDS; kind++) {
                for (int op = WEFT_SUM; op <= (folds(kind) ? WEFT_BXOR : WEFT_SUM); op++, at++) {
                    struct sample s = sample_of(at, (enum kind)kind, dtype, op, 1 + (int64_t)(at * 7 % 30), r->size);
                    s.seed += (uint64_t)round;
                    if (!folds(s.kind) || fits(s.dtype, s.op))
                        try(r, &s);
                    if (*r->failed)
                        return;
                }
            }
            seed = round ? at : seed;
        }
    }
    RANKS_CHECK(r, r->comm->kept->n <= WEFT_COLLECTIVE_KEPT);
}

static void all_kinds_dtypes_and_ops_equal_brute_force(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, small_samples, NULL, NULL);
}

/* Around the limit and far above, with other buffers in each call. */
static void large_samples(struct ranks_rank *r)
{
    static const int dtypes[] = {WEFT_F64, WEFT_I64, WEFT_F32, WEFT_I64};
    for (uint64_t i = 0; i < 3 * KINDS * PLACES; i++) {
        int dtype = dtypes[i % 4];
        int64_t limit = WEFT_COLLECTIVE_SMALL / (int64_t)weft_dtype_size(dtype);
        int64_t count = i % 3 == 0 ? limit : i % 3 == 1 ? limit + 1 : limit / r->size + 3;
        struct sample s = sample_of(i, (enum kind)(i / 3 % KINDS), dtype, i % 2 ? WEFT_MAX : WEFT_SUM, count, r->size);
        s.place = (enum place)(i / (3 * KINDS));
        for (int round = 0; round < 2 && !*r->failed; round++, s.seed++)
            try(r, &s);
        if (*r->failed)
            return;
    }
}

static void large_data_equals_brute_force_in_place_and_apart(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        if (conformance_takes(n))
            ranks_run(n, NULL, large_samples, NULL, NULL);
}

/* More plans than are kept, in an order in which each is gone when it is used again; then one that is used between. */
static void many_plans(struct ranks_rank *r)
{
    for (int round = 0; round < 2; round++)
        for (int n = 1; n <= WEFT_COLLECTIVE_KEPT + 5; n++) {
            struct sample s = sample_of((uint64_t)n, ALLREDUCE, WEFT_I32, WEFT_SUM, n, r->size), often = s;
            often.count = 1000;
            try(r, &s);
            try(r, &often);
            if (*r->failed)
                return;
        }
    const struct kept_list *l = r->comm->kept;
    RANKS_CHECK(r, l->n == WEFT_COLLECTIVE_KEPT);
    int64_t want = WEFT_COLLECTIVE_KEPT + 5;
    RANKS_CHECK(r, l->first->key.count == 1000);
    for (const struct kept *k = l->first->next; k; k = k->next)
        RANKS_CHECK(r, k->key.count == want--);
    RANKS_CHECK(r, want == 6);
}

static void the_plans_used_last_are_kept_and_the_same_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(2, NULL, many_plans, NULL, NULL);
}

static void wrong_arguments(struct ranks_rank *r)
{
    float x[8] = {0}, y[64];
    weft_comm *c = r->comm;
    RANKS_CHECK(r, weft_allreduce(NULL, x, y, 8, WEFT_F32, WEFT_SUM) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_allreduce(c, x, y, -1, WEFT_F32, WEFT_SUM) == WEFT_EINVAL);
    RANKS_CHECK(r, !strcmp(weft_errmsg(), "weft_allreduce: a count of -1: it must not be negative"));
    RANKS_CHECK(r, weft_allreduce(c, x, y, 8, (enum weft_dtype)99, WEFT_SUM) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_allreduce(c, x, y, 8, WEFT_F32, (enum weft_op)99) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_broadcast(c, x, 8, WEFT_F32, r->size) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "weft_broadcast: there is no rank"));
    RANKS_CHECK(r, weft_allreduce(c, x, y, 8, WEFT_F32, WEFT_BAND) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "weft_allreduce of 8 f32: ") && strstr(weft_errmsg(), "band does not fold"));
    RANKS_CHECK(r, weft_allreduce(c, NULL, y, 8, WEFT_F32, WEFT_SUM) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "src is NULL; this rank gives 32 bytes"));
    RANKS_CHECK(r, weft_allreduce(c, NULL, NULL, INT64_MAX, WEFT_F64, WEFT_SUM) == WEFT_EINVAL);
    RANKS_OK(r, weft_allreduce(c, NULL, NULL, 0, WEFT_F32, WEFT_SUM));
    for (int i = 0; i < 2; i++) /* kept by now: the rank alone finds it */
        RANKS_OK(r, weft_allreduce(c, x, y, 8, WEFT_F32, WEFT_SUM));
    RANKS_CHECK(r, weft_allreduce(c, x, NULL, 8, WEFT_F32, WEFT_SUM) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "dst is NULL"));
    RANKS_OK(r, weft_allreduce(c, x, y, 8, WEFT_F32, WEFT_SUM));
    if (r->size < 2)
        return;
    int err = weft_allreduce(c, x, y, 3 + (r->rank == 1), WEFT_F32, WEFT_SUM);
    RANKS_CHECK(r, err == WEFT_EMISMATCH);
    RANKS_CHECK(r, strstr(weft_errmsg(), "All ranks must make the same calls in the same order, with the same count"));
    err = weft_allgather(c, r->rank == 1 ? NULL : x, y, 2, WEFT_F32); /* one rank's fault is known to all at once */
    RANKS_CHECK(r, err == WEFT_EINVAL);
    RANKS_OK(r, weft_allgather(c, x, y, 2, WEFT_F32));
}

static void wrong_arguments_are_refused_and_the_comm_goes_on(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, wrong_arguments, NULL, NULL);
}

/* The others come when rank 0's time has run out; it is still in the call then. */
static void late_ranks(struct ranks_rank *r)
{
    int64_t x = r->rank + 1, sum = 0, other;
    RANKS_OK(r, weft_allreduce(r->comm, &x, &sum, 1, WEFT_I64, WEFT_SUM));
    RANKS_OK(r, conformance_settle(r));
    ranks_meet(r);
    if (r->rank == 0) {
        sum = 0;
        RANKS_CHECK(r, weft_allreduce(r->comm, &x, &sum, 1, WEFT_I64, WEFT_SUM) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, strstr(weft_errmsg(), "weft_allreduce of 1 i64: ") && strstr(weft_errmsg(), "rank 1"));
        RANKS_CHECK(r, weft_allreduce(r->comm, &x, &other, 1, WEFT_I64, WEFT_SUM) == WEFT_EBUSY);
        RANKS_CHECK(r, weft_broadcast(r->comm, &x, 1, WEFT_I64, 0) == WEFT_EBUSY);
        RANKS_CHECK(r, strstr(weft_errmsg(), "a collective (allreduce of 1 i64) that ran out of time is still open"));
    }
    ranks_meet(r);
    int err;
    do
        err = weft_allreduce(r->comm, &x, &sum, 1, WEFT_I64, WEFT_SUM);
    while (err == WEFT_ETIMEOUT); /* on a machine that is busy with others */
    RANKS_OK(r, err);
    RANKS_CHECK(r, sum == r->size * (r->size + 1) / 2);
}

static void after_a_timeout_the_same_call_goes_on(void **state)
{
    (void)state;
    if (conformance_on_mpi()) { /* the late rank's comm fails there: docs/limits.md */
        print_message("mpi: has the deadline for a rank that has not started, too\n");
        skip();
    }
    weft_comm_opts opts = {.size = sizeof opts, .deadline_ns = INT64_C(1000000000)};
    ranks_run(2, &opts, late_ranks, NULL, NULL);
}

/* A group of its own keeps its own plans, which go with it. */
static void in_groups(struct ranks_rank *r)
{
    int evens[8] = {0}, n = 0;
    for (int i = r->rank % 2; i < r->size; i += 2)
        evens[n++] = i;
    weft_comm *group;
    RANKS_OK(r, weft_comm_split(r->comm, evens, (size_t)n, &group));
    double x = r->rank, of_group = 0, all = 0, want = 0;
    for (int i = 0; i < n; i++)
        want += evens[i];
    for (int i = 0; i < 3; i++) {
        RANKS_OK(r, weft_allreduce(group, &x, &of_group, 1, WEFT_F64, WEFT_SUM));
        RANKS_OK(r, weft_allreduce(r->comm, &x, &all, 1, WEFT_F64, WEFT_SUM));
        RANKS_CHECK(r, of_group == want && all == r->size * (r->size - 1) / 2);
    }
    weft_comm_close(group);
    RANKS_OK(r, weft_allreduce(r->comm, &x, &all, 1, WEFT_F64, WEFT_SUM));
}

static void groups_keep_plans_of_their_own(void **state)
{
    (void)state;
    ranks_run(4, NULL, in_groups, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_dtypes_and_ops_equal_brute_force),
        cmocka_unit_test(large_data_equals_brute_force_in_place_and_apart),
        cmocka_unit_test(the_plans_used_last_are_kept_and_the_same_on_all_ranks),
        cmocka_unit_test(wrong_arguments_are_refused_and_the_comm_goes_on),
        cmocka_unit_test(after_a_timeout_the_same_call_goes_on),
        cmocka_unit_test(groups_keep_plans_of_their_own),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
