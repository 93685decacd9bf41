#define _GNU_SOURCE
#include "version/bus_agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/log.h"
#include "base/math.h"
#include "base/thread.h"
#include "rendezvous/deadline.h"
#include "version/part_client.h"
#include "version/part_record.h"

#define SECOND INT64_C(1000000000)
#define ANSWER_NS (2 * SECOND) /* within which a publisher must give its part */
#define TICK_NS (SECOND / 10)  /* after which the thread looks whether it is to end */
#define STOP_NS (2 * SECOND)   /* for the directory, when the agent ends */
#define POLL_NS (SECOND / 20)

/* What the agent has of a snapshot beside its ring. */
struct held_version {
    uint64_t inode;
    bool seen;    /* its version was committed */
    char *record; /* of the version; NULL: it was not seen */
    size_t bytes;
};

/* What the agent holds of one rank of a publisher. The ring has keep snapshots that are mapped. */
struct held {
    struct list node;
    weft_publisher p;
    struct catalog_slot slot; /* of the publisher */
    int64_t revision;         /* of the directory when it was found: what is older says nothing about it */
    bool busy;                /* a thread works with it, without the lock */
    bool alone;               /* the publisher has gone */
    _Atomic bool goes;        /* its memory is needed for a publisher that lives; the thread reads it while busy */
    int64_t asked;            /* goes: since this round */
    int64_t round;            /* of the thread, when it was looked at last */
    struct held_version more[WEFT_BUS_KEEP];
    char *epoch; /* the record of the set's epoch that was seen last; NULL: none */
};

struct bus_agent {
    weft_bus *bus;
    struct bus_agent_opts opts;
    struct part_server_source source;
    char key[RECORD_KEY];
    pthread_mutex_t lock;
    pthread_cond_t idle; /* one that was busy is not */
    struct list held;
    int64_t bytes; /* of the files that are mapped */
    pthread_t thread;
    _Atomic bool stops, hurry; /* hurry: the thread is to look now */
    /* of the thread: */
    int64_t round;
    struct directory *directory;
    struct directory_watch *watch;
};

/* ---- what is held; with the lock ---- */

static struct held *find(struct bus_agent *a, const char *set, int64_t epoch, int rank)
{
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n)) {
        struct held *h = LIST_OF(n, struct held, node);
        if (h->p.epoch == epoch && h->p.rank == rank && !strcmp(h->p.source.set, set))
            return h;
    }
    return NULL;
}

static int64_t file_bytes(const struct held *h)
{
    return h->p.part.bytes + SNAPSHOT_DATA;
}

/* Gives back the files that no version needs. Readers that are served from it are sent away: they look for the holders
 * of their version anew. */
static void drop_files(struct bus_agent *a, struct held *h)
{
    weft_publisher *p = &h->p;
    int kept = 0;
    for (int i = 0; i < p->keep; i++)
        kept += p->ring[i].state == PUBLISH_SHOWN;
    if (kept == p->keep)
        return;
    kept = 0;
    if (p->served)
        part_server_remove(p->bus->server, &p->source);
    p->served = false;
    for (int i = 0; i < p->keep; i++) {
        if (p->ring[i].state == PUBLISH_SHOWN) {
            p->ring[kept] = p->ring[i];
            h->more[kept++] = h->more[i];
            continue;
        }
        snapshot_close(&p->ring[i].snapshot);
        free(p->ring[i].sums);
        free(p->ring[i].given.who);
        free(h->more[i].record);
        a->bytes -= file_bytes(h);
    }
    p->keep = kept;
    if (kept)
        publish_serve(p);
}

static void drop_all(struct bus_agent *a, struct held *h)
{
    for (int i = 0; i < h->p.keep; i++)
        h->p.ring[i].state = PUBLISH_FREE; /* drop_files ends those that serve it before it closes anything */
    drop_files(a, h);
    pthread_cond_broadcast(&a->idle);
    list_remove(&h->node);
    schema_part_free(&h->p.part);
    schema_free(h->p.schema);
    pthread_mutex_destroy(&h->p.lock);
    free(h->p.ring);
    free(h->epoch);
    free(h);
}

static void set_state(struct held *h, int i, enum publish_state state)
{
    pthread_mutex_lock(&h->p.lock);
    h->p.ring[i].state = state;
    pthread_mutex_unlock(&h->p.lock);
}

