/* The 1-D halo: an exchange with the ranks before and after this one. In each round every rank sends one message each
 * way. In a ring of two ranks left and right are the same peer: the tag in a message's head says which way it went. In
 * a ring of one rank the rank sends to itself: its messages are copied here. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/lock.h"
#include "exchange/exchange.h"
#include "weft/halo.h"

enum side { LEFT, RIGHT };

struct weft_halo {
    weft_exchange *exchange;
    int peers[2];              /* by side; -1: none; may be this rank itself */
    struct message *itself[2]; /* messages to itself, by side, in a ring of one */
    bool gone[2];              /* the message was put in a start that then failed */
    uint64_t took;             /* rounds that were taken */
};

int weft_halo_open(weft_comm *c, bool periodic, const weft_exchange_opts *opts, weft_halo **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_halo_open: the comm and out must not be NULL");
    weft_halo *h = calloc(1, sizeof *h);
    int rank = c->rank, size = c->size, list[2];
    size_t n = 0;
    int left = rank > 0 ? rank - 1 : periodic ? size - 1 : -1, right = rank < size - 1 ? rank + 1 : periodic ? 0 : -1;
    if (left >= 0 && left != rank)
        list[n++] = left;
    if (right >= 0 && right != rank && right != left)
        list[n++] = right;
    weft_exchange *x = NULL;
    struct comm_family *f = comm_enter(c);
    int err = exchange_open(c, list, n, list, n, opts, h ? 0 : error_nomem(), &x);
    comm_leave(f);
    if (err) {
        free(h);
        return err;
    }
    h->exchange = x;
    h->peers[LEFT] = left;
    h->peers[RIGHT] = right;
    *out = h;
    return 0;
}

weft_exchange *weft_halo_rounds(weft_halo *h)
{
    return h ? h->exchange : NULL;
}

/* What is sent to one side arrives at the other side of the receiver. */
static int send(weft_halo *h, enum side side, const weft_message *m)
{
    static const weft_message empty = {0};
    weft_exchange *x = h->exchange;
    enum side arrives = side == LEFT ? RIGHT : LEFT;
    m = m ? m : &empty;
    if (h->peers[side] < 0 || h->gone[side])
        return 0;
    if (h->peers[side] != x->comm->rank) {
        int err = exchange_put(x, h->peers[side], arrives, m, "weft_halo_start");
        h->gone[side] = !err;
        return err;
    }
    struct message *copy = message_new(x->pool, m->meta_bytes, m->bytes, x->buffer != NULL);
    if (!copy)
        return error_nomem();
    copy->is.from = x->comm->rank;
    copy->is.round = atomic_load_explicit(&x->begun, memory_order_relaxed);
    h->itself[arrives] = copy;
    if (m->meta_bytes)
        memcpy((void *)(uintptr_t)copy->is.meta, m->meta, m->meta_bytes);
    if (m->bytes && x->buffer)
        copy->is.payload = x->buffer(x->buffer_arg, copy->is.from, copy->is.meta, m->meta_bytes, m->bytes);
    if (m->bytes && !copy->is.payload)
        return error_set(WEFT_ENOMEM, "weft_halo_start: the buffer hook returned no memory for %zu bytes", m->bytes);
    if (m->bytes)
        memcpy(copy->is.payload, m->payload, m->bytes);
    return 0;
}

static int check(const weft_halo *h, enum side side, const weft_message *m)
{
    if (m && ((m->meta_bytes && !m->meta) || (m->bytes && !m->payload)))
        return error_set(WEFT_EINVAL, "weft_halo_start: a message of %zu and %zu bytes has a NULL pointer",
                         m->meta_bytes, m->bytes);
    return m && h->peers[side] >= 0 && h->peers[side] != h->exchange->comm->rank
               ? exchange_put_fits(h->exchange, m, "weft_halo_start")
               : 0;
}

static void forget(weft_halo *h)
{
    for (int side = LEFT; side <= RIGHT; side++) {
        weft_message_free(h->itself[side] ? &h->itself[side]->is : NULL);
        h->itself[side] = NULL;
    }
}

int weft_halo_start(weft_halo *h, const weft_message *send_left, const weft_message *send_right, bool done)
{
    if (!h)
        return error_set(WEFT_EINVAL, "weft_halo_start: the halo is NULL");
    weft_exchange *x = h->exchange;
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_acquire);
    int err = check(h, LEFT, send_left);
    if (!err)
        err = check(h, RIGHT, send_right);
    if (!err && h->took + (h->gone[LEFT] || h->gone[RIGHT]) != begun)
        err = error_set(WEFT_EBUSY, "weft_halo_start: the messages of the round before were not taken");
    if (err)
        return err;
    err = send(h, LEFT, send_left);
    if (!err)
        err = send(h, RIGHT, send_right);
    if (!err)
        err = weft_exchange_finish(x, done);
    if (err)
        forget(h);
    else
        h->gone[LEFT] = h->gone[RIGHT] = false;
    return err;
}

int weft_halo_take(weft_halo *h, weft_message **from_left, weft_message **from_right)
{
    if (!h || !from_left || !from_right)
        return error_set(WEFT_EINVAL, "weft_halo_take: arguments must not be NULL");
    weft_exchange *x = h->exchange;
    weft_message *got[2] = {NULL, NULL}, *m;
    if (atomic_load_explicit(&x->state, memory_order_acquire) != EXCHANGE_OPEN ||
        h->took == atomic_load_explicit(&x->rounds, memory_order_acquire))
        return error_set(WEFT_EINVAL, "weft_halo_take: there is no complete round to take");
    while (!weft_exchange_take(x, -1, &m) && m)
        got[((struct message *)m)->tag] = m;
    for (int side = LEFT; side <= RIGHT; side++)
        if (h->itself[side]) {
            got[side] = &h->itself[side]->is;
            h->itself[side] = NULL;
        }
    h->took = atomic_load_explicit(&x->rounds, memory_order_acquire);
    *from_left = got[LEFT];
    *from_right = got[RIGHT];
    return 0;
}

int weft_halo_exchange(weft_halo *h, const weft_message *send_left, const weft_message *send_right,
                       weft_message **from_left, weft_message **from_right)
{
    int err = weft_halo_start(h, send_left, send_right, false);
    if (!err)
        err = weft_exchange_wait(h->exchange, WEFT_FOREVER);
    return err ? err : weft_halo_take(h, from_left, from_right);
}

void weft_halo_close(weft_halo *h)
{
    if (!h || comm_inherited(h->exchange->comm))
        return;
    weft_exchange_close(h->exchange);
    forget(h);
    free(h);
}
