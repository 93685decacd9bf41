/* Packets of the survivor agreement: survive_mail.c sends them, survive_take.c takes them. A set of ranks that does not
 * fit into one packet goes in several, in order. */
#ifndef WEFT_COMM_SURVIVE_PACKET_H
#define WEFT_COMM_SURVIVE_PACKET_H
#include "comm/mail.h"
#include "transport/hosts/hosts.h"

/* Numbers 2 and 5 were words and reports of one rank alone: versions of weft that differ do not mix
 * (wire_tcp_proof.c). */
enum {
    SURVIVE_ASKS = MAIL_KIND(MAIL_SURVIVE, 1),  /* number: the agreement that its sender is in */
    SURVIVE_DEAD = MAIL_KIND(MAIL_SURVIVE, 3),  /* a part of the set of the dead */
    SURVIVE_HOLDS = MAIL_KIND(MAIL_SURVIVE, 4), /* ballot: of an accepted list; a part of it */
    SURVIVE_QUITS = MAIL_KIND(MAIL_SURVIVE, 6), /* its sender closes the comm, and has not gone on with any list */
    SURVIVE_GIVES_UP =
        MAIL_KIND(MAIL_SURVIVE, 7), /* ballot: the attempt to open a comm again; number: the rank gone, plus 1 */
    /* ballot, phase: a leader's word; a part of its list; number: the hosts to speak for (survive_tree.c): the first
     * one, times 2^32, and how many */
    SURVIVE_LEADS = MAIL_KIND(MAIL_SURVIVE, 8),
    SURVIVE_AWAY =
        MAIL_KIND(MAIL_SURVIVE, 9), /* a part of the set of ranks that its sender, or one below it, cannot reach */
    /* ballot, phase: a leader's word; a part of the set of ranks that have answered it; number: the highest ballot that
     * was promised; held: that of the list that came before it, which is the newest that one of these ranks has
     * accepted */
    SURVIVE_ANSWERS = MAIL_KIND(MAIL_SURVIVE, 10)
};

#define SURVIVE_HEAD 40
#define SURVIVE_PART ((WIRE_MAIL - SURVIVE_HEAD) / sizeof(uint64_t)) /* words of a set in one packet */

struct survive_packet {
    uint32_t kind;
    uint32_t first, n; /* which words of a set it has */
    uint32_t phase;
    uint64_t ballot, number, held;
    uint64_t set[SURVIVE_PART];
};

_Static_assert(offsetof(struct survive_packet, set) == SURVIVE_HEAD && sizeof(struct survive_packet) <= WIRE_MAIL,
               "a packet fits");
#endif
