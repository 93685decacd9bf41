/* Orders and reports through shared memory; see orders.h. */
#define _GNU_SOURCE
#include "bench/ranks/orders.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void orders_give(struct orders *b, const struct order *order)
{
    b->order = *order;
    for (uint32_t r = 0; r < b->ranks; r++)
        b->report[r].err = 0;
    atomic_store_explicit(&b->done, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->turn, 1, memory_order_release); /* pairs with the load in next_order */
    wake(&b->turn);
}

bool orders_await(struct orders *b, double seconds)
{
    uint32_t done = atomic_load_explicit(&b->done, memory_order_acquire); /* pairs with the add in orders_serve */
    if (done < b->ranks) {
        sleep_on(&b->done, done, seconds);
        done = atomic_load_explicit(&b->done, memory_order_acquire);
    }
    return done == b->ranks;
}

static void next_order(struct orders *b, const struct subject *s, uint32_t turn)
{
    while (atomic_load_explicit(&b->turn, memory_order_acquire) == turn) {
        bool all = atomic_load_explicit(&b->done, memory_order_relaxed) == b->ranks;
        sleep_on(&b->turn, turn, all || !s->idle ? 60 : 0.001);
        if (!all && s->idle)
            s->idle(s->self);
    }
}

static int time_calls(const struct subject *s, struct orders *b)
{
    const struct order *o = &b->order;
    int err = 0;
    for (int i = 0; i < o->warm && !err; i++)
        err = s->call(s->self, o->variant);
    if (!err)
        err = s->barrier(s->self);
    double from = work_now();
    for (int i = 0; i < o->runs && !err; i++)
        err = s->call(s->self, o->variant);
    b->report[s->rank].each = (work_now() - from) / (o->runs ? o->runs : 1);
    for (int i = 0; i < o->singles && !err; i++) {
        err = s->barrier(s->self);
        b->from[s->rank][i] = work_now();
        if (!err)
            err = s->call(s->self, o->variant);
        b->to[s->rank][i] = work_now();
    }
    return err ? err : s->barrier(s->self);
}

static int check_call(const struct subject *s, struct orders *b)
{
    s->fill(s->self, b->order.variant);
    int err = s->barrier(s->self);
    double from = work_now();
    if (!err)
        err = s->call(s->self, b->order.variant);
    b->report[s->rank].each = work_now() - from;
    if (!err)
        err = s->barrier(s->self);
    b->report[s->rank].wrong = err ? 0 : s->check(s->self, b->order.variant);
    return err;
}

void orders_serve(struct orders *b, const struct subject *s)
{
    atomic_fetch_add_explicit(&b->here, 1, memory_order_relaxed);
    for (uint32_t turn = 0;; turn++) {
        next_order(b, s, turn);
        struct order_report *mine = &b->report[s->rank];
        enum order_verb verb = b->order.verb;
        int err = 0;
        mine->why[0] = 0;
        if (verb == ORDER_OPEN) {
            err = s->open(s->self, &b->order.cell, mine->why, sizeof mine->why);
            memcpy(mine->made, s->made, sizeof mine->made);
        }
        if (verb == ORDER_CHECK)
            err = check_call(s, b);
        if (verb == ORDER_TIME)
            err = time_calls(s, b);
        if (verb == ORDER_EXPLAIN && s->rank == 0) {
            b->text[0] = 0;
            err = s->explain ? s->explain(s->self, b->order.json, b->text, sizeof b->text) : 0;
        }
        if (err && !mine->why[0])
            snprintf(mine->why, sizeof mine->why, "%s", s->words ? s->words() : "a call failed");
        mine->err = err;
        if (atomic_fetch_add_explicit(&b->done, 1, memory_order_acq_rel) + 1 == b->ranks)
            wake(&b->done);
        if (verb == ORDER_QUIT)
            return;
    }
}
