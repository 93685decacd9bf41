/* Memory of the simulated device keeps the rules of device/device.h, also between processes, and the device fails when
 * a caller breaks them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/processes.h"
#include "support/random.h"
#include "support/sim_kit.h"

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

/* Rank threads pin the slots of one block from its beginning on, each as many as it needs. */
static void of_pins_at_one_address_the_longest_stays(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) { /* the longer one comes second, or first */
        struct device *d = open_device();
        uint32_t *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct device_word w = word(p + PAGE / 4, 1);
        struct sim_use use;
        uint64_t at;
        assert_int_equal(ops->pin(d, p, first ? 2 * PAGE : 8, &at), 0);
        assert_int_equal(ops->pin(d, p, first ? 8 : 2 * PAGE, &at), 0);
        ops->unpin(d, p);
        assert_int_equal(ops->signal(d, NULL, &w, 1), 0);
        assert_int_equal(ops->sync(d, NULL), 0);
        assert_int_equal(p[PAGE / 4], 1);
        ops->unpin(d, p);
        sim->use(d, &use);
        assert_int_equal(use.pins, 0);
        ops->close(d);
        munmap(p, 2 * PAGE);
    }
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
        cmocka_unit_test(of_pins_at_one_address_the_longest_stays),
        cmocka_unit_test(shared_memory_has_one_address_in_a_process),
        cmocka_unit_test(processes_share_memory),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, sim_kit_setup, NULL));
}
