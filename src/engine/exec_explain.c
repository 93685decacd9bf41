/* What bind has chosen for an exec, as text and as JSON: the driver, the way of each message and why, what is staged,
 * memory on devices, and whether each rank is assumed to have a core. */
#include <inttypes.h>

#include "base/error.h"
#include "base/text.h"
#include "comm/lock.h"
#include "engine/device/device_explain.h"
#include "engine/driver.h"
#include "engine/quantise.h"
#include "engine/way.h"
#include "engine/ways/way_wire.h"

/* ---- what is told ---- */

/* The messages of one channel that travel the same way for the same reason. */
struct group {
    const char *way, *why;
    uint32_t n;
    int64_t bytes;
    const char *order;
};

/* The messages with one peer in one direction. */
struct side {
    int peer;
    bool sends;
    uint32_t n;
    const uint32_t *steps; /* NULL: `wired` has them */
    const struct wire_channel *wired;
};

static uint32_t step_of(const struct side *d, uint32_t k)
{
    return d->wired ? d->wired->messages[k].step : d->steps[k];
}

/* Why a message is staged, as far as this rank knows. */
static const char *why_staged(const weft_exec *x, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    if (x->comm->staged)
        return "the comm asks for staging";
    for (uint32_t k = 0; k < st->nparts && st->kind == PLAN_SEND; k++)
        if (!x->program->places[x->plan->parts[st->part + k].buf].reached)
            return "peers cannot reach the memory";
    return st->kind == PLAN_SEND ? "its elements lie far apart on both sides" : "the sender stages it";
}

static struct group group_of(const weft_exec *x, uint32_t s)
{
    const struct exec_step *step = &x->program->steps[s];
    const struct driver *d = x->program->driver;
    if (d->copies)
        return (struct group){.way = d->name, .why = "the driver copies it", .n = 1, .bytes = x->plan->steps[s].bytes};
    return (struct group){.way = step->way->name,
                          .why = step->way->why ? step->way->why : why_staged(x, s),
                          .n = 1,
                          .bytes = x->plan->steps[s].bytes,
                          .order = step->order == ORDER_WEAVE ? "weave" : NULL};
}

static bool same_group(const struct group *a, const struct group *b)
{
    return a->way == b->way && a->why == b->why && a->order == b->order;
}

#define GROUPS 16 /* groups of a channel: more than there are ways */

/* Groups the messages of a channel. Returns how many groups there are. */
static int groups_of(const weft_exec *x, const struct side *d, struct group groups[GROUPS])
{
    int n = 0;
    for (uint32_t k = 0; k < d->n; k++) {
        struct group g = group_of(x, step_of(d, k));
        int i = 0;
        while (i < n && !same_group(&groups[i], &g))
            i++;
        if (i == n && n < GROUPS)
            groups[n++] = g;
        else if (i < n) {
            groups[i].n++;
            groups[i].bytes += g.bytes;
        }
    }
    return n;
}

static int64_t staged_bytes(const weft_exec *x)
{
    const struct program *p = x->program;
    int64_t bytes = 0;
    for (uint32_t s = 0; s < p->nsteps && !p->driver->copies; s++)
        if (p->steps[s].kind == PLAN_SEND && p->steps[s].way->send_moves == WAY_MOVES_MESSAGE &&
            p->steps[s].way != &way_wire)
            bytes += x->plan->steps[s].bytes;
    return bytes;
}

/* Why driver i, which comes before the chosen one, was not chosen. */
static const char *why_not(const weft_exec *x, int i)
{
    if (x->off & driver_bit(driver_at(i)))
        return "switched off";
    return x->program->drivers >> i & 1 ? "not all ranks can be driven so" : "this program does not fit";
}

/* Calls `put` for each channel: first those that receive, then those that send, then those with other hosts. */
typedef void put_side(const weft_exec *x, const struct side *d, struct text *t, bool *first);
static void each_side(const weft_exec *x, put_side *put, struct text *t)
{
    bool first = true;
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nins; i++)
        put(x, &(struct side){.peer = p->ins[i].peer, .n = p->ins[i].n, .steps = p->ins[i].steps}, t, &first);
    for (uint32_t i = 0; i < p->nouts; i++)
        put(x, &(struct side){p->outs[i].peer, true, p->outs[i].n, p->outs[i].steps, NULL}, t, &first);
    for (uint32_t at = 0, n; at < p->grouped[0] + p->grouped[1]; at += n) {
        bool sends = at >= p->grouped[0];
        n = program_run(x, p->buckets + at, (sends ? p->grouped[1] : 0) + p->grouped[0] - at);
        put(x, &(struct side){x->plan->steps[p->buckets[at]].peer, sends, n, p->buckets + at, NULL}, t, &first);
    }
    for (uint32_t i = 0; i < p->wired.n; i++) {
        const struct wire_channel *ch = &p->wired.channels[i];
        put(x, &(struct side){ch->peer, ch->sends, ch->n, NULL, ch}, t, &first);
    }
}

/* ---- text ---- */

