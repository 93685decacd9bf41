/* Who holds what of a tensor, as a picture (SVG): a coloured box for each piece, with the numbers of its ranks. */
#ifndef WEFT_FORESEE_HOLDINGS_PICTURE_H
#define WEFT_FORESEE_HOLDINGS_PICTURE_H
#include <stdio.h>

#include "weft.h"

#define HOLDINGS_PICTURE_BOXES 4096 /* most that are drawn */

/* Draws the first two dims of a tensor; a tensor with one dim is one row. Returns 0, or -1 if there are more boxes than
 * can be drawn or no memory, and then draws nothing. */
int holdings_picture_print(FILE *to, const weft_layout *l, const char *about);
#endif
