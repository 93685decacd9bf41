/* Small control messages between ranks on different hosts. The wire carries them as packets. Each packet has an owner,
 * which has registered a handler for it.
 *
 * The mail's own packets are failures and farewells. The rank that receives them puts them into the core of the group,
 * of which each host has its own, and there all ranks of the host find them. */
#ifndef WEFT_COMM_MAIL_H
#define WEFT_COMM_MAIL_H
#include "comm/comm.h"

enum mail_owner {
    MAIL_COMM = 1,
    MAIL_RELAY,
    MAIL_SURVIVE,
    MAIL_SPLIT,
    MAIL_EXEC,
    MAIL_PIPE,
    MAIL_WINDOW,
    MAIL_TRACE,
    MAIL_OWNERS
};
/* A packet begins with a uint32_t: its owner, and the number of the packet's kind among the owner's. */
#define MAIL_KIND(owner, number) ((uint32_t)(owner) | (uint32_t)(number) << 8)

struct mail *mail_new(void);    /* NULL: no memory */
void mail_free(struct mail *m); /* one that was not opened; NULL is allowed */
/* Makes the mail of a comm on several hosts one of its tasks. The task moves the wire and hands packets that came
 * to their owners. It ends with the comm, and sends a farewell first. The relay of the comm is opened with it. */
void mail_open(weft_comm *c, struct mail *mail);

/* The calls below do nothing for a comm on one host. */

/* From here on the owner's packets go to this function. Packets without a handler are thrown away. The packet is not
 * aligned, has at least 4 bytes, and is valid until the handler returns. */
typedef void mail_handler(weft_comm *c, int peer, const void *packet, size_t bytes);
void mail_handle(weft_comm *c, enum mail_owner owner, mail_handler *handler);
/* Sends at most WIRE_MAIL bytes to one rank of another host. Returns the wire's error code, with this thread's text
 * set. A caller that waits for the peer afterwards may ignore it: that wait finds out that the peer is gone. */
int mail_send(weft_comm *c, int peer, const void *packet, size_t bytes);
/* Sends to all ranks of other hosts that have not left. In a comm that is wide, of more than MAIL_ALL ranks, only to
 * those that this rank is connected with, and if `beside` to the first ranks of the hosts next to its own in the tree
 * of hosts. */
#define MAIL_ALL 64
void mail_tell(weft_comm *c, const void *packet, size_t bytes, bool beside);
static inline bool mail_is_wide(const weft_comm *c)
{
    return c->size > MAIL_ALL;
}

/* Passes only those tasks of the comm and its siblings that move a wire. Calls no callback. */
bool mail_move(weft_comm *c);
/* Called before a sleep, with the bell armed: from here on the bell also rings for what comes by the wires of the comm
 * and its siblings. *ns is reduced to the longest sleep that these wires allow. False: something has come. *wired is
 * set if there is a wire. */
bool mail_listen(const weft_comm *c, bool *wired, int64_t *ns);
/* May a message that has come be wrong? A wire that cannot cancel still delivers a message that its sender has given
 * up, from memory that may have been reused. The sender has mailed before that it gave up; this call looks for that
 * mail. */
bool mail_doubts(weft_comm *c);
/* Makes progress until all mail and the votes of this host's ranks are sent. Gives up after ns. */
void mail_flush(weft_comm *c, int64_t ns);
void mail_failure(weft_comm *c, int code, const char *text);
/* Tells one rank of another host, with which this one has exchanged messages, why the comm has failed. A rank that
 * leaves a failed comm tells the ranks that wait for it. Otherwise they might hear that it left before they hear
 * why. */
void mail_failure_to(weft_comm *c, int peer);
/* When the comm has failed: if the rank of this host that told other hosts of it has died, this one does. */
void mail_spread_again(weft_comm *c);
/* For survive.c, when the comm has failed and its tasks are no longer passed: handles the mail that has come. */
void mail_receive(weft_comm *c);
#endif
