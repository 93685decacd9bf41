#include "engine/device/carry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/channel.h"
#include "engine/device/exec_device.h"
#include "engine/device/ranges.h"
#include "engine/device/tasks.h"
#include "engine/shape.h"
#include "engine/ways/way_wire.h"
#include "engine/work.h"

#define LONG (64 << 10) /* bytes of a piece from which on the copy engines copy it */
#define LOOKS 1024      /* passes between two looks at the device's health */

enum lane { LANE_OUT, LANE_IN, LANE_HOST }; /* LANE_HOST: the host does the work */

struct carry_copy {
    char *dst;
    const char *src;
    size_t bytes;
};

struct carry_step {
    uint64_t run; /* the last run in which it has begun */
    uint32_t ticket;
    uint32_t copy, ncopies; /* in carry.copies; none: kernels do it */
    uint8_t lane;
};

/* What a stream has done, each in a line of its own. */
struct carry_word {
    _Alignas(CORE_LINE) _Atomic uint32_t done;
};

struct carry {
    struct device *device;
    struct device_queue *queue; /* the work of step s is at level s */
    struct range *pins;         /* host memory: at is its address for the device */
    size_t npins, pinned;
    struct carry_step *steps;
    struct carry_copy *copies;
    uint32_t ncopies, room;
    struct carry_word *words; /* a page */
    uint64_t words_at;
    uint32_t queued[CARRY_LANES];
    uint32_t *local, head, tail; /* COPYs and REDUCEs that have begun in this run, in order */
    uint64_t run;
    uint32_t looks;
};

/* ---- pinned memory ---- */

static void add_pin(struct carry *c, const void *from, size_t bytes)
{
    if (bytes)
        c->pins[c->npins++] = (struct range){(char *)(uintptr_t)from, (char *)(uintptr_t)from + bytes, 0};
}

static bool message_slot(const struct plan_step *st, const struct exec_step *step)
{
    return (st->kind == PLAN_SEND || st->kind == PLAN_RECV) && step->slot;
}

/* Views in host memory, and slots. */
static int list_pins(struct carry *c, const weft_exec *x, const struct program *p, const weft_view *src,
                     const weft_view *dst)
{
    const weft_plan *plan = x->plan;
    c->pins = calloc(2 * (size_t)plan->ntensors + plan->nsteps + 1, sizeof *c->pins);
    if (!c->pins)
        return error_nomem();
    for (uint32_t t = 0; t < plan->ntensors; t++)
        for (int side = 0; side < 2; side++) {
            const weft_view *v = sites_view(plan, t, side ? dst : src, side);
            struct range r;
            if (v && !sites_on_device(v) && ranges_extent(plan, t, v, side, &r))
                c->pins[c->npins++] = r;
        }
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (message_slot(&plan->steps[s], &p->steps[s]))
            add_pin(c, p->steps[s].slot, (size_t)plan->steps[s].bytes);
    c->npins = ranges_join(c->pins, c->npins);
    return 0;
}

static int pin_all(struct carry *c)
{
    const struct device_ops *ops = c->device->ops;
    for (int err; c->pinned < c->npins; c->pinned++) {
        struct range *r = &c->pins[c->pinned];
        if ((err = ops->pin(c->device, r->from, (size_t)(r->end - r->from), &r->at)))
            return err;
    }
    return 0;
}

static int make_words(struct carry *c)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct carry_word *words = aligned_alloc(page, page);
    if (!words)
        return error_nomem();
    memset(words, 0, page);
    int err = c->device->ops->pin(c->device, words, page, &c->words_at);
    if (err)
        free(words);
    else
        c->words = words;
    return err;
}

static const struct range *pin_of(const struct carry *c, const char *address)
{
    const struct range *r = c->npins ? &c->pins[ranges_find(c->pins, c->npins, address)] : NULL;
    return r && address >= r->from && address < r->end ? r : NULL;
}

static bool on_host(const struct carry *c, const char *address)
{
    return pin_of(c, address);
}

static uint64_t for_device(const void *carry, const char *address)
{
    const struct range *r = pin_of(carry, address);
    return r ? r->at + (uint64_t)(address - r->from) : (uint64_t)(uintptr_t)address;
}

int64_t carry_bytes(const struct carry *c)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < c->npins; i++)
        bytes += c->pins[i].end - c->pins[i].from;
    return bytes;
}

/* ---- the work of steps ---- */

