/* The driver "launcher": the kernels of one rank do the work of all ranks, which have their memory on one device
 * (device/exec_device.h). Rank 0 is the launcher. Its control block has words for each rank, in pages that all ranks
 * pin, so that streams wait for them and write them as the host does:
 *
 *   arrived   the rank's stream has come to the run: its sources may be read, its destinations written
 *   done      all levels of the run are done: one word for all ranks
 *   ended     the rank's own copies out of its mirror are done, too
 *
 * A run of weft_exec_start_on is queued whole on a stream of each rank: copies into the mirror; `arrived`; the wait for
 * `done`; copies out of the mirror; `ended`. The launcher's stream waits for `arrived` of all ranks instead, has the
 * launches, and writes `done` for all. The host is not in it. The words hold the number of the run, so they are never
 * reset.
 * Where kernels of all ranks can run at the same time (threads, MPS), kernels write the words and wait for them: a wait
 * of a stream takes longer, and the launcher's would come one after the other. Otherwise streams do it by themselves.
 *
 * In a run of weft_exec_start no stream waits. A rank's host writes `arrived`, or its stream does so behind the copies
 * into the mirror. The hosts look at the words: the launcher's host queues the launches when all ranks have arrived,
 * and a host whose rank has a mirror queues the copies out of it when `done` is written. This is not only faster. A
 * stream that waits holds up other streams of its hardware queue, and calls that give memory back wait for all streams
 * of the process, so a rank that waits in a stream could wait for itself. Ranks of either kind take part in one run.
 *
 * Why runs need nothing between them: `done` of run r is written when all work of run r is done on all ranks, and the
 * work of run r + 1 begins when all ranks' streams have come to it, behind their wait for `done`.
 *
 * A rank that dies leaves streams waiting. A failure of the comm releases them: a rank that knows of it writes the
 * words (release), and the comm's failure is what the next call returns. That is why the words are in host
 * memory: what is written to a device goes through a stream, which may wait behind the very wait that it is to end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/device/levels.h"
#include "engine/device/mirror.h"
#include "engine/device/replay.h"
#include "engine/driver.h"

#define LAUNCHER 0 /* the rank */
#define LOOKS 1024 /* passes between two looks at the device's health */

/* In pages of their own. */
struct words {
    _Alignas(CORE_LINE) _Atomic uint32_t arrived, done, ended; /* done: in those of the launcher only */
};

/* In the control block of each rank. */
struct launcher_room {
    uint64_t published; /* the place of what the rank has published */
};

struct launcher {
    struct device_queue *queue; /* of the launcher: the work of all ranks */
    struct levels levels;
    struct words *words;         /* of all ranks */
    uint64_t at;                 /* the same for streams; 0: they are not pinned */
    uint32_t looks;              /* passes that found the run under way */
    uint64_t went;               /* the last run whose second half the host has queued: go_on */
    struct device_word *arrived; /* room for the launcher's list */
    struct replay replay;        /* of runs in graphs */
    uint64_t counter; /* of the launcher: the address of the number of the last run; 0: nothing is recorded */
    bool waits;       /* kernels may wait for those of other ranks */
};

/* ---- the words ---- */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t words_bytes(const weft_comm *c)
{
    size_t page = page_bytes(), bytes = (size_t)c->size * (sizeof(struct words) + sizeof(struct replay_words));
    return (bytes + page - 1) / page * page;
}

/* They begin at the first page of the room. */
static struct words *words_of(const struct block *first)
{
    uintptr_t at = (uintptr_t)driver_room(&driver_launcher, first) + sizeof(struct launcher_room), page = page_bytes();
    return (struct words *)((at + page - 1) / page * page);
}

static struct device_word word_at(const struct launcher *l, const _Atomic uint32_t *word, uint64_t run)
{
    return (struct device_word){l->at + (uint64_t)((uintptr_t)word - (uintptr_t)l->words), (uint32_t)run};
}

/* For gates: in host memory. */
static struct device_words host_words(const weft_exec *x, const struct launcher *l, const _Atomic uint32_t *first,
                                      int n)
{
    const uint32_t run = l->counter ? 1 : (uint32_t)x->run;
    return (struct device_words){.at = word_at(l, first, 0).at,
                                 .hosts = (uint32_t)n,
                                 .stride = sizeof *l->words,
                                 .value = run,
                                 .host_value = run,
                                 .host_counts = l->counter != 0};
}

/* In device memory, too: a word of this rank, or that of all ranks behind the launcher. */
static struct device_words own_word(const weft_exec *x, const struct launcher *l, const _Atomic uint32_t *word,
                                    enum near_word near)
{
    struct device_words w = host_words(x, l, word, 1);
    w.near = (uint64_t)(uintptr_t)x->device->near + near;
    w.n = 1;
    return w;
}

