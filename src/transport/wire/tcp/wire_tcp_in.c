/* What comes from a peer: heads, mail and messages. Bytes whose place is not known yet are read into the stage and
 * taken from there. Once the head of a large frame is known, its bytes are read straight into their place, together
 * with the head of the next frame. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "transport/wire/tcp/wire_tcp.h"

#define DIRECT 2048          /* bytes: a frame of this size or more is read by a system call of its own */
#define BULK (2 * TCP_EAGER) /* bytes: after a frame of this size or more the next head is read alone */

/* ---- frames ---- */

/* The first frame of a message has come: decides where the message goes. */
static bool open_message(struct tcp_wire *w, struct tcp_lane *l, size_t total)
{
    struct tcp_message *m = l->message;
    l->total = l->left = total;
    l->offered = l->unfit = false;
    l->large = total > TCP_EAGER;
    if (m && m->state == TCP_MOVES && !l->first) {
        l->unfit = total > m->base.bytes;
        l->into = l->unfit ? TCP_DISCARD : TCP_MEMORY;
        return true;
    }
    /* A larger message comes only after this rank has asked for it. If it does not want it any more, no memory is taken
     * for it. */
    if (w->base.failed || total > TCP_EAGER) {
        l->into = TCP_DISCARD;
        return true;
    }
    struct tcp_arrival *a = malloc(sizeof *a + total);
    if (!a)
        return false;
    *a = (struct tcp_arrival){.bytes = total};
    if (l->first)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
    l->waiting++;
    l->into = TCP_STASH;
    return true;
}

/* A head has come. Returns 0, or the errno with which the connection ends. */
static int open_frame(struct tcp_wire *w, struct tcp_peer *p)
{
    const struct tcp_head *h = &p->head;
    struct tcp_lane *l;
    p->frame_left = h->bytes;
    p->bulk = h->kind == TCP_DATA && h->bytes >= BULK;
    p->lane = NULL;
    if (h->kind == TCP_MAIL) {
        if (h->bytes < 1 || h->bytes > WIRE_MAIL)
            return EPROTO;
        p->mail = malloc(sizeof *p->mail + h->bytes);
        if (p->mail)
            *p->mail = (struct tcp_mail){
                .peer = p->rank, .fate = TRANSPORT_HERE, .n = h->bytes, .bytes = (unsigned char *)(p->mail + 1)};
        return p->mail ? 0 : ENOMEM;
    }
    if (h->tag >> TCP_TAG_BITS || (h->kind != TCP_DATA && h->bytes) || h->kind > TCP_BYE || h->kind < TCP_MAIL)
        return EPROTO;
    if (h->kind == TCP_BYE)
        return 0;
    l = tcp_lane(w, p->rank, h->tag, h->kind == TCP_GRANT);
    if (!l)
        return ENOMEM;
    if (h->kind == TCP_OFFER)
        tcp_data_offered(w, l, h->value);
    if (h->kind == TCP_GRANT)
        tcp_data_granted(w, l, h->value);
    if (h->kind == TCP_ABORT)
        tcp_lane_aborted(l);
    if (h->kind != TCP_DATA)
        return 0;
    p->lane = l;
    if (l->into == TCP_NOWHERE && l->waiting > 2 * WIRE_AHEAD)
        return EPROTO; /* A sender does not run ahead that far. Twice: if a tag is used again and only one end counts
                          its starts anew, one grant may be taken for another. */
    if (l->into == TCP_NOWHERE && !open_message(w, l, h->value))
        return ENOMEM;
    bool makes_sense = h->value == l->total && h->bytes <= l->left && h->bytes <= TCP_FRAME && (h->bytes || !l->total);
    return makes_sense ? 0 : EPROTO;
}

static void close_frame(struct tcp_wire *w, struct tcp_peer *p)
{
    struct tcp_lane *l = p->lane;
    p->head_got = 0;
    if (p->mail)
        tcp_inbox_post(w, p->mail);
    p->mail = NULL;
    p->lane = NULL;
    if (l && !l->left) {
        tcp_lane_arrived(l);
        tcp_data_arrived(w, l);
    }
}

/* ---- bytes of frames ---- */

