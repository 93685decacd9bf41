/* Window memory: the transport allocates it, and its pages are touched here, so that no run waits for the kernel. The
 * first touch of a page costs many times a copy of it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/environment.h"
#include "comm/lock.h"
#include "device/device.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A transport's memory is zero: writing a zero changes nothing. */
static void touch(volatile char *memory, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += page)
        memory[i] = 0;
}

void comm_alloc_populate(char *memory, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), huge = bytes / TRANSPORT_HUGE * TRANSPORT_HUGE;
    if (huge) { /* shared memory rarely gets huge pages by itself, but Linux 6.1 can collapse it into them */
        madvise(memory, huge, MADV_HUGEPAGE);
        madvise(memory, huge, MADV_COLLAPSE);
    }
    if ((uintptr_t)memory % page || madvise(memory, bytes, MADV_POPULATE_WRITE))
        touch(memory, bytes);
}

static void keep(weft_comm *c, struct comm_window *w)
{
    struct comm_family *f = comm_enter(c);
    w->next = c->windows;
    c->windows = w;
    comm_leave(f);
}

/* Large blocks begin at different places of a huge page. Otherwise elements of the same index in tensors of all ranks
 * would have the same set of the first-level cache, which has as few as 4 lines: a sum of 8 terms that begin so reads
 * at three quarters of the speed (Neoverse-N1). 36 KiB differ in the sets of both levels. */
static size_t lead_of(weft_comm *c, size_t bytes)
{
    const size_t step = (size_t)36 << 10, least = 16 * TRANSPORT_HUGE;
    if (bytes < least)
        return 0;
    return ((size_t)c->rank + (size_t)5 * c->large_windows++) * step % TRANSPORT_HUGE;
}

static int alloc_host(weft_comm *c, size_t bytes, struct comm_window *w)
{
    struct comm_family *f = comm_enter(c);
    uint64_t place;
    char *block = NULL;
    size_t all = bytes ? bytes : 1;
    if (bytes <= SIZE_MAX - TRANSPORT_HUGE && transport_afford(bytes)) {
        w->lead = lead_of(c, bytes);
        all += w->lead;
        block = c->transport->alloc(c->link, all, &place);
    }
    comm_leave(f);
    if (!block)
        return error_set(WEFT_ENOMEM, "no memory for %zu bytes that all ranks can reach", bytes);
    comm_alloc_populate(block, all); /* the lead, too: it is a part of the first huge page */
    w->memory = block + w->lead;
    return 0;
}

static int alloc_device(int memory, int device, size_t bytes, struct comm_window *w)
{
    int err = device_open("weft_comm_alloc", memory, device, environment_modules(), &w->device);
    if (err)
        return err;
    w->memory = w->device->ops->alloc(w->device, bytes ? bytes : 1);
    if (w->memory)
        return 0;
    w->device->ops->close(w->device);
    return error_set(WEFT_ENOMEM, "no memory for %zu bytes on device %d", bytes, device);
}

int weft_comm_alloc(weft_comm *c, size_t bytes, enum weft_memory memory, int device, void **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_alloc: the comm and out must not be NULL");
    if (memory == WEFT_MEMORY_HOST && device)
        return error_set(WEFT_EINVAL, "weft_comm_alloc: host memory has no device %d: set device to 0", device);
    struct comm_window *w = calloc(1, sizeof *w);
    if (!w)
        return error_nomem();
    int err = memory == WEFT_MEMORY_HOST ? alloc_host(c, bytes, w) : alloc_device((int)memory, device, bytes, w);
    if (err) {
        free(w);
        return err;
    }
    keep(c, w);
    *out = w->memory;
    return 0;
}

static void release_device(struct comm_window *w)
{
    w->device->ops->free(w->device, w->memory);
    w->device->ops->close(w->device);
}

void weft_comm_free(weft_comm *c, void *ptr)
{
    if (!c || !ptr || comm_inherited(c))
        return;
    struct error_text kept;
    error_keep(&kept);
    struct comm_family *f = comm_enter(c);
    struct comm_window **at = &c->windows, *w;
    while ((w = *at) != NULL && w->memory != ptr)
        at = &w->next;
    if (w) {
        *at = w->next;
        if (w->device)
            release_device(w);
        else if (!comm_fail_tainted(c)) /* otherwise peers may still read it: the group frees it in the end */
            c->transport->release(c->link, (char *)ptr - w->lead);
        free(w);
    }
    comm_leave(f);
    error_restore(&kept);
}

void comm_alloc_free_windows(weft_comm *c)
{
    while (c->windows) {
        struct comm_window *w = c->windows;
        c->windows = w->next;
        if (w->device)
            release_device(w);
        free(w); /* host memory is freed with the group */
    }
}
