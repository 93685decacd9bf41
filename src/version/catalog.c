#include "version/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* "NUMBER" to the end of a key. */
static bool take_rank(const char *text, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    *out = (int)n;
    return end != text && !*end && n >= 0 && n < WEFT_BUS_RANKS;
}

/* "VERSION/RANK" */
static bool take_place(const char *text, weft_epoch_step *v, int *rank)
{
    const char *slash = strchr(text, '/');
    return slash && record_version_take(text, (size_t)(slash - text), v) && take_rank(slash + 1, rank);
}

static bool take_way(const char *value, struct catalog_slot *s)
{
    return record_text(value, "job", s->job, sizeof s->job) && record_text(value, "host", s->host, sizeof s->host) &&
           record_text(value, "socket", s->socket, sizeof s->socket) &&
           record_text(value, "address", s->address, sizeof s->address) &&
           record_text(value, "secret", s->secret, sizeof s->secret);
}

static bool take_slot(const char *key, const struct directory_item *item, struct catalog_slot *s)
{
    const char *value = (const char *)item->value;
    int64_t agent = 0;
    char *end;
    s->epoch = strtoll(key, &end, 10);
    s->relay = false;
    s->agent = record_int(value, "agent", &agent) && agent;
    s->revision = item->revision;
    return *end == '/' && take_rank(end + 1, &s->rank) && take_way(value, s);
}

static bool take_relay(const struct directory_item *item, struct catalog_slot *s)
{
    *s = (struct catalog_slot){.relay = true, .revision = item->revision};
    return take_way((const char *)item->value, s);
}

static bool take_part(const char *key, const char *value, struct catalog_part *p)
{
    int64_t generation, digests;
    unsigned char sketch[16];
    if (!take_place(key, &p->version, &p->rank) || !record_int(value, "generation", &generation) ||
        !record_int(value, "digests", &digests) || !record_bytes(value, "hash", p->hash, sizeof p->hash) ||
        !record_bytes(value, "sketch", sketch, sizeof sketch))
        return false;
    memcpy(p->sketch, sketch, sizeof sketch);
    p->generation = (uint64_t)generation;
    p->digests = digests != 0;
    return true;
}

static int take_version(struct catalog *c, const char *key, const struct directory_item *item, bool *fits)
{
    struct catalog_version *v = &c->versions[c->nversions];
    const char *value = (const char *)item->value, *meta;
    int64_t ranks;
    size_t len;
    *v = (struct catalog_version){.revision = item->revision, .meta = ""};
    *fits = record_version_take(key, strlen(key), &v->version) && record_int(value, "ranks", &ranks) && ranks > 0 &&
            ranks <= WEFT_BUS_RANKS && record_int(value, "bytes", &v->bytes) &&
            record_bytes(value, "layouts", v->layouts, SCHEMA_HASH) &&
            record_bytes(value, "schema", v->digest, SCHEMA_HASH);
    if (!*fits)
        return 0;
    v->ranks = (int)ranks;
    v->hashes = arena_alloc(&c->arena, (size_t)ranks * CATALOG_PART);
    v->parts = arena_alloc(&c->arena, (size_t)ranks * sizeof(*v->parts));
    if (!v->hashes || !v->parts)
        return error_nomem();
    memset(v->parts, 0, (size_t)ranks * sizeof(*v->parts));
    *fits = record_bytes(value, "parts", v->hashes, (size_t)ranks * CATALOG_PART);
    if (record_find(value, "meta", &meta, &len))
        v->meta = meta; /* it goes to the end of the value, behind which a zero stands */
    return 0;
}

static bool take_reader(const char *value, struct catalog_reader *r)
{
    char text[RECORD_VERSION];
    r->reads = record_text(value, "reads", text, sizeof text);
    return r->reads && record_version_take(text, strlen(text), &r->version);
}

static int take(struct catalog *c, const char *key, const struct directory_item *item)
{
    const char *value = (const char *)item->value;
    bool fits = false;
    int err = 0;
    if (!strcmp(key, "epoch")) {
        if (!record_int(value, "epoch", &c->epoch))
            c->epoch = 0;
    } else if (!strncmp(key, "slots/", 6))
        c->nslots += take_slot(key + 6, item, &c->slots[c->nslots]);
    else if (!strncmp(key, "parts/", 6)) {
        c->parts[c->nparts].key = item->key;
        c->parts[c->nparts].revision = item->revision;
        c->nparts += take_part(key + 6, value, &c->parts[c->nparts]);
    } else if (!strncmp(key, "readers/", 8) && !strcmp(strrchr(key, '/'), "/relay"))
        c->nrelays += take_relay(item, &c->relays[c->nrelays]);
    else if (!strncmp(key, "readers/", 8))
        c->nreaders += take_reader(value, &c->readers[c->nreaders]);
    else if (!strncmp(key, "versions/", 9)) {
        err = take_version(c, key + 9, item, &fits);
        c->nversions += fits;
    }
    return err;
}

