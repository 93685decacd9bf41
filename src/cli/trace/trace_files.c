/* Reading the traces of ranks; see trace_files.h. */
#define _GNU_SOURCE
#include "cli/trace/trace_files.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tool/whole_file.h"

#define MOST (INT64_C(1) << 58) /* nanoseconds: a time, a length and HOPS offsets are less than 2^62 together */
#define HOPS 8
#define EVENTS (INT64_C(1) << 40) /* of a file, and the largest number of a track */

/* ---- members ---- */

struct look {
    const struct trace_file *file;
    struct failure *f;
    int err;
};

static void wrong(struct look *l, const char *key)
{
    if (!l->err)
        l->err = failure_set(l->f, CLI_BAD, "%s: \"%s\" is missing or makes no sense", l->file->path, key);
}

static const char *text_of(struct look *l, const struct json_value *v, const char *key)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && m->kind == JSON_TEXT)
        return m->text;
    wrong(l, key);
    return "";
}

static int64_t int_of(struct look *l, const struct json_value *v, const char *key, int64_t min, int64_t max)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && m->kind == JSON_INT && m->number >= min && m->number <= max)
        return m->number;
    wrong(l, key);
    return min;
}

/* Microseconds with three digits behind the point, as nanoseconds. */
static int64_t time_of(struct look *l, const struct json_value *v, const char *key)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    int64_t ns = 0;
    int digits = -1;
    if (m && m->kind == JSON_INT && m->number >= 0 && m->number < MOST / 1000)
        return m->number * 1000;
    for (const char *s = m && m->kind == JSON_REAL ? m->text : "x"; digits < 3; s++) {
        if (*s == '.' && digits < 0)
            digits = 0;
        else if (*s >= '0' && *s <= '9' && ns < MOST / 10) {
            ns = ns * 10 + (*s - '0');
            digits += digits >= 0;
        } else if (digits >= 0 && ns < MOST / 10 && !strchr("0123456789-+eE", *s)) {
            ns *= 10;
            digits++;
            s--;
        } else {
            wrong(l, key);
            return 0;
        }
    }
    return ns;
}

/* ---- files ---- */

static int add_path(struct trace_files *t, const char *folder, const char *name, struct failure *f)
{
    struct trace_file *more = realloc(t->files, ((size_t)t->n + 1) * sizeof *more);
    if (more)
        t->files = more;
    char *path = NULL;
    if (!more || asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", name) < 0)
        return failure_set(f, CLI_WRONG, "memory is out");
    t->files[t->n++] = (struct trace_file){.path = path};
    return 0;
}

static int add_folder(struct trace_files *t, const char *folder, struct failure *f)
{
    struct dirent **names;
    int err = 0, before = t->n, n = scandir(folder, &names, NULL, alphasort);
    if (n < 0)
        return failure_set(f, CLI_BAD, "%s: it cannot be read", folder);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        size_t len = strlen(name);
        if (!err && !strncmp(name, "weft-trace-", 11) && len > 5 && !strcmp(name + len - 5, ".json"))
            err = add_path(t, folder, name, f);
        free(names[i]);
    }
    free(names);
    return !err && t->n == before ? failure_set(f, CLI_BAD, "%s: it has no files weft-trace-*.json", folder) : err;
}

static int read_file(struct trace_file *file, struct failure *f)
{
    char wrongs[JSON_WRONG], *bytes;
    size_t len = 0;
    int err = whole_file_read(file->path, &bytes, &len, f);
    if (err)
        return err;
    const char *why = json_read(&file->doc, bytes, len, wrongs);
    if (why)
        return failure_set(f, CLI_BAD, "%s: it is not JSON: %s", file->path, why);
    whole_file_tame(file->doc.bytes, len);
    struct look l = {file, f, 0};
    const struct json_value *all = &file->doc.values[1], *other = json_member(&file->doc, all, "otherData");
    if (!json_member(&file->doc, other, "weft_trace"))
        return failure_set(f, CLI_BAD, "%s: it is no trace of one of weft's ranks", file->path);
    int_of(&l, other, "weft_trace", 1, 1);
    file->job = text_of(&l, other, "job");
    file->comm = text_of(&l, other, "comm");
    file->host = text_of(&l, other, "host");
    file->clock_of = text_of(&l, other, "clock_of");
    file->ranks = (int)int_of(&l, other, "ranks", 1, TRACE_FILES_RANKS);
    file->rank = (int)int_of(&l, other, "rank", 0, file->ranks - 1);
    file->members = (int)int_of(&l, other, "members", 1, file->ranks);
    file->recorded = int_of(&l, other, "recorded", 0, EVENTS);
    file->dropped = int_of(&l, other, "dropped", 0, EVENTS);
    file->events = json_member(&file->doc, all, "traceEvents");
    if (!file->events || file->events->kind != JSON_ARRAY)
        wrong(&l, "traceEvents");
    return l.err;
}

