/* The simulated device as a whole: failures, the environment, several devices, forks, and what is left of it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "support/processes.h"
#include "support/sim_kit.h"

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
    assert_int_equal(ops->launch(d, s, 0, &(struct device_launch){0}, NULL, 0), WEFT_ETRANSPORT);
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
        cmocka_unit_test(failed_device_stays_failed),         cmocka_unit_test(environment_is_checked),
        cmocka_unit_test(device_that_is_not_there_is_named),  cmocka_unit_test(devices_reach_each_others_memory),
        cmocka_unit_test(nothing_is_left_of_a_closed_device), cmocka_unit_test(child_does_not_have_its_parents_device),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, sim_kit_setup, NULL));
}
