/* The simulation. Laws, on random pairs of layouts and random machines: all bytes of the plans are carried, nothing is
 * faster than the busiest link, the same is always the same, and a single message is never slower on faster links. Then
 * machines and moves whose times are computed by hand. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foresee/calibrate.h"
#include "foresee/events.h"
#include "support/property_random.h"
#include "support/random.h"
#include "support/suite.h"

struct run {
    weft_layout *src, *dst;
    struct machine_file m;
    struct links links;
    struct graph graph;
    struct events events;
    int64_t sent; /* by the plans */
};

static void lower_all(struct run *x, const weft_lower_opts *opts)
{
    struct failure why;
    weft_move move = {"t", x->src, x->dst};
    for (int r = 0; r < x->links.world; r++) {
        weft_plan *p = NULL;
        weft_stats s = WEFT_STATS_INIT;
        if (weft_lower(&move, 1, r, opts, &p))
            fail_msg("%s", weft_errmsg());
        assert_int_equal(weft_plan_stats(p, &s), 0);
        x->sent += s.sent;
        if (graph_add(&x->graph, p, NULL, 1, &why))
            fail_msg("%s", why.text);
        weft_plan_free(p);
    }
}

static void simulate(struct run *x, const char *algorithm, int64_t bucket)
{
    struct failure why;
    int a = weft_layout_ranks(x->src), b = weft_layout_ranks(x->dst), world = a > b ? a : b;
    weft_machine machine = machine_file_lower(&x->m);
    weft_lower_opts opts = {.size = sizeof opts, .algorithm = algorithm, .bucket = bucket, .machine = &machine};
    if (links_open(&x->links, &x->m, world, NULL, &why) || graph_open(&x->graph, &x->links, &why))
        fail_msg("%s", why.text);
    lower_all(x, &opts);
    if (graph_close(&x->graph, &why) || events_run(&x->events, &x->graph, NULL, &why))
        fail_msg("%s", why.text);
}

static void done(struct run *x)
{
    events_free(&x->events);
    graph_free(&x->graph);
    links_free(&x->links);
    weft_layout_free(x->src);
    weft_layout_free(x->dst);
}

static struct run open_run(const char *src, const char *dst, const char *machine)
{
    struct run x = {0};
    struct failure why;
    if (weft_layout_parse(src, &x.src) || weft_layout_parse(dst, &x.dst))
        fail_msg("%s", weft_errmsg());
    if (machine_file_parse("test", machine, &x.m, &why))
        fail_msg("%s", why.text);
    return x;
}

static double time_of(const char *src, const char *dst, const char *machine, const char *algorithm, int64_t bucket)
{
    struct run x = open_run(src, dst, machine);
    simulate(&x, algorithm, bucket);
    double t = x.events.total;
    done(&x);
    return t;
}

static void random_machine(struct random *r, char *text, size_t cap)
{
    snprintf(text, cap,
             "ranks_per_host %d\ncores %d\nhosts_on_cores %d\ninside %s\ncopy %d GB/s\ncopy_host %d GB/s\n"
             "inside_rank %d GB/s\ninside_host %d GB/s\ninside_latency %d ns\nnics %d\nnic %d MB/s\nnic_latency %d ns\n"
             "nic_core %d GB/s\nnic_path %d GB/s\nnic_message %d ns\nhosts_per_rack %d\nspine %d GB/s\nspine_latency "
             "%d ns\nmessage %d ns\nlaunch %d ns\n",
             (int)random_in(r, 0, 4), (int)random_in(r, 0, 4), (int)random_in(r, 1, 3),
             random_once_in(r, 2) ? "memory" : "link", (int)random_in(r, 1, 50), (int)random_in(r, 0, 90),
             (int)random_in(r, 0, 90), (int)random_in(r, 0, 90), (int)random_in(r, 0, 900), (int)random_in(r, 1, 3),
             (int)random_in(r, 0, 9000), (int)random_in(r, 0, 9000), (int)random_in(r, 0, 9), (int)random_in(r, 0, 9),
             (int)random_in(r, 0, 900), (int)random_in(r, 0, 2), (int)random_in(r, 0, 9), (int)random_in(r, 0, 900),
             (int)random_in(r, 0, 900), (int)random_in(r, 0, 900));
}

