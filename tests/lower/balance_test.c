/* Who sends how much: the published mesh pairs with each of their three sources. The busiest sender has at most 1.05
 * times the mean of those that hold the data, and nobody is sent what he has; also where the two meshes are one, and
 * with the 25 sizes of the benchmark in one plan. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/oracle.h"
#include "layout/layout.h"
#include "plan/plan.h"
#include "support/suite.h"

static const struct {
    const char *name, *src, *dst;
} meshes[] = {
    {"bench1", "a1.b1.c4.d2", "a4.b2.c1.d1"}, {"bench2", "a8.b1.c1.d1", "a1.b2.c2.d2"},
    {"bench3", "a1.b2.c4.d1", "a8.b1.c1.d1"}, {"bench4", "a2.b2.c2.d1", "a1.b1.c4.d2"},
    {"bench5", "a2.b4.c1.d1", "a1.b2.c4.d1"}, {"bench6", "a4.b1.c1.d2", "a2.b1.c1.d4"},
    {"bench7", "a4.b1.c2.d1", "a1.b1.c1.d8"}, {"bench8", "a4.b2.c1.d1", "a1.b1.c2.d4"},
};
static const struct {
    const char *name, *split, *folds; /* split: of dim 0 */
} sources[] = {
    {"no_partial", "/b", ""},
    {"replicate_dp", "", ""},
    {"partial_dp", "", " +sum(b)"},
};
enum { MESHES = sizeof meshes / sizeof *meshes, SOURCES = sizeof sources / sizeof *sources, RANKS = 16, MOST = 25 };

static weft_layout *parse(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

static void make_pair(int mesh, int source, int size, bool apart, weft_move *m)
{
    char text[200];
    snprintf(text, sizeof text, "f32[%d%s,%d/d] @%s%s", size, sources[source].split, size, meshes[mesh].src,
             sources[source].folds);
    m->src = parse(text);
    snprintf(text, sizeof text, "f32[%d/d/c,%d] @%s%s", size, size, meshes[mesh].dst, apart ? "=8..15" : "");
    m->dst = parse(text);
}

/* Does the rank own some element of the part in the source? */
static bool owns(const weft_plan *p, const struct plan_part *part)
{
    const weft_layout *l = p->tensors[p->bufs[part->buf].tensor].src;
    weft_box box[8];
    size_t n;
    assert_int_equal(weft_layout_boxes(l, p->rank, box, 8, &n), 0);
    assert_true(n <= 1); /* no blocks here */
    bool some = n == 1;
    for (int d = 0; d < l->ndim && some; d++) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        assert_int_equal(r->n, 1);
        some = r->at < box[0].at[d] + box[0].len[d] && box[0].at[d] < r->at + r->len;
    }
    return some;
}

static void check_received(const weft_plan *p)
{
    for (size_t i = 0; i < p->nsteps; i++)
        for (uint32_t k = 0; k < p->steps[i].nparts && p->steps[i].kind == PLAN_RECV; k++) {
            const struct plan_part *part = &p->parts[p->steps[i].part + k];
            const weft_layout *src = p->tensors[p->bufs[part->buf].tensor].src;
            if (!src->nfolds && owns(p, part))
                fail_msg("rank %d receives in step %zu what it has", p->rank, i);
        }
}

static int64_t bound_of(const weft_move *m)
{
    struct oracle *o;
    assert_int_equal(oracle_open(m->src, m->dst, &o), 0);
    int64_t bound = oracle_bound(o);
    oracle_free(o);
    return bound;
}

/* Lowers on all ranks: what is sent must be the least that can be. Returns the busiest sender among those that hold the
 * data, in parts of their mean. (Folds are handed on by destinations, which adds to what is sent, not to this.) */
