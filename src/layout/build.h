/* How a layout is made: the parser and weft_layout_create fill a description, layout_build checks
 * it and makes the object. The parser says where in the text each thing stood, so that whatever
 * the check finds is shown with a caret under it. */
#ifndef WEFT_LAYOUT_BUILD_H
#define WEFT_LAYOUT_BUILD_H
#include "layout/layout.h"

struct build_where {
    const char *text;
    int dtype, ranks;
    int dim[WEFT_MAX_DIMS], ghost[WEFT_MAX_DIMS], split[WEFT_MAX_DIMS][WEFT_MAX_AXES];
    int axis[WEFT_MAX_AXES];
    int fold[WEFT_MAX_AXES + 1], over[WEFT_MAX_AXES + 1][WEFT_MAX_AXES + 1];
};

/* Sets the error: the words alone, or with the text and a caret at `at` below. Returns WEFT_EINVAL. */
int build_fail(const struct build_where *w, int at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int build_rank_again(const struct build_where *w, int rank); /* where in the text a rank is listed a second time */
/* w may be NULL. desc->ranks is not looked at: segs say which ranks, in order of mesh position. */
int layout_build(const weft_layout_desc *desc, const struct layout_seg *segs, size_t nsegs, const struct build_where *w,
                 weft_layout **out);
int mesh_set_ranks(weft_layout *l, const struct layout_seg *segs, size_t n, const struct build_where *w);
/* The length of the axis name at the start of s, or 0: a letter, then letters, "_" and digits that follow a "_". */
size_t axis_name_length(const char *s);
#endif
