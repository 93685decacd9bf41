/* Benchmarks as pictures: SVG with a panel for each op and number of ranks, or bars. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench/harness/report.h"
#include "tool/failure.h"

enum { PANEL_W = 220, PANEL_H = 140, LEFT = 62, TOP = 46, GAP = 40, LEGEND = 380 };

static const struct {
    enum work_kind kind;
    const char *name, *colour;
} lines[] = {{WORK_WEFT, "weft", "#0b6e4f"}, {WORK_FLOOR, "floor", "#9a9a9a"}, {WORK_PEER, "best peer", "#c8553d"}};
enum { LINES = sizeof lines / sizeof *lines };

static FILE *begin(const char *path, int width, int height, struct failure *why)
{
    FILE *to = fopen(path, "w");
    if (!to) {
        failure_set(why, CLI_WRONG, "%s: %s", path, strerror(errno));
        return NULL;
    }
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    for (int i = 0; i < LINES; i++)
        fprintf(to,
                "<rect x=\"%d\" y=\"10\" width=\"14\" height=\"6\" fill=\"%s\"/><text x=\"%d\" y=\"17\">%s</text>\n",
                LEFT + 100 * i, lines[i].colour, LEFT + 100 * i + 18, lines[i].name);
    return to;
}

static int end(FILE *to, const char *path, struct failure *why)
{
    fputs("</svg>\n", to);
    bool bad = ferror(to);
    if (fclose(to) || bad)
        return failure_set(why, CLI_WRONG, "%s could not be written", path);
    return CLI_OK;
}

static const struct figure *figure_of(const struct row *row, enum work_kind kind)
{
    return kind == WORK_WEFT ? report_line(row).weft : measure_best(row, kind);
}

/* ---- curves ---- */

struct frame {
    double x, y;           /* upper left */
    double x0, x1, y0, y1; /* logarithms of what is shown */
};

static double at_x(const struct frame *f, double v)
{
    return f->x + (log2(v) - f->x0) / (f->x1 > f->x0 ? f->x1 - f->x0 : 1) * PANEL_W;
}

static double at_y(const struct frame *f, double us)
{
    return f->y + PANEL_H - (log10(us) - f->y0) / (f->y1 > f->y0 ? f->y1 - f->y0 : 1) * PANEL_H;
}

static void draw_axes(FILE *to, const struct frame *f)
{
    fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#bbb\"/>\n", f->x, f->y,
            PANEL_W, PANEL_H);
    for (int d = (int)ceil(f->y0); d <= (int)floor(f->y1); d++) {
        double y = at_y(f, pow(10, d));
        fprintf(to, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#eee\"/>", f->x, f->x + PANEL_W, y,
                y);
        fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#666\">%g us</text>\n", f->x - 4, y + 4,
                pow(10, d));
    }
    static const struct {
        double bytes;
        const char *name;
    } ticks[] = {{8, "8"}, {4096, "4K"}, {65536, "64K"}, {1048576, "1M"}, {16777216, "16M"}};
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++)
        if (log2(ticks[i].bytes) >= f->x0 && log2(ticks[i].bytes) <= f->x1)
            fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#666\">%s</text>\n",
                    at_x(f, ticks[i].bytes), f->y + PANEL_H + 13, ticks[i].name);
}

static bool in_panel(const struct row *row, const char *label, int ranks)
{
    return !strcmp(row->label, label) && row->ranks == ranks && row->cell.bytes > 0;
}

