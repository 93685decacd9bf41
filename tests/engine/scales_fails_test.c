/* What may go wrong with values that have scales: ranks that leave, views and calls that are refused, execs that are
 * closed early, plans that are damaged or do not belong together; and pairs at the edge of what there is. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/plan.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/unwatched.h"
#include "weft.h"

#define OK(call) assert_int_equal((call), 0)

/* The plans of a move. */
struct pair {
    weft_layout *from, *to;
    weft_plan *plan[4];
};
static struct pair pair;

static void free_pair(void)
{
    for (int r = 0; r < 4; r++)
        weft_plan_free(pair.plan[r]);
    weft_layout_free(pair.from);
    weft_layout_free(pair.to);
}

static void lower_texts(const char *src, const char *dst, int ranks)
{
    memset(&pair, 0, sizeof pair);
    OK(weft_layout_parse(src, &pair.from));
    OK(weft_layout_parse(dst, &pair.to));
    for (int r = 0; r < ranks; r++)
        OK(weft_lower(&(weft_move){"w", pair.from, pair.to}, 1, r, NULL, &pair.plan[r]));
}

static void leave_amid_maxima(struct ranks_rank *r)
{
    struct pair *w = r->arg;
    float in[256] = {1};
    uint8_t out[256];
    float scale[2];
    weft_view src[2] = {WEFT_VIEW(in, sizeof in), WEFT_VIEW_INIT};
    weft_view dst[2] = {WEFT_VIEW(out, sizeof out), WEFT_VIEW(scale, sizeof scale)};
    weft_exec *x;
    RANKS_OK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x));
    RANKS_OK(r, weft_exec_run(x));
    ranks_meet(r);
    if (r->rank == 0) {
        ranks_meet(r); /* the others wait for its maxima */
        weft_exec_close(x);
        return;
    }
    RANKS_OK(r, weft_exec_start(x));
    RANKS_CHECK(r, weft_exec_start(x) == WEFT_EBUSY);
    ranks_meet(r);
    RANKS_CHECK(r, weft_exec_wait(x, WEFT_FOREVER) == WEFT_EPEER);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 0"));
    weft_exec_close(x);
}

static void a_rank_that_leaves_ends_the_run(void **state)
{
    (void)state;
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    for (int i = 0; i < 2; i++) {
        lower_texts("f32[256/x] @x3", "f8e4m3[256/x] @x3 *f32(256)", 3);
        opts.progress = i ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER;
        ranks_run(3, &opts, leave_amid_maxima, &pair, NULL);
        free_pair();
    }
}

static void done(void *arg, int err)
{
    int *codes = arg;
    codes[codes[0]++] = err;
}

static void bind_wrongly(struct ranks_rank *r)
{
    struct pair *w = r->arg;
    float in[64] = {1}, scale[4];
    uint8_t out[64];
    weft_view src[2] = {WEFT_VIEW(in, sizeof in), WEFT_VIEW_INIT};
    weft_view dst[2] = {WEFT_VIEW(out, sizeof out), WEFT_VIEW(scale, sizeof scale)};
    weft_exec *x;
    if (r->rank == 1)
        src[0].bytes--;
    RANKS_CHECK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1") && strstr(weft_errmsg(), "255 bytes, 256 are needed"));
    src[0].bytes = sizeof in;
    if (r->rank == 0)
        dst[1].data = NULL;
    RANKS_CHECK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "w.scale"));
    dst[1].data = scale;
    dst[0].data = (char *)in + 16;
    RANKS_CHECK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "overlap"));
    dst[0].data = out;
    RANKS_OK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x));
    int codes[8] = {1};
    RANKS_OK(r, weft_exec_on_done(x, done, codes));
    RANKS_OK(r, weft_exec_run(x));
    RANKS_OK(r, weft_exec_run(x));
    RANKS_CHECK(r, codes[0] == 3 && codes[1] == 0 && codes[2] == 0);
    RANKS_OK(r, weft_exec_on_arrival(x, NULL, NULL));
    RANKS_CHECK(r, weft_exec_start_on(x, NULL) == WEFT_EUNSUPPORTED);
    RANKS_OK(r, weft_exec_run(x));
    weft_exec_info info = WEFT_EXEC_INFO_INIT;
    RANKS_OK(r, weft_exec_stats(x, &info));
    RANKS_CHECK(r, info.runs == 3);
    RANKS_OK(r, weft_exec_start(x));
    weft_exec_close(x); /* in flight: it is waited for */
}

/* Starts an exec and closes it while its maxima are on their way. */
static void start_and_close(void *arg, int err)
{
    (void)err;
    weft_exec_start(arg);
    weft_exec_close(arg);
}

