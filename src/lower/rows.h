/* The table of algorithms for pairs that are known collectives, and the chooser over it. The
 * general lowering ("direct") fits everything; a row fits some kinds, may move more than the
 * bound, and says how much. */
#ifndef WEFT_LOWER_ROWS_H
#define WEFT_LOWER_ROWS_H
#include "lower/recognise.h"

struct row {
    const char *name;
    const char *kinds; /* space-separated kinds of recognise */
    bool in_place;     /* right also when source and destination share their memory */
    /* NULL, or why this pair does not suit the row though its kind does. */
    const char *(*unfit)(const struct job *j, const struct recognised *r);
    int (*lower)(const struct job *j, const struct recognised *r);
    int64_t (*volume)(const struct job *j, const struct recognised *r); /* bytes that this rank receives by it */
};

/* *row is NULL for the general lowering. Refuses a forced algorithm that does not fit. */
int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row);
#endif
