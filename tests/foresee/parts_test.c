/* Parts of a graph: cut out of random moves on random machines, they take as long by themselves as all of them do
 * together, by one thread or by several; and only what is equal counts as equal. */
#include <math.h>
#include <stdio.h>

#include "foresee/parts.h"
#include "foresee/scene.h"
#include "foresee/together.h"
#include "support/random.h"
#include "support/suite.h"

#define MOST_LINKS 4096

/* The graph points to the links of *r. */
static void lower(const char *src, const char *dst, struct scene_how *how, struct scene_run *r)
{
    struct scene s = {0};
    struct failure why;
    how->quiet = true;
    if (scene_add(&s, src, dst, &why) || scene_lower(&s, how, r, &why))
        fail_msg("%s -> %s: %s", src, dst, why.text);
    scene_free(&s);
}

/* On the machine "plain"; ranks_per_host 0: as it is there. */
static void lower_on_plain(const char *src, const char *dst, int ranks_per_host, struct scene_run *r)
{
    struct scene_how how = {0};
    struct failure why;
    assert_int_equal(machine_file_open("plain", &how.machine, &why), CLI_OK);
    if (ranks_per_host)
        how.machine.ranks_per_host = ranks_per_host;
    lower(src, dst, &how, r);
    assert_true(links_count(&r->links) < MOST_LINKS);
}

static struct events run(const struct scene_run *r, int workers, bool whole)
{
    struct events e;
    struct failure why;
    struct events_how how = {.workers = workers, .whole = whole};
    if (events_run(&e, &r->graph, &how, &why))
        fail_msg("%s", why.text);
    return e;
}

static struct scene_how random_machine(struct random *r)
{
    static const char *const names[] = {"plain", "a100", "h100", "h100-tapered", "pcie"};
    struct scene_how how = {0};
    struct failure why;
    if (machine_file_open(names[random_in(r, 0, 4)], &how.machine, &why))
        fail_msg("%s", why.text);
    how.machine.ranks_per_host = random_in(r, 1, 6);
    how.machine.hosts_on_cores = random_in(r, 1, 3);
    how.machine.cores = (int)random_in(r, 0, 2);
    return how;
}

/* Groups of ranks, most of which have nothing to do with each other on most of these machines. */
static void random_move(struct random *r, struct scene_run *out)
{
    static const char *const pairs[][2] = {{"f32[%d/a,%d/x,%d] @a%d.x%d", "f32[%d/a,%d,%d/x] @a%d.x%d"},
                                           {"f32[%d/a,%d/x,%d] @a%d.x%d", "f32[%d/a,%d,%d] @a%d.x%d"},
                                           {"f32[%d/a,%d,%d] @a%d.x%d +sum(x)", "f32[%d/a,%d,%d] @a%d.x%d"},
                                           {"f32[%d/a,%d/x,%d] @a%d.x%d", "bf16[%d/a,%d/x:3,%d] @a%d.x%d"}};
    int k = (int)random_in(r, 0, 3), groups = (int)random_in(r, 1, 6), ranks = (int)random_in(r, 1, 6);
    int uneven = random_once_in(r, 3) ? (int)random_in(r, 0, 3) : 0;
    int rows = ranks * (int)random_in(r, 1, 40), columns = ranks * (int)random_in(r, 1, 300) + uneven;
    char src[96], dst[96];
    struct scene_how how = random_machine(r);
    groups = groups * ranks > 24 ? 24 / ranks : groups;
    snprintf(src, sizeof src, pairs[k][0], groups + uneven, rows, columns, groups, ranks);
    snprintf(dst, sizeof dst, pairs[k][1], groups + uneven, rows, columns, groups, ranks);
    lower(src, dst, &how, out);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-3 + 1e-8 * fabs(b);
}

