/* What the files of verify share. Verify never looks at single elements: it follows boxes.
 *
 *   verify_passes.c the passes in order, and what all plans must have in common
 *   verify_graph.c  messages to their receives, an order of all steps, which step waits for which
 *   verify_place.c  each part against the layouts, each read to the part that it reads of
 *   verify_cover.c  everything written once: exact cover of slots by boxes, overlaps
 *   verify_value.c  the algebra of values: terms, folds, roundings
 *   verify_terms.c  the value that a destination must have
 *   verify_run.c    the steps of all ranks in order, on values; the same bits everywhere
 *   verify_alias.c  in place: reads before writes
 *   verify_text.c   words for errors
 *   verify.c        lookups that all of them share */
#ifndef WEFT_PLAN_VERIFY_VERIFY_H
#define WEFT_PLAN_VERIFY_VERIFY_H
#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "layout/layout.h"
#include "plan/plan.h"

#define verify_refuse(...) error_set(WEFT_EINVAL, "verify: " __VA_ARGS__)

/* What a part holds, the same for each element of its box: a term of the source, a fold of terms, or an op's identity.
 * `set` identifies it without the order of terms, `order` with the order. An open fold can take in more terms. */
enum verify_kind { VERIFY_TERM = 1, VERIFY_OPEN, VERIFY_CLOSED, VERIFY_IDENTITY };
enum verify_form {
    VERIFY_EXACT,   /* as it was read or folded, or in a dtype that holds all its values */
    VERIFY_ROUNDED, /* cast to the dtype of finished values */
    VERIFY_FINAL    /* also cast to the destination's dtype, which cannot be undone */
};
struct verify_value {
    uint64_t set[2];
    uint64_t order;
    int64_t count; /* VERIFY_OPEN: its terms */
    uint8_t kind, op, form, dtype;
};
struct verify_fold {
    struct verify_value first; /* if count is 1, the only value */
    uint64_t set[2], order;
    int64_t count, inputs;
    int op;
};

struct verify_tensor {
    const weft_layout *src, *dst;
    int ndim;
    int acc, fin;                 /* dtypes: of folds, of finished values */
    bool folds, ghosts;           /* some level of the source has several terms; ghosts are terms */
    struct verify_value expected; /* not if ghosts are terms: then it depends on the box */
    /* Folds of floats: a box was delivered, in this order; boxes came in several orders. */
    bool seen, differ;
    uint64_t order;
};

struct verify {
    const weft_plan *const *all;
    size_t ranks;
    struct arena arena;    /* memory that lives as long as this struct */
    struct arena work;     /* working memory of one check: the function that uses it resets it */
    size_t *step0, *part0; /* rank r's steps and parts are numbered from step0[r], part0[r] on */
    size_t *match;         /* SEND: its RECV, RECV: its SEND, by number */
    size_t *next, *prev;   /* the messages of a channel in order, on either side; SIZE_MAX at the ends */
    size_t *order, *at;    /* all steps, each after what it waits for; and the position of each in this order */
    uint32_t *writer;      /* for each part: the step that writes it, or PLAN_NONE */
    /* For each part that is read from DST or TEMP: the written part of this rank that contains it. If several written
     * parts of a DST make it up, one of them, and in `others` the rest, ended by PLAN_NONE; otherwise NULL. */
    uint32_t *origin, **others;
    struct verify_value *value; /* for each written part */
    struct verify_tensor *tensors;
};

/* A step or part by its number. */
static inline const struct plan_step *verify_step(const struct verify *v, size_t r, size_t s)
{
    return &v->all[r]->steps[s];
}
size_t verify_rank_of(const struct verify *v, size_t step);
static inline const struct plan_buf *verify_buf(const weft_plan *p, const struct plan_part *part)
{
    return &p->bufs[part->buf];
}
/* Is part k of a step written? Otherwise it is read. */
static inline bool verify_writes(const struct plan_step *s, uint32_t k)
{
    return s->kind == PLAN_RECV || (s->kind == PLAN_COPY && k == 1) || (s->kind == PLAN_REDUCE && k == 0);
}
/* A part's dim as one run: positions to places. */
struct run verify_run_of(const weft_plan *p, const struct plan_part *part, int dim);
/* n objects of a size from the arena, zeroed; NULL with the error set. */
void *verify_alloc(struct arena *a, size_t n, size_t size);

