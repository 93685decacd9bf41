/* Binding and binding again. Each rank checks its arguments and describes its messages in its control block. Then all
 * ranks meet. Each rank looks at its peers' blocks and makes its program. Then all ranks meet again. At both meetings
 * all ranks come to the same decision, so that an exec exists on all of them or on none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "comm/lock.h"
#include "engine/block.h"
#include "engine/device/exec_device.h"
#include "engine/device/published.h"
#include "engine/device/watcher.h"
#include "engine/driver.h"
#include "engine/exec_mail.h"
#include "engine/proof.h"
#include "engine/quantise.h"
#include "engine/tracer.h"
#include "engine/ways/pinned.h"
#include "engine/ways/way_wire.h"

static int check_plan(const weft_plan *p, const weft_comm *c)
{
    if (!p)
        return error_set(WEFT_EINVAL, "the plan is NULL");
    if (p->world > c->size)
        return error_set(WEFT_EINVAL,
                         "the plan is for %d ranks, the comm has %d: start as many, or lower for those that there are",
                         p->world, c->size);
    if (p->rank != c->rank)
        return error_set(WEFT_EINVAL, "the plan was lowered for rank %d", p->rank);
    return 0;
}

/* *deadline_ns stays as it is if opts do not set it, or are wrong. */
static int read_opts(const weft_bind_opts *opts, int64_t *deadline_ns, const char **ways_text, int64_t *check)
{
    weft_bind_opts o;
    int err = sized_read("weft_bind", "weft_bind_opts", &o, sizeof o, opts);
    if (err)
        return err;
    if (o.deadline_ns < 0 || o.deadline_ns > COMM_DEADLINE_MOST)
        return error_set(WEFT_EINVAL, "weft_bind: opts.deadline_ns is %lld: it must be 0 to %lld",
                         (long long)o.deadline_ns, (long long)COMM_DEADLINE_MOST);
    *deadline_ns = o.deadline_ns ? o.deadline_ns : *deadline_ns;
    *ways_text = o.ways;
    *check = o.check;
    return 0;
}

/* What one rank can do alone. The caller frees *out, also after an error. */
static int outline(weft_exec *x, const weft_view *src, const weft_view *dst, struct program **out)
{
    struct program *p = *out = calloc(1, sizeof *p);
    if (!p)
        return error_nomem();
    p->reserve.offset = -1;
    p->places = program_take(p, x->plan->nbufs, sizeof *p->places);
    if (!p->places)
        return error_nomem();
    int err = exec_device_outline(x, p, &src, &dst);
    if (!err)
        err = view_places(x->plan, exec_device_scratch(x), src, dst, p->places);
    if (!err && exec_device_shared(x))
        err = exec_device_places(x, p);
    else if (!err)
        view_offer(x, p->places);
    if (!err)
        err = overlap_check(x->plan, p->places);
    return err ? err : outline_program(x, p);
}

static int prepare(weft_exec *x, const weft_view *src, const weft_view *dst)
{
    weft_comm *c = x->comm;
    uint64_t place;
    x->deferred = malloc(sizeof *x->deferred);
    if (!x->deferred)
        return error_nomem();
    if (x->plan->scratch && !exec_device_scratch(x)) {
        x->scratch = c->transport->alloc(c->link, (size_t)x->plan->scratch, &place);
        if (!x->scratch)
            return error_set(WEFT_ENOMEM, "no memory for %lld bytes of scratch", (long long)x->plan->scratch);
    }
    int err = outline(x, src, dst, &x->program);
    if (!err)
        err = block_make(x, x->program, &x->place);
    if (!err)
        block_describe(x, x->program);
    return err;
}

/* Bits of the note of a vote. */
#define HIDES 1  /* all that look at this rank's block are its peers */
#define CHECKS 2 /* this rank checks messages, */
#define TRUSTS 4 /* or it does not */
#define HOSTED 8 /* none of its views is on a device */

static uint64_t note_of(const weft_exec *x)
{
    return (x && x->block && x->block->shown ? 0 : HIDES) | (x && x->checks ? CHECKS : TRUSTS);
}

