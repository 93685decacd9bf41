/* Random models for tests of checkpoints: tensors, rules that split them, and, straight from the definitions and
 * element by element, the arrays that each rank of a mesh has. What writes files here is a few lines of its own. */
#ifndef WEFT_TESTS_CHECKPOINT_MODEL_H
#define WEFT_TESTS_CHECKPOINT_MODEL_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "support/random.h"

enum { MODEL_AXES = 3, MODEL_KINDS = 5, MODEL_DIMS = 3, MODEL_PARTS = 3, MODEL_ENTRIES = 64 };

struct model_split {
    int axis;
    int64_t block, most;
};

struct model_part {
    const char *name;
    int64_t share;
    int nsplits[MODEL_DIMS];
    struct model_split split[MODEL_DIMS][2];
};

/* Tensors of one kind: one, one a layer, or one a layer and expert. */
struct model_kind {
    int dtype, ndim, nparts, cat;
    int64_t shape[MODEL_DIMS]; /* along cat: for a share of 1 */
    bool layers, experts;
    int pin; /* along pp, where there are no layers: -1 none, 0 first, 1 last */
    struct model_part part[MODEL_PARTS];
};

struct model {
    int nkinds, layers, experts;
    struct model_kind kind[MODEL_KINDS];
};

struct model_mesh {
    int order[MODEL_AXES];
    int64_t size[MODEL_AXES]; /* by axis */
    int ranks;
    char text[64];
};
void model_random(struct random *r, struct model *m);
void model_random_mesh(struct random *r, struct model_mesh *m);
void model_write_rules(const struct model *m, FILE *to);

/* Of which kind, layer and expert an entry is; its name. -1: there are no more. */
struct model_entry {
    int kind, layer, expert;
    char name[64];
};
int model_entries(const struct model *m, bool fused, int part, struct model_entry *out);
bool model_holds(const struct model *m, const struct model_mesh *mesh, const struct model_entry *e, int rank);

/* A rank's array of an entry: the parts [first, last) one behind the other. malloc'd; shape is filled. */
unsigned char *model_array(const struct model *m, const struct model_mesh *mesh, const struct model_entry *e, int rank,
                           int first, int last, int dtype, int64_t *shape);
#endif
