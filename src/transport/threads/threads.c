/* Ranks that are threads of this process: threads:N/NAME, and self: for a group of one. A place is an address. Groups
 * are found by name in a list. One lock guards it; ranks take it to join, to split, to leave and to allocate, never to
 * run. A group stays as long as a group that was split from it.
 *
 * Prefix of threads.c: transport_self_. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "transport/transport.h"

#define MAX_RANKS 65536
#define MAP_FROM \
    ((size_t)1   \
     << 20) /* blocks of this size or more are mapped: they are zeroed, and cost nothing until they are touched */

struct block {
    struct block *next, **link;
    void *map;   /* the mapping to unmap; NULL: the block is from calloc */
    void *start; /* of the memory from calloc */
    size_t mapped;
    _Alignas(CORE_LINE) unsigned char data[];
};

struct group {
    struct group *next;                    /* in `groups` */
    struct group *parent, *kids, *sibling; /* the group it was split from, and groups split from it */
    char *name;
    int size, present; /* present: links of ranks that have joined and not left */
    bool complete;     /* all ranks have joined */
    pthread_cond_t changed;
    struct block *blocks;
    struct core_group *core;
};

struct link {
    struct transport_link base;
    struct group *group;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct group *groups; /* those that can be found by name */

static struct core_rank *rank_of(struct group *g, int rank)
{
    return &g->core->ranks[rank];
}

static enum core_state state_of(struct group *g, int rank)
{
    return atomic_load_explicit(&rank_of(g, rank)->state, memory_order_seq_cst);
}

/* ---- memory ---- */

/* Maps a block: its head, and then its data, which begin at a huge page. */
static struct block *block_map(size_t bytes)
{
    if (bytes > SIZE_MAX - 3 * TRANSPORT_HUGE)
        return NULL;
    size_t all = bytes + 2 * TRANSPORT_HUGE;
    char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    uintptr_t data = ((uintptr_t)map + sizeof(struct block) + TRANSPORT_HUGE - 1) / TRANSPORT_HUGE * TRANSPORT_HUGE;
    struct block *b = (struct block *)(data - offsetof(struct block, data));
    b->map = map;
    b->mapped = all;
    return b;
}

static struct block *block_new(size_t bytes)
{
    if (bytes >= MAP_FROM)
        return block_map(bytes);
    /* calloc does not touch memory that is zero anyway: of a large block only what is used takes memory. */
    char *start = calloc(1, sizeof(struct block) + bytes + CORE_LINE - 1);
    if (!start)
        return NULL;
    struct block *b = (struct block *)(void *)(start + (CORE_LINE - (uintptr_t)start % CORE_LINE) % CORE_LINE);
    b->start = start;
    return b;
}

static void block_free(struct block *b)
{
    if (b->map)
        munmap(b->map, b->mapped);
    else
        free(b->start);
}

static void block_keep(struct group *g, struct block *b)
{
    b->next = g->blocks;
    b->link = &g->blocks;
    if (b->next)
        b->next->link = &b->next;
    g->blocks = b;
}

static void *threads_alloc(struct transport_link *l, size_t bytes, uint64_t *place)
{
    struct group *g = ((struct link *)l)->group;
    struct block *b = block_new(bytes);
    if (!b)
        return NULL;
    pthread_mutex_lock(&lock);
    block_keep(g, b);
    pthread_mutex_unlock(&lock);
    *place = (uintptr_t)b->data;
    return b->data;
}

static void threads_release(struct transport_link *l, void *memory)
{
    (void)l;
    if (!memory)
        return;
    struct block *b = (struct block *)((unsigned char *)memory - offsetof(struct block, data));
    pthread_mutex_lock(&lock);
    *b->link = b->next;
    if (b->next)
        b->next->link = b->link;
    pthread_mutex_unlock(&lock);
    block_free(b);
}

static bool threads_offer(struct transport_link *l, const void *memory, size_t bytes, uint64_t *place)
{
    (void)l, (void)bytes;
    *place = (uintptr_t)memory;
    return true;
}

static void *threads_reach(struct transport_link *l, int rank, uint64_t place)
{
    (void)l, (void)rank;
    return (void *)(uintptr_t)place;
}

/* The kernel gives it memory when it is touched. */
static bool threads_back(struct transport_link *l, const void *memory, size_t bytes)
{
    (void)l, (void)memory, (void)bytes;
    return true;
}

static enum transport_fate threads_gone(struct transport_link *l, int rank)
{
    return state_of(((struct link *)l)->group, rank) == CORE_LEFT ? TRANSPORT_LEFT : TRANSPORT_HERE;
}

static uint64_t threads_departures(struct transport_link *l)
{
    return atomic_load_explicit(&l->group->departures, memory_order_seq_cst);
}

/* ---- groups ---- */

static void group_free(struct group *g)
{
    while (g->blocks) {
        struct block *b = g->blocks;
        g->blocks = b->next;
        block_free(b);
    }
    pthread_cond_destroy(&g->changed);
    free(g->name);
    free(g);
}

static struct group *group_new(const char *name, int size)
{
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->size = size;
    g->name = strdup(name);
    struct block *core = block_new(core_bytes(size));
    pthread_condattr_t monotonic;
    if (!g->name || !core || pthread_condattr_init(&monotonic))
        goto fail;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int err = pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (err)
        goto fail;
    block_keep(g, core);
    g->core = (struct core_group *)(void *)core->data;
    core_init(g->core, size, false);
    return g;
fail:
    if (core)
        block_free(core);
    free(g->name);
    free(g);
    return NULL;
}

static void group_remove(struct group *g)
{
    for (struct group **at = &groups; *at; at = &(*at)->next) {
        if (*at == g) {
            *at = g->next;
            break;
        }
    }
    for (struct group **at = g->parent ? &g->parent->kids : NULL; at && *at; at = &(*at)->sibling) {
        if (*at == g) {
            *at = g->sibling;
            break;
        }
    }
    group_free(g);
}

/* A name may be used again before all ranks of an earlier, complete group of that name have left it: the ranks that
 * have left form the next group. */
static int group_find(const char *name, int size, int rank, struct group **out)
{
    struct group *forming = NULL;
    for (struct group *g = groups; g; g = g->next) {
        if (strcmp(g->name, name))
            continue;
        if (rank < g->size && state_of(g, rank) == CORE_HERE)
            return error_set(WEFT_EBUSY, "threads:%d/%s: rank %d is open already, " TRANSPORT_OPEN_HERE, g->size, name,
                             rank);
        if (!g->complete)
            forming = g;
    }
    if (forming && forming->size != size)
        return error_set(WEFT_EMISMATCH, "threads:%d/%s: others have opened it with %d ranks", size, name,
                         forming->size);
    if (!forming) {
        forming = group_new(name, size);
        if (!forming)
            return error_nomem();
        forming->next = groups;
        groups = forming;
    }
    *out = forming;
    return 0;
}

static void group_leave(struct group *g, int rank, bool inside)
{
    if (inside && g->complete)
        core_depart(g->core, rank);
    else if (inside)
        atomic_store_explicit(&rank_of(g, rank)->state, CORE_ABSENT, memory_order_seq_cst);
    g->present--;
    while (g && !g->present && !g->kids) {
        struct group *parent = g->parent;
        group_remove(g);
        g = parent;
    }
}

static int missing(struct group *g, int64_t wait_ns)
{
    char names[256];
    struct text t = text_start(names, sizeof names);
    int n = 0;
    for (int r = 0; r < g->size; r++)
        if (state_of(g, r) != CORE_HERE)
            text_printf(&t, "%s%d", n++ ? ", " : "", r);
    return error_set(WEFT_ETIMEOUT, "threads:%d/%s: %s %s did not come within %lld ms", g->size, g->name,
                     n > 1 ? "ranks" : "rank", names, (long long)(wait_ns / 1000000));
}

static int group_wait(struct group *g, int64_t wait_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ns / 1000000000);
    until.tv_nsec += (long)(wait_ns % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!g->complete)
        if (pthread_cond_timedwait(&g->changed, &lock, &until) == ETIMEDOUT && !g->complete)
            return missing(g, wait_ns);
    return 0;
}