static unsigned char *stash_end(const struct tcp_lane *l)
{
    return l->last->data + (l->total - l->left);
}

static void took(struct tcp_peer *p, size_t n)
{
    p->frame_left -= n;
    if (p->lane)
        p->lane->left -= n;
}

static void put(struct tcp_peer *p, const unsigned char *bytes, size_t n)
{
    const struct tcp_lane *l = p->lane;
    if (p->mail)
        memcpy(p->mail->bytes + (p->mail->n - p->frame_left), bytes, n);
    else if (l->into == TCP_MEMORY)
        tcp_memory_put(l->message, bytes, n);
    else if (l->into == TCP_STASH)
        memcpy(stash_end(l), bytes, n);
    took(p, n);
}

/* Takes bytes in the order in which they came. False: the connection is over. */
static bool take(struct tcp_wire *w, struct tcp_peer *p, const unsigned char *bytes, size_t n)
{
    while (n || (p->head_got == sizeof p->head && !p->frame_left)) {
        if (p->head_got < sizeof p->head) {
            size_t rest = sizeof p->head - p->head_got, some = n < rest ? n : rest;
            memcpy((unsigned char *)&p->head + p->head_got, bytes, some);
            p->head_got += some;
            bytes += some;
            n -= some;
            int why = p->head_got == sizeof p->head ? open_frame(w, p) : 0;
            if (why || (p->head_got == sizeof p->head && p->head.kind == TCP_BYE)) {
                tcp_link_lost(w, p, why ? TRANSPORT_HERE : TRANSPORT_LEFT, why);
                return false;
            }
            continue;
        }
        size_t some = n < p->frame_left ? n : p->frame_left;
        if (some)
            put(p, bytes, some);
        bytes += some;
        n -= some;
        if (!p->frame_left)
            close_frame(w, p);
    }
    return true;
}

/* Decides where the next bytes are read to, and returns the number of pieces. *direct of them are bytes of the frame
 * that go straight into their place; the rest goes to the stage. */
static size_t aim(struct tcp_wire *w, struct tcp_peer *p, struct iovec *v, size_t *direct, size_t *all)
{
    const struct tcp_lane *l = p->lane;
    size_t n = 0;
    *direct = 0;
    *all = p->bulk && p->head_got < sizeof p->head ? sizeof p->head - p->head_got : TCP_STAGE;
    if (p->head_got == sizeof p->head && l && p->frame_left >= DIRECT && l->into != TCP_DISCARD) {
        if (l->into == TCP_MEMORY)
            n = tcp_memory_pieces(l->message, p->frame_left, v, TCP_PIECES - 1);
        else
            v[n++] = (struct iovec){stash_end(l), p->frame_left};
        for (size_t i = 0; i < n; i++)
            *direct += v[i].iov_len;
        *all = *direct < p->frame_left ? 0 : sizeof p->head; /* with the head of the next frame, and no more */
    }
    if (*all)
        v[n++] = (struct iovec){w->stage, *all};
    *all += *direct;
    return n;
}

void tcp_in_pull(struct tcp_wire *w, struct tcp_peer *p)
{
    struct iovec v[TCP_PIECES];
    if (p->unsure) {
        if (!tcp_meet_prove(w, p))
            return;
        unsigned char *last = p->words;
        p->words = NULL;
        bool goes_on = !last || take(w, p, last, p->proof.bytes);
        free(last);
        if (!goes_on)
            return;
    }
    for (size_t room = TCP_TURN; p->link == TCP_OPEN;) {
        size_t direct, all;
        struct msghdr h = {.msg_iov = v, .msg_iovlen = aim(w, p, v, &direct, &all)};
        ssize_t got = recvmsg(p->fd, &h, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            tcp_link_lost(w, p, TRANSPORT_HERE, got < 0 ? errno : p->why);
            return;
        }
        size_t n = (size_t)got, placed = n < direct ? n : direct;
        if (placed && p->lane->into == TCP_MEMORY)
            tcp_memory_advance(p->lane->message, placed);
        took(p, placed);
        if (!take(w, p, w->stage, n - placed))
            return;
        if (n < all || n >= room) /* there is no more now, or other connections get their turn */
            return;
        room -= n;
    }
}
