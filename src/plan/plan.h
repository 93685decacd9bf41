/* The plan: the steps of one rank, as plain data in flat arrays. It is the only thing that the half that compiles hands
 * to the half that runs.
 *
 * A *part* is a box of one tensor together with its place in one buffer. Along each dim the box is one strided run of
 * global positions: at + i*step + o for 0 <= i < n, 0 <= o < len. The place says where it is in the buffer, along the
 * same dim: to + i*tostep + o. An ordinary box has n = 1. A 0-d tensor has no runs and one element.
 *
 * Order of elements: whenever a part is packed (in a message, or counted) its elements go row by row, the last dim
 * fastest, and along a dim i before o. Two parts with the same box therefore correspond element by element, whatever
 * their places are.
 *
 * Steps are in an order that respects their dependencies: deps of a step are indices of earlier steps. One rule makes
 * plans checkable: what a step reads from a TEMP buffer was written by exactly one step, that step is among the direct
 * deps of the reader, and the part that it wrote contains the part that is read. What a step reads from a DST buffer
 * may have been written by several steps; all of them are among its direct deps, and all elements have the same value
 * (the same terms, folded in the same order). Nothing in DST or TEMP is written twice in one run. A step that depends
 * on a SEND waits until the message has been read, so that its memory may change.
 *
 *   COPY    part 0 is read, part 1 is written, cast on the way.
 *   REDUCE  parts 1.. are read and folded by `op` in this order in the accumulation dtype of the
 *           tensor's source (f32 for f16, bf16 and f8, otherwise the source's own), divided by `div`
 *           if div > 1, cast to `via` and then to part 0's dtype, written to part 0. If `via`
 *           is 0 there is only the second cast. Without inputs part 0 is filled with the identity of `op`.
 *   SEND    all parts are read, each cast to its `wire`, packed at its `offset`, and sent to `peer`.
 *   RECV    the k-th RECV from a peer takes the k-th SEND of that peer to this rank (plan order,
 *           one channel for each pair of ranks). Parts, wires and offsets equal the sender's. It has no
 *           deps: what was sent can be taken at once, so that no message holds up another. */
#ifndef WEFT_PLAN_PLAN_H
#define WEFT_PLAN_PLAN_H
#include "weft.h"

enum plan_kind { PLAN_COPY = 1, PLAN_REDUCE, PLAN_SEND, PLAN_RECV };
enum plan_space { PLAN_SRC = 1, PLAN_DST, PLAN_TEMP };

/* Global positions along one dim. n >= 1, len >= 1; step is 0 when n is 1, otherwise at least len. */
struct plan_run {
    int64_t at, len, n, step;
};
/* Where a run is along the same dim of a buffer. tostep is 0 if n is 1, otherwise at least len. */
struct plan_spot {
    int64_t to, tostep;
};

struct plan_buf {
    uint8_t space; /* enum plan_space */
    uint8_t dtype; /* enum weft_dtype */
    uint32_t tensor;
    uint32_t shape; /* index into shapes: ndim extents, the local shape (dense, row-major for TEMP) */
    int64_t offset; /* TEMP: bytes from the start of the scratch, a multiple of 64; otherwise 0 */
};

struct plan_part {
    uint32_t buf;   /* index into bufs */
    uint32_t runs;  /* index into runs: ndim entries */
    uint32_t spots; /* index into spots: ndim entries */
    uint8_t wire;   /* SEND, RECV: dtype in the message; otherwise 0 */
    int64_t offset; /* SEND, RECV: bytes from the start of the message, a multiple of the wire's size */
    int64_t count;  /* elements */
};

struct plan_step {
    uint8_t kind;  /* enum plan_kind */
    uint8_t op;    /* REDUCE: enum weft_op, never avg (that is sum with div) */
    uint8_t via;   /* REDUCE: dtype or 0 */
    int32_t peer;  /* SEND, RECV: rank; otherwise -1 */
    int32_t stage; /* how many messages deep the step is: all deps of a SEND at stage k are of stages below k */
    uint32_t part, nparts;
    uint32_t dep, ndeps; /* into deps */
    int64_t div;         /* REDUCE: 0 or the divisor */
    int64_t bytes;       /* SEND, RECV: of the message */
};

