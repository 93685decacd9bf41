/* Which rank has which part of the group's file. A rank takes huge pages from the file's top, which all ranks move with
 * an atomic addition. Parts that a rank frees stay its own, for later use in all its groups. So no other rank writes to
 * its lists, and they are not shared. Small blocks share pages, which keep their memory. Large blocks have pages of
 * their own, and give the memory back by a hole in the file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/shm/shm.h"

#define LARGE ((uint64_t)1 << 20)

bool shm_heap_small(uint64_t bytes)
{
    return bytes < LARGE;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static bool insert(struct shm_extents *e, size_t i, struct shm_extent what)
{
    if (e->n == e->cap) {
        size_t cap = e->cap ? 2 * e->cap : 16;
        struct shm_extent *item = realloc(e->item, cap * sizeof *item);
        if (!item)
            return false;
        e->item = item;
        e->cap = cap;
    }
    memmove(e->item + i + 1, e->item + i, (e->n - i) * sizeof *e->item);
    e->item[i] = what;
    e->n++;
    return true;
}

static void erase(struct shm_extents *e, size_t i)
{
    e->n--;
    memmove(e->item + i, e->item + i + 1, (e->n - i) * sizeof *e->item);
}

/* Adds a free extent, and joins it with its neighbours. Without memory for the list the extent is lost until the group
 * ends. */
static void put(struct shm_extents *e, struct shm_extent what)
{
    size_t i = 0;
    while (i < e->n && e->item[i].at < what.at)
        i++;
    if (i && e->item[i - 1].at + e->item[i - 1].bytes == what.at) {
        e->item[--i].bytes += what.bytes;
    } else if (!insert(e, i, what)) {
        return;
    }
    if (i + 1 < e->n && e->item[i].at + e->item[i].bytes == e->item[i + 1].at) {
        e->item[i].bytes += e->item[i + 1].bytes;
        erase(e, i + 1);
    }
}

/* Takes from the first extent that is large enough; 0: there is none. All extents and sizes of a list are multiples of
 * one unit. */
static uint64_t cut(struct shm_extents *e, uint64_t bytes)
{
    for (size_t i = 0; i < e->n; i++) {
        uint64_t at = e->item[i].at;
        if (e->item[i].bytes < bytes)
            continue;
        e->item[i].at += bytes;
        e->item[i].bytes -= bytes;
        if (!e->item[i].bytes)
            erase(e, i);
        return at;
    }
    return 0;
}

static uint64_t from_top(struct shm_link *l, uint64_t bytes)
{
    uint64_t top = atomic_load_explicit(&l->home->head->top, memory_order_relaxed);
    do {
        if (bytes > l->home->head->total - top)
            return 0;
        /* Relaxed: this only hands out offsets and publishes nothing. */
    } while (!atomic_compare_exchange_weak_explicit(&l->home->head->top, &top, top + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return top;
}

uint64_t shm_heap_take(struct shm_link *l, uint64_t bytes)
{
    if (bytes > l->home->head->total)
        return 0;
    bool small = shm_heap_small(bytes);
    struct shm_extents *list = small ? &l->home->small : &l->home->large;
    uint64_t need = round_up(bytes ? bytes : 1, small ? CORE_LINE : SHM_PAGE);
    uint64_t at = cut(list, need);
    if (!at) {
        uint64_t page = from_top(l, round_up(need, SHM_PAGE));
        if (!page)
            return 0;
        put(list, (struct shm_extent){page, round_up(need, SHM_PAGE)});
        at = cut(list, need);
    }
    if (at && !insert(&l->used, l->used.n, (struct shm_extent){at, need})) {
        put(list, (struct shm_extent){at, need});
        return 0;
    }
    return at;
}

bool shm_heap_back(struct shm_link *l, uint64_t at, uint64_t bytes)
{
    int err;
    if (!bytes)
        return true;
    if (!transport_afford(bytes)) {
        errno = ENOMEM;
        return false;
    }
    do
        err = fallocate(l->home->file, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes) ? errno : 0;
    while (err == EINTR);
    return !err;
}

void shm_heap_give(struct shm_link *l, uint64_t at)
{
    size_t i = l->used.n;
    while (i > 0 && l->used.item[i - 1].at != at)
        i--;
    if (!i)
        return;
    struct shm_extent e = l->used.item[i - 1];
    erase(&l->used, i - 1);
    if (e.bytes % SHM_PAGE) {
        put(&l->home->small, e);
        return;
    }
    while (fallocate(l->home->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)e.at, (off_t)e.bytes) &&
           errno == EINTR) {
    }
    put(&l->home->large, e);
}
