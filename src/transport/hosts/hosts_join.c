/* Joining a group on several hosts. First all ranks learn which rank is on which host. With a store they learn it from
 * there: one rank of a host sums up what all ranks have told, and the others share that (base/roster.h). They open the
 * wire only if there are several hosts. Without a store (MPI) they learn it over the wire, by mail to rank 0 and back.
 * The ranks of a host then meet in shared memory. The first of them makes the core, and tells the others there where it
 * is. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/hosts/hosts_link.h"

/* ---- mail while joining ---- */

enum kind { NAMES = UINT32_C(0x686f7374), LIST }; /* different from the kinds of comm/mail.c */

/* What ranks tell each other about themselves. */
struct record {
    uint64_t host;    /* a hash of the host's name */
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

/* A rank tells the record of itself, rank 0 those of all. */
static bool may_tell(const struct hosts_link *l, int peer, const struct note *note, size_t n)
{
    int size = l->hosts.wire->size;
    if (note->n < 0 || note->first < 0 || note->n > (int)RECORDS || note->first > size - note->n ||
        n < offsetof(struct note, records) + (size_t)note->n * sizeof *note->records)
        return false;
    if (note->kind == LIST)
        return peer == 0;
    return note->n == 1 && note->first == peer;
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

/* What all ranks make of their records. Behind it are, for each rank: its host, its number among the ranks of its host,
 * the first rank of the host of that number, and how many ranks that host has; then the names of the hosts. */
struct facts {
    uint64_t random;  /* rank 0's */
    uint64_t machine; /* that of the rank that has summed up, and how many ranks and cores are there */
    int32_t crowd, cores;
    int32_t nhosts;
    int32_t one_net; /* all ranks share a network namespace */
    char url[16];    /* the wire, if the ranks choose it */
    int32_t tables[];
};

struct summing {
    int size;
    uint64_t machine;
    bool alone;  /* every rank is a host of its own */
    bool choose; /* the wire */
};

static size_t facts_bytes(int size)
{
    return sizeof(struct facts) + (size_t)size * (4 * sizeof(int32_t) + HOSTS_NAME);
}

static char (*names_in(const struct facts *f, int size))[HOSTS_NAME]
{
    return (char(*)[HOSTS_NAME])(uintptr_t)(f->tables + 4 * (size_t)size);
}

static void count_crowd(const struct record *all, int size, uint64_t machine, int32_t *crowd, int32_t *cores)
{
    uint64_t set = 0;
    *crowd = 0;
    for (int r = 0; r < size; r++)
        if (all[r].machine == machine) {
            ++*crowd;
            set |= all[r].cores;
        }
    *cores = __builtin_popcountll(set);
}

struct rank_on {
    uint64_t host;
    int rank;
};

static int by_host(const void *a, const void *b)
{
    const struct rank_on *x = a, *y = b;
    return x->host != y->host ? (x->host > y->host) - (x->host < y->host) : x->rank - y->rank;
}

/* Numbers hosts in the order of their first ranks. */
static int sort_out(struct facts *f, const struct record *all, int size)
{
    int32_t *host = f->tables, *index = host + size, *firsts = index + size, *counts = firsts + size;
    struct rank_on *on = malloc((size_t)size * sizeof *on);
    if (!on)
        return error_nomem();
    for (int r = 0; r < size; r++)
        on[r] = (struct rank_on){all[r].host, r};
    qsort(on, (size_t)size, sizeof *on, by_host);
    for (int i = 0; i < size; i++) { /* first, host[r] is the first rank of r's host */
        bool same = i && on[i].host == on[i - 1].host;
        host[on[i].rank] = same ? host[on[i - 1].rank] : on[i].rank;
        index[on[i].rank] = same ? index[on[i - 1].rank] + 1 : 0;
    }
    free(on);
    f->nhosts = 0;
    for (int r = 0; r < size; r++) {
        if (host[r] == r) {
            counts[f->nhosts] = 0;
            firsts[f->nhosts] = r;
            host[r] = f->nhosts++;
        } else {
            host[r] = host[host[r]]; /* the first rank comes before it, and has its number already */
        }
        counts[host[r]]++;
    }
    return 0;
}

/* Several hosts may have the same name, for example containers: they become "node", "node/2". If every rank is a host
 * of its own, the same name means the same machine. */
static void name_hosts(const struct facts *f, const struct record *all, int size, bool alone)
{
    const int32_t *firsts = f->tables + 2 * (size_t)size;
    char(*names)[HOSTS_NAME] = names_in(f, size);
    for (int k = 0; k < f->nhosts; k++) {
        const struct record *mine = &all[firsts[k]];
        int same = 1;
        for (int i = 0; i < k && !alone; i++)
            same += !memcmp(all[firsts[i]].name, mine->name, sizeof mine->name);
        int n = *mine->name ? snprintf(names[k], HOSTS_NAME, "%.*s", (int)sizeof mine->name, mine->name)
                            : snprintf(names[k], HOSTS_NAME, "without a name");
        if (same > 1)
            snprintf(names[k] + n, HOSTS_NAME - (size_t)n, "/%d", same);
        for (char *c = names[k]; *c; c++)
            *c = (char)((unsigned char)*c < ' ' ? '?' : *c);
    }
}

static int sum_up(void *arg, void *told, void *more)
{
    const struct summing *s = arg;
    const struct record *all = told;
    struct facts *f = more;
    f->random = all[0].random;
    f->machine = s->machine;
    f->one_net = all[0].net != 0;
    for (int r = 1; r < s->size; r++)
        f->one_net &= all[r].net == all[0].net;
    count_crowd(all, s->size, s->machine, &f->crowd, &f->cores);
    int err = sort_out(f, all, s->size);
    if (err)
        return err;
    name_hosts(f, all, s->size, s->alone);
    const char *url = "";
    if (s->choose && f->nhosts > 1)
        err = wire_choose(&all->wish, sizeof *all, s->size, &url);
    snprintf(f->url, sizeof f->url, "%s", url);
    return err;
}

/* Takes the tables of the roster. */
static void adopt(struct hosts_link *l, uint64_t machine)
{
    struct transport_hosts *h = &l->hosts;
    const struct facts *f = l->roster.more;
    int size = l->base.size;
    int32_t crowd = f->crowd, cores = f->cores;
    if (machine != f->machine)
        count_crowd(l->roster.all, size, machine, &crowd, &cores);
    h->crowd = crowd;
    h->cores = cores;
    h->nhosts = f->nhosts;
    h->host = f->tables;
    h->index = h->host + size;
    h->firsts = h->index + size;
    h->names = (const char(*)[HOSTS_NAME])names_in(f, size);
    h->here = h->host[l->base.rank];
}

static int join_home(struct hosts_link *l, const struct transport_ask *ask, uint64_t host)
{
    const struct facts *f = l->roster.more;
    struct transport_ask inner = *ask;
    inner.ended = -1; /* other hosts may be ready, and their ranks at their end, before this one is */
    char place[64];
    inner.rank = l->hosts.index[l->base.rank];
    inner.size = f->tables[3 * (size_t)l->base.size + (size_t)l->hosts.here];
    inner.place = "";
    if (inner.size == 1)
        return transport_self.join(&inner, &l->hosts.home);
    snprintf(place, sizeof place, "host-%016llx-%016llx", (unsigned long long)f->random, (unsigned long long)host);
    inner.place = place;
    return transport_shm.join(&inner, &l->hosts.home);
}

static int make_core(struct hosts_link *l)
{
    struct transport_hosts *h = &l->hosts;
    int size = l->base.size, *near = hosts_link_near(h, size);
    uint64_t place;
    struct core_group *g = near ? h->home->transport->alloc(h->home, core_bytes(size), &place) : NULL;
    if (!g) {
        free(near);
        return error_set(WEFT_ENOMEM, "no memory for the control words of %d ranks", size);
    }
    core_init_split(g, h->home->group, near, size);
    free(near);
    atomic_store_explicit(&h->home->group->outer, place + 1, memory_order_release);
    l->base.group = g;
    return 0;
}

/* Makes or finds the core of the whole group, in the memory of this host's group. Its bells are those of that group. */
static int find_core(struct hosts_link *l, const struct transport_ask *ask, int64_t until)
{
    struct transport_hosts *h = &l->hosts;
    int first = h->firsts[h->here];
    if (l->base.rank == first)
        return make_core(l);
    for (int64_t pause = 20000;; pause = pause < 2000000 ? 2 * pause : pause) {
        uint64_t place = atomic_load_explicit(&h->home->group->outer, memory_order_acquire);
        if (place) {
            l->base.group = h->home->transport->reach(h->home, 0, place - 1);
            return 0;
        }
        int vain = transport_in_vain(ask);
        if (vain)
            return vain;
        if (h->home->transport->gone(h->home, 0) != TRANSPORT_HERE)
            return error_set(WEFT_EPEER, "rank %d, the first of this host, has ended before it had made the group",
                             first);
        if (core_now() >= until)
            return error_set(WEFT_ETIMEOUT, "rank %d, the first of this host, has not made the group in time", first);
        nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
    }
}

static int open_wire(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool local)
{
    struct wire_boot boot = {.rank = ask->rank,
                             .size = ask->size,
                             .roster = ask->roster,
                             .arg = ask->roster_arg,
                             .wait_ns = ask->wait_ns,
                             .no_shm = true,
                             .communicator = ask->communicator,
                             .modules = ask->modules,
                             .local = local,
                             .peers = l->hosts.nhosts - 1,
                             .key = ask->key};
    return wire_open(url, &boot, &l->hosts.wire);
}

/* Without a store: in memory of this process. */
static int gather_alone(struct hosts_link *l, const struct transport_ask *ask, const struct roster_ask *tell,
                        int64_t wait_ns)
{
    int size = l->base.size;
    struct record mine, *all = calloc(1, roster_size(tell, size));
    memcpy(&mine, tell->mine, sizeof mine);
    int err = all ? gather(l, ask, mine, all, wait_ns) : error_nomem();
    if (!err)
        err = roster_make(tell, size, all, &l->roster);
    if (err)
        free(all);
    return err;
}

/* Sets *host, a hash of this host's name. Without a URL all ranks choose a wire here. */
static int know_each_other(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool alone,
                           int64_t until, uint64_t *host)
{
    int rank = l->base.rank, size = l->base.size, err = hosts_link_tags(&l->hosts, size);
    struct record mine = {.machine = ask->machine, .cores = own_cores(), .net = process_net()};
    struct summing sum = {.size = size, .machine = ask->machine, .alone = alone, .choose = !url};
    if (!err && !url)
        err = wire_choose_wish(ask->wire, ask->modules, &mine.wish);
    memcpy(mine.name, ask->host_name, strnlen(ask->host_name, sizeof mine.name));
    *host = mine.host = alone ? (uint64_t)rank : hash_bytes(0, ask->host, strlen(ask->host));
    if (!err && getrandom(&mine.random, sizeof mine.random, 0) != (ssize_t)sizeof mine.random)
        err = error_set(WEFT_EIO, "no random number: %s", strerror(errno));
    const struct roster_ask tell = {
        .mine = &mine, .bytes = sizeof mine, .sum_up = sum_up, .arg = &sum, .more = facts_bytes(size)};
    if (!err)
        err = ask->roster ? ask->roster(ask->roster_arg, &tell, &l->roster)
                          : gather_alone(l, ask, &tell, until - core_now());
    if (!err)
        adopt(l, ask->machine);
    return err;
}

/* With a store, ranks learn which rank is on which host before they open a wire; a group on one host opens none. */
static int join_all(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool alone)
{
    int64_t until = core_now() + ask->wait_ns;
    uint64_t host;
    int err = ask->roster ? 0 : open_wire(l, ask, url, false);
    if (err)
        return err;
    l->base.rank = l->hosts.wire ? l->hosts.wire->rank : ask->rank;
    l->base.size = l->hosts.wire ? l->hosts.wire->size : ask->size;
    err = know_each_other(l, ask, url, alone, until, &host);
    const struct facts *f = l->roster.more;
    if (!err && !l->hosts.wire && l->hosts.nhosts > 1)
        err = open_wire(l, ask, url ? url : f->url, f->one_net);
    if (!err)
        err = join_home(l, ask, host);
    if (!err && l->hosts.nhosts > 1)
        err = find_core(l, ask, until);
    return err || l->hosts.nhosts == 1 ? err : hosts_sleep_post(l);
}

int hosts_join(const struct transport_ask *ask, const struct transport *t, const char *url, bool alone,
               struct transport_link **out)
{
    struct hosts_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_nomem();
    if (ask->roster && (ask->size < 1 || ask->rank < 0 || ask->rank >= ask->size)) {
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
