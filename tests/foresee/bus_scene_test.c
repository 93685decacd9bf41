/* A version on the bus: what the links carry follows the laws of the bus, however many hosts read it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "foresee/bus_scene.h"
#include "support/suite.h"
#include "version/schema.h"

static void run(const struct scene *s, int subscribers, bool peers, double changed, double nic,
                struct bus_scene_run *out)
{
    struct bus_scene_how how = {.subscribers = subscribers, .peers = peers, .changed = changed};
    struct failure why;
    if (machine_file_open("h100", &how.machine, &why))
        fail_msg("%s", why.text);
    how.machine.nic = nic;
    if (bus_scene_simulate(s, &how, out, &why))
        fail_msg("%s", why.text);
}

static void add(struct scene *s, const char *src, const char *dst)
{
    struct failure why;
    if (scene_add(s, src, dst, &why))
        fail_msg("%s", why.text);
}

/* Bytes of all NICs of the publisher's hosts, out; of one of the other hosts, in or out. */
static double carried(const struct bus_scene_run *r, enum links_kind kind, int from, int to)
{
    double bytes = 0;
    int nics = (int)r->links.m.nics;
    for (int i = from * nics; i < to * nics; i++)
        bytes += r->bytes[r->links.first[kind] + (uint32_t)i];
    return bytes;
}

static void near(const char *what, double got, double expected, double error)
{
    if (fabs(got - expected) > error * expected + 1)
        fail_msg("%s: %.0f, and not %.0f", what, got, expected);
}

static void each_host_takes_the_set_once_and_the_publisher_gives_it_about_once(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst;
        double three; /* the most that peers may cost three hosts: the four threads of a host take from all ranks of
                         the publisher at once, and its NICs are far from busy */
    } sets[] = {{"f32[4096/x,2048] @x4", "f32[4096,2048/x] @x4", 1.05},
                {"bf16[3000,1111] @x1", "f32[3000/t,1111] @t2", 1},
                {"bf16[65536/x,8192] @x3", "bf16[65536,8192] @x1=3", 1}}; /* of more blocks than are simulated */
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (int hosts = 1; hosts <= 13; hosts = 2 * hosts + hosts % 2) {
            struct scene s = {0};
            struct bus_scene_run with, without;
            add(&s, sets[i].src, sets[i].dst);
            run(&s, hosts, true, -1, 50, &with);
            run(&s, hosts, false, -1, 50, &without);
            double set = (double)with.set;
            assert_int_equal(with.hosts, hosts);
            near("what a subscriber needs", with.needed, set, 0);
            near("without peers", without.from_publisher, hosts * set, 0);
            near("without peers, by the links", carried(&without, LINKS_NIC_OUT, 0, 1), hosts * set, 1e-6);
            assert_true(without.from_peers == 0);
            if (with.from_publisher < set - 1 || with.from_publisher > 1.1 * set)
                fail_msg("%s, %d hosts: the publisher gives %.3f times the set", sets[i].src, hosts,
                         with.from_publisher / set);
            near("with peers", with.from_publisher + with.from_peers, hosts * set, 0);
            for (int h = 1; h <= hosts; h++) {
                near("into a host", carried(&with, LINKS_NIC_IN, h, h + 1), set, 1e-6);
                near("into a host without peers", carried(&without, LINKS_NIC_IN, h, h + 1), set, 1e-6);
            }
            assert_true(with.total >= with.bound && without.total >= without.bound);
            assert_true(with.first <= with.total);
            if (with.total > 3 * with.bound + 30e6) /* no relay waits until it insists */
                fail_msg("%s, %d hosts: %.0f ns, and %.0f is the bound", sets[i].src, hosts, with.total, with.bound);
            if (hosts > 2 && with.total >= without.total * (hosts == 3 ? sets[i].three : 1))
                fail_msg("%d hosts: %.0f ns with peers, %.0f without", hosts, with.total, without.total);
            bus_scene_free(&with);
            bus_scene_free(&without);
            scene_free(&s);
        }
}

