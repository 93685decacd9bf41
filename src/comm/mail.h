/* What ranks on different hosts tell each other beside data. It comes by the mail of the wire as packets. Each packet
 * has an owner, which has registered a handler for it.
 *
 * The mail's own packets are votes, failures and farewells. They are put where ranks of one host look for them: into
 * the core of the group, of which each host has its own. */
#ifndef WEFT_COMM_MAIL_H
#define WEFT_COMM_MAIL_H
#include "comm/comm.h"

enum mail_owner { MAIL_COMM = 1, MAIL_SURVIVE, MAIL_SPLIT, MAIL_EXEC, MAIL_PIPE, MAIL_WINDOW, MAIL_OWNERS };
/* A packet begins with a uint32_t: its owner, and which of the owner's packets it is. */
#define MAIL_KIND(owner, number) ((uint32_t)(owner) | (uint32_t)(number) << 8)

struct mail *mail_new(void); /* NULL: no memory */
/* Makes the mail of a comm on several hosts one of its tasks. It moves the wire, hands what has come to its owners and
 * passes on what this host's ranks have voted. It ends with the comm, and says goodbye first. */
void mail_open(weft_comm *c, struct mail *mail);

/* The calls below do nothing for a comm on one host. */

/* From here on the owner's packets go to this function; without one they are thrown away. The packet is not aligned,
 * has at least 4 bytes, and is there until the handler returns. */
typedef void mail_handler(weft_comm *c, int peer, const void *packet, size_t bytes);
void mail_handle(weft_comm *c, enum mail_owner owner, mail_handler *handler);
/* To one rank of another host, at most WIRE_MAIL bytes. The wire's error code, with this thread's text set; a caller
 * that waits for the peer learns from that wait that it is gone, and need not look at it. */
int mail_send(weft_comm *c, int peer, const void *packet, size_t bytes);
void mail_send_all(weft_comm *c, const void *packet, size_t bytes); /* to all ranks of other hosts that are here */

/* Passes the tasks of the comm and its siblings that move a wire, and nothing else; calls nobody back. */
bool mail_move(weft_comm *c);
/* Before a sleep, with the bell armed: from here on it rings also for what comes by the wires of the comm and its
 * siblings, and *ns is at most as long as one may sleep without a look at them. False: something has come. *wired is
 * set if there is a wire. */
bool mail_listen(const weft_comm *c, bool *wired, int64_t *ns);
/* May what has come be wrong? A wire that cannot cancel delivers what its sender has given up, from memory that may be
 * another thing by then. Word that the sender gave up was sent before that, and is looked for. */
bool mail_doubts(weft_comm *c);
/* Sees to it that all mail, and what this host's ranks have voted, is on its way; gives up after ns. */
void mail_flush(weft_comm *c, int64_t ns);
void mail_failure(weft_comm *c, int code, const char *text);
/* To one rank of another host, with which this one has been in touch: why the comm has failed. A rank that leaves a
 * comm that has failed tells the ranks that wait for it: they may hear that it left before others tell them why. */
void mail_failure_to(weft_comm *c, int peer);
/* For survive.c, when the comm has failed and its tasks no longer pass: takes what has come. */
void mail_receive(weft_comm *c);
#endif
