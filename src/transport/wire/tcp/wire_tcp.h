/* The library's own wire: TCP sockets, one connection between two ranks that use each other. Each file uses only those
 * above it:
 *
 *   wire_tcp_card.c    addresses: this rank's, and the order in which a peer's are tried
 *   wire_tcp_peer.c    what a rank knows of another one, from its first use on
 *   wire_tcp_memory.c  the memory of a message, in pieces
 *   wire_tcp_lane.c    where messages of one tag meet what has come for them
 *   wire_tcp_inbox.c   mail that has come
 *   wire_tcp_queue.c   what is to leave: short frames, and messages that are being sent
 *   wire_tcp_proof.c   proving that a connection is a rank's of this group
 *   wire_tcp_sensor.c  asking a peer's kernel whether the peer's process still listens
 *   wire_tcp_link.c    the connection with one peer, and its end
 *   wire_tcp_out.c     writing to the socket
 *   wire_tcp_meet.c    connecting and being connected
 *   wire_tcp_watch.c   peers that are silent, or whose connection has ended: whether they live
 *   wire_tcp_data.c    messages that are set up once and started many times
 *   wire_tcp_in.c      reading from the socket, frame by frame, into the right place where it is known
 *   wire_tcp.c         open and close, progress and sleep, which peer is gone
 *
 * Prefix of wire_tcp_peer.c: tcp_peer. Prefix of wire_tcp_card.c: tcp_card_. Prefix of wire_tcp_memory.c: tcp_memory_.
 * Prefix of wire_tcp_lane.c: tcp_lane_. Prefix of wire_tcp_inbox.c: tcp_inbox_. Prefix of wire_tcp_queue.c: tcp_queue_.
 * Prefix of wire_tcp_link.c: tcp_link_. Prefix of wire_tcp_out.c: tcp_out_. Prefix of wire_tcp_meet.c: tcp_meet_.
 * Prefix of wire_tcp_data.c: tcp_data_. Prefix of wire_tcp_in.c: tcp_in_. Prefix of wire_tcp_sensor.c: tcp_sensor_.
 * Prefix of wire_tcp_watch.c: tcp_watch_. Prefix of wire_tcp_proof.c: tcp_proof_.
 *
 * A connection carries frames: a head and bytes. The bytes of a message go from its memory to the socket, and from the
 * socket into the memory of the receive that was started for it, without a copy between. A message that no receive
 * waits for must not hold up what comes behind it. So a message of more than TCP_EAGER bytes needs the receiver's
 * permission, a GRANT; so does each WIRE_AHEAD-th start of a small one. The receiver sends the grant of a large message
 * when it starts the receive, and that of a small one when the message before it has come. If it cannot know that one
 * is needed, it sends the grant when the sender's OFFER comes. Small messages that no receive waits for yet are kept
 * until one is started. Both ends count the starts of a message: a grant is for one start. Byte order is that of the
 * machines, which is the same. */
#ifndef WEFT_TRANSPORT_WIRE_TCP_WIRE_TCP_H
#define WEFT_TRANSPORT_WIRE_TCP_WIRE_TCP_H
#include <netinet/in.h>
#include <sys/uio.h>

#include "transport/wire/wire.h"

#define TCP_EAGER ((size_t)8 << 10) /* a message of at most this many bytes needs no grant */
#define TCP_FRAME                                                                                                    \
    ((size_t)256 << 10)              /* bytes of a message in one frame; after a frame other messages get their turn \
                                      */
#define TCP_STAGE ((size_t)16 << 10) /* bytes that are read before their place is known */
#define TCP_TURN ((size_t)1 << 20)   /* bytes that one connection moves before other connections get their turn */
#define TCP_PIECES 1024              /* most pieces of memory in one system call: the system's IOV_MAX */
#define TCP_ADDRESSES 16             /* most addresses of a rank; others are not tried */
#define TCP_TAG_BITS 62

enum tcp_kind { TCP_MAIL = 1, TCP_DATA, TCP_OFFER, TCP_GRANT, TCP_ABORT, TCP_BYE };

