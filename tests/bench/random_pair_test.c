/* The random pairs of weft bench pairs: the same number gives the same pair, nearly all of them can be lowered, they
 * reach all of the notation, and the bytes that a pair has to move are those of known pairs. */
#include <string.h>

#include "bench/work/random_pair.h"
#include "support/suite.h"

enum { PAIRS = 400 };

static int lower(const struct random_pair *p, struct random_pair_facts *f)
{
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    int err = weft_layout_parse(p->src, &src);
    if (!err)
        err = weft_layout_parse(p->dst, &dst);
    if (!err)
        err = random_pair_facts(src, dst, f);
    if (!err)
        err = weft_lower(&(weft_move){"t", src, dst}, 1, 0, NULL, &plan);
    weft_plan_free(plan);
    weft_layout_free(src);
    weft_layout_free(dst);
    return err;
}

static void random_pairs_can_be_lowered(void **state)
{
    int refused = 0, complex = 0, scales = 0, saturating = 0, casts = 0, folds = 0, cyclic = 0, ghosts = 0, apart = 0,
        uneven = 0;
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        struct random_pair p = random_pair(7, i, 1 << 16, 8), again = random_pair(7, i, 1 << 16, 8);
        struct random_pair_facts f = {0};
        assert_string_equal(p.src, again.src);
        assert_string_equal(p.dst, again.dst);
        if (lower(&p, &f)) {
            print_message("%s -> %s: %s\n", p.src, p.dst, weft_errmsg());
            refused++;
            continue;
        }
        assert_true(f.ranks >= 2 && f.ranks <= 8 && f.moved >= 1 << 16 && f.run[0] > 0 && f.run[1] > 0);
        complex += p.dst[0] == 'c';
        scales += strncmp(p.dst, "f8e8m0", 6) == 0;
        saturating += strstr(p.dst, "sat[") != NULL;
        casts += f.casts;
        folds += f.folds;
        cyclic += f.cyclic;
        ghosts += f.ghosts;
        apart += f.apart;
        uneven += f.uneven;
    }
    assert_true(refused <= PAIRS / 10);
    assert_true(complex > PAIRS / 100 && scales > PAIRS / 100 && saturating > PAIRS / 100);
    assert_true(casts > PAIRS / 10 && folds > PAIRS / 20 && cyclic > PAIRS / 20 && ghosts > PAIRS / 50 &&
                apart > PAIRS / 20 && uneven > PAIRS / 10);
}

static void bytes_of_known_pairs(void **state)
{
    static const struct {
        struct random_pair pair;
        double moved;
    } known[] = {
        {{"f32[64/x] @x4", "f32[64/x] @x4"}, 64 * 8},             /* read and written once */
        {{"f32[64/x] @x4", "bf16[64/x] @x4"}, 64 * 6},            /* a cast */
        {{"f32[64/x] @x4", "f32[64] @x4"}, 4 * 64 * 8},           /* each copy is read */
        {{"f32[64/x] @x4", "bf16[64] @x4"}, 64 * 6 + 3 * 64 * 4}, /* the other copies are read as bf16 */
        {{"f32[64] @x4 +sum(x)", "f32[64/x] @x4"}, 64 * 4 * 5},   /* four terms, one result */
        {{"f32[64] @x4 +sum(x)", "f32[64] @x4"}, 64 * 4 * 5 + 3 * 64 * 8} /* and three copies of it */,
        {{"f32[64] @x2", "f32[64/x] @x2"}, 64 * 8}, /* one of the replicas is read */
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct random_pair_facts f = {0};
        assert_int_equal(lower(&known[i].pair, &f), 0);
        if (f.moved != known[i].moved)
            fail_msg("%s -> %s: %g bytes, not %g", known[i].pair.src, known[i].pair.dst, f.moved, known[i].moved);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs_can_be_lowered),
                                       cmocka_unit_test(bytes_of_known_pairs)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
