#include "base/wheel.h"

#define MS INT64_C(1000000)
#define DIGIT 6

static void put(struct wheel *w, struct wheel_timer *t)
{
    uint64_t differ = (uint64_t)(t->tick ^ w->tick);
    int level = differ ? (63 - __builtin_clzll(differ)) / DIGIT : 0;
    int digit = (int)(t->tick >> (level * DIGIT)) & 63;
    t->slot = level * 64 + digit;
    if (!list_has(&w->slots[t->slot]))
        list_begin(&w->slots[t->slot]);
    list_append(&w->slots[t->slot], &t->node);
    w->full[level] |= UINT64_C(1) << digit;
    w->steps++;
}

void wheel_add(struct wheel *w, struct wheel_timer *t, int64_t ns)
{
    const int64_t most = (INT64_C(1) << (WHEEL_LEVELS * DIGIT)) - 1;
    int64_t tick = ns / MS + (ns % MS != 0);
    t->tick = tick < w->tick ? w->tick : tick > most ? most : tick;
    put(w, t);
}

static void take(struct wheel *w, struct wheel_timer *t)
{
    list_remove(&t->node);
    if (list_empty(&w->slots[t->slot]))
        w->full[t->slot / 64] &= ~(UINT64_C(1) << t->slot % 64);
    w->steps++;
}

void wheel_remove(struct wheel *w, struct wheel_timer *t)
{
    if (list_has(&t->node))
        take(w, t);
}

/* The first slot that has timers, and when it begins; -1: there is none. The slots of a level come before those of the
 * levels above it. */
static int first_slot(const struct wheel *w, int64_t *begins)
{
    for (int level = 0; level < WHEEL_LEVELS; level++) {
        if (!w->full[level])
            continue;
        int digit = __builtin_ctzll(w->full[level]), above = (level + 1) * DIGIT;
        *begins = ((w->tick >> above) << above) | (int64_t)digit << (level * DIGIT);
        return level * 64 + digit;
    }
    return -1;
}

struct wheel_timer *wheel_pop(struct wheel *w, int64_t now_ns)
{
    int64_t now = now_ns / MS, begins = 0;
    for (int slot; (slot = first_slot(w, &begins)) >= 0 && begins <= now;) {
        w->steps++;
        if (begins > w->tick)
            w->tick = begins;
        struct wheel_timer *t = LIST_OF(list_first(&w->slots[slot]), struct wheel_timer, node);
        if (slot < 64) {
            take(w, t);
            return t;
        }
        for (; t;
             t = list_empty(&w->slots[slot]) ? NULL : LIST_OF(list_first(&w->slots[slot]), struct wheel_timer, node)) {
            take(w, t);
            put(w, t);
        }
    }
    if (now > w->tick)
        w->tick = now;
    return NULL;
}

int64_t wheel_next(const struct wheel *w)
{
    int64_t begins;
    return first_slot(w, &begins) < 0 ? INT64_MAX : begins * MS;
}