static int by_rank(const void *a, const void *b)
{
    const struct trace_file *x = a, *y = b;
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : strcmp(x->comm, y->comm);
}

static int check_job(struct trace_files *t, struct failure *f)
{
    const struct trace_file *zero = &t->files[0];
    for (int i = 1; i < t->n; i++)
        if (strcmp(t->files[i].job, zero->job) || t->files[i].ranks != zero->ranks)
            return failure_set(f, CLI_BAD, "%s is of %s with %d ranks, %s of %s with %d: give the files of one job",
                               zero->path, zero->job, zero->ranks, t->files[i].path, t->files[i].job,
                               t->files[i].ranks);
    qsort(t->files, (size_t)t->n, sizeof *t->files, by_rank);
    for (int i = 1; i < t->n; i++)
        if (!by_rank(&t->files[i - 1], &t->files[i]))
            return failure_set(f, CLI_BAD, "%s and %s are both of rank %d of %s: give the files of one run of the job",
                               t->files[i - 1].path, t->files[i].path, t->files[i].rank, t->files[i].comm);
    t->ranks = t->files[0].ranks;
    return 0;
}

/* ---- clocks ---- */

static int host_of(struct trace_files *t, const char *name)
{
    for (int i = 0; i < t->nhosts; i++)
        if (!strcmp(t->hosts[i].name, name))
            return i;
    t->hosts[t->nhosts] = (struct trace_host){.name = name, .to = -1, .hops = -1};
    return t->nhosts++;
}

static int by_at(const void *a, const void *b)
{
    const struct trace_look *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int read_looks(struct trace_files *t, const struct trace_file *file, struct failure *f)
{
    struct look l = {file, f, 0};
    const struct json_doc *d = &file->doc;
    const struct json_value *clocks = json_member(d, json_member(d, &d->values[1], "otherData"), "clocks");
    struct trace_host *h = &t->hosts[file->host_number];
    int to = host_of(t, file->clock_of);
    if (!clocks || clocks->kind != JSON_ARRAY)
        wrong(&l, "clocks");
    for (const struct json_value *v = clocks && !l.err ? json_first(d, clocks) : NULL; v && !l.err;
         v = json_next(d, v)) {
        if (to == file->host_number || (h->to >= 0 && h->to != to)) /* one way to compare it is enough */
            break;
        struct trace_look *more = realloc(h->looks, (h->nlooks + 1) * sizeof *more);
        if (!more)
            return failure_set(f, CLI_WRONG, "memory is out");
        h->looks = more;
        h->to = to;
        h->looks[h->nlooks++] =
            (struct trace_look){int_of(&l, v, "at_ns", 0, MOST), int_of(&l, v, "offset_ns", -MOST, MOST),
                                int_of(&l, v, "error_ns", 0, MOST)};
    }
    return l.err;
}

static int64_t most_error(const struct trace_host *h)
{
    int64_t most = 0;
    for (size_t i = 0; i < h->nlooks; i++)
        most = h->looks[i].error > most ? h->looks[i].error : most;
    return most;
}

static int read_clocks(struct trace_files *t, struct failure *f)
{
    int err = 0;
    t->hosts = calloc(2 * (size_t)t->n, sizeof *t->hosts);
    if (!t->hosts)
        return failure_set(f, CLI_WRONG, "memory is out");
    for (int i = 0; i < t->n; i++)
        t->files[i].host_number = host_of(t, t->files[i].host);
    for (int i = 0; i < t->n && !err; i++)
        err = read_looks(t, &t->files[i], f);
    if (err)
        return err;
    t->hosts[0].to = -1; /* all others are put on this clock */
    t->hosts[0].hops = 0;
    for (int i = 0; i < t->nhosts; i++)
        if (t->hosts[i].nlooks)
            qsort(t->hosts[i].looks, t->hosts[i].nlooks, sizeof *t->hosts[i].looks, by_at);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < t->nhosts; i++) {
            struct trace_host *h = &t->hosts[i];
            if (h->hops >= 0 || h->to < 0 || t->hosts[h->to].hops < 0 || t->hosts[h->to].hops == HOPS)
                continue;
            h->hops = t->hosts[h->to].hops + 1;
            h->error = t->hosts[h->to].error + most_error(h);
            more = true;
        }
    }
    for (int i = 0; i < t->n; i++) { /* a host that has no file, only its name, does not count */
        struct trace_host *h = &t->hosts[t->files[i].host_number];
        bool first = true;
        for (int k = 0; k < i; k++)
            first &= t->files[k].host_number != t->files[i].host_number;
        t->unaligned += first && h->hops < 0;
    }
    return 0;
}

