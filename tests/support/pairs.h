/* Pairs of layouts that between them use every part of the notation, small enough to lower on all ranks many times. */
#ifndef WEFT_TESTS_PAIRS_H
#define WEFT_TESTS_PAIRS_H
static const struct {
    const char *src, *dst;
} pairs[] = {
    {"f32[24] @x4 +sum(x)", "f32[24] @x4"},
    {"bf16[23] @x4 +avg(x)", "bf16[23] @x4"},
    {"f16[24] @x4 +sum(x)", "f32[24/x] @x4"},
    {"f32[25/x] @x4", "f32[25] @x4"},
    {"i32[4/x,4,3] @x4", "i32[4,4/x,3] @x4"},
    {"u8[10] @x1=3", "u8[10] @x8"},
    {"u16[10] @x1=3", "u16[10/x] @x8"},
    {"u32[10/x] @x8", "u32[10] @x1=5"},
    {"u64[10] @x8 +max(x)", "u64[10] @x1=5"},
    {"f64[9] @x1", "f64[9] @x1=5"},
    {"f32[9/x] @x4", "f32[9/x] @x4=1,2,3,0"},
    {"f32[30/x] @x5", "f32[30/x~1] @x5"},
    {"f32[10/y,20/x] @y2.x4", "f32[10/y~2o,20/x~1:2] @y2.x4"},
    {"f32[6/x] @x2", "f32[6/x~8o] @x2"},
    {"f32[12/x~1] @x4 +sum(~)", "f32[12/x] @x4"},
    {"f32[12/x~2o] @x4 +sum(~)", "bf16[12/x] @x4"},
    {"f32[16/dp/tp,14] @dp2.tp4", "bf16[16,14/tp] @tp8=8..15"},
    {"f64[50/p:4,30/q:4] @p2.q2", "f64[50/p:3,30/q:5] @p1.q4"},
    {"i16[100/x:3/y:2] @x2.y3", "i16[100/y/x:7] @x3.y2"},
    {"f32[] @x3 +sum(x)", "f64[] @x3"},
    {"i64[] @x1=2", "i8[] @x4"},
    {"f32[0,5/x] @x3", "f32[0,5] @x3"},
    {"f32[3/x] @x5", "f32[3] @x5"},
    {"f32[12/x] @x3.y2 +max(y)", "f32[12/y] @x3.y2"},
    {"i32[12] @x2.y3 +sum(x)+bxor(y)", "i32[12/x] @x2.y3"},
    {"f32[8] @x4", "f32[8] @x4 +sum(x)"},
    {"bool[8/x] @x4", "bool[8] @x2.y2 +bor(y)"},
    {"f8e4m3[16] @x4 +sum(x)", "f8e5m2[16/x] @x4"},
    {"f32[7] @x3", "f32[7] @x3"},
    {"f32[7] @x3", "f32[7/x] @x3"},
    {"f32[4/a,4/b,4/c,4/d] @a2.b2.c2.d2", "f32[4/d,4/c,4/b,4/a] @a2.b2.c2.d2"},
    {"i8[2,3,2,3,2,3,2,3/x] @x2", "f32[2/x,3,2,3,2,3,2,3] @x2"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };
#endif
