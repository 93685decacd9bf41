/* Random histories: clients of one directory change keys by transactions, deletions and leases, and a model that is
 * written in the simplest way does the same. What is read, what is refused and what watches tell must be the same. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "directories.h"
#include "support/random.h"
#include "support/share.h"
#include "weft.h"

enum { NAMES = 9, CLIENTS = 3, LEASES = 4, WATCHES = 3, EVENTS = 4000, STEPS = 60 };
/* Some are prefixes of others. */
static const char *const names[NAMES] = {"a", "a/", "a/b", "a/b/c", "ab", "b", "b/1", "b/10", "z"};
static const char *const prefixes[] = {"", "a", "a/", "a/b", "b/1", "z", "nothing"};
#define PREFIXES (sizeof prefixes / sizeof *prefixes)

struct model_key {
    bool here;
    int64_t made, revision, lease;
    size_t bytes;
    unsigned char value[64];
};

struct model {
    struct model_key keys[NAMES];
    struct model_event {
        int name;
        bool deleted;
        struct model_key key;
    } events[EVENTS];
    size_t nevents;
    int64_t revision;
    int64_t leases[LEASES]; /* 0: none */
};

struct history {
    struct random r;
    struct directory *clients[CLIENTS];
    struct model m;
    struct watching {
        struct directory_watch *w;
        const char *prefix;
        size_t told; /* events of the model that were compared */
    } watches[WATCHES];
};

/* ---- the model ---- */

static void model_log(struct model *m, int name, bool deleted)
{
    assert_true(m->nevents < EVENTS);
    m->events[m->nevents++] = (struct model_event){name, deleted, m->keys[name]};
}

static void model_put(struct model *m, int name, const struct directory_change *c, int64_t revision)
{
    struct model_key *k = &m->keys[name];
    k->made = k->here ? k->made : revision;
    k->here = true;
    k->revision = revision;
    k->lease = c->lease;
    k->bytes = c->bytes;
    memcpy(k->value, c->value, c->bytes);
    model_log(m, name, false);
}

static void model_delete(struct model *m, int name, int64_t revision)
{
    m->keys[name] = (struct model_key){.revision = revision};
    model_log(m, name, true);
}

static bool model_lease(const struct model *m, int64_t lease)
{
    for (int i = 0; i < LEASES; i++)
        if (m->leases[i] == lease)
            return true;
    return false;
}

/* ---- comparing ---- */

static void compare_item(const struct directory_item *got, int name, const struct model_key *want, bool deleted)
{
    assert_string_equal(got->key, names[name]);
    assert_int_equal(got->deleted, deleted);
    assert_int_equal(got->revision, want->revision);
    if (deleted)
        return;
    assert_int_equal(got->made, want->made);
    assert_int_equal(got->lease, want->lease);
    assert_int_equal(got->bytes, want->bytes);
    assert_memory_equal(got->value, want->value, want->bytes);
}

static void compare_all(struct history *h, struct directory *d, const char *prefix)
{
    struct directory_items got;
    size_t n = 0;
    if (directory_get(d, prefix, LONG, &got))
        fail_msg("%s", weft_errmsg());
    for (int i = 0; i < NAMES; i++) /* the names are in the order of their bytes */
        if (h->m.keys[i].here && !strncmp(names[i], prefix, strlen(prefix))) {
            assert_true(n < got.n);
            compare_item(&got.items[n++], i, &h->m.keys[i], false);
        }
    assert_int_equal(got.n, n);
    assert_true(got.revision >= h->m.revision);
    directory_items_free(&got);
}

static bool concerns(const struct watching *w, const struct model_event *e)
{
    return !strncmp(names[e->name], w->prefix, strlen(w->prefix));
}

