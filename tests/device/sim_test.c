/* The simulated device keeps the rules of device/device.h, and breaks when a caller does not. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "support/clock.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/share.h"
#include "support/simulated.h"
#include "support/suite.h"
#include "weft.h"

#define HANGS 60 /* seconds */
#define PAGE 4096

static const struct device_ops *ops;
static const struct sim_calls *sim;

static int setup(void **state)
{
    (void)state;
    ops = simulated_ops();
    sim = simulated_calls();
    if (!ops || !sim)
        fprintf(stderr, "the simulation cannot be loaded: %s\n", weft_errmsg());
    return ops && sim ? 0 : 1;
}

static struct device *open_device(void)
{
    struct device *d = NULL;
    if (device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d))
        fprintf(stderr, "%s\n", weft_errmsg());
    return d;
}

/* ---- what tests do with a device; in children, too, where cmocka's asserts do not work ---- */

static void *new_stream(struct device *d)
{
    void *s = NULL;
    assert_int_equal(ops->stream_open(d, &s), 0);
    assert_non_null(s);
    return s;
}

/* Zeroed host memory that is pinned; pages of its own. */
static void *new_host(struct device *d, size_t bytes)
{
    uint64_t at;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && !ops->pin(d, p, bytes, &at) && at == (uintptr_t)p ? p : NULL;
}

static void free_host(struct device *d, void *p, size_t bytes)
{
    ops->unpin(d, p);
    munmap(p, bytes);
}

static int put(struct device *d, void *dst, const void *src, size_t bytes)
{
    int err = ops->copy(d, NULL, dst, src, bytes);
    return err ? err : ops->sync(d, NULL);
}

static struct device_word word(const uint32_t *at, uint32_t value)
{
    return (struct device_word){(uintptr_t)at, value};
}

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Waits until the word has the value; false: it hangs. */
static bool comes(const uint32_t *word, uint32_t value)
{
    for (int64_t end = clock_now() + HANGS * SECOND; load(word) != value; sched_yield())
        if (clock_now() > end)
            return false;
    return true;
}

/* ---- memory ---- */

static void memory_is_zeroed_aligned_and_has_an_owner(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 255, PAGE, PAGE + 1, 1 << 20};
    struct device *d = open_device();
    unsigned char *host = new_host(d, 1 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = ops->alloc(d, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        assert_int_equal(ops->owner(p), 0);
        assert_int_equal(ops->owner(p + (sizes[i] ? sizes[i] - 1 : 0)), 0);
        assert_int_equal(ops->owner(p + (sizes[i] ? sizes[i] : 1)), -1);
        memset(host, 1, sizes[i]);
        assert_int_equal(put(d, host, p, sizes[i]), 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(host[k], 0);
        ops->free(d, p);
        assert_int_equal(ops->owner(p), -1);
    }
    assert_int_equal(ops->owner(host), -1);
    assert_null(ops->alloc(d, SIZE_MAX / 2));
    free_host(d, host, 1 << 20);
    ops->close(d);
}

static int touch(void *arg)
{
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    struct device *d = open_device();
    volatile char *p = d ? ops->alloc(d, 100) : NULL;
    if (!p)
        return 1;
    if (*(const int *)arg)
        p[50] = 1;
    return p[50] + 2;
}

static void host_that_touches_device_memory_faults(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++)
        assert_int_equal(process_do(touch, &write), 1000 + SIGSEGV);
}

static void values_travel_between_host_and_device(void **state)
{
    (void)state;
    enum { BYTES = 3 * PAGE + 77 };
    struct device *d = open_device();
    unsigned char *from = new_host(d, BYTES), *to = new_host(d, BYTES);
    char *a = ops->alloc(d, BYTES), *b = ops->alloc(d, BYTES);
    struct random r = random_of(1, 1);
    for (int i = 0; i < BYTES; i++)
        from[i] = (unsigned char)random_next(&r);
    for (size_t at = 0; at < BYTES; at += 1000) { /* also from inside of an allocation */
        size_t n = BYTES - at < 1000 ? BYTES - at : 1000;
        assert_int_equal(ops->copy(d, NULL, a + at, from + at, n), 0);
    }
    assert_int_equal(ops->copy(d, NULL, b, a, BYTES), 0);
    assert_int_equal(put(d, to, b, BYTES), 0);
    assert_memory_equal(from, to, BYTES);
    /* overlapping */
    assert_int_equal(ops->copy(d, NULL, b + 1, b, BYTES - 1), 0);
    assert_int_equal(put(d, to, b, BYTES), 0);
    assert_memory_equal(from, to + 1, BYTES - 1);
    ops->free(d, a);
    ops->free(d, b);
    free_host(d, from, BYTES);
    free_host(d, to, BYTES);
    ops->close(d);
}

