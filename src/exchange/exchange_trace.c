/* What the fields of an event mean here: run is the round; of a message, `message` is its number in its pipe since the
 * exchange was opened, and `step` has its bytes (2^32 - 1 stands for more). */
#include "exchange/exchange_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

struct exchange_trace {
    struct trace_nest nest;
    int64_t begun, ended; /* of the round; ended: of the last one that is complete */
    uint32_t *puts, *got; /* messages of each pipe */
    uint32_t n;
    uint64_t lost;
    struct trace_event kept[EXCHANGE_TRACE_KEPT];
};

/* ---- recording ---- */

/* With the lock. */
static void keep(weft_exchange *x, struct trace_event e, int64_t until)
{
    struct exchange_trace *t = x->trace;
    if (t->n == EXCHANGE_TRACE_KEPT) {
        t->lost++;
        return;
    }
    e.at = trace_nest(&t->nest, e.at, until);
    e.ns = until - e.at;
    e.task = x->task.id;
    t->kept[t->n++] = e;
}

static uint64_t round_of(const weft_exchange *x)
{
    return atomic_load_explicit(&x->begun, memory_order_relaxed);
}

static uint32_t bytes_of(uint64_t meta, uint64_t payload)
{
    return meta + payload < UINT32_MAX ? (uint32_t)(meta + payload) : UINT32_MAX;
}

void exchange_trace_begun(weft_exchange *x)
{
    x->trace->begun = core_now();
}

void exchange_trace_sent(weft_exchange *x, const struct exchange_out *out, const struct exchange_head *head, int64_t at)
{
    keep(x,
         (struct trace_event){.at = at,
                              .run = round_of(x),
                              .step = bytes_of(head->meta_bytes, head->bytes),
                              .message = x->trace->puts[out - x->outs]++,
                              .peer = out->pipe->peer,
                              .event = EVENT_SEND,
                              .arrow = TRACE_LEAVES},
         core_now());
}

void exchange_trace_received(weft_exchange *x, const struct exchange_in *in, const struct message *m)
{
    int64_t now = core_now();
    keep(x,
         (struct trace_event){.at = now,
                              .run = m->is.round + 1,
                              .step = bytes_of(m->is.meta_bytes, m->is.bytes),
                              .message = x->trace->got[in - x->ins]++,
                              .peer = in->pipe->peer,
                              .event = EVENT_RECEIVE,
                              .arrow = TRACE_ARRIVES},
         now);
}

void exchange_trace_complete(weft_exchange *x, bool failed)
{
    int64_t now = core_now();
    x->trace->ended = now;
    keep(x,
         (struct trace_event){
             .at = x->trace->begun, .run = round_of(x), .peer = TRACE_NOBODY, .event = EVENT_ROUND, .failed = failed},
         now);
}

void exchange_trace_waited(weft_exchange *x, int64_t at, int peer, bool sends)
{
    if (!x->trace)
        return;
    pthread_mutex_lock(&x->lock);
    int64_t until = core_now();
    if (x->trace->ended > at && x->trace->ended < until) /* the caller was told a little later */
        until = x->trace->ended;
    keep(x, (struct trace_event){.at = at, .run = round_of(x), .peer = peer, .event = EVENT_WAIT, .sends = sends},
         until);
    pthread_mutex_unlock(&x->lock);
}

int exchange_trace_missing(const weft_exchange *x)
{
    for (int i = 0; i < x->pipes.nins && x->trace; i++)
        if (exchange_in_ends(&x->ins[i]) < round_of(x))
            return x->ins[i].pipe->peer;
    return TRACE_NOBODY;
}

void exchange_trace_pass(weft_exchange *x)
{
    struct exchange_trace *t = x->trace;
    struct trace *to = x->comm->trace;
    pthread_mutex_lock(&x->lock);
    for (uint32_t i = 0; i < t->n; i++)
        *trace_next(to) = t->kept[i];
    to->lost += t->lost;
    t->lost = t->n = 0;
    pthread_mutex_unlock(&x->lock);
}

/* ---- the text ---- */

void exchange_trace_text(const struct comm_task *task, const struct trace_event *e, struct text *t)
{
    const weft_exchange *x = (const weft_exchange *)task;
    char name[96];
    if (!e) {
        snprintf(name, sizeof name, "exchange %" PRIu64 ": to %d ranks, from %d", task->id, x->pipes.nouts,
                 x->pipes.nins);
        text_json(t, name);
        return;
    }
    text_printf(t, "\"exchange\": %" PRIu64 ", \"round\": %" PRIu64, task->id, e->run);
    int rank = e->peer == TRACE_NOBODY ? -1 : flight_text_rank(x->comm, e->peer);
    switch (e->event) {
    case EVENT_WAIT:
        if (rank < 0)
            text_put(t, ", \"for\": null");
        else
            text_printf(t, ", \"for\": %d, \"to\": \"%s\"", rank, e->sends ? "take" : "send");
        break;
    case EVENT_ROUND: break;
    default:
        text_printf(t, ", \"%s\": %d, \"message\": %" PRIu32 ", \"bytes\": %" PRIu32,
                    e->event == EVENT_SEND ? "to" : "from", rank, e->message, e->step);
    }
}

/* ---- the beginning and the end ---- */

int exchange_trace_make(weft_exchange *x, int nins, int nouts)
{
    if (!x->comm->trace)
        return 0;
    struct exchange_trace *t = x->trace = calloc(1, sizeof *t);
    if (!t)
        return error_nomem();
    t->puts = calloc((size_t)nouts + 1, sizeof *t->puts);
    t->got = calloc((size_t)nins + 1, sizeof *t->got);
    trace_touch(x->comm->trace);
    return t->puts && t->got ? 0 : error_nomem();
}

void exchange_trace_open(weft_exchange *x)
{
    x->task.id = x->pipes.number;
    if (x->trace)
        comm_task_list(x->comm, &x->task);
}

void exchange_trace_close(weft_exchange *x)
{
    if (!x->trace)
        return;
    exchange_trace_pass(x);
    trace_write(x->comm);
    comm_task_unlist(x->comm, &x->task);
}

void exchange_trace_free(weft_exchange *x)
{
    if (!x->trace)
        return;
    free(x->trace->puts);
    free(x->trace->got);
    free(x->trace);
}
