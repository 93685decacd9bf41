/* One move that is being lowered for one rank: the two layouts, the positions of this rank in them, and what all passes
 * need to know of them. */
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
    JOB_WALK   /* everything else, or several hosts: the replicas of a piece are walked */
};

struct span;

/* Takes a box of finished values of a fold instead of the destination's buffer (row_slabs.c). `node` has written the
 * box to the temp `buf`; DRAFT_NONE: another rank folds it. */
struct job_taker {
    int (*take)(void *arg, const struct span *box, uint32_t buf, uint32_t node);
    void *arg;
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
    int slab_dim; /* this rank's piece of the source begins at slab_start of its buffer, along slab_dim (row_shares.c)
                   */
    int64_t slab_start;
    uint32_t s_box, d_box; /* boxes: which of the tensor's buffers on either side a part is in */
    int64_t most;          /* elements that one part of a message may have */
    int cut;               /* the dim along which replicas share the work, -1 for none (0-d) */
    /* Sets of axes, bit a for axis a. */
    uint32_t s_split, s_free, s_fold, d_split, d_free, d_fold;
    int64_t s_replicas, s_terms, d_replicas; /* products of the sizes of s_free, s_fold, d_free */
    int64_t s_mine, d_mine;        /* this rank's piece on either side: the mesh position of its replica 0, or -1 */
    int64_t s_replica, d_replica;  /* which of its replicas this rank has */
    const struct job_taker *taker; /* NULL: none. Otherwise the destination has one replica of each piece */
    int64_t
        chunk; /* JOB_APART: the destination's largest piece along the cut dim; 0: not all its splits are by chunk */
};

int job_open(struct job *j, struct draft *d, const weft_move *m, const weft_machine *machine);
/* The op of the only fold that has more than one term, avg included; 0: no fold has more than one term, or several
 * have. */
int job_fold_op(const struct job *j);

/* ---- intersect.c: along one dim ---- */

/* Positions of ghosts that are in the buffer a second time: `to` is filled from `from`. */
struct dup {
    int64_t at, len, to, from;
};
struct slots {
    struct runs first; /* every position once, with its place in the buffer; see intersect.c for runs with ghosts */
    struct dup *dup;   /* further places of the same positions: ghosts */
    size_t ndup, cap;
    int64_t inner; /* extent of the piece's interior; INT64_MAX in a dim without ghosts */
};
/* The slots of a destination's piece that get values. */
int intersect_slots(const struct job *j, int dim, int64_t piece, struct slots *out);
/* The source's piece: its interior, and its ghosts if they are terms. ghost[i] says whether run i is of ghosts (NULL:
 * none is). */
int intersect_terms(const struct job *j, int dim, int64_t piece, struct runs *out, bool **ghost);

/* A piece of the other side that overlaps this rank's, and the overlap: a is the source's place, b the
 * destination's. */
struct hit {
    int64_t piece;
    struct pair_runs j;
    int64_t count;
};
struct hits {
    struct hit *v;
    size_t n, cap;
};
/* For this rank as a destination: the source's pieces. As a source: the destination's. Interior terms only. */
int intersect_dst(const struct job *j, int dim, const struct slots *mine, struct hits *out);
int intersect_src(const struct job *j, int dim, const struct runs *mine, struct hits *out);

/* ---- emit.c: the nodes of a box ---- */

/* One dim of a box in both buffers. */
struct span {
    int64_t at, len, n, step, a, astep, b, bstep;
};
void emit_span_of(const struct pair_run *r, struct span *out);
/* The run that starts at position p of a span and ends before hi: whole repetitions, or a part of one. Positions are
 * numbered repetition by repetition. */
struct span emit_span_from(const struct span *s, int64_t p, int64_t hi);
/* Calls put for the box, or for pieces of it of at most j->most elements each, in order. A very large box is cut into a
 * limited number of larger pieces. */
int emit_cut(const struct job *j, const struct span *box, int (*put)(void *arg, const struct span *box), void *arg);
/* Fills the destination's further slots of a box: copies them from the source buffer (from_src) or from the first slot,
 * which node `dep` fills, at stage `stage`. */
int emit_dups(const struct job *j, const struct slots *slots, const struct span *box, bool from_src, uint32_t dep,
              int32_t stage);
int emit_local(const struct job *j, const struct slots *slots,
               const struct span *box);                                      /* source to destination on this rank */
int emit_part_in(const struct job *j, uint32_t buf, const struct span *box); /* at `a` of any buffer */
int emit_part_src(const struct job *j, const struct span *box);
int emit_part_dst(const struct job *j, const struct span *box);
int emit_part_temp(const struct job *j, uint32_t buf,
                   const struct span *box); /* the whole of a temp that has the box's extents */
/* A part of a temp that has the extents of `whole`, a box of single runs. */
int emit_part_temp_in(const struct job *j, uint32_t buf, const struct span *whole, const struct span *box);
int emit_temp(const struct job *j, int dtype, const struct span *box, uint32_t *buf);
int emit_identity(const struct job *j); /* fills the destination slots of this rank that must hold an identity */

/* ---- direct.c, fold.c, boxed.c: the passes ---- */

int lower_direct(const struct job *j); /* no folds: every element has one term */
int lower_fold(const struct job *j);
/* Its two halves. With a taker, this rank may receive in the place of any other, `di`. */
int lower_fold_send(const struct job *j);
int lower_fold_receive(const struct job *j);
int lower_boxed(const struct job *j); /* one side is boxes, or both are */
/* Lowers what a piece of the source and a piece of the destination have in common, or a part of it; each element has
 * one term. s and t are the mesh positions of the pieces with all other coordinates 0. slots: this rank is the
 * destination, and these are its slots; NULL: it is the source. s_piece: the source's coordinate along the cut dim. */
int lower_direct_pair(const struct job *j, const struct slots *slots, const struct pair_runs *const *runs, int64_t s,
                      int64_t t, int64_t s_piece);
#endif