/* A new one, without anything in it. It is busy. */
static struct held *add(struct bus_agent *a, const char *set, const struct part_link_message *m)
{
    struct held *h = calloc(1, sizeof *h);
    if (!h || !(h->p.ring = calloc(WEFT_BUS_KEEP, sizeof *h->p.ring))) {
        free(h);
        return NULL;
    }
    h->busy = true;
    h->p.bus = a->bus;
    h->p.epoch = m->epoch;
    h->p.rank = m->rank;
    snprintf(h->p.source.set, sizeof h->p.source.set, "%s", set);
    pthread_mutex_init(&h->p.lock, NULL);
    list_append(&a->held, &h->node);
    return h;
}

/* ---- taking a part ---- */

/* Who asks, by the directory's word. */
static int find_publisher(struct bus_agent *a, struct held *h, int64_t until)
{
    struct catalog c;
    int err = h->slot.job[0] ? 0 : catalog_get(&a->bus->keeper, h->p.source.set, until, &c);
    if (err || h->slot.job[0])
        return err;
    const struct catalog_slot *s = catalog_slot(&c, h->p.epoch, h->p.rank);
    if (!s || s->agent || strcmp(s->host, a->bus->host))
        err = error_set(WEFT_EPEER, "set '%s' has no publisher of epoch %lld on this host with rank %d",
                        h->p.source.set, (long long)h->p.epoch, h->p.rank);
    else
        h->slot = *s;
    h->revision = c.items.revision;
    catalog_free(&c);
    return err;
}

static int read_layouts(struct held *h, struct part_client *c, int64_t until)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    int err = part_client_layouts(c, until, &bytes, &size);
    if (!err)
        err = schema_load(c->name, bytes, size, &h->p.schema);
    free(bytes);
    return err ? err : schema_part(h->p.schema, h->p.rank, false, &h->p.part);
}

/* The file as a snapshot with a descriptor, for readers of this host. */
static int map_file(const struct held *h, const char *source, int file, struct snapshot *out, uint64_t *inode)
{
    struct stat st;
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || fstat(own, &st)) {
        close(file);
        if (own >= 0)
            close(own);
        return error_set(WEFT_EIO, "there is no descriptor for a snapshot");
    }
    int err = snapshot_map(source, file, h->p.part.bytes, out);
    if (err) {
        close(own);
        return err;
    }
    out->fd = forks_own(own);
    *inode = st.st_ino;
    return 0;
}

/* With the lock: the place for a file; NULL: there is no room for it. */
static struct publish_ring *find_place(struct bus_agent *a, struct held *h, struct snapshot *s, uint64_t inode)
{
    weft_publisher *p = &h->p;
    for (int i = 0; i < p->keep; i++)
        if (h->more[i].inode == inode) { /* the publisher has reused it */
            snapshot_close(s);
            return &p->ring[i];
        }
    struct publish_ring r = {.snapshot = *s,
                             .sums = calloc(p->part.blocks + 1, sizeof *r.sums),
                             .given.who = calloc(p->part.blocks + 1, sizeof *r.given.who)};
    if (p->keep == WEFT_BUS_KEEP || !r.sums || !r.given.who) {
        free(r.sums);
        free(r.given.who);
        return NULL;
    }
    a->bytes += file_bytes(h);
    h->more[p->keep] = (struct held_version){.inode = inode};
    pthread_mutex_lock(&p->lock);
    p->ring[p->keep++] = r;
    pthread_mutex_unlock(&p->lock);
    return &p->ring[p->keep - 1];
}

/* Has the oldest one that the agent alone holds go. If the thread has looked at it since, somebody reads it, and the
 * next one goes. False: there is none. */
static bool ask_oldest(struct bus_agent *a, const struct held *but)
{
    struct held *oldest = NULL;
    bool some = false, waits = false;
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n)) {
        struct held *x = LIST_OF(n, struct held, node);
        if (x == but || !x->alone)
            continue;
        some = true;
        waits = waits || (x->goes && x->round <= x->asked);
        if (!x->goes && (!oldest || x->revision < oldest->revision))
            oldest = x;
    }
    if (oldest && !waits) {
        oldest->goes = true;
        oldest->asked = a->round;
    }
    a->hurry = some;
    return some;
}

