/* Tables and files of figures; see bench_report.h. */
#include "cli/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"

#define LARGE 65536 /* from here on bandwidth counts, below it latency */

struct row *report_add(struct report *r)
{
    struct row *rows = realloc(r->rows, ((size_t)r->n + 1) * sizeof *rows);
    if (!rows)
        return NULL;
    r->rows = rows;
    rows[r->n] = (struct row){0};
    return &rows[r->n++];
}

void report_out(struct report *r, const struct field *f, int ranks)
{
    for (int i = 0; i < f->n; i++) {
        size_t n = strlen(r->left_out);
        if (f->c[i].out)
            snprintf(r->left_out + n, sizeof r->left_out - n, "%s on %d ranks: %s\n", f->c[i].name, ranks, f->c[i].why);
    }
}

/* The figures of a row that are printed. */
struct line {
    const struct figure *weft, *floor, *peer;
    double time, algbw, busbw;             /* s, B/s */
    double floor_share, ratio, copy_share; /* 0: none */
};

static struct line line_of(const struct row *row)
{
    struct line l = {.floor = row_best(row, WORK_FLOOR), .peer = row_best(row, WORK_PEER)};
    for (int i = 0; i < row->n; i++)
        if (row->f[i].kind == WORK_WEFT)
            l.weft = &row->f[i];
    if (!l.weft)
        return l;
    l.time = row_time(row, l.weft);
    l.algbw = (double)row->cell.bytes / l.time;
    l.busbw = l.algbw * work_bus(&row->cell, row->ranks);
    if (l.floor)
        l.floor_share = row_time(row, l.floor) / l.time;
    if (l.peer)
        l.ratio = row_time(row, l.peer) / l.time;
    if (row->copy > 0)
        l.copy_share = work_moved(&row->cell, row->ranks) / l.time / row->copy;
    return l;
}

static const char *size_text(int64_t bytes, char *buf, size_t cap)
{
    static const char units[] = " KMG";
    int u = 0;
    while (bytes && bytes % 1024 == 0 && u < 3) {
        bytes /= 1024;
        u++;
    }
    snprintf(buf, cap, "%" PRId64 "%.*s", bytes, u > 0, units + u);
    return buf;
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
    struct line l = line_of(row);
    char size[32];
    if (!l.weft)
        return;
    printf("%5d  %-*s %7s %11.2f %11.2f %8.2f %8.2f %6" PRId64, row->ranks, width, row->label,
           size_text(row->cell.bytes, size, sizeof size), l.time * 1e6, l.weft->single * 1e6, l.algbw / 1e9, l.busbw / 1e9,
           l.weft->wrong);
    print_share(l.copy_share);
    if (l.floor)
        printf(" %11.2f", row_time(row, l.floor) * 1e6);
    else
        printf(" %11s", "-");
    print_share(l.floor_share);
    if (l.peer)
        printf(" %11.2f %7.2f  %s\n", row_time(row, l.peer) * 1e6, l.ratio, l.peer->who);
    else
        printf(" %11s %7s\n", "-", "-");
}

/* ---- summary ---- */

struct mean {
    double log, worst;
    const struct row *where;
    int n;
};

static void mean_add(struct mean *m, double v, const struct row *row, bool low)
{
    m->log += log(v);
    if (!m->n++ || (low ? v < m->worst : v > m->worst)) {
        m->worst = v;
        m->where = row;
    }
}

static void print_mean(const char *what, const struct mean *m)
{
    char size[32];
    if (m->n)
        printf("%s %.2f (geometric mean of %d), worst %.2f: %s %s", what, exp(m->log / m->n), m->n, m->worst, m->where->label,
               size_text(m->where->cell.bytes, size, sizeof size));
}

static void print_summary(const struct report *r)
{
    for (int i = 0; i < r->options->nranks; i++)
        for (int large = 0; large < 2; large++) {
            struct mean ratio = {0}, floor = {0};
            for (int k = 0; k < r->n; k++) {
                const struct row *row = &r->rows[k];
                struct line l = line_of(row);
                if (row->ranks != r->options->ranks[i] || (row->cell.bytes >= LARGE) != large || !l.weft)
                    continue;
                if (l.ratio > 0)
                    mean_add(&ratio, l.ratio, row, true);
                if (l.floor_share > 0)
                    mean_add(&floor, 1 / l.floor_share, row, false);
            }
            if (!ratio.n && !floor.n)
                continue;
            printf("%d ranks, %s 64 KiB: ", r->options->ranks[i], large ? "from" : "below");
            print_mean("best peer / weft", &ratio);
            print_mean(ratio.n ? "; weft / floor" : "weft / floor", &floor);
            putchar('\n');
        }
}

