/* The collectives of tests/cases/windows.txt written on windows alone, as a user would, over and over on the same
 * window without clearing anything: what must come out stands there in closed form. Run k adds k to what each rank puts
 * in, so that nothing of an earlier run passes for right. */
#ifndef WEFT_TESTS_WINDOW_FORMS_H
#define WEFT_TESTS_WINDOW_FORMS_H

#include "window_cases.h"

#define FORMS_MOST 8

struct forms {
    struct ranks_rank *r;
    weft_window *w;
    int p, me, in, out, slots, shown;                /* buffers, from `in` on */
    float *x, *y;                                    /* this rank's in and out */
    const float *ins[FORMS_MOST], *outs[FORMS_MOST]; /* of all ranks: theirs, or what those on other hosts put here */
    int whole;                                       /* elements of in and of out */
    int run;                                         /* from 1 on */
};

/* All of them, *(int *)arg times each. */
void forms_body(struct ranks_rank *r);
#endif
