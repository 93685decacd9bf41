/* The kernels for AArch64 with the bf16 extension (Neoverse V1 and N2 on). */
#include "memory/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#define KERNELS kernels_bf16
#define KERNELS_NAME "bf16"
#define KERNELS_LEVEL KERNELS_BF16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#include "memory/kernels_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("arch=armv8.2-a+bf16")
#include "memory/kernels_body.h"
#endif
#endif
