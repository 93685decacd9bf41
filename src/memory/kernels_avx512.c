/* The kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#include "memory/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define KERNELS kernels_avx512
#define KERNELS_NAME "avx512"
#define KERNELS_LEVEL KERNELS_AVX512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), apply_to = function)
#include "memory/kernels_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")
#include "memory/kernels_body.h"
#endif
#endif
