/* Hosts in the plan: what crosses between hosts, counted in the plans of all ranks. Replicas on the same host are taken
 * first, all source hosts share the sending, what a host needs enters it once and is handed on bucket by bucket, and
 * folds send one value of each host. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

enum { MOST = 16 };

struct job {
    weft_plan *plan[MOST];
    int host[MOST], world, hosts;
    int64_t out[MOST], in[MOST], all; /* bytes that leave and enter each host; that cross */
};

/* Ranks are dealt to hosts as `of` says, one digit a rank. Plans are verified. */
static void plan_all(const char *src, const char *dst, const char *of, const char *algorithm, int64_t bucket,
                     struct job *j)
{
    weft_layout *a = NULL, *b = NULL;
    *j = (struct job){.world = (int)strlen(of)};
    for (int r = 0; r < j->world; r++) {
        j->host[r] = of[r] - '0';
        j->hosts = j->host[r] >= j->hosts ? j->host[r] + 1 : j->hosts;
    }
    assert_int_equal(weft_layout_parse(src, &a), 0);
    assert_int_equal(weft_layout_parse(dst, &b), 0);
    weft_lower_opts o = {.size = sizeof o, .world = j->world, .bucket = bucket, .algorithm = algorithm};
    o.machine = &(weft_machine){.size = sizeof(weft_machine), .ranks = j->world, .host = j->host};
    for (int r = 0; r < j->world; r++)
        if (weft_lower(&(weft_move){"t", a, b}, 1, r, &o, &j->plan[r]))
            fail_msg("%s -> %s on %s: %s", src, dst, of, weft_errmsg());
    if (weft_plan_verify((const weft_plan *const *)(uintptr_t)j->plan, (size_t)j->world))
        fail_msg("%s -> %s on %s: %s", src, dst, of, weft_errmsg());
    for (int r = 0; r < j->world; r++)
        for (size_t s = 0; s < j->plan[r]->nsteps; s++) {
            const struct plan_step *st = &j->plan[r]->steps[s];
            if (st->kind != PLAN_SEND || j->host[st->peer] == j->host[r])
                continue;
            j->out[j->host[r]] += st->bytes;
            j->in[j->host[st->peer]] += st->bytes;
            j->all += st->bytes;
        }
    weft_layout_free(a);
    weft_layout_free(b);
}

static void drop(struct job *j)
{
    for (int r = 0; r < j->world; r++)
        weft_plan_free(j->plan[r]);
}

/* Pieces are cut at whole elements, so a few of them may be on one side or the other. */
static void assert_near(int64_t got, int64_t want)
{
    if (llabs(got - want) > want / 50 + 64)
        fail_msg("%lld bytes, should be %lld", (long long)got, (long long)want);
}

static void replicas_on_the_same_host_are_taken_first(void **state)
{
    struct job j;
    (void)state;
    plan_all("f32[6000] @x2=0,2", "f32[6000] @x2=1,3", "0011", NULL, 0, &j);
    assert_int_equal(j.all, 0);
    drop(&j);
    plan_all("f32[6000/y] @x2.y2", "f32[6000/y:7] @y2.x2=0,2,1,3", "0011", NULL, 0, &j);
    assert_int_equal(j.all, 0); /* each host has it all */
    drop(&j);
}

static void source_hosts_share_the_sending(void **state)
{
    struct job j;
    (void)state;
    plan_all("f32[120000] @x3=0,1,2", "f32[120000] @x1=3", "0123", NULL, 0, &j);
    assert_int_equal(j.all, 480000);
    for (int h = 0; h < 3; h++)
        assert_near(j.out[h], 160000);
    drop(&j);
    plan_all("f32[120000] @x4=0..3", "f32[120000/x] @x2=4,5", "001122", NULL, 0, &j);
    assert_int_equal(j.all, 480000);
    assert_near(j.out[0], 240000);
    assert_near(j.out[1], 240000);
    drop(&j);
}