struct tcp_head {
    uint32_t kind, bytes; /* bytes: how many follow */
    uint64_t tag;
    uint64_t value; /* DATA: bytes of the whole message; OFFER and GRANT: the number of the start */
};
#define TCP_SMALL (UINT64_C(1) << 62) /* in the value of a grant: for a small message only */

/* Short bytes on their way out: a head with or without a mail, or the copied rest of a frame whose message was
 * cancelled. */
struct tcp_out {
    struct tcp_out *next;
    const void *bytes;
    size_t n;
    struct tcp_head head; /* of the offer or grant of a message */
    bool queued, owned;   /* owned: it is freed when it has left */
    bool mail;
};

/* A mail that has come, or a notice that a peer is gone. */
struct tcp_mail {
    struct tcp_mail *next;
    int peer;
    enum transport_fate fate; /* HERE: this is a mail */
    size_t n;
    unsigned char *bytes; /* follow the struct in memory */
};

/* A message that has come, or is coming, before its receive was started. */
struct tcp_arrival {
    struct tcp_arrival *next;
    size_t bytes;
    bool whole;
    unsigned char data[];
};

enum tcp_into { TCP_NOWHERE, TCP_MEMORY, TCP_STASH, TCP_DISCARD };

/* The messages of one tag in one direction with one peer. The lane exists as long as it has a message, or as something
 * has come for its next message. */
struct tcp_lane {
    struct tcp_lane *next; /* of the same bucket */
    uint64_t tag;
    int peer;
    bool send;
    struct tcp_message *message; /* the one that was made last; older ones, which it replaces, may be dropped later */
    uint64_t starts;
    int64_t granted; /* send: the value of a grant that came before it was needed; -1: none */
    /* receive: */
    bool offered, large; /* offered: the sender waits for a grant for its start number `offer`; large: the last
                            message needed one */
    uint64_t offer;
    enum tcp_into into; /* where the message that is coming goes; NOWHERE: none is coming */
    bool unfit;         /* that message is discarded because it is larger than the receive */
    size_t total, left;
    struct tcp_arrival *first, *last;
    int waiting; /* how many these are */
};

enum tcp_state { TCP_IDLE, TCP_WAITS, TCP_MOVES, TCP_DONE, TCP_UNFIT };

struct tcp_message {
    struct wire_message base;
    struct tcp_lane *lane;
    struct tcp_message *next;  /* in the list of messages that are being sent to the peer */
    struct tcp_message *under; /* the message that it replaces on the lane */
    enum tcp_state state; /* WAITS: a send waits for its grant. A receive that was started MOVES. UNFIT: what came is
                             too long or too short. */
    int64_t granted;      /* receive: the start that this one has granted; -1: none */
    bool early;           /* receive: the next start was granted when the last message came */
    struct tcp_out note;  /* the offer or the grant */
    size_t part, offset;  /* where the next byte is read or written */
    size_t left;          /* send: bytes that have not left */
    size_t nparts;
    struct wire_part parts[];
};

enum tcp_link { TCP_UNUSED, TCP_CALLING, TCP_ASKING, TCP_OPEN, TCP_LOST };

/* What a file that epoll reports is. */
enum tcp_source { TCP_LISTENER, TCP_NEWCOMER, TCP_PEER, TCP_SENSOR };

#define TCP_NONCE 16
#define TCP_MAC 16

/* How a connection begins (wire_tcp_proof.c). The rank that connects sends a call. */
struct tcp_call {
    uint64_t magic;
    uint32_t from, to;
    uint64_t number; /* of the calls from this rank to that one */
    unsigned char nonce[TCP_NONCE], mac[TCP_MAC];
};

/* The rank that is called answers. */
struct tcp_answer {
    uint64_t magic;
    unsigned char nonce[TCP_NONCE], mac[TCP_MAC];
};

/* The caller proves that it has the answer. Or it leaves without having waited for one: then its last frames follow. */
struct tcp_proof {
    uint64_t bytes; /* 0: this is a proof; otherwise bytes of last frames */
    unsigned char mac[TCP_MAC];
};

