/* Mail over UCX. A ring of receives that take mail from any rank is always posted. UCX fills them in the order in which
 * it matches messages, and keeps the messages of one sender in order. If the ring is full, mail waits in UCX's queue.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "transport/wire/ucx/wire_ucx.h"
#include "weft.h"

#define FLUSH_NS INT64_C(1000000)

/* ---- in ---- */

static void on_mail(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    struct ucx_packet *l = arg;
    (void)request;
    l->status = status;
    l->info = *info;
    l->done = true;
}

static bool post(struct ucx_wire *w, struct ucx_packet *l)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL, /* only the callback gets the length */
        .request = l,
        .cb.recv = on_mail,
        .user_data = l,
    };
    l->done = false;
    l->status = UCS_OK;
    ucs_status_ptr_t r = ucp_tag_recv_nbx(w->worker, l->bytes, sizeof l->bytes, UCX_MAIL, UCX_MAIL, &param);
    return !UCS_PTR_IS_ERR(r);
}

bool ucx_mail_open(struct ucx_wire *w)
{
    for (unsigned i = 0; i < UCX_MAILS; i++)
        if (!(w->in[i] = ucx_request_alloc(w, sizeof *w->in[i])))
            return false;
    for (unsigned i = 0; i < UCX_MAILS; i++)
        if (!post(w, w->in[i]))
            return false;
    return true;
}

void ucx_mail_close(struct ucx_wire *w)
{
    for (unsigned i = 0; i < UCX_MAILS; i++)
        if (w->in[i] && !w->in[i]->done)
            ucp_request_cancel(w->worker, w->in[i]);
}

void ucx_mail_free(struct ucx_wire *w)
{
    for (unsigned i = 0; i < UCX_MAILS; i++)
        ucx_request_free(w, w->in[i]);
    for (struct ucx_packet *l = w->spare, *next; l; l = next) {
        next = l->next;
        ucx_request_free(w, l);
    }
    memset(w->in, 0, sizeof w->in);
    w->spare = NULL;
}

bool ucx_mail_fetch(struct wire *base, int *peer, const void **bytes, size_t *n)
{
    struct ucx_wire *w = (struct ucx_wire *)base;
    while (w->worker) {
        if (w->read) { /* the caller is done with the last mail: its room is posted again */
            if (!post(w, w->in[(w->next_in - 1) % UCX_MAILS]))
                return false;
            w->read = false;
        }
        struct ucx_packet *l = w->in[w->next_in % UCX_MAILS];
        if (!l->done)
            return false;
        int from = (int)(l->info.sender_tag & ((UINT64_C(1) << UCX_RANK_BITS) - 1));
        w->next_in++;
        w->read = true;
        if (l->status || from >= w->base.size)
            continue;
        if (l->info.length == 0) {
            w->peers[from].left = true;
            continue;
        }
        *peer = from;
        *bytes = l->bytes;
        *n = l->info.length;
        return true;
    }
    return false;
}

/* ---- out ---- */

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct ucx_packet *l = arg;
    (void)request;
    (void)status; /* if a mail is lost, its peer is, too; the error handler reports that */
    l->wire->posts--;
    l->next = l->wire->spare;
    l->wire->spare = l;
}

static int send_packet(struct ucx_wire *w, int peer, const void *bytes, size_t n)
{
    int err = ucx_peer_connect(w, peer);
    if (err)
        return err;
    struct ucx_packet *l = w->spare;
    if (l)
        w->spare = l->next;
    else if (!(l = ucx_request_alloc(w, sizeof *l)))
        return w->base.error(WEFT_ENOMEM, "out of memory");
    l->wire = w;
    if (n)
        memcpy(l->bytes, bytes, n);
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .request = l,
        .cb.send = on_sent,
        .user_data = l,
    };
    w->posts++;
    w->unsent = w->peers[peer].unsent = true;
    ucs_status_ptr_t r = ucp_tag_send_nbx(w->peers[peer].ep, l->bytes, n, UCX_MAIL | (unsigned)w->base.rank, &param);
    if (!UCS_PTR_IS_PTR(r))
        on_sent(NULL, UCS_OK, l);
    if (UCS_PTR_IS_ERR(r))
        return w->base.error(WEFT_EPEER, "mail to rank %d: %s", peer, ucs_status_string(UCS_PTR_STATUS(r)));
    return 0;
}

int ucx_mail(struct wire *base, int peer, const void *bytes, size_t n)
{
    if (n < 1 || n > WIRE_MAIL)
        return base->error(WEFT_EINVAL, "a mail of %zu bytes; it can have 1 to %d", n, WIRE_MAIL);
    return send_packet((struct ucx_wire *)base, peer, bytes, n);
}

static void on_flushed(void *request, ucs_status_t status, void *arg)
{
    struct ucx_wire *w = arg;
    (void)status;
    w->flushes--;
    ucp_request_free(request);
}

/* When UCX is done with a mail, the mail may still be in UCX's own buffers until its connection is flushed. Connections
 * without mail are not flushed: a flush of a connection that is being made with a peer that makes no call of weft just
 * now would wait in vain. Over TCP the flush itself would wait in vain, too, because the peer has to answer it. But
 * mail is held up only if the connection is full of messages that the peer does not take, and a peer with messages in
 * flight makes calls of weft. So this rank waits for a flush no longer than FLUSH_NS. */
bool ucx_mail_flushed(struct wire *base)
{
    struct ucx_wire *w = (struct ucx_wire *)base;
    if (!w->worker)
        return true;
    if (w->posts)
        return false;
    for (int i = w->used; i >= 0 && w->unsent; i = w->peers[i].next) {
        struct ucx_peer *p = &w->peers[i];
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.send = on_flushed,
                                     .user_data = w};
        if (p->unsent && p->ep && !p->lost_ns)
            w->flushes += UCS_PTR_IS_PTR(ucp_ep_flush_nbx(p->ep, &param));
        p->unsent = false;
        w->flushed_ns = ucx_now();
    }
    w->unsent = false;
    return !w->flushes || ucx_now() - w->flushed_ns > FLUSH_NS;
}

int ucx_mail_bye(struct ucx_wire *w, int peer)
{
    return send_packet(w, peer, NULL, 0);
}