/* Host memory that is not pinned: the call waits until the copy is done. */
static void copies_of_plain_host_memory_are_done_when_the_call_returns(void **state)
{
    (void)state;
    enum { BYTES = 3 * PAGE + 77 };
    struct device *d = open_device();
    void *s = new_stream(d);
    unsigned char *from = malloc(BYTES), *to = calloc(1, BYTES);
    char *p = ops->alloc(d, BYTES);
    for (int i = 0; i < 20; i++) {
        memset(from, i + 1, BYTES);
        assert_int_equal(ops->copy(d, s, p, from, BYTES), 0);
        memset(from, 0, BYTES);
        assert_int_equal(ops->copy(d, s, to, p, BYTES), 0);
        for (int k = 0; k < BYTES; k++)
            assert_int_equal(to[k], i + 1);
    }
    assert_int_equal(ops->copy(d, s, to, from, BYTES), 0);
    assert_int_equal(to[0], 0);
    assert_int_equal(ops->copy(d, s, NULL, NULL, 0), 0);
    assert_int_equal(sim->capture_begin(d, s), 0);
    assert_int_equal(ops->copy(d, s, p, from, BYTES), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "that is not pinned cannot be captured"));
    ops->stream_close(d, s);
    assert_int_equal(ops->copy(d, NULL, p, (char *)8, 4), WEFT_ETRANSPORT); /* nothing is mapped there */
    assert_non_null(strstr(weft_errmsg(), "copy used the address 0x8"));
    free(from);
    free(to);
    ops->close(d);
}

/* Memory beside pinned memory, in its page, is plain memory. */
static void memory_beside_a_pin_is_not_pinned(void **state)
{
    (void)state;
    struct device *d = open_device();
    char *page = new_host(d, 16), *p = ops->alloc(d, 100);
    for (int i = 0; i < 50; i++) {
        bool idle = false;
        assert_int_equal(ops->copy(d, NULL, p, page + 8, 16), 0); /* half of it */
        assert_int_equal(ops->idle(d, NULL, &idle), 0);
        assert_true(idle);
        assert_int_equal(ops->copy(d, NULL, page + 100, p, 100), 0);
        assert_int_equal(ops->idle(d, NULL, &idle), 0);
        assert_true(idle);
    }
    ops->free(d, p);
    free_host(d, page, 16);
    ops->close(d);
}

static void write_byte(struct sim_view *view, void *arg)
{
    *(volatile char *)sim->at(view, arg, 1) = 1;
}

/* Work that uses memory that was given back is noticed, and so is work that uses what lies behind an allocation. */
static void stream_that_uses_what_it_does_not_reach_fails(void **state)
{
    (void)state;
    uint32_t *pages = aligned_alloc(PAGE, PAGE);
    for (int what = 0; what < 6; what++) {
        struct device *d = open_device();
        uint32_t *flag = new_host(d, PAGE), *host = new_host(d, PAGE);
        void *s = new_stream(d);
        char *p = ops->alloc(d, 100);
        const struct device_word go = word(flag, 1), odd = {(uintptr_t)host + 1, 1}, unpinned = word(pages, 1),
                                 bad = {8, 1}, gone = word(host, 1);
        if (what == 0)
            ops->free(d, p);
        if (what == 5)
            ops->unpin(d, host);
        assert_int_equal(ops->await(d, s, &go, 1), 0);
        switch (what) {
        case 0: assert_int_equal(sim->kernel(d, s, write_byte, p), 0); break;
        case 1: assert_int_equal(ops->copy(d, s, p + 1, host, 100), 0); break;
        case 2: assert_int_equal(ops->await(d, s, &bad, 1), 0); break;
        case 3: assert_int_equal(ops->signal(d, s, &odd, 1), 0); break;
        case 4: assert_int_equal(ops->await(d, s, &unpinned, 1), 0); break;
        default: assert_int_equal(ops->signal(d, s, &gone, 1), 0); break;
        }
        store(flag, 1);
        assert_int_equal(ops->sync(d, s), WEFT_ETRANSPORT);
        assert_non_null(strstr(weft_errmsg(), "simulated device 0 has failed: "));
        assert_non_null(strstr(weft_errmsg(), "which is not memory of a device, nor pinned host memory"));
        ops->close(d);
        munmap(flag, PAGE);
        munmap(host, PAGE);
    }
    free(pages);
}

/* Giving memory back waits for all streams of the process, as in CUDA: also for those that do not use it. */
struct slow {
    void *memory;
    struct device *d;
    _Atomic int begun, go, ended, freed;
};

static void slow_kernel(struct sim_view *view, void *arg)
{
    struct slow *s = arg;
    unsigned char *p = sim->at(view, s->memory, PAGE);
    atomic_store(&s->begun, 1);
    while (!atomic_load(&s->go))
        sched_yield();
    memset(p, 1, PAGE);
    atomic_store(&s->ended, 1);
}

static void *free_early(void *arg)
{
    struct slow *s = arg;
    ops->free(s->d, s->memory);
    atomic_store(&s->freed, atomic_load(&s->ended) ? 1 : 2);
    return NULL;
}

