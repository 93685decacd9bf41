/* The calls around a run: start, test, wait, callbacks, and the end of an exec. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/block.h"
#include "exec/watch.h"

/* ---- in flight ---- */

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
    x->inflight = true;
}

static void link_out(weft_exec *x)
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
    x->inflight = false;
}

/* For the kin, too: what they wait with would come back here. */
void comm_callback(weft_comm *c, bool is)
{
    weft_comm *k = c;
    do
        k->in_callback = is;
    while ((k = k->kin) != c);
}

/* Ends a run. The callback may start this exec again, or free it: it is not touched after that. */
static void finish(weft_exec *x, int err)
{
    weft_comm *c = x->comm;
    bool orphan = x->orphan;
    link_out(x);
    x->err = err;
    x->completed += !err;
    if (x->done) {
        comm_callback(c, true);
        x->done(x->arg, err);
        comm_callback(c, false);
    }
    if (orphan)
        weft_exec_free(x);
}

/* Ends what is in flight with the comm's failure. */
static void fail_all(weft_comm *c, int err)
{
    for (weft_exec *x = c->first, *next; x; x = next) {
        next = x->next_exec;
        finish(x, err);
    }
}

static bool pass(weft_comm *c, bool eager)
{
    struct core_rank *me = &c->group->ranks[c->rank];
    bool moved = false;
    if (core_failed(c->group)) { /* before anything else: peers that have failed may have let go of their memory */
        const char *text;
        moved = c->first;
        fail_all(c, core_failure(c->group, &text));
    }
    /* Relaxed: peers only look whether it changes. */
    atomic_store_explicit(&me->pulse, atomic_load_explicit(&me->pulse, memory_order_relaxed) + 1, memory_order_relaxed);
    for (weft_exec *x = c->first, *next; x; x = next) {
        moved |= engine_pass(x, eager);
        next = x->next_exec;
        if (!x->program->left) {
            finish(x, 0);
            moved = true;
        }
    }
    if (c->tasks)
        moved |= comm_tasks_pass(c, eager);
    return moved;
}

/* A callback may free what is in flight and close comms, but not the one whose kin are walked: the caller is in it. */
bool comm_progress(weft_comm *c, bool eager)
{
    bool moved = pass(c, eager);
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

bool comm_kin_fly(const weft_comm *c)
{
    for (const weft_comm *k = c->kin; k != c; k = k->kin)
        if (k->first || comm_tasks_lack(k, NULL))
            return true;
    return false;
}

static int result(weft_exec *x)
{
    return x->err ? comm_failure(x->comm) : 0;
}

/* ---- the calls ---- */

static int start(weft_exec *x)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_start: the exec is NULL");
    if (x->inflight || x->binding)
        return error_set(WEFT_EBUSY, "weft_exec_start: the exec is %s", x->binding ? "being bound again" : "in flight");
    int err = comm_failure(x->comm);
    if (err)
        return err;
    x->err = 0;
    x->run++;
    atomic_store_explicit(&x->block->started, x->run, memory_order_relaxed); /* for watch.c of peers */
    link_in(x);
    engine_start(x);
    return 0;
}

int weft_exec_start(weft_exec *x)
{
    int err = start(x);
    if (!err)
        engine_call(x); /* it may be long before the next call here */
    return err;
}

int weft_exec_test(weft_exec *x, bool *done)
{
    if (!x || !done)
        return error_set(WEFT_EINVAL, "weft_exec_test: arguments must not be NULL");
    weft_comm *c = x->comm;
    if (x->inflight && !c->in_callback) {
        comm_progress(c, c->tests % 64 == 63);
        if (x->inflight && ++c->tests % 64 == 0)
            comm_watch(c, core_now(), false);
    }
    int err = x->inflight ? 0 : result(x);
    if (!err)
        *done = !x->inflight;
    return err;
}

struct waiting {
    const weft_exec *x;
    uint64_t run;
};

static bool over(void *arg)
{
    const struct waiting *w = arg;
    return !w->x->inflight || w->x->run != w->run;
}

/* With others in flight every signal may be of use. */
static int lacking(void *arg)
{
    const struct waiting *w = arg;
    const weft_comm *c = w->x->comm;
    return c->first == w->x && c->last == w->x && !comm_tasks_lack(c, NULL) ? engine_lacking(w->x) : 1;
}

int weft_exec_wait(weft_exec *x, int64_t timeout_ns)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_wait: the exec is NULL");
    weft_comm *c = x->comm;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exec_wait: not inside a callback");
    struct waiting w = {x, x->run};
    if (!x->inflight)
        return result(x);
    int err = 0;
    if (timeout_ns == 0) {
        comm_progress(c, true);
        err = over(&w) ? 0 : COMM_LATE;
    } else {
        int64_t now = timeout_ns > 0 ? core_now() : 0;
        struct comm_need need = {over, lacking, &w, timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1};
        err = comm_wait(c, &need);
    }
    if (err == COMM_LATE)
        return watch_timeout(x);
    return err ? err : result(x);
}

int weft_exec_run(weft_exec *x)
{
    int err = start(x);
    return err ? err : weft_exec_wait(x, -1);
}

int weft_exec_notify(weft_exec *x, void (*done)(void *arg, int err), void *arg)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_notify: the exec is NULL");
    x->done = done;
    x->arg = arg;
    return 0;
}

int weft_exec_stats(const weft_exec *x, weft_exec_info *out)
{
    if (!x || !out || out->size < sizeof out->size)
        return error_set(WEFT_EINVAL, "weft_exec_stats: arguments must not be NULL and out->size must be set");
    weft_exec_info info = {.size = out->size,
                           .runs = x->completed,
                           .staging_peak = x->comm->staging.peak,
                           .staging_limit = x->comm->staging.limit};
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return 0;
}

/* ---- the end ---- */

static bool both_ways(const struct program *p, int peer)
{
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].peer == peer)
            return true;
    return false;
}

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
        if (both_ways(p, p->outs[i].peer))
            continue;
        core_ring(x->comm->group, p->outs[i].peer);
        block_drop(p->outs[i].block);
    }
    block_drop(x->block);
}

void weft_exec_free(weft_exec *x)
{
    if (!x)
        return;
    weft_comm *c = x->comm;
    if (x->inflight && c->in_callback) {
        x->orphan = true;
        return;
    }
    struct waiting w = {x, x->run};
    struct comm_need need = {over, lacking, &w, core_now() + c->deadline_ns};
    if (x->inflight && comm_wait(c, &need) == COMM_LATE) /* peers that come later must not find memory that is gone */
        comm_fail(c, WEFT_EPEER, "rank %d gave up a run and freed its exec: the run did not end within %lld ms", c->rank,
                  (long long)(c->deadline_ns / 1000000));
    const char *text;
    bool clean = !x->inflight && !x->err && !core_failure(c->group, &text);
    if (x->inflight)
        link_out(x);
    part_from_peers(x);
    comm_bury(c, x->grave, &x->block->holders, x->block);
    if (clean)
        c->transport->release(c->link, x->scratch);
    else
        x->program->reserve.offset = -1; /* peers may still read scratch and staging: the group frees them in the end */
    program_free(x, x->program);
    free(x);
    comm_exec_gone(c);
}