static void print_head(const struct report *r, int width)
{
    printf("%5s  %-*s %7s %11s %11s %8s %8s %6s %7s %11s %7s %11s %7s  %s\n", "ranks", width, r->name, "size", "time", "median",
           "algbw", "busbw", "wrong", "of", "floor", "of", "best peer", "ratio", "which");
    printf("%5s  %-*s %7s %11s %11s %8s %8s %6s %7s %11s %7s %11s\n", "", width, "", "B", "us", "us", "GB/s", "GB/s", "", "memcpy",
           "us", "floor", "us");
}

void report_row(const struct report *r)
{
    int width = r->rows[0].cell.op == WORK_RESHARD ? 38 : 14;
    if (r->options->json || r->options->csv || r->quiet)
        return;
    progress_end();
    if (r->n == 1)
        print_head(r, width);
    print_line(&r->rows[r->n - 1], width);
    fflush(stdout);
}

/* ---- CSV and JSON ---- */

static void print_csv(const struct report *r)
{
    puts("bench,ranks,what,bytes,who,time_us,back_to_back_us,least_us,median_us,p95_us,wrong,brief,memcpy_GBps");
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->rows[i].n; k++) {
            const struct row *row = &r->rows[i];
            const struct figure *f = &row->f[k];
            printf("%s,%d,\"%s\",%" PRId64 ",\"%s\",%.3f,%.3f,%.3f,%.3f,%.3f,%" PRId64 ",%d,%.2f\n", r->name, row->ranks, row->label,
                   row->cell.bytes, f->who, row_time(row, f) * 1e6, f->each * 1e6, f->least * 1e6, f->single * 1e6, f->tail * 1e6,
                   f->wrong,
                   f->brief, row->copy / 1e9);
        }
}

static void json_figure(struct json *j, const struct row *row, const struct figure *f)
{
    json_open(j, NULL, '{', true);
    json_text(j, "who", f->who);
    json_real(j, "time_us", row_time(row, f) * 1e6);
    json_real(j, "back_to_back_us", f->each * 1e6);
    json_real(j, "least_us", f->least * 1e6);
    json_real(j, "median_us", f->single * 1e6);
    json_real(j, "p95_us", f->tail * 1e6);
    json_int(j, "wrong", f->wrong);
    json_bool(j, "brief", f->brief);
    json_close(j, '}');
}

static void print_json(const struct report *r)
{
    struct json j = {.to = stdout};
    json_open(&j, NULL, '{', false);
    json_text(&j, "bench", r->name);
    json_text(&j, "on", r->options->weft.on);
    json_text(&j, "memory", r->options->weft.private_ ? "private" : "window");
    json_int(&j, "cores", work_cores());
    json_open(&j, "rows", '[', false);
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        struct line l = line_of(row);
        json_open(&j, NULL, '{', false);
        json_text(&j, "what", row->label);
        json_int(&j, "ranks", row->ranks);
        json_int(&j, "bytes", row->cell.bytes);
        json_real(&j, "time_us", l.time * 1e6);
        json_real(&j, "algbw_GBps", l.algbw / 1e9);
        json_real(&j, "busbw_GBps", l.busbw / 1e9);
        json_int(&j, "wrong", l.weft ? l.weft->wrong : -1);
        json_real(&j, "share_of_memcpy", l.copy_share);
        json_real(&j, "share_of_floor", l.floor_share);
        json_text(&j, "best_peer", l.peer ? l.peer->who : NULL);
        json_real(&j, "ratio", l.ratio);
        json_open(&j, "figures", '[', false);
        for (int k = 0; k < row->n; k++)
            json_figure(&j, row, &row->f[k]);
        json_close(&j, ']');
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_text(&j, "left_out", r->left_out);
    json_close(&j, '}');
}

int report_end(struct report *r)
{
    struct failure why;
    int code = CLI_OK;
    if (r->options->json)
        print_json(r);
    else if (r->options->csv)
        print_csv(r);
    else if (!r->quiet) {
        putchar('\n');
        print_summary(r);
    }
    fflush(stdout);
    if (*r->left_out)
        fprintf(stderr, "left out: %s", r->left_out);
    if (r->options->plot) {
        bool curves = r->n && r->rows[0].cell.op != WORK_RESHARD;
        if ((curves ? plot_curves : plot_bars)(r, r->options->plot, &why))
            code = failure_print(&why, "bench");
    }
    for (int i = 0; i < r->n && !code; i++) {
        struct line l = line_of(&r->rows[i]);
        if (l.weft && l.weft->wrong)
            code = CLI_WRONG;
    }
    free(r->rows);
    return code;
}
