/* How a layout is made: the parser and weft_layout_create fill a description, layout_build checks it and makes the
 * object. The parser also says where in the text each thing was (caret.h), so that an error of the check can show
 * it. */
#ifndef WEFT_LAYOUT_BUILD_H
#define WEFT_LAYOUT_BUILD_H
#include "layout/caret.h"
#include "layout/layout.h"

/* w may be NULL. desc->ranks is ignored: segs say which ranks, in order of mesh position. */
int layout_build(const weft_layout_desc *desc, const struct layout_seg *segs, size_t nsegs, const struct caret *w,
                 weft_layout **out);
#endif
