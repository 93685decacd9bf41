/* What the ranks of a machine share, as links with a capacity: cores, memory, ports, NICs, spines. A load (a message, a
 * copy, a fold) takes so much of each of some links. */
#ifndef WEFT_FORESEE_LINKS_H
#define WEFT_FORESEE_LINKS_H
#include <stdbool.h>

#include "foresee/fair.h"
#include "foresee/machine_file.h"

enum links_kind {
    LINKS_CORE,   /* of a rank; its capacity is one nanosecond a nanosecond */
    LINKS_MEMORY, /* of a rank's device: bytes copied */
    LINKS_OUT,    /* a rank's port inside its host */
    LINKS_IN,
    LINKS_CORES,     /* that ranks share, if they are fewer than the ranks */
    LINKS_TURNS,     /* one core of a host: the ranks that copy there take turns; its number is that of the first */
    LINKS_COPY_HOST, /* bytes that all ranks of a host copy */
    LINKS_INSIDE,    /* all ports of a host */
    LINKS_NIC_OUT,
    LINKS_NIC_IN,
    LINKS_SPINE_OUT, /* of a rack */
    LINKS_SPINE_IN,
    LINKS_KINDS
};

/* What a host gives to others, or takes from them: bytes, and how many peers in equal parts would leave it as free. */
struct links_side {
    double bytes, peers;
};

struct links {
    struct machine_file m;
    int world, hosts, racks;
    const int *host;      /* of each rank */
    int *own_host, *slot; /* slot: which of its host's ranks it is */
    int *turn;            /* the first rank of those that copy on the same core of the host */
    uint32_t first[LINKS_KINDS + 1];
    double *cap; /* of each link; 0: no limit */
    /* What each rank, and all ranks of each host, do of each kind of work (machine_file.h); 0: no limit. */
    double (*rate)[MACHINE_FILE_WORKS], (*host_rate)[MACHINE_FILE_WORKS];
    bool *much;                       /* is written by the rank: LINKS_MUCH */
    double *once;                     /* of the bytes that are read from each rank, the share that is not read again */
    struct links_side *gives, *takes; /* of each host, for nic_crowd; NULL: a crowd does not count */
};

/* What one message, copy or fold needs. */
struct links_load {
    int from, to;                     /* the same for work inside a rank */
    double bytes;                     /* of the message; of local work: the mean of what it reads and writes */
    double copied_from, copied_to;    /* bytes that each end copies beside that: packs, unpacks, takes; of local work:
                                         0, and the bytes that it writes */
    double messages;                  /* how many it stands for; 0 for local work */
    float launches_from, launches_to; /* kernels on devices */
    float parts_from, parts_to;       /* of tensors, which each end copies in memory */
    /* Shares of the copied bytes: in long pieces, in rows, folded (of local work), and cast by each end. */
    float in_long, in_rows, folded, cast_from, cast_to;
};

/* host: where each rank is, or NULL for ranks_per_host in a row. It is used until links_free. */
int links_open(struct links *l, const struct machine_file *m, int world, const int *host, struct failure *why);
void links_free(struct links *l);
static inline uint32_t links_count(const struct links *l)
{
    return l->first[LINKS_KINDS];
}
/* A rank that writes much in a run writes long pieces past the caches on x86-64 (engine/fill.c). */
#define LINKS_MUCH (8 << 20)
#define LINKS_LONG (64 << 10)
/* Sets what ranks and hosts copy by what is in caches. kept: the bytes of each rank's tensors that a run reads and
 * writes, each once, which its host's caches hold. worked: those that it reads and writes itself, of any rank's, which
 * its core's caches hold. writes: those of all that it may copy. source, read: bytes that are read from it, each once,
 * and as often as they are read. -1: there is no memory. */
struct links_work {
    double kept, worked, writes, source, read;
};
int links_cache(struct links *l, const struct links_work *of);
/* What one rank gives another in a run. */
struct links_flow {
    int from, to;
    double bytes;
};
/* From here on NICs carry less if their hosts have several peers (nic_crowd). -1: there is no memory. */
int links_crowd(struct links *l, const struct links_flow *flows, size_t n);
/* Hosts that exchange data, each with all others: of nic_crowd, up to LINKS_CROWD_SHORT bytes from each to each other
 * one, and of nic_crowd_long, LINKS_CROWD_LONG bytes or more. */
#define LINKS_CROWD 8
#define LINKS_CROWD_SHORT (64 << 10)
#define LINKS_CROWD_LONG (1 << 20)
/* What one byte of the load takes of each link. Returns how many links there are. */
int links_uses(const struct links *l, const struct links_load *x, struct fair_use *out);
/* Which of these is the core whose flows take turns; -1: none, as between hosts, where NICs share evenly. */
int links_turns(const struct links *l, const struct links_load *x, const struct fair_use *use, int uses);
double links_latency(const struct links *l, int from, int to);
enum links_kind links_kind(const struct links *l, uint32_t link);
/* "the outgoing NIC 2 of host 0"; returns buf. */
char *links_name(const struct links *l, uint32_t link, char *buf, size_t cap);
#endif