static struct device_words all_words(const weft_exec *x, const struct launcher *l, const _Atomic uint32_t *first,
                                     int hosts, enum near_word near)
{
    struct device_words w = host_words(x, l, first, hosts);
    w.list = l->replay.near + 8;
    w.near = near;
    w.n = (uint32_t)x->comm->size - 1;
    return w;
}

static bool reached(const _Atomic uint32_t *word, uint64_t run)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - (uint32_t)run) >= 0;
}

/* Is the run over for this rank? Kernels write no word in host memory after that: a kernel may write `arrived` there
 * when `done` is written already, because those in device memory are written before. */
static bool run_over(const weft_exec *x)
{
    const struct launcher *l = driver_state(x);
    const struct words *own = &l->words[x->comm->rank];
    if (x->program->device->mirror)
        return reached(&own->ended, x->run);
    return reached(&l->words[LAUNCHER].done, x->run) && (x->comm->rank == LAUNCHER || reached(&own->arrived, x->run));
}

/* ---- bind ---- */

static uint64_t room(const weft_exec *x, const struct program *p, bool *shown)
{
    (void)p;
    if (!exec_device_shared(x))
        return 0;
    *shown = true; /* the launcher looks at all blocks, and all ranks at the words */
    return sizeof(struct launcher_room) + (x->comm->rank == LAUNCHER ? words_bytes(x->comm) + page_bytes() : 0);
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    struct launcher *l = state;
    weft_comm *c = x->comm;
    if (!exec_device_shared(x))
        return 0;
    struct device *d = x->device->device;
    l->words = words_of(c->transport->reach(c->link, LAUNCHER, block_at[LAUNCHER]));
    int err = d->ops->pin(d, l->words, words_bytes(c), &l->at);
    struct launcher_room *own = driver_room(&driver_launcher, x->block);
    if (!err) {
        replay_make(&l->replay, x, l->words + c->size, l->at + (uint64_t)c->size * sizeof *l->words);
        err = published_make(x, p, &own->published);
    }
    *can = !err;
    return err;
}

/* The launcher's part of a run on a stream: waits for all, does all, tells all. */
static struct device_gate run_gate(const weft_exec *x, const struct launcher *l)
{
    return (struct device_gate){.counter = l->counter,
                                .awaited = all_words(x, l, &l->words[1].arrived, x->comm->size - 1, NEAR_ARRIVED),
                                .told = all_words(x, l, &l->words[LAUNCHER].done, 1, NEAR_DONE),
                                .counts = l->counter};
}

#define RECORDED 3 /* kernels of a run from which on it is recorded */

/* A run of several kernels is recorded, since one call of the driver takes the host less time than several. A recording
 * has constants in it. So the number of a run is in device memory: its last kernel adds 1, as that of a run does whose
 * kernels are started one by one. A run of two kernels takes the device 4 us longer in a graph (8 ranks, 1 MiB, H200),
 * and a start of it as one call saves the host 6 us: it is not recorded. */
static int record_run(weft_exec *x, struct launcher *l)
{
    if (!l->waits || device_queue_calls(l->queue) < RECORDED)
        return 0;
    l->counter = l->replay.near + (uint64_t)x->comm->size * 8;
    const struct device_gate g = run_gate(x, l);
    return device_queue_record(l->queue, &g);
}

static int gather(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t call, int64_t deadline_ns)
{
    (void)call, (void)deadline_ns;
    struct launcher *l = p->state;
    weft_comm *c = x->comm;
    l->waits = !replay_refusal(&l->replay, x);
    if (c->rank != LAUNCHER)
        return 0;
    const size_t nnear = (size_t)c->size + 1; /* and the counter */
    uint64_t *near = calloc(nnear, sizeof *near);
    const struct published **of = calloc((size_t)c->size, sizeof *of);
    l->arrived = program_take(p, (size_t)c->size, sizeof *l->arrived);
    int err = of && near && l->arrived ? 0 : error_nomem();
    for (int r = 0; r < c->size && !err; r++) {
        const struct block *b = c->transport->reach(c->link, r, block_at[r]);
        of[r] = c->transport->reach(c->link, r,
                                    ((const struct launcher_room *)driver_room(&driver_launcher, b))->published);
    }
    if (!err)
        err = levels_make(&l->levels, x->device->device, of, c->size);
    if (!err)
        err = device_queue_new(x->device->device, &l->queue);
    if (!err)
        err = levels_queue(&l->levels, l->queue);
    if (!err) {
        levels_near(&l->levels, near);
        near[c->size] = (uint32_t)x->run;
        err = device_queue_attach(l->queue, near, nnear * sizeof *near);
    }
    if (!err)
        err = device_queue_close(l->queue);
    if (!err) {
        l->replay.near = device_queue_attached(l->queue);
        err = record_run(x, l);
    }
    free(of);
    free(near);
    return err;
}