static void close_in_callback(struct ranks_rank *r)
{
    const weft_plan *p = ((struct pair *)r->arg)->plan[r->rank];
    float in[64], scale[2][1] = {{0}, {0}};
    uint8_t out[2][64] = {{0}};
    weft_exec *x[2];
    for (int i = 0; i < 64; i++)
        in[i] = r->rank ? 896 : 1;
    weft_view src[2] = {WEFT_VIEW(in, sizeof in), WEFT_VIEW_INIT};
    for (int i = 0; i < 2; i++)
        RANKS_OK(r, weft_bind(p, r->comm, src,
                              (weft_view[]){WEFT_VIEW(out[i], sizeof out[i]), WEFT_VIEW(scale[i], sizeof scale[i])},
                              NULL, &x[i]));
    if (r->rank == 0)
        RANKS_OK(r, weft_exec_on_done(x[1], start_and_close, x[0]));
    RANKS_OK(r, weft_exec_run(x[1]));
    RANKS_OK(r, weft_exec_on_done(x[1], NULL, NULL));
    if (r->rank == 1)
        RANKS_OK(r, weft_exec_run(x[0]));
    for (int i = 0; i < 3; i++) /* rank 0 ends the other run here */
        RANKS_OK(r, weft_exec_run(x[1]));
    for (int i = 0; i < 2; i++)
        RANKS_CHECK(r, scale[i][0] == 2 && out[i][63] == (r->rank ? 0x7e : 0x30));
    if (r->rank == 1)
        weft_exec_close(x[0]);
    weft_exec_close(x[1]);
}

static void an_exec_is_closed_in_a_callback(void **state)
{
    (void)state;
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    for (int i = 0; i < 2; i++) {
        lower_texts("f32[128/x] @x2", "f8e4m3[128/x] @x2 *f32(128)", 2);
        opts.progress = i ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER;
        ranks_run(2, &opts, close_in_callback, &pair, NULL);
        free_pair();
    }
}

static void wrong_views_are_refused_on_all_ranks(void **state)
{
    (void)state;
    lower_texts("f32[128/x] @x2", "f8e4m3[128/x] @x2 *f32(128)", 2);
    ranks_run(2, NULL, bind_wrongly, &pair, NULL);
    free_pair();
}

static void no_arrivals(struct ranks_rank *r)
{
    struct pair *w = r->arg;
    float out[64], scale[1] = {2};
    uint8_t in[64] = {0};
    weft_view src[2] = {WEFT_VIEW(in, sizeof in), WEFT_VIEW(scale, sizeof scale)};
    weft_view dst[2] = {WEFT_VIEW(out, sizeof out), WEFT_VIEW_INIT};
    weft_exec *x;
    RANKS_OK(r, weft_bind(w->plan[r->rank], r->comm, src, dst, NULL, &x));
    RANKS_CHECK(r, weft_exec_on_arrival(x, NULL, NULL) == WEFT_EUNSUPPORTED);
    weft_exec_close(x);
}

static void arrivals_are_refused_where_values_are_multiplied(void **state)
{
    (void)state;
    lower_texts("f8e4m3[128/x] @x2 *f32(64)", "f32[128/x] @x2", 2);
    ranks_run(2, NULL, no_arrivals, &pair, NULL);
    free_pair();
}

static void put_sum(unsigned char *bytes, uint64_t len, uint64_t version)
{
    uint64_t sum = hash_bytes(version, bytes, (size_t)len - sizeof sum);
    memcpy(bytes + len - sizeof sum, &sum, sizeof sum);
}

/* Makes the checksums of a saved plan with scales fit, and those of the two plans in it. */
static void put_sums(unsigned char *bytes, size_t len, const uint64_t inner[2])
{
    put_sum(bytes + 56, inner[0], 2);
    put_sum(bytes + 56 + inner[0], inner[1], 2);
    put_sum(bytes, len, 1);
}

/* A plan with checksums that fit may be one that loads: then nothing reads or writes beyond it. */
static void load_hostile(const unsigned char *bytes, size_t len)
{
    weft_plan *p;
    weft_stats st = WEFT_STATS_INIT;
    size_t n = 0;
    if (weft_plan_load(bytes, len, &p))
        return;
    weft_plan_stats(p, &st);
    OK(weft_plan_save(p, NULL, 0, &n));
    weft_plan_verify((const weft_plan *const[]){pair.plan[0], p}, 2);
    weft_plan_free(p);
}

/* A saved plan in which one byte is another is refused. If its checksums are made to fit, it does no harm. */
static void damaged_plans_are_refused(void **state)
{
    (void)state;
    lower_texts("f32[12/x] @x2", "f8e4m3[12] @x2 *f32(4)", 2);
    size_t len = 0;
    OK(weft_plan_save(pair.plan[1], NULL, 0, &len));
    unsigned char *bytes = malloc(len);
    weft_plan *p;
    OK(weft_plan_save(pair.plan[1], bytes, len, &len));
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= 1;
        assert_int_not_equal(weft_plan_load(bytes, len, &p), 0);
        bytes[i] ^= 1;
    }
    for (size_t i = 0; i < len; i++)
        assert_int_not_equal(weft_plan_load(bytes, i, &p), 0);
    uint64_t inner[2];
    memcpy(inner, bytes + 24, sizeof inner);
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            bytes[i] ^= (unsigned char)(1 << bit);
            put_sums(bytes, len, inner);
            load_hostile(bytes, len);
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    put_sums(bytes, len, inner);
    OK(weft_plan_load(bytes, len, &p));
    weft_plan_free(p);
    free(bytes);
    free_pair();
}

