/* Streams and graphs of the simulated device: work is done in order and late, and streams wait for words. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "support/share.h"
#include "support/sim_kit.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_of_a_stream_is_done_in_order),
        cmocka_unit_test(streams_are_late),
        cmocka_unit_test(host_and_stream_wait_for_each_other),
        cmocka_unit_test(streams_wait_for_each_other),
        cmocka_unit_test(many_streams_share_few_queues),
        cmocka_unit_test(stream_that_waits_holds_up_its_queue),
        cmocka_unit_test(stream_finishes_after_it_was_closed),
        cmocka_unit_test(graph_runs_again_and_again),
        cmocka_unit_test(stream_that_is_captured_cannot_be_waited_for),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, sim_kit_setup, NULL));
}
