/* The tensors of well-known models, with the names that their checkpoints have, and the layouts that the rules of the
 * library (rules/) give them on a mesh. */
#ifndef WEFT_FORESEE_MODELS_H
#define WEFT_FORESEE_MODELS_H
#include "foresee/scene.h"

/* From index 0 on; NULL after the last. */
const char *models_name(size_t i);
const char *models_about(size_t i);
/* Adds all tensors of a model: from the ranks of the mesh `from` to further ranks, which are the mesh `to`. An
 * axis that the rules do not name holds copies, but the axis fsdp splits the first dim of every tensor. dtypes: of
 * the matrices of attention, MLPs and experts, "bf16" or "bf16:f8e4m3" for source and destination; embeddings, heads,
 * norms and routers are in bf16. */
int models_add(struct scene *s, const char *model, const char *from, const char *to, const char *dtypes,
               struct failure *why);
#endif
