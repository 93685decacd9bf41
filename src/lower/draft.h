/* A plan under construction. The passes add nodes (one part that is sent, received, copied or folded). Then bucket_pack
 * packs the parts of each channel into buckets, orders the steps and makes the plan.
 *
 * Both ends of a channel must make the same buckets without communication. So within a stage the parts of a channel are
 * ordered by tensor and global box (and by `tie` if one box is sent twice), not by the order in which a pass found
 * them. Parts that are passed on take turns by their origins, which send at the same time. */
#ifndef WEFT_LOWER_DRAFT_H
#define WEFT_LOWER_DRAFT_H
#include "base/arena.h"
#include "base/vec.h"
#include "plan/plan.h"

/* One dim of a part: the run of positions and where it is in the buffer. */
struct draft_dim {
    int64_t at, len, n, step, to, tostep;
};

struct draft_node {
    uint8_t kind, op, via;
    int32_t peer, stage;
    int32_t origin;        /* of a part that is passed on: the rank that sent it first; otherwise -1 */
    uint32_t part, nparts; /* parts[] */
    uint32_t dep, ndeps;   /* deps[], of nodes */
    uint32_t tensor, step; /* step: set by bucket_pack */
    int64_t div, tie;
};

/* Which algorithm was chosen for a pair of layouts. */
struct draft_choice {
    const weft_layout *src, *dst; /* the caller's; NULL: none */
    const struct row *row;
};
#define DRAFT_CHOICES 16 /* pairs that are remembered: the layers of a model have the same ones */

/* The layout of the slabs of a pair (row_slabs.c). */
struct draft_slabs {
    const weft_layout *src, *dst; /* the caller's; NULL: none */
    weft_layout *slabs;           /* NULL: not made yet */
};

struct draft {
    int32_t rank, world;
    uint32_t tensor;  /* the tensor that is being lowered, to which new parts and nodes belong */
    uint32_t first;   /* its first node */
    bool in_place;    /* source and destination may share their memory */
    int64_t received; /* bytes, by all RECV nodes */
    int64_t bucket, scratch;
    int64_t bytes;      /* of all parts: what a run reads and writes */
    struct arena arena; /* the passes' working memory */
    uint32_t *known;    /* where runs and spots are that were added lately, by their hashes; NULL: not many yet */
    VEC(struct plan_tensor) tensors;
    VEC(struct plan_buf) bufs;
    VEC(struct plan_run) runs;
    VEC(struct plan_spot) spots;
    VEC(int64_t) shapes;
    VEC(struct plan_part) parts;
    VEC(struct draft_node) nodes;
    VEC(uint32_t) deps;
    VEC(char) names;
    struct draft_choice chosen[DRAFT_CHOICES];
    struct draft_slabs slabs[DRAFT_CHOICES];
    struct walk_side *side; /* the replicas of a destination that were walked last (feed.c); NULL: none */
    uint32_t side_set;      /* their axes */
    struct arena sides;     /* its memory */
    struct draft_hosts {
        const weft_layout *of;
        int64_t n;
    } hosts[2]; /* on how many hosts the source and the destination were that were walked last */
};

#define DRAFT_NONE UINT32_MAX

int draft_tensor(struct draft *d, const weft_move *m); /* adds a tensor, which becomes the one that is being lowered */
/* A dense scratch buffer with these extents. */
int draft_temp(struct draft *d, int dtype, const int64_t *extents, uint32_t *buf);
/* What is remembered of the slabs of a pair. */
struct draft_slabs *draft_slabs(struct draft *d, const weft_layout *src, const weft_layout *dst);
/* Adds a part: a box and its place in a buffer. It belongs to the node that is added next. */
int draft_part(struct draft *d, uint32_t buf, const struct draft_dim *dims);

/* Each of these adds a node. The node has the parts that were added since the last node, in the order that plan.h
 * requires, and depends on `ndeps` nodes (DRAFT_NONE among them is left out). node may be NULL. */
int draft_copy(struct draft *d, int32_t stage, const uint32_t *deps, size_t ndeps, uint32_t *node);
int draft_reduce(struct draft *d, int32_t stage, int op, int64_t div, int via, const uint32_t *deps, size_t ndeps,
                 uint32_t *node);
int draft_send(struct draft *d, int32_t stage, int peer, int wire, int64_t tie, uint32_t dep, uint32_t *node);
int draft_send_after(struct draft *d, int32_t stage, int peer, int wire, const uint32_t *deps, size_t ndeps);
int draft_recv(struct draft *d, int32_t stage, int peer, int wire, int64_t tie, uint32_t *node);
/* The node that was added last is part of a message that passes on what `origin` sent. */
void draft_passed_on(struct draft *d, int origin);

/* ---- bucket.c ---- */

/* Moves everything into a new plan. The caller sets its kind, algorithm, digest, bound and other totals. */
int bucket_pack(struct draft *d, weft_plan **out);
void draft_drop(struct draft *d); /* frees whatever is left; also after bucket_pack */
#endif
