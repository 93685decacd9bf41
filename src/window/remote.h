/* Windows between hosts: ranks share no memory, so a rank mails its puts and notifies to the owner of the window, and
 * the owner carries them out.
 *
 *   remote.c       the state of a comm, barriers of the group, peers that are gone, the end
 *   remote_peer.c  peers, mail to them, and waiting for them
 *   remote_out.c   what goes: puts, and releases: notifies, arrivals at barriers and whatever else tells others of puts
 *   remote_in.c    what comes
 *
 * The owner carries out the operations of one rank in the order in which that rank asked for them. Each operation is a
 * packet. Bytes that do not fit into the packet are a message of the wire beside it. The message of a put goes straight
 * from place to place; that of an add goes through memory of the receiver. The owner acknowledges puts as soon as they
 * are done. A rank has at most REMOTE_OPS operations on the way to another, and at most REMOTE_TAGS of them have
 * messages. What is copied at either end is charged to the comm's staging.
 *
 * Releases. A rank that sees a release of this rank also sees all puts that this rank did before it, as within a host.
 * So does a rank that sees something that was done after the release was seen. Puts to the same rank are done before
 * the release anyway. Puts to other ranks must have been acknowledged. Until then releases wait in a queue, also those
 * to ranks of this host; they go, in order, when this rank makes progress.
 *
 * The caller of everything here holds the progress lock of the comm's family. Nothing here calls a callback of the
 * user. */
#ifndef WEFT_WINDOW_REMOTE_H
#define WEFT_WINDOW_REMOTE_H
#include "comm/mail.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"
#include "window/window.h"

#define REMOTE_OPS 64
#define REMOTE_TAGS 8
/* Most bytes of a message of a put: acknowledgements show that the peer is at work. */
#define REMOTE_PIECE ((size_t)4 << 20)
/* Most bytes of a message of an add, and of a put that is copied so that its caller need not wait. */
#define REMOTE_COPY ((size_t)64 << 10)
#define REMOTE_RELEASES 1024             /* most releases that wait */
#define REMOTE_BUDGET ((int64_t)4 << 20) /* most bytes of copies */

enum remote_kind {
    REMOTE_PUT = MAIL_KIND(MAIL_WINDOW, 1),
    REMOTE_ADD = MAIL_KIND(MAIL_WINDOW, 2),
    REMOTE_SET = MAIL_KIND(MAIL_WINDOW, 3), /* of a signal */
    REMOTE_PLUS = MAIL_KIND(MAIL_WINDOW, 4),
    REMOTE_TURN = MAIL_KIND(MAIL_WINDOW, 5), /* of a barrier with this neighbour; the kinds up to here are operations */
    REMOTE_ACK = MAIL_KIND(MAIL_WINDOW, 6),  /* `value` of your operations are done */
    REMOTE_ENTERED = MAIL_KIND(
        MAIL_WINDOW, 7), /* from first rank of a host to first rank: ranks of mine have entered barriers of the group */
    REMOTE_FREED = MAIL_KIND(MAIL_WINDOW, 8), /* I have freed this window, after `value` barriers of the group */
    REMOTE_ARRIVE = MAIL_KIND(MAIL_WINDOW, 9) /* not mailed: this rank's own arrival at a barrier of the group */
};

struct remote_mail {
    uint32_t kind;
    int32_t slot; /* the bytes come as a message with the tag of this slot; -1: they are in the packet */
    uint64_t window;
    uint64_t at;    /* of a put: offset in the data, in bytes */
    uint64_t value; /* of a put: bytes */
    uint32_t dtype, signal;
    char bytes[WIRE_MAIL - 40];
};
_Static_assert(sizeof(struct remote_mail) == WIRE_MAIL, "a mail");
#define REMOTE_HEAD offsetof(struct remote_mail, bytes)
#define REMOTE_INLINE (WIRE_MAIL - REMOTE_HEAD)

struct remote_entry {
    uint64_t rank, generation;
};

/* A message that is being sent. Its slot is free when the wire is done with it and the operation was acknowledged. */
struct remote_send {
    struct wire_message *wire; /* NULL: done */
    char *copy;                /* NULL: the wire reads the caller's memory, and the caller waits */
    size_t bytes;
    uint64_t op;
};

/* A packet that came and cannot be done yet. */
struct remote_item {
    struct remote_item *next;
    struct wire_message *wire; /* NULL: the receive has not begun, or there is no message */
    char *room;                /* of an add */
    struct remote_mail mail;   /* the packet, as long as it came */
};

/* A rank of another host with which this one had operations. */
struct remote_peer {
    struct remote_peer *next;
    int rank;
    int64_t heard_at;
    /* out */
    uint64_t sent, acked; /* operations */
    /* Of operation n in n % REMOTE_OPS: its number among all puts of this rank; 0: it is not a put. */
    uint64_t puts[REMOTE_OPS];
    struct remote_send sends[REMOTE_TAGS];
    /* in */
    uint64_t done, told; /* operations that were done, and those of them that were acknowledged */
    bool owes;           /* a put is among those that were not acknowledged */
    struct remote_item *first, **last;
};

