/* The wire of the core's own: sockets of TCP, one connection between two ranks that use each other.
 *
 *   wire_tcp.c        open and close, progress and sleep, who is gone
 *   wire_tcp_card.c   addresses: this rank's, and the order in which a peer's are tried
 *   wire_tcp_meet.c   connecting and being connected, hello and welcome
 *   wire_tcp_out.c    what leaves: a queue of short frames, and the messages that are being sent, frame by frame
 *   wire_tcp_in.c     what comes, frame by frame, into its place where it is known
 *   wire_tcp_data.c   messages that are set up once and started many times
 *
 * A connection carries frames: a head and bytes. The bytes of a message go from its memory to the socket, and from the
 * socket into the memory of the receive that was started for it, without a copy between. So that nothing that nobody
 * waits for gets in the way of what comes behind it, a message of more than TCP_EAGER bytes needs the receiver's leave,
 * a GRANT; so does each WIRE_AHEAD-th start of a small one. The receiver gives it when it starts the receive, or, where
 * it cannot know that it is asked for, when the sender's OFFER comes. Small messages that nobody waits for yet are kept
 * until somebody does. Both ends count the starts of a message: a grant is for one of them. Byte order is that of the
 * machines, which is the same. */
#ifndef WEFT_TRANSPORT_WIRE_TCP_WIRE_TCP_H
#define WEFT_TRANSPORT_WIRE_TCP_WIRE_TCP_H
#include <netinet/in.h>
#include <sys/uio.h>

#include "transport/wire/wire.h"

#define TCP_EAGER ((size_t)8 << 10)   /* bytes of a message that may come without leave */
#define TCP_FRAME ((size_t)256 << 10) /* bytes of a message in a frame: others get their turn after it */
#define TCP_STAGE ((size_t)16 << 10)  /* bytes that are read before it is known where they belong */
#define TCP_TURN ((size_t)1 << 20)    /* bytes that one connection moves before others get their turn */
#define TCP_PIECES 1024               /* of memory in one call of the system: its IOV_MAX */
#define TCP_ADDRESSES 16              /* of a rank; those beyond are not tried */
#define TCP_TAG_BITS 62

enum tcp_kind { TCP_MAIL = 1, TCP_DATA, TCP_OFFER, TCP_GRANT, TCP_ABORT, TCP_BYE, TCP_HERE };

struct tcp_head {
    uint32_t kind, bytes; /* that follow */
    uint64_t tag;
    uint64_t value; /* DATA: bytes of the whole message; OFFER and GRANT: which start */
};

/* Short bytes on their way out: a head, with or without a mail, or the rest of a frame whose memory was taken back. */
struct tcp_out {
    struct tcp_out *next;
    const void *bytes;
    size_t n;
    struct tcp_head head; /* of a message's own */
    bool queued, owned;   /* owned: freed when it has left */
    bool mail;
};

/* A mail that has come, or word that a peer is gone. */
struct tcp_letter {
    struct tcp_letter *next;
    int peer;
    enum transport_fate fate; /* HERE: a mail */
    size_t n;
    unsigned char *bytes; /* which stand behind it */
};

/* A message that has come, or is coming, before its receive was started. */
struct tcp_arrival {
    struct tcp_arrival *next;
    size_t bytes;
    bool whole;
    unsigned char data[];
};

enum tcp_into { TCP_NOWHERE, TCP_MEMORY, TCP_STASH, TCP_DISCARD };

/* The messages of one tag, one way, with one peer: there is one as long as there is a message or something has come for
 * it. */
struct tcp_lane {
    struct tcp_lane *next; /* of the same bucket */
    uint64_t tag;
    int peer;
    bool send;
    struct tcp_message
        *message; /* the one that was made last: it may take the place of others that are dropped later */
    uint64_t starts;
    int64_t granted; /* send: the start that may begin, though nobody waits for leave; -1: none */
    /* receive: */
    bool offered, large; /* the sender waits for leave to begin its start number `offer`; it needed leave last time */
    uint64_t offer;
    enum tcp_into into; /* where the message goes that is coming; NOWHERE: none is */
    bool unfit;         /* it is discarded since it is larger than the receive */
    size_t total, left;
    struct tcp_arrival *first, *last;
};

enum tcp_state { TCP_IDLE, TCP_WAITS, TCP_MOVES, TCP_DONE, TCP_UNFIT };

