/* How a move is cut into pieces, and the sender's part of the work. */
#ifndef WEFT_ENGINE_WAYS_ASSIST_H
#define WEFT_ENGINE_WAYS_ASSIST_H
#include "engine/way.h"

/* A move is cut along one loop of its tile, or into bytes if it has no tile. */
struct assist_cut {
    int loop;
    int64_t length; /* turns of that loop, or bytes, in a piece; the last piece may be shorter */
    int64_t n;      /* pieces */
};

/* Cuts the move into pieces of about `bytes` bytes. Both ends have the same moves, so they cut alike. */
struct assist_cut assist_cut(const struct exec_move *m, int64_t bytes);
/* Copies piece i. Returns about how many bytes these were. */
int64_t assist_copy(const struct exec_move *m, const struct assist_cut *c, int64_t i);
/* The sender copies a piece of message k of the channel. False: the receiver has not begun, or no piece is left. */
bool assist_one(weft_exec *x, const struct exec_out *out, uint32_t k);
#endif
