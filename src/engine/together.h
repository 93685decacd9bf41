/* Programs whose copies are no rank's own: all ranks agree on it at bind, and in a run whoever is there does them.
 * Chores (chore.c) are of ranks that all send to all; swaps (swap.c) of faces that two ranks give each other. */
#ifndef WEFT_ENGINE_TOGETHER_H
#define WEFT_ENGINE_TOGETHER_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

struct program;

/* What a rank says of its program in the note of its vote. */
#define CHORE_NOTE 1
#define SWAP_NOTE 2

/* ---- chore.c ---- */

/* Copies that any rank may do, of all ranks from this one on, round the world. */
struct chore_hall;
struct chore_list;
struct chores {
    bool on;
    bool side;  /* which lists are of this program */
    bool calls; /* those who sleep have yet to be woken for what was begun or done here */
    uint32_t n; /* ranks */
    uintptr_t base;
    struct chore_hall *hall;
    const struct chore_list **lists;
};

/* Are messages that could be packed better left to it, as far as is known before the peers' blocks are? */
bool chore_wants(const weft_exec *x, const struct program *p);
/* Bytes of a block that chores need, 0: the program has none; *list: of each list. */
uint64_t chore_bytes(const weft_exec *x, const struct program *p, uint64_t *list);
/* Lists this rank's chore; false: it cannot be one. The meeting that follows has the answer in its note. */
bool chore_make(weft_exec *x, struct program *p);
void chore_open(weft_exec *x, struct program *p, const uint64_t *block_at, uint64_t meeting); /* if all said yes */
void chore_start(weft_exec *x);
bool chore_pass(weft_exec *x);
void chore_call(weft_exec *x);                  /* wakes those who sleep */
bool chore_waits(const weft_exec *x, int peer); /* for the peer to begin, or to do what it has taken */
bool chore_done(const weft_exec *x, int rank);  /* the rank's */
int chore_lacking(const weft_exec *x);

/* ---- swap.c ---- */

/* Faces that are copied where they lie, with each neighbour. */
struct swap_pair;
struct swaps {
    bool on;
    bool helps; /* pairs that this rank is not in are among these */
    bool calls; /* those who sleep have yet to be woken for what was begun or done here */
    uint32_t n;
    struct swap_pair *pairs;
};

/* Bytes of a block that its halls need, 0: the program has none. */
uint64_t swap_bytes(const weft_exec *x, const struct program *p);
bool swap_helps(const weft_exec *x); /* are the halls shown to all ranks? */
int swap_hold(weft_exec *x, const struct program *p, const uint64_t *block_at);
/* Pairs the faces of this rank, or of all; false: they cannot be. The meeting that follows has the answer in its note.
 */
bool swap_make(weft_exec *x, struct program *p, const uint64_t *block_at);
void swap_open(weft_exec *x, struct program *p, uint64_t meeting); /* if all said yes */
void swap_start(weft_exec *x);
bool swap_pass(weft_exec *x, bool eager);
void swap_call(weft_exec *x);                  /* wakes those who sleep */
bool swap_waits(const weft_exec *x, int rank); /* for the rank to begin, or to copy what it has taken */
bool swap_done(const weft_exec *x, int peer);  /* the faces that it and this rank give each other */
int swap_lacking(const weft_exec *x);
#endif