static void free_waits_for_all_kernels(void **state)
{
    (void)state;
    struct slow s = {.d = open_device()};
    pthread_t thread;
    s.memory = ops->alloc(s.d, PAGE);
    assert_int_equal(sim->kernel(s.d, NULL, slow_kernel, &s), 0);
    while (!atomic_load(&s.begun))
        sched_yield();
    assert_int_equal(pthread_create(&thread, NULL, free_early, &s), 0);
    void *other = ops->alloc(s.d, PAGE); /* allocating does not wait */
    assert_non_null(other);
    for (int i = 0; i < 1000; i++) /* if free did not wait, it would be through by then */
        sched_yield();
    assert_int_equal(atomic_load(&s.freed), 0);
    atomic_store(&s.go, 1);
    ops->free(s.d, other);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&s.freed), 1);
    assert_int_equal(ops->sync(s.d, NULL), 0);
    ops->close(s.d);
}

static void pins_are_counted(void **state)
{
    (void)state;
    struct device *d = open_device();
    uint32_t *p = new_host(d, 2 * PAGE);
    uint64_t at;
    struct sim_use use;
    struct device_word w = word(p + 1000, 1);
    assert_int_equal(ops->pin(d, p, 2 * PAGE, &at), 0);
    assert_int_equal(ops->pin(d, p + 1000, 4, &at), 0); /* a part of it */
    assert_int_equal(at, (uintptr_t)(p + 1000));
    sim->use(d, &use);
    assert_int_equal(use.pins, 3);
    ops->unpin(d, p);
    ops->unpin(d, p);
    assert_int_equal(ops->signal(d, NULL, &w, 1), 0);
    assert_int_equal(ops->sync(d, NULL), 0);
    assert_int_equal(p[1000], 1);
    w = word(p + PAGE / 4, 1); /* the other page */
    assert_int_equal(ops->signal(d, NULL, &w, 1), 0);
    assert_int_equal(ops->sync(d, NULL), WEFT_ETRANSPORT);
    ops->close(d);
    munmap(p, 2 * PAGE);
    d = open_device();
    ops->unpin(d, p);
    assert_int_equal(ops->sync(d, NULL), WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), "it was not pinned"));
    ops->close(d);
    d = open_device();
    assert_int_equal(ops->pin(d, NULL, 1, &at), WEFT_EINVAL);
    p = ops->alloc(d, 10);
    assert_int_equal(ops->pin(d, p, 10, &at), WEFT_EINVAL);
    ops->free(d, p);
    ops->free(d, p);
    assert_int_equal(ops->sync(d, NULL), WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), "no allocation begins there"));
    ops->close(d);
}

/* ---- sharing ---- */

static void shared_memory_has_one_address_in_a_process(void **state)
{
    (void)state;
    struct device *d = open_device();
    char *p = ops->alloc(d, 1000), *host = new_host(d, 1000);
    void *a, *b;
    struct device_share s;
    assert_int_equal(ops->share(d, p + 999, &s), 0);
    assert_int_equal(s.base, (uintptr_t)p);
    assert_int_equal(s.bytes, 1000);
    assert_int_equal(ops->share(d, host, &s), WEFT_EINVAL);
    assert_int_equal(ops->map(d, &s, &a), 0);
    assert_int_equal(ops->map(d, &s, &b), 0);
    assert_ptr_equal(a, p);
    assert_ptr_equal(b, p);
    ops->free(d, p); /* the mappings keep it */
    assert_int_equal(ops->owner(p), 0);
    ops->unmap(d, a);
    assert_int_equal(put(d, host, p, 1000), 0);
    ops->unmap(d, b);
    assert_int_equal(ops->owner(p), -1);
    assert_int_equal(ops->map(d, &s, &a), WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), "has freed the memory that it shared"));
    memset(s.handle, 0, sizeof s.handle);
    assert_int_equal(ops->map(d, &s, &a), WEFT_EINVAL);
    free_host(d, host, 1000);
    ops->close(d);
}

struct meeting {
    struct device_share share, small;
    unsigned char id[16];
    uint32_t ready, wrong;
};

/* The owner: signals, waits for the other one, and looks at what it wrote. */
static int own(void *arg)
{
    struct meeting *m = arg;
    uint64_t at;
    struct device *d = open_device();
    uint32_t *host = d ? new_host(d, PAGE) : NULL;
    char *p = d ? ops->alloc(d, PAGE + 100) : NULL, *small = d ? ops->alloc(d, 1) : NULL;
    if (!host || !p || !small || ops->pin(d, m, sizeof *m, &at))
        return 1;
    struct device_word second = word(&m->ready, 2), third = word(&m->ready, 3);
    host[0] = 4711;
    if (put(d, p + PAGE, host, 4) || ops->share(d, p + 5, &m->share) || ops->share(d, small, &m->small))
        return 2;
    ops->free(d, small); /* its handle is stale now */
    memcpy(m->id, d->id, 16);
    store(&m->ready, 1);
    /* a stream of one process waits for a stream of the other */
    if (ops->await(d, NULL, &second, 1) || ops->copy(d, NULL, host, p, 4) || ops->signal(d, NULL, &third, 1) ||
        ops->sync(d, NULL))
        return 3;
    if (host[0] != 4712 || !comes(&m->ready, 4))
        return 4;
    raise(SIGKILL);
    return 5;
}

