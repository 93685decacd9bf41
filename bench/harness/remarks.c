/* Summaries of the figures, compared with the aims: means and worst ratios against the best peer and the floor. Aims
 * are for a machine with two cores. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "bench/harness/report.h"

#define LARGE 65536 /* from here on bandwidth counts, below it latency */

/* For ratios of best peer over weft: the mean, and the least that any cell should have; 0: none. */
struct aim {
    int ranks;
    double mean, cell;
};
static const struct aim window_large[] = {{2, 2.3, 1.6}, {4, 2.9, 1.6}, {8, 3.2, 1.6}};
static const struct aim window_small[] = {{2, 1.0, 0.95}, {4, 1.6, 0.95}, {8, 2.2, 0.95}};
static const struct aim private_large[] = {{2, 1.15, 0.8}, {4, 1.5, 0.8}, {8, 1.7, 0.8}};
enum { AIMS = 3 };
static const struct aim floor_aim = {0, 1.05, 1.2}; /* weft over floor, not more than these */

bool remarks_have_aims(const struct report *r)
{
    return work_cores() == 2 && !r->options->weft.algorithm && !strcmp(r->options->weft.on, "shm:");
}

void remarks_add(struct remarks *out, int met, const char *fmt, ...)
{
    va_list ap;
    if (out->n == REMARKS_MAX)
        return;
    struct remark *m = &out->of[out->n++];
    va_start(ap, fmt);
    vsnprintf(m->text, sizeof m->text, fmt, ap);
    va_end(ap);
    m->aims = met >= 0;
    m->met = met > 0;
}

static struct aim find_aim(const struct report *r, int ranks, bool large)
{
    bool private_ = r->options->weft.private_;
    const struct aim *list = private_ ? (large ? private_large : NULL) : large ? window_large : window_small;
    for (int i = 0; i < AIMS && list && remarks_have_aims(r) && !strcmp(r->name, "coll"); i++)
        if (list[i].ranks == ranks)
            return list[i];
    return (struct aim){0};
}

/* 8 bytes from one to three ranks on two cores: the time depends on which ranks happen to run, and no program measures
 * it fairly. */
static bool set_aside(const struct row *row)
{
    return row->cell.op == WORK_BROADCAST && row->cell.bytes <= 8 && row->ranks == 4;
}

/* The least ratio that this cell should have. For some small cells it is the floor's ratio, if that is less. */
static double cell_aim(const struct aim *a, const struct row *row, const struct line *l)
{
    enum work_op op = row->cell.op;
    bool hard = op == WORK_ALLGATHER || op == WORK_ALL_TO_ALL || op == WORK_HALO;
    double floor = l->floor_share > 0 ? l->ratio / l->floor_share : 0; /* best peer over floor */
    if (row->ranks == 2 && row->cell.bytes == 4096 && hard && floor > 0 && floor < a->cell)
        return floor;
    return a->cell;
}

/* The geometric mean of ratios that should be high (or low), and the one furthest from its aim. */
struct mean {
    double log, value, aim;
    const struct row *where;
    int n;
};

static void mean_add(struct mean *m, double v, double aim, const struct row *row, bool high)
{
    double scale = aim > 0 ? aim : 1, worst = m->n ? m->value / (m->aim > 0 ? m->aim : 1) : 0;
    m->log += log(v);
    if (!m->n++ || (high ? v / scale < worst : v / scale > worst)) {
        m->value = v;
        m->aim = aim;
        m->where = row;
    }
}

/* "; aim 2.30: met", or nothing without an aim. */
static int say_aim(char *buf, size_t cap, const char *before, double v, double aim, bool high)
{
    int met = aim <= 0 ? -1 : high ? v >= aim : v <= aim;
    *buf = 0;
    if (aim > 0)
        snprintf(buf, cap, "%saim %.2f: %s", before, aim, met ? "met" : "missed");
    return met;
}

static void remark_mean(struct remarks *out, int ranks, const char *sizes, const char *what, const struct mean *m,
                        double aim, bool high)
{
    char one[64], all[64], size[32] = "";
    if (!m->n)
        return;
    double mean = exp(m->log / m->n);
    int met_mean = say_aim(all, sizeof all, "; ", mean, aim, high);
    int met_cell = say_aim(one, sizeof one, "; ", m->value, m->aim, high);
    int met = met_mean < 0 && met_cell < 0 ? -1 : met_mean != 0 && met_cell != 0;
    if (m->where->cell.bytes)
        report_line_size(m->where->cell.bytes, size, sizeof size);
    remarks_add(out, met, "%d ranks, %s: %s %.2f (geometric mean of %d%s), worst %.2f (%s%s%s%s)", ranks, sizes, what,
                mean, m->n, all, m->value, m->where->label, *size ? " " : "", size, one);
}

