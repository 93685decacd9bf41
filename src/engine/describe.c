/* What the flight recorder says about an exec: its runs and, for a run in flight, how far each channel is. */
#include <inttypes.h>

#include "engine/block.h"
#include "engine/driver.h"
#include "engine/way.h"
#include "engine/ways/way_wire.h"

/* ---- channels ---- */

/* A channel of any kind. */
struct channel {
    int peer;
    bool sends, waits, peer_started;
    uint32_t n, begun, done; /* messages: of the run, begun (posted by a sender or taken by a receiver), done */
    uint32_t step;           /* the step of the next message, if the channel waits */
};

static bool peer_started(const weft_exec *x, const struct block *b)
{
    return atomic_load_explicit(&b->started, memory_order_relaxed) >= x->run;
}

static struct channel of_in(const weft_exec *x, const struct exec_in *in)
{
    const struct driver *d = x->program->driver;
    struct driver_count count = d->in_count(x, in);
    return (struct channel){.peer = in->peer,
                            .waits = count.next < in->n && d->in_waits(x, in),
                            .peer_started = peer_started(x, in->block),
                            .n = in->n,
                            .begun = count.begun,
                            .done = count.done,
                            .step = count.next < in->n ? in->steps[count.next] : 0};
}

static struct channel of_out(const weft_exec *x, const struct exec_out *out)
{
    const struct driver *d = x->program->driver;
    struct driver_count count = d->out_count(x, out);
    return (struct channel){.peer = out->peer,
                            .sends = true,
                            .waits = count.next < out->n && d->out_waits(x, out),
                            .peer_started = peer_started(x, out->block),
                            .n = out->n,
                            .begun = count.begun,
                            .done = count.done,
                            .step = count.next < out->n ? out->steps[count.next] : 0};
}

static struct channel of_wired(const weft_exec *x, const struct wire_channel *ch)
{
    return (struct channel){.peer = ch->peer,
                            .sends = ch->sends,
                            .waits = way_wire_waits(ch),
                            .peer_started = ch->peer_run >= x->run,
                            .n = ch->n,
                            .begun = ch->begun,
                            .done = ch->ended,
                            .step = way_wire_waits(ch) ? ch->messages[ch->ended].step : 0};
}

static void put_channel(const weft_exec *x, const struct channel *ch, bool *first, struct text *t)
{
    const weft_plan *p = x->plan;
    text_put(t, *first ? "\n      " : ",\n      ");
    *first = false;
    text_printf(t,
                "{\"%s\": %d, \"messages\": %" PRIu32 ", \"begun\": %" PRIu32 ", \"done\": %" PRIu32
                ", \"waits\": %s, \"peer_started\": %s",
                ch->sends ? "to" : "from", flight_text_rank(x->comm, ch->peer), ch->n, ch->begun, ch->done,
                ch->waits ? "true" : "false", ch->peer_started ? "true" : "false");
    if (ch->waits) {
        const struct plan_step *st = &p->steps[ch->step];
        uint32_t tensor = st->nparts ? p->bufs[p->parts[st->part].buf].tensor : 0;
        flight_text_fate(x->comm, ch->peer, t);
        text_printf(t, ", \"bytes\": %" PRId64, st->bytes);
        flight_text_member(t, "way", x->program->steps[ch->step].way->name);
        text_printf(t, ", \"parts\": %" PRIu32 ", \"tensor\": %" PRIu32, st->nparts, tensor);
        flight_text_member(t, "name", p->names + p->tensors[tensor].name);
    }
    text_put(t, "}");
}

static void put_channels(const weft_exec *x, struct text *t)
{
    const struct program *p = x->program;
    bool first = true;
    struct channel ch;
    text_put(t, ", \"channels\": [");
    for (uint32_t i = 0; i < p->nins; i++) {
        ch = of_in(x, &p->ins[i]);
        put_channel(x, &ch, &first, t);
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        ch = of_out(x, &p->outs[i]);
        put_channel(x, &ch, &first, t);
    }
    for (uint32_t i = 0; i < p->wired.n; i++) {
        ch = of_wired(x, &p->wired.channels[i]);
        put_channel(x, &ch, &first, t);
    }
    text_put(t, "]");
}

/* ---- the exec ---- */

void describe_exec(const struct comm_task *task, struct text *t)
{
    const weft_exec *x = (const weft_exec *)task;
    int state = atomic_load_explicit(&x->state, memory_order_relaxed);
    int64_t ended = atomic_load_explicit(&x->ended, memory_order_relaxed);
    bool begun = state == EXEC_IN_FLIGHT && x->run > (uint64_t)ended; /* otherwise it waits for the progress lock */
    text_printf(t, "{\"exec\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\"", task->id, x->plan->digest);
    flight_text_member(t, "kind", x->plan->kind);
    flight_text_member(t, "algorithm", x->plan->algorithm);
    text_printf(t, ", \"started\": %" PRIu64 ", \"ended\": %" PRId64 ", \"failed\": %" PRId64, x->run, ended,
                atomic_load_explicit(&x->failed, memory_order_relaxed));
    flight_text_member(t, "state",
                       begun                     ? "in flight"
                       : state == EXEC_IN_FLIGHT ? "submitted"
                       : state < 0               ? "failed"
                       : x->run                  ? "complete"
                                                 : "bound");
    if (begun)
        put_channels(x, t);
    text_put(t, "}");
}