static int enter(struct group *g, int rank, int64_t wait_ns, const struct transport *t, struct transport_link **out)
{
    struct link *l = calloc(1, sizeof *l);
    g->present++;
    core_arrive(g->core, rank);
    if (g->present == g->size) {
        g->complete = true;
        pthread_cond_broadcast(&g->changed);
    }
    int err = l ? group_wait(g, wait_ns) : error_nomem();
    if (err) {
        group_leave(g, rank, true);
        free(l);
        return err;
    }
    l->base = (struct transport_link){.transport = t, .group = g->core, .rank = rank, .size = g->size, .inside = true};
    l->group = g;
    *out = &l->base;
    return 0;
}

static int threads_join(const struct transport_ask *ask, struct transport_link **out)
{
    const char *place = ask->place;
    int rank = ask->rank;
    char *name;
    errno = 0;
    long n = strtol(place, &name, 10);
    if (*place < '1' || *place > '9' || errno || (*name && *name != '/'))
        return error_set(WEFT_EINVAL, "threads:%s: expected threads:N/NAME, N ranks", place);
    if (n > MAX_RANKS)
        return error_set(WEFT_EUNSUPPORTED, "threads:%s: at most %d ranks", place, MAX_RANKS);
    if (rank < 0 || rank >= n)
        return error_set(WEFT_EINVAL, "threads:%s: there is no rank %d in it", place, rank);
    if (ask->size && ask->size != n)
        return error_set(WEFT_EINVAL, "threads:%s: it has another number of ranks than %d", place, ask->size);
    struct group *g = NULL;
    pthread_mutex_lock(&lock);
    int err = group_find(*name ? name + 1 : name, (int)n, rank, &g);
    if (!err)
        err = enter(g, rank, ask->wait_ns, &transport_threads, out);
    pthread_mutex_unlock(&lock);
    return err;
}

