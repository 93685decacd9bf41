/* Opening and closing a wire of sockets, progress, and sleeping until there is something to do. */
#define _GNU_SOURCE
#include "transport/wire/tcp/wire_tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/blake2s.h"
#include "base/forks.h"
#include "base/open_files.h"
#include "weft.h"

#define MS INT64_C(1000000)
#define LEAVE_NS (5000 * MS) /* within which what was sent must reach the peers' kernels */
#define FAILED_NS (50 * MS)  /* the same after a failure, when peers may not read it any more */
#define EVENTS 64
#define WIRE_FILES 8 /* beside those of its connections: epoll, listeners, the sentinel's, the store's, newcomers */
#define BUFFER_LEAST (16 << 10) /* with less than one packet TCP stalls */
#define BUFFER_MOST (1 << 30)

static struct tcp_wire *tcp(struct wire *w)
{
    return (struct tcp_wire *)w;
}

/* ---- opening ---- */

static void destroy(struct tcp_wire *w)
{
    for (struct tcp_peer *p = w->used; p; p = p->next_used) {
        tcp_link_lost(w, p, TRANSPORT_LEFT, 0);
        tcp_sensor_end(w, p);
    }
    for (struct tcp_newcomer *g = w->newcomers, *next; g; g = next) {
        next = g->next;
        if (g->fd >= 0)
            forks_close(g->fd);
        free(g);
    }
    while (w->inbox) {
        struct tcp_mail *l = w->inbox;
        w->inbox = l->next;
        if (l->fate == TRANSPORT_HERE)
            free(l);
    }
    free(w->reading);
    tcp_lane_free_all(w);
    for (int i = 0; i < w->nlisteners; i++)
        forks_close(w->listeners[i]);
    if (w->base.fd >= 0)
        close(w->base.fd);
    tcp_peer_free_all(w);
    roster_drop(&w->roster);
    blake2s_wipe(w->key, sizeof w->key);
    free(w);
}

/* WEFT_TCP_BUFFER: bytes that the kernel buffers for each connection, each way. */
static int settle_buffer(struct tcp_wire *w, const struct wire_boot *boot)
{
    const char *text = getenv("WEFT_TCP_BUFFER");
    if (!text || !*text)
        return 0;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || n < BUFFER_LEAST || n > BUFFER_MOST)
        return boot->error(WEFT_EINVAL, "WEFT_TCP_BUFFER=%s: expected a number from %d to %d", text, BUFFER_LEAST,
                           BUFFER_MOST);
    w->buffer = (int)n;
    return 0;
}

/* Makes the files of a wire, and sees to it that there are enough for its connections. If there are not, the card says
 * so, and all ranks hear of it. */
