/* The flight recorder's text, from what the comm and its execs hold. Ranks in it are those of the comm that was opened,
 * so that the texts of a comm and of those split from it speak of the same ranks. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/flight.h"
#include "engine/block.h"
#include "engine/driver.h"
#include "engine/way.h"
#include "engine/ways/far.h"
#include "transport/hosts/hosts.h"

static int opened_as(const weft_comm *c, int rank)
{
    return c->link->origin ? c->link->origin[rank] : rank;
}

static void member(struct text *t, const char *key, const char *value)
{
    text_printf(t, ", \"%s\": ", key);
    if (value)
        text_json(t, value);
    else
        text_put(t, "null");
}

/* ---- channels ---- */

/* A channel, whichever it is. */
struct channel {
    int peer;
    bool sends, waits, peer_started;
    uint32_t n, begun, done; /* messages: of the run, posted by a sender or taken by a receiver, over */
    uint32_t step;           /* of the message that is next; only where it waits */
};

static bool peer_started(const weft_exec *x, const struct block *b)
{
    return atomic_load_explicit(&b->started, memory_order_relaxed) >= x->run;
}

/* Messages that a post has got, and the first that it has not. */
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

static struct channel of_far(const weft_exec *x, const struct far_channel *ch)
{
    return (struct channel){.peer = ch->peer,
                            .sends = ch->sends,
                            .waits = far_waits(ch),
                            .peer_started = ch->peer_run >= x->run,
                            .n = ch->n,
                            .begun = ch->begun,
                            .done = ch->ended,
                            .step = far_waits(ch) ? ch->messages[ch->ended].step : 0};
}

static void put_fate(const weft_comm *c, int peer, struct text *t)
{
    enum transport_fate fate = c->transport->gone(c->link, peer);
    member(t, "peer", fate == TRANSPORT_DIED ? "died" : fate == TRANSPORT_LEFT ? "left" : "here");
}