static void draw_panel(FILE *to, const struct report *r, const char *label, int ranks, double x, double y)
{
    struct frame f = {.x = x, .y = y, .x0 = 1e9, .x1 = -1e9, .y0 = 1e9, .y1 = -1e9};
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < LINES && in_panel(&r->rows[i], label, ranks); k++) {
            const struct figure *v = figure_of(&r->rows[i], lines[k].kind);
            double s = log2((double)r->rows[i].cell.bytes), t = v ? log10(measure_time(&r->rows[i], v) * 1e6) : 0;
            f.x0 = s < f.x0 ? s : f.x0;
            f.x1 = s > f.x1 ? s : f.x1;
            f.y0 = v && t - 0.1 < f.y0 ? t - 0.1 : f.y0;
            f.y1 = v && t + 0.3 > f.y1 ? t + 0.3 : f.y1;
        }
    draw_axes(to, &f);
    for (int k = 0; k < LINES; k++) {
        fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", lines[k].colour);
        for (int i = 0; i < r->n; i++) {
            const struct figure *v = in_panel(&r->rows[i], label, ranks) ? figure_of(&r->rows[i], lines[k].kind) : NULL;
            if (v)
                fprintf(to, "%.1f,%.1f ", at_x(&f, (double)r->rows[i].cell.bytes),
                        at_y(&f, measure_time(&r->rows[i], v) * 1e6));
        }
        fputs("\"/>\n", to);
    }
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s, %d ranks</text>\n", f.x + 4, f.y - 4, label,
            ranks);
}

/* The row is the first with its label, and has a size. */
static bool begins_line(const struct report *r, int row)
{
    for (int i = 0; i < row; i++)
        if (!strcmp(r->rows[i].label, r->rows[row].label))
            return false;
    return r->rows[row].cell.bytes > 0;
}

int plot_curves(const struct report *r, const char *path, struct failure *why)
{
    int panels = 0, step_x = PANEL_W + LEFT + 6, step_y = PANEL_H + GAP, n = r->options->nranks;
    for (int i = 0; i < r->n; i++)
        panels += begins_line(r, i);
    FILE *to = begin(path, LEGEND > n * step_x + 20 ? LEGEND : n * step_x + 20, TOP + panels * step_y, why);
    if (!to)
        return why->code;
    for (int i = 0, line = 0; i < r->n; i++) {
        if (!begins_line(r, i))
            continue;
        for (int k = 0; k < n; k++)
            draw_panel(to, r, r->rows[i].label, r->options->ranks[k], LEFT + k * step_x, TOP + line * step_y);
        line++;
    }
    return end(to, path, why);
}

/* ---- bars ---- */

int plot_bars(const struct report *r, const char *path, struct failure *why)
{
    enum { TEXT = 330, LONG = 420, THICK = 11 };
    double most = 1;
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < LINES; k++) {
            const struct figure *v = figure_of(&r->rows[i], lines[k].kind);
            double speed = v ? work_moved(&r->rows[i].cell, r->rows[i].ranks) / measure_time(&r->rows[i], v) / 1e9 : 0;
            most = speed > most ? speed : most;
            most = r->rows[i].copy / 1e9 > most ? r->rows[i].copy / 1e9 : most;
        }
    int each = LINES * THICK + 10;
    FILE *to = begin(path, TEXT + LONG + 90, TOP + r->n * each + 10, why);
    if (!to)
        return why->code;
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        int y = TOP - 14 + i * each;
        fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s, %d ranks</text>\n", TEXT - 8, y + 20, row->label,
                row->ranks);
        for (int k = 0; k < LINES; k++) {
            const struct figure *v = figure_of(row, lines[k].kind);
            double speed = v ? work_moved(&row->cell, row->ranks) / measure_time(row, v) / 1e9 : 0;
            if (v)
                fprintf(to,
                        "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/><text x=\"%d\" y=\"%d\" "
                        "text-anchor=\"end\" fill=\"#444\">"
                        "%.1f GB/s</text>\n",
                        TEXT, y + k * THICK, speed / most * LONG, THICK - 1, lines[k].colour, TEXT + LONG + 80,
                        y + k * THICK + 9, speed);
        }
        double copy = TEXT + row->copy / 1e9 / most * LONG;
        fprintf(to, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"black\" stroke-dasharray=\"3,2\"/>\n",
                copy, copy, y, y + LINES * THICK);
    }
    fprintf(to, "<text x=\"%d\" y=\"17\">dashed: memcpy by all cores</text>\n", LEFT + 100 * LINES);
    return end(to, path, why);
}
