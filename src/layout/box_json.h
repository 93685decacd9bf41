/* Boxes as JSON, for programs that make or read lists of them:
 *
 *   {"dtype": "bf16", "shape": [8, 4], "overlaps": false, "gaps": false,
 *    "boxes": [{"rank": 0, "at": [0, 0], "len": [4, 4], "offset": 0, "stride": [4, 1]}, ...]}
 *
 * overlaps, gaps, offset and stride may be left out, with the meaning that they have in the struct form. */
#ifndef WEFT_LAYOUT_BOX_JSON_H
#define WEFT_LAYOUT_BOX_JSON_H
#include <stdbool.h>

#include "weft.h"

bool box_json_is(const char *text); /* does it begin as JSON does? */
int box_json_parse(const char *text, weft_layout **out);
#endif
