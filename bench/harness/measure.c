/* Rounds and medians; see measure.h. */
#define _GNU_SOURCE
#include "bench/harness/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/progress_line.h"
#include "tool/signals.h"

#define TOO_SLOW 4.0 /* a contender that is slower than this times the best of its kind is not measured further */
#define TOO_LONG 2.0 /* the same for calls of LONG or more: one look at a long call is enough */
#define LONG 0.002   /* s */
#define FAR 20.0     /* the same for its first call */
#define LOOK 0.002   /* s for a first look */
#define STEADY 1.15  /* the upper quartile of rounds over the lower one */

/* One contender in one of its ways. */
struct entry {
    struct contender *c;
    int variant;
    double look;
    double each[MEASURE_PASSES * MEASURE_ROUNDS];
    double *single;
    int nsingle, rounds;
    bool brief;
    int64_t wrong;
    double made;
};

/* Calls after a barrier, from the first rank's start to the last one's end. */
static bool timed_alone(enum work_op op)
{
    return op == WORK_RESHARD || op == WORK_MANY;
}

/* Shows on a terminal what is being measured. */
static void tell(const struct row *row, const char *who, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%d ranks, %s, %" PRId64 " B: %s, %s", row->ranks, row->label, row->cell.bytes, who,
             what);
    progress_line_text(text);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *v, int n, double q)
{
    if (!n)
        return 0;
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[(int)(q * (n - 1) + 0.5)];
}

static int between(double v, int least, int most)
{
    return v < least ? least : v > most ? most : (int)v;
}

static double slowest(const struct orders *b)
{
    double t = 0;
    for (uint32_t r = 0; r < b->ranks; r++)
        t = b->report[r].each > t ? b->report[r].each : t;
    return t;
}

/* How a single call is timed. */
enum span {
    SLOWEST, /* the slowest rank's time in it */
    SPAN,    /* from the first rank's start to the last one's end */
    ROOT     /* from rank 0's start to the last one's end: with more ranks than cores one that has only to receive may
                not run before the data is there, and its own time says nothing */
};

static double single(const struct orders *b, int i, enum span how)
{
    double from = b->from[0][i], to = b->to[0][i], longest = 0;
    for (uint32_t r = 0; r < b->ranks; r++) {
        double t = b->to[r][i] - b->from[r][i];
        longest = t > longest ? t : longest;
        from = how == SPAN && b->from[r][i] < from ? b->from[r][i] : from;
        to = b->to[r][i] > to ? b->to[r][i] : to;
    }
    return how == SLOWEST ? longest : to - from;
}

static double look(struct entry *e, int calls)
{
    struct order o = {.verb = ORDER_TIME, .variant = e->variant, .warm = calls / 2 + 1, .runs = calls};
    return contenders_do(e->c, &o) ? 0 : slowest(e->c->orders);
}

static const struct work_cell *cell_of(const struct contender *c, const struct row *row, const struct work_cell *copy)
{
    return c->kind == WORK_MEMORY && row->cell.op < WORK_COPY ? copy : &row->cell;
}

static double longest_made(const struct orders *b, int way)
{
    double t = 0;
    for (uint32_t r = 0; r < b->ranks && way < ORDERS_WAYS; r++)
        t = b->report[r].made[way] > t ? b->report[r].made[way] : t;
    return t;
}

/* Opens the cell on a contender and checks each of its ways; adds them to the entries. */
static int open_all(struct contender *c, const struct work_cell *cell, struct row *row, struct entry *e)
{
    int n = 0;
    if (c->out || !work_variant(c->kind, cell, 0))
        return 0;
    struct order o = {.verb = ORDER_OPEN, .cell = *cell};
    if (contenders_do(c, &o)) {
        if (c->kind == WORK_WEFT && !c->without && !c->out)
            snprintf(row->refused, sizeof row->refused, "%s", c->why);
        return 0;
    }
    double made[ORDERS_WAYS];
    for (int v = 0; v < ORDERS_WAYS; v++)
        made[v] = longest_made(c->orders, v);
    for (int v = 0; work_variant(c->kind, cell, v); v++) {
        o = (struct order){.verb = ORDER_CHECK, .variant = v};
        if (contenders_do(c, &o))
            return n;
        e[n] = (struct entry){.c = c, .variant = v, .look = slowest(c->orders), .made = v < ORDERS_WAYS ? made[v] : 0};
        for (uint32_t r = 0; r < c->orders->ranks; r++)
            e[n].wrong += c->orders->report[r].wrong;
        n++;
    }
    return n;
}

