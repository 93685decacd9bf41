/* Peers on other hosts, mail to them, and waiting for them: what both directions need. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "comm/lock.h"
#include "window/remote.h"

#define YIELDS 20

struct remote_peer *remote_peer(struct remote *r, int rank)
{
    struct remote_peer *p = r->peers[rank];
    if (p || !(p = calloc(1, sizeof *p)))
        return p;
    p->rank = rank;
    p->last = &p->first;
    p->next = r->used;
    r->used = r->peers[rank] = p;
    return p;
}

int remote_peer_post(struct remote *r, int rank, const struct remote_mail *m, size_t n)
{
    char who[NAMES_RANK];
    int err = mail_send(r->comm, rank, m, REMOTE_HEAD + n);
    if (!err || err == WEFT_EPEER) /* a wait for the peer sees that it is gone */
        return 0;
    char text[CORE_TEXT / 2];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    return comm_fail(r->comm, err, "rank %d, mail to %s: %s", r->comm->rank, names_rank(r->comm, rank, who), text);
}

/* ---- waiting ---- */

static const char *name_late(const struct remote *r, struct comm_names *names)
{
    for (const struct remote_peer *p = r->used; p; p = p->next)
        if (p->acked < p->sent)
            names_add(names, r->comm, p->rank, "");
    return names->n ? names_text(names) : NULL;
}

int remote_peer_late(const struct remote *r, const char *call)
{
    struct comm_names names = {0};
    const char *who = name_late(r, &names);
    if (!who) /* the last one came between two looks */
        return error_set(WEFT_ETIMEOUT, "%s: time ran out", call);
    return error_set(WEFT_ETIMEOUT, "%s: time ran out, %s yet to take what was put", call, who);
}

/* Fails the comm: the peer, or all peers with puts to acknowledge, have shown nothing for the deadline. */
static int silent(struct remote *r, const struct remote_peer *p)
{
    struct comm_names names = {0};
    char who[NAMES_RANK];
    weft_comm *c = r->comm;
    const char *late = p ? names_rank(c, p->rank, who) : name_late(r, &names);
    return comm_fail(c, WEFT_EPEER,
                     "%s has taken no put or signal of rank %d for %lld ms: it has to make calls on its comm, or to "
                     "have a progress thread",
                     late ? late : "a rank", c->rank, (long long)(c->deadline_ns / 1000000));
}

static void sleep_on_wires(weft_comm *c, uint32_t bell)
{
    int64_t ns = c->beat_ns;
    bool wired;
    if (mail_listen(c, &wired, &ns))
        core_doze(c->group, c->rank, bell, 1, ns);
    else
        core_disarm(c->group, c->rank);
}

/* Like comm_wait, but moves only the wires: put may be called where a callback must not run. */
int remote_peer_wait(struct remote *r, const struct remote_peer *p, bool (*met)(void *arg), void *arg)
{
    weft_comm *c = r->comm;
    int64_t began = met(arg) ? 0 : core_now();
    for (int turn = 0; began; turn++) {
        bool armed = turn > YIELDS;
        uint32_t bell = armed ? core_arm(c->group, c->rank) : 0;
        if (armed)
            lock_disturb(c->family);
        bool moved = mail_move(c), done = met(arg);
        int64_t now = core_now(), heard = p && p->heard_at > began ? p->heard_at : began;
        int err = 0;
        if (!done && !moved) {
            liveness_watch(c, now, armed);
            err = !core_failed(c->group) && liveness_silence(c, heard, now) >= c->deadline_ns ? silent(r, p) : 0;
            done = met(arg); /* no wait goes on for a peer that has left */
        }
        if (!err && !done)
            err = comm_failure(c);
        if (armed && (moved || done || err))
            core_disarm(c->group, c->rank);
        else if (armed)
            sleep_on_wires(c, bell);
        else if (!moved)
            sched_yield();
        if (done || err)
            return err;
        turn = moved ? 0 : turn;
    }
    return 0;
}
