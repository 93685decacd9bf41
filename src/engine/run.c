/* The calls around a run: start, test, wait, callbacks, and the end of an exec. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/mail.h"
#include "comm/progress.h"
#include "engine/block.h"
#include "engine/driver.h"
#include "engine/watch.h"
#include "engine/ways/far.h"

/* ---- in flight ---- */

/* Release: pairs with exec_in_flight. */
static void set_state(weft_exec *x, int state)
{
    atomic_store_explicit(&x->state, state, memory_order_release);
}

static int64_t count(const _Atomic int64_t *runs)
{
    return atomic_load_explicit(runs, memory_order_acquire);
}

/* By who is in the seat, or starts: no other thread counts. Release: pairs with count. */
static void count_one(_Atomic int64_t *runs)
{
    atomic_store_explicit(runs, atomic_load_explicit(runs, memory_order_relaxed) + 1, memory_order_release);
}

static void link_in(weft_exec *x)
{
    weft_comm *c = x->comm;
    x->prev = c->last;
    x->next_exec = NULL;
    if (c->last)
        c->last->next_exec = x;
    else
        c->first = x;
    c->last = x;
    set_state(x, EXEC_IN_FLIGHT);
}

static void link_out(weft_exec *x, int err)
{
    weft_comm *c = x->comm;
    if (x->prev)
        x->prev->next_exec = x->next_exec;
    else
        c->first = x->next_exec;
    if (x->next_exec)
        x->next_exec->prev = x->prev;
    else
        c->last = x->prev;
    set_state(x, err);
}

static _Thread_local int callbacks; /* that this thread is in */

bool comm_in_callback(void)
{
    return callbacks > 0;
}

/* For the kin, too: what they wait with would come back here. */
void comm_callback(weft_comm *c, bool is)
{
    weft_comm *k = c;
    callbacks += is ? 1 : -1;
    do
        k->in_callback = is;
    while ((k = k->kin) != c);
}

/* Whom the end of a run concerns. The callback may start this exec again, or free it: it is not touched after that. */
static __attribute__((noinline)) void tell(weft_exec *x, int err, bool orphan)
{
    weft_comm *c = x->comm;
    if (c->threaded)
        progress_ended(c->family);
    if (x->done) {
        comm_callback(c, true);
        x->done(x->arg, err);
        comm_callback(c, false);
    }
    if (orphan)
        weft_exec_close(x);
}

static inline void finish(weft_exec *x, int err)
{
    bool orphan = x->orphan;
    link_out(x, err);
    count_one(&x->ended);
    if (x->done || orphan || x->comm->threaded)
        tell(x, err, orphan);
}

/* Ends what is in flight with the comm's failure. */
static __attribute__((noinline)) bool fail_all(weft_comm *c)
{
    const char *text;
    bool any = c->first;
    flight_failed(c);
    int err = core_failure(c->group, &text);
    for (weft_exec *x = c->first, *next; x; x = next) {
        next = x->next_exec;
        count_one(&x->failed);
        finish(x, err);
    }
    return any;
}

static bool pass(weft_comm *c, bool eager)
{
    struct core_rank *me = &c->group->ranks[c->rank];
    bool moved = false;
    if (core_failed(c->group)) /* before anything else: peers that have failed may have let go of their memory */
        moved = fail_all(c);
    /* Relaxed: peers only look whether it changes. */
    atomic_store_explicit(&me->pulse, atomic_load_explicit(&me->pulse, memory_order_relaxed) + 1, memory_order_relaxed);
    for (weft_exec *x = c->first, *next; x; x = next) {
        moved |= driver_pass(x, eager);
        next = x->next_exec;
        if (x->program->left)
            continue;
        moved = true;
        if (c->mail && mail_doubts(c))
            break; /* the next pass ends all that is in flight */
        finish(x, 0);
    }
    if (c->tasks)
        moved |= comm_tasks_pass(c, eager);
    return moved;
}

/* A callback may free what is in flight and close comms, but not the one whose kin are walked: the caller is in it. */
static __attribute__((noinline)) bool pass_kin(weft_comm *c, bool eager)
{
    bool moved = false;
    for (weft_comm *k = c->kin, *next; k != c; k = next) {
        if (!k->first && !k->tasks) {
            next = k->kin;
            continue;
        }
        k->execs++;
        moved |= pass(k, eager);
        next = k->kin;
        comm_exec_gone(k);
    }
    return moved;
}

bool comm_progress(weft_comm *c, bool eager)
{
    bool moved = pass(c, eager);
    if (c->kin != c)
        moved |= pass_kin(c, eager);
    return moved;
}

bool comm_kin_fly(const weft_comm *c)
{
    for (const weft_comm *k = c->kin; k != c; k = k->kin)
        if (k->first || comm_tasks_lack(k, NULL))
            return true;
    return false;
}

static int result(weft_exec *x)
{
    int state = atomic_load_explicit(&x->state, memory_order_acquire);
    return state && state != EXEC_IN_FLIGHT ? comm_failure(x->comm) : 0;
}

