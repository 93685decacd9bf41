/* Several tensors in one exec, made of a list of pairs, filled and checked, for tests of the engine. */
#ifndef WEFT_TESTS_ENGINE_MODEL_H
#define WEFT_TESTS_ENGINE_MODEL_H
#include <stdbool.h>
#include <stdint.h>

#include "support/tensors.h"

#define MOST 24

struct pair {
    const char *src, *dst;
    unsigned ours; /* ranks (bits) whose source, from bit 16 on whose destination is in memory of the comm's */
};

struct model {
    int n;
    weft_layout *src[MOST], *dst[MOST];
    weft_view in[MOST], out[MOST];
    bool ours[2 * MOST];
    weft_plan *plan;
    weft_exec *exec;
    struct ranks_rank *r;
};
void model_unview(struct model *m, bool ours, weft_view *v);
int model_views(struct model *m, int i, const struct pair *pair);
int model_make(struct model *m, struct ranks_rank *r, const struct pair *pairs, int n, const weft_lower_opts *opts);
void model_fill(struct model *m, int seed);
int64_t model_wrong(struct model *m, int seed);
void model_free(struct model *m);
#endif
