/* What lowering makes is what plans promise: it passes plan_check on every rank, survives save and load, can be
 * explained, its stats agree across the ranks, and so do the plans of all ranks. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "support/json_syntax.h"
#include "support/pairs.h"
#include "support/suite.h"

static weft_layout *parse(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

static void check_round_trip(const weft_plan *p)
{
    size_t len, len2;
    assert_int_equal(weft_plan_save(p, NULL, 0, &len), 0);
    unsigned char *bytes = malloc(len), *again = malloc(len);
    weft_plan *q = NULL;
    assert_int_equal(weft_plan_save(p, bytes, len, &len), 0);
    if (weft_plan_load(bytes, len, &q))
        fail_msg("%s", weft_errmsg());
    assert_true(weft_plan_equal(p, q));
    assert_int_equal(weft_plan_save(q, again, len, &len2), 0);
    assert_int_equal(len, len2);
    assert_memory_equal(bytes, again, len);
    weft_plan_free(q);
    free(bytes);
    free(again);
}

static void check_explained(const weft_plan *p)
{
    size_t len;
    assert_int_equal(weft_plan_explain(p, true, NULL, 0, &len), 0);
    char *text = malloc(len + 1);
    assert_int_equal(weft_plan_explain(p, true, text, len + 1, &len), 0);
    assert_true(json_is_valid(text));
    assert_int_equal(weft_plan_explain(p, false, text, len + 1, &len), 0);
    free(text);
}

/* Adds one rank's numbers to the sum of all. */
static void check_rank(const weft_plan *p, int rank, uint64_t digest, weft_stats *sum)
{
    if (plan_check(p))
        fail_msg("%s", weft_errmsg());
    check_round_trip(p);
    check_explained(p);
    weft_stats st = {.size = sizeof st};
    assert_int_equal(weft_plan_stats(p, &st), 0);
    assert_int_equal(st.rank, rank);
    assert_true(weft_plan_digest(p) == digest);
    assert_true(st.steps >= st.sends + st.recvs && st.chunks >= st.sends + st.recvs);
    assert_true(st.largest_send <= st.sent + 64 * st.chunks && st.largest_recv <= st.received + 64 * st.chunks);
    assert_true(st.send_peers <= st.sends && st.recv_peers <= st.recvs);
    assert_int_equal(st.send_peers == 0, st.sends == 0);
    sum->sent += st.sent;
    sum->received += st.received;
    sum->bound += st.bound;
    sum->stated += st.stated;
    sum->sends += st.sends;
    sum->recvs += st.recvs;
    sum->send_peers += st.send_peers;
    sum->recv_peers += st.recv_peers;
}

#define RANKS 64 /* at most */

/* Lowers on all ranks; the plans must agree in what crosses, and both ends of a channel in the order. */
static void check_moves(const weft_move *moves, size_t n, const weft_lower_opts *opts)
{
    weft_stats sum = {0};
    weft_plan *plans[RANKS];
    int world = 1;
    for (int rank = 0; rank < world; rank++) {
        if (weft_lower(moves, n, rank, opts, &plans[rank]))
            fail_msg("rank %d: %s", rank, weft_errmsg());
        world = weft_plan_world(plans[rank]);
        assert_in_range(world, 1, RANKS);
        check_rank(plans[rank], rank, weft_plan_digest(plans[0]), &sum);
    }
    if (weft_plan_verify((const weft_plan *const *)plans, (size_t)world))
        fail_msg("%s", weft_errmsg());
    for (int rank = 0; rank < world; rank++)
        weft_plan_free(plans[rank]);
    assert_int_equal(sum.sent, sum.received);
    assert_int_equal(sum.sends, sum.recvs);
    assert_int_equal(sum.send_peers, sum.recv_peers);
    assert_int_equal(sum.sent, sum.stated);
    assert_true(sum.bound <= sum.stated);
}

static const int64_t buckets[] = {1, 32, 0};

static void each_pair_lowers_to_a_valid_plan(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        weft_layout *src = parse(pairs[i].src), *dst = parse(pairs[i].dst);
        print_message("%s -> %s\n", pairs[i].src, pairs[i].dst);
        for (int b = 0; b < 3; b++)
            for (int per_host = 0; per_host < 4; per_host += 3)
                check_moves(&(weft_move){"w", src, dst}, 1,
                            &(weft_lower_opts){
                                .size = sizeof(weft_lower_opts),
                                .bucket = buckets[b],
                                .machine = &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = per_host}});
        weft_layout_free(src);
        weft_layout_free(dst);
    }
}

