/* The simulation behind bus_scene.h: relays that pull blocks from the publisher and from each other. */
#ifndef WEFT_FORESEE_BUS_PULL_H
#define WEFT_FORESEE_BUS_PULL_H
#include "foresee/bus_scene.h"
#include "version/schema.h"

/* What one rank of the publisher has, in the blocks that are simulated. */
struct bus_pull_part {
    struct schema_part places;
    int64_t grain; /* how many blocks of the bus one of these stands for */
};

/* What one host of a subscriber needs. The hosts with the same number in their subscribers need the same. */
struct bus_pull_need {
    double **bytes; /* for each part and block: of the bus's blocks in it that are needed; 0: none is */
    double **sent;  /* as many bytes cross the link: fewer with deltas */
    double all;     /* bytes */
    int first, n;   /* readers of the host, numbers inside of the subscriber */
};

struct bus_pull {
    const struct bus_scene_how *how;
    struct bus_scene_run *run;   /* with links and hosts; gets the results */
    struct bus_pull_part *parts; /* by the publisher's ranks */
    struct bus_pull_need *needs;
    int kinds;       /* hosts of a subscriber */
    double *readers; /* bytes that each reader of a subscriber copies */
};

int bus_pull_run(const struct bus_pull *p, struct failure *why);
#endif
