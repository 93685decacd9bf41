/* The flight recorder's text, from what the comm and its tasks hold. Its rank numbers are those of the comm that was
 * opened, so that the texts of a comm and of comms split from it name the same ranks. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "comm/task.h"
#include "transport/hosts/hosts.h"

int flight_text_rank(const weft_comm *c, int rank)
{
    return c->link->origin ? c->link->origin[rank] : rank;
}

void flight_text_member(struct text *t, const char *key, const char *value)
{
    text_printf(t, ", \"%s\": ", key);
    if (value)
        text_json(t, value);
    else
        text_put(t, "null");
}

void flight_text_fate(const weft_comm *c, int peer, struct text *t)
{
    static const char *const names[] = {
        [TRANSPORT_HERE] = "here", [TRANSPORT_LEFT] = "left", [TRANSPORT_DIED] = "died", [TRANSPORT_LOST] = "lost"};
    enum transport_fate fate = c->transport->gone(c->link, peer);
    flight_text_member(t, "peer", names[fate]);
}

static void put_execs(const weft_comm *c, struct text *t)
{
    const char *between = "\n    ";
    text_put(t, ",\n  \"execs\": [");
    for (const struct comm_task *x = c->described; x; x = x->described_next) {
        if (!x->ops->describe) /* windows and exchanges are listed for the trace alone */
            continue;
        text_put(t, between);
        x->ops->describe(x, t);
        between = ",\n    ";
    }
    text_put(t, "]");
}

static void put_meeting(const weft_comm *c, struct text *t)
{
    const struct flight_recorder *f = &c->flight;
    bool first = true;
    text_put(t, ",\n  \"meeting\": ");
    if (!f->call) {
        text_put(t, "null");
        return;
    }
    text_printf(t, "{\"call\": \"%s\", \"number\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\", \"missing\": [",
                names_call(f->call), f->meeting, f->digest);
    for (int r = 0; r < c->size; r++) {
        if (!core_lacks(c->group, r, f->meeting))
            continue;
        text_printf(t, "%s{\"rank\": %d", first ? "" : ", ", flight_text_rank(c, r));
        flight_text_fate(c, r, t);
        text_put(t, "}");
        first = false;
    }
    text_put(t, "]}");
}

static void put_event(const struct flight_event *e, struct text *t)
{
    text_printf(t, "{\"event\": \"%s\"", event_name(e->event));
    if (e->event == EVENT_MET)
        text_printf(t, ", \"call\": \"%s\", \"meeting\": %" PRIu64 ", \"plan\": \"%016" PRIx64 "\"",
                    names_call(e->call), e->number, e->digest);
    else if (e->event == EVENT_FREED)
        text_printf(t, ", \"exec\": %" PRIu64 ", \"started\": %" PRIu64, e->number, e->digest);
    text_printf(t, ", \"code\": %d}", (int)e->code);
}

static void put_events(const struct flight_recorder *f, struct text *t)
{
    uint64_t first = f->events > FLIGHT_EVENTS ? f->events - FLIGHT_EVENTS : 0;
    text_printf(t, ",\n  \"forgotten\": %" PRIu64 ",\n  \"events\": [", first);
    for (uint64_t n = first; n < f->events; n++) {
        text_put(t, n == first ? "\n    " : ",\n    ");
        put_event(&f->ring[n % FLIGHT_EVENTS], t);
    }
    text_put(t, "]");
}

/* If a rank has written no file, the files of the others still say on which host it was. */
static void put_hosts(const weft_comm *c, struct text *t)
{
    text_put(t, ",\n  \"hosts\": [");
    for (int r = 0; r < c->size && hosts_name(c->link, 0); r++) {
        text_printf(t, "%s{\"rank\": %d", r ? ", " : "", flight_text_rank(c, r));
        flight_text_member(t, "host", hosts_name(c->link, r));
        text_put(t, "}");
    }
    text_put(t, "]");
}

void flight_text(const weft_comm *c, const char *why, struct text *t)
{
    const struct flight_recorder *f = &c->flight;
    const char *failure = NULL;
    char host[80] = "";
    struct timespec now;
    int code = core_failure(c->group, &failure);
    gethostname(host, sizeof host - 1);
    const char *name = hosts_name(c->link, c->rank);
    clock_gettime(CLOCK_REALTIME, &now);
    text_put(t, "{\n  \"weft_flight\": 1");
    flight_text_member(t, "job", f->job);
    flight_text_member(t, "comm", f->name);
    text_printf(t, ",\n  \"rank\": %d, \"ranks\": %d, \"members\": %d, \"pid\": %ld", flight_text_rank(c, c->rank),
                f->ranks, c->size, (long)getpid());
    flight_text_member(t, "host", name ? name : host);
    text_printf(t, ", \"seconds\": %" PRId64, (int64_t)now.tv_sec);
    flight_text_member(t, "why", why);
    text_put(t, ",\n  \"transport\": ");
    text_json(t, c->transport->scheme);
    text_printf(t, ", \"deadline_ms\": %" PRId64, c->deadline_ns / 1000000);
    text_put(t, ",\n  \"timeout\": ");
    text_json(t, why[0] == 't' ? f->late : "");
    text_printf(t, ",\n  \"failure\": {\"code\": %d", code);
    flight_text_member(t, "text", code ? failure : "");
    text_put(t, "}");
    put_hosts(c, t);
    put_meeting(c, t);
    put_execs(c, t);
    put_events(f, t);
    text_put(t, "\n}\n");
}
