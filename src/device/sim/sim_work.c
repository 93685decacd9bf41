/* Does the work of streams, late on purpose: a run that reads too early, or that is believed to be done too early,
 * shall be seen. Blocks of a launch run in a random order, and copies are done in pieces. */
#define _GNU_SOURCE
#include "device/sim/sim_work.h"

#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/sim/sim_kernels.h"
#include "device/sim/sim_memory.h"

/* ---- pieces of work ---- */

static struct sim_work *new_work(enum sim_kind kind, size_t words)
{
    struct sim_work *w = calloc(1, sizeof *w + words * sizeof *w->words);
    if (!w)
        return NULL;
    w->kind = kind;
    w->n = words;
    return w;
}

struct sim_work *sim_work_words(enum sim_kind kind, const struct device_word *words, size_t n)
{
    struct sim_work *w = new_work(kind, n);
    if (w && n)
        memcpy(w->words, words, n * sizeof *words);
    return w;
}

struct sim_work *sim_work_gate(enum sim_kind kind, const struct device_gate *g, const struct device_words *words)
{
    struct sim_work *w = new_work(kind, 0);
    if (!w)
        return NULL;
    w->u.gate.counter = g->counter;
    w->u.gate.late = g->late;
    w->u.gate.come = g->come.value;
    w->u.gate.shown = g->shown;
    w->u.gate.words = *words;
    w->u.gate.counted = kind == SIM_GATE_TELL && g->counts;
    return w;
}

struct sim_work *sim_work_copy(void *dst, const void *src, size_t bytes, bool *plain)
{
    struct sim_work *w = new_work(SIM_COPY, 0);
    if (!w)
        return NULL;
    w->u.copy.dst = (uintptr_t)dst;
    w->u.copy.src = (uintptr_t)src;
    w->u.copy.bytes = bytes;
    w->u.copy.plain_dst = sim_memory_owner(dst) < 0 && !sim_memory_pinned(dst, bytes);
    w->u.copy.plain_src = sim_memory_owner(src) < 0 && !sim_memory_pinned(src, bytes);
    *plain = w->u.copy.plain_dst || w->u.copy.plain_src;
    return w;
}

struct sim_work *sim_work_launch(uint64_t table, const struct device_launch *l)
{
    struct sim_work *w = new_work(SIM_LAUNCH, 0);
    if (!w)
        return NULL;
    w->u.launch.table = table;
    w->u.launch.what = *l;
    return w;
}

struct sim_work *sim_work_kernel(sim_kernel *body, void *arg)
{
    struct sim_work *w = new_work(SIM_KERNEL, 0);
    if (!w)
        return NULL;
    w->u.kernel.body = body;
    w->u.kernel.arg = arg;
    return w;
}

struct sim_work *sim_work_again(const struct sim_work *w)
{
    struct sim_work *same = sim_work_words(w->kind, w->words, w->n);
    if (same)
        same->u = w->u;
    return same;
}

/* ---- lateness ---- */

