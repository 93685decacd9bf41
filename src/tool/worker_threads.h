/* Ranks as threads of this process: worker_threads_do runs a function on all of them. */
#ifndef WEFT_TOOL_WORKER_THREADS_H
#define WEFT_TOOL_WORKER_THREADS_H
#include "tool/failure.h"

struct worker_threads;

/* What one rank does. Returns 0 or a WEFT_E code, whose weft_errmsg() is copied. */
typedef int worker_work(void *arg, int rank);

int worker_threads_open(int ranks, struct worker_threads **out,
                        struct failure *why); /* CLI_OK, or CLI_WRONG if threads cannot be created */
/* Does work(arg, r) on all ranks at once and waits for all. Returns the code of the first rank whose code is not 0,
 * with its text in *why. The text names the rank. */
int worker_threads_do(struct worker_threads *t, worker_work *work, void *arg, struct failure *why);
void worker_threads_close(struct worker_threads *t);
#endif
