/* The module weft_sim.so: a device that is simulated on the host, by memory that faults when the host touches it, and
 * streams that are threads. This file opens and closes devices, and has the tables of calls. */
#define _GNU_SOURCE
#include "device/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/forks.h"
#include "base/hash.h"
#include "base/process.h"
#include "device/sim/sim_device.h"
#include "device/sim/sim_group.h"
#include "device/sim/sim_memory.h"
#include "device/sim/sim_stream.h"
#include "device/sim/sim_work.h"

#define DEVICES_MOST 64
#define QUEUES_MOST 1024

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists */
static struct list opened, parents;                      /* parents: in a child, those of its parent */
extern const struct device_ops weft_device_ops;
extern const struct sim_calls weft_sim_calls;

/* ---- the environment ---- */

struct settings {
    uint64_t devices, seed, queues, rate, fail_at, mps;
};

/* The variables are checked in this order; false: *text says what is wrong. */
static bool read_settings(struct settings *s, char *text, size_t cap)
{
    const struct {
        const char *name;
        uint64_t *value, least, most;
    } all[] = {
        {"WEFT_SIM_DEVICES", &s->devices, 1, DEVICES_MOST}, {"WEFT_SIM_SEED", &s->seed, 0, UINT64_MAX},
        {"WEFT_SIM_QUEUES", &s->queues, 0, QUEUES_MOST},    {"WEFT_SIM_RATE", &s->rate, 0, UINT32_MAX},
        {"WEFT_SIM_FAIL", &s->fail_at, 0, UINT64_MAX},      {"WEFT_SIM_MPS", &s->mps, 0, 1},
    };
    *s = (struct settings){.devices = 1, .seed = 1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *value = getenv(all[i].name);
        char *end;
        if (!value || !*value)
            continue;
        *all[i].value = strtoull(value, &end, 10);
        if (*end || *value == '-' || *all[i].value < all[i].least || *all[i].value > all[i].most) {
            snprintf(text, cap, "%s=%s: expected a number from %" PRIu64 " to %" PRIu64, all[i].name, value,
                     all[i].least, all[i].most);
            return false;
        }
    }
    return true;
}

static int count(const char **why)
{
    static _Thread_local char text[128];
    struct settings s;
    if (read_settings(&s, text, sizeof text))
        return (int)s.devices;
    *why = text;
    return 0;
}

/* ---- forks ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    sim_memory_before_fork();
}

static void in_parent(void)
{
    sim_memory_in_parent();
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    sim_memory_in_child();
    for (struct list *node; (node = list_first(&opened));) {
        atomic_store_explicit(&LIST_OF(node, struct sim_device, node)->state, SIM_FORKED, memory_order_release);
        list_remove(node);
        list_append(&parents, node);
    }
    pthread_mutex_unlock(&lock);
}

/* The handlers of base/forks.h come first, so that its lock is taken after the memory's, as everywhere. If the second
 * call fails, a child must not use its parent's devices. */
static void prepare(void)
{
    list_begin(&opened);
    list_begin(&parents);
    (void)forks_count();
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- open and close ---- */

/* Processes can share memory if they see each other in /proc. */
static void identify(struct sim_device *d, int number)
{
    struct process_id self;
    process_self(&self);
    const uint64_t words[2] = {UINT64_C(0x6d69732d74666577) + (uint64_t)number,
                               hash_bytes(self.space, self.boot, strlen(self.boot))};
    memcpy(d->device.id, words, sizeof words);
}

static struct sim_device *find_open(int number)
{
    for (struct list *node = list_first(&opened); node; node = list_after(&opened, node))
        if (LIST_OF(node, struct sim_device, node)->device.number == number)
            return LIST_OF(node, struct sim_device, node);
    return NULL;
}

static struct sim_device *new_device(int number, int (*error)(int code, const char *form, ...),
                                     const struct settings *s)
{
    struct sim_device *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->device.ops = &weft_device_ops;
    d->device.number = number;
    identify(d, number);
    d->seed = s->seed;
    d->queues = (int)s->queues;
    d->fail_at = s->fail_at;
    d->rate = s->rate;
    d->error = error;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->done, NULL);
    list_begin(&d->streams);
    list_begin(&d->hardware);
    list_append(&opened, &d->node);
    return d;
}

