/* A version on its way over the bus: a publisher's ranks, and subscribers on other hosts that all read the same set.
 * What each reader needs comes from the plans of the library (version/reader_plan.h), in the blocks in which it crosses
 * between hosts, and which blocks a reply has is decided by the functions that publishers and relays use
 * (version/part_blocks.h). The links of the machine carry the replies, and share by max-min fairness. It is
 * deterministic.
 *
 * Each host of a subscriber has a relay, on its first rank, with the threads that a relay has (version/bus_relay.h):
 * some ask the publisher's ranks, the others peers. The relay asks for one reply after the other. A reader copies what
 * its relay has got while more comes. All hosts begin at the same time.
 *
 * Sets with many blocks are simulated with fewer, larger ones (BUS_SCENE_BLOCKS), each of which stands for several. */
#ifndef WEFT_FORESEE_BUS_SCENE_H
#define WEFT_FORESEE_BUS_SCENE_H
#include "foresee/scene.h"
#include "tool/json_write.h"

#define BUS_SCENE_BLOCKS 8192     /* that are simulated, about */
#define BUS_SCENE_HOSTS 4096      /* most subscribers */
#define BUS_SCENE_RANKS (1 << 20) /* most ranks, all together */

struct bus_scene_how {
    struct machine_file machine;
    int subscribers; /* jobs that read the set, each with the ranks of the destination's layouts */
    bool peers;      /* relays give each other what they have */
    double changed;  /* part of the elements that changed since the version that all hosts have; negative: none has one
                      */
};

struct bus_scene_run {
    struct links links;
    int *host;                                       /* of each rank */
    int publishers, readers, publisher_hosts, hosts; /* ranks; of one subscriber; hosts of subscribers, all together */
    int64_t set;                                     /* bytes of the tensors, each element once */
    double needed;                     /* bytes of the blocks that one subscriber needs, on all its hosts together */
    double ratio;                      /* bytes that were sent, by bytes of the blocks: less than 1 with deltas */
    double from_publisher, from_peers; /* bytes of replies */
    double total, first;               /* nanoseconds until the last host, and the first one, has it */
    double *bytes;                     /* that each link has carried */
    double *busy;                      /* nanoseconds for which it has been busy, at least */
    double bound;                      /* of the busiest link */
    uint32_t bound_link;               /* FAIR_NONE: none has a limit */
    int64_t replies;
};

/* The sources of the scene's tensors are the publisher's layouts, the destinations those of each subscriber. */
int bus_scene_simulate(const struct scene *s, const struct bus_scene_how *how, struct bus_scene_run *out,
                       struct failure *why);
void bus_scene_free(struct bus_scene_run *r);
void bus_scene_print(FILE *to, const struct bus_scene_run *r);
void bus_scene_json(struct json *j, const struct bus_scene_run *r); /* members of an object that is open */
#endif