/* The bytes of the pieces that are contiguous on both sides, if the copy engines should copy them; otherwise 0. */
static size_t long_pieces(const struct carry *c, const struct exec_move *m)
{
    if (on_host(c, m->dst) == on_host(c, m->src))
        return 0;
    if (!m->tile)
        return (size_t)m->bytes;
    if (m->to != m->from || !shape_tile_span(m->tile, m->to, m->from))
        return 0;
    size_t bytes = (size_t)m->tile->n[m->tile->loops - 1] * weft_dtype_size(m->to);
    return bytes >= LONG ? bytes : 0;
}

static int add_copy(struct carry *c, char *dst, const char *src, size_t bytes)
{
    if (c->ncopies == c->room) {
        uint32_t room = c->room ? 2 * c->room : 64;
        struct carry_copy *more = realloc(c->copies, room * sizeof *more);
        if (!more)
            return error_nomem();
        c->copies = more;
        c->room = room;
    }
    c->copies[c->ncopies++] = (struct carry_copy){dst, src, bytes};
    return 0;
}

static int add_pieces(struct carry *c, const struct exec_move *m)
{
    const struct memory_tile *t = m->tile;
    if (!t)
        return add_copy(c, m->dst, m->src, (size_t)m->bytes);
    int last = t->loops - 1, err = 0;
    int64_t at[MEMORY_LOOPS] = {0}, turns = 1, bytes = t->n[last] * (int64_t)weft_dtype_size(m->to);
    for (int i = 0; i < last; i++)
        turns *= t->n[i];
    for (int64_t k = 0; k < turns && !err; k++) {
        int64_t off[2] = {0, 0};
        for (int i = 0; i < last; i++)
            for (int side = 0; side < 2; side++)
                off[side] += at[i] * t->stride[side][i];
        err = add_copy(c, m->dst + off[0], m->src + off[1], (size_t)bytes);
        for (int i = last - 1; i >= 0 && ++at[i] == t->n[i]; i--)
            at[i] = 0;
    }
    return err;
}

static bool host_fold(const struct carry *c, const struct exec_fold *f)
{
    bool host = on_host(c, f->dst);
    for (size_t k = 0; k < f->n && host; k++)
        host = on_host(c, f->terms[k].data);
    return host;
}

static int add_step(struct carry *c, const struct program *p, uint32_t s)
{
    const struct exec_step *step = &p->steps[s];
    struct carry_step *to = &c->steps[s];
    const struct tasks tasks = {c->queue, for_device, c};
    bool host = true, pieces = true;
    int err = 0;
    to->lane = step->kind == PLAN_SEND ? LANE_OUT : LANE_IN;
    to->copy = c->ncopies;
    if (step->kind == PLAN_REDUCE) {
        const struct exec_fold *f = &p->folds[step->work];
        if (host_fold(c, f))
            to->lane = LANE_HOST;
        else
            err = tasks_fold(&tasks, s, f);
        return err;
    }
    for (uint32_t k = 0; k < step->nwork; k++) {
        struct exec_move m = tasks_addressed(&p->moves[step->work + k], step->slot);
        host &= on_host(c, m.dst) && on_host(c, m.src);
        pieces &= long_pieces(c, &m) >= (step->nwork == 1 ? 1 : LONG);
    }
    if (host) /* also a step that does nothing */
        to->lane = LANE_HOST;
    for (uint32_t k = 0; k < step->nwork && !host && !err; k++) {
        struct exec_move m = tasks_addressed(&p->moves[step->work + k], step->slot);
        err = pieces ? add_pieces(c, &m) : tasks_move(&tasks, s, &m);
    }
    to->ncopies = c->ncopies - to->copy;
    return err;
}

int carry_make(weft_exec *x, struct program *p, const weft_view *src, const weft_view *dst)
{
    struct exec_device *e = x->device;
    struct carry *c = p->carry = calloc(1, sizeof *c);
    if (!c)
        return error_nomem();
    c->device = e->device;
    c->steps = calloc(p->nsteps + (size_t)1, sizeof *c->steps);
    c->local = calloc(p->nsteps + (size_t)1, sizeof *c->local);
    int err = c->steps && c->local ? 0 : error_nomem();
    err = err ? err : list_pins(c, x, p, src, dst);
    err = err ? err : pin_all(c);
    err = err ? err : make_words(c);
    err = err ? err : device_queue_new(c->device, &c->queue);
    if (!err)
        device_queue_apart(c->queue); /* slots become free, and copy engines and the host work, between two steps */
    for (uint32_t s = 0; s < p->nsteps && !err; s++)
        err = add_step(c, p, s);
    err = err ? err : device_queue_close(c->queue);
    for (int i = 0; i < CARRY_LANES && !err; i++)
        err = e->lanes[i] ? 0 : c->device->ops->stream_open(c->device, &e->lanes[i]);
    return err;
}