/* A fresh connection to a peer's listener, on which nothing is sent. */
struct tcp_sensor {
    enum tcp_source source;
    int fd;           /* -1: there is none */
    int64_t began;    /* when the peer was first asked; 0: it is not asked */
    int64_t answered; /* when its kernel took the connection; 0: not yet */
    int tries;        /* connections that ended again */
    bool refused;     /* no process listens there */
};

struct tcp_peer {
    enum tcp_source source;
    enum tcp_link link;
    int rank, fd;
    struct tcp_host *host;
    struct tcp_peer *next_used, *next_made;
    enum transport_fate fate;
    int why; /* why it is LOST: an errno, or 0 */

    /* calling it */
    int address, rounds; /* of its addresses, in the order in which they are tried */
    bool turned_away;    /* a process answered, but not as the peer would */
    bool unclear;        /* a call failed other than by a refusal: whether the peer lives is not known */
    int64_t since;
    uint64_t calls;       /* how often this rank has called it */
    struct tcp_call call; /* the last one */
    struct tcp_answer answer;
    size_t answer_got;

    /* called by it */
    uint64_t heard;                      /* the highest number of its calls: each of them counts once */
    int reserve;                         /* a connection that the peer made meanwhile; -1: none */
    struct tcp_call reserve_call, taken; /* calls of the one in reserve, and of the one that was answered */
    unsigned char nonce[TCP_NONCE];      /* of that answer */
    bool unsure; /* the peer made the connection, and may have given it up before the answer came: until its proof has
                    come, nothing is sent and nothing is believed */
    struct tcp_proof proof;
    size_t proof_got;
    unsigned char *words; /* frames of a peer that left before it had an answer */
    size_t words_got;

    /* out */
    struct tcp_out *first, **last;
    size_t first_sent; /* bytes of the first one that have left */
    struct tcp_message *sends, **sends_last;
    struct tcp_head frame; /* of the first of `sends` */
    size_t frame_sent;     /* bytes of head and body that have left; 0: the frame is not begun */
    bool blocked;          /* the socket is full: epoll reports when it has room */
    bool dirty;            /* something waits for the next progress */
    bool mute;             /* nothing can be written any more; what the peer has sent is still read */
    struct tcp_peer *next_dirty;

    /* in */
    struct tcp_head head;
    size_t head_got; /* bytes of the head that have come; all of them: inside a frame */
    size_t frame_left;
    bool bulk; /* a large frame is likely to come next: its head is read alone, so that its bytes need no copy */
    struct tcp_lane *lane; /* of a DATA frame */
    struct tcp_mail *mail; /* of a MAIL frame */
    struct tcp_mail end;   /* for the notice that the peer is gone; it has no bytes */

    /* does it live? */
    int64_t awaits_since; /* since when the peer's kernel owes an answer; 0: it owes none */
    int64_t alive_at;     /* when it was last asked and answered */
    bool probed;          /* the keepalive asks on its connection */
    bool broken;          /* it is LOST, and not known yet whether its process lives */
    struct tcp_sensor sensor;
};

/* An incoming connection that has not said yet which rank it is. */
struct tcp_newcomer {
    enum tcp_source source;
    struct tcp_newcomer *next;
    int fd; /* -1: the connection is over or has become a peer's */
    int64_t since;
    struct tcp_call call;
    size_t got;
};

struct tcp_address {
    unsigned char family; /* 4 or 6 */
    unsigned char prefix; /* bits of its network */
    bool loopback;
    uint16_t port;
    unsigned char bytes[16];
};

/* What all ranks know of each other, in one copy for the ranks of a host. */
struct tcp_card {
    unsigned char secret[WIRE_KEY]; /* random; the group's key is made of all of them, and then they are wiped */
    unsigned char check[8];         /* shows whether both ranks have the same key of `wire_boot` */
    uint32_t files, need;           /* files: the limit of a process that needs more; 0: it has enough */
    uint64_t net;                   /* equal on ranks that share a network namespace */
    uint32_t n;
    struct tcp_address at[TCP_ADDRESSES];
};

