/* Which peers live. Silence is a doubt, and so is the end of a connection without a farewell: packets get lost, and
 * what is between two hosts may end connections. A doubt is cleared up by a fresh connection to the peer's listener
 * (wire_tcp_sensor.c):
 *
 *   refused    the process has ended: the peer DIED
 *   taken      the peer lives. If its connection was only silent, it goes on. If it has ended, what was on its way is
 *              lost: the peer is LOST
 *   no answer  the peer cannot be reached, whether it lives or not: it is LOST
 *
 * Peers in this rank's network namespace are not probed: the kernel itself ends their connections when their process
 * ends. Of the connections to ranks of one other host only one is probed by the keepalive of TCP, since one kernel
 * answers for all of them. If that one does not answer, all ranks of its host are asked. So an idle rank sends about
 * one packet in two seconds to each host with which it is connected. The times of the first probes are random, so that
 * ranks do not probe in step.
 *
 * A host that vanishes is given up after KEEP_SILENT_NS: the last ASK_NS of this time the sensor asks. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "base/hash.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "transport/wire/wire_keepalive.h"
#include "weft.h"

#define MS INT64_C(1000000)
#define ASK_NS (1500 * MS)  /* for an answer of a listener; the kernel asks twice in this time */
#define HOLD_NS (300 * MS)  /* for the kernel to end the fresh connection, if the process is just ending */
#define CUT_NS (20000 * MS) /* data is not taken although the peer lives: the connection is cut */
#define DOUBT_NS (KEEP_SILENT_NS - ASK_NS)
#define MANY 64 /* hosts; with more of them the probes are spread over a longer time */

/* ---- hosts ---- */

static bool is_connected(const struct tcp_peer *p)
{
    return p->fd >= 0 && (p->link == TCP_OPEN || p->link == TCP_ASKING);
}

/* Sees to it that one connection to the peer's host is probed. */
static void probe(struct tcp_wire *w, struct tcp_peer *p)
{
    struct tcp_host *h = p->host;
    if (h->probed && h->probed->probed)
        return;
    int spread = w->nprobed < MANY ? 2 : 3;
    w->nprobed += !h->probed;
    h->probed = p;
    p->probed = true;
    keep_alive_after(p->fd, KEEP_IDLE + (int)(hash_u64(w->luck, (uint64_t)p->rank) % (uint64_t)spread));
}

/* ---- silence ---- */

/* All connected ranks of the host are asked. */
static void doubt(struct tcp_wire *w, struct tcp_peer *p)
{
    bool all = p->probed;
    for (struct tcp_peer *q = w->used; q; q = q->next_used)
        if (q == p || (all && q->host == p->host && is_connected(q)))
            tcp_sensor_begin(w, q);
}

static bool has_answered(const struct tcp_sensor *s)
{
    return s->answered || s->tries;
}

/* The peer is being asked, and its connection is intact as far as this end knows. */
static void clear_up(struct tcp_wire *w, struct tcp_peer *p, bool silent, int64_t now)
{
    struct tcp_sensor *s = &p->sensor;
    struct tcp_host *h = p->host;
    tcp_sensor_event(w, p);
    if (s->refused) {
        tcp_link_lost(w, p, TRANSPORT_DIED, ECONNREFUSED);
    } else if (has_answered(s)) {
        p->alive_at = now;
        h->silent = false;
        tcp_sensor_end(w, p);
    } else if (now - s->began >= ASK_NS && (silent || h->silent)) {
        h->silent |= p->probed;
        tcp_link_lost(w, p, TRANSPORT_LOST, ETIMEDOUT);
    } else if (now - s->began >= 2 * ASK_NS && !silent) {
        tcp_sensor_end(w, p); /* the connection itself has answered meanwhile */
    }
}

static void look_at(struct tcp_wire *w, struct tcp_peer *p, int64_t now)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    probe(w, p);
    bool known = !getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &n), awaits = known && keep_awaits(&info);
    if (!awaits)
        p->awaits_since = 0;
    else if (!p->awaits_since)
        p->awaits_since = now;
    int64_t awaited = awaits ? now - p->awaits_since : 0;
    if (p->sensor.began) {
        clear_up(w, p, awaits && keep_doubted(&info, awaited, KEEP_SILENT_NS), now);
    } else if (awaits && keep_doubted(&info, awaited, DOUBT_NS) && now - p->alive_at >= DOUBT_NS) {
        if (info.tcpi_unacked && awaited >= CUT_NS)
            tcp_link_lost(w, p, TRANSPORT_LOST, ETIMEDOUT);
        else
            doubt(w, p);
    }
}

/* ---- ends ---- */

/* The connection has ended without a farewell. */
static void settle(struct tcp_wire *w, struct tcp_peer *p, int64_t now)
{
    const struct tcp_sensor *s = &p->sensor;
    tcp_sensor_event(w, p);
    bool lives = has_answered(s) && now - s->began >= HOLD_NS && (!s->answered || now - s->answered >= HOLD_NS);
    if (s->refused || lives || now - s->began >= ASK_NS)
        tcp_link_settle(w, p, s->refused ? TRANSPORT_DIED : TRANSPORT_LOST);
}

void tcp_watch_sensed(struct tcp_wire *w, struct tcp_peer *p)
{
    if (!p->sensor.began)
        return;
    if (p->broken)
        settle(w, p, core_now());
    else
        clear_up(w, p, false, core_now());
}

void tcp_watch_look(struct tcp_wire *w)
{
    int64_t now = core_now();
    if (now - w->looked_at < KEEP_LOOK_NS)
        return;
    w->looked_at = now;
    for (struct tcp_peer *p = w->used; p; p = p->next_used) {
        tcp_meet_look(w, p, now);
        if (p->broken)
            settle(w, p, now);
        else if (is_connected(p) && !tcp_card_together(&w->cards[w->base.rank], &w->cards[p->rank]))
            look_at(w, p, now);
    }
    tcp_meet_look_newcomers(w, now);
}
