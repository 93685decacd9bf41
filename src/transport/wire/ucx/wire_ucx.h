/* The UCX module: tagged messages of UCP between workers whose addresses all ranks know. Each file uses only those
 * above it:
 *
 *   wire_ucx_peer.c       connecting peers, which of them are gone
 *   wire_ucx_mail.c       mail
 *   wire_ucx_end.c        ending connections
 *   wire_ucx_keepalive.c  hosts that vanish: keepalive, and connections that are not answered
 *   wire_ucx_data.c       messages that are set up once and started many times
 *   wire_ucx.c            open and close
 *
 * Prefix of wire_ucx_peer.c: ucx_peer_. Prefix of wire_ucx_mail.c: ucx_mail_. Prefix of wire_ucx_end.c: ucx_end_.
 * Prefix of wire_ucx_keepalive.c: ucx_keepalive_. Prefix of wire_ucx_data.c: ucx_data_.
 *
 * A tag of UCX has 64 bits and does not say which rank has sent. So the sender's rank is part of the tag; the highest
 * bit is set for mail. */
#ifndef WEFT_TRANSPORT_WIRE_UCX_WIRE_UCX_H
#define WEFT_TRANSPORT_WIRE_UCX_WIRE_UCX_H
#include <stdlib.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "transport/wire/wire.h"

#define UCX_TAG_BITS 40
#define UCX_RANK_BITS 23
#define UCX_MAIL (UINT64_C(1) << 63)
#define UCX_LISTENERS 64                    /* listening sockets of this process that are looked at, at most */
#define UCX_PATIENCE_NS INT64_C(1000000000) /* after a failure, for all silent peers together */
#define UCX_GRACE_NS \
    INT64_C(100000000) /* after a connection broke: what the peer sent before may come by another one */
#define UCX_DOUBT_NS INT64_C(2000000000) /* after that: a peer that does not answer by a fresh connection is lost */
/* The same for a peer whose host has been silent for KEEP_SILENT_NS: it was asked all that time. */
#define UCX_DOUBT_SILENT_NS INT64_C(500000000)
#define UCX_MAILS 32 /* how many mails can come without using UCX's queue of unexpected messages */

/* A peer. */
struct ucx_peer {
    ucp_ep_h ep;         /* NULL: not connected yet, or the connection was ended */
    int64_t lost_ns;     /* when its connection broke; 0: it did not */
    bool silent;         /* it broke when connections with a silent host were ended */
    ucs_status_t status; /* with which it broke */
    int next;            /* the next peer that was used; -1: this is the last */
    bool used, left;
    bool cut;    /* this rank has ended the connection after a failure */
    bool cut_us; /* the peer has, or has answered that it knows */
    bool shut;   /* the peer cannot be reached any more, though it lives */
    bool bidden; /* this rank has said farewell to it, and has had no answer */
    /* After the connection broke or was cut, a fresh one carries mail, and shows whether the peer lives. */
    ucp_ep_h mail_ep;
    bool asked, mail_lost;
    bool ended;               /* its process has: it is not asked again */
    ucs_status_t mail_status; /* with which the fresh one broke */
    int64_t heard_ns;         /* when the last mail came */
};

/* A mail that is being sent, or room for one that comes. UCX's part of the request is in memory before the struct. */
struct ucx_packet {
    struct ucx_packet *next;
    struct ucx_wire *wire;
    bool done;
    ucs_status_t status;
    ucp_tag_recv_info_t info;
    unsigned char bytes[WIRE_MAIL];
};

/* Connections on which the other end's kernel has not acknowledged yet what was sent. */
struct ucx_watch {
    bool on;
    int64_t at;       /* when they were last looked at */
    int64_t ended_at; /* when one was last ended because the other host was silent; 0: never */
    struct ucx_awaits {
        uint64_t cookie; /* of the socket */
        int64_t since;
    } * awaits, *before; /* at this look, and at the one before */
    size_t n, room, nbefore;
};

enum ucx_state {
    UCX_IDLE,
    UCX_ACTIVE,
    UCX_DONE,
    UCX_FAILED,
    UCX_KEPT /* cancelled, but UCX still uses the request */
};

/* UCX's part of the request is in memory before this struct, too. */
struct ucx_message {
    struct wire_message base;
    struct ucx_message *next; /* in the list of messages that UCX may use until the worker ends */
    enum ucx_state state;
    ucs_status_t status;
    unsigned starts;
    ucp_tag_t tag;
    ucp_tag_recv_info_t info;
    ucp_request_param_t param;
    const void *from; /* what a start hands to UCX: memory and bytes, or pieces */
    size_t count;
    ucp_dt_iov_t pieces[];
};

struct ucx_wire {
    struct wire base;
    ucp_context_h context;
    ucp_worker_h worker;  /* NULL: it was shut down */
    size_t request_bytes; /* bytes that UCX needs before a request */
    struct roster roster;
    const unsigned char *addresses; /* of all ranks, in the roster */
    size_t address_bytes;           /* of each */
    size_t process_at;              /* where the peer's struct process_id is in it */
    struct ucx_peer *peers;
    int used;      /* the first peer that was used; -1: none */
    int last_lost; /* the peer whose connection broke last; -1: none */
    bool doubts;   /* a connection broke, and the peer was not asked yet */
    struct ucx_packet *in[UCX_MAILS],
        *spare; /* in: rooms for mail, in the order in which they are filled; spare: for mail to send */
    unsigned next_in;
    bool read;          /* the caller has the mail before next_in */
    int64_t posts;      /* mails that UCX has not finished sending */
    int64_t waited_ns;  /* time spent so far on peers that did not release messages */
    bool unsent;        /* mail was sent since the last flush */
    int64_t flushes;    /* 1: a flush is under way */
    int64_t flushed_ns; /* when it began */
    struct ucx_message *kept;
    struct ucx_watch watch;
};

