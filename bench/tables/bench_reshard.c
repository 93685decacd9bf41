/* weft bench reshard: a tensor from one layout to another, against memcpy, the floor and what MPI has for it. */
#include <stdio.h>

#include "bench/harness/report.h"
#include "bench/tables/bench.h"
#include "tool/failure.h"
#include "tool/signals.h"

#define LEAST 262144 /* bytes: a square of 256 by 256 */
#define FULL ((int64_t)256 << 20)

enum shape { SQUARE, THIN, BOX }; /* n x n; n x 64; n x 64 x 64 */

/* Rows (the first dim) go to columns (the second). */
static const struct reshard {
    const char *name, *words; /* words: behind the sizes, in the table */
    enum shape shape;
    bool apart, casts, turned; /* see struct work_cell */
    int block;
    int from;        /* least number of ranks */
    double share;    /* aim for 256 MiB: share of memcpy; 0: none */
    double ratio[2]; /* aim: best peer over weft, on 2 and 4 ranks, or to 4 others */
} cases[] = {
    {"square", "rows to columns", SQUARE, false, false, false, 0, 1, 0.85, {2.5, 3}},
    {"thin", "rows to columns", THIN, false, false, false, 0, 1, 0, {2.5, 3.5}},
    {"square", "rows to columns, to others", SQUARE, true, false, false, 0, 8, 0.85, {3.5, 0}},
    {"thin", "rows to columns, to others", THIN, true, false, false, 0, 8, 0, {4, 0}},
    {"3d", "first to second dim", BOX, false, false, false, 0, 4, 0.7, {0, 0}},
    {"cast", "rows to columns, f32 to bf16", SQUARE, false, true, false, 0, 4, 0.7, {0, 0}},
    {"transpose", "rows to columns, transposed", SQUARE, false, false, true, 0, 4, 0.7, {0, 0}},
    {"cyclic", "rows to columns, blocks of 64", SQUARE, false, false, false, 64, 4, 0.7, {0, 0}},
};
enum { CASES = sizeof cases / sizeof *cases, ROWS_MAX = CASES * BENCH_SIZES_MAX };

/* More than four ranks reshard among themselves only if there are cores for them. Otherwise only cases in which half of
 * them send to the others are measured. */
static bool fits(const struct reshard *c, int ranks)
{
    return ranks >= c->from && (c->apart || ranks <= 4 || ranks <= work_cores());
}

static void set_aims(struct row *row, const struct reshard *c, int ranks, int64_t asked)
{
    bool same = !c->apart && (ranks == 2 || ranks == 4);
    if (asked != FULL || !(same || (c->apart && ranks == 8)))
        return;
    row->aim_share = c->share;
    row->aim_ratio = c->ratio[same && ranks == 4];
}

/* The side of the largest square with at most `floats` floats, a multiple of `step`; at least one step. */
static int64_t side_of(int64_t floats, int64_t step)
{
    int64_t side = step;
    while ((side + step) * (side + step) <= floats)
        side += step;
    return side;
}

static struct work_cell make_cell(const struct reshard *c, int ranks, int64_t bytes, char *label, size_t cap)
{
    struct work_cell cell = {.op = WORK_RESHARD,
                             .apart = c->apart,
                             .casts = c->casts,
                             .turned = c->turned,
                             .block = c->block,
                             .columns = c->shape == BOX ? 64 * 64 : 64};
    int k = c->apart ? ranks / 2 : ranks;
    long long n = c->shape == SQUARE ? side_of(bytes / 4, k > 4 ? 64 * k : 256)
                  : c->shape == THIN ? bytes / 4 / 64
                                     : bytes / 4 / 64 / 128;
    char block[16] = "", more[8] = "", others[16] = "";
    n -= n % k;
    cell.rows = n;
    if (c->shape == SQUARE)
        cell.columns = n;
    cell.bytes = cell.rows * cell.columns * 4;
    if (c->block)
        snprintf(block, sizeof block, ":%d", c->block);
    if (c->shape == BOX)
        snprintf(more, sizeof more, ",64");
    if (c->apart)
        snprintf(others, sizeof others, "=%d..%d", k, ranks - 1);
    long long second = c->shape == SQUARE ? n : 64;
    snprintf(cell.src, sizeof cell.src, "f32[%lld/x%s,%lld%s] @x%d", n, block, second, more, k);
    snprintf(cell.dst, sizeof cell.dst, "%s[%lld,%lld/x%s%s] @x%d%s", c->casts ? "bf16" : "f32", n, second, block, more,
             k, others);
    snprintf(label, cap, "%lldx%lld%s %s", n, second, c->shape == BOX ? "x64" : "", c->words);
    return cell;
}

/* Measures all cases on this number of ranks, with the same contenders. */
static int run_ranks(struct report *r, int ranks, struct failure *why)
{
    static struct contenders f;
    static struct work_cell cells[ROWS_MAX];
    static const struct reshard *list[ROWS_MAX];
    static int64_t asked[ROWS_MAX];
    const struct bench_options *o = r->options;
    int n = 0, workers = work_cores() < ranks ? work_cores() : ranks, code = CLI_OK;
    char label[64];
    for (int i = 0; i < CASES; i++)
        for (int s = 0; s < o->nsizes && fits(&cases[i], ranks) && bench_options_wants(o, cases[i].name); s++, n++) {
            cells[n] = make_cell(&cases[i], ranks, o->sizes[s], label, sizeof label);
            list[n] = &cases[i];
            asked[n] = o->sizes[s];
        }
    if (!n)
        return CLI_OK;
    bench_options_add_weft(o, &f, ranks);
    if (!o->nwithout) {
        contenders_add_floors(&f, ranks, o->weft.private_, cells, n);
        contenders_add_memory(&f, workers);
    }
    if (o->peers)
        contenders_peers_add(&f, ranks, NULL);
    for (int i = 0; i < n && !code; i++) {
        struct row row = {.ranks = ranks, .workers = workers};
        row.cell = make_cell(list[i], ranks, asked[i], row.label, sizeof row.label);
        set_aims(&row, list[i], ranks, asked[i]);
        code = report_measure(r, &f, &row, why);
    }
    report_out(r, &f, ranks);
    contenders_close(&f);
    return code;
}

int bench_reshard(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options("bench reshard",
                             "Measures how a tensor moves from one layout to another: square and thin (rows to "
                             "columns); with 4 ranks and more also 3d,\n"
                             "cast, transpose and cyclic; with 8 and more also square and thin from half of the ranks "
                             "to the other half. A size is that\n"
                             "of the tensor, 256 MiB (3d: half of it). Time is from the start of the first rank to the "
                             "end of the last one. Peers use\n"
                             "MPI_Alltoallw, and packing by hand with MPI_Alltoallv.",
                             "2,4,8", "256M", "square,thin,3d,cast,transpose,cyclic", argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "reshard", .options = &o, .remark = remarks_cases, .bars = true};
    struct failure why = {0};
    for (int i = 0; i < o.nsizes && !code; i++)
        if (o.sizes[i] < LEAST)
            code = failure_set(&why, CLI_BAD, "--sizes takes tensors of 256K and more");
    for (int i = 0; i < o.nranks && !code; i++)
        if (64 % o.ranks[i] || o.ranks[i] > 16)
            code = failure_set(&why, CLI_BAD, "-n takes 1, 2, 4, 8 and 16 ranks");
    if (code)
        return failure_print(&why, "bench reshard");
    signals_watch();
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_ranks(&r, o.ranks[i], &why);
    return report_end(&r, code, &why);
}
