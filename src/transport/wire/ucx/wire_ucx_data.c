/* Messages over UCX that are set up once: the request, its memory and its parameters are made with the message, so that
 * a start is one call of UCX. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "transport/wire/ucx/wire_ucx.h"
#include "weft.h"

#define MS INT64_C(1000000)

static struct ucx_wire *wire_of(const struct ucx_message *m)
{
    return (struct ucx_wire *)m->base.wire;
}

static void finish(struct ucx_message *m, ucs_status_t status)
{
    m->status = status;
    m->state = status ? UCX_FAILED : UCX_DONE;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)request;
    finish(arg, status);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    struct ucx_message *m = arg;
    (void)request;
    m->info = *info;
    finish(m, status);
}

int ucx_data_make_list(struct wire *base, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                       struct wire_message **out)
{
    struct ucx_wire *w = (struct ucx_wire *)base;
    if (tag >= base->tags)
        return base->error(WEFT_EINVAL, "ucx: no tag %llu", (unsigned long long)tag);
    int err = ucx_peer_connect(w, peer);
    if (err)
        return err;
    struct ucx_message *m = ucx_request_alloc(w, sizeof *m + n * sizeof *m->pieces);
    if (!m)
        return base->error(WEFT_ENOMEM, "out of memory");
    *m = (struct ucx_message){
        .base = {.wire = base, .memory = parts->memory, .tag = tag, .peer = peer, .send = send},
        .tag = (uint64_t)(send ? base->rank : peer) << UCX_TAG_BITS | tag,
        .param = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                  .request = m,
                  .user_data = m},
        .from = parts->memory,
        .count = parts->bytes,
    };
    for (size_t i = 0; i < n; i++) {
        m->base.bytes += parts[i].bytes;
        m->pieces[i] = (ucp_dt_iov_t){parts[i].memory, parts[i].bytes};
    }
    if (n > 1) {
        m->param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        m->param.datatype = ucp_dt_make_iov();
        m->from = m->pieces;
        m->count = n;
    }
    if (send) {
        m->param.cb.send = on_sent;
    } else {
        m->param.cb.recv = on_received;
        m->param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL; /* only the callback gets the length */
    }
    *out = &m->base;
    return 0;
}

int ucx_data_make(struct wire *base, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                  struct wire_message **out)
{
    return ucx_data_make_list(base, peer, tag, &(struct wire_part){memory, bytes}, 1, send, out);
}

int ucx_data_start(struct wire_message *base)
{
    struct ucx_message *m = (struct ucx_message *)base;
    struct ucx_wire *w = wire_of(m);
    struct ucx_peer *p = &w->peers[base->peer];
    ucs_status_ptr_t r;
    if (!w->worker)
        return base->wire->error(WEFT_ETRANSPORT, "ucx: this end was shut down after a failure");
    if (m->state == UCX_ACTIVE || m->state == UCX_KEPT)
        return base->wire->error(WEFT_EBUSY, "a message with rank %d is started twice", base->peer);
    /* What a peer sent before it left can still be received. */
    if (base->send && ucx_peer_lost(w, base->peer))
        return ucx_peer_error(w, base->peer);
    if (base->send && p->lost_ns) { /* whether it left or ended is not known yet: test will tell */
        finish(m, p->status);
        return 0;
    }
    m->state = UCX_ACTIVE;
    if (base->loose) {
        m->from = base->memory;
        m->count = base->bytes;
    }
    if (!base->send)
        r = ucp_tag_recv_nbx(w->worker, (void *)(uintptr_t)m->from, m->count, m->tag, UINT64_MAX, &m->param);
    else if (++m->starts %
             WIRE_AHEAD) /* the others are done when the receiver's UCX has them, or they are on the way */
        r = ucp_tag_send_nbx(p->ep, m->from, m->count, m->tag, &m->param);
    else
        r = ucp_tag_send_sync_nbx(p->ep, m->from, m->count, m->tag, &m->param);
    if (!UCS_PTR_IS_PTR(r))
        finish(m, UCS_PTR_STATUS(r));
    return 0;
}

