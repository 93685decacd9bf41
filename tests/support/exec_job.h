/* One move on one rank: its layouts, plan, buffers and exec, filled and looked at by the rules of tensors.h. */
#ifndef WEFT_TESTS_EXEC_JOB_H
#define WEFT_TESTS_EXEC_JOB_H
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include "ranks.h"

struct move {
    const char *src, *dst;
    int64_t bucket;
    int tensors; /* how often the pair stands in one plan; 0 is 1 */
};

struct job {
    weft_layout *src, *dst;
    weft_plan *plan;
    char *in, *out;
    size_t in_bytes, out_bytes; /* of one tensor */
    int tensors;
    weft_exec *exec;
};
int job_plan(struct job *j, const struct move *m, int rank, int world);
int job_bind(struct job *j, weft_comm *c);
int job_make(struct job *j, const struct move *m, struct ranks_rank *r);
void job_seed(struct job *j, int rank, int seed);
int64_t job_wrong(struct job *j, int rank, int seed);

/* Starts two execs, at moments that differ between ranks, and ends both, the second one first. */
int job_run_two(weft_exec *first, weft_exec *second, struct random *rng, int64_t timeout_ns);

/* The largest message that any rank sends. */
int64_t job_largest(const struct move *m, int world);
void job_free(struct job *j);
#endif