static int use(struct meeting *m)
{
    uint64_t at;
    void *base, *again, *stale;
    if (!comes(&m->ready, 1))
        return 11;
    struct device *d = open_device();
    uint32_t *host = d ? new_host(d, PAGE) : NULL;
    struct device_share other;
    if (!host || ops->pin(d, m, sizeof *m, &at) || memcmp(d->id, m->id, 16))
        return 12;
    if (ops->map(d, &m->share, &base) || ops->map(d, &m->share, &again) || base != again || ops->owner(base) != 0)
        return 13;
    if (ops->map(d, &m->small, &stale) != WEFT_ETRANSPORT || ops->share(d, base, &other) != WEFT_EUNSUPPORTED)
        return 14;
    struct device_word second = word(&m->ready, 2), third = word(&m->ready, 3);
    if (put(d, host, (char *)base + PAGE, 4) || host[0] != 4711)
        return 15;
    host[0] = 4712;
    if (ops->copy(d, NULL, base, host, 4) || ops->signal(d, NULL, &second, 1) || ops->await(d, NULL, &third, 1) ||
        ops->sync(d, NULL))
        return 16;
    store(&m->ready, 4);
    return 0;
}

/* After the death of its owner memory can still be used, but not be mapped any more. */
static int outlive(struct meeting *m)
{
    struct device *d = open_device(); /* it counts */
    struct sim_use left;
    void *base, *again;
    uint32_t *host = d ? new_host(d, PAGE) : NULL;
    if (!host || ops->map(d, &m->share, &base) || put(d, host, base, 4) || host[0] != 4712)
        return 21;
    for (int i = 0; i < 3; i++)
        ops->unmap(d, base);
    if (ops->map(d, &m->share, &again) != WEFT_ETRANSPORT)
        return 22;
    sim->use(d, &left);
    if (left.maps || left.allocations)
        return 23;
    ops->close(d);
    ops->close(d);
    return 0;
}