static int make_files(struct tcp_wire *w, const struct wire_boot *boot, struct tcp_card *card, bool any)
{
    size_t need;
    bool enough = open_files_allow_more(WIRE_FILES + (size_t)boot->peers, &need);
    int err = 0;
    if (enough && (w->base.fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        err = boot->error(WEFT_ETRANSPORT, "tcp: no epoll: %s", strerror(errno));
    if (enough && !err)
        err = tcp_meet_listen(w, boot, card, any);
    card->files = enough ? 0 : (uint32_t)open_files_limit();
    card->need = (uint32_t)need;
    return err;
}

/* Called by one rank of a host when the cards of all ranks are there. */
static int look_through(void *arg, void *all, void *key)
{
    const struct wire_boot *boot = arg;
    struct tcp_card *cards = all;
    for (int i = 0; i < boot->size; i++)
        if (cards[i].files)
            return boot->error(WEFT_ETRANSPORT,
                               "tcp: rank %d may have %u files open, and needs %u for %d ranks: raise its limit "
                               "(ulimit -n)",
                               i, cards[i].files, cards[i].need, boot->size);
    return tcp_proof_key(boot, cards, key);
}

static int exchange_cards(struct tcp_wire *w, const struct wire_boot *boot, const struct tcp_card *mine)
{
    struct wire_boot copy = *boot;
    const struct roster_ask ask = {
        .mine = mine, .bytes = sizeof *mine, .sum_up = look_through, .arg = &copy, .more = WIRE_KEY};
    int err = wire_roster(boot, &ask, &w->roster);
    if (err)
        return err;
    w->cards = w->roster.all;
    memcpy(w->key, w->roster.more, sizeof w->key);
    return 0;
}

static int open_wire(const struct wire_boot *boot, struct wire **out)
{
    struct tcp_wire *w = calloc(1, sizeof *w);
    struct tcp_card card = {.n = 0};
    bool any = false;
    if (!w)
        return boot->error(WEFT_ENOMEM, "out of memory");
    w->base = (struct wire){&wire_tcp, boot->error, boot->rank, boot->size, UINT64_C(1) << TCP_TAG_BITS, -1, false, 0};
    w->source = TCP_LISTENER;
    w->inbox_last = &w->inbox;
    w->peers = calloc((size_t)boot->size, sizeof *w->peers);
    int err = w->peers ? settle_buffer(w, boot) : boot->error(WEFT_ENOMEM, "out of memory");
    if (!err && getrandom(&w->luck, sizeof w->luck, GRND_NONBLOCK) < 0)
        w->luck = (uint64_t)core_now();
    if (!err)
        err = tcp_card_fill(boot, &card, &any);
    if (!err)
        err = make_files(w, boot, &card, any);
    if (!err)
        err = tcp_proof_card(boot, &card);
    if (!err)
        err = exchange_cards(w, boot, &card);
    blake2s_wipe(card.secret, sizeof card.secret);
    if (err) {
        destroy(w);
        return err;
    }
    *out = &w->base;
    return 0;
}

/* The new wire has connections of its own, so that a failure of one wire does not touch the other. */
static int split_wire(struct wire *base, const int *ranks, const struct wire_boot *boot, struct wire **out)
{
    const struct tcp_wire *w = tcp(base);
    struct wire_boot own = *boot;
    own.error = base->error;
    own.key = w->key;
    own.local = true;
    for (int i = 0; i < own.size; i++)
        own.local &= tcp_card_together(&w->cards[base->rank], &w->cards[ranks[i]]);
    return open_wire(&own, out);
}

/* ---- moving things ---- */

static void happened(struct tcp_wire *w, const struct epoll_event *e)
{
    enum tcp_source *source = e->data.ptr;
    if (*source == TCP_LISTENER) {
        tcp_meet_accept(w);
    } else if (*source == TCP_NEWCOMER) {
        tcp_meet_newcomer(w, (struct tcp_newcomer *)(void *)source);
    } else if (*source == TCP_SENSOR) {
        tcp_watch_sensed(w, (struct tcp_peer *)(void *)((char *)source - offsetof(struct tcp_peer, sensor)));
    } else {
        struct tcp_peer *p = (struct tcp_peer *)(void *)source;
        if (p->link == TCP_CALLING || p->link == TCP_ASKING) {
            tcp_meet_event(w, p);
            return;
        }
        if (p->link == TCP_OPEN && e->events & EPOLLOUT)
            tcp_out_push(w, p);
        if (p->link == TCP_OPEN && e->events & ~(uint32_t)EPOLLOUT)
            tcp_in_pull(w, p);
    }
}

static bool progress(struct wire *base)
{
    struct tcp_wire *w = tcp(base);
    struct epoll_event e[EVENTS];
    bool moved = tcp_out_push_dirty(w);
    int n = epoll_wait(base->fd, e, EVENTS, 0);
    for (int i = 0; i < n; i++)
        happened(w, &e[i]);
    tcp_meet_sweep(w);
    tcp_watch_look(w);
    return n > 0 || moved;
}

static bool arm(struct wire *base)
{
    struct epoll_event e;
    return !tcp(base)->inbox && !tcp(base)->dirty && epoll_wait(base->fd, &e, 1, 0) == 0;
}

static enum transport_fate gone(struct wire *base, int rank)
{
    tcp_watch_look(tcp(base));
    const struct tcp_peer *p = tcp(base)->peers[rank];
    return p ? p->fate : TRANSPORT_HERE;
}

static bool used(struct wire *base, int rank)
{
    const struct tcp_peer *p = tcp(base)->peers[rank];
    return p && p->link != TCP_UNUSED;
}

/* ---- mail ---- */

static int send_mail(struct wire *base, int peer, const void *bytes, size_t n)
{
    struct tcp_wire *w = (struct tcp_wire *)base;
    if (n < 1 || n > WIRE_MAIL)
        return base->error(WEFT_EINVAL, "a mail of %zu bytes; it can have 1 to %d", n, WIRE_MAIL);
    int err = tcp_meet_use(w, peer);
    if (err)
        return err;
    struct tcp_peer *p = w->peers[peer];
    const struct tcp_head head = {.kind = TCP_MAIL, .bytes = (uint32_t)n};
    if (!tcp_queue_copy(w, p, &head, bytes, n))
        return base->error(WEFT_ENOMEM, "out of memory");
    if (!p->blocked)
        tcp_out_push(w, p);
    return 0;
}

static bool flushed(struct wire *base)
{
    return ((struct tcp_wire *)base)->mails == 0;
}

/* ---- closing ---- */

/* Has all that was sent to the peer reached its kernel? From then on the peer can read it even if this process ends. */
static bool is_told(const struct tcp_peer *p)
{
    int unsent = 0;
    if (p->link == TCP_LOST || p->mute)
        return true;
    return p->link == TCP_OPEN && !p->first && !p->sends && !ioctl(p->fd, SIOCOUTQ, &unsent) && !unsent;
}

static bool all_told(const struct tcp_wire *w)
{
    for (const struct tcp_peer *p = w->used; p; p = p->next_used)
        if (!is_told(p))
            return false;
    return true;
}

/* It reads what comes meanwhile, so that peers that are sending get on and can read what this rank sends. */
static void close_wire(struct wire *base)
{
    struct tcp_wire *w = tcp(base);
    int64_t end = core_now() + (base->failed ? FAILED_NS : LEAVE_NS);
    base->failed = true; /* incoming data is not wanted any more */
    w->leaves = true;
    for (struct tcp_peer *p = w->used; p; p = p->next_used)
        tcp_out_bye(w, p);
    for (bool moved = true; !all_told(w) && core_now() < end; moved = progress(base))
        if (!moved && arm(base))
            poll(&(struct pollfd){.fd = base->fd, .events = POLLIN}, 1, 1);
    for (struct tcp_peer *p = w->used; p; p = p->next_used)
        tcp_meet_farewell(w, p);
    destroy(w);
}

const struct wire_ops wire_tcp = {
    .abi = WIRE_ABI,
    .name = "sockets",
    .can = {.deaths = true, .cancels = true},
    .open = open_wire,
    .split = split_wire,
    .close = close_wire,
    .progress = progress,
    .mail = send_mail,
    .flushed = flushed,
    .fetch = tcp_inbox_fetch,
    .make = tcp_data_make,
    .start = tcp_data_start,
    .test = tcp_data_test,
    .cancel = tcp_data_cancel,
    .drop = tcp_data_drop,
    .gone = gone,
    .used = used,
    .arm = arm,
    .make_list = tcp_data_make_list,
};