struct tcp_message {
    struct wire_message base;
    struct tcp_lane *lane;
    struct tcp_message *next;  /* of those that are being sent to the peer */
    struct tcp_message *under; /* whose place it takes on the lane */
    enum tcp_state state; /* WAITS: a send for its leave. A receive that was started MOVES. UNFIT: what came is too long
                             or too short. */
    int64_t granted;      /* receive: what this start gave leave for; -1: nothing */
    struct tcp_out note;  /* the offer or the grant */
    size_t part, offset;  /* where the next byte is taken from or put to */
    size_t left;          /* send: bytes that have not left */
    size_t nparts;
    struct wire_part parts[];
};

enum tcp_link { TCP_UNUSED, TCP_CALLING, TCP_ASKING, TCP_OPEN, TCP_LOST };

/* What stands at the other end of a file that epoll tells of. */
enum tcp_who { TCP_LISTENER, TCP_GUEST, TCP_PEER };

struct tcp_hello {
    uint64_t magic, nonce[2]; /* of the one that it is said to */
    uint32_t from, to;
};

struct tcp_peer {
    enum tcp_who who;
    enum tcp_link link;
    int rank, next_used, fd;
    enum transport_fate fate;
    int why; /* it is LOST: an errno, or 0 */

    /* calling it */
    int address, rounds; /* of its addresses, in the order in which they are tried */
    bool turned_away;    /* somebody answered, but not as it would */
    int64_t since;
    struct tcp_hello hello;
    size_t hello_got;
    int reserve; /* a connection that it made meanwhile; -1: none */
    bool unsure; /* it made the connection, and may have given it up before it was welcomed: nothing is sent yet */

    /* out */
    struct tcp_out *first, **last;
    size_t first_sent; /* of the first one's bytes */
    struct tcp_message *sends, **sends_last;
    struct tcp_head frame; /* of the first of `sends` */
    size_t frame_sent;     /* of head and bytes; 0: it is not begun */
    bool blocked;          /* the socket is full: epoll tells when it is not */
    bool dirty;            /* something waits for the next progress */
    bool mute;             /* it cannot be written to any more; what it sent is still read */
    struct tcp_peer *next_dirty;

    /* in */
    struct tcp_head head;
    size_t head_got; /* of it; all: inside a frame */
    size_t frame_left;
    bool bulk; /* a large frame is likely to come: its head is read alone, so that its bytes need not be copied */
    struct tcp_lane *lane;   /* of a DATA frame */
    struct tcp_letter *mail; /* of a MAIL frame */
    struct tcp_letter end;   /* for the word that it is gone; no bytes */

    int64_t awaits_since; /* an answer of its kernel; 0: it does not */
};

/* A connection that has come and has not said who it is. */
struct tcp_guest {
    enum tcp_who who;
    struct tcp_guest *next;
    int fd; /* -1: it is gone */
    int64_t since;
    struct tcp_hello hello;
    size_t got;
};

struct tcp_address {
    unsigned char family; /* 4 or 6 */
    unsigned char prefix; /* bits of its network */
    bool loopback;
    unsigned char bytes[16];
};

/* What all ranks know of each. */
struct tcp_card {
    uint64_t nonce[2];
    uint64_t net; /* the same: they share a network namespace */
    uint32_t port, n;
    struct tcp_address at[TCP_ADDRESSES];
};

struct tcp_wire {
    struct wire base;
    struct tcp_card *cards; /* of all ranks */
    struct tcp_peer *peers;
    int used;         /* the first peer that was used; -1: none */
    enum tcp_who who; /* what epoll knows the listener by */
    int listener;
    bool deaf; /* there are no more files for those who call */
    struct tcp_guest *guests;
    int nguests;
    bool gone_guests; /* some are to be freed */
    struct tcp_peer *dirty;
    struct tcp_lane **buckets;
    size_t nbuckets, nlanes; /* a power of two */
    struct tcp_letter *inbox, **inbox_last, *reading;
    int64_t mails;     /* that have not left */
    int64_t looked_at; /* the connections */
    int buffer;        /* SO_SNDBUF and SO_RCVBUF; 0: as the kernel likes */
    bool leaves;       /* it is being closed */
    unsigned char stage[TCP_STAGE];
};

int64_t tcp_now(void);