static void processes_share_memory(void **state)
{
    (void)state;
    struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = process_fork(HANGS);
    if (pid == 0)
        _exit(own(m));
    int status, err = use(m);
    if (err)
        kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(err, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(outlive(m), 0);
    munmap(m, sizeof *m);
}

/* ---- streams ---- */

struct step {
    int *seen, number;
};

static void append(struct sim_view *view, void *arg)
{
    (void)view;
    struct step *s = arg;
    s->seen[0]++;
    s->seen[s->seen[0]] = s->number;
}

#define STEPS 50

static void work_of_a_stream_is_done_in_order(void **state)
{
    (void)state;
    for (int64_t seed = 0; suite_seed(&seed, 0, test_rounds(12)); seed++) {
        char text[24];
        int seen[4][STEPS + 1] = {{0}};
        struct step steps[4][STEPS];
        void *streams[4];
        snprintf(text, sizeof text, "%lld", (long long)seed);
        simulated_set("WEFT_SIM_SEED", text);
        struct device *d = open_device();
        for (int i = 0; i < 4; i++)
            streams[i] = new_stream(d);
        for (int k = 0; k < STEPS; k++)
            for (int i = 0; i < 4; i++) {
                steps[i][k] = (struct step){seen[i], k};
                assert_int_equal(sim->kernel(d, streams[i], append, &steps[i][k]), 0);
            }
        for (int i = 0; i < 4; i++) {
            bool idle = false;
            assert_int_equal(ops->sync(d, streams[i]), 0);
            assert_int_equal(ops->idle(d, streams[i], &idle), 0);
            assert_true(idle);
            for (int k = 0; k < STEPS; k++)
                assert_int_equal(seen[i][k + 1], k);
        }
        ops->close(d);
    }
    simulated_set("WEFT_SIM_SEED", NULL);
}

/* Work is not done when it is queued, except by chance; a test that relies on it fails. */
static void streams_are_late(void **state)
{
    (void)state;
    struct device *d = open_device();
    uint32_t *host = new_host(d, PAGE);
    int late = 0;
    for (uint32_t i = 1; i <= 200; i++) {
        struct device_word w = word(host, i);
        bool idle = true;
        assert_int_equal(ops->signal(d, NULL, &w, 1), 0);
        assert_int_equal(ops->idle(d, NULL, &idle), 0);
        late += !idle;
        assert_int_equal(ops->sync(d, NULL), 0);
        assert_int_equal(host[0], i);
    }
    assert_true(late > 0);
    free_host(d, host, PAGE);
    ops->close(d);
}

static void host_and_stream_wait_for_each_other(void **state)
{
    (void)state;
    struct device *d = open_device();
    void *s = new_stream(d);
    uint32_t *host = new_host(d, PAGE), *data = host + 100;
    uint32_t *p = ops->alloc(d, 8);
    /* data goes to the device and back, a step each time; counts that wrap around are counts as well */
    uint32_t first = UINT32_MAX - 20;
    store(&host[0], first);
    store(&host[1], first);
    for (uint32_t i = 1; i <= 60; i++) {
        struct device_word there = word(&host[0], first + i), back = word(&host[1], first + i);
        assert_int_equal(ops->await(d, s, &there, 1), 0);
        assert_int_equal(ops->copy(d, s, p, data, 4), 0);
        assert_int_equal(ops->copy(d, s, data + 1, p, 4), 0);
        assert_int_equal(ops->signal(d, s, &back, 1), 0);
    }
    for (uint32_t i = 1; i <= 60; i++) {
        assert_int_equal(load(&host[1]), first + i - 1);
        data[0] = 1000 + i;
        store(&host[0], first + i);
        assert_true(comes(&host[1], first + i));
        assert_int_equal(data[1], 1000 + i);
    }
    assert_int_equal(ops->sync(d, s), 0);
    ops->free(d, p);
    ops->stream_close(d, s);
    free_host(d, host, PAGE);
    ops->close(d);
}

/* Streams in a ring: each waits for its left neighbour, adds one to a value in device memory, and signals. */
struct adder {
    void *value;
};

static void add_one(struct sim_view *view, void *arg)
{
    struct adder *a = arg;
    uint32_t *p = sim->at(view, a->value, 4);
    *p += 1;
}

static void ring(int streams, uint32_t turns)
{
    struct device *d = open_device();
    uint32_t *host = new_host(d, PAGE);
    struct adder a = {ops->alloc(d, 4)};
    void *s[64];
    for (int i = 0; i < streams; i++)
        s[i] = new_stream(d);
    /* In the order of the ring, so that it also goes through when streams share queues. */
    for (uint32_t t = 1; t <= turns; t++)
        for (int i = 0; i < streams; i++) {
            const struct device_word left[2] = {word(&host[i ? i - 1 : streams - 1], i ? t : t - 1),
                                                word(&host[i], t - 1)};
            const struct device_word mine = word(&host[i], t);
            assert_int_equal(ops->await(d, s[i], left, 2), 0);
            assert_int_equal(sim->kernel(d, s[i], add_one, &a), 0);
            assert_int_equal(ops->signal(d, s[i], &mine, 1), 0);
        }
    assert_int_equal(ops->sync(d, s[streams - 1]), 0);
    assert_int_equal(put(d, host + 500, a.value, 4), 0);
    assert_int_equal(host[500], (uint32_t)streams * turns);
    ops->free(d, a.value);
    free_host(d, host, PAGE);
    ops->close(d);
}

static void streams_wait_for_each_other(void **state)
{
    (void)state;
    ring(2, 30);
    ring(16, 5);
}

static void many_streams_share_few_queues(void **state)
{
    (void)state;
    simulated_set("WEFT_SIM_QUEUES", "3");
    ring(2, 30);
    ring(64, 3);
    simulated_set("WEFT_SIM_QUEUES", NULL);
}

/* What makes order by words dangerous on a device: a stream that waits holds up another one of its queue. */
static void stream_that_waits_holds_up_its_queue(void **state)
{
    (void)state;
    simulated_set("WEFT_SIM_QUEUES", "2");
    struct device *d = open_device();
    uint32_t *host = new_host(d, PAGE);
    void *a = new_stream(d), *b = new_stream(d), *c = new_stream(d);
    struct device_word go = word(&host[0], 1), of_b = word(&host[1], 1), of_c = word(&host[2], 1);
    bool idle = true;
    assert_int_equal(ops->await(d, a, &go, 1), 0);
    assert_int_equal(ops->signal(d, c, &of_c, 1), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ops->signal(d, b, &of_b, 1), 0);
    assert_int_equal(ops->sync(d, b), 0);
    assert_int_equal(load(&host[2]), 0);
    assert_int_equal(ops->idle(d, c, &idle), 0);
    assert_false(idle);
    store(&host[0], 1);
    assert_int_equal(ops->sync(d, c), 0);
    assert_int_equal(load(&host[2]), 1);
    free_host(d, host, PAGE);
    ops->close(d);
    simulated_set("WEFT_SIM_QUEUES", NULL);
}

/* A stream that is closed finishes; a device that is closed does not wait for it. */
static void stream_finishes_after_it_was_closed(void **state)
{
    (void)state;
    struct device *d = open_device();
    uint32_t *host = new_host(d, PAGE);
    void *s = new_stream(d), *blocked = new_stream(d);
    struct device_word go = word(&host[0], 1), done = word(&host[1], 1), never = word(&host[2], 1);
    assert_int_equal(ops->await(d, s, &go, 1), 0);
    assert_int_equal(ops->signal(d, s, &done, 1), 0);
    ops->stream_close(d, s);
    assert_int_equal(ops->sync(d, s), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "is not a stream of simulated device 0"));
    store(&host[0], 1);
    assert_true(comes(&host[1], 1));
    assert_int_equal(ops->await(d, blocked, &never, 1), 0);
    assert_int_equal(ops->signal(d, blocked, &go, 1), 0);
    ops->close(d);
    munmap(host, PAGE);
}

