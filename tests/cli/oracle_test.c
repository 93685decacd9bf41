/* The oracle against results worked out by hand: every feature of the notation on tensors small enough to follow on
 * paper, the arithmetic of each dtype, the closed forms of the window collectives, and the lower bound. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/oracle.h"
#include "cli/check/scalar.h"
#include "support/suite.h"

#define U (-99.0) /* a slot that stays as it was */
#define INF ((double)INFINITY)
#define NANV ((double)NAN)

struct move {
    weft_layout *src, *dst;
    struct oracle *o;
    int src_type, dst_type, world;
    unsigned char **in, **out; /* one buffer a rank */
};

static weft_layout *layout(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        fail_msg("%s: %s", text, weft_errmsg());
    return l;
}

static int type_of(const weft_layout *l)
{
    weft_layout_desc d = {.size = sizeof d};
    assert_int_equal(weft_layout_describe(l, &d), 0);
    return (int)d.dtype;
}

static void move_open(struct move *m, const char *src, const char *dst)
{
    *m = (struct move){.src = layout(src), .dst = layout(dst)};
    assert_int_equal(oracle_open(m->src, m->dst, &m->o), 0);
    m->src_type = type_of(m->src);
    m->dst_type = type_of(m->dst);
    m->world = oracle_world(m->o);
    m->in = calloc((size_t)m->world, sizeof *m->in);
    m->out = calloc((size_t)m->world, sizeof *m->out);
    for (int r = 0; r < m->world; r++) {
        m->in[r] = calloc(1, (size_t)oracle_src_bytes(m->o, r) + 1);
        m->out[r] = calloc(1, (size_t)oracle_dst_bytes(m->o, r) + 1);
    }
}

static void move_close(struct move *m)
{
    for (int r = 0; r < m->world; r++) {
        free(m->in[r]);
        free(m->out[r]);
    }
    free(m->in);
    free(m->out);
    oracle_free(m->o);
    weft_layout_free(m->src);
    weft_layout_free(m->dst);
}

static void move_run(struct move *m)
{
    assert_int_equal(oracle_take(m->o, (const void *const *)m->in), 0);
    for (int r = 0; r < m->world; r++)
        oracle_expect(m->o, r, m->out[r]);
}

static void put(int dtype, void *buf, int64_t i, double v)
{
    scalar_store(dtype, (char *)buf + (size_t)i * weft_dtype_size(dtype),
                 scalar_cast(WEFT_F64, dtype, (struct scalar){.f = v}));
}

static double get(int dtype, const void *buf, int64_t i)
{
    return scalar_cast(dtype, WEFT_F64, scalar_load(dtype, (const char *)buf + (size_t)i * weft_dtype_size(dtype))).f;
}

/* `in` has the source buffers of all ranks one after the other, `out` what the destination buffers must hold. */
static void expect(const char *src, const char *dst, const double *in, size_t nin, const double *out, size_t nout)
{
    struct move m;
    move_open(&m, src, dst);
    size_t k = 0;
    for (int r = 0; r < m.world; r++) {
        int64_t n = oracle_src_bytes(m.o, r) / (int64_t)weft_dtype_size(m.src_type);
        for (int64_t i = 0; i < n; i++, k++)
            put(m.src_type, m.in[r], i, k < nin ? in[k] : 0);
        for (int64_t i = 0; i < oracle_dst_bytes(m.o, r) / (int64_t)weft_dtype_size(m.dst_type); i++)
            put(m.dst_type, m.out[r], i, U);
    }
    if (k != nin)
        fail_msg("%s: the ranks hold %zu elements, %zu were given", src, k, nin);
    move_run(&m);
    k = 0;
    for (int r = 0; r < m.world; r++)
        for (int64_t i = 0; i < oracle_dst_bytes(m.o, r) / (int64_t)weft_dtype_size(m.dst_type); i++, k++) {
            double got = get(m.dst_type, m.out[r], i), want = k < nout ? out[k] : 0;
            if (k < nout && (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want)))
                fail_msg("%s -> %s: rank %d slot %d: %g, should be %g", src, dst, r, (int)i, got, want);
        }
    if (k != nout)
        fail_msg("%s: the ranks hold %zu elements, %zu were given", dst, k, nout);
    move_close(&m);
}