struct plan_tensor {
    const weft_layout *src, *dst; /* references that plan_free drops */
    uint32_t name;                /* index into names, a zero-terminated text */
    uint32_t src_buf, dst_buf;    /* index into bufs, or PLAN_NONE if this rank is not in that mesh. Of a side that is
                                     boxes: the first of as many bufs as this rank has boxes, each with the shape of
                                     its box, and all of them in the same memory */
    uint8_t ndim;
};
#define PLAN_NONE UINT32_MAX

/* Scales. A tensor whose layouts have scales is followed by the tensor of its scales, and steps move both as they are.
 * If the caller has one side without scales, a run of this rank also
 *   1. finds the largest absolute value of each block, in a buffer of u32 with the slots of the source's scales,
 *   2. runs `fold`, if ranks share blocks, and takes the maximum with what came,
 *   3. makes the scales and the values of the source,
 *   4. does the steps,
 *   5. makes the caller's values of the destination's values and scales,
 * where a tensor has 1 to 3, or 5. */

/* A box of a rank's values. */
struct plan_scaled_box {
    uint32_t buf;                /* which buffer of its side of the tensor the values are in, with scales or without */
    int64_t to[WEFT_MAX_DIMS];   /* the first value's place in it */
    int64_t len[WEFT_MAX_DIMS];  /* values along each dim */
    int64_t skip[WEFT_MAX_DIMS]; /* positions of the first block that are before the box */
    int64_t slot;                /* of the first block's scale in the rank's scales */
    int64_t step[WEFT_MAX_DIMS]; /* slots from a block to the next along each dim */
};
/* A box of maxima that `fold` brings: dense, from slot `from` on of what came. */
struct plan_scaled_term {
    int64_t from, slot; /* slot, step: as in the box of values that it is for */
    int64_t len[WEFT_MAX_DIMS];
    int64_t step[WEFT_MAX_DIMS];
};
struct plan_scaled {
    uint32_t tensor;          /* the values; the scales are the next one */
    uint32_t fold;            /* the tensor in `fold` with the maxima; PLAN_NONE: no ranks share blocks */
    bool back;                /* the caller's destination has no scales; otherwise the source has none */
    const weft_layout *given; /* that side as the caller gave it; a reference */
    uint8_t dtype;            /* its dtype */
    uint8_t value, scale;     /* dtypes of values and scales */
    int ndim;
    int64_t block[WEFT_MAX_DIMS];
    int64_t slots, terms;                /* elements of this rank's scales, and of what `fold` brings */
    const struct plan_scaled_box *boxes; /* of `kept`: tensors alike share them */
    const struct plan_scaled_term *term;
    size_t nboxes, nterms;
};
struct plan_scales {
    struct plan_scaled *v;
    size_t n;
    void **kept; /* blocks of memory that entries share */
    size_t nkept;
    size_t bytes;    /* of these blocks */
    weft_plan *fold; /* NULL: no ranks share blocks */
};
#define PLAN_WORD 32 /* bytes of a kind or an algorithm, with the 0 behind it */

struct weft_plan {
    int32_t rank, world;
    uint64_t digest;
    const char *kind;      /* a static text */
    const char *algorithm; /* a static text, or `word` */
    char word[PLAN_WORD];  /* the algorithm of a plan that was loaded */
    int64_t scratch;       /* bytes of all TEMP buffers */
    int64_t bound, stated;
    int64_t bucket; /* options, for explain and save */
    uint8_t in_place;
    weft_machine machine; /* its size field does not count */
    struct plan_tensor *tensors;
    struct plan_buf *bufs;
    struct plan_run *runs;
    struct plan_spot *spots;
    int64_t *shapes;
    struct plan_part *parts;
    struct plan_step *steps;
    uint32_t *deps;
    char *names;
    size_t ntensors, nbufs, nruns, nspots, nshapes, nparts, nsteps, ndeps, nnames;
    struct plan_scales *scales; /* NULL: both sides of all tensors are as the caller has them */
};

