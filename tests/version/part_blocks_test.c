/* Which blocks a holder gives: each to one host, in their order, however many threads ask. */
#include "version/part_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define BLOCKS 300
#define RUN 8

static struct schema_place place = {.bytes = BLOCKS * SCHEMA_BLOCK};
static const struct schema_part part = {.v = &place, .n = 1, .bytes = BLOCKS * SCHEMA_BLOCK, .blocks = BLOCKS};
static uint32_t who[BLOCKS], list[PART_BLOCKS_LIST];
static struct part_blocks_given given = {.who = who};

struct asker {
    unsigned char wanted[BLOCKS / 8 + 1];
    size_t left;
};

/* All blocks, or those of every `of`th run. */
static void want(struct asker *a, size_t share, size_t of)
{
    memset(a, 0, sizeof *a);
    for (size_t b = 0; b < BLOCKS; b++)
        if (b / RUN % of == share) {
            part_blocks_set(a->wanted, b);
            a->left++;
        }
}

static size_t ask(struct asker *a, uint64_t host, size_t blocks, uint32_t flags, uint64_t lost)
{
    struct part_link_message m = {.count = BLOCKS,
                                  .who = host << 40,
                                  .lost = lost << 40,
                                  .flags = flags,
                                  .most = (uint32_t)(blocks * SCHEMA_BLOCK)};
    size_t n = part_blocks_choose(&given, &part, NULL, &m, a->wanted, true, list);
    for (size_t i = 0; i < n; i++) {
        assert_true(part_blocks_bit(a->wanted, list[i]));
        assert_true(given.several || !i || list[i] > list[i - 1]);
        a->wanted[list[i] / 8] &= (unsigned char)~(1 << list[i] % 8);
        a->left--;
    }
    return n;
}

static void threads_of_a_host_get_the_first_blocks_first(void **state)
{
    (void)state;
    struct asker a[2];
    part_blocks_forget(&given, BLOCKS);
    want(&a[0], 0, 2);
    want(&a[1], 1, 2);
    for (size_t round = 0; a[0].left + a[1].left; round++)
        for (size_t k = 0; k < 2; k++) {
            size_t n = ask(&a[k], 1, RUN, 0, 0);
            assert_int_equal(n ? list[0] : BLOCKS, n ? (2 * round + k) * RUN : BLOCKS);
        }
}

static void each_block_goes_to_one_host(void **state)
{
    (void)state;
    for (int64_t number = 0; number < test_share(50, 500); number++) {
        struct random r = random_of(0xb10c5, number);
        struct asker a[4];
        size_t all = 0, hosts = (size_t)random_in(&r, 1, 4), dry = 0;
        part_blocks_forget(&given, BLOCKS);
        for (size_t k = 0; k < hosts; k++)
            want(&a[k], 0, 1);
        while (dry < 200) {
            size_t k = (size_t)random_in(&r, 0, (int64_t)hosts - 1), n = ask(&a[k], k + 1, 7, 0, 0);
            size_t back = n ? (size_t)random_in(&r, 0, (int64_t)n - 1) : 0;
            for (size_t i = n - back; i < n; i++) { /* they did not fit the reply */
                part_blocks_set(a[k].wanted, list[i]);
                a[k].left++;
            }
            part_blocks_return(&given, list + (n - back), back);
            all += n - back;
            dry = n ? 0 : dry + 1;
        }
        assert_int_equal(all, BLOCKS);
        if (hosts > 1) {
            struct asker *x = &a[0];
            size_t lost = BLOCKS - a[1].left, before = x->left;
            while (ask(x, 1, 7, 0, 2)) /* the second host is lost, with what it had */
                ;
            assert_int_equal(before - x->left, lost);
            while (ask(x, 1, 7, PART_LINK_INSIST, 0))
                ;
            assert_int_equal(x->left, 0);
        }
    }
}

/* Whole blocks stay where they are: the reply has their heads, and blocks that follow one another are one run. */
static void whole_blocks_stay_where_they_are(void **state)
{
    (void)state;
    static const unsigned char memory[1];
    const uint32_t blocks[] = {3, 4, 5, 9, 8, 299, 0};
    const struct part_blocks_from from = {NULL, &part, .data = memory};
    struct part_link_message m = {.most = 6 * SCHEMA_BLOCK};
    struct part_blocks_runs runs;
    size_t n = sizeof blocks / sizeof *blocks, size;
    unsigned char *heads = part_blocks_pack(&from, &m, blocks, &n, &size, &runs);
    assert_int_equal(n, 6); /* the last one does not fit */
    assert_int_equal(size, n * sizeof(struct part_link_block));
    for (size_t i = 0; i < n; i++) {
        struct part_link_block head;
        memcpy(&head, heads + i * sizeof head, sizeof head);
        assert_int_equal(head.block, blocks[i]);
        assert_int_equal(head.bytes, SCHEMA_BLOCK);
    }
    const size_t firsts[] = {3, 9, 8, 299}, counts[] = {3, 1, 1, 1};
    assert_int_equal(runs.n, 4);
    assert_int_equal(runs.bytes, 6 * SCHEMA_BLOCK);
    for (size_t i = 0; i < runs.n; i++) {
        assert_int_equal((uintptr_t)runs.v[i].at - (uintptr_t)memory, firsts[i] * SCHEMA_BLOCK);
        assert_int_equal(runs.v[i].bytes, counts[i] * SCHEMA_BLOCK);
    }
    free(heads);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_of_a_host_get_the_first_blocks_first),
                                       cmocka_unit_test(each_block_goes_to_one_host),
                                       cmocka_unit_test(whole_blocks_stay_where_they_are)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