static void check_laws(const struct run *x, int64_t number)
{
    uint32_t link;
    double bound = graph_bound(&x->graph, &link);
    if (x->graph.bytes != x->sent || fabs(x->events.moved - (double)x->sent) > 0.5)
        fail_msg("case %d: plans send %lld bytes, %.0f were carried", (int)number, (long long)x->sent, x->events.moved);
    if (x->events.total < bound * (1 - 1e-7) - 1e-3)
        fail_msg("case %d: %.3f ns, and a link is busy for %.3f", (int)number, x->events.total, bound);
    for (size_t i = 0; i < x->graph.nodes.n; i++) {
        const struct events_span *s = &x->events.span[i];
        if (s->end >= 0 && !(s->ready <= s->start && s->start <= s->end && s->end <= x->events.total))
            fail_msg("case %d: node %zu is ready at %g, starts at %g and ends at %g of %g", (int)number, i, s->ready,
                     s->start, s->end, x->events.total);
    }
    for (size_t i = 0; i < x->graph.edges.n; i++) {
        const struct graph_edge *e = &x->graph.edges.v[i];
        assert_true(x->events.span[e->to].start >= x->events.span[e->from].end);
    }
}

static weft_layout *layout_of(const struct side_spec *s)
{
    char text[1024];
    struct text t = text_start(text, sizeof text);
    weft_layout *l = NULL;
    spec_text(s, &t);
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

static void laws_hold_on_random_pairs_and_machines(void **state)
{
    (void)state;
    int64_t moved = 0;
    for (int64_t n = 0; suite_seed(&n, 0, 300); n++) {
        struct property_case c;
        struct random r = random_of(77, n);
        struct run x = {0}, y = {0};
        struct failure why;
        char machine[1024];
        random_case(9, n, &c);
        random_machine(&r, machine, sizeof machine);
        if (machine_file_parse("test", machine, &x.m, &why))
            fail_msg("%s", why.text);
        y.m = x.m;
        x.src = layout_of(&c.side[0][0]);
        x.dst = layout_of(&c.side[0][1]);
        y.src = layout_of(&c.side[0][0]);
        y.dst = layout_of(&c.side[0][1]);
        simulate(&x, NULL, c.bucket);
        simulate(&y, NULL, c.bucket);
        check_laws(&x, n);
        assert_true(x.events.total == y.events.total);
        assert_int_equal(x.graph.nodes.n, y.graph.nodes.n);
        for (size_t i = 0; i < x.graph.nodes.n; i++) {
            const struct events_span *a = &x.events.span[i], *b = &y.events.span[i];
            assert_true(a->start == b->start && a->end == b->end && a->cause == b->cause && a->narrow == b->narrow);
        }
        moved += x.sent;
        done(&x);
        done(&y);
    }
    assert_true(moved > 0);
}

static void a_single_message_is_not_slower_on_faster_links(void **state)
{
    (void)state;
    for (int64_t n = 0; suite_seed(&n, 0, 200); n++) {
        struct random r = random_of(78, n);
        char slow[400], fast[400], src[40];
        int nic = (int)random_in(&r, 1, 1000), copy = (int)random_in(&r, 1, 50), spine = (int)random_in(&r, 1, 50);
        int more = (int)random_in(&r, 1, 100), which = (int)random_in(&r, 0, 2);
        const char *form = "ranks_per_host 1\nhosts_per_rack 1\nnic %d MB/s\ncopy %d GB/s\nspine %d GB/s\n";
        snprintf(slow, sizeof slow, form, nic, copy, spine);
        snprintf(fast, sizeof fast, form, nic + (which == 0) * more, copy + (which == 1) * more,
                 spine + (which == 2) * more);
        snprintf(src, sizeof src, "u8[%d] @x1=0", (int)random_in(&r, 1, 1 << 22));
        char *dst = strdup(src);
        assert_non_null(dst);
        dst[strlen(dst) - 1] = '1';
        assert_true(time_of(src, dst, fast, NULL, 0) <= time_of(src, dst, slow, NULL, 0));
        free(dst);
    }
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-6 * want + 1e-3)
        fail_msg("%.6f ns, and by hand %.6f", got, want);
}

#define WIRE "ranks_per_host 1\nnic 1 GB/s\nnic_latency 10 us\nmessage 0\ncopy 100 GB/s\ncopy_host 0\n"

#define PLAYED \
    "ranks_per_host 1\nhosts_on_cores 2\ncores 2\nnic 0\nnic_latency 0\nmessage 0\nnic_core 1 GB/s\nnic_path 2 GB/s\n"

#define INSIDE_RATES "copy 2 GB/s\ncopy_host 0\ninside_latency 1 us\nmessage 0\n"
#define INSIDE "ranks_per_host 2\n" INSIDE_RATES

