/* Meetings of a comm on several hosts. The ranks of a host meet in its shared memory. The first rank of each host then
 * relays what they have voted along a tree of hosts: it waits for the ballots of the hosts below its own, merges them
 * with its own host's, and mails the result to the host above. The host of rank 0 is at the top. It judges, and the
 * result goes down the same tree. So a meeting costs a first rank a few mails, however many hosts there are, and its
 * connections are with the first ranks of RELAY_HOSTS hosts below and one above.
 *
 * If a meeting takes long, first ranks also mail which ranks they wait for: up, and from the top down to all. So a rank
 * whose time runs out can name them. */
#ifndef WEFT_COMM_RELAY_H
#define WEFT_COMM_RELAY_H
#include "comm/comm.h"

#define RELAY_HOSTS 8 /* hosts below a host */

struct relay *relay_new(void);                  /* NULL: no memory */
void relay_open(weft_comm *c, struct relay *r); /* adds its task, which ends with the comm */

/* The calls below do nothing for a comm on one host. */

void relay_move(weft_comm *c); /* mails what can be mailed now */
/* Does this rank wait for the vote or the result of that rank of another host, and for no other word of it? */
bool relay_awaits(const weft_comm *c, int rank);
/* Does that rank relay the meetings of this rank's host? */
bool relay_needs(const weft_comm *c, int rank);
/* Names ranks of other hosts that have not come to the meeting, as far as this rank knows by itself. */
void relay_names(const weft_comm *c, uint64_t meeting, struct comm_names *names);
/* The first ranks of the hosts above and below this rank's: at most RELAY_HOSTS + 1. Returns how many there are. */
int relay_neighbours(const weft_comm *c, int ranks[RELAY_HOSTS + 1]);
/* The same for a list of hosts, of which this one is number `host` of `hosts`: writes their numbers in the list. */
int relay_tree(int host, int hosts, int out[RELAY_HOSTS + 1]);
#endif
