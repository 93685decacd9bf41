/* Host memory that streams reach. CUDA registers a page once in a process, and rank threads pin the same pages or pages
 * that overlap. So pages are registered in regions, which count the pins that use them: a pin registers those of its
 * pages that no region has, and a region is given back with its last pin. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda/cuda_device.h"
#include "weft.h"

struct region {
    struct region *next;
    uintptr_t from, to;
    int pins;
    bool own; /* registered here; otherwise the program had done it */
};

struct cuda_pin {
    struct cuda_pin *next;
    void *host;
    uintptr_t from, to;
    uint64_t at;
    int count;
};

/* The registrations are the process's, not the device's: they are portable between contexts. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions; /* sorted, disjoint */

static void region_drop(struct cuda_device *d, uintptr_t from, uintptr_t to)
{
    struct region **at = &regions;
    while (*at) {
        struct region *r = *at;
        if (r->from >= from && r->to <= to && --r->pins == 0) {
            *at = r->next;
            if (r->own)
                d->cu->cuMemHostUnregister((void *)r->from);
            free(r);
        } else {
            at = &r->next;
        }
    }
}

static int region_new(struct cuda_device *d, struct region **at, uintptr_t from, uintptr_t to, unsigned flags)
{
    struct region *r = malloc(sizeof *r);
    if (!r)
        return d->error(WEFT_ENOMEM, "out of memory");
    CUresult result = d->cu->cuMemHostRegister((void *)from, to - from, flags);
    if (result && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        free(r);
        return cuda_check(d, result, "registering host memory");
    }
    *r = (struct region){.next = *at, .from = from, .to = to, .own = !result};
    *at = r;
    return 0;
}

/* A pin uses regions as wholes: the range grows to the ends of those that it touches. */
static int region_take(struct cuda_device *d, uintptr_t *from, uintptr_t *to, unsigned flags)
{
    for (struct region *r = regions; r; r = r->next)
        if (r->from < *to && *from < r->to) {
            *from = r->from < *from ? r->from : *from;
            *to = r->to > *to ? r->to : *to;
        }
    uintptr_t at = *from;
    struct region **link = &regions;
    while (at < *to) {
        while (*link && (*link)->to <= at)
            link = &(*link)->next;
        uintptr_t end = *link && (*link)->from < *to ? (*link)->from : *to;
        if (at < end) {
            int e = region_new(d, link, at, end, flags);
            if (e) {
                region_drop(d, *from, at);
                return e;
            }
        }
        (*link)->pins++;
        at = (*link)->to;
    }
    return 0;
}

static int pin(struct device *device, void *host, size_t bytes, unsigned flags, uint64_t *at)
{
    struct cuda_device *d = cuda_of(device);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)host / page * page, to = ((uintptr_t)host + bytes + page - 1) / page * page;
    bool pushed;
    int e = cuda_enter(d, &pushed);
    if (e)
        return e;
    pthread_mutex_lock(&lock);
    struct cuda_pin *p = d->pins;
    while (p && (p->host != host || p->to < to))
        p = p->next;
    if (p) {
        p->count++;
    } else if (!(p = malloc(sizeof *p))) {
        e = d->error(WEFT_ENOMEM, "out of memory");
    } else if (!(e = region_take(d, &from, &to, flags))) {
        CUdeviceptr there;
        e = cuda_check(d, d->cu->cuMemHostGetDevicePointer(&there, host, 0), "mapping host memory");
        if (e)
            region_drop(d, from, to);
        else
            *p = (struct cuda_pin){d->pins, host, from, to, there, 1};
        d->pins = e ? d->pins : p;
    }
    if (e)
        free(p);
    else
        *at = p->at;
    pthread_mutex_unlock(&lock);
    cuda_leave(d, pushed);
    return e;
}

int cuda_pin(struct device *device, void *host, size_t bytes, uint64_t *at)
{
    return pin(device, host, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP, at);
}

int cuda_pin_read(struct device *device, void *host, size_t bytes, uint64_t *at)
{
    return pin(device, host, bytes,
               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY, at);
}

void cuda_pin_undo(struct device *device, void *host)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed = false, entered = !cuda_enter(d, &pushed);
    pthread_mutex_lock(&lock);
    struct cuda_pin **at = NULL, *p = NULL;
    for (struct cuda_pin **q = &d->pins; *q; q = &(*q)->next)
        if ((*q)->host == host && (!p || (*q)->to < p->to)) {
            at = q;
            p = *q;
        }
    if (p && --p->count == 0) {
        *at = p->next;
        region_drop(d, p->from, p->to);
        free(p);
    }
    pthread_mutex_unlock(&lock);
    if (entered)
        cuda_leave(d, pushed);
}

size_t cuda_pin_piece(uint64_t at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (const struct region *r = regions; r; r = r->next) {
        if (r->from > at && r->from - at < bytes)
            bytes = r->from - at;
        if (r->to > at && r->to - at < bytes)
            bytes = r->to - at;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

void cuda_pin_close(struct cuda_device *d)
{
    pthread_mutex_lock(&lock);
    while (d->pins) {
        struct cuda_pin *p = d->pins;
        d->pins = p->next;
        region_drop(d, p->from, p->to);
        free(p);
    }
    pthread_mutex_unlock(&lock);
}