#define LIST(...) (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

static void splits_match_results_by_hand(void **state)
{
    (void)state;
    /* ceil(7/2) = 4, then each piece by the same rule */
    expect("f32[7] @x1", "f32[7/a/b] @a2.b2", LIST(0, 1, 2, 3, 4, 5, 6), LIST(0, 1, 2, 3, 4, 5, 6));
    expect("f32[7/a/b] @a2.b2=3,1,0,2", "f32[7] @x1", LIST(4, 5, 2, 3, 6, 0, 1), LIST(0, 1, 2, 3, 4, 5, 6));
    /* the other way round: ranks (a, b) in order hold 01, 45, 23, 6 */
    expect("f32[7] @x1", "f32[7/b/a] @a2.b2", LIST(0, 1, 2, 3, 4, 5, 6), LIST(0, 1, 4, 5, 2, 3, 6));
    /* the last pieces are shorter, then empty */
    expect("f32[5] @x1", "f32[5/x] @x4=4..7", LIST(0, 1, 2, 3, 4), LIST(0, 1, 2, 3, 4));
    expect("f32[2] @x1", "f32[2/a/b] @a3.b2", LIST(8, 9), LIST(8, 9));
    /* rows to columns */
    expect("i16[2/x,3] @x2", "i16[2,3/x] @x2", LIST(1, 2, 3, 4, 5, 6), LIST(1, 2, 4, 5, 3, 6));
    /* free axes replicate; 0-d; an extent of 0 */
    expect("f32[2/x] @r1.x2", "f32[2/x] @r2.x2", LIST(1, 2), LIST(1, 2, 1, 2));
    expect("f64[] @x1=1", "f64[] @x3", LIST(7), LIST(7, 7, 7));
    expect("f64[0,3/x] @x2", "f64[0/x,3] @x2", NULL, 0, NULL, 0);
}