/* Waits until there is room for a file: what the agent alone holds goes, the oldest first. One that is read stays, and
 * then the next one goes. */
static int await_room(struct bus_agent *a, const struct held *h, int64_t until)
{
    while (a->bytes + file_bytes(h) > a->opts.memory && deadline_now() < until && ask_oldest(a, h)) {
        int64_t next = min64(until, deadline_in(POLL_NS));
        pthread_cond_timedwait(&a->idle, &a->lock, &(struct timespec){next / SECOND, next % SECOND});
    }
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n))
        LIST_OF(n, struct held, node)->goes = false; /* what was not needed stays */
    return a->bytes + file_bytes(h) <= a->opts.memory
               ? 0
               : error_set(WEFT_ENOMEM,
                           "there is no memory for %lld bytes of set '%s': the agent may hold %lld, and holds %lld",
                           (long long)file_bytes(h), h->p.source.set, (long long)a->opts.memory, (long long)a->bytes);
}

static int insert(struct bus_agent *a, struct held *h, const struct part_link_message *m, struct snapshot *s,
                  uint64_t inode, const uint64_t *digests, int64_t until)
{
    weft_publisher *p = &h->p;
    bool known = false;
    int err = 0;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < p->keep; i++)
        known = known || h->more[i].inode == inode;
    if (!known)
        err = await_room(a, h, until);
    struct publish_ring *r = err ? NULL : find_place(a, h, s, inode);
    if (!err && !r)
        err = error_nomem();
    if (err)
        snapshot_close(s);
    else {
        struct held_version *x = &h->more[r - p->ring];
        free(x->record);
        *x = (struct held_version){.inode = inode};
        pthread_mutex_lock(&p->lock);
        memcpy(r->sums, digests, p->part.blocks * sizeof *r->sums);
        part_blocks_forget(&r->given, p->part.blocks);
        p->digests = m->flags & PART_LINK_DIGESTS;
        r->generation = m->generation;
        r->step = m->step;
        r->state = PUBLISH_SHOWN;
        pthread_mutex_unlock(&p->lock);
        if (!p->served)
            publish_serve(p);
    }
    pthread_mutex_unlock(&a->lock);
    return err;
}

/* Without the lock; h is busy. */
static int take_part(struct bus_agent *a, struct held *h, const struct part_link_message *m, int64_t until)
{
    struct part_client_of of = {{m->epoch, m->step}, m->rank, m->generation, m->flags & PART_LINK_DIGESTS, {0}};
    struct part_client c;
    struct snapshot s = {.fd = -1};
    uint64_t generation = 0, inode = 0;
    int file = -1;
    memcpy(of.hash, &m->who, sizeof m->who);
    memcpy(of.hash + sizeof m->who, &m->lost, sizeof m->lost);
    int err = find_publisher(a, h, until);
    if (!err)
        err = part_client_open(a->bus->host, h->p.source.set, &h->slot, ANSWER_NS, until, &c);
    if (err)
        return err;
    if (!h->p.schema)
        err = read_layouts(h, &c, until);
    uint64_t *digests = err ? NULL : calloc(h->p.part.blocks + 1, sizeof *digests);
    if (!err && !digests)
        err = error_nomem();
    if (!err)
        err = part_client_part(&c, &of, (unsigned char *)digests, h->p.part.blocks * sizeof *digests, until, &file,
                               &generation);
    if (!err && (file < 0 || generation != m->generation)) {
        if (file >= 0)
            close(file);
        err = error_set(WEFT_EPEER, "%s has no snapshot of this version", c.name);
    } else if (!err)
        err = map_file(h, c.name, file, &s, &inode);
    if (!err)
        err = insert(a, h, m, &s, inode, digests, until);
    free(digests);
    part_client_close(&c);
    return err;
}

/* With the lock. */
static void set_idle(struct bus_agent *a, struct held *h)
{
    h->busy = false;
    pthread_cond_broadcast(&a->idle);
}