/* Whatever can be forced, where it fits; each algorithm fits somewhere. */
static void each_algorithm_lowers_to_valid_plans(void **state)
{
    (void)state;
    const char *name;
    for (size_t a = 0; (name = weft_algorithm_name(a)); a++) {
        int fits = 0;
        for (int k = 0; k < 2 * PAIRS; k++) { /* on one host, on several */
            int i = k / 2;
            weft_layout *src = parse(pairs[i].src), *dst = parse(pairs[i].dst);
            weft_move move = {"w", src, dst};
            weft_lower_opts opts = {.size = sizeof opts,
                                    .algorithm = name,
                                    .machine =
                                        &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = k % 2 ? 3 : 0}};
            weft_plan *p = NULL;
            int err = weft_lower(&move, 1, 0, &opts, &p);
            assert_true(err == 0 || err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED);
            if (err == 0) {
                fits++;
                weft_plan_free(p);
                print_message("%s: %s -> %s\n", name, pairs[i].src, pairs[i].dst);
                for (int b = 0; b < 3; b++) {
                    opts.bucket = buckets[b];
                    check_moves(&move, 1, &opts);
                }
            }
            weft_layout_free(src);
            weft_layout_free(dst);
        }
        assert_true(fits > 0);
    }
}

/* All of them in one plan, on one host and on several: both ends of a channel order the parts of all tensors alike. */
static void all_pairs_lower_to_one_valid_plan(void **state)
{
    (void)state;
    weft_move moves[PAIRS];
    weft_layout *held[2 * PAIRS];
    char names[PAIRS][24];
    for (int i = 0; i < PAIRS; i++) {
        held[2 * i] = parse(pairs[i].src);
        held[2 * i + 1] = parse(pairs[i].dst);
        snprintf(names[i], sizeof names[i], "layer.%d", i);
        moves[i] = (weft_move){names[i], held[2 * i], held[2 * i + 1]};
    }
    for (int b = 0; b < 3; b++)
        for (int per_host = 0; per_host < 4; per_host += 3)
            check_moves(moves, PAIRS,
                        &(weft_lower_opts){
                            .size = sizeof(weft_lower_opts),
                            .bucket = buckets[b],
                            .machine = &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = per_host}});
    for (int i = 0; i < 2 * PAIRS; i++)
        weft_layout_free(held[i]);
}

/* Three sources send tensors of many sizes to replicas on another host, which pass on a third of each to one another.
 * The parts of the sources are then in another order than the tensors, at both ends of a channel. */
static void what_is_passed_on_has_the_same_order_at_both_ends(void **state)
{
    enum { MOVES = 12 };
    (void)state;
    weft_move moves[MOVES];
    weft_layout *held[MOVES], *to[MOVES];
    char names[MOVES][24];
    for (int i = 0; i < MOVES; i++) {
        char text[64];
        int n = 3000 + 7000 * i % 4500;
        snprintf(text, sizeof text, "u8[%d] @x1=%d", n, i * 3 / MOVES);
        held[i] = parse(text);
        snprintf(text, sizeof text, "u8[%d] @d3=3..5", n);
        to[i] = parse(text);
        snprintf(names[i], sizeof names[i], "layer.%d", i);
        moves[i] = (weft_move){names[i], held[i], to[i]};
    }
    for (int b = 0; b < 3; b++)
        check_moves(moves, MOVES,
                    &(weft_lower_opts){.size = sizeof(weft_lower_opts),
                                       .bucket = b ? 900 << b : 0,
                                       .machine = &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = 3}});
    for (int i = 0; i < MOVES; i++) {
        weft_layout_free(held[i]);
        weft_layout_free(to[i]);
    }
}

/* Each stage of halving has three steps (send, receive, fold) with five parts, and each stage of doubling two with two:
 * neighbouring slices go as one. */
static void doubling_grows_with_the_logarithm_of_the_group(void **state)
{
    (void)state;
    for (int stages = 2; stages <= 12; stages += 5) {
        int ranks = 1 << stages;
        char text[2][64];
        snprintf(text[0], sizeof text[0], "f32[2,8192] @x%d +sum(x)", ranks);
        snprintf(text[1], sizeof text[1], "f32[2,8192] @x%d", ranks);
        weft_layout *a = parse(text[0]), *b = parse(text[1]);
        for (int r = 0; r < ranks; r += ranks / 4 + 1) {
            weft_plan *p;
            weft_lower_opts o = {.size = sizeof o, .algorithm = "doubling"};
            assert_int_equal(weft_lower(&(weft_move){"w", a, b}, 1, r, &o, &p), 0);
            assert_int_equal(p->nsteps, 5 * stages);
            assert_int_equal(p->nparts, 7 * stages);
            assert_true(p->scratch <= 2 * 65536 + stages * 128);
            weft_plan_free(p);
        }
        weft_layout_free(a);
        weft_layout_free(b);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_pair_lowers_to_a_valid_plan),
                                       cmocka_unit_test(each_algorithm_lowers_to_valid_plans),
                                       cmocka_unit_test(all_pairs_lower_to_one_valid_plan),
                                       cmocka_unit_test(what_is_passed_on_has_the_same_order_at_both_ends),
                                       cmocka_unit_test(doubling_grows_with_the_logarithm_of_the_group)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
