/* The driver "nccl": each rank's device does the work of its own steps, and the devices send each other the messages,
 * in groups of NCCL (device_group). It drives execs whose ranks have memory on several devices (device/exec_device.h).
 *
 * A run is queued whole on a stream of each rank, as a sequence of levels. A level has kernels, and behind them the
 * messages that go at the same time. So
 *   - a COPY or REDUCE is a kernel of a level above the levels of all that it waits for,
 *   - a SEND and its RECV have the same level on both ranks. The kernels of that level pack the message,
 *   - and the kernels of the level above it unpack it.
 * A message that is contiguous in memory is neither packed nor unpacked.
 *
 * The messages of one level are all done before the next ones begin, so ranks must agree about levels: otherwise one
 * would wait for a message that the other sends later. A rank knows its own steps alone. So ranks raise the levels of
 * their messages step by step: each finds the lowest levels that its steps allow, tells its peers those of the messages
 * with them, and takes the higher ones over, until no rank has to change one.
 *
 * The device waits for peers inside NCCL's kernels. If a rank is gone, or the comm has failed, the group is aborted,
 * and the streams go on. A peer that has closed its comm may have done its part of the run before, so it is not missed
 * before the deadline. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/device/exec_device.h"
#include "engine/device/mirror.h"
#include "engine/device/tasks.h"
#include "engine/driver.h"

#define LOOKS 1024   /* passes between two looks at the health of the device and of the group */
#define ALIGN 256    /* of messages in staging memory */
#define TURNS 100000 /* of raising levels: more than any plan needs */

/* How far the stream is, in a page of its own. */
struct done_word {
    _Atomic uint32_t run;
};

struct nccl {
    struct device_queue *queue;
    struct device_message *messages; /* level by level */
    uint32_t *first;                 /* of each level: its first message; one more entry says where the last ends */
    uint32_t levels;
    char *staging; /* on the device: messages that are packed */
    int64_t bytes;
    struct done_word *done;
    uint64_t done_at; /* for streams */
    bool *peers;      /* of each rank: is it one? */
    char *talk; /* on the device: what ranks tell each other at bind. To free memory waits for streams, which may wait
                 * for ranks that have not come so far, so it stays */
    uint32_t looks;
    _Atomic int64_t left_at; /* when a peer was first seen to have left during the last run; 0: none was */
    _Atomic uint64_t left_run;
};

/* ---- levels ---- */

static uint32_t messages_of(const struct program *p)
{
    return p->grouped[0] + p->grouped[1];
}

/* Does the message lie in memory as it is sent? */
static bool is_contiguous(const struct program *p, const weft_plan *plan, uint32_t s)
{
    const struct exec_step *step = &p->steps[s];
    const struct exec_move *m = &p->moves[step->work];
    return step->nwork == 1 && !m->tile && !m->offset && m->bytes == plan->steps[s].bytes;
}

static bool is_message(const struct exec_step *step)
{
    return step->kind == PLAN_SEND || step->kind == PLAN_RECV;
}

static bool unpacks(const weft_exec *x, const struct program *p, uint32_t s)
{
    return p->steps[s].kind == PLAN_RECV && !is_contiguous(p, x->plan, s);
}

/* Raises the levels of this rank's steps as far as they wait for each other. */
static int settle(const weft_exec *x, const struct program *p, uint32_t *level)
{
    const weft_plan *plan = x->plan;
    bool changed = true;
    for (uint32_t turn = 0; changed; turn++) {
        changed = false;
        if (turn > p->nsteps)
            return error_set(WEFT_EMISMATCH, "the steps of the plan wait for each other in a circle");
        for (uint32_t s = 0; s < p->nsteps; s++)
            for (uint32_t k = 0; k < plan->steps[s].ndeps; k++) {
                uint32_t dep = plan->deps[plan->steps[s].dep + k], least = level[dep] + 1 + unpacks(x, p, dep);
                changed |= level[s] < least;
                level[s] = level[s] < least ? least : level[s];
            }
    }
    return 0;
}

/* What a rank tells a peer about the messages between them: the levels of those that it sends, then of those that it
 * receives. */