static void block_cyclic_splits_match_results_by_hand(void **state)
{
    (void)state;
    expect("f32[7] @x1", "f32[7/x:2] @x2", LIST(0, 1, 2, 3, 4, 5, 6), LIST(0, 1, 4, 5, 2, 3, 6));
    expect("f32[7/x:2] @x2", "f32[7] @x1=1", LIST(0, 1, 4, 5, 2, 3, 6), LIST(0, 1, 2, 3, 4, 5, 6));
    /* blocks of the piece at hand */
    expect("f32[10] @x1", "f32[10/a/b:1] @a2.b2", LIST(0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
           LIST(0, 2, 4, 1, 3, 5, 7, 9, 6, 8));
    /* a deals 012 | 345 | 678 | 9; b halves what a has: 0126 78 and 345 9 */
    expect("f32[10] @x1", "f32[10/a:3/b] @a2.b2", LIST(0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
           LIST(0, 1, 2, 6, 7, 8, 3, 4, 5, 9));
    expect("f32[3] @x1", "f32[3/x:2] @x3", LIST(0, 1, 2), LIST(0, 1, 2));
}

static void ghosts_match_results_by_hand(void **state)
{
    (void)state;
    expect("f32[6/x] @x3", "f32[6/x~1] @x3", LIST(0, 1, 2, 3, 4, 5), LIST(U, 0, 1, 2, 1, 2, 3, 4, 3, 4, 5, U));
    expect("f32[6/x] @x3", "f32[6/x~1o] @x3", LIST(0, 1, 2, 3, 4, 5), LIST(5, 0, 1, 2, 1, 2, 3, 4, 3, 4, 5, 0));
    /* past the next neighbour, and only on one side */
    expect("f32[3/x] @x3", "f32[3/x~0:2] @x3", LIST(0, 1, 2), LIST(0, 1, 2, 1, 2, U, 2, U, U));
    /* a rank that holds an element several times; more than once round */
    expect("f32[3] @x1", "f32[3~4:5o] @x1", LIST(0, 1, 2), LIST(2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1));
    expect("f32[4/x] @x2", "f32[4/x~3o] @x2", LIST(0, 1, 2, 3), LIST(1, 2, 3, 0, 1, 2, 3, 0, 3, 0, 1, 2, 3, 0, 1, 2));
    /* an empty piece has no ghosts */
    expect("f32[2] @x1", "f32[2/x~1o] @x3", LIST(0, 1), LIST(1, 0, 1, 0, 1, 0));
    /* corners come along; a dim that is not split may have ghosts */
    expect("f32[2/y,2] @y2", "f32[2/y~1:0o,2~0:1] @y2", LIST(1, 2, 3, 4), LIST(3, 4, U, 1, 2, U, 1, 2, U, 3, 4, U));
    /* faces alone: what is a ghost in two dims is left, at an end that wraps round too */
    expect("f32[2,2] @x1", "f32[2~1o,2~1o]+ @x1", LIST(1, 2, 3, 4),
           LIST(U, 3, 4, U, 2, 1, 2, 1, 4, 3, 4, 3, U, 1, 2, U));
    expect("f32[2/y,2] @y2", "f32[2/y~1:0o,2~0:1o]+ @y2", LIST(1, 2, 3, 4), LIST(3, 4, U, 1, 2, 1, 1, 2, U, 3, 4, 3));
    expect("f32[1,1,1] @x1", "f32[1~0:1o,1~0:1o,1~0:1o]+ @x1", LIST(7), LIST(7, 7, 7, U, 7, U, U, U));
    /* as a source, the owner's copy is read */
    expect("f32[4/x~1] @x2", "f32[4] @x1", LIST(-1, 10, 11, -2, -3, 12, 13, -4), LIST(10, 11, 12, 13));
}

static void folded_ghosts_match_results_by_hand(void **state)
{
    (void)state;
    expect("f32[4/x~1] @x2 +sum(~)", "f32[4/x] @x2", LIST(100, 1, 2, 3, 10, 20, 30, 200), LIST(1, 12, 23, 30));
    /* one rank, wrapped: slots stand for 1 0 1 0; the ends count twice */
    expect("f32[2~1o] @x1 +sum(~)", "f32[2] @x1", LIST(1, 2, 4, 8), LIST(10, 5));
    /* the average of owner and ghosts: as many as there are */
    expect("i32[4/x~1] @x2 +avg(~)", "i32[4] @x1", LIST(0, 6, 7, -9, 8, 3, 5, 0), LIST(6, 7, -3, 5));
    /* the owner first, then by rank and slot. Slots of either rank: 1 0 1 and 0 1 0; rank 1 owns element 0.
     * Element 0: (1e8 + 1) - 1e8, its ghosts are slots 0 and 2 of rank 0; element 1: (1 + 1e8) - 1e8 */
    expect("f32[2/x~1o] @x2=1,0 +sum(~)", "f32[2] @x1", LIST(1, 1, -1e8, 1e8, 1e8, -1e8), LIST(0, 0));
    /* corners are no terms where there are none: element 0 is at slot 0, and a ghost of it at slots 1 and 2 */
    expect("f32[1~0:1o,1~0:1o] @x1 +sum(~)", "f32[1,1] @x1", LIST(1, 2, 4, 8), LIST(15));
    expect("f32[1~0:1o,1~0:1o]+ @x1 +sum(~)", "f32[1,1] @x1", LIST(1, 2, 4, 8), LIST(7));
    /* the other way round: -1e8 before 1 */
    expect("f32[2/x~1o] @x2=1,0 +sum(~)", "f32[2] @x1", LIST(-1e8, -1e8, 1, 1e8, 1e8, 1), LIST(1, 1));
}

static void folds_go_in_the_order_of_ranks(void **state)
{
    (void)state;
    /* in f32, 1e8 + 1 == 1e8: the order shows. By rank, not by place in the mesh. */
    expect("f32[1] @x3 +sum(x)", "f32[1] @x1", LIST(1e8, 1, -1e8), LIST(0));
    expect("f32[1] @x3=2,0,1 +sum(x)", "f32[1] @x1", LIST(1e8, -1e8, 1), LIST(1));
    /* levels in the order written: the largest of two sums, the sum of two largest */
    expect("f32[1] @a2.b2 +sum(a) +max(b)", "f32[1] @x1", LIST(1, 2, 30, 20), LIST(31));
    expect("f32[1] @a2.b2 +max(b) +sum(a)", "f32[1] @x1", LIST(1, 2, 30, 20), LIST(32));
    expect("f32[1] @a2.b2 +max(a) +sum(b)", "f32[1] @x1", LIST(1, 2, 30, 20), LIST(50));
    /* an average of sums divides by the terms of its own level */
    expect("f32[1] @a2.b3 +sum(a) +avg(b)", "f32[1] @x1", LIST(1, 2, 3, 4, 5, 6), LIST(7));
    /* one level over both axes is one fold by rank */
    expect("f32[1] @a2.b2=3,2,1,0 +sum(a,b)", "f32[1] @x1", LIST(1e8, -1e8, 1, 1), LIST(2));
    /* ghosts inside another level: max over the copies of each summand, then the sum */
    expect("f32[2~0:1o] @a2 +max(~) +sum(a)", "f32[2] @x1", LIST(1, 2, 5, 10, 20, 7), LIST(15, 22));
    expect("f32[2~0:1o] @a2 +sum(a) +max(~)", "f32[2] @x1", LIST(1, 2, 5, 10, 20, 7), LIST(12, 22));
    expect("f32[2~0:1o] @a2 +sum(a,~)", "f32[2] @x1", LIST(1, 2, 5, 10, 20, 7), LIST(23, 22));
}

static void partial_destinations_get_identities(void **state)
{
    (void)state;
    expect("f32[2] @x1", "f32[2] @x3 +sum(x)", LIST(5, 6), LIST(5, 6, 0, 0, 0, 0));
    expect("f32[1] @x1", "f32[1] @x2 +prod(x)", LIST(5), LIST(5, 1));
    expect("f32[1] @x1", "f32[1] @x2 +min(x)", LIST(5), LIST(5, INF));
    expect("f8e4m3[1] @x1", "f8e4m3[1] @x2 +max(x)", LIST(5), LIST(5, -448));
    expect("i8[1] @x1", "i8[1] @x2 +max(x)", LIST(5), LIST(5, -128));
    expect("u16[1] @x1", "u16[1] @x2 +min(x)", LIST(5), LIST(5, 65535));
    expect("i32[1] @x1", "i32[1] @x2 +band(x)", LIST(5), LIST(5, -1));
    expect("bool[1] @x1", "bool[1] @x2 +band(x)", LIST(0), LIST(0, 1));
    /* the first op written with a coordinate that is not 0 gives the identity */
    expect("f32[1] @x1", "f32[1] @a2.b2 +prod(a) +max(b)", LIST(5), LIST(5, -INF, 1, 1));
    expect("f32[1] @x1", "f32[1] @a2.b2 +max(b) +prod(a)", LIST(5), LIST(5, -INF, 1, -INF));
    /* ghosts count as one more coordinate */
    expect("f32[2/x] @x2", "f32[2/x~1] @x2 +sum(~)", LIST(3, 4), LIST(U, 3, 0, 0, 4, U));
    expect("f32[2] @x1", "f32[2~1:0o] @x2 +sum(x) +max(~)", LIST(3, 4), LIST(-INF, 3, 4, 0, 0, 0));
    expect("f32[1,1] @x1", "f32[1~0:1o,1~0:1o]+ @x2 +sum(x,~)", LIST(3), LIST(3, 0, 0, U, 0, 0, 0, U));
    /* partial to partial: folded, then carried by coordinate 0 */
    expect("f32[1] @x2 +sum(x)", "f32[1] @x2 +sum(x)", LIST(3, 4), LIST(7, 0));
}

static void casts_match_results_by_hand(void **state)
{
    (void)state;
    expect("f32[4] @x1", "i32[4] @x1", LIST(2.9, -2.9, 3e9, NANV), LIST(2, -2, 2147483647, 0));
    expect("f64[4] @x1", "u8[4] @x1", LIST(-1, 255.9, 256, -INF), LIST(0, 255, 255, 0));
    expect("i32[3] @x1", "u8[3] @x1", LIST(257, -1, 256), LIST(1, 255, 0));
    expect("i16[2] @x1", "i8[2] @x1", LIST(128, -129), LIST(-128, 127));
    expect("f32[4] @x1", "bool[4] @x1", LIST(0, -0.0, 0.25, NANV), LIST(0, 0, 1, 1));
    expect("bool[2] @x1", "f16[2] @x1", LIST(1, 0), LIST(1, 0));
    /* ties to even, overflow, subnormals */
    expect("f32[4] @x1", "bf16[4] @x1", LIST(257, 259, 3.4e38, -0.0), LIST(256, 260, INF, -0.0));
    expect("f32[5] @x1", "f16[5] @x1", LIST(2049, 2051, 65519, 65520, 0x1p-25), LIST(2048, 2052, 65504, INF, 0));
    expect("f32[3] @x1", "f16[3] @x1", LIST(0x1.8p-25, 0x1.8p-24, -0x1p-24), LIST(0x1p-24, 0x1p-23, -0x1p-24));
    expect("f32[4] @x1", "f8e4m3[4] @x1", LIST(464, 464.1, INF, 0x1p-10), LIST(448, NANV, NANV, 0));
    expect("f32[4] @x1", "f8e5m2[4] @x1", LIST(61439, 61440, 1.125, 1.375), LIST(57344, INF, 1, 1.5));
    /* one rounding from 64 bits: 2^24 + 1 + 2^-... would go wrong through double */
    expect("i64[2] @x1", "f32[2] @x1", LIST(16777217, 16777219), LIST(16777216, 16777220));
    expect("i64[1] @x1", "f8e4m3[1] @x1", LIST(-17), LIST(-16));
}

/* Through double, 2^60 + 2^36 + 1 would be 2^60 + 2^36: a tie in f32, and rounded down. */
static void integer_casts_round_once(void **state)
{
    (void)state;
    int64_t v = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
    struct scalar f = scalar_cast(WEFT_I64, WEFT_F32, scalar_load(WEFT_I64, &v));
    assert_true(f.f == 0x1p60 + 0x1p37);
    uint64_t u = UINT64_MAX;
    assert_true(scalar_cast(WEFT_U64, WEFT_F64, scalar_load(WEFT_U64, &u)).f == 0x1p64);
}

static void narrow_folds_round_once(void **state)
{
    (void)state;
    /* f16 folds in f32 and rounds once: 2048 + 1 + 1 */
    expect("f16[1] @x3 +sum(x)", "f16[1] @x1", LIST(2048, 1, 1), LIST(2050));
    /* finished in the narrower dtype, f16, then widened: 2049 is a tie there */
    expect("f16[1] @x2 +sum(x)", "f32[1] @x1", LIST(2048, 1), LIST(2048));
    /* finished in bf16 straight from f32 */
    expect("f32[1] @x2 +sum(x)", "bf16[1] @x1", LIST(256, 1), LIST(256));
    /* equal width: the source's, so the sum wraps to i16 before it is cast */
    expect("i16[1] @x2 +sum(x)", "f16[1] @x1", LIST(32767, 2), LIST(-32768));
    expect("i8[1] @x2 +prod(x)", "i8[1] @x1", LIST(100, 3), LIST(44));
    expect("i32[2] @x2 +avg(x)", "i32[2] @x1", LIST(-7, 7, 0, 0), LIST(-3, 3));
    expect("u8[1] @x2 +avg(x)", "u8[1] @x1", LIST(255, 3), LIST(1));
    expect("f32[1] @x3 +avg(x)", "f32[1] @x1", LIST(1, 2, 4), LIST((double)(7.0f / 3.0f)));
    /* min and max pass NaN on and put -0 below +0 */
    expect("f32[3] @x2 +min(x)", "f32[3] @x1", LIST(0.0, 1, NANV, -0.0, 2, 1), LIST(-0.0, 1, NANV));
    expect("f32[3] @x2 +max(x)", "f32[3] @x1", LIST(-0.0, 1, 1, 0.0, 2, NANV), LIST(0.0, 2, NANV));
    expect("u8[1] @x2 +bxor(x)", "u8[1] @x1", LIST(0x35, 0x0f), LIST(0x3a));
    expect("bool[2] @x2 +min(x)", "bool[2] @x1", LIST(1, 1, 0, 1), LIST(0, 1));
    /* a sum of one term is that term, sign of zero included; an average of one too */
    expect("f32[1] @x1 +sum(x)", "f32[1] @x1", LIST(-0.0), LIST(-0.0));
    expect("f32[1] @x1 +avg(x)", "f32[1] @x1", LIST(3), LIST(3));
}

/* ---- closed forms of the window collectives, C = 64, N = 256 or P * C ---- */

static void window(int p, const char *src, const char *dst, double (*in)(int p, int r, int i),
                   double (*out)(int p, int r, int i))
{
    char a[64], b[64];
    snprintf(a, sizeof a, src, p * 64, p);
    snprintf(b, sizeof b, dst, p * 64, p);
    struct move m;
    move_open(&m, a, b);
    for (int r = 0; r < m.world; r++)
        for (int i = 0; i < (int)(oracle_src_bytes(m.o, r) / 4); i++)
            put(WEFT_F32, m.in[r], i, in(p, r, i));
    move_run(&m);
    for (int r = 0; r < m.world; r++)
        for (int i = 0; i < (int)(oracle_dst_bytes(m.o, r) / 4); i++)
            assert_true(get(WEFT_F32, m.out[r], i) == out(p, r, i));
    move_close(&m);
}

static double in_gather(int p, int r, int i)
{
    (void)p;
    return 100 * r + i;
}
static double out_gather(int p, int r, int i)
{
    (void)p;
    (void)r;
    return 100 * (i / 64) + i % 64;
}
static double in_reduce(int p, int r, int i)
{
    (void)p;
    return i + 100 * r;
}
static double out_scatter(int p, int r, int i)
{
    return p * (r * 64 + i) + 100 * p * (p - 1) / 2;
}
static double out_reduce(int p, int r, int i)
{
    (void)r;
    return p * i + 100 * p * (p - 1) / 2;
}
static double in_broadcast(int p, int r, int i)
{
    (void)p;
    (void)r;
    return i;
}
static double in_alltoall(int p, int r, int i)
{
    (void)p;
    return 1000 * r + 100 * (i / 64) + i % 64;
}
static double out_alltoall(int p, int r, int i)
{
    (void)p;
    return 1000 * (i / 64) + 100 * r + i % 64;
}

static void window_collectives_have_the_closed_form(void **state)
{
    (void)state;
    const int sizes[] = {2, 3, 4, 5, 8};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int p = sizes[k];
        window(p, "f32[%d/x] @x%d", "f32[%d] @x%d", in_gather, out_gather);
        window(p, "f32[%d] @x%d +sum(x)", "f32[%d/x] @x%d", in_reduce, out_scatter);
        window(p, "f32[%d] @x1=0", "f32[%d] @x%d", in_broadcast, in_broadcast);
        window(p, "f32[%d] @x%d +sum(x)", "f32[%d] @x%d", in_reduce, out_reduce);
        char a[64], b[64];
        snprintf(a, sizeof a, "f32[%d/x,%d,64] @x%d", p, p, p);
        snprintf(b, sizeof b, "f32[%d,%d/x,64] @x%d", p, p, p);
        window(p, a, b, in_alltoall, out_alltoall);
    }
}

/* ---- the lower bound ---- */

static void bound(const char *src, const char *dst, int64_t want)
{
    weft_layout *a = layout(src), *b = layout(dst);
    struct oracle *o = NULL;
    assert_int_equal(oracle_open(a, b, &o), 0);
    int64_t got = oracle_bound(o);
    if (got != want)
        fail_msg("%s -> %s: bound %lld, should be %lld", src, dst, (long long)got, (long long)want);
    oracle_free(o);
    weft_layout_free(a);
    weft_layout_free(b);
}

static void lower_bound_matches_results_by_hand(void **state)
{
    (void)state;
    bound("f32[8/x] @x4", "f32[8] @x4", 8 * 3 * 4);
    bound("f32[8] @x1=0", "f32[8] @x4", 8 * 3 * 4);
    bound("f32[8] @x1=4", "f32[8] @x4", 8 * 4 * 4);
    bound("f32[8] @x4 +sum(x)", "f32[8] @x4", 8 * 6 * 4);
    bound("f32[8] @x4 +sum(x)", "f32[8/x] @x4", 8 * 3 * 4);
    bound("f32[8] @x4 +sum(x)", "f32[8] @x1=4", 8 * 4 * 4);
    bound("f32[8] @x4", "f32[8/x] @x4", 0);
    bound("f32[8/x] @x4", "f32[8/x] @x4=1,2,3,0", 8 * 4);
    bound("f32[4/x,4] @x4", "f32[4,4/x] @x4", 12 * 4);
    bound("f32[8/x] @x4", "f32[8/x~1] @x4", 6 * 4);
    bound("f32[8/x] @x4", "f32[8/x~1o] @x4", 8 * 4);
    bound("f32[8/x~1] @x4", "f32[8/x~1] @x4", 6 * 4); /* ghosts of a source are not owners */
    bound("f32[4/y,4/x] @y2.x2", "f32[4/y~1,4/x~1] @y2.x2", 4 * (2 + 2 + 1) * 4); /* with a corner, and without */
    bound("f32[4/y,4/x] @y2.x2", "f32[4/y~1,4/x~1]+ @y2.x2", 4 * (2 + 2) * 4);
    bound("f32[4/y~1,4/x~1]+ @y2.x2 +sum(~)", "f32[4/y,4/x] @y2.x2", 4 * (2 + 2) * 4);
    bound("f32[8~2o] @x1", "f32[8~3o] @x1", 0);
    bound("f32[8/x] @x4", "bf16[8] @x4", 8 * 3 * 2);
    bound("bf16[8/x] @x4", "f32[8] @x4", 8 * 3 * 2);
    bound("f32[8] @x4 +sum(x)", "bf16[8] @x4", 8 * (3 * 4 + 3 * 2));
    bound("f32[8] @r2.x2 +sum(x)", "f32[8] @r2.x2", 8 * 4 * 4); /* replicas of a term count once */
    bound("f32[8] @x1", "f32[8] @x4 +sum(x)", 0);               /* identities need nothing */
    bound("f32[8] @x1 +avg(x)", "f32[8] @x3", 8 * 2 * 4);       /* a fold of one term is none */
    bound("f32[8/x~1] @x4 +sum(~)", "f32[8/x] @x4", 6 * 4);
    bound("f64[0,3/x] @x2", "f64[0/x,3] @x2", 0);
    bound("f64[] @x1", "f64[] @x3", 2 * 8);
    bound("f32[1048576,1048576/x] @x4", "f32[1048576/x,1048576] @x4", INT64_C(3) << 40);
}

/* ---- data ---- */

static void fill_gives_equal_replicas_and_different_terms(void **state)
{
    (void)state;
    struct move m;
    /* replicas are equal, summands are not, data change with the seed */
    move_open(&m, "f32[64] @r2.x2 +sum(x)", "f32[64] @x1");
    for (int r = 0; r < 4; r++)
        oracle_fill(m.o, 1, ORACLE_EXACT, r, m.in[r]);
    assert_memory_equal(m.in[0], m.in[2], 256);
    assert_memory_equal(m.in[1], m.in[3], 256);
    assert_memory_not_equal(m.in[0], m.in[1], 256);
    for (int i = 0; i < 64; i++)
        assert_true(fabs(get(WEFT_F32, m.in[0], i)) <= 8);
    oracle_fill(m.o, 2, ORACLE_EXACT, 2, m.in[2]);
    assert_memory_not_equal(m.in[0], m.in[2], 256);
    move_close(&m);
    /* what is never read is not what the owner has */
    move_open(&m, "u64[64/x~2o] @x2", "u64[64] @x1");
    oracle_fill(m.o, 1, ORACLE_WILD, 0, m.in[0]);
    oracle_fill(m.o, 1, ORACLE_WILD, 1, m.in[1]);
    assert_memory_not_equal(m.in[0], m.in[1] + 32 * 8, 16);
    assert_memory_not_equal(m.in[1], m.in[0] + 32 * 8, 16);
    move_close(&m);
}

/* Exact data give the same bits in every order: the mesh reversed has the fold reversed. */
static void exact_data_fold_alike_in_every_order(void **state)
{
    (void)state;
    const char *const types[] = {"f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, *const ops[] = {"sum", "prod",
                                                                                                   "avg"};
    for (int t = 0; t < 6; t++)
        for (int k = 0; k < 3; k++) {
            char a[64], b[64], c[64];
            snprintf(a, sizeof a, "%s[500] @x12 +%s(x)", types[t], ops[k]);
            snprintf(b, sizeof b, "%s[500] @x12=11,10,9,8,7,6,5,4,3,2,1,0 +%s(x)", types[t], ops[k]);
            snprintf(c, sizeof c, "%s[500] @x1", types[t]);
            struct move m, n;
            move_open(&m, a, c);
            move_open(&n, b, c);
            for (int r = 0; r < 12; r++) {
                oracle_fill(m.o, 5, ORACLE_EXACT, r, m.in[r]);
                oracle_fill(n.o, 5, ORACLE_EXACT, 11 - r, n.in[11 - r]); /* the same place in the mesh: the same data */
                assert_memory_equal(m.in[r], n.in[11 - r], (size_t)oracle_src_bytes(m.o, r));
            }
            move_run(&m);
            move_run(&n);
            assert_int_equal(oracle_compare(m.o, 0, m.out[0], n.out[0]), -1);
            move_close(&m);
            move_close(&n);
        }
}

static void compare_finds_the_first_difference(void **state)
{
    (void)state;
    struct move m;
    float a[3] = {1, NAN, 3}, b[3] = {1, NAN, 3};
    uint32_t other_nan = 0x7fc12345;
    memcpy(&b[1], &other_nan, 4);
    move_open(&m, "f32[3] @x2 +sum(x)", "f32[3] @x1");
    assert_int_equal(oracle_compare(m.o, 0, a, b), -1);
    b[2] = 4;
    assert_int_equal(oracle_compare(m.o, 0, a, b), 2);
    move_close(&m);
    move_open(&m, "f32[3] @x1=1", "f32[3] @x1"); /* a plain move keeps every bit */
    assert_int_equal(oracle_compare(m.o, 0, a, b), 1);
    int64_t index[WEFT_MAX_DIMS];
    assert_true(oracle_locate(m.o, 0, 2, index));
    assert_int_equal(index[0], 2);
    move_close(&m);
    move_open(&m, "f32[3] @x1=1", "f32[3~1:0] @x1");
    assert_false(oracle_locate(m.o, 0, 0, index));
    move_close(&m);
}

/* The library says the same about every rank's buffer. */
static void buffers_agree_with_the_library(void **state)
{
    (void)state;
    const char *const texts[] = {"f32[7/a/b,5/c] @a2.b3.c2", "u8[13/b:2/a,6] @a2.b2", "f64[9/x~2:1,4~1o] @x4=3,1,0,2",
                                 "i16[] @x3=5,6,8",          "f16[3/x~1o,0] @x5",     "f32[100/a:3/b:2/c] @a2.b2.c3"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct move m;
        move_open(&m, texts[k], texts[k]);
        for (int r = 0; r < m.world; r++) {
            weft_local local;
            weft_box box[64];
            size_t n;
            assert_int_equal(weft_layout_local(m.dst, r, &local), 0);
            assert_int_equal(oracle_dst_bytes(m.o, r), local.bytes);
            assert_int_equal(weft_layout_boxes(m.dst, r, box, 64, &n), 0);
            assert_in_range(n, 0, 64);
            for (size_t b = 0; b < n && local.count; b++) {
                int64_t slot = 0, index[WEFT_MAX_DIMS];
                for (int d = 0; d < local.ndim; d++)
                    slot = slot * local.shape[d] + box[b].local[d];
                assert_true(oracle_locate(m.o, r, slot, index));
                for (int d = 0; d < local.ndim; d++)
                    assert_int_equal(index[d], box[b].at[d]);
            }
        }
        move_close(&m);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_match_results_by_hand),
        cmocka_unit_test(block_cyclic_splits_match_results_by_hand),
        cmocka_unit_test(ghosts_match_results_by_hand),
        cmocka_unit_test(folded_ghosts_match_results_by_hand),
        cmocka_unit_test(folds_go_in_the_order_of_ranks),
        cmocka_unit_test(partial_destinations_get_identities),
        cmocka_unit_test(casts_match_results_by_hand),
        cmocka_unit_test(integer_casts_round_once),
        cmocka_unit_test(narrow_folds_round_once),
        cmocka_unit_test(window_collectives_have_the_closed_form),
        cmocka_unit_test(lower_bound_matches_results_by_hand),
        cmocka_unit_test(fill_gives_equal_replicas_and_different_terms),
        cmocka_unit_test(exact_data_fold_alike_in_every_order),
        cmocka_unit_test(compare_finds_the_first_difference),
        cmocka_unit_test(buffers_agree_with_the_library),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
