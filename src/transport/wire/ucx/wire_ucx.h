/* The UCX module: tagged messages of UCP between workers whose addresses all ranks know.
 *
 *   wire_ucx.c        open and close, connecting peers, who is gone
 *   wire_ucx_mail.c   mail
 *   wire_ucx_keep.c   hosts that vanish: keepalive, and connections that are not answered
 *   wire_ucx_data.c   messages that are set up once and started many times
 *
 * A tag of UCX has 64 bits and does not say who sent: the sender's rank is part of it, the highest bit is set for mail.
 */
#ifndef WEFT_TRANSPORT_WIRE_UCX_WIRE_UCX_H
#define WEFT_TRANSPORT_WIRE_UCX_WIRE_UCX_H
#include <ucp/api/ucp.h>

#include "transport/wire/wire.h"

#define UCX_TAG_BITS 40
#define UCX_RANK_BITS 23
#define UCX_MAIL (UINT64_C(1) << 63)
#define UCX_LISTENERS 64                    /* sockets of this process that are looked at */
#define UCX_PATIENCE_NS INT64_C(1000000000) /* after a failure, for all peers that are silent */
#define UCX_LETTERS 32                      /* mails that are received without UCX's queue of unexpected messages */

/* What is known of a peer that was used. */
struct ucx_peer {
    ucp_ep_h ep;         /* NULL: not connected yet, or cut off */
    int64_t lost_ns;     /* when its connection broke; 0: it did not */
    ucs_status_t status; /* and how */
    int next;            /* of those that were used; -1: the last */
    bool used, left, cut;
    bool unsent; /* there was mail to it since the last flush */
};

/* A mail on its way out, or room for one to come in. UCX's part of the request stands before it. */
struct ucx_letter {
    struct ucx_letter *next;
    struct ucx_wire *wire;
    bool done;
    ucs_status_t status;
    ucp_tag_recv_info_t info;
    unsigned char bytes[WIRE_MAIL];
};

/* Connections that have sent something which the other end's kernel has yet to acknowledge. */
struct ucx_watch {
    bool on;
    int64_t at; /* of the last look */
    struct ucx_awaits {
        uint64_t cookie; /* of the socket */
        int64_t since;
    } * awaits, *before; /* of this look, and of the one before */
    size_t n, room, nbefore;
};

enum ucx_state {
    UCX_IDLE,
    UCX_ACTIVE,
    UCX_DONE,
    UCX_FAILED,
    UCX_KEPT /* cancelled, but UCX knows the request still */
};

/* UCX's part of the request stands before it, too. */
struct ucx_message {
    struct wire_message base;
    struct ucx_message *next; /* of those that UCX may know until the worker ends */
    enum ucx_state state;
    ucs_status_t status;
    unsigned starts;
    ucp_tag_t tag;
    ucp_tag_recv_info_t info;
    ucp_request_param_t param;
    const void *from; /* what a start gives to UCX: memory and bytes, or pieces */
    size_t count;
    ucp_dt_iov_t pieces[];
};

struct ucx_wire {
    struct wire base;
    ucp_context_h context;
    ucp_worker_h worker;  /* NULL: shut down */
    size_t request_bytes; /* before a request of ours */
    unsigned char *addresses;
    size_t address_bytes; /* of each */
    struct ucx_peer *peers;
    int used;      /* the first of them that is used; -1: none */
    int last_lost; /* whose connection broke last; -1: none */
    struct ucx_letter *in[UCX_LETTERS],
        *spare; /* rooms for mail, in the order in which they are filled; letters to send */
    unsigned next_in;
    bool read;          /* the letter before next_in is being looked at */
    int64_t posts;      /* mails that UCX has not finished with */
    int64_t waited_ns;  /* for peers that did not let go of messages, all together */
    bool unsent;        /* there was mail since the last flush */
    int64_t flushes;    /* that are under way, */
    int64_t flushed_ns; /* the last of them since then */
    struct ucx_message *kept;
    struct ucx_watch watch;
};

int64_t ucx_now(void);
/* Memory with room for UCX's part of a request before it; NULL: none. */
void *ucx_request_alloc(const struct ucx_wire *w, size_t bytes);
void ucx_request_free(const struct ucx_wire *w, void *request);

/* Connects the peer if it is not. */
int ucx_connect(struct ucx_wire *w, int peer);
bool ucx_lost(const struct ucx_wire *w, int peer); /* it left, or its connection is broken for good */
int ucx_lost_error(const struct ucx_wire *w, int peer);
/* How long to wait, `ns` at most, for a peer to let go of something after a failure; w->waited_ns is what was waited
 * before for this one and others, so that many silent peers take no longer than a few. */
static inline int64_t ucx_patience(const struct ucx_wire *w, int64_t ns)
{
    int64_t left = w->waited_ns < UCX_PATIENCE_NS ? UCX_PATIENCE_NS - w->waited_ns : 0;
    return ns < left ? ns : left;
}
/* Ends the connection with a peer, at once: what is under way with it fails. */
void ucx_cut(struct ucx_wire *w, int peer, int64_t ns);
void ucx_shut(struct ucx_wire *w); /* ends all of them and the worker */

/* The sockets that listen; what peers connect to those that were not there before is kept alive. */
size_t ucx_listeners(int *fds, size_t cap);
void ucx_keep_alive(const int *before, size_t n);
/* Ends connections with hosts that have vanished; looks only every so often. */
void ucx_look(struct ucx_wire *w);
void ucx_look_no_more(struct ucx_wire *w);

bool ucx_letters_open(struct ucx_wire *w);  /* false: no memory, or UCX refuses */
void ucx_letters_close(struct ucx_wire *w); /* takes the rooms back from UCX */
void ucx_letters_free(struct ucx_wire *w);  /* when there is no worker any more */
int ucx_mail(struct wire *w, int peer, const void *bytes, size_t n);
int ucx_bye(struct ucx_wire *w, int peer); /* a mail of no bytes says that this rank leaves */
bool ucx_flushed(struct wire *w);
bool ucx_fetch(struct wire *w, int *peer, const void **bytes, size_t *n);

int ucx_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send, struct wire_message **out);
int ucx_make_list(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                  struct wire_message **out);
int ucx_start(struct wire_message *m);
int ucx_test(struct wire_message *m);
void ucx_discard(struct ucx_wire *w);
bool ucx_cancel(struct wire_message *m);
void ucx_drop(struct wire_message *m);
#endif