static void fan_out_enters_each_host_once(void **state)
{
    struct job j;
    (void)state;
    plan_all("f32[100000] @x1=0", "f32[100000] @x4=1..4", "01111", NULL, 0, &j);
    assert_int_equal(j.all, 400000);
    drop(&j);
    plan_all("f32[100000] @x1=0", "f32[100000] @x6=1..6", "0111222", NULL, 0, &j);
    assert_int_equal(j.in[1], 400000);
    assert_int_equal(j.in[2], 400000);
    drop(&j);
}

/* The step is a message to a rank of this one's host, and hangs on one message from another host. */
static uint32_t handed_on(const struct job *j, int r, const struct plan_step *st)
{
    const weft_plan *p = j->plan[r];
    if (st->kind != PLAN_SEND || j->host[st->peer] != j->host[r])
        return PLAN_NONE;
    assert_int_equal(st->ndeps, 1);
    uint32_t on = p->deps[st->dep];
    assert_int_equal(p->steps[on].kind, PLAN_RECV);
    assert_int_not_equal(j->host[p->steps[on].peer], j->host[r]);
    return on;
}

/* Each message is handed on by itself, so the first goes on while later ones are still on the link. */
static void fan_out_is_handed_on_bucket_by_bucket(void **state)
{
    struct job j;
    (void)state;
    plan_all("f32[65536] @x1=0", "f32[65536] @x4=1..4", "01111", NULL, 8192, &j);
    for (int r = 1; r < j.world; r++) {
        uint32_t first = PLAN_NONE, last = 0, on;
        for (size_t s = 0; s < j.plan[r]->nsteps; s++)
            if ((on = handed_on(&j, r, &j.plan[r]->steps[s])) != PLAN_NONE) {
                first = on < first ? on : first;
                last = on > last ? on : last;
            }
        assert_true(first < last);
    }
    drop(&j);
}

/* What two levels must send: H hosts, n elements of 4 bytes. */
static void folds_send_one_value_a_host(void **state)
{
    static const char *const on[] = {"0011", "000111", "001122", "01100", "0010212"}, *const forced[] = {NULL,
                                                                                                         "two_level"};
    (void)state;
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        for (int f = 0; f < 2; f++) {
            int64_t n = 252000, p = (int64_t)strlen(on[i]);
            char terms[64], whole[64], split[64], root[64];
            struct job j;
            snprintf(terms, sizeof terms, "f32[%lld] @x%lld +sum(x)", (long long)n, (long long)p);
            snprintf(whole, sizeof whole, "f32[%lld] @x%lld", (long long)n, (long long)p);
            snprintf(split, sizeof split, "f32[%lld/x] @x%lld", (long long)n, (long long)p);
            snprintf(root, sizeof root, "f32[%lld] @x1=1", (long long)n);
            plan_all(terms, whole, on[i], forced[f], 0, &j);
            assert_string_equal(j.plan[0]->algorithm, "two_level");
            assert_near(j.all, 2 * (j.hosts - 1) * n * 4);
            for (int h = 0; h < j.hosts; h++)
                assert_near(j.out[h], j.all / j.hosts);
            drop(&j);
            plan_all(terms, split, on[i], forced[f], 0, &j);
            assert_near(j.all, (j.hosts - 1) * n * 4);
            drop(&j);
            if (!forced[f]) { /* by the model, slabs take less time here; they send more */
                plan_all(terms, root, on[i], NULL, 0, &j);
                assert_string_equal(j.plan[0]->algorithm, "slabs");
                drop(&j);
            }
            plan_all(terms, root, on[i], "two_level", 0, &j);
            assert_near(j.all, (j.hosts - 1) * n * 4);
            drop(&j);
            plan_all(split, whole, on[i], NULL, 0, &j); /* copies: the general lowering */
            assert_near(j.all, (j.hosts - 1) * n * 4);
            drop(&j);
            plan_all(root, whole, on[i], NULL, 0, &j);
            assert_near(j.all, (j.hosts - 1) * n * 4);
            drop(&j);
        }
}

