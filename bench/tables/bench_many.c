/* weft bench many: small tensors in one plan against one plan each. */
#include <inttypes.h>

#include "bench/harness/report.h"
#include "bench/tables/bench.h"
#include "tool/failure.h"
#include "tool/signals.h"

static const struct {
    const char *name, *label;
    int tensors;
} cases[] = {{"25", "25 tensors", 25}, {"2000", "2000 tensors", 2000}};
enum { CASES = sizeof cases / sizeof *cases };
#define AIM 5.0 /* times as fast as the better way with one plan each */

enum way { ONE, TOGETHER, IN_TURN };

static const struct figure *find_way(const struct row *row, enum way way)
{
    for (int i = 0; i < row->n; i++)
        if (row->f[i].kind == WORK_WEFT && row->f[i].variant == (int)way)
            return &row->f[i];
    return NULL;
}

static double us(const struct row *row, const struct figure *f)
{
    return f ? measure_time(row, f) * 1e6 : 0;
}

/* The better way with one plan each. */
static const struct figure *best_each(const struct row *row)
{
    const struct figure *a = find_way(row, TOGETHER), *b = find_way(row, IN_TURN);
    return a && b && measure_time(row, b) < measure_time(row, a) ? b : a;
}

/* Its time over that of one plan: of a run, and of making the plans and one run. */
static double gain(const struct row *row, bool with_making)
{
    const struct figure *one = find_way(row, ONE), *each = best_each(row);
    if (!one || !each)
        return 0;
    return (measure_time(row, each) + (with_making ? each->made : 0)) /
           (measure_time(row, one) + (with_making ? one->made : 0));
}

static void print_text(const struct report *r)
{
    puts("Tensors of 1 to 64 KiB, rows to columns; us. made: lowering and binding, once. One plan each: all started, "
         "then\n"
         "waited for (together), or one after another (in turn). ratio: the better of them over one plan; once: with "
         "made.\n");
    printf("%5s %7s %7s | %9s %9s | %9s %9s %9s | %6s %6s %5s %9s %6s %9s %6s\n", "", "", "", "one plan", "",
           "one each", "", "", "ratio", "", "wrong", "floor", "of", "best peer", "ratio");
    printf("%5s %7s %7s | %9s %9s | %9s %9s %9s | %6s %6s %5s %9s %6s %9s %6s\n", "ranks", "tensors", "size", "run",
           "made", "together", "in turn", "made", "run", "once", "", "", "floor", "", "");
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        const struct figure *one = find_way(row, ONE), *each = find_way(row, TOGETHER), *turn = find_way(row, IN_TURN);
        struct line l = report_line(row);
        char size[32];
        char peer[40] = "        -      -";
        int64_t wrong = 0;
        if (l.peer)
            snprintf(peer, sizeof peer, "%9.1f %6.2f", us(row, l.peer), l.ratio);
        for (int k = 0; k < row->n; k++)
            wrong += row->f[k].kind == WORK_WEFT ? row->f[k].wrong : 0;
        printf("%5d %7d %7s | %9.1f %9.1f | %9.1f %9.1f %9.1f | %6.2f %6.2f %5" PRId64 " %9.1f %5.0f%% %s\n",
               row->ranks, row->cell.tensors, report_line_size(row->cell.bytes, size, sizeof size), us(row, one),
               one ? one->made * 1e6 : 0, us(row, each), us(row, turn), each ? each->made * 1e6 : 0, gain(row, false),
               gain(row, true), wrong, us(row, l.floor), 100 * l.floor_share, peer);
    }
}

static void remark(const struct report *r, struct remarks *out)
{
    bool aims = remarks_have_aims(r) && !r->options->weft.private_;
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        double ratio = gain(row, false);
        struct line l = report_line(row);
        char aim[32] = "", share[96] = "", floor[48] = "";
        if (aims)
            snprintf(aim, sizeof aim, ", aim %.0f: %s", AIM, ratio >= AIM ? "met" : "missed");
        if (l.copy_share > 0)
            snprintf(share, sizeof share, ", at %.2f of memcpy, which allows for %.1f times", l.copy_share,
                     ratio / l.copy_share);
        if (l.floor && best_each(row))
            snprintf(floor, sizeof floor, " (the floor: %.2f)", us(row, best_each(row)) / us(row, l.floor));
        remarks_add(out, aims ? ratio >= AIM : -1, "%d ranks, %s: one plan runs %.2f times as fast as one each%s%s%s",
                    row->ranks, row->label, ratio, floor, share, aim);
    }
}

static int run_ranks(struct report *r, int ranks, struct failure *why)
{
    static struct contenders f;
    const struct bench_options *o = r->options;
    struct work_cell cells[CASES];
    const char *labels[CASES];
    int n = 0, workers = work_cores() < ranks ? work_cores() : ranks, code = CLI_OK;
    for (int i = 0; i < CASES; i++)
        if (bench_options_wants(o, cases[i].name)) {
            labels[n] = cases[i].label;
            cells[n++] = (struct work_cell){
                .op = WORK_MANY, .tensors = cases[i].tensors, .bytes = work_tensor(cases[i].tensors).before * 4};
        }
    bench_options_add_weft(o, &f, ranks);
    if (!o->nwithout) {
        contenders_add_floors(&f, ranks, o->weft.private_, cells, n);
        contenders_add_memory(&f, workers);
    }
    if (o->peers)
        contenders_peers_add(&f, ranks, NULL);
    for (int i = 0; i < n && !code; i++) {
        struct row row = {.cell = cells[i], .ranks = ranks, .workers = workers};
        snprintf(row.label, sizeof row.label, "%s", labels[i]);
        code = report_measure(r, &f, &row, why);
    }
    report_out(r, &f, ranks);
    contenders_close(&f);
    return code;
}

int bench_many(int argc, char **argv)
{
    struct bench_options o;
    int code = bench_options(
        "bench many",
        "Measures 25 and 2000 small tensors (1 to 64 KiB, rows to columns) in one plan and with one plan for each "
        "tensor. The latter\n"
        "are all started and then waited for, or run one after another. Peers pack all tensors and exchange once.",
        "2,4", NULL, "25,2000", argc, argv, &o);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct report r = {.name = "many", .options = &o, .print = print_text, .remark = remark, .bars = true};
    struct failure why = {0};
    for (int i = 0; i < o.nranks && !code; i++)
        if (o.ranks[i] > 16 || 16 % o.ranks[i])
            code = failure_set(&why, CLI_BAD, "-n takes 1, 2, 4, 8 and 16 ranks");
    if (code)
        return failure_print(&why, "bench many");
    signals_watch();
    for (int i = 0; i < o.nranks && !code; i++)
        code = run_ranks(&r, o.ranks[i], &why);
    return report_end(&r, code, &why);
}