/* ---- addresses ---- */
int tcp_card_fill(const struct wire_boot *boot, struct tcp_card *card); /* all but the port */
/* The ith address at which rank `me` tries to reach the peer, from 0 on; false: there are no more. */
bool tcp_card_address(const struct tcp_card *me, const struct tcp_card *peer, int i, struct sockaddr_storage *to,
                      socklen_t *n);

/* ---- connections ---- */
int tcp_listen(struct tcp_wire *w, const struct wire_boot *boot, uint32_t *port);
/* Begins to call the peer if it was not used before. */
int tcp_use(struct tcp_wire *w, int peer);
bool tcp_accept(struct tcp_wire *w); /* true: there may be more */
void tcp_guest_event(struct tcp_wire *w, struct tcp_guest *g);
void tcp_call_event(struct tcp_wire *w, struct tcp_peer *p); /* of one that is CALLING or ASKING */
void tcp_open_peer(struct tcp_wire *w, struct tcp_peer *p);  /* its connection is sure */
void tcp_call_back(struct tcp_wire *w, struct tcp_peer *p);  /* of one that is unsure: its connection has ended */
void tcp_sweep(struct tcp_wire *w);                          /* frees guests that are gone */
void tcp_look(struct tcp_wire *w); /* every so often: calls that take too long, hosts that have vanished */
/* Ends the connection. HERE: it is not known whether the peer left. */
void tcp_lost(struct tcp_wire *w, struct tcp_peer *p, enum transport_fate fate, int why);
/* Who leaves, and has called a peer that is busy, says all that it has to say behind its hello, where the peer finds
 * it. */
void tcp_farewell(struct tcp_wire *w, struct tcp_peer *p);
int tcp_lost_error(const struct tcp_wire *w, int peer); /* of one whose fate is known */

/* ---- out ---- */
void tcp_queue(struct tcp_wire *w, struct tcp_peer *p, struct tcp_out *o);
/* Queues a copy; false: no memory. */
bool tcp_queue_copy(struct tcp_wire *w, struct tcp_peer *p, const struct tcp_head *head, const void *bytes, size_t n);
void tcp_push(struct tcp_wire *w, struct tcp_peer *p);                        /* writes what the socket takes */
bool tcp_push_dirty(struct tcp_wire *w);                                      /* true: there was something */
void tcp_withdraw(struct tcp_wire *w, struct tcp_peer *p, struct tcp_out *o); /* its memory is not used any more */
/* The message is not sent any further; its memory is not used any more. */
void tcp_stop(struct tcp_wire *w, struct tcp_peer *p, struct tcp_message *m);
void tcp_begin(struct tcp_peer *p, struct tcp_message *m); /* it may be sent from now on */
void tcp_out_clear(struct tcp_wire *w, struct tcp_peer *p);
void tcp_bye(struct tcp_wire *w, struct tcp_peer *p); /* queues it */
int tcp_mail(struct wire *w, int peer, const void *bytes, size_t n);
bool tcp_flushed(struct wire *w);

/* ---- in ---- */
void tcp_pull(struct tcp_wire *w, struct tcp_peer *p); /* reads what is there */
bool tcp_fetch(struct wire *w, int *peer, const void **bytes, size_t *n);
void tcp_post(struct tcp_wire *w, struct tcp_letter *l);

/* ---- messages ---- */
struct tcp_lane *tcp_lane(struct tcp_wire *w, int peer, uint64_t tag,
                          bool send); /* made where there is none; NULL: no memory */
/* Notes where the next bytes of the message are, n at most, in at most cap pieces; the number of pieces. */
size_t tcp_pieces(const struct tcp_message *m, size_t n, struct iovec *out, size_t cap);
void tcp_advance(struct tcp_message *m, size_t n);                /* over so many of them */
void tcp_put(struct tcp_message *m, const void *bytes, size_t n); /* copies there */
void tcp_offered(struct tcp_wire *w, struct tcp_lane *l, uint64_t number);
void tcp_granted(struct tcp_wire *w, struct tcp_lane *l, uint64_t number);
/* The message that came on the lane is whole, or its sender took it back. */
void tcp_arrived(struct tcp_lane *l);
void tcp_aborted(struct tcp_lane *l);
void tcp_lanes_free(struct tcp_wire *w);
int tcp_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send, struct wire_message **out);
int tcp_make_list(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                  struct wire_message **out);
int tcp_start(struct wire_message *m);
int tcp_test(struct wire_message *m);
bool tcp_cancel(struct wire_message *m);
void tcp_drop(struct wire_message *m);
#endif
