/* Runs that write so much that their stores go past the caches, those of rows as well where the processor gains by it:
 * pieces and rows that are whole cache lines, rows that
 * begin anywhere, rows of several senders, casts to wider dtypes in one piece and in rows, and halos. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/exec.h"
#include "engine_model.h"
#include "memory/past.h"
#include "support/conformance.h"
#include "support/suite.h"

#define WINDOWS 0xffffffff
#define MUCH (8 << 20) /* bytes that a rank writes */

/* Each rank of one side at least writes 8 MiB. */
static const struct large {
    int ranks;
    struct pair pair;
} cases[] = {
    {2, {"f32[4200000] @x1", "f32[4200000] @x2", WINDOWS}},
    {2, {"u8[8500003/x] @x2", "u8[8500003] @x2", WINDOWS}},
    {2, {"f32[9000/x,512] @x2", "f32[9000,512/x] @x2", WINDOWS}},
    {3, {"bf16[20001/x,768] @x3", "bf16[20001,768/x] @x3", WINDOWS}},
    {2, {"f32[4100/x,1031] @x2", "f32[4100,1031/x] @x2", WINDOWS}},
    {2, {"u8[1500/x,11003] @x2", "u8[1500,11003/x] @x2", WINDOWS}},
    {4, {"i16[4100,4100/x] @x2", "i16[4100/x,4100] @x2=2,3", WINDOWS}},
    {3, {"f32[40,300/x,700] @x3", "f32[40/x,300,700] @x3", WINDOWS}},
    {2, {"bf16[4400000/x] @x2", "f32[4400000/x] @x2=1,0", WINDOWS}},
    {2, {"f16[4300/x,1030] @x2", "f32[4300,1030/x] @x2", WINDOWS}},
    {2, {"i8[1100/x,2048] @x2", "i64[1100,2048/x] @x2", WINDOWS}},
    {2, {"f32[2200001] @x2", "f64[2200001] @x2=1,0", 0}},
    {2, {"f32[4400/x,1024] @x2", "f32[4400/x~60,1024] @x2", WINDOWS}},
};

static void run_large(struct ranks_rank *r)
{
    const struct large *l = r->arg;
    struct model m;
    RANKS_OK(r, model_make(&m, r, &l->pair, 1, &(weft_lower_opts){.bucket = 0}));
    RANKS_CHECK(r, m.exec->program->past || m.out[0].bytes < MUCH);
    model_fill(&m, 1);
    RANKS_OK(r, weft_exec_run(m.exec));
    int64_t wrong = model_wrong(&m, 1);
    if (wrong)
        ranks_note(r, __FILE__, __LINE__, "%s -> %s: %lld elements are wrong", l->pair.src, l->pair.dst,
                   (long long)wrong);
    ranks_meet(r);
    model_free(&m);
}

/* All of them as on processors that write several rows past the caches at once, and some as on others. */
static void large_runs_move_every_element(void **state)
{
    (void)state;
    for (int many = 1; many >= 0; many--) {
        past_assume(many);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i += many ? 1 : 5)
            ranks_run(cases[i].ranks, NULL, run_large, (void *)(uintptr_t)&cases[i], NULL);
    }
    past_assume(-1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_runs_move_every_element)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
