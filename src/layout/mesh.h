/* What code that makes layouts needs of the mesh; mesh_index and mesh_rank are in layout.h. */
#ifndef WEFT_LAYOUT_MESH_H
#define WEFT_LAYOUT_MESH_H
#include "layout/caret.h"
#include "layout/layout.h"

/* Stores the n segments, which list every mesh position once, in order. w may be NULL. */
int mesh_set_ranks(weft_layout *l, const struct layout_seg *segs, size_t n, const struct caret *w);
/* The length of the axis name at the start of s, or 0: a letter, then letters, "_" and digits that follow a "_". */
size_t mesh_axis_name_length(const char *s);
#endif
