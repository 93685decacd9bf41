/* Ending connections, and the worker. */
#define _GNU_SOURCE
#include "transport/wire/ucx/wire_ucx.h"

#define CLOSE_NS INT64_C(1000000000) /* for connections that are ended at once */
#define SHUT_NS INT64_C(100000000)   /* for telling peers that this rank cannot be reached any more */

void ucx_end_drain(struct ucx_wire *w, const int64_t *left, int64_t ns)
{
    for (int64_t end = ucx_now() + ns; *left > 0 && ucx_now() < end;)
        ucp_worker_progress(w->worker);
}

static void close_now(struct ucx_wire *w, ucp_ep_h *ep, int64_t end)
{
    if (!*ep)
        return;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(*ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS && ucx_now() < end)
            ucp_worker_progress(w->worker);
        ucp_request_free(request);
    }
    *ep = NULL;
}

void ucx_end_cut(struct ucx_wire *w, int peer, int64_t ns)
{
    struct ucx_peer *p = &w->peers[peer];
    if (p->cut)
        return;
    int64_t began = ucx_now(), end = began + ucx_patience(w, ns);
    close_now(w, &p->ep, began + CLOSE_NS);
    p->cut = true;
    bool told = !ucx_mail_word(w, peer, UCX_CUT);
    while (told && !p->cut_us && !p->mail_lost && !p->left && ucx_now() < end)
        ucp_worker_progress(w->worker);
    w->waited_ns += ucx_now() - began;
}

void ucx_end_all(struct ucx_wire *w)
{
    for (int i = w->used; i >= 0; i = w->peers[i].next)
        if (!w->peers[i].left && !w->peers[i].mail_lost)
            (void)ucx_mail_word(w, i, UCX_SHUT);
    ucx_end_drain(w, &w->posts, SHUT_NS);
    ucx_end_shut(w);
}

/* Connections and the worker are ended first: after that UCX calls nothing back and touches no memory.
 *
 * A flush that UCX does not finish holds a connection, and a worker that is destroyed with such a flush ends the
 * process by an assertion (UCX 1.13). This happens after messages to a peer that stands still were taken back. Such a
 * worker is left as it is: nobody calls it any more. */
void ucx_end_shut(struct ucx_wire *w)
{
    if (!w->worker)
        return;
    int64_t end = ucx_now() + CLOSE_NS;
    ucx_mail_close(w);
    for (int i = w->used; i >= 0; i = w->peers[i].next)
        close_now(w, &w->peers[i].ep, end), close_now(w, &w->peers[i].mail_ep, end);
    ucx_end_drain(w, &w->flushes, end - ucx_now());
    if (w->flushes)
        w->context = NULL;
    else
        ucp_worker_destroy(w->worker);
    w->worker = NULL;
    ucx_mail_free(w);
}