static void parts_take_as_long_by_themselves_as_together(void **state)
{
    (void)state;
    for (int64_t n = 0; suite_seed(&n, 0, 300); n++) {
        struct random r = random_of(6, n);
        struct scene_run x;
        random_move(&r, &x);
        struct events whole = run(&x, 1, true), parts = run(&x, 1, false);
        if (!near(parts.total, whole.total) || !near(parts.moved, whole.moved))
            fail_msg("case %d: parts %.6f ns, all together %.6f ns", (int)n, parts.total, whole.total);
        for (size_t i = 0; i < x.graph.nodes.n; i++) {
            const struct events_span *a = &parts.span[i], *b = &whole.span[i];
            if (!near(a->ready, b->ready) || !near(a->start, b->start) || !near(a->end, b->end))
                fail_msg("case %d, node %zu: from %.6f to %.6f ns, and in all from %.6f to %.6f", (int)n, i, a->start,
                         a->end, b->start, b->end);
        }
        events_free(&whole);
        events_free(&parts);
        scene_run_free(&x);
    }
}

static void same(const struct events *a, const struct events *b, size_t nodes)
{
    assert_true(a->total == b->total && a->moved == b->moved && a->last == b->last);
    for (size_t i = 0; i < nodes; i++) {
        const struct events_span *x = &a->span[i], *y = &b->span[i];
        assert_true(x->ready == y->ready && x->start == y->start && x->end == y->end && x->cause == y->cause &&
                    x->narrow == y->narrow && x->sharers == y->sharers);
    }
}

static void results_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    for (int64_t n = 0; suite_seed(&n, 0, 100); n++) {
        struct random r = random_of(6, n);
        struct scene_run x;
        random_move(&r, &x);
        struct events one = run(&x, 1, false), two = run(&x, 2, false), many = run(&x, TOGETHER_MOST, false);
        same(&one, &two, x.graph.nodes.n);
        same(&one, &many, x.graph.nodes.n);
        events_free(&one);
        events_free(&two);
        events_free(&many);
        scene_run_free(&x);
    }
}

/* Eight groups of four ranks, each on a host of its own. */
static void equal_parts_are_found(void **state)
{
    (void)state;
    struct scene_run x;
    struct parts p;
    bool slack[MOST_LINKS] = {0};
    lower_on_plain("f32[8/a,64/x,64] @a8.x4", "f32[8/a,64,64/x] @a8.x4", 4, &x);
    assert_int_equal(parts_open(&p, &x.graph, slack, false), 0);
    assert_int_equal(p.n, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(p.like[i], 0);
        assert_int_equal(p.ranks[i], 4);
        assert_true(parts_equal(&p, 0, i));
    }
    /* What the hash does not know of is seen all the same. */
    struct events before = run(&x, 2, false);
    uint32_t node = parts_node(&p, 5, 2);
    x.graph.nodes.v[node].load.copied_to += 1e6;
    assert_false(parts_equal(&p, 0, 5));
    assert_true(parts_equal(&p, 0, 6));
    struct events after = run(&x, 2, false), whole = run(&x, 2, true);
    assert_true(after.total > before.total);
    assert_true(near(after.total, whole.total));
    events_free(&before);
    events_free(&after);
    events_free(&whole);
    parts_free(&p);
    scene_run_free(&x);
}

static void ranks_without_work_are_of_no_part(void **state)
{
    (void)state;
    struct scene_run x;
    struct parts p;
    bool slack[MOST_LINKS] = {0};
    lower_on_plain("f32[64] @x1=3", "f32[64] @x1=40", 0, &x);
    assert_int_equal(parts_open(&p, &x.graph, slack, false), 0);
    assert_int_equal(p.n, 1);
    parts_free(&p);
    scene_run_free(&x);
}

static void count_me(void *arg, int k)
{
    int *seen = arg;
    seen[k]++;
}

static void work_together_has_each_member_once(void **state)
{
    (void)state;
    for (int n = 1; n <= TOGETHER_MOST; n++) {
        int seen[TOGETHER_MOST] = {0};
        together_do(n, count_me, seen);
        for (int k = 0; k < TOGETHER_MOST; k++)
            assert_int_equal(seen[k], k < n);
    }
    assert_true(together_here() >= 1 && together_here() <= TOGETHER_MOST);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_take_as_long_by_themselves_as_together),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(equal_parts_are_found),
        cmocka_unit_test(ranks_without_work_are_of_no_part),
        cmocka_unit_test(work_together_has_each_member_once),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
