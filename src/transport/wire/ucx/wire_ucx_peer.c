/* Connections with peers, and which peers are gone.
 *
 * A peer that ends is noticed because each end makes a connection of its own (UCP_ERR_HANDLING_MODE_PEER): when a
 * process ends, the kernel closes its connections, and the next progress calls the error handler. wire_ucx_keepalive.c
 * is for hosts that vanish without a reset. */
#define _GNU_SOURCE
#include "transport/wire/ucx/wire_ucx.h"
#include "weft.h"

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_wire *w = arg;
    for (int i = w->used; i >= 0; i = w->peers[i].next) {
        struct ucx_peer *p = &w->peers[i];
        if (p->ep == ep && !p->lost_ns) {
            p->lost_ns = ucx_now();
            p->status = status;
            w->last_lost = i;
        }
    }
}

int ucx_peer_connect(struct ucx_wire *w, int peer)
{
    if (peer < 0 || peer >= w->base.size)
        return w->base.error(WEFT_EINVAL, "there is no rank %d among %d", peer, w->base.size);
    struct ucx_peer *p = &w->peers[peer];
    if (!w->worker)
        return w->base.error(WEFT_ETRANSPORT, "ucx: this end was shut down after a failure");
    if (ucx_peer_lost(w, peer))
        return ucx_peer_error(w, peer);
    if (p->ep)
        return 0;
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(w->addresses + (size_t)peer * w->address_bytes),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = w},
    };
    ucs_status_t status = ucp_ep_create(w->worker, &params, &p->ep);
    if (status) {
        p->ep = NULL;
        return w->base.error(status == UCS_ERR_NO_MEMORY ? WEFT_ENOMEM : WEFT_ETRANSPORT,
                             "ucx: rank %d cannot be reached: %s", peer, ucs_status_string(status));
    }
    if (!p->used) {
        p->used = true;
        p->next = w->used;
        w->used = peer;
    }
    return 0;
}

/* A peer that leaves says so before its connection breaks. But the word may come by another connection than the one
 * that breaks first. So a broken connection counts only after UCX_GRACE_NS. */
enum transport_fate ucx_peer_fate(const struct ucx_wire *w, int peer)
{
    const struct ucx_peer *p = &w->peers[peer];
    if (p->left)
        return TRANSPORT_LEFT;
    return p->lost_ns && ucx_now() - p->lost_ns >= UCX_GRACE_NS ? TRANSPORT_DIED : TRANSPORT_HERE;
}

bool ucx_peer_lost(const struct ucx_wire *w, int peer)
{
    return w->peers[peer].cut || ucx_peer_fate(w, peer) != TRANSPORT_HERE;
}

int ucx_peer_error(const struct ucx_wire *w, int peer)
{
    const struct ucx_peer *p = &w->peers[peer];
    if (p->left)
        return w->base.error(WEFT_EPEER, "rank %d has left", peer);
    if (p->lost_ns)
        return w->base.error(WEFT_EPEER, "rank %d has ended or cannot be reached: %s", peer,
                             ucs_status_string(p->status));
    return w->base.error(WEFT_EPEER, "the connection with rank %d was ended after a failure", peer);
}