/* Ranks that share a network namespace: one kernel answers for all of them. Made for the first of them that is a
 * peer. */
struct tcp_host {
    struct tcp_host *next;
    uint64_t net;            /* 0: not known; then the rank counts as a host of its own */
    struct tcp_peer *probed; /* whose connection the keepalive asks, or asked before it ended; NULL: none */
    bool silent;             /* that one has not answered for too long */
};

struct tcp_wire {
    struct wire base;
    struct roster roster;
    const struct tcp_card *cards; /* of all ranks, in the roster */
    struct tcp_peer **peers;     /* of each rank; NULL: it is no peer yet. Zeroed memory, which is touched only there */
    struct tcp_host *hosts;      /* of the peers */
    int nprobed;                 /* how many of them are probed */
    uint64_t luck;               /* a random number, so that processes do not probe in step */
    struct tcp_peer *made;       /* all of them */
    struct tcp_peer *used;       /* the peer that was used last, and from there all that were */
    unsigned char key[WIRE_KEY]; /* known to the ranks of this group only */
    enum tcp_source source;      /* TCP_LISTENER: epoll reports the listeners with its address */
    int listeners[TCP_ADDRESSES], nlisteners;
    bool deaf; /* no files are left for newcomers: the listeners are not watched for a while */
    struct tcp_newcomer *newcomers;
    int nnewcomers;
    bool gone_newcomers; /* some newcomers are to be freed */
    struct tcp_peer *dirty;
    struct tcp_lane **buckets;
    size_t nbuckets, nlanes; /* a power of two */
    struct tcp_mail *inbox, **inbox_last, *reading;
    int64_t mails;     /* mails in queues, which have not left yet */
    int64_t looked_at; /* when the connections were last looked at */
    int buffer;        /* SO_SNDBUF and SO_RCVBUF; 0: the kernel chooses */
    bool leaves;       /* this wire is being closed */
    unsigned char stage[TCP_STAGE];
};

/* ---- wire_tcp_card.c ---- */
/* Addresses, without ports. *any: peers may use each of this machine's addresses. */
int tcp_card_fill(const struct wire_boot *boot, struct tcp_card *card, bool *any);
/* Do the two share a network namespace? Then the kernel ends their connections when a process ends, and no packet that
 * could get lost on the way is needed to know it. */
bool tcp_card_together(const struct tcp_card *a, const struct tcp_card *b);
socklen_t tcp_card_sockaddr(const struct tcp_address *a, struct sockaddr_storage *to); /* returns its length */
/* The ith address at which rank `me` tries to reach the peer, from 0 on; false: there are no more. */
bool tcp_card_address(const struct tcp_card *me, const struct tcp_card *peer, int i, struct sockaddr_storage *to,
                      socklen_t *n);

/* ---- wire_tcp_peer.c ---- */
/* Finds or makes the state of a peer; NULL: no memory. */
struct tcp_peer *tcp_peer(struct tcp_wire *w, int rank);
void tcp_peer_free_all(struct tcp_wire *w);

/* ---- wire_tcp_memory.c ---- */
/* Writes down where the next bytes of the message are: at most n bytes, in at most cap pieces. Returns the pieces. */
size_t tcp_memory_pieces(const struct tcp_message *m, size_t n, struct iovec *out, size_t cap);
void tcp_memory_advance(struct tcp_message *m, size_t n);                /* goes n bytes on */
void tcp_memory_put(struct tcp_message *m, const void *bytes, size_t n); /* copies n bytes there, and goes on */

/* ---- wire_tcp_lane.c ---- */
/* Finds or makes a lane; NULL: no memory. */
struct tcp_lane *tcp_lane(struct tcp_wire *w, int peer, uint64_t tag, bool send);
/* Frees a lane that has no message any more, unless something has come that its next message gets. */
void tcp_lane_leave(struct tcp_wire *w, struct tcp_lane *l);
void tcp_lane_free_all(struct tcp_wire *w);
/* Gives the first message that came before its receive was started to the receive, which is started now. */
void tcp_lane_deliver(struct tcp_lane *l);
void tcp_lane_arrived(struct tcp_lane *l); /* the message that was coming is whole */
void tcp_lane_aborted(struct tcp_lane *l); /* its sender has taken it back */