/* How weft does the cell that it has open: malloc'ed; NULL if it does not say. */
static char *explain(struct contender *c, bool json)
{
    struct order o = {.verb = ORDER_EXPLAIN, .json = json};
    return c->out || contenders_do(c, &o) || !*c->orders->text ? NULL : strdup(c->orders->text);
}

/* The checked call is the first look, with all that a first call costs. A contender that is far off is not looked at
 * again. */
static void look_at_all(struct entry *e, int n, const struct measure *m, const struct row *row)
{
    double best[WORK_MEMORY + 1] = {0}, time = m->seconds / 10 < LOOK ? m->seconds / 10 : LOOK;
    for (int pass = 0; pass < 3; pass++) {
        double far = pass == 1 ? FAR : TOO_SLOW;
        for (int i = 0; i < n && pass; i++)
            if (e[i].look < far * best[e[i].c->kind]) {
                tell(row, e[i].c->name, "first look");
                e[i].look = look(&e[i], between(time / (e[i].look + 1e-9), 1, 500));
            }
        memset(best, 0, sizeof best);
        for (int i = 0; i < n; i++) {
            double *b = &best[e[i].c->kind];
            *b = *b <= 0 || e[i].look < *b ? e[i].look : *b;
        }
    }
    for (int i = 0; i < n; i++) {
        bool peer = e[i].c->kind == WORK_PEER && e[i].look > LONG;
        e[i].brief = e[i].c->kind != WORK_WEFT && e[i].look > (peer ? TOO_LONG : TOO_SLOW) * best[e[i].c->kind];
    }
}

static void one_round(struct entry *e, const struct measure *m, bool first, enum work_op op)
{
    bool over = (int)e->c->orders->ranks > work_cores(), alone = timed_alone(op);
    enum span how = alone ? SPAN : over && op == WORK_BROADCAST ? ROOT : SLOWEST;
    double part = m->seconds / m->rounds, t = e->look + 1e-9, barrier = over ? 5e-6 * e->c->orders->ranks : 5e-7;
    struct order o = {.verb = ORDER_TIME,
                      .variant = e->variant,
                      .runs = alone ? 1 : between(part / 2 / t, 2, 20000),
                      .singles = between(part / (alone ? 1 : 2) / (t + barrier), 2, ORDERS_SINGLES / m->rounds)};
    o.warm = alone ? 1 : o.runs / (first ? 2 : 10) + 1;
    if (e->c->out || contenders_do(e->c, &o))
        return;
    e->each[e->rounds++] = slowest(e->c->orders);
    for (int i = 0; i < o.singles; i++)
        e->single[e->nsingle++] = single(e->c->orders, i, how);
}

static void all_rounds(struct entry *e, int n, const struct measure *m, const struct row *row, int pass)
{
    for (int r = 0; r < m->rounds; r++)
        for (int k = 0; k < n; k++) {
            int i = (k + r) % n; /* each round begins with another one */
            char round[32];
            snprintf(round, sizeof round, "round %d of %d", r + 1 + pass * m->rounds, (pass + 1) * m->rounds);
            tell(row, e[i].c->name, round);
            if (!e[i].brief)
                one_round(&e[i], m, r == 0 && !pass, row->cell.op);
        }
}

/* Do the rounds of weft, of the floor or of the best peer differ too much for their medians to be of use? This does not
 * depend on which one is faster. */
static bool unsteady(struct entry *e, int n, enum work_op op)
{
    double best[WORK_MEMORY + 1] = {0}, spread[WORK_MEMORY + 1] = {0}, most = 0;
    for (int i = 0; i < n; i++) {
        double *v = timed_alone(op) ? e[i].single : e[i].each;
        int rounds = timed_alone(op) ? e[i].nsingle : e[i].rounds;
        double middle = quantile(v, rounds, 0.5), *b = &best[e[i].c->kind];
        if (e[i].brief || middle <= 0 || (*b > 0 && *b <= middle))
            continue;
        *b = middle;
        spread[e[i].c->kind] = quantile(v, rounds, 0.75) / quantile(v, rounds, 0.25);
    }
    for (int k = 0; k < WORK_MEMORY; k++)
        most = spread[k] > most ? spread[k] : most;
    return most > STEADY;
}

