/* Windows between hosts: where ranks share no memory, what they put and notify goes to the owner, which does it.
 *
 *   remote.c       the state of a comm, barriers of the group, peers that are gone, the end
 *   remote_peer.c  peers, mail to them, and waiting for them
 *   remote_out.c   what goes: puts, and releases: notifies, arrivals at barriers and all else that tells others of puts
 *   remote_in.c    what comes
 *
 * Operations on one rank's window by another are done in the order in which they were asked for. Each is a packet;
 * bytes that do not fit into it are a message of the wire beside it, straight from place to place, or for an add
 * through memory of the receiver. The owner acknowledges puts as soon as they are done. A rank has REMOTE_OPS
 * operations, and of them REMOTE_TAGS messages, on the way to another at most; what is copied at either end is charged
 * to the comm's staging.
 *
 * Releases. A rank that sees one, or anything that was done by a rank that has seen it, also sees all puts of this rank
 * before it, as where all share memory. Puts to the same rank are done before it anyway; those to others must have been
 * acknowledged, so until then releases wait, in order, those to ranks of this host too, and go when this rank makes
 * progress.
 *
 * Everything here is done with the progress lock of the comm's family, and never calls back to the user. */
#ifndef WEFT_WINDOW_REMOTE_H
#define WEFT_WINDOW_REMOTE_H
#include "comm/mail.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"
#include "window/window.h"

#define REMOTE_OPS 64
#define REMOTE_TAGS 8
#define REMOTE_PIECE \
    ((size_t)4 << 20) /* bytes of a message of a put: acknowledged ones show that the peer is at work */
#define REMOTE_COPY \
    ((size_t)64 << 10)       /* bytes of a message of an add; and of a put that is copied, so that it need not wait */
#define REMOTE_RELEASES 1024 /* that wait */
#define REMOTE_BUDGET ((int64_t)4 << 20) /* for copies, at most */

enum remote_kind {
    REMOTE_PUT = MAIL_KIND(MAIL_WINDOW, 1),
    REMOTE_ADD = MAIL_KIND(MAIL_WINDOW, 2),
    REMOTE_SET = MAIL_KIND(MAIL_WINDOW, 3), /* of a signal */
    REMOTE_PLUS = MAIL_KIND(MAIL_WINDOW, 4),
    REMOTE_TURN = MAIL_KIND(MAIL_WINDOW, 5), /* of a barrier with this neighbour; the operations are those up to here */
    REMOTE_ACK = MAIL_KIND(MAIL_WINDOW, 6),  /* `value` of your operations are done */
    REMOTE_ENTERED = MAIL_KIND(
        MAIL_WINDOW, 7), /* from first rank of a host to first rank: ranks of mine have entered barriers of the group */
    REMOTE_FREED = MAIL_KIND(MAIL_WINDOW, 8), /* I have freed this window, after `value` barriers of the group */
    REMOTE_ARRIVE = MAIL_KIND(MAIL_WINDOW, 9) /* not mailed: this rank's own arrival at a barrier of the group */
};