static void times_by_hand(void **state)
{
    (void)state;
    /* One message: its bytes, and a latency. */
    near(time_of("u8[1000000] @x1=0", "u8[1000000] @x1=1", WIRE, NULL, 0), 1000000 + 10000);
    /* Four messages of a channel follow each other without gaps; the last one is there after a latency. */
    near(time_of("u8[4000000] @x1=0", "u8[4000000] @x1=1", WIRE, NULL, 1000000), 4000000 + 10000);
    /* A rank's own time for a small message counts, at both ends at once. */
    near(time_of("u8[100] @x1=0", "u8[100] @x1=1", WIRE "message 3 us\n", NULL, 0), 3000 + 10000);
    /* It may be another one between hosts, and does not count inside them. */
    near(time_of("u8[100] @x1=0", "u8[100] @x1=1", WIRE "message 3 us\nnic_message 7 us\n", NULL, 0), 7000 + 10000);
    near(time_of("u8[200] @x1=0", "u8[200] @x1=1", INSIDE "message 3 us\nnic_message 7 us\n", NULL, 0),
         3000 + 100 + 1000);
    /* Three receivers share the NIC of the sender. */
    near(time_of("u8[3000000] @x1=0", "u8[3000000/x] @x3=1..3", WIRE, NULL, 0), 3000000 + 10000);
    /* Two senders share the NIC of the receiver; it is the same in the other direction. */
    near(time_of("u8[2000000/x] @x2", "u8[2000000] @x1=2", WIRE, NULL, 0), 2000000 + 10000);
    /* Racks of one host: two messages cross a spine of half the rate of their NICs. */
    near(time_of("u8[2000000/x] @x2=0,1", "u8[2000000/x] @x2=2,3",
                 "ranks_per_host 1\nnic 1 GB/s\nnic_latency 0\nmessage 0\nhosts_per_rack 2\nspine 1 GB/s\n"
                 "spine_latency 5 us\n",
                 NULL, 0),
         2000000 + 5000);
    /* Two played hosts give each other a message. The cores move each byte at both ends, and carry it in between. */
    near(time_of("u8[2000000/x] @x2", "u8[2000000/x] @x2=1,0", PLAYED, NULL, 0), 2000000 * 2.5 / 2);
    /* If hosts have cores of their own, each of the two carries half of the way. With a core for each rank that does
     * not count. */
    near(time_of("u8[2000000/x] @x2", "u8[2000000/x] @x2=1,0", PLAYED "hosts_on_cores 1\ncores 1\n", NULL, 0),
         2000000 * 2.5 / 2);
    near(time_of("u8[1000000] @x1=0", "u8[1000000] @x1=1", PLAYED "hosts_on_cores 1\ncores 0\n", NULL, 0), 1000000);
    /* A pull inside a host is a copy of the receiver's core. */
    near(time_of("u8[100000] @x1=0", "u8[100000] @x1=1", INSIDE, NULL, 0), 50000 + 1000);
    near(time_of("u8[1000000] @x1=0", "u8[1000000] @x1=1", INSIDE "cores 1\n", NULL, 0), 500000 + 1000);
    /* If each rank has a core both ends copy a large message, but a sender that has as much to copy does not. */
    near(time_of("u8[1000000] @x1=0", "u8[1000000] @x1=1", INSIDE, NULL, 0), 250000 + 1000);
    near(time_of("u8[2000000] @x1=0", "u8[2000000/x] @x2", INSIDE, NULL, 0), 500000 + 1000);
    /* Few ranks do not copy for many: three senders copy for one receiver, and four receivers for one sender, though
     * its pieces are shorter. These share two cores. */
    near(time_of("u8[3000000/x] @x3", "u8[3000000] @x1=3", "ranks_per_host 4\n" INSIDE_RATES, NULL, 0), 500000 + 1000);
    near(
        time_of("u8[1000,4000] @x1=0", "u8[1000,4000/x] @x4=1..4", "ranks_per_host 5\ncores 2\n" INSIDE_RATES, NULL, 0),
        1000000 + 1000);
    /* A cast copies the mean of what it reads and writes, in either direction, on one rank or between two. */
    near(time_of("f32[400000] @x1=0", "bf16[400000] @x1=1", INSIDE "cores 1\n", NULL, 0), 600000 + 1000);
    near(time_of("bf16[400000] @x1=0", "f32[400000] @x1=0", "copy 2 GB/s\ncopy_host 0\n", NULL, 0), 600000);
    near(time_of("f32[400000] @x1=0", "bf16[400000] @x1=0", "copy 2 GB/s\ncopy_host 0\n", NULL, 0), 600000);
    /* Casts have a rate of their own, which nothing else has. */
    near(time_of("f32[400000] @x1=0", "bf16[400000] @x1=1", INSIDE "cores 1\ncast 1 GB/s\n", NULL, 0), 1200000 + 1000);
    near(time_of("f32[400000] @x1=0", "bf16[400000] @x1=0", INSIDE "cast 1 GB/s\n", NULL, 0), 1200000);
    near(time_of("f32[400000] @x1=0", "f32[400000] @x1=0", INSIDE "cast 1 GB/s\n", NULL, 0), 800000);
    /* Four such copies on two cores. */
    near(time_of("u8[4000000/x] @x4=0..3", "u8[4000000/x] @x4=4..7",
                 "ranks_per_host 8\ncores 2\ncopy 1 GB/s\ncopy_host 0\ninside_latency 0\nmessage 0\n", NULL, 0),
         2000000);
    /* Three copies on two cores: a rank stays on its core, and two of them take turns on one. */
    near(time_of("u8[3000000/x] @x3=0..2", "u8[3000000/x] @x3=3..5",
                 "ranks_per_host 6\ncores 2\ncopy 1 GB/s\ncopy_host 0\ninside_latency 0\nmessage 0\n", NULL, 0),
         2000000);
    /* Three ranks copy 1 MB each, whose memory carries 1.2 GB/s. Those that share a core share its half of that; when
     * the third one is done they have what their core can do. */
    near(time_of("u8[3000000/x] @x3", "u8[3000000/x] @x3",
                 "ranks_per_host 3\ncores 2\ncopy 1 GB/s\ncopy_host 1.2 GB/s\ninside_latency 0\nmessage 0\n", NULL, 0),
         1e6 / 0.6 + 1e6 * (1.75 / 2));
    /* A part of each tensor costs as much as it says, on whichever rank copies it. */
    near(time_of("u8[2000000] @x1=0", "u8[2000000] @x1=0", INSIDE "part 5 us\n", NULL, 0), 1000000 + 5000);
    near(time_of("u8[2000000] @x1=0", "u8[2000000] @x1=1", INSIDE "cores 1\npart 5 us\n", NULL, 0),
         1000000 + 1000 + 5000);
    /* Ports of devices: the all-to-all of four ranks, three quarters of a rank's bytes through its port. */
    near(time_of("u8[4000/x,4000] @x4", "u8[4000,4000/x] @x4",
                 "ranks_per_host 4\ninside link\ninside_rank 1 GB/s\ncopy 0\ncopy_host 0\ninside_latency 0\nmessage 0\n"
                 "launch 0\n",
                 "direct", 1 << 30),
         3000000);
    /* A ring of three: two steps, each of a third and a latency. */
    near(time_of("u8[3000000/x] @x3", "u8[3000000] @x3", WIRE "copy 1000000 GB/s\n", "ring", 1 << 30),
         2 * (1000000 + 10000));
}