struct talk {
    weft_exec *x;
    const struct program *p;
    void *stream;
    char *device;       /* both parts, in device memory */
    uint32_t *out, *in; /* n each, peer by peer */
    uint32_t *step;     /* of each entry of `out`: the step whose level it is */
    uint32_t *theirs;   /* of each entry of `in`: the step to which it belongs */
    struct device_message *messages;
    size_t half; /* bytes of the first part */
    uint32_t call;
    int64_t deadline_ns;
    uint32_t n, npeers;
};

/* Lists the messages with one peer. `mine`: those of this rank's SENDs come first. */
static uint32_t list_steps(const weft_exec *x, const struct program *p, int peer, bool mine, uint32_t *to)
{
    uint32_t n = 0;
    for (int half = 0; half < 2; half++) {
        bool sends = half == !mine;
        const uint32_t *all = p->buckets + (sends ? p->grouped[0] : 0);
        for (uint32_t i = 0; i < p->grouped[sends]; i++)
            if (x->plan->steps[all[i]].peer == peer)
                to[n++] = all[i];
    }
    return n;
}

static void talk_end(struct talk *t)
{
    free(t->out);
    free(t->in);
    free(t->step);
    free(t->theirs);
    free(t->messages);
}

static int talk_begin(struct talk *t, weft_exec *x, const struct program *p, struct nccl *n)
{
    struct device *d = x->device->device;
    size_t bytes = ((size_t)messages_of(p) + 1) * sizeof *t->out;
    *t = (struct talk){.x = x, .p = p, .half = bytes};
    t->out = malloc(bytes);
    t->in = malloc(bytes);
    t->step = malloc(bytes);
    t->theirs = malloc(bytes);
    t->messages = calloc(2 * (size_t)x->comm->size, sizeof *t->messages);
    t->device = n->talk = d->ops->alloc(d, 2 * bytes);
    if (!t->out || !t->in || !t->step || !t->theirs || !t->messages)
        return error_nomem();
    if (!t->device)
        return error_set(WEFT_ENOMEM, "no memory on device %d for %zu bytes", d->number, 2 * bytes);
    for (int r = 0; r < x->comm->size; r++) {
        if (!n->peers[r])
            continue;
        uint32_t k = list_steps(x, p, r, true, t->step + t->n);
        list_steps(x, p, r, false, t->theirs + t->n);
        char *out = t->device + t->n * sizeof *t->out, *in = out + bytes;
        t->messages[2 * t->npeers] = (struct device_message){out, k * sizeof *t->out, r, true};
        t->messages[2 * t->npeers++ + 1] = (struct device_message){in, k * sizeof *t->in, r, false};
        t->n += k;
    }
    return exec_device_stream(x, &t->stream);
}

static bool at_rest(void *arg)
{
    const struct talk *t = arg;
    struct device *d = t->x->device->device;
    bool idle = false;
    return d->ops->idle(d, t->stream, &idle) || idle;
}

/* Waits for the stream, and sees if a rank fails meanwhile. */
static int rest(struct talk *t)
{
    weft_comm *c = t->x->comm;
    struct comm_need need = {at_rest, NULL, t, core_now() + t->deadline_ns};
    c->polled++;
    int err = comm_wait(c, &need);
    c->polled--;
    if (err == COMM_LATE)
        err = comm_fail(c, WEFT_EPEER, "rank %d: ranks did not tell each other in time when messages go", c->rank);
    struct device *d = t->x->device->device;
    if (err)
        d->ops->group_abort(t->x->device->group);
    return err ? err : d->ops->sync(d, t->stream);
}

/* One turn. *changed: a level of this rank has become higher. */
static int exchange(struct talk *t, uint32_t *level, bool *changed)
{
    struct device *d = t->x->device->device;
    size_t bytes = t->n * sizeof *t->out;
    for (uint32_t i = 0; i < t->n; i++)
        t->out[i] = level[t->step[i]];
    int err = d->ops->copy(d, t->stream, t->device, t->out, bytes);
    err = err ? err : d->ops->group_move(t->x->device->group, t->stream, t->messages, 2 * (size_t)t->npeers);
    err = err ? err : rest(t);
    err = err ? err : d->ops->copy(d, t->stream, t->in, t->device + t->half, bytes);
    err = err ? err : d->ops->sync(d, t->stream);
    for (uint32_t i = 0; i < t->n && !err; i++) {
        uint32_t *own = &level[t->theirs[i]];
        *changed |= *own < t->in[i];
        *own = *own < t->in[i] ? t->in[i] : *own;
    }
    return err;
}