/* Takes all that the watch has to tell, and compares it with the events. The order within a revision is free. */
static void compare_watch(struct history *h, struct watching *w)
{
    const struct model *m = &h->m;
    while (w->told < m->nevents) {
        struct directory_items got;
        bool seen[EVENTS] = {false};
        size_t last = m->nevents, first = w->told;
        while (first < m->nevents && !concerns(w, &m->events[first]))
            first++;
        w->told = first;
        if (first == m->nevents)
            return;
        if (directory_next(w->w, LONG, &got))
            fail_msg("%s", weft_errmsg());
        assert_true(!got.lost && got.n > 0);
        for (size_t i = 0; i < got.n; i++) {
            size_t e = w->told;
            assert_true(!i || got.items[i].revision >= got.items[i - 1].revision);
            while (e < last && (seen[e] || m->events[e].key.revision != got.items[i].revision ||
                                strcmp(names[m->events[e].name], got.items[i].key)))
                e++;
            if (e == last)
                fail_msg("the watch of '%s' tells '%s' at %lld, which did not happen", w->prefix, got.items[i].key,
                         (long long)got.items[i].revision);
            compare_item(&got.items[i], m->events[e].name, &m->events[e].key, m->events[e].deleted);
            seen[e] = true;
        }
        /* All of the revisions that it tells of, and none left out between. */
        while (w->told < m->nevents && m->events[w->told].key.revision <= got.revision) {
            assert_int_equal(seen[w->told], concerns(w, &m->events[w->told]));
            w->told++;
        }
        directory_items_free(&got);
    }
}

/* ---- steps ---- */

static int64_t any(struct history *h, int64_t n)
{
    return random_in(&h->r, 0, n - 1);
}

static void transact(struct history *h)
{
    struct model *m = &h->m;
    struct directory_compare compares[4];
    struct directory_change changes[4];
    int changed[4];
    char values[4][64];
    size_t ncompares = (size_t)any(h, 4), nchanges = (size_t)any(h, 5);
    bool holds = true, lease_ended = false, some = false;
    for (size_t i = 0; i < ncompares; i++) {
        const int name = (int)any(h, NAMES);
        int64_t is = m->keys[name].here ? m->keys[name].revision : 0;
        int64_t say = random_once_in(&h->r, 6) ? (is ? is - 1 : m->revision) : is;
        compares[i] = (struct directory_compare){names[name], say};
        holds &= say == is;
    }
    for (size_t i = 0, k; i < nchanges; i++) {
        do {
            changed[i] = (int)any(h, NAMES);
            for (k = 0; k < i && changed[k] != changed[i]; k++) {
            }
        } while (k < i);
        bool erase = random_once_in(&h->r, 4);
        int64_t lease = !erase && random_once_in(&h->r, 3) ? m->leases[any(h, LEASES)] : 0;
        if (lease && random_once_in(&h->r, 12))
            lease = 12345; /* no such lease */
        snprintf(values[i], sizeof values[i], "%llx", (unsigned long long)random_next(&h->r));
        changes[i] = (struct directory_change){.key = names[changed[i]],
                                               .value = values[i],
                                               .bytes = erase ? 0 : (size_t)any(h, 16),
                                               .lease = lease,
                                               .erase = erase};
        lease_ended |= lease && !model_lease(m, lease);
        some |= !erase || m->keys[changed[i]].here;
    }
    struct directory_transaction t = {compares, ncompares, changes, nchanges};
    struct directory_outcome o;
    int err = directory_transact(h->clients[any(h, CLIENTS)], &t, LONG, &o);
    if (holds && lease_ended) {
        assert_int_equal(err, WEFT_EPEER);
        return;
    }
    if (err)
        fail_msg("%s", weft_errmsg());
    assert_int_equal(o.done, holds);
    if (!holds || !some) {
        assert_true(o.revision >= m->revision);
        return;
    }
    assert_true(o.revision > m->revision);
    m->revision = o.revision;
    for (size_t i = 0; i < nchanges; i++)
        if (!changes[i].erase)
            model_put(m, changed[i], &changes[i], o.revision);
        else if (m->keys[changed[i]].here)
            model_delete(m, changed[i], o.revision);
}