/* ---- graph ---- */
int verify_graph_match(struct verify *v); /* fills match, next, prev */
int verify_graph_sort(struct verify *v);  /* fills order, at */

/* ---- places ---- */
/* Fills writer, origin and others for one rank. */
int verify_place(struct verify *v, size_t r);
/* Is every position of r in one of the n runs of list, at the same place? Returns 1, 0 or an error. */
int verify_place_within(const struct run *r, const struct run *list, size_t n, struct arena *work);

/* ---- cover ---- */
/* Boxes of places, ndim runs each: only to, tostep, n and len count. */
struct verify_boxes {
    int ndim;
    size_t n;
    const struct run *run;
};
/* Is each cell of the product of the maps' places in exactly one box? Returns 1, 0 or an error. For 0, `cell` is one
 * that is in no box or in several. Boxes lie inside the maps. With `inner`, which has a part of each map, only cells
 * count that are outside of it in at most one dim; no box has others. */
int verify_cover(const struct verify_boxes *b, const struct runs *maps, const struct runs *inner, int64_t *cell);
/* Calls hit for pairs of boxes that share a cell, until it returns non-zero, and returns that value. */
int verify_cover_overlaps(const struct verify_boxes *b, struct arena *work, int (*hit)(void *arg, size_t i, size_t j),
                          void *arg);
bool verify_cover_holds(const struct run *box, int ndim, const int64_t *cell);
/* Number of elements of a run below x. */
int64_t verify_cover_below(const struct run *r, int64_t x);

/* ---- values ---- */
struct verify_value verify_value_term(const uint64_t id[2], int dtype);
struct verify_value verify_value_identity(int op, int dtype);
void verify_value_fold_start(struct verify_fold *f, int op);
void verify_value_fold_add(struct verify_fold *f, const struct verify_value *x);
/* With at least one input; div <= 1: no division. */
struct verify_value verify_value_fold_end(const struct verify_fold *f, int64_t div, int acc);
/* False if the cast would round the value where it must not be rounded. */
bool verify_value_cast(struct verify_value *x, const struct verify_tensor *t, int dtype);
/* Is x the value to be delivered, given what is expected? */
bool verify_value_delivered(const struct verify_value *x, const struct verify_tensor *t,
                            const struct verify_value *expected);
bool verify_value_same_terms(const struct verify_value *a, const struct verify_value *b);

/* ---- terms ---- */
int verify_terms_tensor(struct verify *v, struct verify_tensor *t, const struct plan_tensor *from);
/* The term that a part of a source buffer holds. */
int verify_terms_leaf(struct verify *v, size_t r, const struct plan_part *part, struct verify_value *out);
/* The value that the elements of a box have in the source. Returns 0, 1 if not all have the same value, or an error. */
int verify_terms_expected(struct verify *v, const struct verify_tensor *t, const struct plan_run *box,
                          struct verify_value *out);
/* The op whose identity a destination part must hold, 0 if it must hold the value, -1 if some elements must hold the
 * one and some the other. */
int verify_terms_dst_op(const struct verify *v, size_t r, const struct plan_part *part);
/* The text for what is wrong with terms (as values, sorted by set[0]) in a box: "the term of x=2 is missing". */
int verify_terms_compare(struct verify *v, const struct verify_tensor *t, const struct plan_run *box,
                         const struct verify_value *have, size_t n, struct text *out);

/* ---- run ---- */
int verify_run(struct verify *v);

/* ---- alias ---- */
/* In place, each read of a source comes before the write of the same element to the destination. */
int verify_alias(struct verify *v);

/* ---- text ---- */
#define VERIFY_TEXT 400
/* "rank 3 step 7 (reduce 'w'[0:4])" */
const char *verify_text_step(const struct verify *v, size_t r, size_t s, char buf[VERIFY_TEXT]);
/* "'w'[0:4,2:8]" */
const char *verify_text_part(const weft_plan *p, const struct plan_part *part, char buf[VERIFY_TEXT]);
/* "'w'[3,7]" for a cell of a buffer, which a map of slots turns to positions. */
const char *verify_text_cell(const weft_plan *p, uint32_t tensor, const struct runs *maps, const int64_t *cell,
                             char buf[VERIFY_TEXT]);
#endif