/* ---- the calls ---- */

static int check_start(weft_exec *x)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_start: the exec is NULL");
    if (exec_in_flight(x) || x->binding)
        return error_set(WEFT_EBUSY, "weft_exec_start: the exec is %s",
                         x->binding ? "being bound again" : "in flight; wait for the end of that run first");
    return comm_failure(x->comm);
}

static void begin(weft_exec *x)
{
    x->run++;
    if (x->arrivals)
        arrivals_reset(x->arrivals);
    atomic_store_explicit(&x->block->started, x->run, memory_order_relaxed); /* for watch.c of peers */
    link_in(x);
}

static inline __attribute__((always_inline)) int start(weft_exec *x)
{
    int err = check_start(x);
    if (err)
        return err;
    begin(x);
    driver_start(x);
    return 0;
}

void exec_begin(weft_exec *x)
{
    begin(x);
    if (core_failed(x->comm->group)) /* since the start: the next pass ends it */
        return;
    driver_start(x);
    driver_call(x);
}

/* With a progress thread. Where that is in the seat it does the rest. */
__attribute__((noinline)) static int start_shared(weft_exec *x)
{
    struct comm_family *f = x->comm->family;
    int err = 0;
    if (progress_try(f)) {
        err = start(x);
        if (!err) {
            count_one(&x->asked);
            driver_call(x);
            progress_disturb(f);
        }
        progress_leave(f);
    } else if (!(err = check_start(x))) {
        if (x->arrivals) /* who polls must not find those of the last run */
            arrivals_reset(x->arrivals);
        count_one(&x->asked);
        set_state(x, EXEC_IN_FLIGHT);
        progress_submit(f, x);
    }
    return err;
}

int weft_exec_start(weft_exec *x)
{
    if (x && x->comm->threaded)
        return start_shared(x);
    int err = start(x);
    if (!err)
        driver_call(x); /* it may be long before the next call here */
    return err;
}

/* True: something moved. */
static inline __attribute__((always_inline)) bool test_in_seat(weft_exec *x)
{
    weft_comm *c = x->comm;
    if (c->in_callback)
        return false;
    bool moved = comm_progress(c, c->tests % 64 == 63);
    if (exec_in_flight(x) && ++c->tests % 64 == 0)
        comm_watch(c, core_now(), false);
    return moved;
}

/* Never waits for the seat: if it is taken, somebody else makes progress. */
__attribute__((noinline)) static void test_shared(weft_exec *x)
{
    struct comm_family *f = x->comm->family;
    if (!progress_try(f))
        return;
    if (test_in_seat(x))
        progress_disturb(f);
    progress_leave(f);
}

int weft_exec_test(weft_exec *x, bool *done)
{
    if (!x || !done)
        return error_set(WEFT_EINVAL, "weft_exec_test: arguments must not be NULL");
    weft_comm *c = x->comm;
    if (exec_in_flight(x)) {
        if (!c->threaded)
            test_in_seat(x);
        else
            test_shared(x);
    }
    int state = atomic_load_explicit(&x->state, memory_order_acquire);
    int err = state < 0 ? comm_failure(c) : 0;
    if (!err)
        *done = state != EXEC_IN_FLIGHT;
    return err;
}

struct waiting {
    const weft_exec *x;
    int64_t runs; /* with the one that is waited for */
};

/* For the run in flight. Where a thread ends runs, the one before may be yet to be counted. */
static struct waiting wait_for(const weft_exec *x)
{
    return (struct waiting){x, x->comm->threaded ? count(&x->asked) : count(&x->ended) + 1};
}

static bool over(void *arg)
{
    const struct waiting *w = arg;
    return count(&w->x->ended) >= w->runs;
}

/* With others in flight every signal may be of use. */
static int lacking(void *arg)
{
    const struct waiting *w = arg;
    const weft_comm *c = w->x->comm;
    return c->first == w->x && c->last == w->x && !comm_tasks_lack(c, NULL) ? w->x->program->driver->lacking(w->x) : 1;
}

__attribute__((noinline)) static int late(weft_exec *x, int64_t timeout_ns)
{
    int err = watch_timeout(x);
    if (timeout_ns)
        flight_late(x->comm);
    return err;
}

static int wait_in_seat(weft_exec *x, struct waiting *w, int64_t timeout_ns)
{
    weft_comm *c = x->comm;
    int err = 0;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exec_wait: not inside a callback");
    if (!exec_in_flight(x))
        return result(x);
    if (timeout_ns == 0) {
        comm_progress(c, true);
        err = over(w) ? 0 : COMM_LATE;
        if (err) /* who only polls must miss the dead, too */
            comm_watch(c, core_now(), false);
    } else {
        int64_t now = timeout_ns > 0 ? core_now() : 0;
        struct comm_need need = {over, lacking, w,
                                 timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1};
        err = comm_wait(c, &need);
    }
    if (err == COMM_LATE)
        return late(x, timeout_ns);
    return err ? err : result(x);
}