static void free_all(weft_exec *x, struct program *p)
{
    struct launcher *l = driver_state_of(p, &driver_launcher);
    if (!exec_device_shared(x))
        return;
    struct device *d = x->device->device;
    if (l->at)
        d->ops->unpin(d, l->words);
    device_queue_free(l->queue);
    levels_free(&l->levels, d);
}

/* ---- the run ---- */

static int signal_one(weft_exec *x, void *stream, const _Atomic uint32_t *word)
{
    struct device *d = x->device->device;
    struct device_word w = word_at(driver_state(x), word, x->run);
    return d->ops->signal(d, stream, &w, 1);
}

static int queue_out(weft_exec *x, void *stream)
{
    const struct launcher *l = driver_state(x);
    int err = mirror_out(x->program->device->mirror, stream);
    return err ? err : signal_one(x, stream, &l->words[x->comm->rank].ended);
}

/* ---- runs on streams of the caller ---- */

static int await_all(weft_exec *x, void *stream)
{
    struct launcher *l = driver_state(x);
    struct device *d = x->device->device;
    size_t n = 0;
    for (int r = 1; r < x->comm->size; r++)
        l->arrived[n++] = word_at(l, &l->words[r].arrived, x->run);
    return n ? d->ops->await(d, stream, l->arrived, n) : 0;
}

static int queue_run(weft_exec *x, void *stream)
{
    struct launcher *l = driver_state(x);
    if (l->counter)
        return device_queue_replay(l->queue, stream);
    struct device_gate g = {.told = host_words(x, l, &l->words[LAUNCHER].done, 1)};
    if (l->waits)
        g = run_gate(x, l);
    int err = l->waits ? 0 : await_all(x, stream);
    return err ? err : device_queue_run(l->queue, stream, &g);
}

/* This rank has come to the run, and waits until it is done. */
static int await_done(weft_exec *x, void *stream)
{
    const struct launcher *l = driver_state(x);
    struct device *d = x->device->device;
    const _Atomic uint32_t *arrived = &l->words[x->comm->rank].arrived, *done = &l->words[LAUNCHER].done;
    struct device_gate g = {.come = own_word(x, l, arrived, NEAR_ARRIVED), .awaited = own_word(x, l, done, NEAR_DONE)};
    struct device_word word = word_at(l, done, x->run);
    if (l->waits)
        return d->ops->meet(d, stream, &g, NULL);
    int err = signal_one(x, stream, arrived);
    return err ? err : d->ops->await(d, stream, &word, 1);
}

static int enqueue(weft_exec *x, void *stream)
{
    struct mirror *m = x->program->device->mirror;
    bool launches = x->comm->rank == LAUNCHER;
    int err = m ? mirror_in(m, stream) : 0;
    if (!err)
        err = launches ? queue_run(x, stream) : await_done(x, stream);
    return err || !m ? err : queue_out(x, stream);
}

/* ---- runs that the host orders ---- */

/* The first half: this rank's sources may be read, and its destinations written. */
static int arrive(weft_exec *x)
{
    struct launcher *l = driver_state(x);
    struct mirror *m = x->program->device->mirror;
    bool launches = x->comm->rank == LAUNCHER;
    _Atomic uint32_t *arrived = &l->words[x->comm->rank].arrived;
    void *stream = NULL;
    int err = m || launches ? exec_device_stream(x, &stream) : 0;
    if (!err && m)
        err = mirror_in(m, stream);
    if (err || launches)
        return err;
    if (m)
        return signal_one(x, stream, arrived);
    /* Release: what this rank did before is seen by the launcher's host, which reads the word with acquire, and by the
     * kernels that it starts then. */
    atomic_store_explicit(arrived, (uint32_t)x->run, memory_order_release);
    core_ring(x->comm->group, LAUNCHER);
    return 0;
}

/* May the second half begin? */
static bool may_go_on(const weft_exec *x)
{
    const struct launcher *l = driver_state(x);
    if (x->comm->rank != LAUNCHER)
        return reached(&l->words[LAUNCHER].done, x->run);
    for (int r = 0; r < x->comm->size; r++)
        if (r != LAUNCHER && !reached(&l->words[r].arrived, x->run))
            return false;
    return true;
}

