#define _GNU_SOURCE
#include "cli/trace/trace_merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/json_write.h"

static void write_value(struct json *j, const struct json_doc *d, const struct json_value *v)
{
    switch (v->kind) {
    case JSON_INT: json_write_int(j, v->key, v->number); break;
    case JSON_TEXT: json_write_text(j, v->key, v->text); break;
    case JSON_TRUE:
    case JSON_FALSE: json_write_bool(j, v->key, v->kind == JSON_TRUE); break;
    case JSON_OBJECT:
        json_write_open(j, v->key, '{', true);
        for (const struct json_value *m = json_first(d, v); m && j->depth < JSON_DEPTH - 1; m = json_next(d, m))
            write_value(j, d, m);
        json_write_close(j, '}');
        break;
    default: json_write_text(j, v->key, NULL); break;
    }
}

static void write_us(struct json *j, const char *key, int64_t ns)
{
    char text[40];
    snprintf(text, sizeof text, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
    json_write_raw(j, key, text);
}

/* The event as it is, except for its times and its track. at: negative: it has none. */
static void write_event(struct json *j, const struct trace_files *t, int file, const struct json_value *v, int64_t at,
                        int64_t ns, int64_t track)
{
    const struct json_doc *d = &t->files[file].doc;
    json_write_open(j, NULL, '{', true);
    for (const struct json_value *m = json_first(d, v); m; m = json_next(d, m)) {
        if (!strcmp(m->key, "ts") && at >= 0)
            write_us(j, "ts", at);
        else if (!strcmp(m->key, "dur") && at >= 0)
            write_us(j, "dur", ns);
        else if (!strcmp(m->key, "tid") && m->kind == JSON_INT)
            json_write_int(j, "tid", m->number + track);
        else
            write_value(j, d, m);
    }
    json_write_close(j, '}');
}

/* Tracks of several comms of one rank follow each other. */
static int64_t *tracks_of(const struct trace_files *t)
{
    int64_t *first = calloc((size_t)t->n, sizeof *first), next = 0;
    for (int i = 0; first && i < t->n; i++) {
        const struct json_doc *d = &t->files[i].doc;
        int64_t most = 0;
        next = i && t->files[i].rank == t->files[i - 1].rank ? next : 0;
        first[i] = next;
        for (const struct json_value *v = json_first(d, t->files[i].events); v; v = json_next(d, v)) {
            const struct json_value *tid = json_member(d, v, "tid");
            most = tid->number > most ? tid->number : most;
        }
        next += most + 1;
    }
    return first;
}

static void write_all(struct json *j, const struct trace_files *t, const int64_t *track)
{
    for (int i = 0; i < t->n; i++) {
        const struct json_doc *d = &t->files[i].doc;
        for (const struct json_value *v = json_first(d, t->files[i].events); v; v = json_next(d, v)) {
            const struct json_value *ph = json_member(d, v, "ph");
            if (!strcmp(ph->text, "M"))
                write_event(j, t, i, v, -1, 0, track[i]);
        }
    }
    for (size_t s = 0, a = 0; s < t->nslices || a < t->narrows;) {
        const struct trace_slice *slice = &t->slices[s];
        const struct trace_arrow *arrow = &t->arrows[a];
        if (a == t->narrows || (s < t->nslices && slice->at <= arrow->at)) {
            write_event(j, t, slice->file, slice->event, slice->at - t->begin, slice->ns, track[slice->file]);
            s++;
        } else {
            int64_t at = arrow->at - t->begin;
            write_event(j, t, arrow->file, arrow->event, at > 0 ? at : 0, 0, track[arrow->file]);
            a++;
        }
    }
}

static void write_other(struct json *j, const struct trace_files *t)
{
    int64_t recorded = 0, dropped = 0;
    for (int i = 0; i < t->n; i++) {
        recorded += t->files[i].recorded;
        dropped += t->files[i].dropped;
    }
    json_write_open(j, "otherData", '{', false);
    json_write_int(j, "weft_trace", 1);
    json_write_text(j, "job", t->files[0].job);
    json_write_int(j, "ranks", t->ranks);
    json_write_int(j, "files", t->n);
    json_write_int(j, "recorded", recorded);
    json_write_int(j, "dropped", dropped);
    json_write_int(j, "arrows_without_an_end", (int64_t)t->unpaired);
    json_write_int(j, "arrows_backwards", (int64_t)t->backwards);
    json_write_int(j, "begin_ns", t->begin);
    json_write_text(j, "clock_of", t->hosts[0].name);
    json_write_open(j, "clocks", '[', false);
    for (int i = 1; i < t->nhosts; i++) {
        const struct trace_host *h = &t->hosts[i];
        json_write_open(j, NULL, '{', true);
        json_write_text(j, "host", h->name);
        json_write_bool(j, "aligned", h->hops >= 0);
        if (h->hops >= 0)
            json_write_int(j, "error_ns", h->error);
        json_write_close(j, '}');
    }
    json_write_close(j, ']');
    json_write_close(j, '}');
}

int trace_merge_write(const struct trace_files *t, const char *path, struct failure *f)
{
    int64_t *track = tracks_of(t);
    if (!track)
        return failure_set(f, CLI_WRONG, "memory is out");
    FILE *to = fopen(path, "we");
    if (to) {
        struct json j = {.to = to};
        json_write_open(&j, NULL, '{', false);
        json_write_text(&j, "displayTimeUnit", "ns");
        json_write_open(&j, "traceEvents", '[', false);
        write_all(&j, t, track);
        json_write_close(&j, ']');
        write_other(&j, t);
        json_write_close(&j, '}');
    }
    free(track);
    bool good = to && !ferror(to);
    if (!to || fclose(to) || !good)
        return failure_set(f, CLI_WRONG, "%s: %s", path, strerror(errno));
    return 0;
}
