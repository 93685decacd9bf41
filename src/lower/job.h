/* One move that is being lowered for one rank: the two layouts, where this rank stands in them, and what all passes ask
 * of them. */
#ifndef WEFT_LOWER_JOB_H
#define WEFT_LOWER_JOB_H
#include "layout/layout.h"
#include "lower/axes.h"
#include "lower/draft.h"
#include "lower/machine.h"

/* How the ranks of the two meshes relate: it decides how replicas that lack an element are counted. */
enum job_meet {
    JOB_APART, /* no rank is in both */
    JOB_SAME,  /* the same ranks in the same order, the same sizes of axes: counted digit by digit */
    JOB_WALK   /* anything else, or several hosts: the replicas of a piece are walked */
};

struct job {
    struct draft *d;
    struct arena *arena;
    const weft_layout *src, *dst;
    const weft_machine *machine;
    int64_t si, di; /* this rank's mesh positions, or -1 */
    int ndim;
    int wire;  /* dtype of finished values on the wire: the narrower side's */
    bool fold; /* some element has more than one term */
    enum job_meet meet;
    struct walk *walk; /* JOB_WALK: replicas that were walked last, see feed.c */
    int64_t most;      /* elements that one part of a message may have */
    int cut;           /* the dim along which replicas share the work, -1 for none (0-d) */
    /* Sets of axes, bit a for axis a. */
    uint32_t s_split, s_free, s_fold, d_split, d_free, d_fold;
    int64_t s_replicas, s_terms, d_replicas; /* products of the sizes of s_free, s_fold, d_free */
};

int job_open(struct job *j, struct draft *d, const weft_move *m, const weft_machine *machine);
/* The op of the one fold that has more than one term, avg included; 0: there is no such fold, or several. */
int job_fold_op(const struct job *j);

/* ---- intersect.c: along one dim ---- */

/* Positions of ghosts that stand in the buffer once more: `to` is filled from `from`. */
struct dup {
    int64_t at, len, to, from;
};
struct slots {
    struct runs first; /* every position once: to places of the buffer */
    struct dup *dup;   /* further places of the same positions */
    size_t ndup, cap;
};
/* The slots of a destination's piece that take values. */
int intersect_slots(const struct job *j, int dim, int64_t piece, struct slots *out);
/* The source's piece: interior, and the ghosts if they are terms; ghost[i] says which runs are ghosts (NULL: none). */
int intersect_terms(const struct job *j, int dim, int64_t piece, struct runs *out, bool **ghost);

/* A piece of the other side that meets this rank's, and how: a is the source's place, b the destination's. */
struct hit {
    int64_t piece;
    struct pair_runs j;
    int64_t count;
};
struct hits {
    struct hit *v;
    size_t n, cap;
};
/* As a destination: the source's pieces. As a source: the destination's. Interior terms only. */
int intersect_dst(const struct job *j, int dim, const struct slots *mine, struct hits *out);
int intersect_src(const struct job *j, int dim, const struct runs *mine, struct hits *out);

/* ---- emit.c: what is put down for a box ---- */

/* One dim of a box in both buffers. */
struct span {
    int64_t at, len, n, step, a, astep, b, bstep;
};
void emit_span_of(const struct pair_run *r, struct span *out);
/* The run that starts at position p of a span, numbered i before o, and ends before hi: whole repetitions, or a part of
 * one. */
struct span emit_span_from(const struct span *s, int64_t p, int64_t hi);
/* Calls put for the box, or for pieces of it of at most j->most elements each, in order. A very large box is cut into a
 * limited number of larger pieces. */
int emit_cut(const struct job *j, const struct span *box, int (*put)(void *arg, const struct span *box), void *arg);
/* The destination's slots of a box beyond the first: copied from the source buffer (from_src) or from the first
 * slot, which node `dep` fills, at stage `stage`. */
int emit_dups(const struct job *j, const struct slots *slots, const struct span *box, bool from_src, uint32_t dep,
              int32_t stage);
int emit_local(const struct job *j, const struct slots *slots,
               const struct span *box); /* source to destination on this rank */
int emit_part_src(const struct job *j, const struct span *box);
int emit_part_dst(const struct job *j, const struct span *box);
int emit_part_temp(const struct job *j, uint32_t buf,
                   const struct span *box); /* the whole of a temp that has the box's extents */
int emit_temp(const struct job *j, int dtype, const struct span *box, uint32_t *buf);
int emit_identity(const struct job *j); /* what the destination's folds leave to the identity on this rank */

/* ---- direct.c, fold.c: the passes ---- */

int lower_direct(const struct job *j); /* no folds: every element has one term */
int lower_fold(const struct job *j);
/* What a piece of the source and one of the destination (at mesh positions s and t where all other coordinates are 0)
 * have in common, or some of it: elements of one term each. slots: of this rank as the destination; NULL: as the
 * source. s_piece: the source's coordinate along the cut dim. */
int lower_direct_pair(const struct job *j, const struct slots *slots, const struct pair_runs *const *runs, int64_t s,
                      int64_t t, int64_t s_piece);
#endif