static int go_on(weft_exec *x)
{
    struct launcher *l = driver_state(x);
    void *stream = x->device->stream;
    l->went = x->run;
    struct device_gate g = {
        .counter = l->counter, .told = host_words(x, l, &l->words[LAUNCHER].done, 1), .counts = l->counter};
    if (l->waits && x->comm->rank == LAUNCHER) /* other ranks may wait in streams */
        g.told = all_words(x, l, &l->words[LAUNCHER].done, 1, NEAR_DONE);
    int err = x->comm->rank == LAUNCHER ? device_queue_run(l->queue, stream, &g) : 0;
    return err || !x->program->device->mirror ? err : queue_out(x, stream);
}

static void fail_comm(weft_exec *x)
{
    comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

static void start(weft_exec *x)
{
    x->program->left = 1;
    if (arrive(x) || (may_go_on(x) && go_on(x)))
        fail_comm(x);
}

/* A device that has failed writes no word any more. */
static void check_device(weft_exec *x)
{
    struct device *d = x->device->device;
    if (d->ops->health(d))
        fail_comm(x);
}

static bool pass(weft_exec *x, bool idle)
{
    struct launcher *l = driver_state(x);
    (void)idle;
    if (core_failed(x->comm->group)) /* then the word says nothing: release */
        return false;
    if (!x->on_stream && l->went != x->run && may_go_on(x) && go_on(x)) {
        fail_comm(x);
        return false;
    }
    if (!run_over(x)) {
        if (++l->looks % LOOKS == 0)
            check_device(x);
        return false;
    }
    for (uint32_t s = 0; s < x->program->nsteps && x->arrivals; s++)
        if (x->plan->steps[s].kind != PLAN_SEND)
            arrivals_step(x, s);
    x->program->left = 0;
    return true;
}

/* ---- waiting ---- */

/* Nothing is done before all ranks have come to the run, and the launcher does it. */
static bool rank_waits(const weft_exec *x, int rank)
{
    const struct launcher *l = driver_state(x);
    return !reached(&l->words[LAUNCHER].done, x->run) &&
           (rank == LAUNCHER || !reached(&l->words[rank].arrived, x->run));
}

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    return rank_waits(x, in->peer);
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    return rank_waits(x, out->peer);
}

static int lacking(const weft_exec *x)
{
    (void)x;
    return 1;
}

/* Either all messages of a run are done, or none is. */
static struct driver_count count(const weft_exec *x, uint32_t messages)
{
    bool over = run_over(x);
    return (struct driver_count){over ? messages : 0, over ? messages : 0, over ? messages : 0};
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    return count(x, in->n);
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    return count(x, out->n);
}

/* ---- graphs, and calls of other threads ---- */

static int capture(weft_exec *x, void *stream)
{
    struct launcher *l = driver_state(x);
    const char *why = replay_refusal(&l->replay, x);
    if (why)
        return error_set(WEFT_EUNSUPPORTED, "weft_exec_start_on: the stream is being captured into a graph, and %s",
                         why);
    return replay_record(&l->replay, x, stream, l->queue);
}

/* The number of the last run that was started, for threads that do not hold the progress lock. */
static uint64_t last_run(const weft_exec *x)
{
    return atomic_load_explicit(&x->block->started, memory_order_acquire);
}

static bool stream_waits(weft_exec *x, int rank)
{
    const struct launcher *l = driver_state(x);
    uint64_t run = last_run(x);
    return replay_waits(&l->replay, x, rank) ||
           (!reached(&l->words[LAUNCHER].done, run) && (rank == LAUNCHER || !reached(&l->words[rank].arrived, run)));
}

static bool lacks(const weft_exec *x, int *missing, uint32_t *replay)
{
    const struct launcher *l = driver_state(x);
    return replay_lacks(&l->replay, x, missing, replay);
}

static void release(weft_exec *x)
{
    struct launcher *l = driver_state(x);
    uint64_t run = last_run(x);
    /* Release: what is behind the waits sees no more than it would have seen. */
    for (int r = 0; r < x->comm->size && x->comm->rank == LAUNCHER; r++)
        atomic_store_explicit(&l->words[r].arrived, (uint32_t)run, memory_order_release);
    atomic_store_explicit(&l->words[LAUNCHER].done, (uint32_t)run, memory_order_release);
    replay_release(&l->replay, x);
}

const struct driver driver_launcher = {
    .id = DRIVER_LAUNCHER,
    .name = "launcher",
    .what = "kernels of one rank do the work of all ranks on the device",
    .agreed = true,
    .copies = true,
    .form = FORM_SHARED,
    .state = sizeof(struct launcher),
    .room = room,
    .make = make,
    .gather = gather,
    .free = free_all,
    .start = start,
    .enqueue = enqueue,
    .capture = capture,
    .release = release,
    .stream_waits = stream_waits,
    .lacks = lacks,
    .pass = pass,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .rank_waits = rank_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
