/* Moves of layouts with scales, as moves without: the values and the scales are two tensors, and both have the same
 * dtypes on both sides. What is done to them before and behind (plan_scales) is noted. */
#ifndef WEFT_LOWER_EXPAND_H
#define WEFT_LOWER_EXPAND_H
#include "base/found.h"
#include "base/vec.h"
#include "plan/plan.h"

/* The layouts that are made for one side of a move: many tensors of a model have the same ones. */
struct expand_side {
    const weft_layout *given, *as;      /* the side, and the other one */
    bool src;                           /* it is the source */
    const weft_layout *values, *scales; /* with scales */
    const weft_layout *have, *want;     /* NULL: no maxima are folded */
};

struct expand {
    VEC(weft_move) moves;       /* of values and scales, and those of other tensors as they were */
    VEC(weft_move) folds;       /* of the maxima of blocks that ranks share */
    struct plan_scales *scales; /* NULL: no side was given without scales */
    VEC(struct expand_side) sides;
    struct found table; /* of sides */
    VEC(weft_layout *) made;
    VEC(char *) names;
};

/* Does one of the moves have scales? */
bool expand_needed(const weft_move *moves, size_t n);
/* The caller frees *out by expand_free, also after an error. It may take out->scales. */
int expand_moves(const weft_move *moves, size_t n, struct expand *out);
void expand_free(struct expand *e);
#endif
