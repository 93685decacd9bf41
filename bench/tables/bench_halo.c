/* weft bench halo: ghosts of a grid in one, two and three dims, in place, and messages of unknown size, beside what MPI
 * has for them. */
#include <string.h>

#include "bench/harness/report.h"
#include "bench/tables/bench.h"
#include "bench/work/grid.h"
#include "tool/failure.h"
#include "tool/signals.h"

#define MOST (4 << 20) /* bytes of a face: ghosts are then as wide as the cells */

enum { SQUARE = 1024, CUBE = 128 }; /* cells along a side, at most */

static const struct shape {
    const char *name, *label;
    int dims;  /* 0: messages of unknown size in a row of ranks, no grid */
    bool last; /* the last dim alone is cut: cells of its faces are far apart */
} shapes[] = {{"1d", "1d", 1, false},
              {"2d", "2d", 2, false},
              {"3d", "3d", 3, false},
              {"x", "3d x faces", 3, true},
              {"exchange", "exchange", 0, false}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The largest side, up to `most`, whose square has at most that number of floats. */
static int64_t side_of(int64_t floats, int64_t most)
{
    int64_t side = 1;
    while (side < most && (side + 1) * (side + 1) <= floats)
        side++;
    return side;
}

/* Sides grow with the face until they have reached their limit; from there on ghosts get wider. */
static struct work_cell make_cell(const struct shape *s, int ranks, int64_t bytes)
{
    struct work_cell c = {.op = WORK_GRID, .grid.dims = s->dims};
    int64_t floats = bytes < 4 ? 1 : bytes / 4;
    if (!s->dims)
        return (struct work_cell){.op = WORK_EXCHANGE, .bytes = floats * 4};
    int64_t side = s->dims == 1 ? 1 : s->dims == 3 ? side_of(floats, CUBE) : floats < SQUARE ? floats : SQUARE;
    int64_t face = s->dims == 3 ? side * side : side, wide = floats / face;
    grid_deal(s->last ? 1 : ranks, s->dims, c.grid.ranks);
    for (int d = 0; d < s->dims; d++) {
        c.grid.own[d] = s->dims == 1 ? 2 * floats : side;
        c.grid.wide[d] = s->last && d < s->dims - 1 ? 0 : wide;
    }
    if (s->last)
        c.grid.ranks[s->dims - 1] = ranks;
    c.bytes = face * wide * 4;
    return c;
}

static int run_ranks(struct report *r, int ranks, struct failure *why)
{
    static struct contenders f;
    const struct bench_options *o = r->options;
    int code = CLI_OK;
    bench_options_add_weft(o, &f, ranks);
    if (o->peers && !contenders_peers_add(&f, ranks, NULL) && !r->n)
        fputs("weft bench: no MPI library was found when this was built, or its launcher is not there\n", stderr);
    for (int i = 0; i < SHAPES; i++)
        for (int s = 0; s < o->nsizes && bench_options_wants(o, shapes[i].name) && !code; s++) {
            struct row row = {.cell = make_cell(&shapes[i], ranks, o->sizes[s]), .ranks = ranks, .workers = 1};
            snprintf(row.label, sizeof row.label, "%s", shapes[i].label);
            code = report_measure(r, &f, &row, why);
        }
    report_out(r, &f, ranks);
    contenders_close(&f);
    return code;
}

int bench_halo(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options("bench halo",
                             "Measures how the ghosts around the cells of each rank are filled in place, corners "
                             "included: 1d, 2d and 3d grids, and x,\n"
                             "the faces of a 3-d array across its rows, whose cells are far apart. A size is that of "
                             "one face (in 3-d the nearest square\n"
                             "below it). Peers use MPI_Neighbor_alltoallw, and persistent requests with derived "
                             "datatypes to all neighbours at once and\n"
                             "dim by dim; the best counts. exchange is a message to each neighbour whose size only its "
                             "sender knows; peers use\n"
                             "MPI_Isend, MPI_Probe and MPI_Recv.",
                             "2,4,8", "64,4K,64K,1M", "1d,2d,3d,x,exchange", argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "halo", .options = &o, .remark = remarks_halos};
    struct failure why = {0};
    for (int i = 0; i < o.nsizes; i++)
        if (o.sizes[i] > MOST)
            code = failure_set(&why, CLI_BAD, "--sizes takes faces of up to 4M");
    if (code)
        return failure_print(&why, "bench halo");
    signals_watch();
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_ranks(&r, o.ranks[i], &why);
    return report_end(&r, code, &why);
}
