/* Runs the plans of a case on processes: crews that stay over the whole campaign, one for each size, each with one comm
 * for each way to move. The parent has the oracle and says what stands where in memory; a rank lowers its own plan,
 * places its tensors in window memory or in private memory, runs twice, with a run of zeros between, and hands back
 * what came, all through one shared mapping. */
#ifndef WEFT_TESTS_PROPERTY_CREW_H
#define WEFT_TESTS_PROPERTY_CREW_H
#include <stdbool.h>
#include <stdint.h>

#include "property_trial.h"

#define CREW_RANKS 8
#define CREW_WAYS 3

/* One tensor on a rank. */
struct crew_tensor {
    bool shared;
    struct {
        int64_t bytes;
        bool strided;
        struct inplace_view view;
    } side[2];
    unsigned char *src, *dst; /* dense, shared with the parent */
    int64_t src_bytes, dst_bytes;
};

struct crew_errand {
    struct property_case c;
    char url[CREW_WAYS][80];
    int size;
    struct crew_tensor tensor[CASE_MOVES][CREW_RANKS];
    char wrong[CREW_RANKS][200];
    _Alignas(64) unsigned char room[];
};

struct crews {
    struct worker_processes *crew[CREW_RANKS + 1]; /* by size */
    int opened;                                    /* names of comms are not used again */
    struct crew_errand *errand;
};
int crew_way(const struct property_case *c);
void crews_close(struct crews *s);

/* The worker processes for n ranks, started when they are first needed, and again after they failed. */
struct worker_processes *crews_get(struct crews *s, int size, struct why *why);

/* As trial_run, on processes. */
bool crew_run(struct crews *s, struct trial_job *j, bool *refused, struct why *why);
#endif
