/* The plans that a comm keeps for its collectives of one call, those used last first. All ranks make the same calls in
 * the same order, so all keep the same plans and let go of the same ones, without a message. */
#ifndef WEFT_COLLECTIVE_KEPT_H
#define WEFT_COLLECTIVE_KEPT_H
#include "comm/comm.h"

/* What a plan is for. */
struct kept_key {
    const char *kind; /* of weft_collective: a string literal of one_call.c */
    int64_t count;
    int dtype, op, root;
};

struct kept {
    struct kept *next;
    struct kept_key key;
    weft_plan *plan;
    weft_exec *exec;
    int64_t src_bytes, dst_bytes; /* of this rank */
    char *src, *dst;              /* memory of its own, which data is copied through; NULL if it holds nothing there */
    char *memory;                 /* what both are in; NULL: the exec is bound to the caller's buffers */
    bool small;                   /* data is copied. The same on all ranks */
};

struct kept_list {
    struct kept *first;
    int n;
    /* A call whose time ran out, so that its run is still in flight; otherwise NULL. */
    struct kept *open;
    const void *open_src;
    void *open_dst;
    void *copy; /* of a source that overlaps its destination, for the run in flight */
};

/* The comm's list; it is made at the first call. NULL: no memory. */
struct kept_list *kept_of(weft_comm *c);
bool kept_same(const struct kept_key *a, const struct kept_key *b);
/* The plan for the key, which is now the one used last. NULL: there is none. */
struct kept *kept_find(struct kept_list *l, const struct kept_key *key);
/* Adds a plan that is bound. The one that was not used for the longest time makes room. */
void kept_add(weft_comm *c, struct kept_list *l, struct kept *k);
void kept_free(weft_comm *c, struct kept *k); /* one that is not in the list */
#endif
