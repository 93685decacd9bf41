/* Reading a peer's private memory, which is not in the file: one copy, by the kernel (process_vm_readv), if the system
 * permits it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/shm/shm.h"

#define SAMPLE ((size_t)1 << 20) /* bytes, more than the first-level caches hold */
#define SMALL ((size_t)4096)
#define TRIES 3
#define NEVER (INT64_MAX / 4) /* stands for the time of a copy that is not permitted */

static const struct shm_process *process_of(const struct shm_link *l, int rank)
{
    return &l->home->head->process[shm_process_of(l, rank)];
}

static bool kernel_copies(pid_t pid, void *to, uint64_t from, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* How many nanoseconds one copy takes, by the kernel or by this process. */
static int64_t time_of(bool kernel, char *to, const void *from, size_t bytes)
{
    int64_t begin = core_now();
    if (!kernel)
        memcpy(to, from, bytes);
    else if (!kernel_copies(getpid(), to, (uintptr_t)from, bytes))
        return NEVER;
    __asm__ volatile("" : : "r"(to) : "memory"); /* otherwise the compiler could leave out the copy */
    return core_now() - begin;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool resident(const void *memory, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)memory % page;
    unsigned char in[SAMPLE / 4096 + 2];
    size_t pages = (before + bytes + page - 1) / page;
    if (pages > sizeof in || mincore((char *)(uintptr_t)memory - before, before + bytes, in))
        return false;
    for (size_t i = 0; i < pages; i++)
        if (!(in[i] & 1))
            return false;
    return true;
}

/* One copy of n bytes by the kernel takes a + b n; two copies by this process take 2 m n. They are equal at
 * n = a / (2 m - b). The time of the kernel depends on the page size of the memory, so it is measured on that memory.
 * Memory that has not been touched yet cannot be measured. */
int64_t shm_read_worth(const void *memory, size_t bytes)
{
    bytes = bytes < SAMPLE ? bytes : SAMPLE;
    char *to = bytes > 2 * SMALL && resident(memory, bytes) ? malloc(bytes) : NULL;
    int64_t call = NEVER, kernel = NEVER, own = NEVER;
    if (!to)
        return INT64_MAX;
    memset(to, 1, bytes);
    for (int i = 0; i < TRIES; i++) {
        call = least(call, time_of(true, to, memory, SMALL));
        kernel = least(kernel, time_of(true, to, memory, bytes));
        own = least(own, time_of(false, to, memory, bytes));
    }
    free(to);
    if (call == NEVER || kernel == NEVER)
        return INT64_MAX;
    int64_t gain = 2 * own - (kernel - call);
    return gain > 0 ? call * (int64_t)bytes / gain + 1 : INT64_MAX;
}

/* Reads the magic number at the front of the peer's mapping: then it is the right process, and it can be read. */
bool shm_read_permitted(struct transport_link *base, int rank)
{
    struct shm_link *l = (struct shm_link *)base;
    const struct shm_process *p = process_of(l, rank);
    uint64_t magic = 0;
    return p->map && kernel_copies((pid_t)p->pid, &magic, p->map, sizeof magic) && magic == l->home->head->magic;
}

int shm_read(struct transport_link *base, int rank, const struct iovec *to, const struct iovec *from, size_t n)
{
    struct shm_link *l = (struct shm_link *)base;
    const struct shm_process *p = process_of(l, rank);
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += from[i].iov_len;
    ssize_t got = process_vm_readv((pid_t)p->pid, to, n, from, n, 0);
    bool whole = got >= 0 && (size_t)got == all;
    /* A process that is there after the read was there all the time, so its number was no other process's. */
    if (whole && !shm_process_died_now(l, rank))
        return 0;
    if (whole)
        return error_set(WEFT_EPEER, "it has ended");
    /* A process that ends loses its memory before its files, by which others see that it has died. So a read may fail
     * before the death is seen. */
    return error_set(got < 0 && errno == ESRCH ? WEFT_EPEER : WEFT_ETRANSPORT, "its memory cannot be read: %s",
                     strerror(got < 0 ? errno : EFAULT));
}
