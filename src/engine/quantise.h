/* Values that the caller has without scales on one side of a move (plan_scales in plan.h). The exec's plan moves values
 * of f8 and their scales, which are in memory of the exec on that side. Before the first step this rank makes them of
 * the caller's source; behind the last one it makes the caller's destination of them. If ranks share blocks, another
 * exec brings the maxima of the other ranks before that. */
#ifndef WEFT_ENGINE_QUANTISE_H
#define WEFT_ENGINE_QUANTISE_H
#include "engine/exec.h"

/* What an exec with scales is bound to. */
struct quantise_bound {
    weft_view *src, *dst;      /* the caller's, with those of the exec's own memory in their places */
    struct exec_place *given;  /* for each buffer of the plan: where the caller has it, */
    struct exec_place *inside; /* and where the steps have it */
};

struct quantise {
    struct quantise_own *own;       /* memory of the exec for each entry of the plan's scales */
    char *memory;                   /* all of that */
    weft_view *fold_src, *fold_dst; /* what `fold` is bound to; NULL: no ranks share blocks */
    weft_exec *fold;                /* NULL: no ranks share blocks */
    bool folding;                   /* it is in flight, and the steps have not begun */
    struct quantise_bound at;
};

/* At bind, on this rank alone: takes memory and sets x->quantise. */
int quantise_make(weft_exec *x, const weft_view *src, const weft_view *dst);
/* Frees it; its memory as well if `memory` is set. NULL is fine. */
void quantise_free(weft_exec *x, bool memory);
/* The views to bind to, if the caller's are these. Frees nothing: quantise_unlook does. */
int quantise_look(const weft_exec *x, const weft_view *src, const weft_view *dst, struct quantise_bound *out);
void quantise_unlook(struct quantise_bound *b);

/* In a run. */
void quantise_measure(weft_exec *x); /* the maxima of this rank's own values */
void quantise_down(weft_exec *x);    /* with what `fold` brought: scales and values */
void quantise_up(weft_exec *x);
#endif