static void an_exchange_takes_as_long_as_it_was_measured(void **state)
{
    (void)state;
    char text[200];
    struct machine_file m;
    calibrate_exchange(4000, &m);
    snprintf(text, sizeof text, "cores 2\nmessage %g ns\ninside_latency %g ns\ncopy 1000000 GB/s\ncopy_host 0\n",
             m.message, m.inside_latency);
    near(time_of("u8[16/x] @x2", "u8[16] @x2", text, NULL, 0), 4000);
}

/* What was measured of a crowd comes out again: on cores that are busy all the time, and as each host's own time. */
static void a_crowd_takes_as_long_as_it_was_measured(void **state)
{
    (void)state;
    char text[300];
    const double bytes = 100000;
    struct calibrate_crowd x = {4, 2, bytes, 12 * 3000, 1000, 12 * 3000 + 12 * bytes, 1000 + 3 * bytes};
    struct machine_file m;
    calibrate_crowd(&x, &m);
    near(m.nic_core, 2); /* a host moves 3 times the bytes out, and as many in */
    near(m.nic_path, 1);
    near(m.nic_message, 3000);
    snprintf(text, sizeof text,
             "ranks_per_host 1\nhosts_on_cores 4\ncores 2\nnic 0\nnic_latency 0\ncopy 1e9 GB/s\ncopy_host 0\nnic_core "
             "%g GB/s\n"
             "nic_path %g GB/s\nnic_message %g ns\n",
             m.nic_core, m.nic_path, m.nic_message);
    near(time_of("u8[4/x,400000] @x4", "u8[4,400000/x] @x4", text, "direct", 1 << 30), x.much);
    /* Less than nothing counts as nothing. */
    x.much_own = x.small_own = 0;
    calibrate_crowd(&x, &m);
    near(m.nic_core, 0);
    x.much = x.small;
    calibrate_crowd(&x, &m);
    near(m.nic_path, 0);
}