struct remote_mail {
    uint32_t kind;
    int32_t slot; /* whose tag the bytes come with; -1: they are here */
    uint64_t window;
    uint64_t at;    /* of a put: bytes from the data on */
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

/* A message on its way out. Its slot is free when the wire is done with it and the operation was acknowledged. */
struct remote_send {
    struct wire_message *wire; /* NULL: done */
    char *copy;                /* NULL: from the memory of the caller, which waits */
    size_t bytes;
    uint64_t op;
};

/* A packet that came and cannot be done yet. */
struct remote_item {
    struct remote_item *next;
    struct wire_message *wire; /* NULL: has not begun, or has none */
    char *room;                /* of an add */
    struct remote_mail mail;   /* as much as came */
};

/* A rank of another host with which there was something. */
struct remote_peer {
    struct remote_peer *next;
    int rank;
    int64_t heard_at;
    /* out */
    uint64_t sent, acked; /* operations */
    uint64_t
        puts[REMOTE_OPS]; /* of operation n in n % REMOTE_OPS: its number among all puts of this rank; 0: it is none */
    struct remote_send sends[REMOTE_TAGS];
    /* in */
    uint64_t done, told; /* operations; and how many it was told of */
    bool owes;           /* a put is among those that it was not told of */
    struct remote_item *first, **last;
};

struct remote {
    struct comm_task task; /* first: a task is its remote */
    weft_comm *comm;
    weft_window *windows;       /* that this rank, or one of another host, has not closed yet */
    struct remote_peer **peers; /* of each rank, or NULL */
    struct remote_peer *used;   /* a list of those that are there */
    uint64_t *tags_in,
        *tags_out; /* of each rank of other hosts: the first of REMOTE_TAGS; both NULL until the first window is made */
    struct remote_release *first, **last;
    _Atomic int releases;           /* of them; also looked at without the progress lock */
    uint64_t puts;                  /* of this rank, all in all */
    int64_t budget, copied, roomed; /* bytes: allowed for copies here and rooms, half each; taken */
    int nremote;                    /* ranks of other hosts */
};

struct remote_release {
    struct remote_release *next;
    weft_window *w;
    int rank; /* -1: for all */
    uint32_t kind, signal;
    uint64_t value, puts; /* puts that came before */
    bool embedded;        /* in the window */
};

/* What a window has in addition on a comm of several hosts. */
struct window_remote {
    weft_window *next;       /* of the comm's */
    uint64_t id;             /* the same on all ranks */
    uint64_t bytes;          /* of its data */
    uint64_t digest;         /* of what was asked for */
    _Atomic uint64_t *freed; /* of each rank of other hosts: 0, or one more than the barriers of the group that it had
                              * entered when it closed its window */
    int nfreed;
    bool gone;   /* the user has freed it, */
    bool parted; /* and the others were told */
    bool stuck;  /* the wire could not be made to let go of its memory */
    struct remote_release part;
    /* kept by the first rank of a host */
    uint64_t *told; /* of each rank of this host: barriers of the group that the other hosts were told of */
    int entered;    /* all ranks before it have entered the barrier of the group that is not complete yet */
};

/* ---- remote.c ---- */

/* Is the comm one whose ranks do not all share memory? */
static inline bool remote_wide(const weft_comm *c)
{
    return c->link->hosts && c->link->hosts->nhosts > 1;
}
/* For the first window of a wide comm; does nothing if it was done. It ends with the comm: what this rank has put and
 * notified leaves it, within some seconds. */
int remote_open(weft_comm *c);
int remote_tags(weft_comm *c);      /* when all ranks have; in the same order of calls on all */
void remote_add(weft_window *w);    /* from here on others' operations find it */
void remote_remove(weft_window *w); /* it was refused */
void remote_free(
    weft_window *w); /* by the user; it goes when all ranks of other hosts have closed theirs, or with the comm */

uint64_t remote_entered(const weft_window *w, int rank); /* barriers of the group, as far as is known here */
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
/* Moves mail until met(arg). p: the peer to blame if it does nothing for the deadline; NULL: all that have puts to
 * acknowledge. */
int remote_peer_wait(struct remote *r, const struct remote_peer *p, bool (*met)(void *arg), void *arg);
/* WEFT_ETIMEOUT, with the ranks that have puts to acknowledge. */
int remote_peer_late(const struct remote *r, const char *call);

/* ---- remote_out.c ---- */

int remote_out_put(weft_window *w, int rank, uint64_t at, const void *src, size_t bytes, int add /* dtype; 0: store */);
/* Does it, or has it wait; for a rank of any host, but not this rank itself. */
int remote_out_release(weft_window *w, int rank, uint32_t kind, uint32_t signal, uint64_t value);
void remote_out_part(weft_window *w); /* the release that says that the window is freed; cannot fail */
void remote_out_acked(struct remote_peer *p, uint64_t ops);
void remote_out_forget(struct remote *r, struct remote_peer *p); /* it has left: nothing is waited for */
bool remote_out_move(struct remote *r);
bool remote_out_quiet(const struct remote *r); /* nothing waits, and only signals are to be acknowledged */
bool remote_out_sent(const struct remote *r);  /* nothing waits, and the wire is done with all messages */
void remote_out_end(struct remote *r);         /* gives up what is on its way */

/* ---- remote_in.c ---- */

void remote_in_take(struct remote *r, struct remote_peer *p, const struct remote_mail *m, size_t n);
bool remote_in_move(struct remote *r);
void remote_in_end(struct remote *r);
#endif
