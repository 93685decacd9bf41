/* The tensors of well-known models, with the names that their checkpoints have, and the layouts that the rules of the
 * library (rules/) give them on a mesh. */
#ifndef WEFT_FORESEE_MODELS_H
#define WEFT_FORESEE_MODELS_H
#include "foresee/scene.h"

/* From index 0 on; NULL after the last. */
const char *models_name(size_t i);
const char *models_about(size_t i);
/* Adds all tensors of a model, in bf16: from the ranks of the mesh `from` to further ranks, which are the mesh `to`. An
 * axis that the rules do not name holds copies, but the axis fsdp splits the first dim of every tensor. */
int models_add(struct scene *s, const char *model, const char *from, const char *to, struct failure *why);
#endif
