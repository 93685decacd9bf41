/* The kernels in scalar C, which the compiler must not vectorise: tests compare the others with them. */
#include "memory/kernels.h"

#define KERNELS kernels_plain
#define KERNELS_NAME "plain"
#define KERNELS_LEVEL KERNELS_PLAIN
#define RAW_SCALAR
#if !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize")
#endif
#include "memory/kernels_body.h"
