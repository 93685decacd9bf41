/* Peers that are waited for: which they are, and whether they are gone or have stalled. */
#ifndef WEFT_ENGINE_WATCH_H
#define WEFT_ENGINE_WATCH_H
#include "engine/exec.h"

void watch_exec(struct comm_task *t, int64_t now); /* fails the comm if a peer that x waits for will not come */
int watch_timeout(const weft_exec *x);             /* WEFT_ETIMEOUT with a text that names the ranks that x waits for */
#endif