/* The root sends the tensor to other hosts once, and no other host sends more of it. The root may be no member, alone
 * on its host or not. */
static void a_broadcast_leaves_each_host_once(void **state)
{
    static const char *const on[] = {"0011", "000111", "001122", "01100", "0010212", "01234567"};
    (void)state;
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        for (int root = 0; root < 3; root++) {
            int64_t n = 252000, p = (int64_t)strlen(on[i]);
            bool outside = root == 2;
            char from[64], to[64];
            struct job j;
            snprintf(from, sizeof from, "f32[%lld] @x1=%d", (long long)n, root);
            snprintf(to, sizeof to, "f32[%lld] @x%lld=0..%lld", (long long)n, (long long)p - outside,
                     (long long)p - 1 - outside);
            if (outside)
                snprintf(from, sizeof from, "f32[%lld] @x1=%lld", (long long)n, (long long)p - 1);
            plan_all(from, to, on[i], "direct", 10000, &j);
            const int home = j.host[outside ? p - 1 : root];
            for (int h = 0; h < j.hosts; h++) {
                bool has = false;
                for (int r = 0; r < p - outside; r++)
                    has |= j.host[r] == h;
                assert_near(j.in[h], h != home && has ? n * 4 : 0);
                assert_true(j.out[h] <= n * 4);
            }
            assert_near(j.out[home], n * 4);
            drop(&j);
        }
}

/* Replicas on more hosts than the source: these get all once in each group of hosts, whichever ranks of the source have
 * it, and pass it on. Too few hosts, or bytes, and each gets it from the source. */
static void hosts_of_replicas_feed_each_other(void **state)
{
    static const struct {
        const char *src, *dst, *on;
        int sources;    /* hosts of the source, the first ones */
        int64_t leaves; /* times that the tensor leaves them, all together */
        int64_t n;
    } cases[] = {
        {"f32[252000/x] @x2", "f32[252000/y] @d6.y2=2..13", "01223344556677", 2, 1, 252000},
        {"f32[252000/x] @x2", "f32[252000/y:1000] @d6.y2=2..13", "01223344556677", 2, 1, 252000},
        {"f32[504,500/x] @x4", "f32[504/y,500] @d4.y2=4..11", "001122334455", 2, 1, 252000},
        {"f32[252000/x] @x4", "f32[252000] @d8=4..11", "0123456789:;", 4, 2, 252000},
        {"f32[252000/x] @x4", "f32[252000] @d4=4..7", "01234567", 4, 4, 252000}, /* not more hosts */
        {"f32[10000] @x1", "f32[10000] @d4=1..4", "01234", 1, 4, 10000},         /* few bytes */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job j;
        plan_all(cases[i].src, cases[i].dst, cases[i].on, "direct", 0, &j);
        int64_t out = 0, tensor = cases[i].n * 4;
        for (int h = 0; h < cases[i].sources; h++)
            out += j.out[h];
        if (llabs(out - cases[i].leaves * tensor) > tensor / 50)
            fail_msg("case %d: %lld bytes leave the source, should be %lld", (int)i, (long long)out,
                     (long long)(cases[i].leaves * tensor));
        for (int h = cases[i].sources; h < j.hosts; h++)
            assert_near(j.in[h], tensor);
        drop(&j);
    }
}

/* Replicas of random layouts on random hosts, large enough to be passed on. The plans are verified, and no host takes
 * in more than its ranks lack. */
