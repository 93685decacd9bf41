#include "cli/trace/trace_calls.h"

#include <stdlib.h>
#include <string.h>

/* A slice of a window or an exchange. */
struct item {
    const struct trace_files *t;
    const struct trace_slice *s;
    int64_t number, round; /* round: 0 for slices that are not one */
};

static const char *comm_of(const struct item *i)
{
    return i->t->files[i->s->file].comm;
}

static int by_object(const struct item *x, const struct item *y)
{
    int order = strcmp(comm_of(x), comm_of(y));
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static int by_round(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = by_object(x, y);
    return order ? order : (x->round > y->round) - (x->round < y->round);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A file may say anything: what is too much is the largest number. */
static int64_t sum(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX - b ? INT64_MAX : b < 0 && a < INT64_MIN - b ? INT64_MIN : a + b;
}

static void count(struct trace_calls *c, const struct item *i)
{
    const struct trace_files *t = i->t;
    const struct trace_slice *s = i->s;
    bool put = trace_files_is(t, s, "put") || trace_files_is(t, s, "put_add");
    bool sent = c->exchange && trace_files_is(t, s, "send");
    bool barrier = trace_files_is(t, s, "barrier"), wait = trace_files_is(t, s, "wait");
    c->puts += put;
    c->messages += sent;
    c->bytes = sum(c->bytes, put || sent ? trace_files_int(t, s, "bytes", 0) : 0);
    /* A call whose notify is done later has a second event, which says of whom it is. */
    c->notifies += trace_files_is(t, s, "notify") && trace_files_int(t, s, "of", -1) < 0;
    c->arrived += !c->exchange && trace_files_is(t, s, "receive");
    c->barriers += barrier;
    c->waits += wait;
    c->waited = sum(c->waited, wait || barrier ? s->ns : 0);
}

/* Rounds of which all ranks have a slice. The items are sorted by round. */
static void whole_rounds(struct trace_calls *c, const struct item *items, size_t n, int64_t *times)
{
    for (size_t i = 0, k; i < n; i = k) {
        int64_t begin = items[i].s->at, end = begin;
        for (k = i; k < n && items[k].round == items[i].round; k++) {
            const struct trace_slice *s = items[k].s;
            begin = s->at < begin ? s->at : begin;
            end = s->at + s->ns > end ? s->at + s->ns : end;
        }
        if (items[i].round && k - i == (size_t)c->members)
            times[c->rounds++] = end - begin;
    }
    qsort(times, (size_t)c->rounds, sizeof *times, by_value);
    c->median = c->rounds ? times[c->rounds / 2] : 0;
}

int trace_calls_find(const struct trace_files *t, struct trace_calls_list *out, struct failure *f)
{
    size_t n = 0;
    struct item *items = calloc(t->nslices + 1, sizeof *items);
    int64_t *times = calloc(t->nslices + 1, sizeof *times);
    *out = (struct trace_calls_list){.n = 0};
    for (size_t i = 0; items && i < t->nslices; i++) {
        const struct trace_slice *s = &t->slices[i];
        int64_t window = trace_files_int(t, s, "window", -1), number = trace_files_int(t, s, "exchange", window);
        if (number >= 0)
            items[n++] =
                (struct item){t, s, number, trace_files_is(t, s, "round") ? trace_files_int(t, s, "round", 0) : 0};
    }
    if (items)
        qsort(items, n, sizeof *items, by_round);
    out->of = calloc(n + 1, sizeof *out->of);
    if (!items || !times || !out->of) {
        free(items);
        free(times);
        trace_calls_free(out);
        return failure_set(f, CLI_WRONG, "memory is out");
    }
    for (size_t i = 0, k; i < n; i = k) {
        struct trace_calls *c = &out->of[out->n++];
        *c = (struct trace_calls){.comm = comm_of(&items[i]),
                                  .number = items[i].number,
                                  .exchange = trace_files_int(t, items[i].s, "exchange", -1) >= 0,
                                  .members = t->files[items[i].s->file].members};
        for (k = i; k < n && !by_object(&items[i], &items[k]); k++)
            count(c, &items[k]);
        whole_rounds(c, items + i, k - i, times);
    }
    free(items);
    free(times);
    return 0;
}

void trace_calls_free(struct trace_calls_list *l)
{
    free(l->of);
    *l = (struct trace_calls_list){.n = 0};
}