/* ---- graphs ---- */

static void graph_runs_again_and_again(void **state)
{
    (void)state;
    struct device *d = open_device();
    uint32_t *host = new_host(d, PAGE);
    void *s = new_stream(d), *other = new_stream(d), *graph = NULL;
    struct adder a = {ops->alloc(d, 4)};
    struct device_word w = word(&host[1], 7);
    bool capturing = true;
    assert_int_equal(ops->capturing(d, s, &capturing), 0);
    assert_false(capturing);
    assert_int_equal(sim->capture_end(d, s, &graph), WEFT_EINVAL);
    assert_int_equal(sim->capture_begin(d, s), 0);
    assert_int_equal(sim->capture_begin(d, s), WEFT_EINVAL);
    assert_int_equal(ops->capturing(d, s, &capturing), 0);
    assert_true(capturing);
    assert_int_equal(sim->kernel(d, s, add_one, &a), 0);
    assert_int_equal(ops->copy(d, s, host, a.value, 4), 0);
    assert_int_equal(ops->signal(d, s, &w, 1), 0);
    assert_int_equal(ops->await(d, s, &w, 1), 0);
    assert_int_equal(sim->capture_end(d, s, &graph), 0);
    assert_int_equal(ops->sync(d, s), 0);
    assert_int_equal(host[0], 0);
    for (uint32_t i = 1; i <= 100; i++)
        assert_int_equal(sim->graph_launch(d, graph, s), 0);
    assert_int_equal(ops->sync(d, s), 0);
    assert_int_equal(host[0], 100);
    assert_int_equal(host[1], 7);
    /* a graph in a graph, on another stream */
    void *twice = NULL;
    assert_int_equal(sim->capture_begin(d, other), 0);
    assert_int_equal(sim->graph_launch(d, graph, other), 0);
    assert_int_equal(sim->graph_launch(d, graph, other), 0);
    assert_int_equal(sim->capture_end(d, other, &twice), 0);
    sim->graph_free(d, graph);
    assert_int_equal(sim->graph_launch(d, twice, other), 0);
    sim->graph_free(d, twice); /* what was launched runs on */
    assert_int_equal(ops->sync(d, other), 0);
    assert_int_equal(host[0], 102);
    struct sim_use use;
    sim->use(d, &use);
    assert_int_equal(use.graphs, 0);
    ops->free(d, a.value);
    free_host(d, host, PAGE);
    ops->close(d);
}

static void stream_that_is_captured_cannot_be_waited_for(void **state)
{
    (void)state;
    struct device *d = open_device();
    void *s = new_stream(d), *graph;
    bool idle;
    assert_int_equal(sim->capture_begin(d, s), 0);
    assert_int_equal(ops->sync(d, s), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "the stream is being captured"));
    assert_int_equal(sim->capture_end(d, s, &graph), WEFT_EINVAL);
    assert_int_equal(sim->capture_begin(d, s), 0);
    assert_int_equal(ops->idle(d, s, &idle), WEFT_EINVAL);
    assert_int_equal(sim->capture_end(d, s, &graph), WEFT_EINVAL);
    assert_int_equal(ops->sync(d, s), 0);
    assert_int_equal(sim->capture_begin(d, s), 0); /* and is closed while it is captured */
    ops->stream_close(d, s);
    ops->close(d);
}

/* ---- failures ---- */

static void failed_device_stays_failed(void **state)
{
    (void)state;
    struct device *d = open_device(), *same = open_device();
    uint32_t *host = new_host(d, PAGE);
    void *s = new_stream(d), *other, *graph;
    uint64_t at;
    bool flag;
    struct device_share share;
    struct device_word never = word(host, 1);
    char *p = ops->alloc(d, 100);
    assert_ptr_equal(d, same);
    assert_int_equal(ops->await(d, s, &never, 1), 0);
    sim->crash(d, "a kernel has crashed");
    sim->crash(d, "and another one");
    assert_int_equal(ops->sync(d, s), WEFT_ETRANSPORT); /* the wait is over */
    assert_string_equal(weft_errmsg(), "simulated device 0 has failed: a kernel has crashed");
    assert_int_equal(ops->idle(d, s, &flag), WEFT_ETRANSPORT);
    assert_int_equal(ops->capturing(d, s, &flag), WEFT_ETRANSPORT);
    assert_int_equal(ops->await(d, s, &never, 1), WEFT_ETRANSPORT);
    assert_int_equal(ops->signal(d, s, &never, 1), WEFT_ETRANSPORT);
    assert_int_equal(ops->copy(d, s, p, host, 4), WEFT_ETRANSPORT);
    assert_int_equal(ops->launch(d, s, 0, &(struct device_launch){0}), WEFT_ETRANSPORT);
    assert_int_equal(sim->capture_begin(d, s), WEFT_ETRANSPORT);
    assert_int_equal(sim->capture_end(d, s, &graph), WEFT_ETRANSPORT);
    assert_int_equal(ops->stream_open(d, &other), WEFT_ETRANSPORT);
    assert_int_equal(ops->share(d, p, &share), WEFT_ETRANSPORT);
    assert_int_equal(ops->map(d, &share, &other), WEFT_ETRANSPORT);
    assert_int_equal(ops->pin(d, host, 4, &at), WEFT_ETRANSPORT);
    assert_null(ops->alloc(d, 1));
    ops->free(d, p);
    ops->stream_close(d, s);
    free_host(d, host, PAGE);
    ops->close(d);
    assert_int_equal(ops->stream_open(d, &other), WEFT_ETRANSPORT);
    ops->close(d);
    d = open_device(); /* it begins anew */
    assert_int_equal(ops->sync(d, NULL), 0);
    ops->close(d);
}