static int talk_once(struct talk *t, uint32_t turn, uint32_t *level, bool *changed)
{
    *changed = false;
    int err = turn < TURNS ? settle(t->x, t->p, level)
                           : error_set(WEFT_EMISMATCH, "the steps of the ranks wait for each other in a circle");
    err = err || !t->n ? err : exchange(t, level, changed);
    if (err && !core_failed(t->x->comm->group)) /* peers wait for this rank in their streams */
        err = comm_fail(t->x->comm, err, "rank %d: %s", t->x->comm->rank, weft_errmsg());
    return err;
}

/* *all: all ranks say yes. */
static int vote_on(const struct talk *t, int err, bool yes, bool *all)
{
    const weft_exec *x = t->x;
    struct core_vote vote = {.call = t->call, .object = x->task.id, .code = err, .note = yes};
    uint64_t meeting;
    err = meeting_agree(x->comm, &vote, t->deadline_ns, &meeting);
    *all = !err && core_tally(x->comm->group, meeting).note;
    return err;
}

/* The levels of all steps, the same on both ends of each message. err: what this rank has met with so far. */
static int agree_on_levels(struct talk *t, int err, uint32_t *level)
{
    bool changed, over;
    err = vote_on(t, err, false, &over);
    for (uint32_t turn = 0; !err && !over; turn++) {
        err = talk_once(t, turn, level, &changed);
        err = err ? err : vote_on(t, 0, !changed, &over);
    }
    return err;
}

/* ---- bind ---- */

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    struct nccl *n = state;
    struct device *d = x->device->device;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)block_at;
    n->peers = program_take(p, (size_t)x->comm->size, sizeof *n->peers);
    struct done_word *done = aligned_alloc(page, page);
    if (!n->peers || !done) {
        free(done);
        return error_nomem();
    }
    memset(done, 0, page);
    for (uint32_t i = 0; i < messages_of(p); i++)
        n->peers[x->plan->steps[p->buckets[i]].peer] = true;
    int err = d->ops->pin(d, done, page, &n->done_at);
    if (err)
        free(done);
    else
        n->done = done;
    *can = !err;
    return err;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Where each message that is packed is in staging memory. Even and odd levels have a part each: while what a level has
 * received is unpacked, messages of the next level are packed. at[s] is -1 for messages that are not packed. */
static int place_messages(const weft_exec *x, const struct program *p, struct nccl *n, const uint32_t *level,
                          int64_t *at)
{
    int64_t *used = calloc((size_t)n->levels + 1, sizeof *used), part[2] = {0, 0};
    if (!used)
        return error_nomem();
    for (uint32_t i = 0; i < messages_of(p); i++) {
        uint32_t s = p->buckets[i], k = level[s];
        at[s] = is_contiguous(p, x->plan, s) ? -1 : used[k];
        used[k] += at[s] < 0 ? 0 : (x->plan->steps[s].bytes + ALIGN - 1) / ALIGN * ALIGN;
        part[k % 2] = used[k] > part[k % 2] ? used[k] : part[k % 2];
    }
    free(used);
    for (uint32_t i = 0; i < messages_of(p); i++)
        if (at[p->buckets[i]] >= 0 && level[p->buckets[i]] % 2)
            at[p->buckets[i]] += part[0];
    n->bytes = part[0] + part[1];
    struct device *d = x->device->device;
    n->staging = n->bytes ? d->ops->alloc(d, (size_t)n->bytes) : NULL;
    if (n->bytes && !n->staging)
        return error_set(WEFT_ENOMEM, "no memory on device %d for messages of %lld bytes: lower with a smaller bucket",
                         d->number, (long long)n->bytes);
    return 0;
}

/* The memory of a message, as it is sent or received. */
static void *memory_of(const struct program *p, const struct nccl *n, uint32_t s, int64_t at)
{
    const struct exec_move *m = &p->moves[p->steps[s].work];
    return at >= 0 ? n->staging + at : p->steps[s].kind == PLAN_SEND ? (char *)(uintptr_t)m->src : m->dst;
}

