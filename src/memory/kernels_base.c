/* The kernels for every processor of the architecture. */
#include "memory/kernels.h"

#define KERNELS kernels_base
#if defined(__aarch64__)
#define KERNELS_NAME "neon"
#elif defined(__x86_64__)
#define KERNELS_NAME "sse2"
#else
#define KERNELS_NAME "base"
#endif
#define KERNELS_LEVEL KERNELS_BASE
#include "memory/kernels_body.h"