static void environment_is_checked(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"WEFT_SIM_SEED", "x"},        {"WEFT_SIM_SEED", "-1"},
                                           {"WEFT_SIM_QUEUES", "100000"}, {"WEFT_SIM_DEVICES", "0"},
                                           {"WEFT_SIM_DEVICES", "2 "},    {"WEFT_SIM_FAIL", "1e3"}};
    struct device *d;
    const struct device_ops *found;
    struct device_facts facts;
    char text[200];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        simulated_set(wrong[i][0], wrong[i][1]);
        assert_int_equal(device_find("test", WEFT_MEMORY_CUDA, getenv("WEFT_MODULES"), &found), WEFT_EUNSUPPORTED);
        snprintf(text, sizeof text, "test: memory of a CUDA device is not possible: %s=%s: expected a number from ",
                 wrong[i][0], wrong[i][1]);
        assert_non_null(strstr(weft_errmsg(), text));
        assert_int_equal(ops->open(0, error_set, &d), WEFT_EINVAL);
        assert_false(ops->facts(0, &facts));
        assert_non_null(strstr(facts.name, "expected a number"));
        simulated_set(wrong[i][0], NULL);
    }
    assert_true(ops->facts(0, &facts));
    assert_true(facts.simulated && facts.descriptors && !facts.handles && !facts.mps);
    assert_string_equal(facts.name, "simulated device 0, a queue for each stream, delays of seed 1");
    simulated_set("WEFT_SIM_QUEUES", "8");
    simulated_set("WEFT_SIM_SEED", "0");
    assert_true(ops->facts(1, &facts));
    assert_string_equal(facts.name, "simulated device 1, 8 queues, no delays");
    simulated_set("WEFT_SIM_QUEUES", NULL);
    simulated_set("WEFT_SIM_SEED", NULL);
}

static void device_that_is_not_there_is_named(void **state)
{
    (void)state;
    const char *modules = getenv("WEFT_MODULES");
    const struct device_ops *found;
    assert_int_equal(device_find("x", 77, modules, &found), WEFT_EUNSUPPORTED);
    assert_string_equal(weft_errmsg(), "x: no device has memory of kind 77");
    simulated_set("WEFT_DEVICE", "other");
    assert_int_equal(device_find("x", WEFT_MEMORY_CUDA, modules, &found), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "WEFT_DEVICE=other: expected cuda or sim");
    assert_null(device_loaded(WEFT_MEMORY_CUDA, modules));
    assert_string_equal(weft_errmsg(), "WEFT_DEVICE=other: expected cuda or sim"); /* it sets no error */
    simulated_set("WEFT_DEVICE", "sim");
    assert_ptr_equal(device_loaded(WEFT_MEMORY_CUDA, modules), ops);
    assert_int_equal(device_find("x", WEFT_MEMORY_CUDA, modules, &found), 0);
    assert_ptr_equal(found, ops);
}