static void random_replicas_on_random_hosts(void **state)
{
    (void)state;
    for (int64_t n = 0; suite_seed(&n, 0, test_share(60, 600)); n++) {
        static const char *const cuts[] = {"", ":7", ":1000", "~3"};
        struct random r = random_of(93, n);
        int x = (int)random_in(&r, 1, 4), y = (int)random_in(&r, 1, 3), d = (int)random_in(&r, 2, 4), hosts = 0;
        int first = (int)random_in(&r, 0, x), world = first + d * y > x ? first + d * y : x;
        int64_t extent = y * random_in(&r, 20000, 90000), most = 0;
        char src[64], dst[64], on[MOST + 1] = {0};
        snprintf(src, sizeof src, "f32[%lld/x%s] @x%d", (long long)extent, cuts[random_in(&r, 0, 2)], x);
        snprintf(dst, sizeof dst, "f32[%lld/y%s] @d%d.y%d=%d..%d", (long long)extent, cuts[random_in(&r, 0, 3)], d, y,
                 first, first + d * y - 1);
        for (int k = 0; k < world; k++) { /* hosts are numbered from 0 on, without gaps */
            int host = (int)random_in(&r, 0, hosts < 9 ? hosts : 9);
            on[k] = (char)('0' + host);
            hosts += host == hosts;
        }
        struct job j;
        plan_all(src, dst, on, "direct", random_once_in(&r, 2) ? 0 : 10000, &j);
        for (int h = 0; h < j.hosts; h++) {
            most = 0;
            for (int k = 0; k < y; k++) {
                bool has = false;
                for (int q = 0; q < d; q++)
                    has |= j.host[first + q * y + k] == h;
                most += has ? extent / y + 6 + 1000 * 7 : 0;
            }
            if (j.in[h] > most * 4)
                fail_msg("%s -> %s on %s: %lld bytes enter host %d", src, dst, on, (long long)j.in[h], h);
        }
        drop(&j);
    }
}

/* A root that is no member, on a host of its own and beside members; narrow terms, whose partial values are wide; avg.
 */
static void odd_roots_and_narrow_terms_cross_once(void **state)
{
    struct job j;
    (void)state;
    plan_all("f32[9000] @x4 +sum(x)", "f32[9000] @x1=4", "00112", "two_level", 0, &j);
    assert_near(j.all, 2 * 36000);
    drop(&j);
    plan_all("f32[9000] @x4 +max(x)", "f32[9000] @x1=4", "00111", "two_level", 0, &j);
    assert_near(j.all, 36000);
    drop(&j);
    plan_all("bf16[9000] @x5 +avg(x)", "f32[9000] @x5", "00112", "two_level", 100, &j);
    drop(&j);
    plan_all("f32[] @x4 +sum(x)", "f32[] @x4", "0101", "two_level", 0, &j);
    drop(&j);
}

/* Groups that each lie on one host fold there, whatever the size, though replicas on other hosts could share the work.
 */
static void groups_on_one_host_stay_there(void **state)
{
    (void)state;
    for (int64_t n = 16; n <= 1 << 22; n *= 4) {
        static const char *const to[] = {"", "/t"};
        for (int k = 0; k < 2; k++) {
            struct job j;
            char src[64], dst[64];
            snprintf(src, sizeof src, "f32[%lld] @d3.t4 +sum(t)", (long long)n);
            snprintf(dst, sizeof dst, "f32[%lld%s] @d3.t4", (long long)n, to[k]);
            plan_all(src, dst, "000011112222", NULL, 0, &j);
            assert_int_equal(j.all, 0);
            drop(&j);
        }
    }
}

static void two_level_that_does_not_fit_is_refused(void **state)
{
    weft_layout *a = NULL, *b = NULL;
    weft_plan *p = NULL;
    int hosts[6] = {0, 0, 1, 1, 2, 2};
    weft_lower_opts o = {.size = sizeof o, .algorithm = "two_level"};
    (void)state;
    assert_int_equal(weft_layout_parse("f32[60] @y2.x3 +sum(x)", &a), 0);
    assert_int_equal(weft_layout_parse("f32[60] @y2.x3", &b), 0);
    weft_move m = {"t", a, b};
    o.machine = &(weft_machine)WEFT_MACHINE_INIT;
    assert_int_equal(weft_lower(&m, 1, 0, &o, &p), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "one host"));
    o.machine = &(weft_machine){.size = sizeof(weft_machine), .ranks = 6, .host = hosts}; /* 0 0 1 and 1 2 2 */
    assert_int_equal(weft_lower(&m, 1, 0, &o, &p), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "different ways"));
    o.algorithm = NULL;
    assert_int_equal(weft_lower(&m, 1, 0, &o, &p), 0);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}