void carry_unpin(struct carry *c)
{
    if (!c)
        return;
    while (c->pinned)
        c->device->ops->unpin(c->device, c->pins[--c->pinned].from);
    if (c->words)
        c->device->ops->unpin(c->device, c->words);
    free(c->words);
    c->words = NULL;
}

void carry_free(struct carry *c)
{
    if (!c)
        return;
    carry_unpin(c);
    device_queue_free(c->queue);
    free(c->pins);
    free(c->steps);
    free(c->copies);
    free(c->local);
    free(c);
}

/* ---- the run ---- */

static int queue_step(const weft_exec *x, struct carry *c, uint32_t s)
{
    struct carry_step *step = &c->steps[s];
    const struct device_ops *ops = c->device->ops;
    void *stream = x->device->lanes[step->lane];
    int err = 0;
    for (uint32_t k = 0; k < step->ncopies && !err; k++) {
        const struct carry_copy *copy = &c->copies[step->copy + k];
        err = ops->copy(c->device, stream, copy->dst, copy->src, copy->bytes);
    }
    if (!step->ncopies)
        err = device_queue_run_level(c->queue, s, stream);
    step->ticket = ++c->queued[step->lane];
    struct device_word word = {c->words_at + step->lane * sizeof *c->words, step->ticket};
    return err ? err : ops->signal(c->device, stream, &word, 1);
}

static void host_step(const weft_exec *x, uint32_t s)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[s];
    if (step->kind == PLAN_SEND)
        work_pack(p, step, (char *)(uintptr_t)step->slot);
    else if (step->kind == PLAN_RECV)
        work_unpack(p, step, step->slot);
    else
        work_local(x, step);
}

bool carry_begun(const weft_exec *x, uint32_t s)
{
    return x->program->carry->steps[s].run == x->run;
}

void carry_begin(weft_exec *x, uint32_t s)
{
    struct carry *c = x->program->carry;
    const struct exec_step *step = &x->program->steps[s];
    if (carry_begun(x, s) || core_failed(x->comm->group))
        return;
    if (c->run != x->run)
        c->head = c->tail = 0;
    c->run = c->steps[s].run = x->run;
    if (step->kind == PLAN_COPY || step->kind == PLAN_REDUCE)
        c->local[c->tail++] = s;
    if (c->steps[s].lane == LANE_HOST)
        host_step(x, s);
    else if (queue_step(x, c, s))
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

bool carry_done(const weft_exec *x, uint32_t s)
{
    const struct carry *c = x->program->carry;
    const struct carry_step *step = &c->steps[s];
    if (step->run != x->run)
        return false;
    /* Acquire: pairs with the device's signal, behind all that it wrote. */
    return step->lane == LANE_HOST ||
           (int32_t)(atomic_load_explicit(&c->words[step->lane].done, memory_order_acquire) - step->ticket) >= 0;
}

/* A device that has failed writes no word any more. */
static void check_device(weft_exec *x)
{
    struct device *d = x->device->device;
    if (!core_failed(x->comm->group) && d->ops->health(d))
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

bool carry_pass(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    if (++p->carry->looks % LOOKS == 0)
        check_device(x);
    for (uint32_t i = 0; i < p->nins; i++) {
        const struct exec_in *in = &p->ins[i];
        uint64_t ready = atomic_load_explicit(in->ready, memory_order_acquire);
        for (uint32_t k = in->taken; k < in->n && in->base + k < ready && !p->open[in->steps[k]]; k++) {
            moved |= !carry_begun(x, in->steps[k]);
            carry_begin(x, in->steps[k]);
        }
    }
    return moved;
}

bool carry_next(weft_exec *x, uint32_t *step)
{
    struct carry *c = x->program->carry;
    if (c->run != x->run || c->head == c->tail || !carry_done(x, c->local[c->head]))
        return false;
    *step = c->local[c->head++];
    return true;
}

void carry_rest(weft_exec *x)
{
    struct error_text kept;
    error_keep(&kept);
    for (int i = 0; x->device && i < CARRY_LANES; i++)
        if (x->device->lanes[i])
            x->device->device->ops->sync(x->device->device, x->device->lanes[i]);
    error_restore(&kept);
}
