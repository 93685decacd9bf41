/* The kernels for x86-64 with AVX2 and F16C. */
#include "memory/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define KERNELS kernels_avx2
#define KERNELS_NAME "avx2"
#define KERNELS_LEVEL KERNELS_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#include "memory/kernels_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,f16c")
#include "memory/kernels_body.h"
#endif
#endif