/* Between two looks clocks drift evenly; before the first and after the last they do not. */
static int64_t offset_at(const struct trace_host *h, int64_t at)
{
    const struct trace_look *a = h->looks, *last = a + h->nlooks - 1;
    while (a < last && a[1].at <= at)
        a++;
    if (at <= a->at || a == last)
        return a->offset;
    double share = (double)(at - a->at) / (double)(a[1].at - a->at);
    return a->offset + (int64_t)(share * (double)(a[1].offset - a->offset));
}

static int64_t on_first_clock(const struct trace_files *t, const struct trace_file *file, int64_t at)
{
    const struct trace_host *h = &t->hosts[file->host_number];
    for (; h->hops > 0; h = &t->hosts[h->to])
        at += offset_at(h, at);
    return at;
}

/* ---- events ---- */

static int read_event(struct trace_files *t, int i, const struct json_value *v, struct failure *f)
{
    const struct trace_file *file = &t->files[i];
    struct look l = {file, f, 0};
    const char *ph = text_of(&l, v, "ph");
    int_of(&l, v, "tid", 0, EVENTS);
    if (l.err || !strcmp(ph, "M"))
        return l.err;
    int64_t from = time_of(&l, v, "ts"), at = on_first_clock(t, file, from);
    if (int_of(&l, v, "pid", 0, file->ranks - 1) != file->rank)
        wrong(&l, "pid");
    text_of(&l, v, "name");
    if (!strcmp(ph, "X")) {
        int64_t ns = on_first_clock(t, file, from + time_of(&l, v, "dur")) - at;
        ns = ns > 0 ? ns : 0; /* a file may say that a clock went backwards */
        struct trace_slice *s = &t->slices[t->nslices++];
        *s =
            (struct trace_slice){.file = i, .event = v, .args = json_member(&file->doc, v, "args"), .at = at, .ns = ns};
        s->exec = trace_files_int(t, s, "exec", -1);
        s->run = trace_files_int(t, s, "run", -1);
    } else if (!strcmp(ph, "s") || !strcmp(ph, "f")) {
        t->arrows[t->narrows++] = (struct trace_arrow){.id = text_of(&l, v, "id"),
                                                       .file = i,
                                                       .event = v,
                                                       .at = at,
                                                       .ends = !strcmp(ph, "f"),
                                                       .signal = !strcmp(text_of(&l, v, "name"), "signal")};
    } else {
        wrong(&l, "ph");
    }
    return l.err;
}