/* A plan in which the maxima of another rank do not come, or in which a rank takes another dtype for the source. */
static void verify_finds_what_is_wrong(void **state)
{
    (void)state;
    const weft_plan *const *plans = (const weft_plan *const *)pair.plan;
    lower_texts("f32[256/x] @x2", "f8e4m3[256/x] @x2 *f32(256)", 2);
    struct plan_scales *s = pair.plan[0]->scales;
    OK(weft_plan_verify(plans, 2));
    for (int r = 0; r < 2; r++)
        pair.plan[r]->scales->v[0].fold = PLAN_NONE;
    assert_int_not_equal(weft_plan_verify(plans, 2), 0);
    assert_non_null(strstr(weft_errmsg(), "maxima do not come"));
    for (int r = 0; r < 2; r++)
        pair.plan[r]->scales->v[0].fold = 0;
    weft_plan *was = s->fold;
    s->fold = NULL;
    assert_int_not_equal(weft_plan_verify(plans, 2), 0);
    s->fold = was;
    size_t steps = was->nsteps--;
    assert_int_not_equal(weft_plan_verify(plans, 2), 0);
    was->nsteps = steps;
    weft_layout *other_dtype;
    const weft_layout *given = s->v[0].given;
    OK(weft_layout_parse("bf16[256/x] @x2", &other_dtype));
    s->v[0].given = other_dtype;
    assert_int_equal(weft_plan_verify(plans, 2), WEFT_EMISMATCH);
    assert_non_null(strstr(weft_errmsg(), "other scales than rank 0"));
    s->v[0].given = given;
    weft_layout_free(other_dtype);
    OK(weft_plan_verify(plans, 2));
    free_pair();
}

/* Two tensors alike, of which the second takes the maxima of the first, and a tensor whose other side is another. */
static void verify_finds_maxima_that_are_taken_twice(void **state)
{
    (void)state;
    weft_layout *src, *dst, *blocks;
    weft_plan *p[2];
    OK(weft_layout_parse("f32[256/x] @x2", &src));
    OK(weft_layout_parse("f8e4m3[256/x] @x2 *f32(256)", &dst));
    OK(weft_layout_parse("f8e4m3[256/x] @x2 *f32(128)", &blocks));
    weft_move moves[] = {{"v", src, dst}, {"w", src, dst}};
    for (int r = 0; r < 2; r++)
        OK(weft_lower(moves, 2, r, NULL, &p[r]));
    const weft_plan *const *plans = (const weft_plan *const *)p;
    OK(weft_plan_verify(plans, 2));
    for (int r = 0; r < 2; r++)
        p[r]->scales->v[1].fold = 0;
    assert_int_not_equal(weft_plan_verify(plans, 2), 0);
    assert_non_null(strstr(weft_errmsg(), "the maxima of another tensor"));
    for (int r = 0; r < 2; r++)
        p[r]->scales->v[1].fold = 1;
    const weft_layout *was[] = {p[0]->tensors[2].dst, p[1]->tensors[2].dst};
    for (int r = 0; r < 2; r++)
        p[r]->tensors[2].dst = blocks;
    assert_int_not_equal(weft_plan_verify(plans, 2), 0);
    assert_non_null(strstr(weft_errmsg(), "other scales in the destination"));
    for (int r = 0; r < 2; r++) {
        p[r]->tensors[2].dst = was[r];
        weft_plan_free(p[r]);
    }
    weft_layout_free(src);
    weft_layout_free(dst);
    weft_layout_free(blocks);
}

/* An empty tensor has no blocks that are cut. Of 2,000 ranks each has one of the halves of a block: it wants the other
 * half once, and not from each of its 1,000 copies. */
static void no_elements_and_many_copies(void **state)
{
    (void)state;
    lower_texts("f32[8/x,0] @x2", "f8e4m3[8,0/x] @x2 *f32(128,128)", 2);
    free_pair();
    lower_texts("f32[64/x] @x2.r1000", "f8e4m3[64] @x1 *f32(64)", 2);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pair.plan[r]->scales->v[0].nterms, 1);
    free_pair();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_leaves_ends_the_run),
        cmocka_unit_test(wrong_views_are_refused_on_all_ranks),
        cmocka_unit_test(an_exec_is_closed_in_a_callback),
        cmocka_unit_test(arrivals_are_refused_where_values_are_multiplied),
        cmocka_unit_test(damaged_plans_are_refused),
        cmocka_unit_test(verify_finds_what_is_wrong),
        cmocka_unit_test(verify_finds_maxima_that_are_taken_twice),
        cmocka_unit_test(no_elements_and_many_copies),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