struct remote {
    struct comm_task task; /* first member: a pointer to it is one to the remote */
    weft_comm *comm;
    weft_window *windows;       /* windows that this rank, or a rank of another host, has not closed yet */
    struct remote_peer **peers; /* by rank; NULL: not used yet */
    struct remote_peer *used;   /* the list of peers that are in use */
    uint64_t *tags_in,
        *tags_out; /* of each rank of other hosts: the first of REMOTE_TAGS; both NULL until the first window is made */
    struct remote_release *first, **last;
    _Atomic int releases; /* number of releases that wait; also read without the progress lock */
    uint64_t puts;        /* number of puts of this rank so far */
    /* Bytes: budget for sender's copies and receiver's rooms, half each; used by copies; used by rooms. */
    int64_t budget, copied, roomed;
    int nremote; /* ranks of other hosts */
};

struct remote_release {
    struct remote_release *next;
    weft_window *w;
    int rank; /* -1: for all */
    uint32_t kind, signal;
    uint64_t value, puts; /* the puts that it waits for: those before it */
    bool embedded;        /* the struct is a member of the window */
};

/* What a window has in addition on a comm of several hosts. */
struct window_remote {
    weft_window *next; /* of the comm's */
    uint64_t id;       /* the same on all ranks */
    uint64_t bytes;    /* of its data */
    uint64_t digest;   /* of the description that the user gave */
    /* For each rank of other hosts: 0, or 1 + the barriers of the group that it had entered when it closed its
     * window. */
    _Atomic uint64_t *freed;
    int nfreed;
    bool gone;   /* the user has freed it */
    bool parted; /* the other ranks were told so */
    bool stuck;  /* the wire could not be stopped from using its memory */
    struct remote_release part;
    /* kept by the first rank of a host */
    uint64_t *told; /* for each rank of this host: barriers of the group that the other hosts were told of */
    int entered;    /* all ranks with a lower number have entered the current barrier of the group */
};

/* ---- remote.c ---- */

/* Are the ranks of the comm on several hosts, so that not all share memory? */
static inline bool remote_wide(const weft_comm *c)
{
    return c->link->hosts && c->link->hosts->nhosts > 1;
}
/* Called for each window of a wide comm; only the first call does something. It ends with the comm, which waits some
 * seconds until this rank's puts and notifies are sent. */
int remote_open(weft_comm *c);
int remote_tags(weft_comm *c);      /* after remote_open on all ranks; all ranks make these calls in the same order */
void remote_add(weft_window *w);    /* from here on others' operations find it */
void remote_remove(weft_window *w); /* the window was refused */
/* By the user; the memory is freed when all ranks of other hosts have closed theirs, or with the comm. */
void remote_free(weft_window *w);

/* Barriers of the group that the rank has entered, as far as is known here. */
uint64_t remote_entered(const weft_window *w, int rank);
static inline bool remote_freed(const weft_window *w, int rank)
{
    return atomic_load_explicit(&w->remote->freed[rank], memory_order_seq_cst) != 0;
}

/* The window that a mail is for; NULL: there is none. */
static inline weft_window *remote_window(const struct remote *r, const struct remote_mail *m)
{
    weft_window *w = r->windows;
    while (w && w->remote->id != m->window)
        w = w->remote->next;
    return w;
}

/* ---- remote_peer.c ---- */

struct remote_peer *remote_peer(struct remote *r, int rank); /* NULL: no memory */
int remote_peer_post(struct remote *r, int rank, const struct remote_mail *m, size_t n);
/* Moves mail until met(arg). p is the peer to blame if it shows nothing for the deadline; NULL: all peers that have
 * puts to acknowledge. */
int remote_peer_wait(struct remote *r, const struct remote_peer *p, bool (*met)(void *arg), void *arg);
/* Returns WEFT_ETIMEOUT with a text that names the ranks that have puts to acknowledge. */
int remote_peer_late(const struct remote *r, const char *call);

/* ---- remote_out.c ---- */

int remote_out_put(weft_window *w, int rank, uint64_t at, const void *src, size_t bytes, int add /* dtype; 0: store */);
/* Does the release now, or queues it. For a rank of any host other than this rank itself. */
int remote_out_release(weft_window *w, int rank, uint32_t kind, uint32_t signal, uint64_t value);
void remote_out_part(weft_window *w); /* the release that says that the window is freed; cannot fail */
void remote_out_acked(struct remote_peer *p, uint64_t ops);
/* The peer has left: nothing is expected from it any more. */
void remote_out_forget(struct remote *r, struct remote_peer *p);
bool remote_out_move(struct remote *r);
bool remote_out_quiet(const struct remote *r); /* no release waits, and only signals are to be acknowledged */
bool remote_out_sent(const struct remote *r);  /* no release waits, and the wire is done with all messages */
void remote_out_end(struct remote *r);         /* gives up messages that are being sent */

/* ---- remote_in.c ---- */

void remote_in_take(struct remote *r, struct remote_peer *p, const struct remote_mail *m, size_t n);
bool remote_in_move(struct remote *r);
void remote_in_end(struct remote *r);
#endif
