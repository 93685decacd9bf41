/* Errors of layouts that show the text: where in it each thing was, and a message with a caret under that place. */
#ifndef WEFT_LAYOUT_CARET_H
#define WEFT_LAYOUT_CARET_H
#include "weft.h"

struct caret {
    const char *text;
    int dtype, ranks, boxes, scale;
    const int *box; /* of each box of the list; NULL: not known */
    int dim[WEFT_MAX_DIMS], ghost[WEFT_MAX_DIMS], split[WEFT_MAX_DIMS][WEFT_MAX_AXES];
    int axis[WEFT_MAX_AXES];
    int fold[WEFT_MAX_AXES + 1], over[WEFT_MAX_AXES + 1][WEFT_MAX_AXES + 1];
    /* Finds where in the text a rank is listed for the second time. The parser provides it, and reads the list
     * again. */
    int (*rank_again)(const struct caret *w, int rank);
};

/* Sets the error: the words alone if w is NULL or `at` is negative, otherwise with the text and a caret below `at`.
 * Returns WEFT_EINVAL. */
int caret_fail(const struct caret *w, int at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
