/* Elements as they lie in memory: at any alignment, under any type. RAW_LOOP promises the compiler that turn i touches
 * only element i, so that a loop is vectorised even if the written and the read run are the same run. */
#ifndef WEFT_MEMORY_RAW_H
#define WEFT_MEMORY_RAW_H
#include <stdint.h>

#define RAW_INLINE static inline __attribute__((always_inline)) /* part of a loop that must stay in registers */
#define RAW_ANYWHERE __attribute__((may_alias, aligned(1)))

typedef uint8_t RAW_ANYWHERE raw_b8;
typedef uint8_t RAW_ANYWHERE raw_u8;
typedef int8_t RAW_ANYWHERE raw_i8;
typedef uint16_t RAW_ANYWHERE raw_u16;
typedef int16_t RAW_ANYWHERE raw_i16;
typedef uint32_t RAW_ANYWHERE raw_u32;
typedef int32_t RAW_ANYWHERE raw_i32;
typedef uint64_t RAW_ANYWHERE raw_u64;
typedef int64_t RAW_ANYWHERE raw_i64;
typedef uint16_t RAW_ANYWHERE raw_f16;
typedef uint16_t RAW_ANYWHERE raw_bf16;
typedef float RAW_ANYWHERE raw_f32;
typedef double RAW_ANYWHERE raw_f64;
typedef uint8_t RAW_ANYWHERE raw_f8e4m3;
typedef uint8_t RAW_ANYWHERE raw_f8e5m2;
typedef uint8_t RAW_ANYWHERE raw_f8e4m3sat;
typedef uint8_t RAW_ANYWHERE raw_f8e5m2sat;
typedef uint8_t RAW_ANYWHERE raw_f8e8m0;
typedef struct {
    raw_f32 re, im;
} RAW_ANYWHERE raw_c64;
typedef struct {
    raw_f64 re, im;
} RAW_ANYWHERE raw_c128;

#if defined(RAW_SCALAR) && defined(__clang__)
#define RAW_LOOP _Pragma("clang loop vectorize(disable) interleave(disable)")
#elif defined(RAW_SCALAR)
#define RAW_LOOP
#elif defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* the pragma allows vectors but does not require them */
#define RAW_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define RAW_LOOP _Pragma("GCC ivdep")
#else
#define RAW_LOOP
#endif

/* Before a loop with a small constant number of turns: unrolls it. If one load instruction walks through memory, the
 * hardware takes this for the beginning of a long run and prefetches far ahead. Short runs are read faster without
 * that. */
#if defined(__clang__)
#define RAW_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define RAW_UNROLL _Pragma("GCC unroll 32")
#else
#define RAW_UNROLL
#endif
#endif
