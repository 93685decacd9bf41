/* Memory for plans in tests: the buffers of all ranks, with terms in the sources that are small
 * whole numbers, so that folds are exact in any order, and noise everywhere else. */
#ifndef WEFT_TESTS_INTERP_DATA_H
#define WEFT_TESTS_INTERP_DATA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

struct interp_view {
    unsigned char *data;                                 /* NULL: there is no such buffer */
    int64_t stride[WEFT_MAX_DIMS], shape[WEFT_MAX_DIMS]; /* strides in bytes */
};

struct interp_world {
    size_t ranks, ntensors;
    struct interp_view *src, *dst; /* [rank * ntensors + tensor] */
    unsigned char **memory;        /* what was allocated */
    size_t *bytes, nmemory;
};
void *interp_alloc(size_t n);
void interp_fill(unsigned char *p, size_t n, uint64_t seed);

/* Fresh buffers with the source's terms; everything else is noise. */
struct interp_world *interp_open(const weft_plan *const *all, size_t ranks, bool in_place, uint64_t seed);
void interp_close(struct interp_world *w);

/* The bytes of all destinations, one after the other. */
unsigned char *interp_result(const struct interp_world *w, const weft_plan *const *all, size_t *bytes);
#endif
