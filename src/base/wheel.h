/* Timers: many of them, most of which are taken back before their time. Adding one and taking one back take constant
 * time. A wheel has levels of 64 slots: a slot of the lowest level is a millisecond, a slot of any other level is all
 * 64 slots of the level below. A timer lies in the lowest level in which its time and the wheel's share all higher
 * digits (to the base 64), and goes down when the wheel gets there: at most WHEEL_LEVELS times. */
#ifndef WEFT_BASE_WHEEL_H
#define WEFT_BASE_WHEEL_H
#include <stdint.h>

#include "base/list.h"

#define WHEEL_LEVELS 7 /* 64^7 ms are 139 years */

struct wheel_timer {
    struct list node; /* in its slot */
    int64_t tick;     /* when it ends, in ms */
    int slot;
};

/* All zeros: no timers, and the time is 0. */
struct wheel {
    int64_t tick;                /* all timers that ended before it are out */
    uint64_t full[WHEEL_LEVELS]; /* a bit for each slot that has timers */
    struct list slots[WHEEL_LEVELS * 64];
    uint64_t steps; /* timers and slots that were looked at so far */
};

/* Sets a timer that is not set. It ends at `ns` or up to a millisecond later, a time that is over at the next pop. */
void wheel_add(struct wheel *w, struct wheel_timer *t, int64_t ns);
void wheel_remove(struct wheel *w, struct wheel_timer *t); /* one that is not set stays as it is */
/* Takes out a timer that has ended; NULL: there is none. */
struct wheel_timer *wheel_pop(struct wheel *w, int64_t now_ns);
/* After wheel_pop has returned NULL: when to call it again, not later than the next timer ends; INT64_MAX: never. */
int64_t wheel_next(const struct wheel *w);
#endif
