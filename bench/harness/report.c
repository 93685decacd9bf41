/* Tables and files of figures; see report.h. */
#include "bench/harness/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/progress_line.h"
#include "tool/signals.h"

void report_out(struct report *r, const struct contenders *f, int ranks)
{
    for (int i = 0; i < f->n && !signals_caught(); i++) {
        size_t n = strlen(r->left_out);
        /* A failure of weft itself is not noted here: it fails the benchmark. */
        if (f->c[i].out && (f->c[i].kind != WORK_WEFT || f->c[i].without))
            snprintf(r->left_out + n, sizeof r->left_out - n, "%s on %d ranks: %s\n", f->c[i].name, ranks, f->c[i].why);
    }
}

/* The last row could not be measured. */
static int leave_out(struct report *r, struct failure *why)
{
    const struct row *row = &r->rows[--r->n];
    size_t n = strlen(r->left_out);
    if (!r->options->weft.algorithm)
        return failure_set(why, CLI_WRONG, "%s", row->refused);
    snprintf(r->left_out + n, sizeof r->left_out - n, "%s of %" PRId64 " B on %d ranks: %s\n", row->label,
             row->cell.bytes, row->ranks, row->refused);
    r->refused++;
    return CLI_OK;
}

static void print_share(double v)
{
    if (v > 0)
        printf(" %6.0f%%", 100 * v);
    else
        printf(" %7s", "-");
}

static void print_line(const struct row *row, int width)
{
    struct line l = report_line(row);
    char size[32];
    if (!l.weft)
        return;
    printf("%5d  %-*s %7s %11.2f %11.2f %8.2f %8.2f %6" PRId64, row->ranks, width, row->label,
           report_line_size(row->cell.bytes, size, sizeof size), l.time * 1e6, l.weft->single * 1e6, l.algbw / 1e9,
           l.busbw / 1e9, l.weft->wrong);
    print_share(l.copy_share);
    if (l.floor)
        printf(" %11.2f", measure_time(row, l.floor) * 1e6);
    else
        printf(" %11s", "-");
    print_share(l.floor_share);
    if (l.peer)
        printf(" %11.2f %7.2f  %s\n", measure_time(row, l.peer) * 1e6, l.ratio, l.peer->who);
    else
        printf(" %11s %7s\n", "-", "-");
}

/* ---- the table ---- */

static void print_head(const struct report *r, int width)
{
    printf("%5s  %-*s %7s %11s %11s %8s %8s %6s %7s %11s %7s %11s %7s  %s\n", "ranks", width, r->name, "size", "time",
           "median", "algbw", "busbw", "wrong", "of", "floor", "of", "best peer", "ratio", "which");
    printf("%5s  %-*s %7s %11s %11s %8s %8s %6s %7s %11s %7s %11s\n", "", width, "", "B", "us", "us", "GB/s", "GB/s",
           "", "memcpy", "us", "floor", "us");
}

/* ---- weft without some of its drivers and ways: its time over that of weft with all of them ---- */

static void print_ratio(const struct row *row, const struct figure *weft, const char *without)
{
    int width = (int)strlen(without) + 1 > 6 ? (int)strlen(without) + 1 : 6;
    for (int k = 0; k < row->n; k++)
        if (row->f[k].without == without && row->f[k].variant == weft->variant) {
            printf(" %*.2f", width, measure_time(row, &row->f[k]) / measure_time(row, weft));
            return;
        }
    printf(" %*s", width, "-"); /* this one cannot do it */
}

static void print_without(const struct report *r, const struct row *row)
{
    const struct bench_options *o = r->options;
    int label = row->cell.op == WORK_RESHARD ? 39 : row->cell.op == WORK_MANY ? 46 : 14;
    if (r->n == 1) {
        printf("%5s  %-*s %7s %11s  time without it over time with all:\n", "ranks", label, r->name, "size", "time us");
        printf("%*s", label + 27, "");
        for (int i = 0; i < o->nwithout; i++)
            printf(" %*s%s", 5 - (int)strlen(o->without[i].without) > 0 ? 6 - (int)strlen(o->without[i].without) : 1,
                   "-", o->without[i].without);
        putchar('\n');
    }
    for (int k = 0; k < row->n; k++) {
        const struct figure *weft = &row->f[k];
        char size[32], text[80];
        if (weft->kind != WORK_WEFT || weft->without)
            continue;
        snprintf(text, sizeof text, "%s%s", row->label, weft->who + strlen("weft"));
        printf("%5d  %-*s %7s %11.2f", row->ranks, label, text, report_line_size(row->cell.bytes, size, sizeof size),
               measure_time(row, weft) * 1e6);
        for (int i = 0; i < o->nwithout; i++)
            print_ratio(row, weft, o->without[i].without);
        putchar('\n');
    }
    fflush(stdout);
}