/* What was measured of NICs that a crowd uses comes out again, and few peers lose less: two hosts nothing. */
static void nics_of_a_crowd_take_as_long_as_they_were_measured(void **state)
{
    (void)state;
    static const struct {
        int hosts;
        double bytes; /* from each to each other one */
        const char *src, *dst;
    } cases[] = {
        {8, 65536, "u8[8/x,524288] @x8", "u8[8,524288/x] @x8"},
        {8, 1 << 20, "u8[8/x,8388608] @x8", "u8[8,8388608/x] @x8"},
        {4, 65536, "u8[4/x,262144] @x4", "u8[4,262144/x] @x4"},
        {4, 1 << 20, "u8[4/x,4194304] @x4", "u8[4,4194304/x] @x4"},
        {2, 65536, "u8[2/x,131072] @x2", "u8[2,131072/x] @x2"},
    };
    char text[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int peers = cases[i].hosts - 1;
        double alone = peers * cases[i].bytes, brief = peers * 65536 * 1.5, lengthy = peers * 1048576 * 1.25;
        struct machine_file m = {.nic = 1};
        calibrate_nics(cases[i].hosts > 2 ? cases[i].hosts : 8, cases[i].hosts > 2 ? brief : 7 * 65536 * 1.5, lengthy,
                       &m);
        snprintf(text, sizeof text,
                 "ranks_per_host 1\nnic 1 GB/s\nnic_latency 0\nmessage 0\ncopy 1e9 GB/s\ncopy_host 0\nnic_crowd %.17g "
                 "GB/s\nnic_crowd_long %.17g GB/s\n",
                 m.nic_crowd, m.nic_crowd_long);
        double ns = time_of(cases[i].src, cases[i].dst, text, "direct", 1 << 30);
        near(ns, peers == 1 ? alone : cases[i].bytes > 65536 ? lengthy : brief);
    }
    /* One host that gives to seven waits for nobody. */
    near(time_of("u8[8,524288] @x1", "u8[8,524288/x] @x8", text, "direct", 1 << 30),
         time_of("u8[8,524288] @x1", "u8[8,524288/x] @x8", "ranks_per_host 1\nnic 1 GB/s\nnic_latency 0\nmessage 0\n",
                 "direct", 1 << 30));
}

static void nothing_moves_in_no_time(void **state)
{
    (void)state;
    assert_true(time_of("u8[0] @x1=0", "u8[0] @x1=1", WIRE, NULL, 0) == 0);
}

static void symmetric_ranks_are_done_at_the_same_time(void **state)
{
    (void)state;
    struct run x =
        open_run("f32[64/x,64,512] @x16", "f32[64,64/x,512] @x16", "ranks_per_host 4\nnics 4\ninside link\n");
    simulate(&x, "direct", 0);
    double end[16] = {0};
    for (size_t i = 0; i < x.graph.nodes.n; i++) {
        const struct links_load *l = &x.graph.nodes.v[i].load;
        if (l->from != l->to)
            end[l->to] = fmax(end[l->to], x.events.span[i].end);
    }
    for (int r = 1; r < 16; r++)
        near(end[r], end[0]);
    done(&x);
}

static void windows_cost_little(void **state)
{
    (void)state;
    /* 32 ranks to 32 others with unequal blocks: more flows than EVENTS_EXACT allows at once, if they all overlap. */
    struct run x = open_run("u8[1000003/x:7,97] @x40", "u8[1000003,97/y] @y40=40..79", "ranks_per_host 4\nnics 2\n");
    simulate(&x, "direct", 0);
    uint32_t link;
    assert_true(x.graph.channels.n > EVENTS_EXACT);
    check_laws(&x, 0);
    assert_true(x.events.total < 1.05 * graph_bound(&x.graph, &link) + 10000);
    done(&x);
}

static void the_path_leads_from_the_start_to_the_end(void **state)
{
    (void)state;
    struct run x = open_run("f32[65536] @x8 +sum(x)", "f32[65536] @x8", WIRE);
    simulate(&x, "ring", 0);
    uint32_t path[64], tail[3];
    size_t n = events_path(&x.events, path, 64);
    assert_true(n > 8 && n < 64);
    assert_int_equal(x.events.span[path[0]].cause, GRAPH_NONE);
    assert_int_equal(path[n - 1], x.events.last);
    for (size_t i = 1; i < n; i++)
        assert_int_equal(x.events.span[path[i]].cause, path[i - 1]);
    assert_int_equal(events_path(&x.events, tail, 3), 3);
    assert_memory_equal(tail, path + n - 3, sizeof tail);
    done(&x);
}

static void plans_that_do_not_fit_together_are_refused(void **state)
{
    (void)state;
    struct run x = open_run("u8[8] @x1=0", "u8[8] @x1=1", WIRE);
    struct failure why;
    weft_move move = {"t", x.src, x.dst};
    weft_plan *p = NULL;
    assert_int_equal(weft_lower(&move, 1, 0, NULL, &p), 0);
    assert_int_equal(links_open(&x.links, &x.m, 2, NULL, &why), 0);
    assert_int_equal(graph_open(&x.graph, &x.links, &why), 0);
    assert_int_equal(graph_add(&x.graph, p, NULL, 1, &why), 0);
    assert_int_equal(graph_close(&x.graph, &why), CLI_WRONG);
    assert_non_null(strstr(why.text, "rank 0 sends"));
    weft_plan_free(p);
    done(&x);
}