uint64_t sim_work_below(struct sim_luck *luck, uint64_t n)
{
    return hash_mix(luck->state++) % n;
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

void sim_work_late(struct sim_luck *luck)
{
    if (!luck->on)
        return;
    uint64_t kind = sim_work_below(luck, 128);
    if (kind == 0)
        pause_ns(2000000);
    else if (kind < 8)
        pause_ns((long)sim_work_below(luck, 300000));
    else if (kind < 32)
        pause_ns((long)sim_work_below(luck, 30000));
    else if (kind < 64)
        for (uint64_t i = sim_work_below(luck, 8); i > 0; i--)
            sched_yield();
}

/* ---- doing it ---- */

/* A kernel that runs: where it goes when it uses memory that it does not reach. */
struct kernel {
    struct sim_view view; /* first */
    jmp_buf bad;
};

/* The address of the bytes for this kernel, which ends if it does not reach them. */
static void *at(struct kernel *k, uint64_t address, size_t bytes)
{
    void *p = sim_memory_at(&k->view, address, bytes);
    if (!p)
        longjmp(k->bad, 1);
    return p;
}

void *sim_work_at(struct sim_view *view, const void *address, size_t bytes)
{
    return at((struct kernel *)(void *)view, (uintptr_t)address, bytes);
}

static uint32_t *word_at(struct kernel *k, const struct device_word *w)
{
    if (w->at % sizeof(uint32_t)) {
        k->view.bad = w->at;
        longjmp(k->bad, 1);
    }
    return at(k, w->at, sizeof(uint32_t));
}

/* Has the word been reached? Pairs with the release of those who write it: the host, or `signal`. */
static bool reached(struct kernel *k, const struct device_word *w)
{
    return (int32_t)(__atomic_load_n(word_at(k, w), __ATOMIC_ACQUIRE) - w->value) >= 0;
}

/* Between two looks, which come further and further apart, the memory can be given back; then the next look fails. */
static void pause_looks(struct kernel *k, long *ns)
{
    sim_memory_leave(&k->view);
    pause_ns(*ns);
    if (*ns < 200000)
        *ns *= 2;
}

/* Looks at each word until it has been reached. */
static void await(const struct sim_device *d, struct kernel *k, const struct sim_work *w)
{
    long ns = 1000;
    for (size_t i = 0; i < w->n;) {
        if (sim_device_state(d) != SIM_WORKS)
            return;
        if (reached(k, &w->words[i])) {
            i++;
            continue;
        }
        pause_looks(k, &ns);
    }
}

static void write_one(struct kernel *k, struct device_word w)
{
    __atomic_store_n(word_at(k, &w), w.value, __ATOMIC_RELEASE);
}

static void signal_words(struct kernel *k, const struct sim_work *w)
{
    for (size_t i = 0; i < w->n; i++)
        write_one(k, w->words[i]);
}

/* ---- gates ---- */

/* What is added to the values of a gate. */
static uint32_t *counter_at(struct kernel *k, uint64_t counter)
{
    return word_at(k, &(struct device_word){.at = counter});
}

static uint32_t base_of(struct kernel *k, const struct sim_work *w)
{
    return w->u.gate.counter ? *counter_at(k, w->u.gate.counter) - w->u.gate.counted : 0;
}

/* The words of a gate, with the values that they have in this run. */
static struct device_words gate_now(struct kernel *k, const struct sim_work *w)
{
    struct device_words now = w->u.gate.words;
    const uint32_t base = base_of(k, w);
    now.value += base;
    now.host_value += now.host_counts ? base : 0;
    return now;
}

static struct device_word near_word(struct kernel *k, const struct device_words *w, uint32_t i)
{
    uint64_t base = 0;
    if (w->list)
        memcpy(&base, at(k, w->list + 8 * (uint64_t)i, sizeof base), sizeof base);
    return (struct device_word){w->near + base, w->value};
}

static struct device_word host_word(const struct device_words *w, uint32_t i, uint32_t value)
{
    return (struct device_word){w->at + (uint64_t)i * w->stride, value};
}

/* One long before the other. */
static void gate_write(struct kernel *k, const struct device_words *w, bool host_first, struct sim_luck *luck)
{
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < w->hosts && host_first == !turn; i++)
            write_one(k, host_word(w, i, w->value));
        for (uint32_t i = 0; i < w->n && host_first == turn; i++)
            write_one(k, near_word(k, w, i));
        if (!turn)
            sim_work_late(luck);
    }
}

#define LATE_NS 100000 /* between two looks: others have passed */

static void write_late(struct kernel *k, const struct sim_work *w, uint64_t word)
{
    write_one(k, (struct device_word){w->u.gate.late + 4 * word, w->u.gate.come + base_of(k, w)});
}

/* As `await`, but a word counts in either memory. */
static void gate_await(const struct sim_device *d, struct kernel *k, const struct sim_work *work)
{
    const struct device_words w = gate_now(k, work);
    bool late = false;
    long ns = 1000;
    for (uint32_t i = 0; i < w.n && sim_device_state(d) == SIM_WORKS;) {
        struct device_word near = near_word(k, &w, i), host = host_word(&w, i, w.host_value);
        if (reached(k, &near) || reached(k, &host)) {
            i++;
            continue;
        }
        if (!late && work->u.gate.late && ns > LATE_NS) {
            write_late(k, work, 0);
            late = true;
        }
        pause_looks(k, &ns);
    }
    if (!late && work->u.gate.shown)
        write_late(k, work, 0);
    if (late || work->u.gate.shown)
        write_late(k, work, 1);
}

