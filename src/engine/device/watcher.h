/* The watcher: one thread of the process that looks after runs on streams of the caller. No thread is in weft while
 * such a run waits for other ranks, and a stream's wait never ends by itself. If a rank for which it waits is gone, or
 * has not launched its graph within the deadline of the comm, the watcher fails the comm; if the comm has failed, it
 * lets the stream go on. The next call of the caller returns the failure. The thread is started with the first such
 * run, and ends with the last exec that had one. */
#ifndef WEFT_ENGINE_DEVICE_WATCHER_H
#define WEFT_ENGINE_DEVICE_WATCHER_H
#include "engine/exec.h"

/* Looks after the exec from now on; it may do so already. */
int watcher_add(weft_exec *x);
void watcher_remove(weft_exec *x); /* returns when the watcher does not look at it any more; it may not have */
#endif