static void machine_files_print_and_read_back(void **state)
{
    (void)state;
    struct failure why;
    for (size_t i = 0; machine_file_preset(i); i++) {
        struct machine_file a, b;
        char *text = NULL;
        size_t n = 0;
        assert_int_equal(machine_file_open(machine_file_preset(i), &a, &why), CLI_OK);
        FILE *to = open_memstream(&text, &n);
        assert_non_null(to);
        machine_file_print(to, &a);
        fclose(to);
        if (machine_file_parse(machine_file_preset(i), text, &b, &why))
            fail_msg("%s", why.text);
        assert_memory_equal(&a, &b, sizeof a);
        free(text);
    }
}

static void sizes_in_caches_print_and_read_back(void **state)
{
    (void)state;
    struct failure why;
    struct machine_file a, b;
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(
        machine_file_parse("m",
                           "cached 512 KB 37 GB/s 70.3 GB/s\ncached_cast 1 MB 3 GB/s 5 GB/s\ncached 3 MB 11 GB/s 21 "
                           "GB/s\n",
                           &a, &why),
        CLI_OK);
    assert_int_equal(a.ncached[MACHINE_FILE_COPY], 2);
    assert_int_equal(a.ncached[MACHINE_FILE_CAST], 1);
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    machine_file_print(to, &a);
    fclose(to);
    if (machine_file_parse("m", text, &b, &why))
        fail_msg("%s", why.text);
    assert_memory_equal(&a, &b, sizeof a);
    free(text);
}

/* Of a long message both ranks copy a half, so each of them reads and writes as many bytes as the message has. */
static void what_fits_into_caches_is_copied_at_their_rate(void **state)
{
    (void)state;
    static const char *machine = "ranks_per_host 2\ninside_latency 0\nmessage 0\ncopy 10 GB/s\ncopy_host %s\n"
                                 "cached 1 MB 40 GB/s %s\ncached 4 MB 20 GB/s %s\n";
    static const struct {
        const char *src, *dst, *all, *small, *large;
        double ns;
    } cases[] = {
        {"u8[100000] @x1", "u8[100000] @x1=1", "0", "1 TB/s", "1 TB/s", 2500},
        {"u8[1000000] @x1", "u8[1000000] @x1=1", "0", "1 TB/s", "1 TB/s", 12500},
        {"u8[2000000] @x1", "u8[2000000] @x1=1", "0", "1 TB/s", "1 TB/s", 37500}, /* half of the way to 4 MB */
        {"u8[4000000] @x1", "u8[4000000] @x1=1", "0", "1 TB/s", "1 TB/s", 1e5},
        {"u8[8000000] @x1", "u8[8000000] @x1=1", "0", "1 TB/s", "1 TB/s", 4e5},
        {"u8[1000000] @x1", "u8[1000000] @x1=1", "5 GB/s", "8 GB/s", "6 GB/s", 125000},
        {"u8[8000000] @x1", "u8[8000000] @x1=1", "5 GB/s", "8 GB/s", "6 GB/s", 1.6e6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, machine, cases[i].all, cases[i].small, cases[i].large);
        near(time_of(cases[i].src, cases[i].dst, text, "direct", 1 << 30), cases[i].ns);
    }
    /* Eight ranks keep 800 KB each. That is more than all caches hold together: 6.4 MB is on the way from 4 to 8 MB. */
    double each = 1.0 / 20 + (1.0 / 10 - 1.0 / 20) * log2(6.4 / 4);
    near(time_of("u8[3200000/x] @x8", "u8[3200000/x] @x8",
                 "ranks_per_host 8\ncores 8\ncopy 10 GB/s\ncopy_host 0\ninside_latency 0\nmessage 0\n"
                 "cached 1 MB 40 GB/s 1 TB/s\ncached 4 MB 20 GB/s 1 TB/s\n",
                 NULL, 0),
         400000 * each);
}

/* What several ranks read from one is in caches when it is read again, so the host's memory only has to be written:
 * five ranks copy 1 MB each, and read 1 MB or 5 MB in all. */
