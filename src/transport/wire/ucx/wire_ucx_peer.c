/* Connections with peers, and which peers are gone.
 *
 * A peer that ends is noticed because each end makes a connection of its own (UCP_ERR_HANDLING_MODE_PEER): when a
 * process ends, the kernel closes its connections, and the next progress calls the error handler. wire_ucx_keepalive.c
 * is for hosts that vanish without a reset.
 *
 * A connection may also break between processes that live. So the peer is asked by a fresh connection. If that fails,
 * too, and the process has ended, the peer is dead: on the same machine the system tells, on another one the peer's
 * host refuses the connection. Otherwise the peer is lost, also if it answers, or does neither for UCX_DOUBT_NS.
 * If the connection was ended because the host had been silent, that time is shorter. A connection with another host
 * that breaks at the same moment may be taken for such a one. Its peer is then lost sooner, and is not taken for dead
 * unless its host says so within the shorter time. */
#define _GNU_SOURCE
#include "transport/wire/ucx/wire_ucx.h"

#include <string.h>

#include "base/process.h"
#include "weft.h"

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_wire *w = arg;
    for (int i = w->used; i >= 0; i = w->peers[i].next) {
        struct ucx_peer *p = &w->peers[i];
        if (p->mail_ep == ep) {
            p->mail_lost = true;
            p->mail_status = status;
        } else if (p->ep == ep && !p->lost_ns) {
            p->lost_ns = ucx_now();
            p->silent = w->watch.ended_at && p->lost_ns - w->watch.ended_at < UCX_DOUBT_SILENT_NS;
            p->status = status;
            w->last_lost = i;
            w->doubts = true;
        }
    }
}

static int make_endpoint(struct ucx_wire *w, int peer, ucp_ep_h *out)
{
    struct ucx_peer *p = &w->peers[peer];
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(w->addresses + (size_t)peer * w->address_bytes),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = w},
    };
    ucs_status_t status = ucp_ep_create(w->worker, &params, out);
    if (status) {
        *out = NULL;
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

static int check(struct ucx_wire *w, int peer)
{
    if (peer < 0 || peer >= w->base.size)
        return w->base.error(WEFT_EINVAL, "there is no rank %d among %d", peer, w->base.size);
    if (!w->worker)
        return w->base.error(WEFT_ETRANSPORT, "ucx: this end was shut down after a failure");
    return 0;
}

int ucx_peer_connect(struct ucx_wire *w, int peer)
{
    int err = check(w, peer);
    if (err)
        return err;
    if (ucx_peer_lost(w, peer))
        return ucx_peer_error(w, peer);
    return w->peers[peer].ep ? 0 : make_endpoint(w, peer, &w->peers[peer].ep);
}

int ucx_peer_mail(struct ucx_wire *w, int peer, ucp_ep_h *out)
{
    int err = check(w, peer);
    if (err)
        return err;
    struct ucx_peer *p = &w->peers[peer];
    bool fresh = p->cut || p->cut_us || p->lost_ns;
    if (p->left || p->shut || (fresh && p->mail_lost))
        return ucx_peer_error(w, peer);
    ucp_ep_h *ep = fresh ? &p->mail_ep : &p->ep;
    if (!*ep)
        err = make_endpoint(w, peer, ep);
    *out = *ep;
    return err;
}

static enum process_fate judge(const struct ucx_wire *w, int peer)
{
    struct process_id p;
    memcpy(&p, w->addresses + (size_t)peer * w->address_bytes + w->process_at, sizeof p);
    enum process_fate fate = process_judge(&p);
    return fate == PROCESS_HERE && process_ending(p.pid) ? PROCESS_GONE : fate;
}

/* Has the process of a peer ended, to which a fresh connection failed? On another machine only the status tells. UCX up
 * to 1.13 has one status for all failures over TCP. */
static bool has_ended(const struct ucx_wire *w, int peer)
{
    if (w->peers[peer].ended)
        return true;
    enum process_fate fate = judge(w, peer);
    ucs_status_t status = w->peers[peer].mail_status;
    return w->peers[peer].ended = fate == PROCESS_ELSEWHERE
                                      ? status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_REJECTED
                                      : fate == PROCESS_GONE;
}

/* A peer that leaves says so before its connection breaks. But the word may come by another connection than the one
 * that breaks first. So a broken connection counts only after UCX_GRACE_NS. */
enum transport_fate ucx_peer_fate(const struct ucx_wire *w, int peer)
{
    const struct ucx_peer *p = &w->peers[peer];
    if (p->left)
        return TRANSPORT_LEFT;
    if (p->shut)
        return TRANSPORT_LOST;
    int64_t since = p->lost_ns ? ucx_now() - p->lost_ns : 0;
    if (p->mail_lost)
        return p->lost_ns && since < UCX_GRACE_NS ? TRANSPORT_HERE
               : has_ended(w, peer)               ? TRANSPORT_DIED
                                                  : TRANSPORT_LOST;
    if (p->cut || p->cut_us || since < UCX_GRACE_NS)
        return TRANSPORT_HERE;
    int64_t doubt = p->silent ? UCX_DOUBT_SILENT_NS : UCX_DOUBT_NS;
    return p->heard_ns > p->lost_ns || since >= doubt ? TRANSPORT_LOST : TRANSPORT_HERE;
}

/* Within the grace of a broken connection `fate` does not tell yet. */
bool ucx_peer_ended(const struct ucx_wire *w, int peer)
{
    return w->peers[peer].mail_lost && has_ended(w, peer);
}

bool ucx_peer_doubtful(const struct ucx_wire *w, int peer)
{
    return w->peers[peer].lost_ns && ucx_peer_fate(w, peer) == TRANSPORT_HERE && !w->peers[peer].cut_us;
}

bool ucx_peer_lost(const struct ucx_wire *w, int peer)
{
    return w->peers[peer].cut || w->peers[peer].cut_us || ucx_peer_fate(w, peer) != TRANSPORT_HERE;
}

int ucx_peer_error(const struct ucx_wire *w, int peer)
{
    const struct ucx_peer *p = &w->peers[peer];
    if (p->left)
        return w->base.error(WEFT_EPEER, "rank %d has left", peer);
    if (p->cut || p->cut_us || p->shut)
        return w->base.error(WEFT_EPEER, "the connection with rank %d was ended after a failure", peer);
    return w->base.error(WEFT_EPEER, "rank %d %s: %s", peer,
                         ucx_peer_fate(w, peer) == TRANSPORT_DIED ? "has ended" : "cannot be reached",
                         ucs_status_string(p->status));
}
