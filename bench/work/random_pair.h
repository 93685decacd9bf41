/* Random pairs of layouts of large tensors over the whole notation, seeded: the same number gives the same pair. */
#ifndef WEFT_BENCH_WORK_RANDOM_PAIR_H
#define WEFT_BENCH_WORK_RANDOM_PAIR_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

enum { RANDOM_PAIR_TEXT = 320 };

struct random_pair {
    char src[RANDOM_PAIR_TEXT], dst[RANDOM_PAIR_TEXT];
};

/* Pair `number` of a campaign: at least `bytes` bytes of tensor in the source's dtype, on 2 to `ranks` ranks. */
struct random_pair random_pair(uint64_t seed, int64_t number, int64_t bytes, int ranks);

/* What a pair asks of memory, and what it has in common with others. */
struct random_pair_facts {
    int ranks;
    int64_t memory; /* bytes of all buffers of all ranks */
    double moved;   /* the fewest bytes that all ranks together read and write */
    int64_t run[2]; /* source, destination: bytes of the last dim that lie in one piece, at most */
    bool casts, folds, cyclic, ghosts, apart, uneven;
    char op[8]; /* "" if nothing is folded */
    char dtypes[24];
};

/* Returns 0, or a WEFT_E code if the layouts do not fit each other. Every element is read once for each term, as a
 * program written by hand would do. A copy on a further rank is read from the first one or from the source, whichever
 * has fewer bytes. Identities and ghosts are written. */
int random_pair_facts(const weft_layout *src, const weft_layout *dst, struct random_pair_facts *out);
#endif
