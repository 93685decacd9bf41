/* The transports tcp:, ucx:, mpi: and auto:. With the first three every rank is a host of its own and all goes by the
 * wire; auto: finds out who shares a host with whom. The ranks of a host are a group of shm: (or of self:), in
 * whose memory is the core of the whole group; its bells are theirs. All memory is the host's.
 *
 * Joining: all ranks learn who is on which host, from the store and then open the wire, if there are several; or, where
 * MPI is all there is, over the wire, by mail to rank 0 and back. The ranks of a host meet in shared memory, and the
 * first of them makes the core and mails the others where it is. */
#define _GNU_SOURCE
#include "transport/hosts/hosts_link.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

struct hosts_early {
    struct hosts_early *next;
    int peer;
    size_t n;
    char bytes[WIRE_MAIL];
};

static struct hosts_link *of(struct transport_link *l)
{
    return (struct hosts_link *)l;
}

static struct transport_link *home(const struct transport_link *l)
{
    return l->hosts->home;
}

#define NAP_NS 100000 /* between looks at a wire that cannot be slept on */

/* ---- mail while joining ---- */

enum kind { NAMES = UINT32_C(0x686f7374), LIST, PLACE }; /* none of comm/mail.c's */

/* What ranks tell each other of themselves. */
struct record {
    uint64_t host;    /* its name, hashed; or, in a PLACE, where the core is */
    uint64_t machine; /* several hosts may be played on one */
    uint64_t cores;   /* that it may run on; bit i for those whose number is i modulo 64 */
    uint64_t random;  /* rank 0's tells this group from all others, whatever their names */
    struct wire_wish wish;
    char name[HOSTS_NAME - 16]; /* of the host, for people */
};

#define RECORDS ((WIRE_MAIL - 16) / sizeof(struct record))

struct note {
    uint32_t kind;
    int32_t first, n; /* records of ranks first to first + n - 1 */
    struct record records[RECORDS];
};

static int put_aside(struct transport_hosts *h, int peer, const void *bytes, size_t n)
{
    struct hosts_early **at = &h->early, *e = malloc(sizeof *e);
    if (!e)
        return error_nomem();
    while (*at)
        at = &(*at)->next;
    *e = (struct hosts_early){.peer = peer, .n = n};
    memcpy(e->bytes, bytes, n);
    *at = e;
    return 0;
}

bool hosts_fetch(struct transport_hosts *h, int *peer, const void **bytes, size_t *n)
{
    struct hosts_link *l = (struct hosts_link *)((char *)h - offsetof(struct hosts_link, hosts));
    if (l->reading) {
        struct hosts_early *e = h->early;
        h->early = e->next;
        free(e);
    }
    l->reading = h->early != NULL;
    if (!l->reading)
        return h->wire->ops->fetch(h->wire, peer, bytes, n);
    *peer = h->early->peer;
    *bytes = h->early->bytes;
    *n = h->early->n;
    return true;
}

static int send_note(struct wire *w, int peer, uint32_t kind, int first, int n, const struct record *records)
{
    struct note note = {.kind = kind, .first = first, .n = n};
    memcpy(note.records, records, (size_t)n * sizeof *records);
    return w->ops->mail(w, peer, &note, offsetof(struct note, records) + (size_t)n * sizeof *records);
}

/* What comes next may wait without moving the wire. */
static void see_off(struct wire *w, int64_t until)
{
    while (!w->ops->flushed(w) && core_now() < until)
        if (!w->ops->progress(w))
            sched_yield();
}

/* Waits for records of this kind until `have` of `want` ranks' are there. Other mail is put aside. */
static int collect(struct hosts_link *l, uint32_t kind, struct record *records, bool *there, int have, int want,
                   int64_t until)
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
                int err = put_aside(&l->hosts, peer, bytes, n);
                if (err)
                    return err;
                continue;
            }
            if (note.n < 0 || note.first < 0 || note.n > (int)RECORDS || note.first > w->size - note.n)
                return error_set(WEFT_ETRANSPORT, "rank %d sent mail that makes no sense while joining", peer);
            for (int i = 0; i < note.n; i++) {
                have += !there[note.first + i];
                there[note.first + i] = true;
                records[note.first + i] = note.records[i];
            }
        }
        if (!moved && core_now() >= until)
            return WEFT_ETIMEOUT;
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