static void lease(struct history *h)
{
    struct model *m = &h->m;
    int i = (int)any(h, LEASES);
    if (!m->leases[i]) {
        if (directory_grant(h->clients[any(h, CLIENTS)], directories_ttl(600 * SECOND), LONG, &m->leases[i]))
            fail_msg("%s", weft_errmsg());
        return;
    }
    if (random_once_in(&h->r, 2)) {
        if (directory_renew(h->clients[any(h, CLIENTS)], m->leases[i], LONG))
            fail_msg("%s", weft_errmsg());
        return;
    }
    if (directory_revoke(h->clients[any(h, CLIENTS)], m->leases[i], LONG))
        fail_msg("%s", weft_errmsg());
    struct directory_items got;
    bool some = false;
    for (int k = 0; k < NAMES; k++)
        some |= m->keys[k].here && m->keys[k].lease == m->leases[i];
    if (directory_get(h->clients[0], "nothing", LONG, &got))
        fail_msg("%s", weft_errmsg());
    assert_true(some ? got.revision > m->revision : got.revision >= m->revision);
    if (some)
        m->revision = got.revision; /* no other client changes anything meanwhile */
    for (int k = 0; k < NAMES && some; k++)
        if (m->keys[k].here && m->keys[k].lease == m->leases[i])
            model_delete(m, k, m->revision);
    directory_items_free(&got);
    m->leases[i] = 0;
}

static void watch_anew(struct history *h, struct watching *w, const char *prefix)
{
    directory_unwatch(w->w);
    w->prefix = prefix;
    /* From anywhere in the past. */
    w->told = h->m.nevents ? (size_t)any(h, (int64_t)h->m.nevents) : 0;
    while (w->told && h->m.events[w->told].key.revision == h->m.events[w->told - 1].key.revision)
        w->told--;
    int64_t after = w->told < h->m.nevents ? h->m.events[w->told].key.revision - 1 : h->m.revision;
    if (directory_watch(h->clients[any(h, CLIENTS)], prefix, after, &w->w))
        fail_msg("%s", weft_errmsg());
}

static void run(int64_t seed)
{
    static struct history h;
    char space[32];
    memset(&h, 0, sizeof h);
    h.r = random_of(19, seed);
    snprintf(space, sizeof space, "random%lld", (long long)seed);
    for (int i = 0; i < CLIENTS; i++)
        h.clients[i] = directories_open(space);
    struct directory_items got;
    if (directory_get(h.clients[0], "", LONG, &got))
        fail_msg("%s", weft_errmsg());
    h.m.revision = got.revision;
    directory_items_free(&got);
    for (int i = 0; i < WATCHES; i++)
        watch_anew(&h, &h.watches[i], prefixes[any(&h, PREFIXES)]);
    for (int i = 0; i < STEPS; i++) {
        switch (any(&h, 8)) {
        case 0: lease(&h); break;
        case 1: compare_all(&h, h.clients[any(&h, CLIENTS)], prefixes[any(&h, PREFIXES)]); break;
        case 2: compare_watch(&h, &h.watches[any(&h, WATCHES)]); break;
        case 3:
            if (random_once_in(&h.r, 3))
                watch_anew(&h, &h.watches[any(&h, WATCHES)], prefixes[any(&h, PREFIXES)]);
            break;
        default: transact(&h);
        }
    }
    compare_all(&h, h.clients[0], "");
    for (int i = 0; i < WATCHES; i++) {
        compare_watch(&h, &h.watches[i]);
        assert_int_equal(directory_next(h.watches[i].w, 0, &got), WEFT_ETIMEOUT);
        directory_unwatch(h.watches[i].w);
    }
    for (int i = 0; i < CLIENTS; i++)
        directory_close(h.clients[i]);
}

static void histories(void **state)
{
    (void)state;
    for (int64_t i = 1; suite_seed(&i, 1, test_rounds((int)test_share(150, 5000))); i++)
        run(i);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(histories)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests));
}
