/* weft bench memory: what this machine's memory gives plain loops, and what share of it weft's own copies reach. */
#include <inttypes.h>
#include <stdio.h>

#include "bench/harness/report.h"
#include "bench/tables/bench.h"
#include "tool/failure.h"
#include "tool/signals.h"

static const enum work_op ops[] = {WORK_COPY, WORK_READ, WORK_WRITE};
enum { OPS = sizeof ops / sizeof *ops };

static double rate(const struct row *row, const struct figure *f)
{
    return f ? (double)row->ranks * (double)row->cell.bytes / f->each / 1e9 : 0;
}

static void print_text(const struct report *r)
{
    puts("GB/s of all workers together; each has its own buffers. memcpy, read and write are plain loops.\n");
    printf("%7s %12s %9s %9s %9s %9s  %s\n", "workers", "bytes", "memcpy", "read", "write", "weft", "of memcpy");
    for (int i = 0; i + OPS <= r->n; i += OPS) {
        const struct row *row = &r->rows[i];
        double v[OPS], weft = rate(row, measure_best(row, WORK_WEFT));
        for (int k = 0; k < OPS; k++)
            v[k] = rate(row + k, measure_best(row + k, WORK_MEMORY));
        printf("%7d %12" PRId64 " %9.2f %9.2f %9.2f %9.2f %8.0f%%\n", row->ranks, row->cell.bytes, v[0], v[1], v[2],
               weft, v[0] > 0 ? 100 * weft / v[0] : 0);
    }
}

static int run_workers(struct report *r, int workers, struct failure *why)
{
    static struct contenders f;
    const struct bench_options *o = r->options;
    int code = CLI_OK;
    contenders_add_weft(&f, &o->weft, workers);
    contenders_add_memory(&f, workers);
    for (int s = 0; s < o->nsizes && !code; s++)
        for (int k = 0; k < OPS && !code; k++) {
            struct row row = {.cell = {.op = ops[k], .bytes = o->sizes[s]}, .ranks = workers, .workers = workers};
            snprintf(row.label, sizeof row.label, "%s", work_name(ops[k]));
            code = report_measure(r, &f, &row, why);
        }
    report_out(r, &f, workers);
    contenders_close(&f);
    return code;
}

int bench_memory(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options("bench memory",
                             "Measures the speed of memory: memcpy, reads and writes by plain loops, and weft's own "
                             "copy of the tensor of a rank, by as\n"
                             "many workers as -n says.",
                             "1,2", "16K,256K,4M,256M", NULL, argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "memory", .options = &o, .print = print_text};
    struct failure why = {0};
    signals_watch();
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_workers(&r, o.ranks[i], &why);
    return report_end(&r, code, &why);
}
