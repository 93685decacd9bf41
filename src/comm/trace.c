/* The ring of a trace, and its file. */
#define _GNU_SOURCE
#include "comm/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/environment.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

#define LINE 4096 /* bytes of an event as text, and of its arrow: a name has TRACE_NAME letters of 6 bytes at most */

int trace_check(void)
{
    struct environment_output e;
    int64_t events;
    int err = environment_trace(&e, &events);
    return err ? err : environment_metrics(&e);
}

static int make(weft_comm *c, const char *folder, const char *path, uint64_t events)
{
    struct trace *t = calloc(1, sizeof *t + events * sizeof *t->ring); /* pages that are not used cost nothing */
    if (!t)
        return error_nomem();
    t->mask = events - 1;
    strcpy(t->path, path);
    strcpy(t->plans, folder);
    c->trace = t;
    return 0;
}

static void in_folder(const weft_comm *c, const char *folder, char path[TRACE_PATH + 208])
{
    char name[200];
    flight_file_name(c, "trace", "json", name, sizeof name);
    snprintf(path, TRACE_PATH + 208, "%s/%s", folder, name);
}

int trace_open(weft_comm *c)
{
    struct environment_output e;
    int64_t events;
    char path[TRACE_PATH + 208];
    int err = environment_trace(&e, &events);
    if (err || !*e.path)
        return err;
    if (!e.folder && c->size > 1)
        return error_set(WEFT_EINVAL,
                         "WEFT_TRACE=%s: the comm has %d ranks, and each writes a file: make a folder of "
                         "this name, or name one that exists",
                         e.path, c->size);
    if (e.folder)
        in_folder(c, e.path, path);
    else if (c->flight.opened)
        snprintf(path, sizeof path, "%s.%d", e.path, c->flight.opened);
    else
        strcpy(path, e.path);
    return make(c, e.folder ? e.path : "", path, (uint64_t)events);
}

void trace_split(weft_comm *c, const weft_comm *of)
{
    const struct trace *t = of->trace;
    char path[TRACE_PATH + 208];
    if (!t)
        return;
    if (*t->plans)
        in_folder(c, t->plans, path);
    else
        snprintf(path, sizeof path, "%.600s.%d", t->path, c->flight.opened);
    (void)make(c, t->plans, path, t->mask + 1);
}

void trace_touch(struct trace *t)
{
    uint64_t events = t->mask + 1 < TRACE_EVENTS ? t->mask + 1 : TRACE_EVENTS;
    volatile char *ring = (volatile char *)t->ring;
    for (size_t i = 0; !t->touched && i < events * sizeof *t->ring; i += 4096)
        ring[i] = ring[i]; /* events of meetings may be there already */
    t->touched = true;
}

int64_t trace_nest(struct trace_nest *n, int64_t at, int64_t until)
{
    const size_t room = sizeof n->last / sizeof *n->last;
    for (size_t i = 0; i < room; i++)
        if (n->last[i].at < at && n->last[i].until > at && n->last[i].until < until) {
            at = n->last[i].until;
            i = SIZE_MAX; /* from here it may begin inside one that was fine before */
        }
    n->last[n->n % room].at = at;
    n->last[n->n++ % room].until = until;
    return at;
}

/* ---- meetings ---- */

void trace_meets(struct trace *t)
{
    t->begun = core_now();
}

void trace_met(weft_comm *c, uint32_t call, uint64_t meeting, int err)
{
    *trace_next(c->trace) = (struct trace_event){.at = c->trace->begun,
                                                 .ns = core_now() - c->trace->begun,
                                                 .run = meeting,
                                                 .step = call,
                                                 .peer = TRACE_NOBODY,
                                                 .event = EVENT_MET,
                                                 .failed = err != 0};
}

/* ---- the text ---- */

