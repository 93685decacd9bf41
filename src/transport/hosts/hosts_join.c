/* Joining a group on several hosts. First all ranks learn which rank is on which host. With a store they learn it from
 * there, and open the wire only if there are several hosts. Without a store (MPI) they learn it over the wire, by mail
 * to rank 0 and back. The ranks of a host then meet in shared memory, and the first of them makes the core and mails
 * the others where it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/hosts/hosts_link.h"

/* ---- mail while joining ---- */

enum kind { NAMES = UINT32_C(0x686f7374), LIST, PLACE }; /* different from the kinds of comm/mail.c */

/* What ranks tell each other about themselves. */
struct record {
    uint64_t host;    /* a hash of the host's name; in a PLACE: where the core is */
    uint64_t machine; /* one machine may play several hosts */
    uint64_t cores;   /* cores that the rank may run on; bit i: a core whose number is i modulo 64 */
    uint64_t net;     /* equal on ranks that share a network namespace; 0: not known */
    uint64_t random;  /* rank 0's is part of the group's name, so that no other group has it */
    struct wire_wish wish;
    char name[HOSTS_NAME - 16]; /* of the host, for messages */
};

#define RECORDS ((WIRE_MAIL - 16) / sizeof(struct record))

struct note {
    uint32_t kind;
    int32_t first, n; /* records of ranks first to first + n - 1 */
    struct record records[RECORDS];
};

static int send_note(struct wire *w, int peer, uint32_t kind, int first, int n, const struct record *records)
{
    struct note note = {.kind = kind, .first = first, .n = n};
    memcpy(note.records, records, (size_t)n * sizeof *records);
    return w->ops->mail(w, peer, &note, offsetof(struct note, records) + (size_t)n * sizeof *records);
}

/* Waits until the mail has left, because the next step may wait without making progress on the wire. */
static void see_off(struct wire *w, int64_t until)
{
    while (!w->ops->flushed(w) && core_now() < until)
        if (!w->ops->progress(w))
            sched_yield();
}

/* A rank tells the records of itself, rank 0 those of all, and the first rank of a host where its core is. */
static bool may_tell(const struct hosts_link *l, int peer, const struct note *note, size_t n)
{
    const struct transport_hosts *h = &l->hosts;
    int size = l->hosts.wire->size, me = l->hosts.wire->rank;
    if (note->n < 0 || note->first < 0 || note->n > (int)RECORDS || note->first > size - note->n ||
        n < offsetof(struct note, records) + (size_t)note->n * sizeof *note->records)
        return false;
    if (note->kind == LIST)
        return peer == 0;
    return note->n == 1 &&
           (note->kind == NAMES ? note->first == peer : note->first == me && peer == h->firsts[h->host[me]]);
}

/* Waits for records of this kind until those of `want` ranks are there; `have` are there already. Other mail is kept
 * for later. */
static int collect(struct hosts_link *l, const struct transport_ask *ask, uint32_t kind, struct record *records,
                   bool *there, int have, int want, int64_t until)
{
    struct wire *w = l->hosts.wire;
    while (have < want) {
        const void *bytes;
        size_t n;
        int peer;
        bool moved = w->ops->progress(w);
        while (w->ops->fetch(w, &peer, &bytes, &n)) {
            struct note note = {0};
            moved = true;
            memcpy(&note, bytes, n < sizeof note ? n : sizeof note);
            if (n < offsetof(struct note, records) || note.kind != kind) {
                int err = hosts_early_keep(&l->hosts, peer, bytes, n);
                if (err)
                    return err;
                continue;
            }
            if (!may_tell(l, peer, &note, n))
                return error_set(WEFT_ETRANSPORT, "rank %d sent malformed mail while the ranks were joining", peer);
            for (int i = 0; i < note.n; i++) {
                have += !there[note.first + i];
                there[note.first + i] = true;
                records[note.first + i] = note.records[i];
            }
        }
        if (!moved && core_now() >= until)
            return WEFT_ETIMEOUT;
        int vain = moved ? 0 : transport_in_vain(ask);
        if (vain)
            return vain;
        if (!moved)
            sched_yield();
    }
    return 0;
}

static int did_not_come(const bool *there, int size, int64_t wait_ns)
{
    char names[256];
    struct text t = text_start(names, sizeof names);
    int n = 0;
    for (int r = 0; r < size; r++)
        if (!there[r])
            text_printf(&t, "%s%d", n++ ? ", " : "", r);
    return error_set(WEFT_ETIMEOUT, "%s %s did not come within %lld ms", n > 1 ? "ranks" : "rank", names,
                     (long long)(wait_ns / 1000000));
}