const struct catalog_slot *catalog_slot(const struct catalog *c, int64_t epoch, int rank)
{
    for (size_t lo = 0, hi = c->nslots; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        const struct catalog_slot *s = &c->slots[mid];
        if (s->epoch == epoch && s->rank == rank)
            return s;
        if (s->epoch < epoch || (s->epoch == epoch && s->rank < rank))
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Which parts of which versions live processes have. Both lists are in ascending order. */
static void link_parts(struct catalog *c)
{
    for (size_t i = 0, k = 0; i < c->nparts; i++) {
        struct catalog_part *p = &c->parts[i];
        p->slot = catalog_slot(c, p->version.epoch, p->rank);
        while (k < c->nversions && record_version_compare(&c->versions[k].version, &p->version) < 0)
            k++;
        struct catalog_version *v = k < c->nversions ? &c->versions[k] : NULL;
        if (!v || !p->slot || record_version_compare(&v->version, &p->version) || p->rank >= v->ranks)
            continue;
        if (memcmp(v->hashes + (size_t)p->rank * CATALOG_PART, p->hash, CATALOG_PART))
            continue;
        v->parts[p->rank] = p;
        v->holders++;
    }
}

int catalog_get(struct keeper *k, const char *set, int64_t until, struct catalog *out)
{
    char prefix[RECORD_KEY];
    record_key(prefix, set, "%s", "");
    *out = (struct catalog){0};
    int err = keeper_get(k, prefix, until, &out->items);
    if (err)
        return err;
    size_t n = out->items.n + 1;
    out->slots = arena_alloc(&out->arena, n * sizeof *out->slots);
    out->parts = arena_alloc(&out->arena, n * sizeof *out->parts);
    out->versions = arena_alloc(&out->arena, n * sizeof *out->versions);
    out->readers = arena_alloc(&out->arena, n * sizeof *out->readers);
    out->relays = arena_alloc(&out->arena, n * sizeof *out->relays);
    if (!out->slots || !out->parts || !out->versions || !out->readers || !out->relays)
        err = error_nomem();
    for (size_t i = 0; i < out->items.n && !err; i++)
        err = take(out, out->items.items[i].key + strlen(prefix), &out->items.items[i]);
    if (err)
        catalog_free(out);
    else
        link_parts(out);
    return err;
}

void catalog_agent_key(const char *host, char key[RECORD_KEY])
{
    snprintf(key, RECORD_KEY, "agents/%s/%lld", host, (long long)geteuid());
}

int catalog_agent(struct keeper *k, const char *host, int64_t until, struct catalog_slot *out)
{
    char key[RECORD_KEY];
    struct directory_items items;
    catalog_agent_key(host, key);
    *out = (struct catalog_slot){0};
    int err = keeper_get(k, key, until, &items);
    if (err)
        return err;
    for (size_t i = 0; i < items.n; i++) { /* other users' may begin with it */
        struct catalog_slot s = {.agent = true, .revision = items.items[i].revision};
        if (!strcmp(items.items[i].key, key) && take_way((const char *)items.items[i].value, &s))
            *out = s;
    }
    directory_items_free(&items);
    return 0;
}

void catalog_free(struct catalog *c)
{
    directory_items_free(&c->items);
    arena_free(&c->arena);
    *c = (struct catalog){0};
}

bool catalog_is_read(const struct catalog *c, const weft_epoch_step *v)
{
    for (size_t i = 0; i < c->nreaders; i++)
        if (c->readers[i].reads && !record_version_compare(&c->readers[i].version, v))
            return true;
    return false;
}

const struct catalog_version *catalog_find(const struct catalog *c, const weft_epoch_step *v)
{
    for (size_t i = 0; i < c->nversions; i++)
        if (!record_version_compare(&c->versions[i].version, v))
            return &c->versions[i];
    return NULL;
}
