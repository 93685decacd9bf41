/* weft bench reshard: a tensor from one layout to another, against memcpy, the floor and what MPI has for it. */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_report.h"

#define MIB(n) ((int64_t)(n) << 20)

static const struct reshard {
    const char *name, *label;
    int ranks;
    struct work_cell cell;
} cases[] = {
#define ROWS(r, c, n, d, ap)                                                                                           \
    {                                                                                                                  \
        .op = WORK_RESHARD, .bytes = (int64_t)(r) * (c)*4, .landed = (int64_t)(r) * (c)*4, .rows = (r), .columns = (c),  \
        .apart = (ap), .src = "f32[" #r "/x," #c "] @x" #n, .dst = "f32[" #r "," #c "/x] @x" #n d                       \
    }
    {"square", "8192x8192 rows to columns", 2, ROWS(8192, 8192, 2, "", false)},
    {"square", "8192x8192 rows to columns", 4, ROWS(8192, 8192, 4, "", false)},
    {"square", "8192x8192 rows to columns, 4 others", 8, ROWS(8192, 8192, 4, "=4..7", true)},
    {"thin", "1048576x64 rows to columns", 2, ROWS(1048576, 64, 2, "", false)},
    {"thin", "1048576x64 rows to columns", 4, ROWS(1048576, 64, 4, "", false)},
    {"thin", "1048576x64 rows to columns, 4 others", 8, ROWS(1048576, 64, 4, "=4..7", true)},
    {"3d",
     "8192x64x64, first to second dim",
     4,
     {.op = WORK_RESHARD, .bytes = MIB(128), .landed = MIB(128), .rows = 8192, .columns = 4096, .src = "f32[8192/x,64,64] @x4",
      .dst = "f32[8192,64/x,64] @x4"}},
    {"cast",
     "8192x8192 rows to columns, f32 to bf16",
     4,
     {.op = WORK_RESHARD, .bytes = MIB(256), .landed = MIB(128), .src = "f32[8192/x,8192] @x4", .dst = "bf16[8192,8192/x] @x4"}},
    {"transpose",
     "8192x8192 rows to columns, transposed",
     4,
     {.op = WORK_RESHARD, .bytes = MIB(256), .landed = MIB(256), .turned = true, .src = "f32[8192/x,8192] @x4",
      .dst = "f32[8192,8192/x] @x4"}},
    {"cyclic",
     "8192x8192 rows to columns, blocks of 64",
     4,
     {.op = WORK_RESHARD, .bytes = MIB(256), .landed = MIB(256), .src = "f32[8192/x:64,8192] @x4",
      .dst = "f32[8192,8192/x:64] @x4"}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* All cases on so many ranks, on one field. */
static int run_ranks(struct report *r, int ranks, struct failure *why)
{
    static struct field f;
    const struct bench_options *o = r->options;
    struct work_cell cells[CASES];
    const char *labels[CASES];
    int n = 0, workers = work_cores() < ranks ? work_cores() : ranks, code = CLI_OK;
    for (int i = 0; i < CASES; i++)
        if (cases[i].ranks == ranks && bench_wants(o, cases[i].name)) {
            labels[n] = cases[i].label;
            cells[n++] = cases[i].cell;
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
        progress("cases", i, n);
        if (!row) {
            code = failure_set(why, CLI_WRONG, "out of memory");
            break;
        }
        row->label = labels[i];
        row->cell = cells[i];
        row->ranks = ranks;
        row->workers = workers;
        code = measure_row(&f, &o->measure, row, why);
        if (!code)
            report_row(r);
    }
    report_out(r, &f, ranks);
    field_close(&f);
    return code;
}

int bench_reshard(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options("bench reshard",
                             "A tensor from one layout to another: square and thin (rows to columns, on 2 and 4 ranks and from 4\n"
                             "to 4 others), 3d, cast, transpose and cyclic; --only names some. Time is from the first rank's start\n"
                             "to the last one's end. Peers: MPI_Alltoallw, and packing by hand with MPI_Alltoallv.",
                             "2,4,8", "256M", argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "reshard", .options = &o};
    struct failure why = {0};
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_ranks(&r, o.ranks[i], &why);
    progress_end();
    if (code)
        failure_print(&why, "bench reshard");
    int end = report_end(&r);
    return code ? code : end;
}