static void deltas_scale_the_bytes(void **state)
{
    (void)state;
    struct scene s = {0};
    struct bus_scene_run whole, same, some, all;
    add(&s, "bf16[2048/x,2048] @x2", "bf16[2048,2048/x] @x2");
    run(&s, 4, true, -1, 0.05, &whole);
    run(&s, 4, true, 0, 0.05, &same);
    run(&s, 4, true, 0.02, 0.05, &some);
    run(&s, 4, true, 1, 0.05, &all);
    assert_true(whole.ratio == 1 && all.ratio == 1);
    /* A changed element has its two bytes and a gap of one byte. A run of 4,096 elements has five bytes more. */
    near("2 %", some.ratio, 0.02 * 3 / 2 + 5.0 / 8192, 0.05);
    assert_true(same.ratio <= 1.0 / 4096);
    double moved = whole.from_publisher + whole.from_peers;
    near("bytes of deltas", some.from_publisher + some.from_peers, some.ratio * moved, 1e-6);
    near("bytes of the same version", same.from_publisher + same.from_peers, same.ratio * moved, 1e-6);
    assert_true(some.from_publisher <= 1.1 * some.ratio * (double)some.set);
    assert_true(same.total <= some.total && some.total < whole.total);
    struct bus_scene_run *runs[] = {&whole, &same, &some, &all};
    for (int i = 0; i < 4; i++)
        bus_scene_free(runs[i]);
    scene_free(&s);
}

/* A reader of some columns takes the blocks that have them, and no others. */
static void blocks_that_nobody_needs_stay(void **state)
{
    (void)state;
    struct scene s = {0};
    struct bus_scene_run r;
    add(&s, "u8[4,1048576/x] @x4", "u8[4,1048576] @{0: [:,0:65536]} +gaps");
    run(&s, 2, true, -1, 50, &r);
    assert_int_equal(r.needed, 4 * SCHEMA_BLOCK);
    near("moved", r.from_publisher + r.from_peers, 2 * 4.0 * SCHEMA_BLOCK, 0);
    bus_scene_free(&r);
    scene_free(&s);
}

static void it_is_the_same_each_time_and_folds_are_refused(void **state)
{
    (void)state;
    struct scene s = {0};
    struct bus_scene_run a, b;
    struct failure why;
    for (int i = 0; i < 20; i++)
        add(&s, "f32[512/x,768] @x3", "bf16[512,768/y] @y5=3..7");
    add(&s, "f32[7] @x3", "f32[7] @y5=3..7");
    run(&s, 5, true, -1, 10, &a);
    run(&s, 5, true, -1, 10, &b);
    assert_true(a.total == b.total && a.replies == b.replies && a.from_publisher == b.from_publisher);
    assert_int_equal(a.readers, 5);
    bus_scene_free(&a);
    bus_scene_free(&b);
    scene_free(&s);
    struct scene folds = {0};
    struct bus_scene_how how = {.subscribers = 1, .changed = -1};
    add(&folds, "f32[8] @x2 +sum(x)", "f32[8] @x1");
    assert_int_equal(machine_file_open("plain", &how.machine, &why), CLI_OK);
    assert_int_equal(bus_scene_simulate(&folds, &how, &a, &why), CLI_BAD);
    scene_free(&folds);
}

/* Jobs and ranks that are within their limits may be too many together. */
static void too_many_ranks_are_refused(void **state)
{
    (void)state;
    struct bus_scene_run r;
    struct failure why;
    static const char *const dst[] = {"f32[1048576/x] @x524288=1..524288", "f32[1048576/x] @x1048575=1..1048575"};
    for (int i = 0; i < 2; i++) {
        struct scene s = {0};
        struct bus_scene_how how = {.subscribers = BUS_SCENE_HOSTS, .changed = -1};
        add(&s, "f32[1048576] @x1", dst[i]);
        assert_int_equal(machine_file_open("plain", &how.machine, &why), CLI_OK);
        assert_int_equal(bus_scene_simulate(&s, &how, &r, &why), CLI_BAD);
        assert_non_null(strstr(why.text, "at most"));
        scene_free(&s);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_host_takes_the_set_once_and_the_publisher_gives_it_about_once),
        cmocka_unit_test(deltas_scale_the_bytes),
        cmocka_unit_test(blocks_that_nobody_needs_stay),
        cmocka_unit_test(it_is_the_same_each_time_and_folds_are_refused),
        cmocka_unit_test(too_many_ranks_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
