/* How an assisted pull is cut: the pieces of a move, copied in any order, write what the whole move writes, and each
 * element once. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ways/assist.h"
#include "engine/work.h"
#include "support/random.h"
#include "support/suite.h"

enum { CASES = 2000, BYTES = 1 << 19 /* of a side */ };

/* A move with up to three loops whose elements do not overlap: dense, in rows, transposed, or one piece without a tile.
 */
static struct exec_move random_move(struct random *r, struct memory_tile *t, char *dst, const char *src)
{
    static const uint8_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_U8, WEFT_F64};
    struct exec_move m = {.dst = dst, .src = src, .to = dtypes[random_in(r, 0, 3)], .from = dtypes[random_in(r, 0, 3)]};
    int64_t size[2] = {(int64_t)weft_dtype_size(m.to), (int64_t)weft_dtype_size(m.from)}, count = 1;
    if (random_once_in(r, 4)) {
        m.to = m.from = WEFT_U8;
        m.bytes = random_in(r, 1, BYTES / 2);
        return m;
    }
    *t = (struct memory_tile){.loops = (int)random_in(r, 0, 3)};
    for (int i = 0; i < t->loops; i++) {
        t->n[i] = random_in(r, 2, i ? 60 : 12);
        count *= t->n[i];
    }
    bool turned = random_once_in(r, 3);
    for (int k = 0; k < 2; k++) { /* side 1 is walked in the opposite order if it is turned */
        int64_t step = size[k];
        for (int i = 0; i < t->loops; i++) {
            int loop = k && turned ? i : t->loops - 1 - i;
            t->stride[k][loop] = step;
            step *= t->n[loop] + (random_once_in(r, 2) ? random_in(r, 0, 2) : 0);
        }
    }
    m.tile = t;
    m.bytes = count * size[0];
    return m;
}

static void pieces_write_what_the_move_writes(void **state)
{
    char *src = malloc(BYTES), *whole = malloc(BYTES), *parts = malloc(BYTES);
    (void)state;
    assert_true(src && whole && parts);
    for (int k = 0; k < BYTES; k++)
        src[k] = (char)(k * 7 % 61);
    for (int64_t i = 0; i < CASES; i++) {
        struct random r = random_of(1515, i);
        struct memory_tile t;
        struct exec_move m = random_move(&r, &t, parts, src);
        struct assist_cut c = assist_cut(&m, random_in(&r, 1, m.bytes));
        int64_t copied = 0, *order = malloc((size_t)c.n * sizeof *order);
        assert_non_null(order);
        memset(whole, 0x55, BYTES);
        memset(parts, 0x55, BYTES);
        work_move(&m, whole, src);
        for (int64_t k = 0; k < c.n; k++) {
            int64_t other = random_in(&r, 0, k);
            order[k] = order[other];
            order[other] = k;
        }
        for (int64_t k = 0; k < c.n; k++)
            copied += assist_copy(&m, &c, order[k]);
        free(order);
        if (memcmp(whole, parts, BYTES))
            fail_msg("case %lld: %lld pieces of loop %d differ from the whole", (long long)i, (long long)c.n, c.loop);
        assert_true(copied == m.bytes); /* so no piece was copied twice */
    }
    free(src);
    free(whole);
    free(parts);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_write_what_the_move_writes)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