static int failed(const struct ucx_message *m)
{
    const struct wire_message *b = &m->base;
    const struct ucx_wire *w = wire_of(m);
    if (m->status == UCS_ERR_MESSAGE_TRUNCATED)
        return b->wire->error(WEFT_EMISMATCH, "rank %d sent more than the %zu bytes that are expected of it", b->peer,
                              b->bytes);
    if (m->status == UCS_ERR_NO_MEMORY)
        return b->wire->error(WEFT_ENOMEM, "out of memory");
    if (ucx_peer_lost(w, b->peer))
        return ucx_peer_error(w, b->peer);
    if (w->peers[b->peer].lost_ns)
        return 0; /* whether it left or ended is not known yet */
    return b->wire->error(WEFT_ETRANSPORT, "a message %s rank %d: %s", b->send ? "to" : "from", b->peer,
                          ucs_status_string(m->status));
}

int ucx_data_test(struct wire_message *base)
{
    const struct ucx_message *m = (const struct ucx_message *)base;
    const struct ucx_wire *w = wire_of(m);
    base->got = m->info.length;
    if (m->state == UCX_ACTIVE) {
        if (!w->worker)
            return base->wire->error(WEFT_ETRANSPORT, "ucx: this end was shut down after a failure");
        const struct ucx_peer *p = &w->peers[base->peer];
        return (p->lost_ns || p->left || p->cut || p->cut_us || p->shut) && ucx_peer_lost(w, base->peer)
                   ? ucx_peer_error(w, base->peer)
                   : 0;
    }
    if (m->state == UCX_FAILED)
        return failed(m);
    if (!base->send && !base->loose && m->state == UCX_DONE && m->info.length != base->bytes)
        return base->wire->error(WEFT_EMISMATCH, "rank %d sent %zu bytes; %zu are expected of it", base->peer,
                                 m->info.length, base->bytes);
    return 1;
}

/* After a failure no receive is started for messages that have come. A sender that waits for one would have to end the
 * connection, which looks as if it had left. A receive of no bytes tells the sender that its message was received. */
void ucx_data_discard(struct ucx_wire *w)
{
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    ucp_request_param_t param = {.op_attr_mask = 0};
    while ((message = ucp_tag_probe_nb(w->worker, 0, UCX_MAIL, 1, &info))) {
        ucs_status_ptr_t r = ucp_tag_msg_recv_nbx(w->worker, NULL, 0, message, &param);
        if (UCS_PTR_IS_PTR(r))
            ucp_request_free(r);
    }
}

static bool settle(struct ucx_message *m, int64_t ns)
{
    struct ucx_wire *w = wire_of(m);
    int64_t began = ucx_now();
    for (int64_t end = began + ucx_patience(w, ns); m->state == UCX_ACTIVE && ucx_now() < end;) {
        ucp_worker_progress(w->worker);
        if (w->base.failed)
            ucx_data_discard(w);
    }
    w->waited_ns += ucx_now() - began;
    return m->state != UCX_ACTIVE;
}

/* A receive that no message has met yet is cancelled at once. A receive that is being filled, or a send, ends by itself
 * if the peer is at work, otherwise with the connection. What remains is a receive of which a first part has come: UCX
 * keeps it. If the peer's end of the connection is closed, the rest cannot come, and the request is kept until the
 * worker ends. If the peer was only silent, the rest might still come, so the worker is ended now. */
bool ucx_data_cancel(struct wire_message *base)
{
    struct ucx_message *m = (struct ucx_message *)base;
    struct ucx_wire *w = wire_of(m);
    if (m->state != UCX_ACTIVE)
        return true;
    if (!w->worker) {
        m->state = UCX_IDLE;
        return true;
    }
    const struct ucx_peer *p = &w->peers[base->peer];
    if (!base->send)
        ucp_request_cancel(w->worker, m);
    if (settle(m, p->lost_ns || p->left || p->cut_us ? 0 : UCX_PATIENCE_NS / 2)) /* a machine may be busy */
        return true;
    ucx_end_cut(w, base->peer, UCX_PATIENCE_NS / 2);
    if (settle(m, 20 * MS))
        return true;
    if (!base->send &&
        (p->left || p->cut_us || p->shut || ucx_peer_ended(w, base->peer) || p->status == UCS_ERR_CONNECTION_RESET)) {
        m->state = UCX_KEPT;
        return true;
    }
    ucx_end_all(w);
    m->state = UCX_IDLE;
    return true;
}

void ucx_data_drop(struct wire_message *base)
{
    struct ucx_message *m = (struct ucx_message *)base;
    if (!m)
        return;
    struct ucx_wire *w = wire_of(m);
    if (m->state == UCX_ACTIVE)
        ucx_data_cancel(base);
    if (m->state == UCX_KEPT && w->worker) {
        m->next = w->kept;
        w->kept = m;
    } else {
        ucx_request_free(w, m);
    }
}