/* With a progress thread: in the seat, unless that ends the run first. */
static int wait_shared(weft_exec *x, struct waiting *w, int64_t timeout_ns)
{
    struct comm_family *f = x->comm->family;
    bool seated = false;
    int64_t now = timeout_ns >= 0 ? core_now() : 0;
    int64_t until = timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
    int err = exec_in_flight(x) || progress_seated(f) ? progress_enter_unless(f, over, w, until, &seated) : 0;
    if (seated) {
        err = wait_in_seat(x, w, timeout_ns);
        progress_leave(f);
        return err;
    }
    if (err == COMM_LATE)
        return error_set(WEFT_ETIMEOUT, "time ran out: the progress thread was at work all the time");
    return result(x);
}

int weft_exec_wait(weft_exec *x, int64_t timeout_ns)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_wait: the exec is NULL");
    struct waiting w = wait_for(x);
    return x->comm->threaded ? wait_shared(x, &w, timeout_ns) : wait_in_seat(x, &w, timeout_ns);
}

int weft_exec_run(weft_exec *x)
{
    struct comm_family *f = x ? comm_enter(x->comm) : NULL; /* the thread is not called: this one waits */
    int err = x && x->comm->in_callback ? error_set(WEFT_EBUSY, "weft_exec_run: not inside a callback") : start(x);
    if (!err && f)
        count_one(&x->asked);
    if (!err)
        err = wait_in_seat(x, &(struct waiting){x, count(&x->ended) + 1}, -1);
    comm_leave(f);
    return err;
}

int weft_exec_on_done(weft_exec *x, void (*done)(void *arg, int err), void *arg)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_on_done: the exec is NULL");
    struct comm_family *f = comm_enter(x->comm);
    x->done = done;
    x->arg = arg;
    comm_leave(f);
    return 0;
}

int weft_exec_stats(const weft_exec *x, weft_exec_info *out)
{
    if (!x || !out || out->size < sizeof out->size)
        return error_set(WEFT_EINVAL, "weft_exec_stats: arguments must not be NULL and out->size must be set");
    struct comm_family *f = comm_enter(x->comm);
    weft_exec_info info = {.size = out->size,
                           .runs = count(&x->ended) - count(&x->failed),
                           .staging_peak = x->comm->staging.peak,
                           .staging_limit = x->comm->staging.limit};
    comm_leave(f);
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return 0;
}

/* ---- the end ---- */

/* Tells the peers, and lets go of their blocks. */
static void part_from_peers(weft_exec *x)
{
    struct program *p = x->program;
    /* Orders all that this rank ever signalled before it; pairs with the load in watch.c. */
    atomic_store_explicit(&x->block->freed, 1, memory_order_seq_cst);
    for (uint32_t i = 0; i < p->nins; i++) {
        core_ring(x->comm->group, p->ins[i].peer);
        block_drop(p->ins[i].block);
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (program_hears(p, p->outs[i].peer))
            continue;
        core_ring(x->comm->group, p->outs[i].peer);
        block_drop(p->outs[i].block);
    }
    for (uint32_t i = 0; i < x->nheld; i++)
        block_drop(x->held[i]);
    block_drop(x->block);
}

static void free_in_seat(weft_exec *x)
{
    weft_comm *c = x->comm;
    if (exec_in_flight(x) && c->in_callback) {
        x->orphan = true;
        return;
    }
    struct waiting w = wait_for(x);
    struct comm_need need = {over, lacking, &w, core_now() + c->deadline_ns};
    char who[COMM_WHO];
    if (exec_in_flight(x) &&
        comm_wait(c, &need) == COMM_LATE) /* peers that come later must not find memory that is gone */
        comm_fail(c, WEFT_EPEER, "%s gave up a run and freed its exec: the run did not end within %lld ms",
                  comm_who(c, c->rank, who), (long long)(c->deadline_ns / 1000000));
    const char *text;
    bool clean = !atomic_load_explicit(&x->state, memory_order_relaxed) && !core_failure(c->group, &text);
    if (exec_in_flight(x))
        link_out(x, WEFT_EPEER);
    flight_record(&c->flight, FLIGHT_FREED, 0, atomic_load_explicit(&x->state, memory_order_relaxed), x->id, x->run);
    exec_unlist(x);
    part_from_peers(x);
    far_part(x);
    comm_bury(c, x->grave, &x->block->holders, x->block);
    if (clean)
        c->transport->release(c->link, x->scratch);
    else
        x->program->reserve.offset = -1; /* peers may still read scratch and staging: the group frees them in the end */
    program_free(x, x->program);
    arrivals_free(x->arrivals);
    free(x->held);
    free(x);
    comm_exec_gone(c);
}

void weft_exec_close(weft_exec *x)
{
    if (!x || comm_inherited(x->comm))
        return;
    struct comm_family *f = comm_enter(x->comm);
    free_in_seat(x);
    comm_leave(f);
}
