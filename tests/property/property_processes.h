/* Runs the plans of a case on processes: groups that stay over the whole campaign, one for each size, each with one
 * comm for each way to move. The parent has the oracle and says what stands where in memory; a rank lowers its own
 * plan, places its tensors in window memory or in private memory, runs twice, with a run of zeros between, and hands
 * back what came, all through one shared mapping. */
#ifndef WEFT_TESTS_PROPERTY_PROCESSES_H
#define WEFT_TESTS_PROPERTY_PROCESSES_H
#include <stdbool.h>
#include <stdint.h>

#include "property_trial.h"

#define PROCESSES_RANKS 8
#define PROCESSES_WAYS 3

/* One tensor on a rank. */
struct processes_tensor {
    bool shared;
    struct {
        int64_t bytes;
        bool strided;
        struct inplace_view view;
    } side[2];
    unsigned char *src, *dst; /* dense, shared with the parent */
    int64_t src_bytes, dst_bytes;
};

struct processes_errand {
    struct property_case c;
    char url[PROCESSES_WAYS][80];
    int size;
    struct processes_tensor tensor[CASE_MOVES][PROCESSES_RANKS];
    bool by_nccl; /* by rank 0: the exec was driven by nccl */
    char wrong[PROCESSES_RANKS][200];
    _Alignas(64) unsigned char room[];
};

struct process_groups {
    struct worker_processes *workers[PROCESSES_RANKS + 1]; /* by size */
    int opened;                                            /* names of comms are not used again */
    struct processes_errand *errand;
};
int processes_way(const struct property_case *c);
void processes_close(struct process_groups *s);

/* The worker processes for n ranks, started when they are first needed, and again after they failed. */
struct worker_processes *processes_get(struct process_groups *s, int size, struct why *why);

/* As trial_run, on processes. */
bool processes_run(struct process_groups *s, struct trial_job *j, bool *refused, struct why *why);
#endif
