/* A move on real memory: the ranks of a URL, each with its comm and its exec. They are threads of this process,
 * its children, or processes that a launcher has started, of which this is one. */
#ifndef WEFT_CLI_MOVE_RUNNER_H
#define WEFT_CLI_MOVE_RUNNER_H
#include "tool/failure.h"
#include "tool/worker_processes.h"
#include "tool/worker_threads.h"
#include "weft.h"

/* Where the ranks run. */
struct runner_place {
    char url[256]; /* complete, for weft_comm_open */
    int ranks;
    bool processes; /* children of this one */
    weft_comm *job; /* of the launcher's processes; NULL: none */
};
/* Completes a URL for `world` ranks: "threads:" and "shm:" alone get as many ranks as needed, and a name. Returns an
 * exit code; CLI_BAD if a group of this kind cannot have that many ranks. */
int runner_place(const char *url, int world, struct runner_place *out, struct failure *why);
/* The same for the ranks of a job that this process is in. */
int runner_join(weft_comm *job, int world, struct runner_place *out, struct failure *why);
/* Zeroed memory for buffers that ranks at the place use. */
void *runner_alloc(const struct runner_place *p, size_t bytes);
void runner_free(const struct runner_place *p, void *memory, size_t bytes);
bool runner_has(const struct runner_place *p, int rank); /* can this process see the rank's results? */

struct runner {
    struct worker_threads *threads;
    const struct runner_place *place;
    weft_plan *const *plans;
    const weft_view *src, *dst; /* one for each rank */
    bool staged;
    bool explain; /* rank 0 prints what bind has chosen for it */
    bool window;  /* of processes: data is copied to window memory, moved, and copied back */
    struct worker_processes *processes;
    weft_comm **comms;
    weft_exec **execs;
    struct runner_window *windows; /* of each rank: its source and its destination */
    bool opened;                   /* runner_open was called */
};

/* Starts the processes, if ranks are processes. Call it before there are threads, since a process that is forked while
 * another thread allocates may find the allocator locked for good. r must be complete. Returns CLI_OK or CLI_WRONG;
 * runner_close follows in both cases. */
int runner_begin(struct runner *r, struct failure *why);
/* Opens comms and binds on the worker threads (one for each rank of the place). Plans and buffers must outlive the
 * runner. Returns CLI_OK, CLI_BAD if bind refuses the buffers, or CLI_WRONG. */
int runner_open(struct runner *r, struct failure *why);
int runner_run(struct runner *r, struct failure *why); /* once on all ranks */
/* In a job, gives all processes the failure of the first process that has one. Otherwise returns code. */
int runner_agree(const struct runner_place *p, int code, struct failure *why);
void runner_close(struct runner *r);
#endif