/* Gives one record of each rank to all ranks. */
static int gather(struct hosts_link *l, const struct transport_ask *ask, struct record mine, struct record *all,
                  int64_t wait_ns)
{
    struct wire *w = l->hosts.wire;
    int64_t until = core_now() + wait_ns;
    bool *there = calloc((size_t)w->size, sizeof *there);
    if (!there)
        return error_nomem();
    all[w->rank] = mine;
    there[w->rank] = w->rank == 0;
    int err = w->rank ? send_note(w, 0, NAMES, w->rank, 1, &mine) : 0;
    if (!err)
        err = w->rank ? collect(l, ask, LIST, all, there, 0, w->size, until)
                      : collect(l, ask, NAMES, all, there, 1, w->size, until);
    if (err == WEFT_ETIMEOUT)
        err = w->rank
                  ? error_set(WEFT_ETIMEOUT, "rank 0 has not told rank %d which rank is on which host within %lld ms",
                              w->rank, (long long)(wait_ns / 1000000))
                  : did_not_come(there, w->size, wait_ns);
    for (int r = 1; r < w->size && !w->rank && !err; r++)
        for (int first = 0; first < w->size && !err; first += (int)RECORDS) {
            int n = w->size - first < (int)RECORDS ? w->size - first : (int)RECORDS;
            err = send_note(w, r, LIST, first, n, all + first);
        }
    see_off(w, until);
    free(there);
    return err;
}

/* ---- joining ---- */

static uint64_t own_cores(void)
{
    cpu_set_t set;
    uint64_t all = 0;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        all |= (uint64_t)(CPU_ISSET(i, &set) != 0) << i % 64;
    return all;
}

/* Numbers hosts in the order of their first ranks. */
static void sort_out(struct transport_hosts *h, const struct record *all, int rank, int size, int *near_size)
{
    uint64_t cores = 0;
    h->nhosts = h->crowd = *near_size = 0;
    for (int r = 0; r < size; r++) {
        int k = 0;
        while (k < h->nhosts && all[h->firsts[k]].host != all[r].host)
            k++;
        if (k == h->nhosts)
            h->firsts[h->nhosts++] = r;
        h->host[r] = k;
        h->near[r] = all[r].host == all[rank].host ? (*near_size)++ : -1;
        if (all[r].machine != all[rank].machine)
            continue;
        h->crowd++;
        cores |= all[r].cores;
    }
    h->cores = __builtin_popcountll(cores);
}

/* Several hosts may have the same name, for example containers: they become "node", "node/2". If every rank is a host
 * of its own, the same name means the same machine. */
static int name_hosts(struct transport_hosts *h, const struct record *all, bool alone)
{
    h->names = calloc((size_t)h->nhosts, sizeof *h->names);
    if (!h->names)
        return error_nomem();
    for (int k = 0; k < h->nhosts; k++) {
        const struct record *mine = &all[h->firsts[k]];
        int same = 1;
        for (int i = 0; i < k && !alone; i++)
            same += !memcmp(all[h->firsts[i]].name, mine->name, sizeof mine->name);
        int n = *mine->name ? snprintf(h->names[k], HOSTS_NAME, "%.*s", (int)sizeof mine->name, mine->name)
                            : snprintf(h->names[k], HOSTS_NAME, "without a name");
        if (same > 1)
            snprintf(h->names[k] + n, HOSTS_NAME - (size_t)n, "/%d", same);
        for (char *c = h->names[k]; *c; c++)
            *c = (unsigned char)*c < ' ' ? '?' : *c;
    }
    return 0;
}

static int join_home(struct hosts_link *l, const struct transport_ask *ask, const struct record *name, int near_size)
{
    struct transport_ask inner = *ask;
    inner.ended = -1; /* other hosts may be ready, and their ranks at their end, before this one is */
    char place[64];
    inner.rank = l->hosts.near[l->base.rank];
    inner.size = near_size;
    inner.place = "";
    if (near_size == 1)
        return transport_self.join(&inner, &l->hosts.home);
    snprintf(place, sizeof place, "host-%016llx-%016llx", (unsigned long long)name->random,
             (unsigned long long)name->host);
    inner.place = place;
    return transport_shm.join(&inner, &l->hosts.home);
}

/* Makes or finds the core of the whole group, in the memory of this host's group. Its bells are those of that group. */
static int make_core(struct hosts_link *l, const struct transport_ask *ask, int64_t until)
{
    struct transport_hosts *h = &l->hosts;
    struct wire *w = h->wire;
    struct record core = {0};
    if (h->near[w->rank] == 0) {
        struct core_group *g = h->home->transport->alloc(h->home, core_bytes(w->size), &core.host);
        if (!g)
            return error_set(WEFT_ENOMEM, "no memory for the control words of %d ranks", w->size);
        core_init_split(g, h->home->group, h->near, w->size);
        for (int r = 0; r < w->size; r++)
            if (h->near[r] < 0)
                atomic_store_explicit(&g->ranks[r].state, CORE_HERE, memory_order_relaxed);
        int err = 0;
        for (int r = 0; r < w->size && !err; r++)
            if (h->near[r] > 0)
                err = send_note(w, r, PLACE, r, 1, &core);
        see_off(w, until);
        l->base.group = g;
        return err;
    }
    int first = h->firsts[h->host[w->rank]];
    struct record *records = calloc((size_t)w->size, sizeof *records);
    bool *there = calloc((size_t)w->size, sizeof *there);
    int err = records && there ? collect(l, ask, PLACE, records, there, 0, 1, until) : error_nomem();
    if (err == WEFT_ETIMEOUT)
        err = error_set(WEFT_ETIMEOUT, "rank %d, the first of this host, has not made the group in time", first);
    if (!err)
        l->base.group = h->home->transport->reach(h->home, 0, records[w->rank].host);
    free(records);
    free(there);
    return err;
}