static void put_us(struct text *t, const char *key, int64_t ns)
{
    text_printf(t, ", \"%s\": %" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

/* Both ends of a message, or of what was notified, come to the same number, and no other message of the job has it. A
 * signal that gets a value for the second time has the number of the first time. */
static uint64_t arrow(const weft_comm *c, const struct trace_event *e)
{
    bool begins = e->arrow == TRACE_LEAVES || e->arrow == TRACE_NOTIFIES;
    bool signal = e->arrow == TRACE_NOTIFIES || e->arrow == TRACE_NOTIFIED;
    uint64_t here = (uint64_t)flight_text_rank(c, c->rank);
    uint64_t there = e->arrow == TRACE_NOTIFIED ? 0 : (uint64_t)flight_text_rank(c, e->peer);
    uint64_t words[6] = {e->task, e->run, begins ? here : there, begins ? there : here, e->message, signal};
    if (signal) {
        words[2] = 0; /* the rank that waits does not know which one notified */
        words[4] = e->step;
    }
    return hash_bytes(hash_bytes(0, c->flight.name, strlen(c->flight.name)), words, sizeof words);
}

/* What Perfetto needs to know of each event; a track for the comm and one for each exec. */
static void put_place(const weft_comm *c, const struct trace_event *e, struct text *t)
{
    text_printf(t, ", \"pid\": %d, \"tid\": %" PRIu64, flight_text_rank(c, c->rank),
                e->event == EVENT_MET ? 0 : e->task + 1);
}

static void put_arrow(const weft_comm *c, const struct trace_event *e, struct text *t)
{
    bool begins = e->arrow == TRACE_LEAVES || e->arrow == TRACE_NOTIFIES;
    const char *what = e->arrow == TRACE_LEAVES || e->arrow == TRACE_ARRIVES ? "message" : "signal";
    text_printf(t, ",\n{\"ph\": \"%s\", \"cat\": \"%s\", \"name\": \"%s\", \"id\": \"0x%016" PRIx64 "\"",
                begins ? "s" : "f\", \"bp\": \"e", what, what, arrow(c, e));
    put_place(c, e, t);
    put_us(t, "ts", begins || e->ns < 1 ? e->at : e->at + e->ns - 1);
    text_put(t, "}");
}

static void put_event(const weft_comm *c, const struct trace_event *e, struct text *t)
{
    const struct comm_task *task = e->event == EVENT_MET ? NULL : comm_task_find(c, e->task);
    int64_t ns = e->ns > 0 ? e->ns : 1; /* an arrow begins and ends in something that takes time */
    text_printf(t, ",\n{\"ph\": \"X\", \"cat\": \"weft\", \"name\": \"%s\"", event_name(e->event));
    put_place(c, e, t);
    put_us(t, "ts", e->at);
    put_us(t, "dur", ns);
    text_put(t, ", \"args\": {");
    if (task)
        task->ops->trace(task, e, t);
    else
        text_printf(t, "\"call\": \"%s\", \"meeting\": %" PRIu64, names_call(e->step), e->run);
    if (e->failed)
        text_put(t, ", \"failed\": true");
    text_put(t, "}}");
    if (e->arrow != TRACE_NO_ARROW)
        put_arrow(c, e, t);
}

static void put_name(const weft_comm *c, uint64_t tid, const struct comm_task *task, struct text *t)
{
    text_printf(
        t, ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %" PRIu64 ", \"args\": {\"name\": ",
        flight_text_rank(c, c->rank), tid);
    if (task)
        task->ops->trace(task, NULL, t);
    else
        text_json(t, c->flight.name);
    text_put(t, "}}");
}

static void host_of(const weft_comm *c, int rank, char host[80])
{
    const char *name = hosts_name(c->link, rank);
    host[0] = host[79] = 0;
    if (name)
        snprintf(host, 80, "%s", name);
    else
        gethostname(host, 79);
}

static void put_head(const weft_comm *c, struct text *t)
{
    char host[80], name[120];
    int rank = flight_text_rank(c, c->rank);
    host_of(c, c->rank, host);
    snprintf(name, sizeof name, "rank %d on host %s", rank, host);
    text_printf(t,
                "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\", "
                "\"pid\": %d, \"tid\": 0, \"args\": {\"name\": ",
                rank);
    text_json(t, name);
    text_printf(t,
                "}},\n{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": %d, \"tid\": 0, \"args\": "
                "{\"sort_index\": %d}}",
                rank, rank);
    put_name(c, 0, NULL, t);
}

static void put_tail(const weft_comm *c, struct text *t)
{
    const struct trace *tr = c->trace;
    char host[80];
    host_of(c, c->rank, host);
    text_put(t, "\n],\n\"otherData\": {\"weft_trace\": 1");
    flight_text_member(t, "job", c->flight.job);
    flight_text_member(t, "comm", c->flight.name);
    text_printf(t, ", \"rank\": %d, \"ranks\": %d, \"members\": %d, \"process\": %ld", flight_text_rank(c, c->rank),
                c->flight.ranks, c->size, (long)getpid());
    flight_text_member(t, "host", host);
    text_printf(t, ",\n\"recorded\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"ring\": %" PRIu64,
                tr->recorded + tr->lost, tr->dropped + tr->lost, tr->mask + 1);
    host_of(c, 0, host);
    text_put(t, ",\n\"clock\": \"CLOCK_MONOTONIC\"");
    flight_text_member(t, "clock_of", host);
    text_put(t, ", \"clocks\": [");
    for (uint32_t i = 0; i < tr->nclocks; i++)
        text_printf(t, "%s{\"at_ns\": %" PRId64 ", \"offset_ns\": %" PRId64 ", \"error_ns\": %" PRId64 "}",
                    i ? ", " : "", tr->clocks[i].at, tr->clocks[i].offset_ns, tr->clocks[i].error_ns);
    text_put(t, "]}}\n");
}

/* ---- the file ---- */

static void write_text(struct trace *tr, FILE *f, const struct text *t)
{
    size_t n = t->len < t->cap ? t->len : t->cap - 1;
    tr->broken |= fwrite(t->buf, 1, n, f) != n;
}

static void write_names(weft_comm *c, FILE *f)
{
    char line[LINE];
    for (struct comm_task *x = c->described; x; x = x->described_next) {
        struct text t = text_start(line, sizeof line);
        if (x->named || !x->ops->trace)
            continue;
        put_name(c, x->id + 1, x, &t);
        write_text(c->trace, f, &t);
        x->named = true;
    }
}

static void write_new(weft_comm *c, FILE *f)
{
    struct trace *tr = c->trace;
    char line[LINE], tail[6 * (2 * FLIGHT_NAME + 2 * 80) + 1024 + 104 * TRACE_CLOCKS];
    struct text t = text_start(line, sizeof line);
    if (!tr->end) {
        put_head(c, &t);
        write_text(tr, f, &t);
    }
    write_names(c, f);
    if (tr->recorded - tr->written > tr->mask + 1) {
        tr->dropped += tr->recorded - tr->written - (tr->mask + 1);
        tr->written = tr->recorded - (tr->mask + 1);
    }
    for (; tr->written < tr->recorded; tr->written++) {
        t = text_start(line, sizeof line);
        put_event(c, &tr->ring[tr->written & tr->mask], &t);
        write_text(tr, f, &t);
    }
    tr->end = ftell(f);
    t = text_start(tail, sizeof tail);
    put_tail(c, &t);
    write_text(tr, f, &t);
}

/* A file that cannot be written is given up: the job goes on. */
void trace_write(weft_comm *c)
{
    struct trace *tr = c->trace;
    if (!tr || tr->broken || tr->written == tr->recorded)
        return;
    int how = tr->end ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC;
    int fd = open(tr->path, how | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f && fd >= 0)
        close(fd);
    tr->broken = !f || fseek(f, tr->end, SEEK_SET);
    if (f && !tr->broken)
        write_new(c, f);
    if (f && fclose(f))
        tr->broken = true;
    if (tr->broken)
        flight_log(c, WEFT_LOG_WARNING, EVENT_UNWRITTEN, "the trace cannot be written, and is given up");
}

void trace_close(weft_comm *c)
{
    trace_write(c);
    free(c->trace);
    c->trace = NULL;
}