static void devices_reach_each_others_memory(void **state)
{
    (void)state;
    struct device *d[2];
    const char *why = NULL;
    assert_int_equal(device_open("test", WEFT_MEMORY_CUDA, 1, getenv("WEFT_MODULES"), &d[1]), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "test: there is no device 1: the devices are 0 to 0");
    simulated_set("WEFT_SIM_DEVICES", "2");
    assert_int_equal(ops->count(&why), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(device_open("test", WEFT_MEMORY_CUDA, i, getenv("WEFT_MODULES"), &d[i]), 0);
    assert_memory_not_equal(d[0]->id, d[1]->id, 16);
    uint32_t *host = new_host(d[0], PAGE);
    void *p = ops->alloc(d[1], 4);
    assert_int_equal(ops->owner(p), 1);
    host[0] = 12;
    assert_int_equal(put(d[0], p, host, 4), 0);
    assert_int_equal(put(d[1], host + 1, p, 4), 0);
    assert_int_equal(host[1], 12);
    sim->crash(d[1], "alone");
    assert_int_equal(ops->sync(d[0], NULL), 0);
    ops->close(d[1]);
    assert_int_equal(put(d[0], host, p, 4), WEFT_ETRANSPORT); /* it is gone with its device */
    ops->close(d[0]);
    munmap(host, PAGE);
    simulated_set("WEFT_SIM_DEVICES", NULL);
}

/* ---- what is left ---- */

static int threads(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/task");
    for (const struct dirent *e; all && (e = readdir(all));)
        n += e->d_name[0] != '.';
    if (all)
        closedir(all);
    return n;
}

static void nothing_is_left_of_a_closed_device(void **state)
{
    (void)state;
    struct sim_use use;
    uint64_t at;
    int files = process_files(), before = threads();
    uint32_t *host = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        struct device *d = open_device();
        struct device_word never = word(host, 1);
        struct device_share share;
        void *base;
        for (int k = 0; k < 5; k++) {
            void *s = new_stream(d), *p = ops->alloc(d, 1000 * (size_t)(k + 1));
            assert_int_equal(ops->pin(d, host, 4, &at), 0);
            assert_int_equal(ops->await(d, s, &never, 1), 0);
            assert_int_equal(ops->share(d, p, &share), 0);
            assert_int_equal(ops->map(d, &share, &base), 0);
            if (k == 4)
                assert_int_equal(sim->capture_begin(d, s), 0);
        }
        sim->use(d, &use);
        assert_int_equal(use.allocations, 5);
        assert_int_equal(use.bytes, 15000);
        assert_int_equal(use.maps, 5);
        assert_int_equal(use.pins, 5);
        assert_int_equal(use.streams, 5);
        assert_int_equal(process_files(), files + 5);
        assert_int_equal(threads(), before + 5);
        assert_int_equal(process_lines("/proc/self/maps", "weft-sim-"), 10);
        ops->close(d);
        assert_int_equal(process_files(), files);
        assert_int_equal(threads(), before);
        assert_int_equal(process_lines("/proc/self/maps", "weft-sim-"), 0);
    }
    munmap(host, PAGE);
}

/* ---- forks ---- */

struct inherited {
    struct device *d;
    void *memory, *stream;
};

static int in_child(void *arg)
{
    const struct inherited *i = arg;
    void *s;
    if (ops->stream_open(i->d, &s) != WEFT_EUNSUPPORTED || !strstr(weft_errmsg(), "was opened before the fork"))
        return 1;
    if (ops->sync(i->d, i->stream) != WEFT_EUNSUPPORTED || ops->owner(i->memory) != -1)
        return 2;
    if (process_lines("/proc/self/maps", "weft-sim-"))
        return 3;
    ops->free(i->d, i->memory);
    ops->stream_close(i->d, i->stream);
    ops->close(i->d);
#ifdef __SANITIZE_THREAD__ /* which has no threads in a child of a program with threads */
    return 0;
#endif
    struct device *d = open_device();
    uint32_t *host = d && d != i->d ? new_host(d, PAGE) : NULL;
    void *p = host ? ops->alloc(d, 4) : NULL;
    if (!p)
        return 4;
    host[0] = 3;
    if (put(d, p, host, 4) || put(d, host + 1, p, 4) || host[1] != 3)
        return 5;
    ops->close(d);
    return 0;
}

static void child_does_not_have_its_parents_device(void **state)
{
    (void)state;
    struct device *d = open_device();
    struct inherited i = {d, ops->alloc(d, 4), new_stream(d)};
    uint32_t *host = new_host(d, PAGE);
    assert_int_equal(process_do(in_child, &i), 0);
    host[0] = 5;
    assert_int_equal(put(d, i.memory, host, 4), 0);
    assert_int_equal(put(d, host + 1, i.memory, 4), 0);
    assert_int_equal(host[1], 5);
    free_host(d, host, PAGE);
    ops->close(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_has_an_owner),
        cmocka_unit_test(host_that_touches_device_memory_faults),
        cmocka_unit_test(values_travel_between_host_and_device),
        cmocka_unit_test(copies_of_plain_host_memory_are_done_when_the_call_returns),
        cmocka_unit_test(memory_beside_a_pin_is_not_pinned),
        cmocka_unit_test(stream_that_uses_what_it_does_not_reach_fails),
        cmocka_unit_test(free_waits_for_all_kernels),
        cmocka_unit_test(pins_are_counted),
        cmocka_unit_test(shared_memory_has_one_address_in_a_process),
        cmocka_unit_test(processes_share_memory),
        cmocka_unit_test(work_of_a_stream_is_done_in_order),
        cmocka_unit_test(streams_are_late),
        cmocka_unit_test(host_and_stream_wait_for_each_other),
        cmocka_unit_test(streams_wait_for_each_other),
        cmocka_unit_test(many_streams_share_few_queues),
        cmocka_unit_test(stream_that_waits_holds_up_its_queue),
        cmocka_unit_test(stream_finishes_after_it_was_closed),
        cmocka_unit_test(graph_runs_again_and_again),
        cmocka_unit_test(stream_that_is_captured_cannot_be_waited_for),
        cmocka_unit_test(failed_device_stays_failed),
        cmocka_unit_test(environment_is_checked),
        cmocka_unit_test(device_that_is_not_there_is_named),
        cmocka_unit_test(devices_reach_each_others_memory),
        cmocka_unit_test(nothing_is_left_of_a_closed_device),
        cmocka_unit_test(child_does_not_have_its_parents_device),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, setup, NULL));
}
