/* What a step does to memory: moves and folds. */
#ifndef WEFT_ENGINE_WORK_H
#define WEFT_ENGINE_WORK_H
#include "engine/exec.h"

/* Copy between a dense message and its places. If `message` is NULL, each move knows both its addresses. */
void work_pack(const struct program *p, const struct exec_step *step, char *message);
void work_unpack(const struct program *p, const struct exec_step *step, const char *message);
void work_move(const struct exec_move *m, char *dst, const char *src);
/* A tile of the move, or a part of it. */
void work_tile(const struct exec_move *m, const struct memory_tile *t, char *dst, const char *src);
void work_bytes(const struct exec_move *m, char *dst, const char *src,
                size_t bytes);                                     /* the first `bytes` of a move in one piece */
void work_local(const weft_exec *x, const struct exec_step *step); /* a COPY or REDUCE step */
#endif