/* Prints the last row, if a table is asked for. */
static void print_row(const struct report *r)
{
    int width = r->rows[0].cell.op == WORK_RESHARD ? 39 : 14;
    const struct row *row = &r->rows[r->n - 1];
    if (r->options->json || r->options->csv)
        return;
    progress_line_end();
    if (r->options->nwithout) {
        print_without(r, row);
    } else if (!r->print) {
        if (r->n == 1)
            print_head(r, width);
        print_line(row, width);
    }
    if (row->explain)
        printf("%s\n", row->explain);
    fflush(stdout);
}

int report_measure(struct report *r, struct contenders *f, const struct row *what, struct failure *why)
{
    struct row *rows = realloc(r->rows, ((size_t)r->n + 1) * sizeof *rows);
    if (!rows)
        return failure_set(why, CLI_WRONG, "out of memory");
    r->rows = rows;
    struct row *row = &rows[r->n++];
    *row = *what;
    int code = measure_row(f, &r->options->measure, row, why);
    if (code) {
        r->n--;
        return code;
    }
    if (*row->refused)
        return leave_out(r, why);
    print_row(r);
    return CLI_OK;
}

/* ---- the end ---- */

static void print_remarks(const struct report *r)
{
    struct remarks said = {0};
    if (r->remark)
        r->remark(r, &said);
    for (int i = 0; i < said.n; i++)
        printf("%s%s\n", i ? "" : "\n", said.of[i].text);
}

static int save(const struct report *r, struct failure *why)
{
    FILE *to = fopen(r->options->save, "w");
    if (!to)
        return failure_set(why, CLI_WRONG, "%s: %s", r->options->save, strerror(errno));
    report_files_json(r, to);
    bool bad = ferror(to);
    if (fclose(to) || bad)
        return failure_set(why, CLI_WRONG, "%s could not be written", r->options->save);
    return CLI_OK;
}

static int put_out(const struct report *r, struct failure *why)
{
    const struct bench_options *o = r->options;
    int code = CLI_OK;
    if (o->json)
        report_files_json(r, stdout);
    else if (o->csv)
        report_files_csv(r, stdout);
    else {
        if (r->print && !o->nwithout)
            r->print(r);
        if (r->incomplete)
            printf("\nincomplete: %s\n", r->incomplete);
        else if (!o->nwithout)
            print_remarks(r);
    }
    fflush(stdout);
    if (*r->left_out)
        fprintf(stderr, "left out: %s", r->left_out);
    if (o->save)
        code = save(r, why);
    if (o->plot && !code && !r->incomplete)
        code = (r->bars ? plot_bars : plot_curves)(r, o->plot, why);
    return code;
}

int report_end(struct report *r, int code, const struct failure *why)
{
    struct failure other;
    char verb[40];
    snprintf(verb, sizeof verb, "bench %s", r->name);
    progress_line_end();
    struct failure none;
    if (!code && !r->n && r->refused)
        code = failure_set(&none, CLI_WRONG, "nothing could be measured: %s", r->left_out), why = &none;
    else if (!code && !r->n)
        code = failure_set(&none, CLI_BAD, "nothing that --only names is measured on this number of ranks"),
        why = &none;
    r->incomplete = code ? why->text : NULL;
    if (r->n && put_out(r, &other))
        code = failure_print(&other, verb);
    if (r->incomplete)
        failure_print(why, verb);
    for (int i = 0; i < r->n && !code; i++)
        for (int k = 0; k < r->rows[i].n; k++)
            if (r->rows[i].f[k].kind == WORK_WEFT && r->rows[i].f[k].wrong)
                code = CLI_WRONG;
    for (int i = 0; i < r->n; i++) {
        free(r->rows[i].explain);
        free(r->rows[i].explain_json);
    }
    free(r->rows);
    signals_obey();
    return code;
}