static int keep(void *owner, const char *set, const struct part_link_message *m)
{
    struct bus_agent *a = owner;
    int64_t until = deadline_in(ANSWER_NS);
    if (m->rank < 0 || m->rank >= WEFT_BUS_RANKS || m->epoch < 1 || m->step < 0 || record_name("keep", "set", set))
        return error_set(WEFT_EINVAL, "there is no such part");
    pthread_mutex_lock(&a->lock);
    struct held *h;
    struct timespec at = {until / SECOND, until % SECOND};
    while ((h = find(a, set, m->epoch, m->rank)) && h->busy) /* it may be gone after a wait */
        if (pthread_cond_timedwait(&a->idle, &a->lock, &at)) {
            pthread_mutex_unlock(&a->lock);
            return error_set(WEFT_EBUSY, "the agent is busy with set '%s'", set);
        }
    bool have = false;
    for (int i = 0; h && i < h->p.keep; i++)
        have = have || (h->p.ring[i].state == PUBLISH_SHOWN && h->p.ring[i].step == m->step &&
                        h->p.ring[i].generation == m->generation);
    if (have) {
        pthread_mutex_unlock(&a->lock);
        return 0;
    }
    if (h)
        h->busy = true;
    else
        h = add(a, set, m);
    pthread_mutex_unlock(&a->lock);
    if (!h)
        return error_nomem();
    int err = take_part(a, h, m, until);
    struct error_text kept;
    error_keep(&kept);
    pthread_mutex_lock(&a->lock);
    set_idle(a, h);
    if (!h->p.keep)
        drop_all(a, h);
    pthread_mutex_unlock(&a->lock);
    error_restore(&kept);
    return err;
}

/* ---- the directory ---- */

static const struct directory_item *find_item(const struct catalog *c, const char *key)
{
    for (size_t i = 0; i < c->items.n; i++)
        if (!strcmp(c->items.items[i].key, key))
            return &c->items.items[i];
    return NULL;
}

static bool is_mine(const struct bus_agent *a, const struct catalog_slot *s)
{
    return s && !strcmp(s->socket, part_server_socket(a->bus->server));
}

static char *copy_value(const struct directory_item *i)
{
    char *to = malloc(i->bytes + 1);
    return to ? memcpy(to, i->value, i->bytes + 1) : NULL;
}

/* Keeps the records that the directory may forget. */
static void remember(struct held *h, const struct catalog *c)
{
    char key[RECORD_KEY];
    record_key(key, h->p.source.set, "epoch");
    const struct directory_item *i = find_item(c, key);
    if (i) {
        free(h->epoch);
        h->epoch = copy_value(i);
    }
    for (int k = 0; k < h->p.keep; k++) {
        struct held_version *x = &h->more[k];
        publish_version_key(&h->p, h->p.ring[k].step, key);
        if (h->p.ring[k].state != PUBLISH_SHOWN || !(i = find_item(c, key)))
            continue;
        x->seen = true;
        if (!x->record && (x->record = copy_value(i)))
            x->bytes = i->bytes;
    }
}

/* The version of a snapshot, if it is one of which this is a part. */
static const struct catalog_version *version_of(const struct held *h, const struct catalog *c, int i)
{
    unsigned char hash[CATALOG_PART];
    const struct catalog_version *v = catalog_find(c, &(weft_epoch_step){h->p.epoch, h->p.ring[i].step});
    if (!v || h->p.rank >= v->ranks || memcmp(v->layouts, h->p.schema->layouts, SCHEMA_HASH))
        return NULL;
    part_record_hash(&h->p, &h->p.ring[i], hash);
    return memcmp(hash, v->hashes + (size_t)h->p.rank * CATALOG_PART, CATALOG_PART) ? NULL : v;
}

/* The publisher lives: what it has deleted is not served any more. Its files stay, since it will use them again. A
 * directory that has forgotten everything gets the slot back before the versions: one that returns is served again,
 * unless its file was reused. */
static void follow_publisher(struct held *h, const struct catalog *c)
{
    h->alone = false;
    h->goes = false;
    for (int i = 0; i < h->p.keep; i++) {
        const struct publish_ring *r = &h->p.ring[i];
        bool there = version_of(h, c, i) != NULL;
        if (r->state == PUBLISH_SHOWN && h->more[i].seen && !there)
            set_state(h, i, PUBLISH_RETIRED);
        else if (r->state == PUBLISH_RETIRED && there && snapshot_is(&r->snapshot, r->generation))
            set_state(h, i, PUBLISH_SHOWN);
    }
}

/* ---- without the lock, while h is busy ---- */