static int open_wire(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool local)
{
    struct wire_boot boot = {.rank = ask->rank,
                             .size = ask->size,
                             .gather = ask->gather,
                             .arg = ask->gather_arg,
                             .wait_ns = ask->wait_ns,
                             .no_shm = true,
                             .communicator = ask->communicator,
                             .modules = ask->modules,
                             .local = local,
                             .peers = l->hosts.nhosts - 1,
                             .key = ask->key};
    return wire_open(url, &boot, &l->hosts.wire);
}

/* Sets *name, which names this host's part of the group; its net is 0 unless all ranks share it. *url is the wire's; if
 * it is NULL, all ranks choose one here.
 */
static int know_each_other(struct hosts_link *l, const struct transport_ask *ask, bool alone, int64_t until,
                           int *near_size, struct record *name, const char **url)
{
    int rank = l->base.rank, size = l->base.size;
    struct record *all = calloc((size_t)size, sizeof *all);
    int err = all ? hosts_link_tables(&l->hosts, size) : error_nomem();
    struct record mine = {.machine = ask->machine, .cores = own_cores(), .net = process_net()};
    if (!err && !*url)
        err = wire_choose_wish(ask->wire, ask->modules, &mine.wish);
    memcpy(mine.name, ask->host_name, strnlen(ask->host_name, sizeof mine.name));
    mine.host = alone ? (uint64_t)rank : hash_bytes(0, ask->host, strlen(ask->host));
    if (!err && getrandom(&mine.random, sizeof mine.random, 0) != (ssize_t)sizeof mine.random)
        err = error_set(WEFT_EIO, "no random number: %s", strerror(errno));
    if (!err)
        err = ask->gather ? ask->gather(ask->gather_arg, &mine, sizeof mine, all)
                          : gather(l, ask, mine, all, until - core_now());
    if (!err) {
        sort_out(&l->hosts, all, rank, size, near_size);
        *name = (struct record){.host = mine.host, .net = mine.net, .random = all[0].random};
        for (int r = 0; r < size; r++)
            name->net = all[r].net == mine.net ? name->net : 0;
        err = name_hosts(&l->hosts, all, alone);
    }
    if (!err && !*url && l->hosts.nhosts > 1)
        err = wire_choose(&all->wish, sizeof *all, size, url);
    free(all);
    return err;
}

/* With a store, ranks learn which rank is on which host before they open a wire; a group on one host opens none. */
static int join_all(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool alone)
{
    int64_t until = core_now() + ask->wait_ns;
    struct record name;
    int near_size = 0, err = ask->gather ? 0 : open_wire(l, ask, url, false);
    if (err)
        return err;
    l->base.rank = l->hosts.wire ? l->hosts.wire->rank : ask->rank;
    l->base.size = l->hosts.wire ? l->hosts.wire->size : ask->size;
    err = know_each_other(l, ask, alone, until, &near_size, &name, &url);
    if (!err && !l->hosts.wire && l->hosts.nhosts > 1)
        err = open_wire(l, ask, url, name.net != 0);
    if (!err)
        err = join_home(l, ask, &name, near_size);
    if (!err && l->hosts.nhosts > 1)
        err = make_core(l, ask, until);
    return err || l->hosts.nhosts == 1 ? err : hosts_sleep_post(l);
}

int hosts_join(const struct transport_ask *ask, const struct transport *t, const char *url, bool alone,
               struct transport_link **out)
{
    struct hosts_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_nomem();
    if (ask->gather && (ask->size < 1 || ask->rank < 0 || ask->rank >= ask->size)) {
        free(l);
        return error_set(WEFT_EINVAL, "%s: rank %d of %d: set ranks and rank, or start with weft run", t->scheme,
                         ask->rank, ask->size);
    }
    l->events = l->stop = -1;
    l->base = (struct transport_link){.transport = t, .hosts = &l->hosts};
    int err = join_all(l, ask, url, alone);
    if (!err && l->hosts.nhosts > 1) {
        hosts_link_enter(&l->base);
        *out = &l->base;
        return 0;
    }
    if (!err) { /* a group on one host */
        *out = l->hosts.home;
        l->hosts.home = NULL;
    }
    hosts_link_free(l);
    return err;
}
