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

static int sender(const struct ucx_wire *w, ucp_tag_t tag)
{
    int from = (int)(tag & ((UINT64_C(1) << UCX_RANK_BITS) - 1));
    return from < w->base.size ? from : -1;
}

/* What has to be known at once: a rank that cancels its messages does not fetch mail. */
static void note(struct ucx_wire *w, ucp_tag_t tag)
{
    int from = sender(w, tag);
    enum ucx_word word = (enum ucx_word)(tag >> UCX_RANK_BITS & 0xff);
    if (from >= 0 && word == UCX_CUT)
        w->peers[from].cut_us = true;
    if (from >= 0 && word == UCX_SHUT)
        w->peers[from].shut = true;
    if (from >= 0 && word == UCX_HERE)
        w->peers[from].bidden = false;
}

static void on_mail(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    struct ucx_packet *l = arg;
    (void)request;
    l->status = status;
    l->info = *info;
    l->done = true;
    if (!status && info->length == 0)
        note(l->wire, info->sender_tag);
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
    l->wire = w;
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

static void obey(struct ucx_wire *w, int peer, enum ucx_word word)
{
    struct ucx_peer *p = &w->peers[peer];
    switch (word) {
    case UCX_BYE:
        if (!p->lost_ns)
            (void)ucx_mail_word(w, peer, UCX_HERE);
        p->left = true;
        break;
    case UCX_CUT: /* the answer says that no data comes any more */
        if (!p->cut)
            ucx_end_cut(w, peer, 0);
        break;
    case UCX_ASK: (void)ucx_mail_word(w, peer, UCX_HERE); break;
    default: break; /* noted when it came */
    }
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
        int from = l->status ? -1 : sender(w, l->info.sender_tag);
        w->next_in++;
        w->read = true;
        if (from < 0)
            continue;
        w->peers[from].heard_ns = ucx_now();
        if (l->info.length == 0) {
            obey(w, from, (enum ucx_word)(l->info.sender_tag >> UCX_RANK_BITS & 0xff));
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

static int send_packet(struct ucx_wire *w, int peer, const void *bytes, size_t n, enum ucx_word word)
{
    ucp_ep_h ep;
    int err = ucx_peer_mail(w, peer, &ep);
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
    w->unsent = true;
    ucp_tag_t tag = UCX_MAIL | (uint64_t)word << UCX_RANK_BITS | (unsigned)w->base.rank;
    ucs_status_ptr_t r = ucp_tag_send_nbx(ep, l->bytes, n, tag, &param);
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
    return send_packet((struct ucx_wire *)base, peer, bytes, n, UCX_BYE);
}

static void on_flushed(void *request, ucs_status_t status, void *arg)
{
    struct ucx_wire *w = arg;
    (void)status;
    w->flushes--;
    ucp_request_free(request);
}

/* When UCX is done with a mail, the mail may still be in UCX's own buffers until it is flushed. The worker is flushed,
 * and not connections: over TCP a connection is flushed by a message that the peer answers, and if the peer ends in the
 * middle of that, an assertion of UCX (PUT_TX_WAITING_ACK) may end this process. Mail stays in the buffers if the
 * connection is full of messages that the peer does not take, and a peer with messages in flight makes calls of weft.
 * A connection that is being made with a peer that makes no call of weft just now would be waited for in vain. So this
 * rank waits for a flush no longer than FLUSH_NS. */
bool ucx_mail_flushed(struct wire *base)
{
    struct ucx_wire *w = (struct ucx_wire *)base;
    if (!w->worker)
        return true;
    if (w->posts)
        return false;
    if (w->unsent && !w->flushes) {
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.send = on_flushed,
                                     .user_data = w};
        w->flushes = UCS_PTR_IS_PTR(ucp_worker_flush_nbx(w->worker, &param));
        w->flushed_ns = ucx_now();
        w->unsent = false;
    }
    return !w->flushes || ucx_now() - w->flushed_ns > FLUSH_NS;
}

int ucx_mail_word(struct ucx_wire *w, int peer, enum ucx_word word)
{
    return send_packet(w, peer, NULL, 0, word);
}

void ucx_mail_look(struct ucx_wire *w)
{
    if (!w->doubts || !w->worker)
        return;
    w->doubts = false;
    for (int i = w->used; i >= 0; i = w->peers[i].next) {
        struct ucx_peer *p = &w->peers[i];
        if (!p->lost_ns || p->asked || p->left)
            continue;
        p->asked = true;
        if (ucx_mail_word(w, i, UCX_ASK) && !p->mail_ep)
            p->mail_lost = true;
    }
}

static bool awaits_answers(const struct ucx_wire *w)
{
    for (int i = w->used; i >= 0; i = w->peers[i].next) {
        const struct ucx_peer *p = &w->peers[i];
        if (p->bidden && !p->lost_ns && !p->mail_lost && !p->shut)
            return true;
    }
    return false;
}

void ucx_mail_leave(struct ucx_wire *w, int64_t end)
{
    for (int i = w->used; i >= 0; i = w->peers[i].next) {
        struct ucx_peer *p = &w->peers[i];
        if (!p->left && !p->lost_ns && !p->mail_lost)
            p->bidden = !ucx_mail_word(w, i, UCX_BYE);
    }
    while ((w->posts || awaits_answers(w) || !ucx_mail_flushed(&w->base)) && ucx_now() < end) {
        const void *bytes;
        size_t n;
        int peer;
        ucp_worker_progress(w->worker);
        while (ucx_mail_fetch(&w->base, &peer, &bytes, &n)) { /* peers that leave, too, are answered */
        }
    }
}
