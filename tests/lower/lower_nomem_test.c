/* Memory that runs out while a plan is made: every allocation of lowering fails once. Then it says so, leaves its
 * output alone and leaks nothing (the sanitizer build looks); a plan that is made is the one that there would have
 * been. */
#include <stddef.h>
#include <stdint.h>

#include "support/nomem.h"
#include "support/pairs.h"
#include "support/suite.h"
#include "weft.h"

static weft_layout *parse(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

/* How many allocations there are. */
static long exhaust(const weft_move *m, int rank, const weft_lower_opts *o, const weft_plan *want)
{
    for (long n = 0;; n++) {
        weft_plan *p = NULL;
        nomem_until = n;
        int err = weft_lower(m, 1, rank, o, &p);
        bool reached = nomem_until < 0;
        nomem_until = -1;
        assert_int_equal(err, reached ? WEFT_ENOMEM : 0);
        assert_int_equal(p == NULL, reached);
        if (!reached)
            assert_true(weft_plan_equal(p, want));
        weft_plan_free(p);
        if (!reached)
            return n;
    }
}

/* Large enough that working memory is asked for again and again, to the end. */
static const struct {
    const char *src, *dst;
} large[] = {
    {"f32[64/x,64,7] @x64", "f32[64,64/x,7] @x64"},
    {"f16[4096] @x32.y4 +sum(x)", "f16[4096] @x32.y4"},
    {"f16[4096] @x32.y4 +sum(x)", "f16[4096/x] @x32.y4"},
    {"bf16[999/x:3] @x33", "f32[999] @x33"},
    {"f16[4096] @x60 +avg(x)", "f32[4096] @x1=61"},
    {"f32[4096/x] @x16.y8", "f32[4096] @x16.y8"},
    {"bf16[96,40/x] @x4.y2", "f8e4m3[96/x,40] @x4.y2 *f32(32,32)"},
    {"f8e4m3[96/x,40] @x4 *f32(32,32)", "f16[96,40/x] @x4"},
};
enum { LARGE = sizeof large / sizeof *large };

/* Each pair by each algorithm that takes it, on one host and on several. */
static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    long calls = 0, made = 0;
    for (size_t i = 0; i < PAIRS + LARGE; i++) {
        weft_layout *src = parse(i < PAIRS ? pairs[i].src : large[i - PAIRS].src);
        weft_layout *dst = parse(i < PAIRS ? pairs[i].dst : large[i - PAIRS].dst);
        weft_move m = {"w", src, dst};
        int last = weft_layout_ranks(src) > weft_layout_ranks(dst) ? weft_layout_ranks(src) : weft_layout_ranks(dst);
        for (size_t k = 0; weft_algorithm_name(k / 2); k++)
            for (int rank = 0; rank < last; rank += rank == 0 && last > 2 ? last / 2 : last) {
                weft_lower_opts o = {.size = sizeof o, .algorithm = weft_algorithm_name(k / 2)};
                o.machine = &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = k % 2 ? 2 : 0};
                o.in_place = i % 2;
                o.bucket = i < PAIRS ? 64 : 1024;
                weft_plan *want = NULL;
                if (weft_lower(&m, 1, rank, &o, &want))
                    continue;
                calls += exhaust(&m, rank, &o, want);
                made++;
                weft_plan_free(want);
            }
        weft_layout_free(src);
        weft_layout_free(dst);
    }
    print_message("%ld allocations of %ld plans\n", calls, made);
    assert_true(calls > 10 * made && made > 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_reported)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
