#include "cli/trace/trace_runs.h"

#include <stdlib.h>
#include <string.h>

/* ---- the slices that are about runs, sorted by exec, run and rank ---- */

struct item {
    const struct trace_files *t;
    const struct trace_slice *s;
};

static const char *comm_of(const struct item *i)
{
    return i->t->files[i->s->file].comm;
}

static int rank_of(const struct item *i)
{
    return i->t->files[i->s->file].rank;
}

static int by_exec(const struct item *x, const struct item *y)
{
    int order = strcmp(comm_of(x), comm_of(y));
    return order ? order : (x->s->exec > y->s->exec) - (x->s->exec < y->s->exec);
}

static int by_run(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = by_exec(x, y);
    if (!order)
        order = (x->s->run > y->s->run) - (x->s->run < y->s->run);
    return order ? order : rank_of(x) - rank_of(y);
}

static int by_rank(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = rank_of(x) - rank_of(y);
    return order ? order : (x->s->ns > y->s->ns) - (x->s->ns < y->s->ns);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* ---- one exec ---- */

/* Runs of which all ranks have a slice. The items of an exec are sorted by run. */
static void whole_runs(struct trace_runs *r, const struct item *items, size_t n, int64_t *times)
{
    for (size_t i = 0, k; i < n; i = k) {
        int64_t begin = items[i].s->at, end = begin;
        for (k = i; k < n && items[k].s->run == items[i].s->run; k++) {
            begin = items[k].s->at < begin ? items[k].s->at : begin;
            end = items[k].s->at + items[k].s->ns > end ? items[k].s->at + items[k].s->ns : end;
        }
        if (k - i == (size_t)r->members)
            times[r->runs++] = end - begin;
    }
    qsort(times, (size_t)r->runs, sizeof *times, by_value);
    r->median = r->runs ? times[r->runs / 2] : 0;
}

static void each_rank(struct trace_runs *r, struct item *items, size_t n)
{
    qsort(items, n, sizeof *items, by_rank);
    for (size_t i = 0, k; i < n; i = k) {
        struct trace_rank_runs *rank = &r->ranks[rank_of(&items[i])];
        for (k = i; k < n && rank_of(&items[k]) == rank_of(&items[i]); k++)
            rank->runs++;
        rank->median = items[i + (k - i) / 2].s->ns;
    }
}

static void add_waits(const struct trace_files *t, struct trace_runs_list *l)
{
    for (size_t i = 0; i < t->nslices; i++) {
        const struct trace_slice *s = &t->slices[i];
        if (!trace_files_is(t, s, "wait"))
            continue;
        for (int k = 0; k < l->n; k++)
            if (l->of[k].exec == s->exec && !strcmp(l->of[k].comm, t->files[s->file].comm))
                l->of[k].ranks[t->files[s->file].rank].waited += s->ns;
    }
    for (int k = 0; k < l->n; k++)
        for (int r = 0; r < t->ranks; r++)
            if (l->of[k].ranks[r].runs)
                l->of[k].ranks[r].waited /= l->of[k].ranks[r].runs;
}

int trace_runs_find(const struct trace_files *t, struct trace_runs_list *out, struct failure *f)
{
    size_t n = 0;
    struct item *items = calloc(t->nslices + 1, sizeof *items);
    int64_t *times = calloc(t->nslices + 1, sizeof *times);
    *out = (struct trace_runs_list){.n = 0};
    for (size_t i = 0; items && i < t->nslices; i++)
        if (trace_files_is(t, &t->slices[i], "run"))
            items[n++] = (struct item){t, &t->slices[i]};
    if (items)
        qsort(items, n, sizeof *items, by_run);
    out->of = calloc(n + 1, sizeof *out->of);
    bool good = items && times && out->of;
    for (size_t i = 0, k; good && i < n; i = k) {
        const struct trace_slice *s = items[i].s;
        struct trace_runs *r = &out->of[out->n++];
        for (k = i; k < n && !by_exec(&items[i], &items[k]); k++) {
        }
        *r = (struct trace_runs){.comm = comm_of(&items[i]),
                                 .plan = trace_files_text(t, s, "plan"),
                                 .kind = trace_files_text(t, s, "kind"),
                                 .algorithm = trace_files_text(t, s, "algorithm"),
                                 .driver = trace_files_text(t, s, "driver"),
                                 .exec = s->exec,
                                 .members = t->files[s->file].members,
                                 .ranks = calloc((size_t)t->ranks, sizeof *r->ranks)};
        good = r->ranks != NULL;
        if (!good)
            break;
        whole_runs(r, items + i, k - i, times);
        each_rank(r, items + i, k - i);
    }
    free(items);
    free(times);
    if (!good) {
        trace_runs_free(out);
        return failure_set(f, CLI_WRONG, "memory is out");
    }
    add_waits(t, out);
    return 0;
}

void trace_runs_free(struct trace_runs_list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->of[i].ranks);
    free(l->of);
    *l = (struct trace_runs_list){.n = 0};
}
