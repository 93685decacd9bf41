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

struct links {
    struct machine_file m;
    int world, hosts, racks;
    const int *host;      /* of each rank */
    int *own_host, *slot; /* slot: which of its host's ranks it is */
    int *turn;            /* the first rank of those that copy on the same core of the host */
    uint32_t first[LINKS_KINDS + 1];
    double *cap;                   /* of each link; 0: no limit */
    double *copy;                  /* what each rank copies, where ranks share memory */
    bool *writes;                  /* so much that it copies long pieces otherwise: */
    double *copy_long, *long_host; /* what each rank, and each host, copies of them; 0: as of others */
    /* For nic_crowd: to and from how many others each host gives and takes, and bytes that it gives to each of them on
     * average. NULL: a crowd does not count. */
    int *gives, *takes;
    double *each;
};

/* What one message, copy or fold needs. */
struct links_load {
    int from, to;                     /* the same for work inside a rank */
    double bytes;                     /* of the message; of local work: bytes that it copies or reads */
    double copied_from, copied_to;    /* bytes that each end copies beside that: packs, unpacks, takes; of local work:
                                         0, and the bytes that it writes */
    double messages;                  /* how many it stands for; 0 for local work */
    float launches_from, launches_to; /* kernels on devices */
    float in_long;                    /* the share of the copied bytes that is in long pieces */
};

/* host: where each rank is, or NULL for ranks_per_host in a row. It is used until links_free. */
int links_open(struct links *l, const struct machine_file *m, int world, const int *host, struct failure *why);
void links_free(struct links *l);
static inline uint32_t links_count(const struct links *l)
{
    return l->first[LINKS_KINDS];
}
#define LINKS_LONG (64 << 10) /* bytes of a long piece, and */
#define LINKS_MUCH (8 << 20)  /* of what a rank writes: from there on x86-64 copies without caches (engine/fill.c) */
/* Sets what ranks and hosts copy by what is in caches. kept: the bytes that each rank reads of its own and writes,
 * each once. writes: those of all that it may copy. -1: there is no memory. */
int links_cache(struct links *l, const double *kept, const double *writes);
/* What one rank gives another in a run. */
struct links_flow {
    int from, to;
    double bytes;
};
/* From here on NICs carry less if their hosts have several peers (nic_crowd). -1: there is no memory. */
int links_crowd(struct links *l, const struct links_flow *flows, size_t n);
#define LINKS_CROWD 8                /* hosts that exchange data, each with all others, for nic_crowd, */
#define LINKS_CROWD_SHORT (64 << 10) /* each giving each at most so many bytes; or */
#define LINKS_CROWD_LONG (1 << 20)   /* at least so many, for nic_crowd_long */
/* What one byte of the load takes of each link. Returns how many links there are. */
int links_uses(const struct links *l, const struct links_load *x, struct fair_use *out);
double links_latency(const struct links *l, int from, int to);
enum links_kind links_kind(const struct links *l, uint32_t link);
/* "the outgoing NIC 2 of host 0"; returns buf. */
char *links_name(const struct links *l, uint32_t link, char *buf, size_t cap);
#endif