/* The directory has forgotten everything: its epoch and its versions come back, unless somebody has begun anew. */
static int put_back(struct bus_agent *a, struct held *h, int64_t until)
{
    char keys[DIRECTORY_CHANGES_MAX][RECORD_KEY];
    struct directory_change x[DIRECTORY_CHANGES_MAX];
    struct directory_outcome o;
    size_t n = 0;
    if (!h->epoch)
        return 0;
    record_key(keys[n], h->p.source.set, "epoch");
    x[n++] = (struct directory_change){.key = keys[0], .value = h->epoch, .bytes = strlen(h->epoch)};
    for (int i = 0; i < h->p.keep && n < DIRECTORY_CHANGES_MAX; i++) {
        if (h->p.ring[i].state != PUBLISH_SHOWN || !h->more[i].record)
            continue;
        publish_version_key(&h->p, h->p.ring[i].step, keys[n]);
        x[n] = (struct directory_change){.key = keys[n], .value = h->more[i].record, .bytes = h->more[i].bytes};
        n++;
    }
    int err = keeper_transact(&a->bus->keeper, &(struct directory_compare){keys[0], 0}, 1, x, n, until, &o);
    if (err || o.done || n == 1)
        return err;
    /* Another rank or epoch of the set has put the epoch back: the versions alone. */
    struct directory_items items;
    err = keeper_get(&a->bus->keeper, keys[0], until, &items);
    if (err)
        return err;
    int64_t revision = items.n && !strcmp((const char *)items.items[0].value, h->epoch) ? items.items[0].revision : 0;
    directory_items_free(&items);
    return revision ? keeper_transact(&a->bus->keeper, &(struct directory_compare){keys[0], revision}, 1, x + 1, n - 1,
                                      until, &o)
                    : 0;
}

/* Puts the slot, if there is none. *revision: of the slot. */
static int put_slot(struct bus_agent *a, struct held *h, int64_t until, int64_t *revision)
{
    char key[RECORD_KEY], record[1024];
    struct directory_outcome o;
    struct text t = text_start(record, sizeof record);
    publish_slot_key(&h->p, key);
    bus_way(a->bus, &t);
    text_put(&t, "agent 1\n");
    struct directory_change x = {.key = key, .value = record, .bytes = t.len, .lease = KEEPER_LEASE};
    int err = keeper_transact(&a->bus->keeper, &(struct directory_compare){key, 0}, 1, &x, 1, until, &o);
    *revision = err || !o.done ? 0 : o.revision;
    if (*revision)
        log_write(WEFT_LOG_INFO, "agent", a->bus->url, h->p.rank, "set '%s', epoch %lld: its publisher %s has gone",
                  h->p.source.set, (long long)h->p.epoch, h->slot.job);
    return err;
}

/* Puts the part of a version, if that is there and the slot is this agent's. */
static int put_part(struct bus_agent *a, struct held *h, int i, const struct catalog_version *v, int64_t slot,
                    int64_t until)
{
    char key[RECORD_KEY], of[RECORD_KEY], version[RECORD_KEY], *record = malloc(PART_RECORD_MAX);
    struct directory_outcome o;
    if (!record)
        return error_nomem();
    publish_slot_key(&h->p, of);
    publish_part_key(&h->p, h->p.ring[i].step, key);
    publish_version_key(&h->p, h->p.ring[i].step, version);
    size_t n = part_record_write(&h->p, &h->p.ring[i], NULL, record);
    const struct directory_compare c[] = {{of, slot}, {version, v->revision}};
    struct directory_change x = {.key = key, .value = record, .bytes = n, .lease = KEEPER_LEASE};
    int err = keeper_transact(&a->bus->keeper, c, 2, &x, 1, until, &o);
    free(record);
    return err;
}

/* Deletes keys of this agent's, if the slot is still its own. */
static int erase(struct bus_agent *a, struct held *h, int64_t slot, const char *key, const char *other, int64_t until)
{
    char of[RECORD_KEY];
    struct directory_outcome o;
    publish_slot_key(&h->p, of);
    struct directory_change x[] = {{.key = key, .erase = true}, {.key = other, .erase = true}};
    return keeper_transact(&a->bus->keeper, &(struct directory_compare){of, slot}, 1, x, other ? 2 : 1, until, &o);
}