/* Sorts the messages by level. Those of one channel stay in the order of the plan, on both ends. */
static int list_messages(const weft_exec *x, struct program *p, struct nccl *n, const uint32_t *level,
                         const int64_t *at)
{
    uint32_t *next = calloc((size_t)n->levels + 1, sizeof *next);
    n->first = program_take(p, (size_t)n->levels + 1, sizeof *n->first);
    n->messages = program_take(p, (size_t)messages_of(p) + 1, sizeof *n->messages);
    if (!next || !n->first || !n->messages) {
        free(next);
        return error_nomem();
    }
    for (uint32_t i = 0; i < messages_of(p); i++)
        n->first[level[p->buckets[i]] + 1]++;
    for (uint32_t k = 0; k < n->levels; k++) {
        n->first[k + 1] += n->first[k];
        next[k] = n->first[k];
    }
    for (uint32_t i = 0; i < messages_of(p); i++) {
        uint32_t s = p->buckets[i];
        const struct plan_step *st = &x->plan->steps[s];
        n->messages[next[level[s]]++] =
            (struct device_message){memory_of(p, n, s, at[s]), (size_t)st->bytes, st->peer, st->kind == PLAN_SEND};
    }
    free(next);
    return 0;
}

static int add_step(const weft_exec *x, const struct program *p, struct nccl *n, uint32_t s, uint32_t level, int64_t at)
{
    const struct tasks tasks = {.queue = n->queue};
    const struct exec_step *step = &p->steps[s];
    int err = 0;
    if (step->kind == PLAN_REDUCE)
        return tasks_fold(&tasks, level, &p->folds[step->work]);
    for (uint32_t k = 0; k < step->nwork && !err; k++) {
        struct exec_move m = p->moves[step->work + k];
        m = is_message(step) ? tasks_addressed(&m, n->staging + at) : m;
        err = tasks_move(&tasks, level + unpacks(x, p, s), &m);
    }
    return err;
}

static int make_queue(const weft_exec *x, const struct program *p, struct nccl *n, const uint32_t *level,
                      const int64_t *at)
{
    int err = device_queue_new(x->device->device, &n->queue);
    if (err)
        return err;
    device_queue_apart(n->queue); /* messages go between two levels */
    for (uint32_t s = 0; s < p->nsteps && !err; s++)
        if (!is_message(&p->steps[s]) || at[s] >= 0)
            err = add_step(x, p, n, s, level[s], at[s]);
    return err ? err : device_queue_close(n->queue);
}

static int gather(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t call, int64_t deadline_ns)
{
    struct nccl *n = p->state;
    uint32_t *level = calloc(p->nsteps + (size_t)1, sizeof *level);
    int64_t *at = calloc(p->nsteps + (size_t)1, sizeof *at);
    struct talk t;
    (void)block_at;
    int err = talk_begin(&t, x, p, n);
    t.call = call;
    t.deadline_ns = deadline_ns;
    err = agree_on_levels(&t, err || (level && at) ? err : error_nomem(), level);
    talk_end(&t);
    for (uint32_t s = 0; s < p->nsteps && !err; s++)
        n->levels = most(n->levels, level[s] + 1 + unpacks(x, p, s));
    err = err ? err : place_messages(x, p, n, level, at);
    err = err ? err : list_messages(x, p, n, level, at);
    err = err ? err : make_queue(x, p, n, level, at);
    free(level);
    free(at);
    return err;
}

static void free_all(weft_exec *x, struct program *p)
{
    struct nccl *n = driver_state_of(p, &driver_nccl);
    if (exec_device_form(x) != FORM_GROUPED)
        return;
    struct device *d = x->device->device;
    if (n->done)
        d->ops->unpin(d, n->done);
    free(n->done);
    device_queue_free(n->queue);
    if (n->staging)
        d->ops->free(d, n->staging);
    if (n->talk)
        d->ops->free(d, n->talk);
}

void nccl_figures(const weft_exec *x, uint32_t *groups, int64_t *staging)
{
    const struct nccl *n = driver_state_of(x->program, &driver_nccl);
    *staging = n->bytes;
    *groups = 0;
    for (uint32_t k = 0; k < n->levels; k++)
        *groups += n->first[k + 1] > n->first[k];
}