static inline int64_t ucx_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Memory with room for UCX's part of a request before it; NULL: none. */
static inline void *ucx_request_alloc(const struct ucx_wire *w, size_t bytes)
{
    unsigned char *block = malloc(w->request_bytes + bytes);
    return block ? block + w->request_bytes : NULL;
}

static inline void ucx_request_free(const struct ucx_wire *w, void *request)
{
    if (request)
        free((unsigned char *)request - w->request_bytes);
}

/* How long to wait, `ns` at most, for a peer to release something after a failure. w->waited_ns is the time that was
 * spent on this peer and others before, so that many silent peers take no longer than a few. */
static inline int64_t ucx_patience(const struct ucx_wire *w, int64_t ns)
{
    int64_t left = w->waited_ns < UCX_PATIENCE_NS ? UCX_PATIENCE_NS - w->waited_ns : 0;
    return ns < left ? ns : left;
}

/* ---- wire_ucx_peer.c ---- */
int ucx_peer_connect(struct ucx_wire *w, int peer); /* unless it is connected */
enum transport_fate ucx_peer_fate(const struct ucx_wire *w, int peer);
bool ucx_peer_lost(const struct ucx_wire *w, int peer);  /* it left, or its connection is broken for good */
bool ucx_peer_ended(const struct ucx_wire *w, int peer); /* is it sure that its process has ended? */
bool ucx_peer_doubtful(const struct ucx_wire *w,
                       int peer); /* its connection broke; whether it lives is not known yet */
/* The connection for mail: a fresh one if the connection broke or was cut. */
int ucx_peer_mail(struct ucx_wire *w, int peer, ucp_ep_h *out);
int ucx_peer_error(const struct ucx_wire *w, int peer); /* of one that is lost */

/* ---- wire_ucx_mail.c ---- */
bool ucx_mail_open(struct ucx_wire *w);  /* false: no memory, or UCX refuses */
void ucx_mail_close(struct ucx_wire *w); /* takes the rooms back from UCX */
void ucx_mail_free(struct ucx_wire *w);  /* when there is no worker any more */
int ucx_mail(struct wire *w, int peer, const void *bytes, size_t n);
/* Mail of no bytes, of which the wire takes note itself. */
enum ucx_word {
    UCX_BYE,  /* this rank leaves; the answer is UCX_HERE */
    UCX_CUT,  /* it has ended the connection after a failure, and is still there */
    UCX_SHUT, /* it ends all connections after a failure: it cannot be reached any more, and lives */
    UCX_ASK,  /* are you there? */
    UCX_HERE
};
int ucx_mail_word(struct ucx_wire *w, int peer, enum ucx_word word);
void ucx_mail_look(struct ucx_wire *w); /* now and then: asks peers whose connections broke whether they are there */
bool ucx_mail_flushed(struct wire *w);
/* Says farewell to all peers, and waits until they have answered: then they have got all that this rank has sent. */
void ucx_mail_leave(struct ucx_wire *w, int64_t end);
bool ucx_mail_fetch(struct wire *w, int *peer, const void **bytes, size_t *n);

/* ---- wire_ucx_end.c ---- */
void ucx_end_drain(struct ucx_wire *w, const int64_t *left,
                   int64_t ns); /* makes progress until *left is 0, for ns at most */
/* Ends the connection with a peer after a failure, at once: what is under way with it fails. The peer is told by a
 * fresh connection, which then carries mail. Waits up to ns until the peer has answered: then no data comes from it any
 * more.
 */
void ucx_end_cut(struct ucx_wire *w, int peer, int64_t ns);
void ucx_end_all(struct ucx_wire *w);  /* tells all peers, and then shuts */
void ucx_end_shut(struct ucx_wire *w); /* ends all connections and the worker */

/* ---- wire_ucx_keepalive.c ---- */
size_t ucx_keepalive_listeners(int *fds, size_t cap); /* the sockets of this process that listen */
/* Connections that come to sockets which listen now, and were not among the n before, are kept alive. */
void ucx_keepalive_inherit(const int *before, size_t n);
void ucx_keepalive_look(struct ucx_wire *w); /* now and then: ends connections with hosts that have vanished */
void ucx_keepalive_end(struct ucx_wire *w);  /* looks no more */

/* ---- wire_ucx_data.c: as in wire_ops ---- */
int ucx_data_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                  struct wire_message **out);
int ucx_data_make_list(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                       struct wire_message **out);
int ucx_data_start(struct wire_message *m);
int ucx_data_test(struct wire_message *m);
bool ucx_data_cancel(struct wire_message *m);
void ucx_data_drop(struct wire_message *m);
void ucx_data_discard(struct ucx_wire *w); /* after a failure: receives, and forgets, what no receive was started for */
#endif