/* Is it superfluous: are there as many newer versions as are to be kept, all parts of which can be read? */
static bool is_old(const struct bus_agent *a, const struct held *h, const struct catalog *c,
                   const struct catalog_version *v)
{
    int newer = h->goes ? a->opts.versions : 0;
    for (const struct catalog_version *x = v + 1; x < c->versions + c->nversions; x++)
        newer += x->holders == x->ranks;
    return newer >= a->opts.versions && !catalog_is_read(c, &v->version);
}

/* The snapshots, that of the newest version first. */
static void order_versions(const struct held *h, int order[WEFT_BUS_KEEP])
{
    for (int i = 0; i < h->p.keep; i++) {
        int k = i;
        for (; k > 0 && h->p.ring[order[k - 1]].step < h->p.ring[i].step; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

/* The publisher has gone. The newest part comes first: a reader that comes meanwhile shall not find an older version
 * alone. */
static int replace_publisher(struct bus_agent *a, struct held *h, const struct catalog *c,
                             const struct catalog_slot *slot, int64_t until)
{
    int64_t revision = slot ? slot->revision : 0;
    int err = 0, left = 0, order[WEFT_BUS_KEEP];
    order_versions(h, order);
    for (int i = 0; i < h->p.keep; i++)
        left += h->p.ring[i].state == PUBLISH_SHOWN && version_of(h, c, i) != NULL;
    if (!slot && left) {
        err = put_slot(a, h, until, &revision);
        if (err || !revision)
            return err; /* somebody else has put it: the next look tells */
    }
    for (int k = 0; k < h->p.keep && !err; k++) {
        char key[RECORD_KEY], version[RECORD_KEY];
        int i = order[k];
        const struct catalog_version *v = version_of(h, c, i);
        publish_part_key(&h->p, h->p.ring[i].step, key);
        publish_version_key(&h->p, h->p.ring[i].step, version);
        bool have = find_item(c, key) != NULL, shown = h->p.ring[i].state == PUBLISH_SHOWN;
        if (shown && v && is_old(a, h, c, v)) {
            err = revision ? erase(a, h, revision, version, key, until) : 0;
            v = NULL;
        } else if (shown && v && (!slot || !have || !v->parts[h->p.rank]))
            err = put_part(a, h, i, v, revision, until);
        else if (!v && have && slot)
            err = erase(a, h, revision, key, NULL, until);
        if (!err && !v && h->p.ring[i].state != PUBLISH_FREE)
            set_state(h, i, PUBLISH_FREE);
    }
    bool empty = true;
    for (int i = 0; i < h->p.keep; i++)
        empty = empty && h->p.ring[i].state != PUBLISH_SHOWN;
    if (!err && empty && revision) {
        char key[RECORD_KEY];
        publish_slot_key(&h->p, key);
        err = erase(a, h, revision, key, NULL, until);
    }
    return err;
}

/* ---- the thread ---- */

/* With the lock. */
static void look_at(struct bus_agent *a, struct held *h, const struct catalog *c)
{
    const struct catalog_slot *slot = catalog_slot(c, h->p.epoch, h->p.rank);
    if (h->busy || c->items.revision < h->revision)
        return;
    remember(h, c);
    if (slot && !is_mine(a, slot)) {
        follow_publisher(h, c);
        return;
    }
    int64_t until = deadline_in(SECOND);
    h->busy = true;
    pthread_mutex_unlock(&a->lock);
    bool knows = c->epoch; /* a directory that has forgotten everything may have readers again */
    int err = knows ? replace_publisher(a, h, c, slot, until) : put_back(a, h, until);
    pthread_mutex_lock(&a->lock);
    set_idle(a, h);
    h->alone = true;
    if (err)
        log_write(WEFT_LOG_WARNING, "agent", a->bus->url, h->p.rank, "set '%s': %s", h->p.source.set, weft_errmsg());
    else if (knows) {
        drop_files(a, h);
        if (!h->p.keep)
            drop_all(a, h);
    }
}

/* The set whose name comes next; false: there is none. */
static bool next_set(struct bus_agent *a, char set[WEFT_BUS_NAME + 1])
{
    const char *best = NULL;
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n)) {
        const char *s = LIST_OF(n, struct held, node)->p.source.set;
        if (strcmp(s, set) > 0 && (!best || strcmp(s, best) < 0))
            best = s;
    }
    if (best)
        snprintf(set, WEFT_BUS_NAME + 1, "%s", best);
    return best;
}

/* One of the set that was not looked at in this round; NULL: all were. */
static struct held *next_held(struct bus_agent *a, const char *set)
{
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n)) {
        struct held *h = LIST_OF(n, struct held, node);
        if (h->round != a->round && !strcmp(h->p.source.set, set))
            return h;
    }
    return NULL;
}

