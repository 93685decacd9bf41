/* Peers that a task waits for and that are gone or silent: each task knows its peers and is asked to look at them. */
#include "comm/task.h"

#define LOOK_NS 1000000 /* at most once in this time */

void liveness_look(weft_comm *c, int64_t now)
{
    struct comm_family *f = c->family;
    bool away = now - atomic_load_explicit(&f->looked_at, memory_order_relaxed) >= c->deadline_ns / 2;
    /* A rank that always looks this seldom is not away: the time between two looks counts. */
    if (away && !atomic_load_explicit(&f->away, memory_order_relaxed))
        atomic_store_explicit(&f->back_at, now, memory_order_relaxed);
    atomic_store_explicit(&f->away, away, memory_order_relaxed);
    atomic_store_explicit(&f->looked_at, now, memory_order_relaxed);
}

int64_t liveness_silence(const weft_comm *c, int64_t seen_at, int64_t now)
{
    int64_t back_at = atomic_load_explicit(&c->family->back_at, memory_order_relaxed);
    return now - (seen_at > back_at ? seen_at : back_at);
}

bool liveness_departures(weft_comm *c, uint64_t *n)
{
    const weft_comm *k = c;
    *n = 0;
    do {
        if (!k->transport->departures)
            return false;
        *n += k->transport->departures(k->link);
    } while ((k = k->sibling) != c);
    return true;
}

void liveness_watch(weft_comm *c, int64_t now, bool must)
{
    if (!must && now - c->watched_at < LOOK_NS)
        return;
    c->watched_at = now;
    liveness_look(c, now);
    weft_comm *k = c;
    do {
        comm_task_watch_all(k, now);
        if (*k->flight.dir)
            flight_look(k);
    } while ((k = k->sibling) != c);
}