static void remark_peers(const struct report *r, int ranks, bool large, struct remarks *out)
{
    struct mean m = {0};
    struct aim aim = find_aim(r, ranks, large);
    for (int k = 0; k < r->n; k++) {
        const struct row *row = &r->rows[k];
        struct line l = report_line(row);
        if (row->ranks == ranks && (row->cell.bytes >= LARGE) == large && l.ratio > 0 && !set_aside(row))
            mean_add(&m, l.ratio, cell_aim(&aim, row, &l), row, true);
    }
    remark_mean(out, ranks, large ? "from 64 KiB" : "below 64 KiB", "best peer / weft", &m, aim.mean, true);
}

static void remark_floor(const struct report *r, int ranks, struct remarks *out)
{
    struct mean m = {0};
    bool aims = remarks_have_aims(r) && !strcmp(r->name, "coll") && !r->options->weft.private_;
    for (int k = 0; k < r->n; k++) {
        struct line l = report_line(&r->rows[k]);
        if (r->rows[k].ranks == ranks && l.floor_share > 0)
            mean_add(&m, 1 / l.floor_share, aims ? floor_aim.cell : 0, &r->rows[k], false);
    }
    remark_mean(out, ranks, "all sizes", "weft / floor", &m, aims ? floor_aim.mean : 0, false);
}

void remarks_sizes(const struct report *r, struct remarks *out)
{
    for (int i = 0; i < r->options->nranks; i++) {
        int ranks = r->options->ranks[i];
        remark_peers(r, ranks, true, out);
        remark_peers(r, ranks, false, out);
        remark_floor(r, ranks, out);
    }
}

void remarks_cases(const struct report *r, struct remarks *out)
{
    bool aims = remarks_have_aims(r) && !r->options->weft.private_;
    for (int i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        struct line l = report_line(row);
        char share[64], ratio[64], peers[128] = "";
        double least = aims ? row->aim_share : 0, times = aims ? row->aim_ratio : 0;
        if (!l.weft)
            continue;
        int met = say_aim(share, sizeof share, ", ", l.copy_share, least, true);
        int met_ratio = say_aim(ratio, sizeof ratio, ", ", l.ratio, l.peer ? times : 0, true);
        if (l.peer)
            snprintf(peers, sizeof peers, "; best peer / weft %.2f%s", l.ratio, ratio);
        met = met < 0 ? met_ratio : met_ratio < 0 ? met : met && met_ratio;
        remarks_add(out, met, "%d ranks, %s: %.2f of memcpy%s%s", row->ranks, row->label, l.copy_share, share, peers);
    }
}

/* ---- halos ---- */

/* Rows that have one aim: best peer over weft, on 2, 4 and 8 ranks. */
static const struct group {
    const char *name;
    double least[AIMS];
} groups[] = {{"from 64 KiB", {2, 2, 2}},
              {"4 KiB", {0.95, 0.95, 1.3}},
              {"other sizes", {0.9, 0.9, 0.9}},
              {"strided faces from 64 KiB", {3, 3, 3}}};
enum { GROUPS = sizeof groups / sizeof *groups };

static int group_of(const struct row *row)
{
    const struct work_grid *g = &row->cell.grid;
    bool strided = row->cell.op == WORK_GRID && g->dims > 1 && !g->wide[0];
    return row->cell.bytes < LARGE ? (row->cell.bytes == 4096 ? 1 : 2) : strided ? 3 : 0;
}

void remarks_halos(const struct report *r, struct remarks *out)
{
    bool aims = remarks_have_aims(r) && !r->options->weft.private_;
    for (int i = 0; i < r->options->nranks * GROUPS; i++) {
        int ranks = r->options->ranks[i / GROUPS], which = ranks == 2 ? 0 : ranks == 4 ? 1 : ranks == 8 ? 2 : AIMS;
        double aim = aims && which < AIMS ? groups[i % GROUPS].least[which] : 0;
        struct mean m = {0};
        for (int k = 0; k < r->n; k++) {
            struct line l = report_line(&r->rows[k]);
            if (r->rows[k].ranks == ranks && group_of(&r->rows[k]) == i % GROUPS && l.ratio > 0)
                mean_add(&m, l.ratio, aim, &r->rows[k], true);
        }
        remark_mean(out, ranks, groups[i % GROUPS].name, "best peer / weft", &m, 0, true);
    }
}
