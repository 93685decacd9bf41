/* Rows to columns with a destination in the order of its columns, in many buckets, the last ones smaller: pulls that go
 * on where others end. Some runs start when peers have long sent, some when they are about to. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/conformance.h"
#include "support/suite.h"

static void run_transposed(struct ranks_rank *r)
{
    enum { RANKS = 4, R = 130 * RANKS, W = 96, C = W * RANKS, RUNS = 6 };
    const struct {
        int64_t bucket, pad;
    } cases[] = {{8192, 0}, {20000, 3}, {6000, 0}};
    weft_layout *a, *b;
    RANKS_OK(r, weft_layout_parse("i32[520/x,384] @x4", &a));
    RANKS_OK(r, weft_layout_parse("i32[520,384/x] @x4", &b));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t column = R + cases[k].pad;
        const int64_t strides[2] = {4, column * 4};
        weft_lower_opts opts = {.size = sizeof opts, .world = RANKS, .bucket = cases[k].bucket};
        size_t in_bytes = (size_t)R / RANKS * C * 4, out_bytes = (size_t)column * W * 4;
        void *in = NULL, *out = NULL;
        weft_plan *p;
        weft_exec *x;
        RANKS_OK(r, weft_comm_alloc(r->comm, in_bytes, WEFT_MEMORY_HOST, 0, &in));
        RANKS_OK(r, weft_comm_alloc(r->comm, out_bytes, WEFT_MEMORY_HOST, 0, &out));
        RANKS_OK(r, weft_lower(&(weft_move){"t", a, b}, 1, r->rank, &opts, &p));
        weft_view from = WEFT_VIEW(in, in_bytes), to = {.data = out, .bytes = out_bytes, .strides = strides};
        RANKS_OK(r, weft_bind(p, r->comm, &from, &to, NULL, &x));
        for (int run = 0; run < RUNS; run++) {
            for (int i = 0; i < R / RANKS * C; i++)
                ((int32_t *)in)[i] = (run << 24) + (r->rank * (R / RANKS) + i / C) * C + i % C;
            memset(out, 0x11, out_bytes);
            if (run % 2)
                RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
            RANKS_OK(r, weft_exec_run(x));
            values_begin();
            for (int64_t i = 0; i < column * W; i++) {
                int64_t row = i % column, col = r->rank * W + i / column;
                VALUES_CHECK(row * C + col, ((int32_t *)out)[i], row < R ? (run << 24) + row * C + col : 0x11111111);
            }
            RANKS_VALUES(r);
        }
        weft_exec_close(x);
        weft_plan_free(p);
        weft_comm_free(r->comm, in);
        weft_comm_free(r->comm, out);
    }
    weft_layout_free(a);
    weft_layout_free(b);
}

static void transposed_buckets_are_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_transposed, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_transposed, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposed_buckets_are_right),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
