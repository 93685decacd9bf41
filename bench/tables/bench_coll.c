/* weft bench coll and latency: collectives by size and ranks, beside the floor and the MPI libraries. */
#include "bench/harness/report.h"
#include "bench/tables/bench.h"
#include "tool/failure.h"
#include "tool/signals.h"

#define MEMORY_FROM 65536 /* for smaller cells latency counts, and memcpy says nothing */

static const enum work_op colls[] = {WORK_BARRIER,   WORK_BROADCAST,  WORK_ALLGATHER, WORK_REDUCE_SCATTER,
                                     WORK_ALLREDUCE, WORK_ALL_TO_ALL, WORK_HALO};
static const enum work_op latencies[] = {WORK_BARRIER, WORK_PING};

static int list_cells(const struct bench_options *o, const enum work_op *ops, int nops, struct work_cell *cells)
{
    int n = 0;
    for (int i = 0; i < nops; i++)
        for (int k = 0; k < (ops[i] == WORK_BARRIER ? 1 : o->nsizes) && bench_options_wants(o, work_name(ops[i])); k++)
            cells[n++] = (struct work_cell){.op = ops[i], .bytes = ops[i] == WORK_BARRIER ? 0 : o->sizes[k]};
    return n;
}

static int measure_cells(struct report *r, struct contenders *f, const struct work_cell *cells, int n, int ranks,
                         struct failure *why)
{
    int workers = ranks < work_cores() ? ranks : work_cores();
    int memory = f->n; /* the contenders before memory, which joins only for the larger cells */
    for (int i = 0; i < n; i++) {
        struct row row = {.cell = cells[i], .ranks = ranks, .workers = workers};
        snprintf(row.label, sizeof row.label, "%s", work_name(cells[i].op));
        if (cells[i].bytes >= MEMORY_FROM && f->n == memory && !r->options->nwithout)
            contenders_add_memory(f, workers);
        struct contenders all = *f;
        if (cells[i].bytes < MEMORY_FROM)
            all.n = memory;
        int code = report_measure(r, &all, &row, why);
        for (int k = 0; k < all.n; k++)
            f->c[k] = all.c[k];
        if (code)
            return code;
    }
    return CLI_OK;
}

static int run(const char *name, const struct bench_options *o, const enum work_op *ops, int nops)
{
    static struct work_cell cells[BENCH_SIZES_MAX * WORK_OPS];
    static struct contenders f;
    struct report r = {.name = name, .options = o, .remark = remarks_sizes};
    struct failure why = {0};
    int n = list_cells(o, ops, nops, cells), code = CLI_OK;
    signals_watch();
    for (int i = 0; i < o->nranks && !code; i++) {
        bench_options_add_weft(o, &f, o->ranks[i]);
        if (!o->nwithout)
            contenders_add_floors(&f, o->ranks[i], o->weft.private_, cells, n);
        if (o->peers && !contenders_peers_add(&f, o->ranks[i], NULL) && !i)
            fputs("weft bench: no MPI library was found when this was built, or its launcher is not there\n", stderr);
        code = measure_cells(&r, &f, cells, n, o->ranks[i], &why);
        report_out(&r, &f, o->ranks[i]);
        contenders_close(&f);
    }
    return report_end(&r, code, &why);
}

int bench_coll(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options("bench coll",
                             "Measures broadcast, allgather, reduce_scatter, allreduce, all_to_all, halo (a pair of "
                             "faces) and barrier. A size is the\n"
                             "bytes that each rank gives (halo: one face). Time is that of calls back to back; for a "
                             "broadcast it is at least that\n"
                             "of one call after a barrier. The floor is the same work written by hand.",
                             "2,4,8", "8,4K,64K,1M,16M",
                             "barrier,broadcast,allgather,reduce_scatter,allreduce,all_to_all,halo", argc, argv, &o);
    return code ? (code < 0 ? CLI_OK : code) : run("coll", &o, colls, sizeof colls / sizeof *colls);
}

int bench_coll_latency(int argc, char **argv)
{
    struct bench_options o;
    int code =
        bench_options("bench latency", "A barrier, and a move from rank 0 to rank 1 and back: half of the round trip.",
                      "2", "8", "barrier,ping", argc, argv, &o);
    return code ? (code < 0 ? CLI_OK : code) : run("latency", &o, latencies, sizeof latencies / sizeof *latencies);
}
