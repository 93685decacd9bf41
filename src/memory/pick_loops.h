/* The loop of pick.h, included by kernels_body.h. One instruction looks up 16 bytes in up to four vectors. It also
 * reads bytes that other ranks may write meanwhile, and does not use them. */
#if PICK_HERE && KERNELS_LEVEL >= KERNELS_BASE
typedef uint8_t pick_bytes __attribute__((vector_size(PICK_VECTOR)));

RAW_INLINE pick_bytes pick_load(const unsigned char *p)
{
    pick_bytes x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Looks up 16 bytes in `ways` vectors. */
RAW_INLINE pick_bytes pick_four(const pick_bytes *x, pick_bytes t, const int ways)
{
    switch (ways) {
    case 1: return vqtbl1q_u8(x[0], t);
    case 2: return vqtbl2q_u8((uint8x16x2_t){{x[0], x[1]}}, t);
    case 3: return vqtbl3q_u8((uint8x16x3_t){{x[0], x[1], x[2]}}, t);
    default: return vqtbl4q_u8((uint8x16x4_t){{x[0], x[1], x[2], x[3]}}, t);
    }
}

/* An index beyond the vectors gives 0. */
RAW_INLINE pick_bytes pick_look(const pick_bytes *x, pick_bytes t, const int ways)
{
    pick_bytes y = pick_four(x, t, ways);
    return ways > 4 ? y | pick_four(x + 4, t - 64, ways - 4) : y;
}

/* One vector of the period that is `at` periods behind the first. */
RAW_INLINE void pick_one(unsigned char *dst, const struct pick_vector *v, int64_t at, const int ways, const bool apart)
{
    const unsigned char *from = v->src[0] + at * v->step[0];
    pick_bytes x[PICK_WAYS];
    RAW_UNROLL for (int k = 0; k < ways; k++) x[k] =
        pick_load(apart ? v->src[k] + at * v->step[k] : from + k * PICK_VECTOR);
    x[0] = pick_look(x, pick_load(v->table), ways);
    memcpy(dst, x, PICK_VECTOR);
}

/* A period of one vector stays in registers. */
RAW_INLINE void pick_ways(unsigned char *dst, int64_t dstep, const struct pick_vector *v, int n, const int ways,
                          const bool apart, int64_t periods)
{
    if (n == 1) {
        const struct pick_vector only = *v;
        for (int64_t i = 0; i < periods; i++)
            pick_one(dst + i * dstep, &only, i, ways, apart);
        return;
    }
    for (int64_t i = 0; i < periods; i++, dst += dstep)
        for (int k = 0; k < n; k++)
            pick_one(dst + v[k].to, &v[k], i, ways, apart);
}

#define PICK_CASE(n)                                              \
    case n:                                                       \
        if (apart)                                                \
            pick_ways(dst, dstep, v, vectors, n, true, periods);  \
        else                                                      \
            pick_ways(dst, dstep, v, vectors, n, false, periods); \
        break;
static __attribute__((no_sanitize_thread)) void pick_vectors(unsigned char *dst, int64_t dstep,
                                                             const struct pick_vector *v, int vectors, int ways,
                                                             bool apart, int64_t periods)
{
    switch (ways) {
        PICK_CASE(1)
        PICK_CASE(2)
        PICK_CASE(3)
        PICK_CASE(4)
        PICK_CASE(5)
        PICK_CASE(6)
        PICK_CASE(7)
        PICK_CASE(8)
    default: break;
    }
}
#undef PICK_CASE
#else
#define pick_vectors NULL
#endif