static void what_is_read_again_is_in_caches(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *cached;
        double ns;
    } cases[] = {
        {"u8[1000000] @x1", "u8[1000000] @x5=1..5", "2 MB", 5e6 * (1 + 0.2) / 2},
        {"u8[1000000] @x1", "u8[1000000] @x5=1..5", "100 KB", 5e6}, /* no cache holds it */
        {"u8[1000000] @x1", "u8[1000000] @x5=1..5", NULL, 5e6},
        {"u8[5000000] @x1", "u8[5000000/x] @x5=1..5", "8 MB", 5e6},
        {"u8[1000000/x] @x5", "u8[1000000] @x5=5..9", "2 MB", 5e6 * (1 + 0.2) / 2},
        {"u8[1000000/x] @x5", "u8[1000000] @x5=5..9", "500 KB", 5e6}, /* all of them hold more */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        int n = snprintf(text, sizeof text,
                         "ranks_per_host 0\ninside_latency 0\nmessage 0\ncopy 1 TB/s\ncopy_host 1 GB/s\n");
        if (cases[i].cached)
            snprintf(text + n, sizeof text - (size_t)n, "cached %s 1 TB/s 1 GB/s\n", cases[i].cached);
        near(time_of(cases[i].src, cases[i].dst, text, "direct", 1 << 30), cases[i].ns);
    }
    /* Hosts do not share caches: the source's NIC carries 60 KB to each of four, which is too little to be passed on.
     */
    near(
        time_of("u8[60000] @x1", "u8[60000] @x4=1..4",
                "ranks_per_host 1\nnic 1 GB/s\nnic_latency 0\nmessage 0\ncopy_host 1 GB/s\ncached 2 MB 1 TB/s 1 GB/s\n",
                "direct", 1 << 30),
        2.4e5);
    /* 1 MB is: a quarter comes to each, and goes to the three others. */
    near(time_of("u8[1000000] @x1", "u8[1000000] @x4=1..4", "ranks_per_host 1\nnic 1 GB/s\nnic_latency 0\nmessage 0\n",
                 "direct", 1 << 30),
         1e6 + 0.75e6);
}

/* 20 MB to one other rank: each of the two copies a half, which is much. */
static void long_pieces_of_much_data_have_a_rate_of_their_own(void **state)
{
    (void)state;
    static const char *machine = "ranks_per_host 2\ninside_latency 0\nmessage 0\ncopy 10 GB/s\ncopy_host %s\n"
                                 "copy_long 16 GB/s\ncopy_long_host %s\n";
    static const struct {
        const char *src, *dst, *host, *long_host;
        double ns;
    } cases[] = {
        {"u8[20000000] @x1", "u8[20000000] @x1=1", "0", "0", 625000},
        {"u8[12000000] @x1", "u8[12000000] @x1=1", "0", "0", 375000}, /* either may have to copy all of it */
        {"u8[2000000] @x1", "u8[2000000] @x1=1", "0", "0", 1e5},
        {"u8[20000000] @x1", "u8[20000000] @x1=1", "12 GB/s", "20 GB/s", 1e6},
        {"u8[20000000] @x1", "u8[20000000] @x1=1", "12 GB/s", "0", 20e6 / 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, machine, cases[i].host, cases[i].long_host);
        near(time_of(cases[i].src, cases[i].dst, text, "direct", 1 << 30), cases[i].ns);
    }
    /* Rows have another one, and one row of a tensor is no such row. */
    static const char *rows[] = {"u8[20000/x,2050] @x2", "u8[20000,2050/x] @x2"};
    static const char *whole[] = {"u8[2000000/x] @x2", "u8[2000000/x] @x2=1,0"};
    near(time_of(rows[0], rows[1], "copy_long 16 GB/s\n", "direct", 1 << 30),
         time_of(rows[0], rows[1], "", "direct", 1 << 30));
    near(time_of(rows[0], rows[1], "copy_rows 16 GB/s\n", "direct", 1 << 30),
         time_of(rows[0], rows[1], "copy 16 GB/s\n", "direct", 1 << 30));
    near(time_of(whole[0], whole[1], "copy_rows 16 GB/s\n", "direct", 1 << 30),
         time_of(whole[0], whole[1], "", "direct", 1 << 30));
}

/* A rank reads and writes 2 MB here. */
static void each_kind_of_work_has_rates_for_what_caches_hold(void **state)
{
    (void)state;
    static const struct {
        const char *what, *src, *dst, *machine;
        double ns;
    } cases[] = {
        {"as copies", "f32[400000] @x4 +sum(x)", "f32[400000] @x1", "", 4e5},
        {"in memory, and so everywhere", "f32[400000] @x4 +sum(x)", "f32[400000] @x1", "fold 20 GB/s\n", 2e5},
        {"caches help as they help copies", "f32[400000] @x4 +sum(x)", "f32[400000] @x1",
         "fold 20 GB/s\ncached 100 MB 30 GB/s 1 TB/s\n", 4e6 / 60},
        {"of their own", "f32[400000] @x4 +sum(x)", "f32[400000] @x1",
         "fold 20 GB/s\ncached_fold 100 MB 16 GB/s 1 TB/s\ncached 100 MB 30 GB/s 1 TB/s\n", 25e4},
        {"by all ranks of the host", "f32[400000] @x4 +sum(x)", "f32[400000] @x1",
         "copy_host 100 GB/s\nfold_host 8 GB/s\n", 5e5},
        {"in caches, by all ranks", "f32[400000] @x4 +sum(x)", "f32[400000] @x1",
         "copy_host 9 GB/s\ncached_fold 100 MB 16 GB/s 5 GB/s\n", 8e5},
        {"casts", "f32[400000] @x1=0", "bf16[400000] @x1=0", "cached_cast 100 MB 5 GB/s 1 TB/s\n", 24e4},
        {"not casts", "f32[400000] @x1=0", "f32[400000] @x1=0", "cached_cast 100 MB 5 GB/s 1 TB/s\n", 16e4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "ranks_per_host 4\ninside_latency 0\nmessage 0\ncopy 10 GB/s\ncopy_host 0\n%s",
                 cases[i].machine);
        double ns = time_of(cases[i].src, cases[i].dst, text, "direct", 1 << 30);
        if (fabs(ns - cases[i].ns) > 1e-3 * cases[i].ns)
            fail_msg("%s: %f ns, and by hand %f", cases[i].what, ns, cases[i].ns);
    }
}

