/* One check: two layouts lowered on all ranks, verified, run on real data, compared with the oracle. */
#ifndef WEFT_CLI_CHECK_CHECK_PAIR_H
#define WEFT_CLI_CHECK_CHECK_PAIR_H
#include <stdbool.h>

#include "cli/check/oracle.h"
#include "cli/move/layout_pair.h"
#include "tool/failure.h"

struct check_opts {
    const char *url;       /* NULL: threads: */
    int64_t seed, repeat;  /* the k-th run has the data of seed + k */
    int64_t bucket;        /* 0: the library's default */
    const char *algorithm; /* NULL: the library chooses */
    int64_t per_host;      /* ranks of a host; 0: one host */
    bool staged, in_place;
    bool explain;   /* print what bind has chosen on rank 0 */
    bool private;   /* ranks that are processes have their buffers in private memory, not in window memory */
    weft_comm *job; /* the job that this process is a rank of and that does the check together; NULL: none */
    int values;     /* enum oracle_values; 0: wild for even seeds of the algorithm "direct", otherwise exact */
};

struct check_result {
    int world;
    struct layout_pair_totals totals;
    int64_t elements, runs; /* of the tensor; runs that were right */
};

/* CLI_OK if all is right. Otherwise *why says what is wrong: the first difference of the first rank that has one. */
int check_pair(const char *src, const char *dst, const struct check_opts *opts, struct check_result *out,
               struct failure *why);
#endif