/* ---- the run ---- */

static int enqueue(weft_exec *x, void *stream)
{
    const struct nccl *n = driver_state(x);
    struct device *d = x->device->device;
    struct mirror *m = x->program->device->mirror;
    int err = m ? mirror_in(m, stream) : 0;
    for (uint32_t k = 0; k < n->levels && !err; k++) {
        size_t count = n->first[k + 1] - n->first[k];
        err = device_queue_run_level(n->queue, k, stream);
        if (!err && count)
            err = d->ops->group_move(x->device->group, stream, n->messages + n->first[k], count);
    }
    err = err || !m ? err : mirror_out(m, stream);
    struct device_word done = {n->done_at, (uint32_t)x->run};
    return err ? err : d->ops->signal(d, stream, &done, 1);
}

/* Acquire: pairs with the device's signal, behind all that it wrote. */
static bool over(const struct nccl *n, uint64_t run)
{
    return (int32_t)(atomic_load_explicit(&n->done->run, memory_order_acquire) - (uint32_t)run) >= 0;
}

static void start(weft_exec *x)
{
    void *stream;
    x->program->left = 1;
    int err = exec_device_stream(x, &stream);
    if (err || enqueue(x, stream))
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

/* A device that has failed writes no word any more. Neither does one whose peer has failed. */
static void check_device(weft_exec *x)
{
    struct device *d = x->device->device;
    if (d->ops->health(d) || exec_device_group_failed(x))
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

static bool pass(weft_exec *x, bool idle)
{
    struct nccl *n = driver_state(x);
    (void)idle;
    if (core_failed(x->comm->group)) /* then the word says nothing: release */
        return false;
    if (!over(n, x->run)) {
        if (++n->looks % LOOKS == 0)
            check_device(x);
        return false;
    }
    for (uint32_t s = 0; s < x->program->nsteps && x->arrivals; s++)
        if (x->plan->steps[s].kind != PLAN_SEND)
            arrivals_step(x, s);
    x->program->left = 0;
    return true;
}

static void release(weft_exec *x)
{
    struct device *d = x->device->device;
    if (x->device->group)
        d->ops->group_abort(x->device->group);
}

/* ---- waiting ---- */

/* A peer that has left may have done its part before. Any thread may come here. */
static bool is_missed(weft_exec *x, struct nccl *n, uint64_t run)
{
    int64_t now = core_now();
    /* Release and acquire: who sees the number of the run sees the time, too. */
    if (atomic_load_explicit(&n->left_run, memory_order_acquire) != run) {
        atomic_store_explicit(&n->left_at, now, memory_order_relaxed);
        atomic_store_explicit(&n->left_run, run, memory_order_release);
    }
    return now - atomic_load_explicit(&n->left_at, memory_order_relaxed) >= x->comm->deadline_ns;
}

static bool waits_in(weft_exec *x, int rank, uint64_t run)
{
    struct nccl *n = driver_state(x);
    weft_comm *c = x->comm;
    if (!n->peers[rank] || over(n, run))
        return false;
    return c->transport->gone(c->link, rank) != TRANSPORT_LEFT || is_missed(x, n, run);
}

static bool rank_waits(const weft_exec *x, int rank)
{
    return waits_in((weft_exec *)(uintptr_t)x, rank, x->run);
}

static bool stream_waits(weft_exec *x, int rank)
{
    return waits_in(x, rank, atomic_load_explicit(&x->block->started, memory_order_acquire));
}

static int lacking(const weft_exec *x)
{
    (void)x;
    return 1;
}

const struct driver driver_nccl = {
    .id = DRIVER_NCCL,
    .name = "nccl",
    .what = "each rank's device does its own steps, and sends and receives messages by NCCL",
    .agreed = true,
    .copies = true,
    .form = FORM_GROUPED,
    .state = sizeof(struct nccl),
    .make = make,
    .gather = gather,
    .free = free_all,
    .start = start,
    .enqueue = enqueue,
    .release = release,
    .stream_waits = stream_waits,
    .pass = pass,
    .rank_waits = rank_waits,
    .lacking = lacking,
};