/* Compares what is held with the directory. */
static void look(struct bus_agent *a)
{
    char set[WEFT_BUS_NAME + 1] = "";
    a->hurry = false;
    pthread_mutex_lock(&a->lock);
    a->round++;
    while (!a->stops && next_set(a, set)) {
        struct catalog c;
        pthread_mutex_unlock(&a->lock);
        int err = catalog_get(&a->bus->keeper, set, deadline_in(SECOND), &c);
        pthread_mutex_lock(&a->lock);
        if (err)
            break;
        for (struct held *h; (h = next_held(a, set));) {
            h->round = a->round;
            look_at(a, h, &c);
        }
        catalog_free(&c);
    }
    pthread_mutex_unlock(&a->lock);
}

/* Is it a change that says something about versions or holders? */
static bool matters(const struct directory_items *items)
{
    for (size_t i = 0; i < items->n; i++) {
        const char *rest = strchr(items->items[i].key + strlen("sets/"), '/');
        if (rest && strncmp(rest, "/readers/", 9))
            return true;
    }
    return items->lost;
}

/* Waits for a change, a moment at most. True: there was one. */
static bool wait_change(struct bus_agent *a)
{
    struct directory_items items;
    int64_t pause = TICK_NS;
    bool changed = false;
    if (!a->directory && bus_open_directory(a->bus, deadline_in(SECOND), &a->directory))
        a->directory = NULL;
    if (a->directory && !a->watch) {
        if (!directory_get(a->directory, "sets/", SECOND, &items)) {
            if (directory_watch(a->directory, "sets/", items.revision, &a->watch))
                a->watch = NULL;
            directory_items_free(&items);
            changed = true;
        }
    }
    int err = a->watch ? directory_next(a->watch, TICK_NS, &items) : WEFT_ETRANSPORT;
    if (!err) {
        changed = changed || matters(&items);
        directory_items_free(&items);
    } else if (err != WEFT_ETIMEOUT) {
        directory_unwatch(a->watch);
        a->watch = NULL;
        deadline_pause(&pause, TICK_NS, INT64_MAX / 2);
    }
    return changed;
}

static void *run(void *arg)
{
    struct bus_agent *a = arg;
    int64_t looked = deadline_now();
    while (!a->stops) {
        if (wait_change(a) || a->hurry || deadline_now() - looked > min64(SECOND, a->bus->keeper.lease_ns / 3)) {
            look(a);
            looked = deadline_now();
        }
    }
    directory_unwatch(a->watch);
    directory_close(a->directory);
    return NULL;
}

/* ---- beginning and end ---- */

/* Puts the record, once no other agent has one. */
static int announce(struct bus_agent *a, int64_t until)
{
    char record[1024];
    struct text t = text_start(record, sizeof record);
    bus_way(a->bus, &t);
    catalog_agent_key(a->bus->host, a->key);
    struct directory_change x = {.key = a->key, .value = record, .bytes = t.len, .lease = KEEPER_LEASE};
    for (int64_t pause = POLL_NS;; deadline_pause(&pause, POLL_NS, until)) {
        struct directory_outcome o;
        struct catalog_slot other;
        int err = keeper_transact(&a->bus->keeper, &(struct directory_compare){a->key, 0}, 1, &x, 1, until, &o);
        if (err)
            return err;
        if (o.done)
            return keeper_keep(&a->bus->keeper, a->key, record, t.len, true, NULL);
        err = catalog_agent(&a->bus->keeper, a->bus->host, until, &other);
        if (err)
            return err;
        if (deadline_now() >= until)
            return error_set(WEFT_EBUSY, "this host has an agent: job %s", other.job);
    }
}

