/* weft bench reshard: a tensor from one layout to another, against memcpy, the floor and what MPI has for it. */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_report.h"

enum shape { SQUARE, THIN, BOX }; /* n x n; n x 64; n x 64 x 64 */

/* Rows (the first dim) go to columns (the second). */
static const struct reshard {
    const char *name, *words; /* words: behind the sizes, in the table */
    enum shape shape;
    int ranks;
    bool apart, casts, turned; /* see struct work_cell */
    int block;
    double share, ratio; /* aimed at for 256 MiB: of memcpy, best peer over weft; 0: none */
} cases[] = {
    {"square", "rows to columns", SQUARE, 2, false, false, false, 0, 0.85, 2.5},
    {"square", "rows to columns", SQUARE, 4, false, false, false, 0, 0.85, 3},
    {"square", "rows to columns, 4 others", SQUARE, 8, true, false, false, 0, 0.85, 3.5},
    {"thin", "rows to columns", THIN, 2, false, false, false, 0, 0, 2.5},
    {"thin", "rows to columns", THIN, 4, false, false, false, 0, 0, 3.5},
    {"thin", "rows to columns, 4 others", THIN, 8, true, false, false, 0, 0, 4},
    {"3d", "first to second dim", BOX, 4, false, false, false, 0, 0.7, 0},
    {"cast", "rows to columns, f32 to bf16", SQUARE, 4, false, true, false, 0, 0.7, 0},
    {"transpose", "rows to columns, transposed", SQUARE, 4, false, false, true, 0, 0.7, 0},
    {"cyclic", "rows to columns, blocks of 64", SQUARE, 4, false, false, false, 64, 0.7, 0},
};
enum { CASES = sizeof cases / sizeof *cases, ROWS_MAX = CASES * BENCH_SIZES_MAX };

#define STEP 256     /* a square's side is a multiple of it: four ranks, blocks of 64 */
#define LEAST 262144 /* bytes: the smallest square */
#define FULL ((int64_t)256 << 20)

/* The largest square with sides in steps, in at most so many floats. */
static int64_t side_of(int64_t floats)
{
    int64_t side = STEP;
    while ((side + STEP) * (side + STEP) <= floats)
        side += STEP;
    return side;
}

static struct work_cell make_cell(const struct reshard *c, int64_t bytes, char *label, size_t cap)
{
    struct work_cell cell = {.op = WORK_RESHARD,
                             .apart = c->apart,
                             .casts = c->casts,
                             .turned = c->turned,
                             .block = c->block,
                             .columns = c->shape == BOX ? 64 * 64 : 64};
    long long n = c->shape == SQUARE ? side_of(bytes / 4) : c->shape == THIN ? bytes / 4 / 64 : bytes / 4 / 64 / 128;
    int k = c->apart ? c->ranks / 2 : c->ranks;
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
        snprintf(others, sizeof others, "=%d..%d", k, c->ranks - 1);
    long long second = c->shape == SQUARE ? n : 64;
    snprintf(cell.src, sizeof cell.src, "f32[%lld/x%s,%lld%s] @x%d", n, block, second, more, k);
    snprintf(cell.dst, sizeof cell.dst, "%s[%lld,%lld/x%s%s] @x%d%s", c->casts ? "bf16" : "f32", n, second, block, more,
             k, others);
    snprintf(label, cap, "%lldx%lld%s %s", n, second, c->shape == BOX ? "x64" : "", c->words);
    return cell;
}

/* All cases on so many ranks, on one field. */
static int run_ranks(struct report *r, int ranks, struct failure *why)
{
    static struct field f;
    static struct work_cell cells[ROWS_MAX];
    static const struct reshard *list[ROWS_MAX];
    static int64_t asked[ROWS_MAX];
    const struct bench_options *o = r->options;
    int n = 0, workers = work_cores() < ranks ? work_cores() : ranks, code = CLI_OK;
    char label[64];
    for (int i = 0; i < CASES; i++)
        for (int s = 0; s < o->nsizes && cases[i].ranks == ranks && bench_wants(o, cases[i].name); s++, n++) {
            cells[n] = make_cell(&cases[i], o->sizes[s], label, sizeof label);
            list[n] = &cases[i];
            asked[n] = o->sizes[s];
        }
    if (!n)
        return CLI_OK;
    field_add_weft(&f, &o->weft, ranks);
    field_add_floors(&f, ranks, o->weft.private_, cells, n);
    field_add_memory(&f, workers);
    if (o->peers)
        field_add_peers(&f, ranks);
    for (int i = 0; i < n && !code; i++) {
        struct row *row = report_add(r);
        if (!row) {
            code = failure_set(why, CLI_WRONG, "out of memory");
            break;
        }
        row->cell = make_cell(list[i], asked[i], row->label, sizeof row->label);
        row->aim_share = asked[i] == FULL ? list[i]->share : 0;
        row->aim_ratio = asked[i] == FULL ? list[i]->ratio : 0;
        row->ranks = ranks;
        row->workers = workers;
        code = measure_row(&f, &o->measure, row, why);
        if (!code && *row->refused)
            code = report_refused(r, why);
        else if (!code)
            report_row(r);
    }
    report_out(r, &f, ranks);
    field_close(&f);
    return code;
}

int bench_reshard(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options(
        "bench reshard",
        "A tensor from one layout to another: square and thin (rows to columns, on 2 and 4 ranks and from 4\n"
        "to 4 others: -n 8), 3d, cast, transpose and cyclic; --only names some. A size is that of the tensor,\n"
        "256 MiB (3d: half of it). Time is from the first rank's start to the last one's end. Peers: MPI_Alltoallw, "
        "and packing by hand with MPI_Alltoallv.",
        "2,4,8", "256M", argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "reshard", .options = &o, .remark = remark_cases, .bars = true};
    struct failure why = {0};
    for (int i = 0; i < o.nsizes; i++)
        if (o.sizes[i] < LEAST) {
            failure_set(&why, CLI_BAD, "--sizes takes tensors of 256K and more");
            return failure_print(&why, "bench reshard");
        }
    report_begin(&r);
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_ranks(&r, o.ranks[i], &why);
    return report_end(&r, code, &why);
}
