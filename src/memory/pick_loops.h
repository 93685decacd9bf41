/* The loop of pick.h, included by kernels_body.h. It also reads bytes that other ranks may write meanwhile, and does
 * not use them. */
#if defined(__aarch64__) && KERNELS_LEVEL >= KERNELS_BASE
/* One instruction looks up 16 bytes in up to four vectors. */
#define PICK_INLINE RAW_INLINE
#define PICK_TARGET
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
#elif defined(__x86_64__) && KERNELS_LEVEL == KERNELS_AVX512
/* One instruction looks up some of 64 bytes in a vector, and leaves the others as they are. */
#define PICK_TARGET __attribute__((target("avx512bw,avx512vl,avx512vbmi")))
#define PICK_INLINE RAW_INLINE PICK_TARGET

PICK_INLINE void pick_one(unsigned char *dst, const struct pick_vector *v, int64_t at, const int ways, const bool apart)
{
    const unsigned char *from = v->src[0] + at * v->step[0];
    const __m512i table = _mm512_loadu_si512(v->table), way = _mm512_loadu_si512(v->way);
    __m512i y = _mm512_permutexvar_epi8(table, _mm512_loadu_si512(from));
    RAW_UNROLL for (int k = 1; k < ways; k++)
    {
        const unsigned char *p = apart ? v->src[k] + at * v->step[k] : from + k * PICK_VECTOR;
        const __mmask64 mine = _mm512_cmpeq_epi8_mask(way, _mm512_set1_epi8((char)k));
        y = _mm512_mask_permutexvar_epi8(y, mine, table, _mm512_loadu_si512(p));
    }
    _mm512_mask_storeu_epi8(dst, ~UINT64_C(0) >> (PICK_VECTOR - v->bytes), y);
}
#endif

#ifdef PICK_TARGET

/* A period of one vector stays in registers. */
PICK_INLINE void pick_ways(unsigned char *dst, int64_t dstep, const struct pick_vector *v, int n, const int ways,
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
PICK_TARGET static __attribute__((no_sanitize_thread)) void pick_vectors(unsigned char *dst, int64_t dstep,
                                                                         const struct pick_vector *v, int vectors,
                                                                         int ways, bool apart, int64_t periods)
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