/* The places of the blocks that this rank looks at: its own, those of its peers and of rank 0, and if some rank shows
 * its block to all, those of all ranks. They are in the votes. NULL: no memory. */
static uint64_t *places_of(const weft_exec *x, const struct program *p, uint64_t meeting, bool shown)
{
    const struct core_group *g = x->comm->group;
    uint64_t *at = calloc((size_t)x->comm->size, sizeof *at);
    if (!at)
        return NULL;
    at[x->comm->rank] = x->place;
    for (uint32_t i = 0; i < p->nins; i++)
        at[p->ins[i].peer] = core_vote_of(g, p->ins[i].peer, meeting)->place;
    for (uint32_t i = 0; i < p->nouts; i++)
        at[p->outs[i].peer] = core_vote_of(g, p->outs[i].peer, meeting)->place;
    for (int r = 0; r < (shown ? x->comm->size : 1); r++)
        at[r] = core_vote_of(g, r, meeting)->place;
    return at;
}

/* The second half, with the peers' blocks, whose places are in the votes of the first meeting. */
static int complete(weft_exec *x, struct program *p, const weft_view *src, const weft_view *dst, uint64_t meeting,
                    uint32_t call, int64_t deadline_ns)
{
    weft_comm *c = x->comm;
    uint64_t note = core_tally(c->group, meeting).note;
    bool shown = !(note & HIDES), agreed = note & (CHECKS | TRUSTS);
    uint64_t *block_at = places_of(x, p, meeting, shown);
    trace_clock_align(c);
    int err = block_at ? 0 : error_nomem();
    int untagged = way_wire_tags(x, p, note & CHECKS); /* even if something has failed: the other ends count, too */
    err = err ? err : untagged;
    if (!err && !agreed)
        err = error_set(WEFT_EMISMATCH,
                        "some ranks check messages (WEFT_CHECK or weft_bind_opts.check) and some do not; this rank %s",
                        x->checks ? "does" : "does not");
    if (!err)
        err = fill_program(x, p, block_at);
    if (!err && shown && !x->held)
        err = block_hold(x, p, block_at);
    if (!err)
        err = exec_device_fill(x, p, src, dst);
    uint32_t drivers = 0;
    if (!err)
        err = driver_make(x, p, block_at, &drivers);
    if (!err && x->checks)
        err = proof_make(x, p);
    if (!err)
        err = tracer_make(x, p);
    if (!err)
        err = traffic_make(x, p);
    struct core_vote vote = {.call = call, .object = x->task.id, .code = err, .note = drivers};
    err = meeting_agree(c, &vote, deadline_ns, &meeting);
    if (!err) {
        driver_open(x, p, block_at, meeting);
        traffic_open(x, p);
        tracer_open(p);
    }
    if (!err && p->driver->gather) {
        vote = (struct core_vote){
            .call = call, .object = x->task.id, .code = p->driver->gather(x, p, block_at, call, deadline_ns)};
        err = meeting_agree(c, &vote, deadline_ns, &meeting);
        published_free(x, p);
    }
    free(block_at);
    return err;
}

/* After a refusal no rank looks at the blocks of others any more. After a failure of the comm some rank may still do
 * so: then the block and the scratch memory are not freed before the group is. */
static void discard(weft_exec *x)
{
    const char *text;
    if (!x)
        return;
    comm_task_unlist(x->comm, &x->task);
    outline_free(x, x->program); /* the block may be pinned for it */
    if (!core_failure(x->comm->group, &text)) {
        x->comm->transport->release(x->comm->link, x->block);
        x->comm->transport->release(x->comm->link, x->scratch);
    }
    quantise_free(x, !core_failure(x->comm->group, &text));
    exec_device_close(x);
    pinned_free(x);
    free(x->deferred);
    free(x->held);
    free(x);
}

/* All drivers, ways and orders for host memory that can be done without. */
static uint64_t unneeded(enum exec_form form)
{
    uint64_t off = toggle_extra(TOGGLE_WEAVE);
    for (int i = 0; driver_at(i); i++)
        off |= driver_at(i)->form || (driver_at(i)->basic && form == FORM_HOST) ? 0 : driver_bit(driver_at(i));
    for (int i = 0; way_table[i]; i++)
        off |= way_table[i]->basic || way_table[i] == &way_pinned ? 0 : way_table_bit(way_table[i]);
    return off;
}

