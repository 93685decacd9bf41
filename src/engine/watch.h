/* The peers for which an exec waits: which they are, and whether they are gone or have stalled. */
#ifndef WEFT_ENGINE_WATCH_H
#define WEFT_ENGINE_WATCH_H
#include "engine/exec.h"

void watch_exec(struct comm_task *t,
                int64_t now);          /* fails the comm if the task waits for a peer that is gone or stalled */
int watch_timeout(const weft_exec *x); /* WEFT_ETIMEOUT with a text that names the ranks that x waits for */
#endif
