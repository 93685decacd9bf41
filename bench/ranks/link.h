/* Hosts and the link between them that benchmarks play on this machine: network namespaces, a folder in which ranks
 * meet, the counters of the interfaces, and a limit to their speed. */
#ifndef WEFT_BENCH_RANKS_LINK_H
#define WEFT_BENCH_RANKS_LINK_H
#include <stdint.h>
#include <sys/types.h>

#include "tool/netns.h"
#include "tool/temp_folder.h"

struct bench_link {
    struct netns netns;
    struct temp_folder folder; /* the ranks of weft meet in it */
    char agent[280];           /* a program that runs a command on a host, as rsh does: the launchers of MPI take it */
};

bool link_make(int hosts, struct bench_link *out, char *why, size_t cap);
void link_remove(struct bench_link *l);

int link_host(const struct bench_link *l, int rank, int ranks); /* an equal number of ranks on each, in order */
const char *link_address(int host, char *buf, size_t cap);
/* This process is on the host from now on. Ranks of weft that it opens meet those of the other hosts. */
bool link_enter(const struct bench_link *l, int host);
/* The same for programs other than weft. It also sets a host name, by which MPI knows hosts, and switches off shared
 * memory in UCX, which would take all hosts for one. */
bool link_enter_peer(const struct bench_link *l, int host);

int64_t link_received(const struct bench_link *l, int host); /* bytes, since the link was made; -1: not known */
/* Limits what each host sends, by tc: "1gbit"; NULL: removes the limit. */
bool link_limit(const struct bench_link *l, const char *rate, char *why, size_t cap);

/* ucx_perftest from host 0 to host 1. */
struct perftest {
    const char *test; /* "tag_bw", "tag_lat" */
    int64_t bytes;
    int runs;
    /* Sends memory that was written, as programs do; otherwise fresh memory, which is one page of zeros. */
    bool written;
};
/* Seconds for one message; 0: `why` says why there is no result. */
double link_perftest(const struct bench_link *l, const struct perftest *p, char *why, size_t cap);
#endif
