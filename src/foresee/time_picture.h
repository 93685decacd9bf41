/* When ranks send, receive and work, as a picture (SVG): a row for each rank, or for groups of ranks if there are many,
 * with a lane for each of the three. */
#ifndef WEFT_FORESEE_TIME_PICTURE_H
#define WEFT_FORESEE_TIME_PICTURE_H
#include "foresee/events.h"

#define TIME_PICTURE_ROWS 64

/* 0, or -1 if there is no memory: it has drawn nothing then. */
int time_picture_print(FILE *to, const struct graph *g, const struct events *e);
#endif
