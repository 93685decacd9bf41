/* What the fields of an event mean here:
 *
 *   event              run                step          message
 *   PUT, PUT_ADD       bytes              buffer
 *   NOTIFY             value of           the signal    0: the call; otherwise the rank that asked for it, + 1
 *   WAIT               value of           the signal
 *   BARRIER            barriers so far                  ranks that it was of, this one among them; 0: all
 *   SEND, RECEIVE      the operation      remote_kind   bytes: a piece of a put has at most 4 MiB
 */
#include "window/window_trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/lock.h"
#include "comm/task.h"
#include "window/remote.h"

struct window_trace {
    struct trace *to;
    struct trace_nest nest;
    uint64_t *seen; /* of each signal: the value at which an arrow has ended, so that the next wait ends no other one */
};

/* ---- recording ---- */

static void record(weft_window *w, struct trace_event e)
{
    e.task = w->task.id;
    *trace_next(w->trace->to) = e;
}

/* A call of this rank, from `begun` until now. */
static void record_call(weft_window *w, int64_t begun, struct trace_event e)
{
    struct comm_family *f = comm_enter(w->comm);
    int64_t now = core_now();
    e.at = trace_nest(&w->trace->nest, begun, now);
    e.ns = now - e.at;
    record(w, e);
    comm_leave(f);
}

void window_trace_put(weft_window *w, int64_t begun, int rank, int buffer, int64_t bytes, bool add)
{
    if (w->trace)
        record_call(w, begun,
                    (struct trace_event){.run = (uint64_t)bytes,
                                         .step = (uint32_t)buffer,
                                         .peer = rank,
                                         .event = add ? EVENT_PUT_ADD : EVENT_PUT});
}

void window_trace_notify(weft_window *w, int64_t begun, int rank, uint32_t signal, uint64_t value, bool known)
{
    if (w->trace)
        record_call(w, begun,
                    (struct trace_event){.run = value,
                                         .step = signal,
                                         .peer = rank,
                                         .event = EVENT_NOTIFY,
                                         .arrow = known ? TRACE_NOTIFIES : TRACE_NO_ARROW});
}

void window_trace_notified(weft_window *w, int64_t begun, int rank, uint32_t signal, uint64_t value, int of)
{
    if (w->trace)
        record(w, (struct trace_event){.at = begun,
                                       .run = value,
                                       .step = signal,
                                       .message = (uint32_t)of + 1,
                                       .peer = rank,
                                       .event = EVENT_NOTIFY,
                                       .arrow = TRACE_NOTIFIES});
}

void window_trace_wait(weft_window *w, int64_t begun, uint32_t signal, uint64_t value, bool failed)
{
    if (!w->trace)
        return;
    struct comm_family *f = comm_enter(w->comm);
    bool news = !failed && w->trace->seen[signal] != value;
    if (news)
        w->trace->seen[signal] = value;
    record_call(w, begun,
                (struct trace_event){.run = value,
                                     .step = signal,
                                     .peer = TRACE_NOBODY,
                                     .event = EVENT_WAIT,
                                     .arrow = news ? TRACE_NOTIFIED : TRACE_NO_ARROW,
                                     .failed = failed});
    comm_leave(f);
}

void window_trace_barrier(weft_window *w, int64_t begun, int n, bool failed)
{
    if (w->trace)
        record_call(w, begun,
                    (struct trace_event){.run = w->generation,
                                         .message = (uint32_t)(n + 1),
                                         .peer = TRACE_NOBODY,
                                         .event = EVENT_BARRIER,
                                         .failed = failed});
}

void window_trace_op(weft_window *w, int peer, uint64_t op, uint32_t kind, uint64_t bytes, bool sends)
{
    if (w && w->trace)
        record(w, (struct trace_event){.at = core_now(),
                                       .run = op,
                                       .step = kind,
                                       .message = (uint32_t)bytes,
                                       .peer = peer,
                                       .event = sends ? EVENT_SEND : EVENT_RECEIVE,
                                       .arrow = sends ? TRACE_LEAVES : TRACE_ARRIVES});
}

/* ---- the text ---- */

static const char *kind_name(uint32_t kind)
{
    switch (kind) {
    case REMOTE_PUT: return "put";
    case REMOTE_ADD: return "put_add";
    case REMOTE_TURN: return "barrier";
    default: return "notify";
    }
}

static void put_text(const struct comm_task *task, const struct trace_event *e, struct text *t)
{
    const weft_window *w = (const weft_window *)task;
    char name[96];
    if (!e) {
        snprintf(name, sizeof name, "window %" PRIu64 ": %d buffers, %d signals", task->id, w->n, w->signals);
        text_json(t, name);
        return;
    }
    text_printf(t, "\"window\": %" PRIu64, task->id);
    if (e->peer != TRACE_NOBODY)
        text_printf(t, ", \"%s\": %d", e->event == EVENT_RECEIVE ? "from" : "to", flight_text_rank(w->comm, e->peer));
    switch (e->event) {
    case EVENT_PUT:
    case EVENT_PUT_ADD: {
        char buffer[TRACE_NAME + 1];
        snprintf(buffer, sizeof buffer, "%s", w->buffers[e->step].name);
        text_printf(t, ", \"bytes\": %" PRIu64 ", \"buffer\": %" PRIu32, e->run, e->step);
        flight_text_member(t, "name", buffer);
        break;
    }
    case EVENT_WAIT: /* any rank may notify; weft trace says which one did */
        text_printf(t, ", \"for\": null, \"signal\": %" PRIu32 ", \"value\": %" PRIu64, e->step, e->run);
        break;
    case EVENT_NOTIFY:
        text_printf(t, ", \"signal\": %" PRIu32 ", \"value\": %" PRIu64, e->step, e->run);
        if (e->message)
            text_printf(t, ", \"of\": %d", flight_text_rank(w->comm, (int)e->message - 1));
        break;
    case EVENT_BARRIER:
        text_printf(t, ", \"with\": %d, \"barriers\": %" PRIu64, e->message ? (int)e->message : w->comm->size, e->run);
        break;
    default:
        text_printf(t, ", \"message\": %" PRIu64 ", \"bytes\": %" PRIu32 ", \"call\": \"%s\"", e->run, e->message,
                    kind_name(e->step));
        break;
    }
}

/* ---- the beginning and the end ---- */

static const struct comm_task_ops window_task = {.trace = put_text};

int window_trace_make(weft_window *w)
{
    struct trace *to = w->comm->trace;
    if (!to)
        return 0;
    struct window_trace *t = arena_alloc(&w->arena, sizeof *t);
    uint64_t *seen = arena_alloc(&w->arena, ((size_t)w->signals + 1) * sizeof *seen);
    if (!t || !seen)
        return error_nomem();
    for (int i = 0; i < w->signals; i++)
        seen[i] = 0;
    *t = (struct window_trace){.to = to, .seen = seen};
    w->trace = t;
    trace_touch(to);
    return 0;
}

void window_trace_open(weft_window *w)
{
    if (!w->trace)
        return;
    w->task.ops = &window_task;
    comm_task_list(w->comm, &w->task);
}

void window_trace_close(weft_window *w)
{
    if (!w->trace)
        return;
    trace_write(w->comm);
    comm_task_unlist(w->comm, &w->task);
    w->trace = NULL;
}