/* The plan that folds maxima of blocks before the steps of p; NULL: there is none. */
static inline const weft_plan *plan_fold(const weft_plan *p)
{
    return p->scales ? p->scales->fold : NULL;
}

static inline int plan_ndim(const weft_plan *p, const struct plan_part *part)
{
    return p->tensors[p->bufs[part->buf].tensor].ndim;
}

/* The side that a buffer belongs to, and, if that side is boxes, which box of the list the buffer is; not for TEMP. */
const weft_layout *plan_side(const weft_plan *p, uint32_t buf);
size_t plan_side_box(const weft_plan *p, uint32_t buf);
/* How many buffers a tensor has on a side of this rank, and whether they are boxes. */
size_t plan_side_bufs(const weft_plan *p, uint32_t tensor, bool src);
bool plan_side_is_boxes(const weft_plan *p, uint32_t tensor, bool src);
/* Where a buffer that is a box is in the rank's memory: its first element and its strides, in elements. */
struct plan_side_place {
    int64_t offset;
    const int64_t *stride;
};
struct plan_side_place plan_side_place(const weft_plan *p, uint32_t buf);
/* Elements of the rank's memory for a side: as far as its buffers reach. */
int64_t plan_side_room(const weft_plan *p, uint32_t tensor, bool src);

int plan_dst_dtype(const weft_plan *p, uint32_t tensor); /* of the tensor's destination */

/* The static text equal to the first len letters of text, for weft_plan.kind; NULL when there is no such kind. */
const char *plan_kind_text(const char *text, size_t len);
/* Can it be the name of an algorithm? Which ones there are is known to lowering alone; a plan of one that this version
 * does not know can still be loaded and run. */
bool plan_is_word(const char *text);

/* Checks all that can be checked of one plan alone: every index, every bound, order of deps,
 * dtypes and ops that exist, sizes that do not overflow, places inside their buffers, buffers
 * that match their layouts. A plan that passes is safe to explain, verify, bind and run.
 * Beyond what the structs above say, it asks that
 *   - a field that has no meaning for a step's kind is 0 (peer: -1);
 *   - a buffer of a side is its tensor's src_buf or dst_buf, and there is one exactly where this rank is in that mesh;
 *   - no two TEMP buffers overlap, and the scratch ends less than 64 bytes after the last of them;
 *   - the parts of a message are in order of their offsets, less than 64 bytes of padding before each, and the
 *     message ends with its last part;
 *   - names, parts and deps are not shared: all steps together have nparts parts and ndeps deps, all names
 *     together at most nnames bytes (so that walking a plan takes time in proportion to its size). */
int plan_check(const weft_plan *p);

/* How many boxes of the destination a step completes, and these boxes one by one. COPY, REDUCE and RECV write
 * destination elements once, with their final values. A part whose runs repeat is several boxes. Start with a zeroed
 * place; do not ask for more boxes than there are. */
struct plan_place {
    uint32_t part; /* among the parts that are written */
    size_t box;
};
size_t plan_boxes_count(const weft_plan *p, const struct plan_step *st);
void plan_boxes_next(const weft_plan *p, const struct plan_step *st, struct plan_place *at, weft_arrival *out);

/* Slots to .. to+len-1 of a buffer along one dim have the global positions at .. at+len-1. */
struct plan_slots {
    int64_t to, len, at;
};
/* The global positions of the slots of a source's or a destination's buffer along a dim, with ghosts, in order of
 * slots. Slots at an edge that have no position are left out. WEFT_EUNSUPPORTED if there are more than `most` runs. The
 * caller frees *out. */
int plan_slots(const weft_plan *p, uint32_t buf, int dim, size_t most, struct plan_slots **out, size_t *n);

#endif
