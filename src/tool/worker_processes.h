/* Ranks as processes: children of this one that do one piece of work after another. They are forked when they are
 * opened: they see the memory of that moment, and of later writes only those to shared mappings. */
#ifndef WEFT_TOOL_WORKER_PROCESSES_H
#define WEFT_TOOL_WORKER_PROCESSES_H
#include "tool/failure.h"
#include "tool/worker_threads.h"

struct worker_processes;

int worker_processes_open(int ranks, struct worker_processes **out, struct failure *why); /* CLI_OK or CLI_WRONG */
/* As worker_threads_do: work(arg, r) on all ranks at once. A rank that has ended counts as WEFT_EPEER. A signal that
 * was caught (signals_watch) ends the ranks that work, and all count as WEFT_EPEER. */
int worker_processes_do(struct worker_processes *c, worker_work *work, void *arg, struct failure *why);
void worker_processes_close(struct worker_processes *c); /* ends the processes and waits for them */

void *worker_processes_alloc(size_t bytes); /* zeroed memory that this process and the workers share; NULL: none */
void worker_processes_free(void *memory, size_t bytes);
#endif