/* Undoes prepare. No other rank has looked at this rank's block. */
static void unprepare(weft_exec *x)
{
    outline_free(x, x->program);
    x->comm->transport->release(x->comm->link, x->block);
    x->comm->transport->release(x->comm->link, x->scratch);
    free(x->deferred);
    x->program = NULL;
    x->block = NULL;
    x->scratch = NULL;
    x->deferred = NULL;
}

/* Some rank has views on a device: chooses the form of the exec, and meets again. */
static int prepare_device(weft_exec *x, const struct sites *s, const weft_view *src, const weft_view *dst,
                          int64_t deadline_ns, uint64_t *meeting)
{
    unprepare(x);
    bool chosen = false;
    int err = exec_device_choose(x, s, src, dst, deadline_ns, &chosen);
    if (!chosen) /* on no rank */
        return err;
    if (exec_device_form(x) || x->carried)
        x->off |= unneeded(exec_device_form(x));
    if (!err)
        err = prepare(x, src, dst);
    struct core_vote vote = {
        .call = COMM_BIND, .digest = x->plan->digest, .place = x->place, .note = note_of(x), .code = err};
    return meeting_agree(x->comm, &vote, deadline_ns, meeting);
}

/* Drivers and ways whose messages cannot be checked one by one. */
static uint64_t unchecked(void)
{
    uint64_t off = way_table_bit(&way_eager);
    for (int i = 0; driver_at(i); i++)
        off |= driver_at(i)->basic ? 0 : driver_bit(driver_at(i));
    return off;
}

static void tell_log(const weft_exec *x)
{
    char text[200];
    snprintf(text, sizeof text, "exec %llu: %.60s by %.40s, driver %s", (unsigned long long)x->task.id, x->plan->kind,
             x->plan->algorithm, x->program->driver->name);
    flight_log(x->comm, WEFT_LOG_INFO, EVENT_BOUND, text);
}

static int bind_exec(const weft_plan *p, weft_comm *c, const weft_view *src, const weft_view *dst,
                     const weft_bind_opts *opts, weft_exec **out)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_bind: not inside a callback");
    int64_t deadline_ns = c->deadline_ns;
    const char *ways_text = NULL;
    int64_t check = 0;
    weft_exec *x = NULL;
    exec_mail_open(c);
    trace_clock_listen(c);
    int err = check_plan(p, c);
    if (!err && opts)
        err = read_opts(opts, &deadline_ns, &ways_text, &check);
    if (!err) {
        x = calloc(1, sizeof *x);
        err = x ? 0 : error_nomem();
    }
    if (!err) {
        x->task.ops = &run_task;
        x->comm = c;
        x->plan = p;
        err = toggle_parse(ways_text ? ways_text : getenv("WEFT_WAYS"), &x->off);
    }
    if (!err)
        err = proof_wanted(check, &x->checks);
    if (!err && x->checks)
        x->off |= unchecked();
    if (!err && p->scales) {
        err = quantise_make(x, src, dst);
        src = x->quantise ? x->quantise->at.src : NULL;
        dst = x->quantise ? x->quantise->at.dst : NULL;
    }
    struct sites sites = {0};
    if (!err)
        err = sites_of(p, src, dst, &sites);
    if (!err && !sites.placed)
        err = prepare(x, src, dst);
    struct core_vote vote = {.call = COMM_BIND,
                             .digest = p ? p->digest : 0,
                             .place = x ? x->place : 0,
                             .note = note_of(x) | (sites.placed ? 0 : HOSTED),
                             .code = err};
    uint64_t meeting;
    err = meeting_agree(c, &vote, deadline_ns, &meeting);
    if (!err && !(core_tally(c->group, meeting).note & HOSTED))
        err = prepare_device(x, &sites, src, dst, deadline_ns, &meeting);
    if (err)
        err = differs_tell(c, p, deadline_ns, err);
    if (!err) {
        x->task.id = meeting;
        x->task.named = true;        /* a trace that is written meanwhile finds no driver yet */
        comm_task_list(c, &x->task); /* from here on mail from other hosts may be about it */
        err = complete(x, x->program, src, dst, meeting, COMM_BIND_DONE, deadline_ns);
    }
    if (err) {
        discard(x);
        return err;
    }
    x->task.named = false;
    comm_hold(c);
    tell_log(x);
    *out = x;
    return 0;
}

