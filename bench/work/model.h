/* A table of moves the size of a whole model: DeepSeek-V3's shapes (61 layers, hidden 7168, 256
 * routed experts in all but the first three) from a training job of 128 ranks (pipeline 4, data 2,
 * experts 16, no tensor parallelism) to an inference job of 128 others (data 16, tensor 8). */
#ifndef WEFT_BENCH_WORK_MODEL_H
#define WEFT_BENCH_WORK_MODEL_H
#include <stddef.h>

enum { MODEL_LAYERS = 61, MODEL_RANKS = 256 };

/* Calls put for every tensor of the first `layers` layers, and for those before and after the layers. Stops if put
 * returns non-zero, and returns that. */
int model_moves(int layers, int (*put)(void *arg, const char *name, const char *src, const char *dst), void *arg);
#endif