static void put_channel(const weft_exec *x, const struct channel *ch, bool *first, struct text *t)
{
    const weft_plan *p = x->plan;
    text_put(t, *first ? "\n      " : ",\n      ");
    *first = false;
    text_printf(t,
                "{\"%s\": %d, \"messages\": %" PRIu32 ", \"begun\": %" PRIu32 ", \"done\": %" PRIu32
                ", \"waits\": %s, \"peer_started\": %s",
                ch->sends ? "to" : "from", opened_as(x->comm, ch->peer), ch->n, ch->begun, ch->done,
                ch->waits ? "true" : "false", ch->peer_started ? "true" : "false");
    if (ch->waits) {
        const struct plan_step *st = &p->steps[ch->step];
        uint32_t tensor = st->nparts ? p->bufs[p->parts[st->part].buf].tensor : 0;
        put_fate(x->comm, ch->peer, t);
        text_printf(t, ", \"bytes\": %" PRId64, st->bytes);
        member(t, "way", x->program->steps[ch->step].way->name);
        text_printf(t, ", \"parts\": %" PRIu32 ", \"tensor\": %" PRIu32, st->nparts, tensor);
        member(t, "name", p->names + p->tensors[tensor].name);
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
    for (uint32_t i = 0; i < p->far.n; i++) {
        ch = of_far(x, &p->far.channels[i]);
        put_channel(x, &ch, &first, t);
    }
    text_put(t, "]");
}

/* ---- execs, meetings and events ---- */

static void put_exec(const weft_exec *x, struct text *t)
{
    int state = atomic_load_explicit(&x->state, memory_order_relaxed);
    int64_t ended = atomic_load_explicit(&x->ended, memory_order_relaxed);
    bool begun = state == EXEC_IN_FLIGHT && x->run > (uint64_t)ended; /* else it waits for the seat */
    text_printf(t, "{\"exec\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\"", x->id, x->plan->digest);
    member(t, "kind", x->plan->kind);
    member(t, "algorithm", x->plan->algorithm);
    text_printf(t, ", \"started\": %" PRIu64 ", \"ended\": %" PRId64 ", \"failed\": %" PRId64, x->run, ended,
                atomic_load_explicit(&x->failed, memory_order_relaxed));
    member(t, "state",
           begun                     ? "in flight"
           : state == EXEC_IN_FLIGHT ? "submitted"
           : state < 0               ? "failed"
           : x->run                  ? "complete"
                                     : "bound");
    if (begun)
        put_channels(x, t);
    text_put(t, "}");
}

static void put_execs(const weft_comm *c, struct text *t)
{
    text_put(t, ",\n  \"execs\": [");
    for (const weft_exec *x = c->bound; x; x = x->bound_next) {
        text_put(t, x == c->bound ? "\n    " : ",\n    ");
        put_exec(x, t);
    }
    text_put(t, "]");
}

static void put_meeting(const weft_comm *c, struct text *t)
{
    const struct flight *f = &c->flight;
    bool first = true;
    text_put(t, ",\n  \"meeting\": ");
    if (!f->call) {
        text_put(t, "null");
        return;
    }
    text_printf(t, "{\"call\": \"%s\", \"number\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\", \"missing\": [",
                comm_call_name(f->call), f->meeting, f->digest);
    for (int r = 0; r < c->size; r++) {
        if (core_entered(c->group, r, f->meeting))
            continue;
        text_printf(t, "%s{\"rank\": %d", first ? "" : ", ", opened_as(c, r));
        put_fate(c, r, t);
        text_put(t, "}");
        first = false;
    }
    text_put(t, "]}");
}

static void put_event(const struct flight_event *e, struct text *t)
{
    switch (e->kind) {
    case FLIGHT_MET:
        text_printf(t, "{\"event\": \"met\", \"call\": \"%s\", \"meeting\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\"",
                    comm_call_name(e->call), e->number, e->digest);
        break;
    case FLIGHT_FREED:
        text_printf(t, "{\"event\": \"freed\", \"exec\": %" PRIu64 ", \"started\": %" PRIu64, e->number, e->digest);
        break;
    default: text_printf(t, "{\"event\": \"%s\"", e->kind == FLIGHT_LATE ? "timeout" : "failed"); break;
    }
    text_printf(t, ", \"code\": %d}", (int)e->code);
}

static void put_events(const struct flight *f, struct text *t)
{
    uint64_t first = f->events > FLIGHT_EVENTS ? f->events - FLIGHT_EVENTS : 0;
    text_printf(t, ",\n  \"forgotten\": %" PRIu64 ",\n  \"events\": [", first);
    for (uint64_t n = first; n < f->events; n++) {
        text_put(t, n == first ? "\n    " : ",\n    ");
        put_event(&f->ring[n % FLIGHT_EVENTS], t);
    }
    text_put(t, "]");
}

/* Of a rank that has left no file the others know at least where it was. */
static void put_hosts(const weft_comm *c, struct text *t)
{
    text_put(t, ",\n  \"hosts\": [");
    for (int r = 0; r < c->size && hosts_name(c->link, 0); r++) {
        text_printf(t, "%s{\"rank\": %d", r ? ", " : "", opened_as(c, r));
        member(t, "host", hosts_name(c->link, r));
        text_put(t, "}");
    }
    text_put(t, "]");
}

void flight_text(const weft_comm *c, const char *why, struct text *t)
{
    const struct flight *f = &c->flight;
    const char *failure = NULL;
    char host[80] = "";
    struct timespec now;
    int code = core_failure(c->group, &failure);
    gethostname(host, sizeof host - 1);
    const char *name = hosts_name(c->link, c->rank);
    clock_gettime(CLOCK_REALTIME, &now);
    text_put(t, "{\n  \"weft_flight\": 1");
    member(t, "job", f->job);
    member(t, "comm", f->name);
    text_printf(t, ",\n  \"rank\": %d, \"ranks\": %d, \"members\": %d, \"pid\": %ld", opened_as(c, c->rank), f->ranks,
                c->size, (long)getpid());
    member(t, "host", name ? name : host);
    text_printf(t, ", \"seconds\": %" PRId64, (int64_t)now.tv_sec);
    member(t, "why", why);
    text_put(t, ",\n  \"transport\": ");
    text_json(t, c->transport->scheme);
    text_printf(t, ", \"deadline_ms\": %" PRId64, c->deadline_ns / 1000000);
    text_put(t, ",\n  \"timeout\": ");
    text_json(t, why[0] == 't' ? f->late : "");
    text_printf(t, ",\n  \"failure\": {\"code\": %d", code);
    member(t, "text", code ? failure : "");
    text_put(t, "}");
    put_hosts(c, t);
    put_meeting(c, t);
    put_execs(c, t);
    put_events(f, t);
    text_put(t, "\n}\n");
}