/* One record of each rank, to all. */
static int gather(struct hosts_link *l, struct record mine, struct record *all, int64_t wait_ns)
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
        err = w->rank ? collect(l, LIST, all, there, 0, w->size, until)
                      : collect(l, NAMES, all, there, 1, w->size, until);
    if (err == WEFT_ETIMEOUT)
        err = w->rank ? error_set(WEFT_ETIMEOUT, "rank 0 has not told rank %d who is on which host within %lld ms",
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

/* ---- sleep ---- */

/* A rank sleeps on its bell, which the ranks of its host ring; the sentinel rings it when something comes by the wire.
 * It hears of that once each time it is asked to, so that it does not wake while the rank is at work. The rank arms its
 * bell before it asks: a ring after that is not lost (core_signal says why). */
static void *sentinel(void *arg)
{
    struct hosts_link *l = arg;
    for (;;) {
        struct epoll_event e;
        int n = epoll_wait(l->events, &e, 1, -1);
        if (n == 1 && e.data.fd == l->stop)
            return NULL;
        if (n == 1)
            core_ring(l->base.group, l->base.rank);
    }
}

int hosts_post_sentinel(struct hosts_link *l)
{
    struct wire *w = l->hosts.wire;
    struct epoll_event stop = {.events = EPOLLIN}, wire = {.events = EPOLLONESHOT};
    sigset_t all, before;
    if (w->fd < 0)
        return 0;
    l->events = epoll_create1(EPOLL_CLOEXEC);
    l->stop = eventfd(0, EFD_CLOEXEC);
    stop.data.fd = l->stop;
    wire.data.fd = w->fd;
    if (l->events < 0 || l->stop < 0 || epoll_ctl(l->events, EPOLL_CTL_ADD, l->stop, &stop) ||
        epoll_ctl(l->events, EPOLL_CTL_ADD, w->fd, &wire))
        return error_set(WEFT_EIO, "no epoll to wait for the network with: %s", strerror(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&l->sentinel, NULL, sentinel, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->watched = !err;
    return err ? error_set(WEFT_EIO, "no thread to wait for the network with: %s", strerror(err)) : 0;
}

static void dismiss_sentinel(struct hosts_link *l)
{
    uint64_t one = 1;
    if (l->watched && write(l->stop, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(l->sentinel, NULL);
    if (l->events >= 0)
        close(l->events);
    if (l->stop >= 0)
        close(l->stop);
}

bool hosts_listen(struct transport_link *base)
{
    struct wire *w = base->hosts->wire;
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = w->fd};
    if (w->fd < 0)
        return true;
    return w->ops->arm(w) && !epoll_ctl(of(base)->events, EPOLL_CTL_MOD, w->fd, &e);
}

int64_t hosts_nap(const struct transport_link *l, int64_t ns)
{
    return l->hosts->wire->fd < 0 && ns > NAP_NS ? NAP_NS : ns;
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

/* Hosts of one name, as containers may have, are counted: "node", "node/2". Where every rank is a host of its own the
 * same name is the same machine. */
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

int hosts_tables(struct transport_hosts *h, int size)
{
    size_t n = (size_t)size;
    h->near = calloc(n, sizeof *h->near);
    h->host = calloc(n, sizeof *h->host);
    h->firsts = calloc(n, sizeof *h->firsts);
    h->told = calloc(n, sizeof *h->told);
    h->tags_in = calloc(n, sizeof *h->tags_in);
    h->tags_out = calloc(n, sizeof *h->tags_out);
    return h->near && h->host && h->firsts && h->told && h->tags_in && h->tags_out ? 0 : error_nomem();
}

void hosts_link_free(struct hosts_link *l)
{
    struct transport_hosts *h = &l->hosts;
    /* Its memory goes with `home`. Of a split that came to nothing nobody looks at it, and nobody wants what was
     * mailed. */
    bool failed = l->base.inside ? core_failed(l->base.group) : l->base.origin != NULL;
    dismiss_sentinel(l);
    if (h->home)
        h->home->transport->leave(h->home);
    if (h->wire) {
        h->wire->failed = failed;
        h->wire->ops->close(h->wire);
    }
    while (h->early) {
        struct hosts_early *e = h->early;
        h->early = e->next;
        free(e);
    }
    free(h->near);
    free(h->host);
    free(h->firsts);
    free(h->names);
    free(h->told);
    free(h->tags_in);
    free(h->tags_out);
    free(l->base.origin);
    free(l);
}

static int join_home(struct hosts_link *l, const struct transport_ask *ask, const struct record *name, int near_size)
{
    struct transport_ask inner = *ask;
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

/* The core of the whole group, in the memory of this host's; bells are those of the host's own. */
static int make_core(struct hosts_link *l, int64_t until)
{
    struct transport_hosts *h = &l->hosts;
    struct wire *w = h->wire;
    struct record core = {0};
    if (h->near[w->rank] == 0) {
        struct core_group *g = home(&l->base)->transport->alloc(h->home, core_bytes(w->size), &core.host);
        if (!g)
            return error_set(WEFT_ENOMEM, "no memory for the words of %d ranks", w->size);
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
    int err = records && there ? collect(l, PLACE, records, there, 0, 1, until) : error_nomem();
    if (err == WEFT_ETIMEOUT)
        err = error_set(WEFT_ETIMEOUT, "rank %d, the first of this host, has not made the group in time", first);
    if (!err)
        l->base.group = h->home->transport->reach(h->home, 0, records[w->rank].host);
    free(records);
    free(there);
    return err;
}

static int open_wire(struct hosts_link *l, const struct transport_ask *ask, const char *url)
{
    struct wire_boot boot = {.rank = ask->rank,
                             .size = ask->size,
                             .gather = ask->gather,
                             .arg = ask->gather_arg,
                             .wait_ns = ask->wait_ns,
                             .no_shm = true,
                             .communicator = ask->communicator,
                             .modules = ask->modules};
    return wire_open(url, &boot, &l->hosts.wire);
}

/* *name: of this host, in this group. *url: of the wire; NULL: all ranks agree on it here. */
static int know_each_other(struct hosts_link *l, const struct transport_ask *ask, bool alone, int64_t until,
                           int *near_size, struct record *name, const char **url)
{
    int rank = l->base.rank, size = l->base.size;
    struct record *all = calloc((size_t)size, sizeof *all);
    int err = all ? hosts_tables(&l->hosts, size) : error_nomem();
    struct record mine = {.machine = ask->machine, .cores = own_cores()};
    if (!err && !*url)
        err = wire_wish(ask->wire, ask->modules, &mine.wish);
    memcpy(mine.name, ask->host_name, strnlen(ask->host_name, sizeof mine.name));
    mine.host = alone ? (uint64_t)rank : hash_bytes(0, ask->host, strlen(ask->host));
    if (!err && getrandom(&mine.random, sizeof mine.random, 0) != (ssize_t)sizeof mine.random)
        err = error_set(WEFT_EIO, "no random number: %s", strerror(errno));
    if (!err)
        err = ask->gather ? ask->gather(ask->gather_arg, &mine, sizeof mine, all)
                          : gather(l, mine, all, until - core_now());
    if (!err) {
        sort_out(&l->hosts, all, rank, size, near_size);
        *name = (struct record){.host = mine.host, .random = all[0].random};
        err = name_hosts(&l->hosts, all, alone);
    }
    if (!err && !*url && l->hosts.nhosts > 1)
        err = wire_choose(&all->wish, sizeof *all, size, url);
    free(all);
    return err;
}

/* Where there is a store, ranks know who is on which host before there is a wire, which one host does not need. */
static int join_all(struct hosts_link *l, const struct transport_ask *ask, const char *url, bool alone)
{
    int64_t until = core_now() + ask->wait_ns;
    struct record name;
    int near_size = 0, err = ask->gather ? 0 : open_wire(l, ask, url);
    if (err)
        return err;
    l->base.rank = l->hosts.wire ? l->hosts.wire->rank : ask->rank;
    l->base.size = l->hosts.wire ? l->hosts.wire->size : ask->size;
    err = know_each_other(l, ask, alone, until, &near_size, &name, &url);
    if (!err && !l->hosts.wire && l->hosts.nhosts > 1)
        err = open_wire(l, ask, url);
    if (!err)
        err = join_home(l, ask, &name, near_size);
    if (!err && l->hosts.nhosts > 1)
        err = make_core(l, until);
    return err || l->hosts.nhosts == 1 ? err : hosts_post_sentinel(l);
}

static int join(const struct transport_ask *ask, const struct transport *t, const char *url, bool alone,
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
        transport_enter(&l->base);
        *out = &l->base;
        return 0;
    }
    if (!err) { /* a group of one host */
        *out = l->hosts.home;
        l->hosts.home = NULL;
    }
    hosts_link_free(l);
    return err;
}

static int tcp_join(const struct transport_ask *ask, struct transport_link **out)
{
    return join(ask, &transport_tcp, "tcp:", true, out);
}

static int ucx_join(const struct transport_ask *ask, struct transport_link **out)
{
    return join(ask, &transport_ucx, "ucx:", true, out);
}

static int mpi_join(const struct transport_ask *ask, struct transport_link **out)
{
    char url[64];
    snprintf(url, sizeof url, "mpi:%s", ask->place);
    return join(ask, &transport_mpi, url, true, out);
}

static int auto_join(const struct transport_ask *ask, struct transport_link **out)
{
    if (ask->gather)
        return join(ask, &transport_auto, NULL, false, out);
    int err = join(ask, &transport_auto, "mpi:", false, out);
    char why[512];
    snprintf(why, sizeof why, "%s", err ? weft_errmsg() : "");
    return err ? error_set(err, "auto: without a place to meet (WEFT_AT) by MPI: %s", why) : 0;
}

static void hosts_leave(struct transport_link *l)
{
    if (l->inside) {
        atomic_store_explicit(&l->group->ranks[l->rank].state, CORE_LEFT, memory_order_seq_cst);
        core_ring_all(l->group);
    }
    hosts_link_free(of(l));
}

/* ---- memory: the host's ---- */

static void *hosts_alloc(struct transport_link *l, size_t bytes, uint64_t *place)
{
    return home(l)->transport->alloc(home(l), bytes, place);
}

static void *hosts_room(struct transport_link *l, size_t bytes, uint64_t *place)
{
    return home(l)->transport->room(home(l), bytes, place);
}

static bool hosts_back(struct transport_link *l, const void *memory, size_t bytes)
{
    return home(l)->transport->back(home(l), memory, bytes);
}

static void hosts_release(struct transport_link *l, void *memory)
{
    home(l)->transport->release(home(l), memory);
}

static bool hosts_offer(struct transport_link *l, const void *memory, size_t bytes, uint64_t *place)
{
    return home(l)->transport->offer(home(l), memory, bytes, place);
}

static void *hosts_reach(struct transport_link *l, int rank, uint64_t place)
{
    return home(l)->transport->reach(home(l), l->hosts->near[rank], place);
}

static enum transport_fate hosts_gone(struct transport_link *l, int rank)
{
    if (atomic_load_explicit(&l->group->ranks[rank].state, memory_order_seq_cst) == CORE_LEFT)
        return TRANSPORT_LEFT;
    if (!transport_far(l, rank))
        return home(l)->transport->gone(home(l), l->hosts->near[rank]);
    return l->hosts->wire->ops->gone(l->hosts->wire, rank);
}

#define HOSTS_FUNCTIONS                                                                                       \
    .split = hosts_split, .leave = hosts_leave, .alloc = hosts_alloc, .room = hosts_room, .back = hosts_back, \
    .release = hosts_release, .offer = hosts_offer, .reach = hosts_reach, .gone = hosts_gone

const struct transport transport_tcp = {.scheme = "tcp",
                                        .form = "tcp:NAME",
                                        .can = {.loads = true, .deaths = true, .wide = true, .meets = true},
                                        .join = tcp_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_ucx = {.scheme = "ucx",
                                        .form = "ucx:NAME",
                                        .can = {.loads = true, .deaths = true, .wide = true, .meets = true},
                                        .join = ucx_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_mpi = {.scheme = "mpi",
                                        .form = "mpi:",
                                        .can = {.loads = true, .sized = true, .wide = true},
                                        .join = mpi_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_auto = {.scheme = "auto",
                                         .form = "auto:NAME",
                                         .can = {.loads = true, .deaths = true, .wide = true},
                                         .join = auto_join,
                                         HOSTS_FUNCTIONS};
