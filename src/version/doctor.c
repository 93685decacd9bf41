/* What is wrong with the sets of a directory. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "rendezvous/deadline.h"
#include "version/layouts.h"
#include "version/part_client.h"

#define ANSWER_NS INT64_C(3000000000) /* within which a holder must answer */
#define TEXT 700

struct doctor {
    weft_bus *bus;
    const char *set;
    int64_t until;
    void (*found)(void *arg, bool wrong, const char *text);
    void *arg;
};

__attribute__((format(printf, 3, 4))) static void find(const struct doctor *d, bool wrong, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;
    int n = snprintf(text, sizeof text, "set %s: ", d->set);
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    d->found(d->arg, wrong, text);
}

/* Records that were left out of the catalog, by the folder that they are in. */
static void look_at_records(const struct doctor *d, const struct catalog *c)
{
    static const char *const folders[] = {"slots/", "parts/", "versions/"};
    const size_t known[] = {c->nslots, c->nparts, c->nversions};
    for (int k = 0; k < 3; k++) {
        char prefix[RECORD_KEY];
        size_t n = 0;
        record_key(prefix, d->set, "%s", folders[k]);
        for (size_t i = 0; i < c->items.n; i++)
            n += !strncmp(c->items.items[i].key, prefix, strlen(prefix));
        if (n > known[k])
            find(d, true, "%zu records in %s are damaged, or of another version of weft", n - known[k], folders[k]);
    }
    if (!c->epoch && c->nslots + c->nparts + c->nversions)
        find(d, true, "there are records of a publisher, and no epoch");
}

/* Versions: can they be read, and were they left behind? */
static void look_at_versions(const struct doctor *d, const struct catalog *c)
{
    for (size_t i = 0; i < c->nversions; i++) {
        const struct catalog_version *v = &c->versions[i];
        int missing = 0;
        while (missing < v->ranks && v->parts[missing])
            missing++;
        if (!v->holders && v->version.epoch < c->epoch)
            find(d, false, "version %lld.%lld was left behind by a publisher that has died: the next one deletes it",
                 (long long)v->version.epoch, (long long)v->version.step);
        else if (v->holders < v->ranks)
            find(d, i + 1 == c->nversions,
                 "version %lld.%lld: %d of its %d parts have no live holder, the first is that of rank %d",
                 (long long)v->version.epoch, (long long)v->version.step, v->ranks - v->holders, v->ranks, missing);
    }
    for (size_t i = 0; i < c->nparts; i++)
        if (!catalog_find(c, &c->parts[i].version))
            find(d, false, "rank %d has its part of %lld.%lld, which is not committed, or is gone", c->parts[i].rank,
                 (long long)c->parts[i].version.epoch, (long long)c->parts[i].version.step);
    if (c->epoch && !c->nversions)
        find(d, false, "epoch %lld has committed nothing that is kept", (long long)c->epoch);
}

/* Asks a rank of the publisher for its list of tensors. */
static void look_at_slot(const struct doctor *d, const struct catalog *c, const struct catalog_slot *s)
{
    struct part_client client;
    unsigned char *bytes = NULL;
    size_t size = 0;
    int64_t until = min64(d->until, deadline_in(ANSWER_NS));
    if (s->agent)
        find(d, false, "rank %d of epoch %lld has gone, and agent %s has its versions", s->rank, (long long)s->epoch,
             s->job);
    else if (s->epoch < c->epoch) {
        find(d, false, "rank %d of epoch %lld (job %s) lives, but epoch %lld has taken the set: end it", s->rank,
             (long long)s->epoch, s->job, (long long)c->epoch);
        return;
    }
    if (strcmp(s->host, d->bus->host) && !*s->address) {
        find(d, false, "rank %d (job %s) is on another host and listens nowhere: only its own host can read it",
             s->rank, s->job);
        return;
    }
    int err = part_client_open(d->bus->host, d->set, s, ANSWER_NS, until, &client);
    if (!err) {
        err = part_client_layouts(&client, until, &bytes, &size);
        part_client_close(&client);
    }
    if (err)
        find(d, true, "rank %d (job %s) cannot be reached: %.300s", s->rank, s->job, weft_errmsg());
    free(bytes);
}

static void look_at_readers(const struct doctor *d, const struct catalog *c)
{
    int gone = 0;
    for (size_t i = 0; i < c->nreaders; i++)
        gone += c->readers[i].reads && !catalog_find(c, &c->readers[i].version);
    if (gone)
        find(d, false, "%d readers copy a version that is deleted: its memory is free when they are done", gone);
}

static int look_at_set(struct doctor *d)
{
    struct catalog c;
    int err = catalog_get(&d->bus->keeper, d->set, d->until, &c);
    if (err)
        return err;
    look_at_records(d, &c);
    look_at_versions(d, &c);
    for (size_t i = 0; i < c.nslots; i++)
        look_at_slot(d, &c, &c.slots[i]);
    look_at_readers(d, &c);
    const struct catalog_version *newest = c.nversions ? &c.versions[c.nversions - 1] : NULL;
    struct schema *schema = NULL;
    if (newest && newest->holders &&
        layouts_read(d->bus, d->set, newest, NULL, min64(d->until, deadline_in(ANSWER_NS)), &schema) == WEFT_EMISMATCH)
        find(d, true, "%.500s", weft_errmsg());
    schema_free(schema);
    catalog_free(&c);
    return 0;
}

int weft_bus_check(weft_bus *b, int64_t timeout_ns, void (*found)(void *arg, bool wrong, const char *text), void *arg)
{
    struct directory_items items;
    int64_t until = 0;
    char last[WEFT_BUS_NAME + 1] = "";
    if (!b || !found)
        return error_set(WEFT_EINVAL, "weft_bus_check: %s is NULL", b ? "found" : "the bus");
    int err = bus_until(b, "weft_bus_check", timeout_ns, &until);
    if (!err)
        err = keeper_get(&b->keeper, "sets/", until, &items);
    if (err)
        return err;
    for (size_t i = 0; i < items.n && !err; i++) { /* keys are in order: those of one set stand together */
        const char *name = items.items[i].key + strlen("sets/"), *end = strchr(name, '/');
        if (!end || end == name || (size_t)(end - name) > WEFT_BUS_NAME ||
            (strlen(last) == (size_t)(end - name) && !strncmp(last, name, strlen(last))))
            continue;
        snprintf(last, sizeof last, "%.*s", (int)(end - name), name);
        err = look_at_set(&(struct doctor){b, last, until, found, arg});
    }
    directory_items_free(&items);
    return err;
}