/* The machine knows of more ranks than take part, and numbers hosts among those. */
static void hosts_of_absent_ranks_are_ignored(void **state)
{
    enum { ENTRIES = 10000 };
    static int host[ENTRIES];
    weft_layout *a = NULL, *b = NULL;
    weft_plan *plan[4];
    weft_lower_opts o = {.size = sizeof o, .algorithm = "two_level"};
    (void)state;
    for (int r = 0; r < ENTRIES; r++)
        host[r] = ENTRIES - 1 - r % 2;
    o.machine = &(weft_machine){.size = sizeof(weft_machine), .ranks = ENTRIES, .host = host};
    assert_int_equal(weft_layout_parse("f32[60] @x2.y2 +sum(y)", &a), 0);
    assert_int_equal(weft_layout_parse("f32[60] @x2.y2", &b), 0);
    for (int r = 0; r < 4; r++)
        assert_int_equal(weft_lower(&(weft_move){"t", a, b}, 1, r, &o, &plan[r]), 0);
    assert_int_equal(weft_plan_verify((const weft_plan *const *)(uintptr_t)plan, 4), 0);
    for (int r = 0; r < 4; r++)
        weft_plan_free(plan[r]);
    weft_layout_free(a);
    weft_layout_free(b);
}

/* The chooser looks at the hosts of the ranks that there are, and of no others: the sanitizer build sees it. */
static void chooser_reads_hosts_of_present_ranks_only(void **state)
{
    static const char *const pairs[][2] = {
        {"f32[256/x] @x64.y32", "f32[256] @x64.y32"},
        {"f32[256/x,256] @x64.y32", "f32[256,256/x] @x64.y32"},
    };
    enum { WORLD = 64 * 32 };
    (void)state;
    int *host = calloc(WORLD, sizeof *host);
    assert_non_null(host);
    for (int r = 0; r < WORLD; r++)
        host[r] = r / 2;
    for (int k = 0; k < 4; k++) {
        weft_layout *a = NULL, *b = NULL;
        weft_plan *p = NULL;
        weft_machine one = {.size = sizeof one, .ranks_per_host = 1};
        weft_machine listed = {.size = sizeof listed, .ranks = WORLD, .host = host};
        weft_lower_opts o = {.size = sizeof o, .machine = k % 2 ? &one : &listed};
        assert_int_equal(weft_layout_parse(pairs[k / 2][0], &a), 0);
        assert_int_equal(weft_layout_parse(pairs[k / 2][1], &b), 0);
        assert_int_equal(weft_lower(&(weft_move){"t", a, b}, 1, 5, &o, &p), 0);
        weft_plan_free(p);
        weft_layout_free(a);
        weft_layout_free(b);
    }
    free(host);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_on_the_same_host_are_taken_first),
        cmocka_unit_test(source_hosts_share_the_sending),
        cmocka_unit_test(fan_out_enters_each_host_once),
        cmocka_unit_test(fan_out_is_handed_on_bucket_by_bucket),
        cmocka_unit_test(folds_send_one_value_a_host),
        cmocka_unit_test(odd_roots_and_narrow_terms_cross_once),
        cmocka_unit_test(a_broadcast_leaves_each_host_once),
        cmocka_unit_test(hosts_of_replicas_feed_each_other),
        cmocka_unit_test(random_replicas_on_random_hosts),
        cmocka_unit_test(two_level_that_does_not_fit_is_refused),
        cmocka_unit_test(hosts_of_absent_ranks_are_ignored),
        cmocka_unit_test(chooser_reads_hosts_of_present_ranks_only),
        cmocka_unit_test(groups_on_one_host_stay_there),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