static int open_device(int number, int (*error)(int code, const char *form, ...), struct device **out)
{
    struct settings s;
    char text[128];
    if (!read_settings(&s, text, sizeof text))
        return error(WEFT_EINVAL, "%s", text);
    if (number < 0 || (uint64_t)number >= s.devices)
        return error(WEFT_EINVAL, "there is no simulated device %d: WEFT_SIM_DEVICES is %" PRIu64, number, s.devices);
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    struct sim_device *d = find_open(number);
    if (!d)
        d = new_device(number, error, &s);
    if (d)
        d->opened++;
    pthread_mutex_unlock(&lock);
    if (!d)
        return error(WEFT_ENOMEM, "out of memory");
    *out = &d->device;
    return 0;
}

static void close_device(struct device *device)
{
    struct sim_device *d = device ? sim_device_of(device) : NULL;
    if (!d || sim_device_state(d) == SIM_FORKED)
        return;
    pthread_mutex_lock(&lock);
    bool last = --d->opened == 0;
    if (last)
        list_remove(&d->node);
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    atomic_store_explicit(&d->state, SIM_CLOSED, memory_order_release);
    sim_stream_close_all(d);
    sim_memory_close(d);
    pthread_cond_destroy(&d->done);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static bool facts(int number, struct device_facts *out)
{
    struct settings s;
    char queues[32] = "a queue for each stream", delays[40] = "no delays";
    *out = (struct device_facts){.simulated = true, .descriptors = true, .driver = "weft's simulation, on the host"};
    if (!read_settings(&s, out->name, sizeof out->name))
        return false;
    if (s.queues)
        snprintf(queues, sizeof queues, "%" PRIu64 " queues", s.queues);
    if (s.seed)
        snprintf(delays, sizeof delays, "delays of seed %" PRIu64, s.seed);
    out->mps = s.mps;
    snprintf(out->name, sizeof out->name, "simulated device %d, %s, %s", number, queues, delays);
    return true;
}

/* ---- giving back ---- */

/* As CUDA's calls do: they wait for all streams of the process. */

static void free_memory(struct device *d, void *memory)
{
    sim_stream_rest(d);
    sim_memory_free(d, memory);
}

static void unmap(struct device *d, void *base)
{
    sim_stream_rest(d);
    sim_memory_unmap(d, base);
}

static void unpin(struct device *d, void *host)
{
    sim_stream_rest(d);
    sim_memory_unpin(d, host);
}

/* ---- work ---- */

static void count_call(struct device *d)
{
    atomic_fetch_add_explicit(&sim_device_of(d)->calls, 1, memory_order_relaxed);
}

static int await(struct device *d, void *stream, const struct device_word *words, size_t n)
{
    count_call(d);
    return sim_stream_add(d, stream, sim_work_words(SIM_AWAIT, words, n));
}

static int signal_words(struct device *d, void *stream, const struct device_word *words, size_t n)
{
    count_call(d);
    return sim_stream_add(d, stream, sim_work_words(SIM_SIGNAL, words, n));
}

static int gate_words(struct device *d, void *stream, enum sim_kind kind, const struct device_gate *g,
                      const struct device_words *w)
{
    return w->n || w->hosts ? sim_stream_add(d, stream, sim_work_gate(kind, g, w)) : 0;
}

static int gate_begin(struct device *d, void *stream, const struct device_gate *g)
{
    int err = gate_words(d, stream, SIM_GATE_COME, g, &g->come);
    return err ? err : gate_words(d, stream, SIM_GATE_AWAIT, g, &g->awaited);
}

static int gate_end(struct device *d, void *stream, const struct device_gate *g)
{
    int err = g->counts ? sim_stream_add(d, stream, sim_work_gate(SIM_GATE_COUNT, g, &g->told)) : 0;
    return err ? err : gate_words(d, stream, SIM_GATE_TELL, g, &g->told);
}

static int launch(struct device *d, void *stream, uint64_t table, const struct device_launch *l,
                  const struct device_gate *g, uint64_t count)
{
    (void)count;
    count_call(d);
    int err = sim_stream_add(d, stream, sim_work_launch(table, l));
    return err || !g ? err : gate_end(d, stream, g);
}

static int meet(struct device *d, void *stream, const struct device_gate *g, const struct device_work *work)
{
    count_call(d);
    int err = gate_begin(d, stream, g);
    for (size_t i = 0; work && i < work->n && !err; i++)
        err = sim_stream_add(d, stream, sim_work_launch(work->table, &work->launches[i]));
    return err ? err : gate_end(d, stream, g);
}

static int copy(struct device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    bool plain = false, capturing;
    count_call(d);
    struct sim_work *w = bytes ? sim_work_copy(dst, src, bytes, &plain) : NULL;
    int err = sim_stream_capturing(d, stream, &capturing);
    if (!err && plain && capturing)
        err = sim_device_of(d)->error(WEFT_EINVAL, "a copy of host memory that is not pinned cannot be captured");
    if (err || !bytes) {
        free(w);
        return err;
    }
    err = sim_stream_add(d, stream, w);
    return err || !plain ? err : sim_stream_sync(d, stream);
}

static int replay(struct device *d, void *recording, void *stream)
{
    count_call(d);
    return sim_stream_graph_launch(d, recording, stream);
}

static int kernel(struct device *d, void *stream, sim_kernel *body, void *arg)
{
    return sim_stream_add(d, stream, sim_work_kernel(body, arg));
}

static int health(struct device *d)
{
    return sim_device_check(sim_device_of(d));
}

static void crash(struct device *d, const char *text)
{
    sim_device_fail(sim_device_of(d), "%s", text);
}

static void use(struct device *d, struct sim_use *out)
{
    *out = (struct sim_use){.calls = atomic_load_explicit(&sim_device_of(d)->calls, memory_order_relaxed)};
    sim_stream_use(sim_device_of(d), out);
    sim_memory_use(sim_device_of(d), out);
}

__attribute__((visibility("default"))) const struct device_ops weft_device_ops = {
    .abi = DEVICE_ABI,
    .name = "sim",
    .count = count,
    .open = open_device,
    .close = close_device,
    .owner = sim_memory_owner,
    .facts = facts,
    .alloc = sim_memory_alloc,
    .free = free_memory,
    .share = sim_memory_share,
    .map = sim_memory_map,
    .unmap = unmap,
    .pin = sim_memory_pin,
    .pin_read = sim_memory_pin,
    .unpin = unpin,
    .health = health,
    .stream_open = sim_stream_open,
    .stream_close = sim_stream_close,
    .sync = sim_stream_sync,
    .idle = sim_stream_idle,
    .capturing = sim_stream_capturing,
    .await = await,
    .signal = signal_words,
    .meet = meet,
    .copy = copy,
    .launch = launch,
    .record = sim_stream_capture_begin,
    .recorded = sim_stream_capture_end,
    .replay = replay,
    .forget = sim_stream_graph_free,
    .group_name = sim_group_name,
    .group_id = sim_group_id,
    .group_join = sim_group_join,
    .group_move = sim_group_move,
    .group_health = sim_group_health,
    .group_abort = sim_group_abort,
    .group_leave = sim_group_leave,
};

__attribute__((visibility("default"))) const struct sim_calls weft_sim_calls = {
    .abi = DEVICE_ABI,
    .capture_begin = sim_stream_capture_begin,
    .capture_end = sim_stream_capture_end,
    .graph_launch = sim_stream_graph_launch,
    .graph_free = sim_stream_graph_free,
    .kernel = kernel,
    .at = sim_work_at,
    .crash = crash,
    .use = use,
};