static double check_moves(const weft_move *moves, size_t n, const char *name)
{
    weft_lower_opts opts = {.size = sizeof opts, .world = RANKS};
    int64_t sent = 0, held = 0, most = 0, bound = 0;
    weft_plan *plans[RANKS];
    for (int r = 0; r < RANKS; r++) {
        weft_stats st = {.size = sizeof st};
        if (weft_lower(moves, n, r, &opts, &plans[r]) || weft_plan_stats(plans[r], &st))
            fail_msg("%s: %s", name, weft_errmsg());
        check_received(plans[r]);
        sent += st.sent;
        if (mesh_index(moves[0].src, r) < 0)
            continue;
        held += st.sent;
        most = st.sent > most ? st.sent : most;
    }
    if (weft_plan_verify((const weft_plan *const *)plans, RANKS))
        fail_msg("%s: %s", name, weft_errmsg());
    for (size_t i = 0; i < n; i++)
        bound += bound_of(&moves[i]);
    if (sent != bound)
        fail_msg("%s: %lld B are sent, %lld B must be", name, (long long)sent, (long long)bound);
    for (int r = 0; r < RANKS; r++)
        weft_plan_free(plans[r]);
    return held ? (double)most * (double)moves[0].src->mesh / (double)held : 0;
}

static void check_even(const char *name, double busiest)
{
    print_message("%s: the busiest sends %.3f of the mean\n", name, busiest);
    if (busiest > 1.05)
        fail_msg("%s: the busiest sends %.3f of the mean", name, busiest);
}

static void check_all(int size, bool apart, bool even)
{
    for (int i = 0; i < MESHES; i++)
        for (int k = 0; k < SOURCES; k++) {
            char name[64];
            weft_move m = {"w", NULL, NULL};
            snprintf(name, sizeof name, "%s, %s, %d", meshes[i].name, sources[k].name, size);
            make_pair(i, k, size, apart, &m);
            double busiest = check_moves(&m, 1, name);
            if (even)
                check_even(name, busiest);
            weft_layout_free((weft_layout *)m.src);
            weft_layout_free((weft_layout *)m.dst);
        }
}

static void published_pairs_are_balanced(void **state)
{
    (void)state;
    check_all(4096, true, true);
    check_all(512, true, true);
    check_all(1000, true, true); /* does not come out even */
}

/* On the same ranks some need nothing from others: only the volume must be right. */
static void pairs_on_one_mesh_move_the_least(void **state)
{
    (void)state;
    check_all(4096, false, false);
}

static void benchmark_in_one_plan_is_balanced(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++)
        for (int k = 0; k < SOURCES; k++) {
            weft_move moves[MOST];
            char name[64], names[MOST][24];
            for (int t = 0; t < MOST; t++) {
                snprintf(names[t], sizeof names[t], "layer.%d", t);
                moves[t].name = names[t];
                make_pair(i, k, 512 + t * (24576 - 512) / (MOST - 1), true, &moves[t]);
            }
            snprintf(name, sizeof name, "%s, %s, all", meshes[i].name, sources[k].name);
            check_even(name, check_moves(moves, MOST, name));
            for (int t = 0; t < MOST; t++) {
                weft_layout_free((weft_layout *)moves[t].src);
                weft_layout_free((weft_layout *)moves[t].dst);
            }
        }
}

/* Pieces too small to be cut further, and more replicas than pieces: no replica sends two. */
static void no_replica_sends_two_small_pieces(void **state)
{
    static const char *const to[] = {"f32[4/a,8/b] @a2.b2=8..11", "f32[4/a,8/b] @a2.b4=8..15",
                                     "f32[4/b,8/a] @a4.b2=8..15"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        weft_move m = {"w", parse("f32[4,8] @x8"), parse(to[i])};
        for (int r = 0; r < 8; r++) {
            weft_plan *p = NULL;
            weft_stats st = {.size = sizeof st};
            assert_int_equal(weft_lower(&m, 1, r, NULL, &p), 0);
            assert_int_equal(weft_plan_stats(p, &st), 0);
            if (st.send_peers > 1)
                fail_msg("to %s: rank %d sends to %d others", to[i], r, st.send_peers);
            weft_plan_free(p);
        }
        weft_layout_free((weft_layout *)m.src);
        weft_layout_free((weft_layout *)m.dst);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_pairs_are_balanced), cmocka_unit_test(pairs_on_one_mesh_move_the_least),
        cmocka_unit_test(benchmark_in_one_plan_is_balanced), cmocka_unit_test(no_replica_sends_two_small_pieces)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
