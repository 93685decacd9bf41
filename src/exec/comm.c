/* Opening and closing comms, and the one place that reads the environment. */
#define _GNU_SOURCE
#include "exec/comm.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SECOND INT64_C(1000000000)

/* A whole number of the environment that stands for an option which was left at 0. */
static int from_environment(const char *name, int64_t scale, int64_t max, int64_t *value)
{
    const char *text = getenv(name);
    if (*value || !text || !*text)
        return 0;
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end || n < 1 || n > max / scale)
        return error_set(WEFT_EINVAL, "%s=%s: expected a number from 1 to %lld", name, text, (long long)(max / scale));
    *value = n * scale;
    return 0;
}

static int settle(int64_t *value, const char *what, const char *name, int64_t scale, int64_t max, int64_t fallback)
{
    if (*value < 0)
        return error_set(WEFT_EINVAL, "%s is %lld: it must not be negative", what, (long long)*value);
    if (*value > max)
        return error_set(WEFT_EINVAL, "%s is %lld: it must be at most %lld", what, (long long)*value, (long long)max);
    int err = from_environment(name, scale, max, value);
    if (!err && !*value)
        *value = fallback;
    return err;
}

/* Fills in what the caller left open: first from WEFT_*, then the defaults. */
static int settle_options(weft_comm_opts *o)
{
    int64_t buckets = o->inflight_buckets, channel = o->channel_buckets, staged = o->staged;
    int err = settle(&o->deadline_ns, "deadline_ns", "WEFT_DEADLINE_MS", 1000000, INT64_MAX / 4, 30 * SECOND);
    if (!err)
        err = settle(&o->inflight_bytes, "inflight_bytes", "WEFT_INFLIGHT_BYTES", 1, INT64_MAX / 4, INT64_C(64) << 20);
    if (!err)
        err = settle(&buckets, "inflight_buckets", "WEFT_INFLIGHT_BUCKETS", 1, 1 << 20, 256);
    if (!err)
        err = settle(&channel, "channel_buckets", "WEFT_CHANNEL_BUCKETS", 1, 1 << 20, 4);
    const char *text = getenv("WEFT_STAGED");
    if (!err && !staged && text && *text) {
        if (strcmp(text, "0") && strcmp(text, "1"))
            err = error_set(WEFT_EINVAL, "WEFT_STAGED=%s: expected 0 or 1", text);
        staged = text[0] == '1';
    }
    o->inflight_buckets = (int)buckets;
    o->channel_buckets = (int)channel;
    o->staged = staged;
    return err;
}

static int cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set);
}

int weft_comm_open(const char *url, const weft_comm_opts *opts, weft_comm **out)
{
    weft_comm_opts o = {.size = sizeof o};
    if (!url || !out)
        return error_set(WEFT_EINVAL, "weft_comm_open: url and out must not be NULL");
    if (opts && opts->size < sizeof opts->size)
        return error_set(WEFT_EINVAL, "weft_comm_open: opts.size is not set");
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    int err = settle_options(&o);
    const char *place = NULL;
    const struct transport *t = err ? NULL : transport_find(url, &place);
    if (!t)
        return err ? err : WEFT_EINVAL;
    weft_comm *c = calloc(1, sizeof *c);
    if (!c)
        return error_nomem();
    err = t->join(place, o.rank, o.deadline_ns, &c->link);
    if (err) {
        free(c);
        return err;
    }
    c->transport = t;
    c->group = c->link->group;
    c->rank = c->link->rank;
    c->size = c->link->size;
    c->deadline_ns = o.deadline_ns;
    c->beat_ns = o.deadline_ns / 8 < SECOND / 4 ? o.deadline_ns / 8 + 1 : SECOND / 4;
    c->staged = o.staged || !t->can.loads;
    c->channel_buckets = o.channel_buckets;
    c->spins = c->size <= cores() ? 2000 : 0;
    staging_init(&c->staging, o.inflight_bytes, o.inflight_buckets);
    *out = c;
    return 0;
}

int weft_comm_rank(const weft_comm *c)
{
    return c->rank;
}

int weft_comm_size(const weft_comm *c)
{
    return c->size;
}

int weft_comm_machine(const weft_comm *c, weft_machine *out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_machine: arguments must not be NULL");
    *out = (weft_machine){.size = sizeof *out}; /* all ranks are on one host */
    return 0;
}

/* ---- the end ---- */

static void sweep(weft_comm *c)
{
    for (struct comm_grave **at = &c->graves; *at;) {
        struct comm_grave *g = *at;
        /* Acquire: pairs with the release of the last holder; it looks at the memory no more. */
        if (atomic_load_explicit(g->holders, memory_order_acquire)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        c->transport->release(c->link, g->memory);
        free(g);
    }
}

void comm_bury(weft_comm *c, struct comm_grave *grave, const _Atomic uint32_t *holders, void *memory)
{
    *grave = (struct comm_grave){.next = c->graves, .holders = holders, .memory = memory};
    c->graves = grave;
    sweep(c);
}

static void comm_free(weft_comm *c)
{
    sweep(c);
    while (c->graves) { /* the group keeps the memory for those who still look at it */
        struct comm_grave *g = c->graves;
        c->graves = g->next;
        free(g);
    }
    staging_close(&c->staging);
    c->transport->leave(c->link);
    free(c);
}

void comm_exec_gone(weft_comm *c)
{
    if (--c->execs == 0 && c->closed)
        comm_free(c);
}

void weft_comm_close(weft_comm *c)
{
    if (!c)
        return;
    c->closed = true;
    if (c->execs == 0)
        comm_free(c);
}

/* ---- failures ---- */

int comm_failure(weft_comm *c)
{
    const char *text;
    int code = core_failure(c->group, &text);
    return code ? error_set(code, "%s", text) : 0;
}

int comm_fail(weft_comm *c, int code, const char *fmt, ...)
{
    char text[CORE_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    core_fail(c->group, c->rank, code, text);
    return comm_failure(c);
}

#define PREFIX 6 /* room for "ranks " */

void comm_name(struct comm_names *names, int rank, const char *note)
{
    char *end = names->text + PREFIX + names->len;
    if (PREFIX + names->len + 64 + 24 > sizeof names->text) {
        names->left++;
        return;
    }
    names->len += (size_t)snprintf(end, 64, "%s%d%s", names->n++ ? ", " : "", rank, note);
}

const char *comm_named(struct comm_names *names)
{
    if (names->left)
        snprintf(names->text + PREFIX + names->len, 24, " and %d more", names->left);
    memcpy(names->text, names->n > 1 ? "ranks " : " rank ", PREFIX);
    return names->text + (names->n > 1 ? 0 : 1);
}
