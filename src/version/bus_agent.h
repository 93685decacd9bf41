/* The agent of a host: a process that holds the snapshots of the publishers on its host, so that versions outlive
 * them. `weft bus agent` is this process.
 *
 * Before a publisher's rank puts the record of its part into the directory, it tells the agent (hand_over.c), which
 * takes the descriptor of the memory file and the digests, and maps the file. That costs no memory as long as the
 * publisher lives. The agent compares what it has with the directory whenever that changes:
 *
 *   the slot is the publisher's       Nothing is done. What the publisher has deleted is not served any more.
 *   the slot is gone                  The publisher has died, was stopped for longer than its lease, or was closed. The
 *                                     agent puts the slot and the parts of versions that are committed under its own
 *                                     lease, and serves them. What was not committed is dropped.
 *   the slot is the agent's           The oldest versions go (`versions`), as soon as nobody reads them.
 *   the publisher puts its slot back  It has been stopped, and goes on. The records are its own again.
 *
 * A version that another one has deleted is dropped. If the directory has forgotten everything, the agent puts the
 * records back, the set's epoch too, so that the next publisher takes a higher one.
 *
 * Nothing here can make a mixture: the memory is the publisher's own, so its generation word, which readers compare
 * with the part's record, changes before a publisher that goes on reuses it; and after the publisher's death nobody
 * writes it. The agent commits nothing, it puts parts of versions only whose record is there. */
#ifndef WEFT_VERSION_BUS_AGENT_H
#define WEFT_VERSION_BUS_AGENT_H
#include "version/bus.h"

struct bus_agent_opts {
    int64_t memory;     /* bytes of all files that it holds; 0: half of the machine's */
    int versions;       /* of a set that are kept after their publisher has gone, newer ones counted; 0: 1 */
    int64_t timeout_ns; /* for an agent that runs to end; 0: the deadline of the bus */
};
struct bus_agent;
/* WEFT_EBUSY: this host and user have an agent. */
int bus_agent_start(weft_bus *b, const struct bus_agent_opts *opts, struct bus_agent **out);
/* What it alone holds goes. NULL is allowed. */
void bus_agent_stop(struct bus_agent *a);
/* How many parts, and bytes of memory files, it holds now. */
void bus_agent_holds(struct bus_agent *a, int64_t *parts, int64_t *bytes);
#endif
