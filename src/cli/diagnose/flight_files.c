/* Reading the flight recorder's files; see flight_files.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/diagnose/flight_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/whole_file.h"

/* ---- members: each says what is missing or of the wrong kind ---- */

struct look {
    struct flight_file *file;
    struct failure *f;
    int err;
};

static const char *text_of(struct look *l, const struct json_value *v, const char *key)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && m->kind == JSON_TEXT)
        return m->text;
    if (!l->err)
        l->err = failure_set(l->f, CLI_BAD, "%s: there is no text \"%s\" where one should be", l->file->path, key);
    return "";
}

static int64_t int_of(struct look *l, const struct json_value *v, const char *key, int64_t min, int64_t max)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && m->kind == JSON_INT && m->number >= min && m->number <= max)
        return m->number;
    if (!l->err)
        l->err =
            failure_set(l->f, CLI_BAD, "%s: there is no \"%s\" from %" PRId64 " to %" PRId64 " where one should be",
                        l->file->path, key, min, max);
    return min;
}

static bool bool_of(struct look *l, const struct json_value *v, const char *key)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && (m->kind == JSON_TRUE || m->kind == JSON_FALSE))
        return m->kind == JSON_TRUE;
    if (!l->err)
        l->err =
            failure_set(l->f, CLI_BAD, "%s: there is no true or false \"%s\" where one should be", l->file->path, key);
    return false;
}

static const struct json_value *array_of(struct look *l, const struct json_value *v, const char *key)
{
    const struct json_value *m = json_member(&l->file->doc, v, key);
    if (m && m->kind == JSON_ARRAY)
        return m;
    if (!l->err)
        l->err = failure_set(l->f, CLI_BAD, "%s: there is no array \"%s\" where one should be", l->file->path, key);
    return NULL;
}

/* ---- waits ---- */

static void add_wait(struct flight_files *fl, struct look *l, const struct flight_wait *w)
{
    if (l->err)
        return;
    if (w->on == w->rank) {
        l->err = failure_set(l->f, CLI_BAD, "%s: rank %d waits for itself", l->file->path, w->rank);
        return;
    }
    if (fl->nwaits == fl->cap) {
        size_t cap = fl->cap ? 2 * fl->cap : 64;
        struct flight_wait *more = realloc(fl->waits, cap * sizeof *more);
        if (!more) {
            l->err = failure_set(l->f, CLI_WRONG, "memory is out");
            return;
        }
        fl->waits = more;
        fl->cap = cap;
    }
    fl->waits[fl->nwaits++] = *w;
}

static void read_meeting(struct flight_files *fl, struct look *l, const struct json_value *all)
{
    struct flight_file *file = l->file;
    const struct json_value *m = json_member(&file->doc, all, "meeting");
    if (m && m->kind == JSON_NULL)
        return;
    file->call = text_of(l, m, "call");
    file->plan = text_of(l, m, "plan");
    file->meeting = int_of(l, m, "number", 0, INT64_MAX);
    const struct json_value *missing = array_of(l, m, "missing");
    for (const struct json_value *v = missing ? json_first(&file->doc, missing) : NULL; v && !l->err;
         v = json_next(&file->doc, v)) {
        struct flight_wait w = {.rank = file->rank,
                                .on = (int)int_of(l, v, "rank", 0, file->ranks - 1),
                                .comm = file->comm,
                                .peer = text_of(l, v, "peer"),
                                .call = file->call,
                                .meeting = file->meeting};
        add_wait(fl, l, &w);
    }
}

static void read_channel(struct flight_files *fl, struct look *l, const struct json_value *v, struct flight_wait w)
{
    if (!bool_of(l, v, "waits"))
        return;
    w.sends = json_member(&l->file->doc, v, "to") != NULL;
    w.on = (int)int_of(l, v, w.sends ? "to" : "from", 0, l->file->ranks - 1);
    w.started = bool_of(l, v, "peer_started");
    w.peer = text_of(l, v, "peer");
    w.messages = int_of(l, v, "messages", 1, UINT32_MAX);
    w.message = int_of(l, v, "done", 0, w.messages - 1) + 1;
    w.bytes = int_of(l, v, "bytes", 0, INT64_MAX);
    w.parts = int_of(l, v, "parts", 0, UINT32_MAX);
    w.tensor = int_of(l, v, "tensor", 0, UINT32_MAX);
    w.name = text_of(l, v, "name");
    add_wait(fl, l, &w);
}

static void read_execs(struct flight_files *fl, struct look *l, const struct json_value *all)
{
    const struct json_doc *d = &l->file->doc;
    l->file->execs = array_of(l, all, "execs");
    for (const struct json_value *x = l->file->execs ? json_first(d, l->file->execs) : NULL; x && !l->err;
         x = json_next(d, x)) {
        struct flight_wait w = {.rank = l->file->rank,
                                .comm = l->file->comm,
                                .exec = int_of(l, x, "exec", 0, INT64_MAX),
                                .run = int_of(l, x, "started", 0, INT64_MAX),
                                .plan = text_of(l, x, "plan"),
                                .kind = text_of(l, x, "kind"),
                                .algorithm = text_of(l, x, "algorithm")};
        if (strcmp(text_of(l, x, "state"), "in flight"))
            continue;
        const struct json_value *channels = array_of(l, x, "channels");
        for (const struct json_value *v = channels ? json_first(d, channels) : NULL; v && !l->err; v = json_next(d, v))
            read_channel(fl, l, v, w);
    }
}