static int by_begin(const void *a, const void *b)
{
    const struct trace_slice *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static int by_id(const void *a, const void *b)
{
    const struct trace_arrow *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    /* A signal may get the same value again. Both of its ends are on one host, so that the clock tells them apart. */
    if (!order && x->signal && y->signal)
        order = (x->at > y->at) - (x->at < y->at);
    return order ? order : x->ends - y->ends;
}

static int arrow_by_at(const void *a, const void *b)
{
    const struct trace_arrow *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Both ends of an arrow have the same number. An end without the other one is left out, and counted. */
static void pair(struct trace_files *t)
{
    qsort(t->arrows, t->narrows, sizeof *t->arrows, by_id);
    for (size_t i = 0; i < t->narrows; i++) {
        struct trace_arrow *a = &t->arrows[i], *b = i + 1 < t->narrows ? a + 1 : NULL;
        if (!b || a->ends || !b->ends || strcmp(a->id, b->id)) {
            t->unpaired += !a->signal; /* nobody need wait for a signal */
            continue;
        }
        a->paired = b->paired = true;
        a->other = b->file;
        b->other = a->file;
        t->signals += a->signal;
        t->backwards += b->at < a->at;
        i++;
    }
    size_t n = 0;
    for (size_t i = 0; i < t->narrows; i++)
        if (t->arrows[i].paired)
            t->arrows[n++] = t->arrows[i];
    t->narrows = n;
    qsort(t->arrows, t->narrows, sizeof *t->arrows, arrow_by_at);
}

static int read_events(struct trace_files *t, struct failure *f)
{
    size_t n = 1;
    int err = 0;
    for (int i = 0; i < t->n; i++)
        for (const struct json_value *v = json_first(&t->files[i].doc, t->files[i].events); v;
             v = json_next(&t->files[i].doc, v))
            n++;
    t->slices = calloc(n, sizeof *t->slices);
    t->arrows = calloc(n, sizeof *t->arrows);
    if (!t->slices || !t->arrows)
        return failure_set(f, CLI_WRONG, "memory is out");
    for (int i = 0; i < t->n && !err; i++)
        for (const struct json_value *v = json_first(&t->files[i].doc, t->files[i].events); v && !err;
             v = json_next(&t->files[i].doc, v))
            err = read_event(t, i, v, f);
    if (err)
        return err;
    qsort(t->slices, t->nslices, sizeof *t->slices, by_begin);
    pair(t);
    t->begin = t->nslices ? t->slices[0].at : 0;
    return 0;
}

int trace_files_read(const char *const *paths, int n, struct trace_files *out, struct failure *f)
{
    struct stat st;
    int err = 0;
    *out = (struct trace_files){.n = 0};
    for (int i = 0; i < n && !err; i++)
        err =
            !stat(paths[i], &st) && S_ISDIR(st.st_mode) ? add_folder(out, paths[i], f) : add_path(out, "", paths[i], f);
    for (int i = 0; i < out->n && !err; i++)
        err = read_file(&out->files[i], f);
    if (!err)
        err = check_job(out, f);
    if (!err)
        err = read_clocks(out, f);
    if (!err)
        err = read_events(out, f);
    if (err)
        trace_files_free(out);
    return err;
}

void trace_files_free(struct trace_files *t)
{
    for (int i = 0; i < t->n; i++) {
        json_free(&t->files[i].doc);
        free(t->files[i].path);
    }
    for (int i = 0; i < t->nhosts; i++)
        free(t->hosts[i].looks);
    free(t->files);
    free(t->hosts);
    free(t->slices);
    free(t->arrows);
    *t = (struct trace_files){.n = 0};
}

int64_t trace_files_int(const struct trace_files *t, const struct trace_slice *s, const char *key, int64_t fallback)
{
    const struct json_value *v = json_member(&t->files[s->file].doc, s->args, key);
    return v && v->kind == JSON_INT ? v->number : fallback;
}

const char *trace_files_text(const struct trace_files *t, const struct trace_slice *s, const char *key)
{
    const struct json_value *v = json_member(&t->files[s->file].doc, s->args, key);
    return v && v->kind == JSON_TEXT ? v->text : "";
}

bool trace_files_is(const struct trace_files *t, const struct trace_slice *s, const char *name)
{
    return !strcmp(json_member(&t->files[s->file].doc, s->event, "name")->text, name);
}