/* ---- wire_tcp_inbox.c ---- */
void tcp_inbox_post(struct tcp_wire *w, struct tcp_mail *m);
bool tcp_inbox_fetch(struct wire *w, int *peer, const void **bytes, size_t *n); /* wire_ops.fetch */

/* ---- wire_tcp_queue.c ---- */
void tcp_queue(struct tcp_wire *w, struct tcp_peer *p,
               struct tcp_out *o); /* o is freed, or is its owner's again, when sent */
/* Queues a copy; false: no memory. */
bool tcp_queue_copy(struct tcp_wire *w, struct tcp_peer *p, const struct tcp_head *head, const void *bytes, size_t n);
struct tcp_out *tcp_queue_room(size_t n);                    /* an owned one, with n bytes behind it; NULL: no memory */
void tcp_queue_first(struct tcp_peer *p, struct tcp_out *o); /* queues it before all others */
void tcp_queue_pop(struct tcp_wire *w, struct tcp_peer *p);  /* the first of the queue has left */
void tcp_queue_dirty(struct tcp_wire *w, struct tcp_peer *p);     /* the next progress writes to this peer */
void tcp_queue_begin(struct tcp_peer *p, struct tcp_message *m);  /* the message is sent from now on, in its turn */
void tcp_queue_unlink(struct tcp_peer *p, struct tcp_message *m); /* it is not sent any more */
void tcp_queue_end_frame(struct tcp_peer *p);                     /* the frame of the first message has left */
void tcp_queue_clear(struct tcp_wire *w, struct tcp_peer *p);     /* nothing more is sent to this peer */

/* ---- wire_tcp_proof.c ---- */
int tcp_proof_card(const struct wire_boot *boot, struct tcp_card *card); /* fills in the secret and the check */
/* Makes the group's key of all cards, whose secrets it wipes. WEFT_EMISMATCH: a rank has another key. */
int tcp_proof_key(const struct wire_boot *boot, struct tcp_card *cards, unsigned char key[WIRE_KEY]);
bool tcp_proof_call(struct tcp_wire *w, struct tcp_peer *p); /* makes the next call; false: no random number */
/* Is it a call of a rank of this group to this one, which was not heard before? */
bool tcp_proof_hear(struct tcp_wire *w, const struct tcp_call *c);
/* Makes the answer to p->taken; false: no random number. */
bool tcp_proof_answer(const struct tcp_wire *w, struct tcp_peer *p, struct tcp_answer *a);
bool tcp_proof_answered(const struct tcp_wire *w, const struct tcp_peer *p); /* is it the answer to p->call? */
struct tcp_proof tcp_proof_make(const struct tcp_wire *w, const struct tcp_peer *p);
bool tcp_proof_holds(const struct tcp_wire *w, const struct tcp_peer *p); /* the proof, or the last frames */
/* The proof of last frames, which come after p->call without an answer. */
struct tcp_proof tcp_proof_last(const struct tcp_wire *w, const struct tcp_peer *p, const void *frames, size_t n);

/* ---- wire_tcp_sensor.c ---- */
void tcp_sensor_begin(struct tcp_wire *w, struct tcp_peer *p); /* asks, unless it is being asked already */
/* Something happened to the connection, or time has passed. */
void tcp_sensor_event(struct tcp_wire *w, struct tcp_peer *p);
void tcp_sensor_end(const struct tcp_wire *w, struct tcp_peer *p);