static int read_file(struct flight_files *fl, struct flight_file *file, struct failure *f)
{
    char wrong[JSON_WRONG], *bytes;
    size_t len = 0;
    int err = whole_file_read(file->path, &bytes, &len, f);
    if (err)
        return err;
    const char *why = json_read(&file->doc, bytes, len, wrong);
    if (why)
        return failure_set(f, CLI_BAD, "%s: it is not JSON: %s", file->path, why);
    whole_file_tame(file->doc.bytes, len);
    struct look l = {file, f, 0};
    const struct json_value *all = &file->doc.values[1];
    if (!json_member(&file->doc, all, "weft_flight"))
        return failure_set(f, CLI_BAD, "%s: it is not of weft's flight recorder", file->path);
    int_of(&l, all, "weft_flight", 1, 1);
    file->job = text_of(&l, all, "job");
    file->comm = text_of(&l, all, "comm");
    file->host = text_of(&l, all, "host");
    file->why = text_of(&l, all, "why");
    file->timeout = text_of(&l, all, "timeout");
    file->failure = text_of(&l, json_member(&file->doc, all, "failure"), "text");
    file->ranks = (int)int_of(&l, all, "ranks", 1, FLIGHT_FILES_RANKS);
    file->rank = (int)int_of(&l, all, "rank", 0, file->ranks - 1);
    if (!l.err)
        read_meeting(fl, &l, all);
    if (!l.err)
        read_execs(fl, &l, all);
    return l.err;
}

/* ---- the job ---- */

static int by_rank(const void *a, const void *b)
{
    const struct flight_file *x = a, *y = b;
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : strcmp(x->comm, y->comm);
}

static int check_job(struct flight_files *fl, struct failure *f)
{
    const struct flight_file *zero = &fl->files[0];
    for (int i = 1; i < fl->n; i++) {
        const struct flight_file *file = &fl->files[i];
        if (strcmp(file->job, zero->job))
            return failure_set(f, CLI_BAD, "%s is of %s, %s of %s: give the files of one job", zero->path, zero->job,
                               file->path, file->job);
        if (file->ranks != zero->ranks)
            return failure_set(f, CLI_BAD, "%s speaks of %d ranks, %s of %d: give the files of one job", zero->path,
                               zero->ranks, file->path, file->ranks);
    }
    qsort(fl->files, (size_t)fl->n, sizeof *fl->files, by_rank);
    for (int i = 1; i < fl->n; i++)
        if (!by_rank(&fl->files[i - 1], &fl->files[i]))
            return failure_set(f, CLI_BAD, "%s and %s are both of rank %d of %s: give the files of one job",
                               fl->files[i - 1].path, fl->files[i].path, fl->files[i].rank, fl->files[i].comm);
    fl->ranks = zero->ranks;
    fl->here = calloc((size_t)fl->ranks, sizeof *fl->here);
    if (!fl->here)
        return failure_set(f, CLI_WRONG, "memory is out");
    for (int i = 0; i < fl->n; i++)
        fl->here[fl->files[i].rank] = true;
    return 0;
}

/* On which hosts the ranks were, as the others know. Files of comms on one host do not say it, and neither do files of
 * older versions. */
static int read_hosts(struct flight_files *fl, struct failure *f)
{
    fl->hosts = calloc((size_t)fl->ranks, sizeof *fl->hosts);
    if (!fl->hosts)
        return failure_set(f, CLI_WRONG, "memory is out");
    struct look l = {NULL, f, 0};
    for (int i = 0; i < fl->n && !l.err; i++) {
        l.file = &fl->files[i];
        const struct json_doc *d = &l.file->doc;
        const struct json_value *hosts =
            json_member(d, &d->values[1], "hosts") ? array_of(&l, &d->values[1], "hosts") : NULL;
        for (const struct json_value *v = hosts ? json_first(d, hosts) : NULL; v && !l.err; v = json_next(d, v)) {
            int rank = (int)int_of(&l, v, "rank", 0, fl->ranks - 1);
            fl->hosts[rank] = text_of(&l, v, "host");
        }
    }
    return l.err;
}

static int by_ranks(const void *a, const void *b)
{
    const struct flight_wait *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (!x->call != !y->call)
        return x->call ? -1 : 1;
    int order = strcmp(x->comm, y->comm);
    return order ? order : (x->on > y->on) - (x->on < y->on);
}

int flight_files_read(const char *const *paths, int n, struct flight_files *out, struct failure *f)
{
    *out = (struct flight_files){.n = n, .files = calloc((size_t)n, sizeof *out->files)};
    if (!out->files)
        return failure_set(f, CLI_WRONG, "memory is out");
    int err = 0;
    for (int i = 0; i < n && !err; i++) {
        out->files[i].path = paths[i];
        err = read_file(out, &out->files[i], f);
    }
    if (!err)
        err = check_job(out, f);
    if (!err)
        err = read_hosts(out, f);
    if (err)
        flight_files_free(out);
    else if (out->nwaits)
        qsort(out->waits, out->nwaits, sizeof *out->waits, by_ranks);
    return err;
}

void flight_files_free(struct flight_files *fl)
{
    for (int i = 0; i < fl->n; i++)
        json_free(&fl->files[i].doc);
    free(fl->files);
    free(fl->here);
    free(fl->hosts);
    free(fl->waits);
    *fl = (struct flight_files){.n = 0};
}