static void keep(struct entry *e, const struct work_cell *cell, struct row *row)
{
    if (e->c->out)
        return;
    struct figure *f = &row->f[row->n++];
    const char *way = work_variant(e->c->kind, cell, e->variant);
    *f = (struct figure){.kind = e->c->kind,
                         .without = e->c->without,
                         .variant = e->variant,
                         .wrong = e->wrong,
                         .brief = e->brief,
                         .made = e->made};
    snprintf(f->who, sizeof f->who, "%s%s%s", e->c->name, *way ? ", " : "", way);
    if (e->brief) {
        f->each = f->least = f->single = f->tail = e->look;
        return;
    }
    f->each = quantile(e->each, e->rounds, 0.5);
    f->least = quantile(e->each, e->rounds, 0);
    f->single = quantile(e->single, e->nsingle, 0.5);
    f->tail = quantile(e->single, e->nsingle, 0.95);
}

int measure_row(struct contenders *f, const struct measure *m, struct row *row, struct failure *why)
{
    static struct entry e[MEASURE_FIGURES];
    static double singles[MEASURE_FIGURES][MEASURE_PASSES * ORDERS_SINGLES];
    int n = 0;
    struct work_cell copy = {.op = WORK_COPY, .bytes = row->cell.bytes};
    if (row->cell.op == WORK_RESHARD || row->cell.op == WORK_MANY) /* as much as it moves */
        copy.bytes = (int64_t)work_moved(&row->cell, row->ranks) / row->workers;
    row->n = 0;
    for (int i = 0; i < f->n; i++) { /* launchers at work would disturb the contenders that are measured first */
        tell(row, f->c[i].name, "start");
        contenders_do(&f->c[i], &(struct order){.verb = ORDER_READY});
    }
    for (int i = 0; i < f->n && n + ORDERS_WAYS <= MEASURE_FIGURES && !*row->refused; i++) {
        tell(row, f->c[i].name, "open");
        n += open_all(&f->c[i], cell_of(&f->c[i], row, &copy), row, &e[n]);
    }
    if (*row->refused)
        return 0;
    if (m->explain && f->n && f->c[0].kind == WORK_WEFT) {
        row->explain = explain(&f->c[0], false);
        row->explain_json = explain(&f->c[0], true);
    }
    for (int i = 0; i < n; i++)
        e[i].single = singles[i];
    look_at_all(e, n, m, row);
    for (int pass = 0; pass < MEASURE_PASSES && (!pass || unsteady(e, n, row->cell.op)); pass++)
        all_rounds(e, n, m, row, pass);
    if (signals_caught())
        return failure_set(why, CLI_WRONG, "interrupted");
    row->copy = 0;
    for (int i = 0; i < n; i++) {
        keep(&e[i], cell_of(e[i].c, row, &copy), row);
        if (e[i].c->kind == WORK_MEMORY && row->cell.op < WORK_COPY && !e[i].c->out)
            row->copy = (double)row->workers * (double)copy.bytes / row->f[--row->n].each;
    }
    for (int i = 0; i < f->n; i++)
        if (f->c[i].kind == WORK_WEFT && !f->c[i].without && f->c[i].out)
            return failure_set(why, CLI_WRONG, "%s", f->c[i].why);
    return 0;
}

double measure_time(const struct row *row, const struct figure *f)
{
    if (timed_alone(row->cell.op))
        return f->single;
    if (row->cell.op == WORK_PING)
        return f->each / 2;
    return row->cell.op == WORK_BROADCAST && f->single > f->each ? f->single : f->each;
}

const struct figure *measure_best(const struct row *row, enum work_kind kind)
{
    const struct figure *best = NULL;
    for (int i = 0; i < row->n; i++) {
        const struct figure *f = &row->f[i];
        if (f->kind == kind && !f->wrong && (!best || measure_time(row, f) < measure_time(row, best)))
            best = f;
    }
    return best;
}