/* The exec that brings the maxima of blocks: all ranks have one, since their plans have the same digest. */
static int bind_fold(weft_exec *x, const weft_bind_opts *opts)
{
    struct quantise *q = x->quantise;
    int err = bind_exec(x->plan->scales->fold, x->comm, q->fold_src, q->fold_dst, opts, &q->fold);
    if (!err)
        run_after(q->fold, x);
    return err;
}

int weft_bind(const weft_plan *p, weft_comm *c, const weft_view *src, const weft_view *dst, const weft_bind_opts *opts,
              weft_exec **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_bind: the comm and out must not be NULL");
    struct comm_family *f = comm_enter(c);
    weft_exec *x = NULL;
    int err = bind_exec(p, c, src, dst, opts, &x);
    bool bound = !err;
    if (bound && plan_fold(p))
        err = bind_fold(x, opts);
    comm_leave(f);
    if (!err)
        *out = x;
    else if (bound)
        weft_exec_close(x);
    return err;
}

/* The form of an exec stays: other buffers are on the same side. */
static int check_sites(const weft_exec *x, const weft_view *src, const weft_view *dst)
{
    struct sites s;
    int err = sites_of(x->plan, src, dst, &s);
    if (err || !s.placed)
        return err;
    if (!x->device)
        return error_set(WEFT_EUNSUPPORTED,
                         "weft_exec_rebind: the exec was bound to host memory on this rank: bind the plan again");
    if (s.device != x->device->device->number)
        return error_set(WEFT_EUNSUPPORTED,
                         "weft_exec_rebind: the exec was bound to memory on device %d, not %d: bind the plan again",
                         x->device->device->number, s.device);
    return 0;
}

static int rebind_exec(weft_exec *x, const weft_view *src, const weft_view *dst)
{
    weft_comm *c = x->comm;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exec_rebind: not inside a callback");
    struct program *p = NULL;
    trace_write(c); /* while the program is there that the events are about */
    traffic_count(&x->task);
    x->binding = true;
    struct quantise_bound at = {0};
    int err = exec_in_flight(x) ? error_set(WEFT_EBUSY, "the exec is in flight") : 0;
    if (!err && x->quantise) {
        err = quantise_look(x, src, dst, &at);
        src = at.src;
        dst = at.dst;
    }
    if (!err)
        err = check_sites(x, src, dst);
    if (!err)
        err = outline(x, src, dst, &p);
    if (!err)
        block_describe(x, p);
    struct core_vote vote = {.call = COMM_REBIND,
                             .object = x->task.id,
                             .digest = x->plan->digest,
                             .place = x->place,
                             .note = note_of(x),
                             .code = err};
    uint64_t meeting;
    err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    if (!err)
        err = complete(x, p, src, dst, meeting, COMM_REBIND_DONE, c->deadline_ns);
    watcher_remove(x); /* it looks at the program */
    struct program *goes = err ? p : x->program, *stays = err ? x->program : p;
    if (goes && goes->reserve.offset == stays->reserve.offset)
        goes->reserve.offset = -1;
    x->program = stays;
    if (!err && x->quantise) {
        quantise_unlook(&x->quantise->at);
        x->quantise->at = at;
    } else {
        quantise_unlook(&at);
    }
    x->binding = false;
    outline_free(x, goes);
    if (!err && exec_device_form(x)) { /* giving device memory back waits for streams, so no rank starts before */
        vote = (struct core_vote){.call = COMM_REBIND_DONE, .object = x->task.id};
        err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    }
    return err;
}

int weft_exec_rebind(weft_exec *x, const weft_view *src, const weft_view *dst)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_rebind: the exec is NULL");
    struct comm_family *f = comm_enter(x->comm);
    int err = rebind_exec(x, src, dst);
    comm_leave(f);
    return err;
}
