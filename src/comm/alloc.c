/* Window memory: the transport allocates it, and its pages are touched here, so that no run waits for the kernel. The
 * first touch of a page costs many times a copy of it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/domain.h"
#include "base/error.h"
#include "comm/lock.h"

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

int weft_comm_alloc(weft_comm *c, size_t bytes, enum weft_memory memory, int device, void **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_alloc: the comm and out must not be NULL");
    int err = domain_check("weft_comm_alloc", (int)memory, device);
    if (err)
        return err;
    struct comm_window *w = malloc(sizeof *w);
    if (!w)
        return error_nomem();
    struct comm_family *f = comm_enter(c);
    uint64_t place;
    w->memory = transport_afford(bytes) ? c->transport->alloc(c->link, bytes ? bytes : 1, &place) : NULL;
    if (!w->memory) {
        comm_leave(f);
        free(w);
        return error_set(WEFT_ENOMEM, "no memory for %zu bytes that all ranks can reach", bytes);
    }
    w->next = c->windows;
    c->windows = w;
    comm_leave(f);
    comm_alloc_populate(w->memory, bytes);
    *out = w->memory;
    return 0;
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
        if (!comm_fail_tainted(c)) /* otherwise peers may still read it: the group frees it in the end */
            c->transport->release(c->link, ptr);
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
        free(w); /* the memory is freed with the group */
    }
}