/* It reads each of its inputs, and writes once what it has read: five passes over memory, where a copy has two. */
static void a_fold_of_four_takes_as_long_as_two_and_a_half_copies(void **state)
{
    (void)state;
    near(time_of("f32[100000] @x4 +sum(x)", "f32[100000] @x1",
                 "ranks_per_host 4\ninside_latency 0\nmessage 0\ncopy 10 GB/s\ncopy_host 0\n", "direct", 1 << 30),
         100000);
}

static void wrong_machine_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"nic 50\n", "test:1: nic needs a rate"},
        {"# fine\nnic fast GB/s\n", "test:2: nic needs a rate"},
        {"nic -1 GB/s\n", "needs a rate"},
        {"nic nan GB/s\n", "needs a rate"},
        {"nic 1 us\n", "needs a rate"},
        {"nic_latency 1 GB/s\n", "needs a time"},
        {"nic 1 GB/s more\n", "needs a rate"},
        {"nics\n", "needs a whole number"},
        {"nics 0\n", "nics must be at least 1"},
        {"nics 1.5\n", "needs a whole number"},
        {"nics 99999999999\n", "needs a whole number"},
        {"inside glue\n", "'memory' or 'link'"},
        {"copy 0\n", "a core copies"},
        {"hosts_on_cores 0\n", "hosts_on_cores must be at least 1"},
        {"rails 2\n", "rails is 0 or 1"},
        {"nix 4\n", "there is no key 'nix'"},
        {"cached 1 MB 20 GB/s\n", "cached needs a size"},
        {"cached 20 GB/s 1 MB 20 GB/s\n", "cached needs a size"},
        {"cached 1 MB 20 GB/s 0\n", "cached needs a size"},
        {"cached 1 MB 20 GB/s 40 GB/s 7\n", "cached needs a size"},
        {"cached_fold 1 MB 20 GB/s\n", "cached_fold needs a size"},
        {"cached_long 2 MB 1 GB/s 1 GB/s\ncached_long 2 MB 1 GB/s 1 GB/s\n", "the sizes of cached_long must grow"},
        {"cached 1 MB 20 GB/s 40 GB/s\ncached 900 KB 30 GB/s 60 GB/s\n", "test:2: the sizes of cached must grow"},
    };
    struct machine_file m;
    struct failure why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(machine_file_parse("test", cases[i].text, &m, &why), CLI_BAD);
        if (!strstr(why.text, cases[i].says))
            fail_msg("'%s': %s", cases[i].text, why.text);
    }
    assert_int_equal(machine_file_open("/no/such/file", &m, &why), CLI_BAD);
    assert_non_null(strstr(why.text, "neither a machine"));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_hold_on_random_pairs_and_machines),
        cmocka_unit_test(a_single_message_is_not_slower_on_faster_links),
        cmocka_unit_test(times_by_hand),
        cmocka_unit_test(an_exchange_takes_as_long_as_it_was_measured),
        cmocka_unit_test(a_crowd_takes_as_long_as_it_was_measured),
        cmocka_unit_test(nics_of_a_crowd_take_as_long_as_they_were_measured),
        cmocka_unit_test(nothing_moves_in_no_time),
        cmocka_unit_test(symmetric_ranks_are_done_at_the_same_time),
        cmocka_unit_test(windows_cost_little),
        cmocka_unit_test(the_path_leads_from_the_start_to_the_end),
        cmocka_unit_test(plans_that_do_not_fit_together_are_refused),
        cmocka_unit_test(machine_files_print_and_read_back),
        cmocka_unit_test(sizes_in_caches_print_and_read_back),
        cmocka_unit_test(what_fits_into_caches_is_copied_at_their_rate),
        cmocka_unit_test(what_is_read_again_is_in_caches),
        cmocka_unit_test(long_pieces_of_much_data_have_a_rate_of_their_own),
        cmocka_unit_test(each_kind_of_work_has_rates_for_what_caches_hold),
        cmocka_unit_test(a_fold_of_four_takes_as_long_as_two_and_a_half_copies),
        cmocka_unit_test(wrong_machine_files_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