static int self_join(const struct transport_ask *ask, struct transport_link **out)
{
    if (*ask->place)
        return error_set(WEFT_EINVAL, "self:%s: nothing may follow self:", ask->place);
    if (ask->rank)
        return error_set(WEFT_EINVAL, "self: has only rank 0, not %d", ask->rank);
    if (ask->size > 1)
        return error_set(WEFT_EINVAL, "self: has one rank, not %d", ask->size);
    struct group *g = group_new("", 1);
    if (!g)
        return error_nomem();
    pthread_mutex_lock(&lock);
    int err = enter(g, 0, ask->wait_ns, &transport_self, out);
    pthread_mutex_unlock(&lock);
    return err;
}

static struct group *group_split(struct group *parent, const int *ranks, int size)
{
    struct group *g = group_new("", size);
    if (!g)
        return NULL;
    core_init_split(g->core, parent->core, ranks, size);
    g->complete = true;
    g->parent = parent;
    g->sibling = parent->kids;
    parent->kids = g;
    return g;
}

static struct group *group_kid(struct group *parent, uint64_t place)
{
    struct group *g = parent->kids;
    while (g && (uintptr_t)g != place)
        g = g->sibling;
    return g;
}

static int threads_split(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                         struct transport_link **out)
{
    struct group *parent = ((struct link *)l)->group, *g = NULL;
    struct link *k = calloc(1, sizeof *k);
    int *origin = transport_link_origin(l, ranks, size);
    if (k && origin) {
        pthread_mutex_lock(&lock);
        g = rank ? group_kid(parent, *place) : group_split(parent, ranks, size);
        if (g)
            g->present++;
        pthread_mutex_unlock(&lock);
    }
    if (!g) {
        int err = k && origin && rank ? error_set(WEFT_EPEER, "the group is gone: rank %d has left it", ranks[0])
                                      : error_nomem();
        free(origin);
        free(k);
        return err;
    }
    k->base = (struct transport_link){
        .transport = l->transport, .group = g->core, .rank = rank, .size = size, .origin = origin};
    k->group = g;
    *place = (uintptr_t)g;
    *out = &k->base;
    return 0;
}

static void threads_leave(struct transport_link *l)
{
    pthread_mutex_lock(&lock);
    group_leave(((struct link *)l)->group, l->rank, l->inside);
    pthread_mutex_unlock(&lock);
    free(l->origin);
    free(l);
}

#define THREADS_FUNCTIONS                                                                                          \
    .can = {.loads = true, .sized = true}, .split = threads_split, .leave = threads_leave, .alloc = threads_alloc, \
    .room = threads_alloc, .back = threads_back, .release = threads_release, .offer = threads_offer,               \
    .reach = threads_reach, .gone = threads_gone, .departures = threads_departures

const struct transport transport_self = {.scheme = "self", .form = "self:", .join = self_join, THREADS_FUNCTIONS};
const struct transport transport_threads = {
    .scheme = "threads", .form = "threads:N/NAME", .join = threads_join, THREADS_FUNCTIONS};