/* ---- wire_tcp_link.c ---- */
bool tcp_link_watch(const struct tcp_wire *w, int op, int fd, uint32_t events, void *source); /* epoll_ctl */
void tcp_link_end(int fd);                                           /* ends a connection that epoll does not watch */
void tcp_link_shut(const struct tcp_wire *w, int fd);                /* ends one that it watches */
void tcp_link_hang_up(const struct tcp_wire *w, struct tcp_peer *p); /* ends the peer's, if there is one */
/* Ends the connection with a peer for good. HERE: its fate is not known; tcp_watch_look finds it out. */
void tcp_link_lost(struct tcp_wire *w, struct tcp_peer *p, enum transport_fate fate, int why);
void tcp_link_settle(struct tcp_wire *w, struct tcp_peer *p, enum transport_fate fate); /* of one that is LOST */
int tcp_link_error(const struct tcp_wire *w, int peer); /* of a peer whose fate is known */

/* ---- wire_tcp_out.c ---- */
void tcp_out_push(struct tcp_wire *w, struct tcp_peer *p); /* writes what the socket takes */
bool tcp_out_push_dirty(struct tcp_wire *w);               /* true: there was something to write */
/* The memory of a queued frame, or of a message, will not be used any more. Copies what must still be sent. */
void tcp_out_withdraw(struct tcp_wire *w, struct tcp_peer *p, struct tcp_out *o);
void tcp_out_stop(struct tcp_wire *w, struct tcp_peer *p, struct tcp_message *m);
void tcp_out_bye(struct tcp_wire *w, struct tcp_peer *p); /* queues the farewell of this rank */

/* ---- wire_tcp_meet.c ---- */
/* Listens at the addresses of the card, and fills in their ports. any: at all addresses of this machine. */
int tcp_meet_listen(struct tcp_wire *w, const struct wire_boot *boot, struct tcp_card *card, bool any);
/* Begins to call the peer if it was not used before. */
int tcp_meet_use(struct tcp_wire *w, int peer);
bool tcp_meet_accept(struct tcp_wire *w); /* true: there may be more */
void tcp_meet_newcomer(struct tcp_wire *w, struct tcp_newcomer *g);
void tcp_meet_event(struct tcp_wire *w, struct tcp_peer *p); /* for a peer that is CALLING or ASKING */
void tcp_meet_open(struct tcp_wire *w, struct tcp_peer *p);  /* the connection with the peer is sure */
/* For a peer that is unsure: reads its proof, or its last frames, to p->words. False: nothing to read frames from. */
bool tcp_meet_prove(struct tcp_wire *w, struct tcp_peer *p);
/* For a peer that is unsure: its connection has ended, or is not the peer's. */
void tcp_meet_call_back(struct tcp_wire *w, struct tcp_peer *p);
void tcp_meet_sweep(struct tcp_wire *w);                                 /* frees newcomers that are gone */
void tcp_meet_look(struct tcp_wire *w, struct tcp_peer *p, int64_t now); /* now and then: calls that take too long */
void tcp_meet_look_newcomers(struct tcp_wire *w, int64_t now);
/* This rank leaves, and the peer, which it has called, is busy and has not answered: sends all that there is to send
 * behind the call, where the peer finds it. */
void tcp_meet_farewell(struct tcp_wire *w, struct tcp_peer *p);

/* ---- wire_tcp_watch.c ---- */
void tcp_watch_look(struct tcp_wire *w);                       /* now and then */
void tcp_watch_sensed(struct tcp_wire *w, struct tcp_peer *p); /* its sensor has something to read */

/* ---- wire_tcp_data.c ---- */
void tcp_data_offered(struct tcp_wire *w, struct tcp_lane *l, uint64_t number);
void tcp_data_granted(struct tcp_wire *w, struct tcp_lane *l, uint64_t value);
void tcp_data_arrived(struct tcp_wire *w, struct tcp_lane *l); /* after tcp_lane_arrived */
/* As in wire_ops. */
int tcp_data_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                  struct wire_message **out);
int tcp_data_make_list(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                       struct wire_message **out);
int tcp_data_start(struct wire_message *m);
int tcp_data_test(struct wire_message *m);
bool tcp_data_cancel(struct wire_message *m);
void tcp_data_drop(struct wire_message *m);

/* ---- wire_tcp_in.c ---- */
void tcp_in_pull(struct tcp_wire *w, struct tcp_peer *p); /* reads what is there */
#endif