/* Host memory that is not pinned: the kernel of the system copies it, and notices what is not mapped. */
static void copy_plain(struct kernel *k, const struct sim_work *w)
{
    size_t bytes = w->u.copy.bytes;
    uint64_t dst = w->u.copy.dst, src = w->u.copy.src;
    void *to = w->u.copy.plain_dst ? (void *)(uintptr_t)dst : at(k, dst, bytes);
    void *from = w->u.copy.plain_src ? (void *)(uintptr_t)src : at(k, src, bytes);
    for (size_t done = 0; done < bytes;) {
        struct iovec there = {(char *)to + done, bytes - done}, here = {(char *)from + done, bytes - done};
        ssize_t n = w->u.copy.plain_dst ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                                        : process_vm_readv(getpid(), &there, 1, &here, 1, 0);
        if (n <= 0) {
            k->view.bad = (w->u.copy.plain_dst ? dst : src) + done;
            longjmp(k->bad, 1);
        }
        done += (size_t)n;
    }
}

/* Counts a queue that begins to copy (1) or ends (-1). */
static int64_t count_copying(struct sim_device *d, int change)
{
    struct timespec t;
    pthread_mutex_lock(&d->lock);
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    d->copying_ns += d->copying > 0 ? now - d->copying_since : 0;
    d->overlap_ns += d->copying > 1 ? now - d->copying_since : 0;
    d->copying += change;
    d->copying_since = now;
    pthread_mutex_unlock(&d->lock);
    return now;
}

/* The copy takes as long as the rate says. */
static void take_time(struct sim_device *d, size_t bytes)
{
    int64_t end = count_copying(d, 1) + (int64_t)((uint64_t)bytes * 1000 / d->rate);
    struct timespec until = {end / 1000000000, end % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {
    }
    count_copying(d, -1);
}

#define PIECES 3

static void copy(struct kernel *k, const struct sim_work *w, struct sim_luck *luck)
{
    size_t bytes = w->u.copy.bytes, done = 0;
    if (w->u.copy.plain_dst || w->u.copy.plain_src) {
        copy_plain(k, w);
        return;
    }
    unsigned char *dst = at(k, w->u.copy.dst, bytes);
    const unsigned char *src = at(k, w->u.copy.src, bytes);
    bool apart = dst + bytes <= src || src + bytes <= dst;
    for (int i = 1; luck->on && apart && i < PIECES; i++) {
        size_t n = (size_t)sim_work_below(luck, bytes - done + 1);
        memcpy(dst + done, src + done, n);
        done += n;
        sim_work_late(luck);
    }
    memmove(dst + done, src + done, bytes - done);
}

static void launch(struct sim_device *d, struct kernel *k, const struct sim_work *w, struct sim_luck *luck)
{
    uint64_t number = atomic_fetch_add_explicit(&d->launches, 1, memory_order_relaxed) + 1;
    if (number == d->fail_at) {
        sim_device_fail(d, "launch %" PRIu64 " failed, as WEFT_SIM_FAIL asks for", number);
        return;
    }
    sim_kernels_run(&k->view, w->u.launch.table, &w->u.launch.what, luck);
}

static void run(struct sim_device *d, struct kernel *k, const struct sim_work *w, struct sim_luck *luck)
{
    struct device_words gate;
    switch (w->kind) {
    case SIM_AWAIT: await(d, k, w); break;
    case SIM_SIGNAL: signal_words(k, w); break;
    case SIM_COPY:
        if (d->rate)
            take_time(d, w->u.copy.bytes);
        copy(k, w, luck);
        break;
    case SIM_LAUNCH: launch(d, k, w, luck); break;
    case SIM_GATE_COME:
    case SIM_GATE_TELL:
        gate = gate_now(k, w);
        gate_write(k, &gate, w->kind == SIM_GATE_COME && sim_work_below(luck, 2), luck);
        break;
    case SIM_GATE_AWAIT: gate_await(d, k, w); break;
    case SIM_GATE_COUNT: ++*counter_at(k, w->u.gate.counter); break;
    case SIM_KERNEL: w->u.kernel.body(&k->view, w->u.kernel.arg); break;
    }
}

void sim_work_do(struct sim_device *d, const struct sim_work *w, struct sim_luck *luck)
{
    static const char *const names[] = {
        "await",  "signal", "copy",  "a kernel of weft", "a kernel of the program", "a gate",
        "a gate", "a gate", "a gate"};
    struct kernel k = {0};
    if (sim_device_state(d) != SIM_WORKS)
        return;
    if (!setjmp(k.bad))
        run(d, &k, w, luck);
    else
        sim_device_fail(d, "%s used the address 0x%" PRIx64 ", which is not memory of a device, nor pinned host memory",
                        names[w->kind], k.view.bad);
    sim_memory_leave(&k.view);
}