static void withdraw(struct bus_agent *a, int64_t until)
{
    struct directory_outcome o;
    struct directory_change x = {.key = a->key, .erase = true};
    keeper_forget(&a->bus->keeper, a->key);
    keeper_transact(&a->bus->keeper, NULL, 0, &x, 1, until, &o);
}

/* What it alone holds of a rank: its parts, its slot, and versions of which no other process has a part. */
static int leave(struct bus_agent *a, struct held *h, int64_t until)
{
    struct catalog c;
    char key[RECORD_KEY];
    int err = catalog_get(&a->bus->keeper, h->p.source.set, until, &c);
    if (err)
        return err;
    const struct catalog_slot *slot = catalog_slot(&c, h->p.epoch, h->p.rank);
    for (int i = 0; i < h->p.keep && is_mine(a, slot) && !err; i++) {
        char version[RECORD_KEY];
        const struct catalog_version *v = version_of(h, &c, i);
        if (h->p.ring[i].state != PUBLISH_SHOWN || !v)
            continue;
        publish_part_key(&h->p, h->p.ring[i].step, key);
        publish_version_key(&h->p, h->p.ring[i].step, version);
        bool last = v->holders == 1 && v->parts[h->p.rank];
        err = erase(a, h, slot->revision, key, last ? version : NULL, until);
    }
    publish_slot_key(&h->p, key);
    if (is_mine(a, slot) && !err)
        err = erase(a, h, slot->revision, key, NULL, until);
    catalog_free(&c);
    return err;
}

static int start(struct bus_agent *a, int64_t until)
{
    int err = bus_serve(a->bus);
    if (!err)
        err = announce(a, until);
    if (err)
        return err;
    part_server_add(a->bus->server, &a->source);
    int why = thread_start(&a->thread, run, a);
    if (!why)
        return 0;
    part_server_remove(a->bus->server, &a->source);
    withdraw(a, deadline_in(STOP_NS));
    return error_set(WEFT_EIO, "no thread can be started: %s", strerror(why));
}

static void free_agent(struct bus_agent *a)
{
    weft_bus *b = a->bus;
    pthread_cond_destroy(&a->idle);
    pthread_mutex_destroy(&a->lock);
    free(a);
    bus_leave(b);
}

int bus_agent_start(weft_bus *b, const struct bus_agent_opts *opts, struct bus_agent **out)
{
    pthread_condattr_t attr;
    int err = bus_enter(b, "bus_agent_start");
    struct bus_agent *a = err ? NULL : calloc(1, sizeof *a);
    if (!err && !a) {
        bus_leave(b);
        err = error_nomem();
    }
    if (err)
        return err;
    a->bus = b;
    a->opts = *opts;
    a->opts.versions = opts->versions ? opts->versions : 1;
    a->opts.memory = opts->memory ? opts->memory : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    a->source.agent = true;
    a->source.owner = a;
    a->source.keep = keep;
    list_begin(&a->held);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->idle, &attr);
    pthread_condattr_destroy(&attr);
    err = start(a, deadline_in(opts->timeout_ns ? opts->timeout_ns : b->deadline_ns));
    if (err)
        free_agent(a);
    else
        *out = a;
    return err;
}

void bus_agent_stop(struct bus_agent *a)
{
    if (!a)
        return;
    int64_t until = deadline_in(STOP_NS);
    int err = 0;
    a->stops = true;
    pthread_join(a->thread, NULL);
    withdraw(a, until);
    part_server_remove(a->bus->server, &a->source); /* no publisher hands over any more */
    for (struct list *n; (n = list_first(&a->held));) {
        struct held *h = LIST_OF(n, struct held, node);
        err = err ? err : leave(a, h, until);
        drop_all(a, h);
    }
    free_agent(a);
}

void bus_agent_holds(struct bus_agent *a, int64_t *parts, int64_t *bytes)
{
    *parts = 0;
    pthread_mutex_lock(&a->lock);
    for (struct list *n = list_first(&a->held); n; n = list_after(&a->held, n)) {
        struct held *h = LIST_OF(n, struct held, node);
        pthread_mutex_lock(&h->p.lock);
        for (int i = 0; i < h->p.keep; i++)
            *parts += h->p.ring[i].state == PUBLISH_SHOWN;
        pthread_mutex_unlock(&h->p.lock);
    }
    *bytes = a->bytes;
    pthread_mutex_unlock(&a->lock);
}
