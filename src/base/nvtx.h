/* Ranges for a profiler that listens to NVTX, for example Nsight Systems: it names its library in
 * NVTX_INJECTION64_PATH, and the process loads that library and offers it a table of functions to fill in. Only these
 * few lines of the interface are needed, so weft is built without NVIDIA's headers. Without the variable nothing is
 * loaded.
 *
 * A range that is pushed ends with the pop of the same thread. A range that is started may end on another thread. */
#ifndef WEFT_BASE_NVTX_H
#define WEFT_BASE_NVTX_H
#include <stdbool.h>
#include <stdint.h>

/* Is a profiler attached? The first call loads its library. From any thread. */
bool nvtx_open(void);

/* Only if a profiler is attached. What it does not listen to does nothing. From any thread. */
void nvtx_push(const char *text);
void nvtx_pop(void);
uint64_t nvtx_start(const char *text); /* a number for nvtx_end */
void nvtx_end(uint64_t range);
#endif
