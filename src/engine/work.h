/* What a step does to memory: moves and folds. */
#ifndef WEFT_ENGINE_WORK_H
#define WEFT_ENGINE_WORK_H
#include "engine/exec.h"

/* Between a message, which is dense, and its places. Without a message each move knows where both ends are. */
void work_pack(const struct program *p, const struct exec_step *step, char *message);
void work_unpack(const struct program *p, const struct exec_step *step, const char *message);
void work_move(const struct exec_move *m, char *dst, const char *src);
void work_bytes(const struct exec_move *m, char *dst, const char *src, size_t bytes); /* some that are in one piece */
void work_local(const weft_exec *x, const struct exec_step *step);                    /* COPY or REDUCE */
#endif
