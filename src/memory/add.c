/* Atomic adds element by element: the machine's own for integers, compare and swap for floats. */
#include "memory/add.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "memory/memory.h"

typedef uint8_t __attribute__((may_alias)) cell_8;
typedef uint16_t __attribute__((may_alias)) cell_16;
typedef uint32_t __attribute__((may_alias)) cell_32;
typedef uint64_t __attribute__((may_alias)) cell_64;

#define ADD_INTEGER(BITS)                                         \
    static void add_u##BITS(void *dst, const char *src, size_t n) \
    {                                                             \
        cell_##BITS *d = dst;                                     \
        for (size_t i = 0; i < n; i++) {                          \
            uint##BITS##_t x;                                     \
            memcpy(&x, src + i * sizeof x, sizeof x);             \
            (void)__atomic_fetch_add(&d[i], x, __ATOMIC_RELAXED); \
        }                                                         \
    }
ADD_INTEGER(8)
ADD_INTEGER(16)
ADD_INTEGER(32)
ADD_INTEGER(64)

#define ADD_FLOAT(NAME, T, BITS, NOT_A_NUMBER)                                                               \
    static void NAME(void *dst, const char *src, size_t n)                                                   \
    {                                                                                                        \
        cell_##BITS *d = dst;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                                     \
            T x, sum;                                                                                        \
            memcpy(&x, src + i * sizeof x, sizeof x);                                                        \
            uint##BITS##_t old = __atomic_load_n(&d[i], __ATOMIC_RELAXED), new;                              \
            do {                                                                                             \
                memcpy(&sum, &old, sizeof sum);                                                              \
                sum += x;                                                                                    \
                if (sum != sum)                                                                              \
                    sum = NOT_A_NUMBER;                                                                      \
                memcpy(&new, &sum, sizeof new);                                                              \
            } while (!__atomic_compare_exchange_n(&d[i], &old, new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
        }                                                                                                    \
    }
ADD_FLOAT(add_f32, float, 32, NAN)
ADD_FLOAT(add_f64, double, 64, (double)NAN)

#define ADD_NARROW(NAME, BITS)                                                                               \
    static void NAME(void *dst, const char *src, int dtype, size_t n)                                        \
    {                                                                                                        \
        cell_##BITS *d = dst;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                                     \
            float x, sum;                                                                                    \
            memory_cast_one(&x, WEFT_F32, src + i * sizeof *d, dtype);                                       \
            uint##BITS##_t old = __atomic_load_n(&d[i], __ATOMIC_RELAXED), new;                              \
            do {                                                                                             \
                memory_cast_one(&sum, WEFT_F32, &old, dtype);                                                \
                memory_ops_fold_one(&sum, &x, WEFT_F32, WEFT_SUM);                                           \
                memory_cast_one(&new, dtype, &sum, WEFT_F32);                                                \
            } while (!__atomic_compare_exchange_n(&d[i], &old, new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
        }                                                                                                    \
    }
ADD_NARROW(add_narrow_8, 8)
ADD_NARROW(add_narrow_16, 16)

void memory_add(void *dst, const void *src, int dtype, size_t n)
{
    switch (dtype) {
    case WEFT_U8:
    case WEFT_I8: add_u8(dst, src, n); break;
    case WEFT_U16:
    case WEFT_I16: add_u16(dst, src, n); break;
    case WEFT_U32:
    case WEFT_I32: add_u32(dst, src, n); break;
    case WEFT_U64:
    case WEFT_I64: add_u64(dst, src, n); break;
    case WEFT_F32: add_f32(dst, src, n); break;
    case WEFT_F64: add_f64(dst, src, n); break;
    case WEFT_C64: add_f32(dst, src, 2 * n); break;
    case WEFT_C128: add_f64(dst, src, 2 * n); break;
    case WEFT_F16:
    case WEFT_BF16: add_narrow_16(dst, src, dtype, n); break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
    case WEFT_F8E4M3SAT:
    case WEFT_F8E5M2SAT: add_narrow_8(dst, src, dtype, n); break;
    default: break;
    }
}