static void text_side(const weft_exec *x, const struct side *d, struct text *t, bool *first)
{
    (void)first;
    struct group groups[GROUPS];
    int n = groups_of(x, d, groups);
    for (int i = 0; i < n; i++) {
        const struct group *g = &groups[i];
        text_printf(t, "%s rank %d: %" PRIu32 " message%s, %" PRId64 " bytes, %s%s%s: %s\n", d->sends ? "to  " : "from",
                    d->peer, g->n, g->n == 1 ? "" : "s", g->bytes, g->way, g->order ? ", order " : "",
                    g->order ? g->order : "", g->why);
    }
}

static void text_exec(const weft_exec *x, struct text *t)
{
    const struct program *p = x->program;
    text_printf(t, "rank %d of %d: %s, algorithm %s\n", x->comm->rank, x->comm->size, x->plan->kind,
                x->plan->algorithm);
    text_printf(t, "cores: %s\n", x->comm->dedicated_cores ? "each rank has one" : "ranks share them");
    text_printf(t, "driver %s: %s\n", p->driver->name, p->driver->what);
    for (int i = 0; i < (int)p->driver->id; i++)
        text_printf(t, "  not %s: %s\n", driver_at(i)->name, why_not(x, i));
    text_printf(t,
                "packed in a run: %" PRId64 " bytes; eager slots: %" PRId64 " bytes; staging pool: %" PRId64
                " of %" PRId64 " bytes\n",
                staged_bytes(x), p->eager_bytes, x->comm->staging.taken, x->comm->staging.limit);
    if (x->quantise)
        text_printf(t, "scales: %s\n",
                    x->quantise->fold ? "the maxima of blocks that ranks share come first, by an exec of their own"
                                      : "no ranks share blocks whose scales are made");
    device_explain_text(x, t);
    if (x->checks)
        text_put(t, "messages are checked\n");
    if (x->off) {
        text_put(t, "switched off:");
        for (int i = 0; toggle_name(i); i++)
            if (toggle_is_off(x->off, toggle_name(i)))
                text_printf(t, " %s", toggle_name(i));
        text_put(t, "\n");
    }
    each_side(x, text_side, t);
}

/* ---- JSON ---- */

static void json_side(const weft_exec *x, const struct side *d, struct text *t, bool *first)
{
    struct group groups[GROUPS];
    int n = groups_of(x, d, groups);
    for (int i = 0; i < n; i++) {
        const struct group *g = &groups[i];
        text_put(t, *first ? "\n  " : ",\n  ");
        *first = false;
        text_printf(t, "{\"%s\": %d, \"messages\": %" PRIu32 ", \"bytes\": %" PRId64 ", \"way\": \"%s\"",
                    d->sends ? "to" : "from", d->peer, g->n, g->bytes, g->way);
        text_printf(t, ", \"order\": %s%s%s, \"why\": \"%s\"}", g->order ? "\"" : "", g->order ? g->order : "null",
                    g->order ? "\"" : "", g->why);
    }
}

static void json_exec(const weft_exec *x, struct text *t)
{
    const struct program *p = x->program;
    text_printf(t, "{\"rank\": %d, \"ranks\": %d, \"kind\": \"%s\", \"algorithm\": \"%s\", \"dedicated_cores\": %s",
                x->comm->rank, x->comm->size, x->plan->kind, x->plan->algorithm,
                x->comm->dedicated_cores ? "true" : "false");
    text_printf(t, ",\n \"driver\": \"%s\", \"packed_bytes\": %" PRId64 ", \"eager_slot_bytes\": %" PRId64,
                p->driver->name, staged_bytes(x), p->eager_bytes);
    text_printf(t, ", \"staging_bytes\": %" PRId64 ", \"staging_limit\": %" PRId64 ",\n \"passed_over\": {",
                x->comm->staging.taken, x->comm->staging.limit);
    for (int i = 0; i < (int)p->driver->id; i++)
        text_printf(t, "%s\"%s\": \"%s\"", i ? ", " : "", driver_at(i)->name, why_not(x, i));
    text_put(t, "}, \"off\": [");
    for (int i = 0, n = 0; toggle_name(i); i++)
        if (toggle_is_off(x->off, toggle_name(i)))
            text_printf(t, "%s\"%s\"", n++ ? ", " : "", toggle_name(i));
    text_put(t, "],\n \"device\": ");
    device_explain_json(x, t);
    text_printf(t, ",\n \"checked\": %s, \"channels\": [", x->checks ? "true" : "false");
    each_side(x, json_side, t);
    text_put(t, "]}\n");
}

int weft_exec_explain(const weft_exec *x, bool json, char *buf, size_t cap, size_t *len)
{
    if (!x || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_exec_explain: arguments must not be NULL");
    struct text t = text_start(buf, cap);
    struct comm_family *f = comm_enter(x->comm);
    if (json)
        json_exec(x, &t);
    else
        text_exec(x, &t);
    comm_leave(f);
    *len = t.len;
    return 0;
}
