/* Runs the plans of a case on the real engine: groups of threads whose comms stay open over the whole campaign, one
 * group for each of a few sizes, one comm for each way to move. */
#ifndef WEFT_TESTS_PROPERTY_TRIAL_H
#define WEFT_TESTS_PROPERTY_TRIAL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/check/inplace.h"
#include "property_lab.h"

enum { TRIAL_GROUPS = 3 };

extern const int trial_size[TRIAL_GROUPS];

struct trial_group {
    struct worker_threads *threads;
    int size;
    weft_comm *comm[2][CASE_RANKS]; /* direct, staged */
};

struct trial_groups {
    struct trial_group groups[TRIAL_GROUPS];
    int generation; /* names of comms are not used again */
};

/* One side of a tensor on a rank: a view of some memory, and the same data dense. */
struct trial_side {
    unsigned char *memory; /* the other side's where that is shared */
    int64_t bytes;
    struct inplace_view view;
};

struct trial_tensor {
    bool shared; /* both sides are in one memory */
    struct trial_side side[2];
    unsigned char *first; /* what the destination held after the first run, dense */
};

struct trial_job {
    struct trial_group *group;
    struct lab *lab;
    int way;
    struct trial_tensor tensor[CASE_MOVES][CASE_RANKS];
    weft_view view[2][CASE_RANKS][CASE_MOVES];
    char wrong[CASE_RANKS][200]; /* what a rank saw that it should not have */
    _Atomic uint64_t ways[2]; /* the ways of all messages, as their senders and as their receivers have chosen them */
};
void trial_close(struct trial_groups *e);
int trial_group_number(int world);

/* The fewest worker threads for n ranks, opened when they are first needed, and again after they failed. */
struct trial_group *trial_group_for(struct trial_groups *e, int world, struct why *why);

enum trial_legal { TRIAL_LEGAL, TRIAL_UNCLEAR, TRIAL_ILLEGAL };

/* By brute force: does every shared address stand for the same element on both sides? Unclear where it stands for
 * nothing on one of them. */
enum trial_legal trial_legality(const struct lab *l, int m, int rank, const struct inplace *fit);

/* Lays out one tensor on one rank. *worst: the least legal sharing that was made; bold: also where it is not legal. */
bool trial_place(struct trial_job *j, int m, int rank, bool bold, enum trial_legal *worst, struct why *why);
void trial_release(struct trial_job *j);
void trial_fill(const struct trial_job *j, int rank);
void trial_take(const struct trial_job *j, int m, int rank, unsigned char *dense);

/* A run changes neither its sources nor what lies between the rows of a destination. */
bool trial_untouched(const struct trial_job *j, int m, int rank);

/* What must come out: in place, a destination holds parts of the source before. */
void trial_expect(struct trial_job *j);

/* Binds and runs twice. *refused: bind said that the memory overlaps in a way that is not legal. */
bool trial_run(struct trial_groups *e, struct trial_job *j, bool *refused, struct why *why);
#endif
