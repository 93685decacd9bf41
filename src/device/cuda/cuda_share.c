/* Device memory that several processes use. CUDA has two ways, and the kind of allocation decides which one works:
 * handles of memory that cuMemAlloc gave, and files of memory that cuMemCreate gave, as expandable segments of torch
 * and pools of JAX are. A file is fetched out of the process that has it. Within one process memory is used as it is:
 * CUDA opens no handle there. Each process maps an allocation once, and counts. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/cuda_device.h"
#include "weft.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* older headers lack them; the numbers are the same on all architectures */
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum kind { HANDLE = 1, FILE_OF };

/* The handle of struct device_share. */
struct ticket {
    uint32_t kind;
    int32_t pid, fd;
    uint32_t unused;
    uint64_t process; /* a random number of the process */
    uint64_t buffer;  /* CUDA's number of the allocation in its process */
    CUipcMemHandle handle;
};
_Static_assert(sizeof(struct ticket) <= DEVICE_HANDLE, "a ticket fits a handle");

struct cuda_map {
    struct cuda_map *next;
    struct ticket ticket;
    uint64_t base, theirs, bytes; /* address here, and of the owner */
    bool same;                    /* memory of this process */
    int count;
};

/* A file that was made for an allocation. It stays open until the allocation is gone. */
struct cuda_export {
    struct cuda_export *next;
    uint64_t base, bytes, buffer;
    int fd;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t process; /* a forked child cannot use CUDA, so it needs none of its own */

static void name_process(void)
{
    if (getrandom(&process, sizeof process, 0) != (ssize_t)sizeof process)
        process = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
}

/* ---- share ---- */

static void export_drop(struct cuda_export **at)
{
    struct cuda_export *x = *at;
    *at = x->next;
    close(x->fd);
    free(x);
}

#define SWEEP_NS 50000000 /* between two sweeps: many allocations are shared one after the other */

/* A file keeps memory: those of allocations that are gone are closed. */
static void export_sweep(struct cuda_device *d)
{
    struct timespec t;
    struct cuda_export **at = &d->exports;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now_ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    if (d->swept_ns && now_ns - d->swept_ns < SWEEP_NS)
        return;
    d->swept_ns = now_ns;
    while (*at) {
        unsigned long long now = 0;
        CUresult r = d->cu->cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(*at)->base);
        if (r || now != (*at)->buffer)
            export_drop(at);
        else
            at = &(*at)->next;
    }
}

static int export_file(struct cuda_device *d, uint64_t base, uint64_t bytes, uint64_t buffer, int *fd)
{
    export_sweep(d);
    for (struct cuda_export *x = d->exports; x; x = x->next)
        if (x->base == base && x->bytes == bytes && x->buffer == buffer) {
            *fd = x->fd;
            return 0;
        }
    struct cuda_export *x = malloc(sizeof *x);
    if (!x)
        return d->error(WEFT_ENOMEM, "out of memory");
    CUmemGenericAllocationHandle memory;
    CUresult r = d->cu->cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)base);
    if (!r) {
        r = d->cu->cuMemExportToShareableHandle(fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        d->cu->cuMemRelease(memory);
    }
    if (r) {
        free(x);
        return d->error(WEFT_EUNSUPPORTED, "this memory of CUDA device %d cannot be shared with other processes",
                        d->device.number);
    }
    *x = (struct cuda_export){d->exports, base, bytes, buffer, *fd};
    d->exports = x;
    return 0;
}

static int share(struct cuda_device *d, const void *memory, struct device_share *out)
{
    struct ticket t = {.kind = HANDLE, .pid = (int32_t)getpid(), .process = process, .fd = -1};
    CUdeviceptr base;
    size_t bytes;
    unsigned long long buffer = 0;
    int e = cuda_check(d, d->cu->cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)memory),
                       "finding the allocation");
    if (!e)
        e = cuda_check(d, d->cu->cuPointerGetAttribute(&buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID, base),
                       "finding the allocation");
    if (e)
        return e;
    t.buffer = buffer;
    if (d->cu->cuIpcGetMemHandle(&t.handle, base)) {
        memset(&t.handle, 0, sizeof t.handle);
        t.kind = FILE_OF;
        e = export_file(d, base, bytes, buffer, &t.fd);
    }
    *out = (struct device_share){.base = base, .bytes = bytes};
    memcpy(out->handle, &t, sizeof t);
    return e;
}

int cuda_share(struct device *device, const void *memory, struct device_share *out)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed;
    int e = cuda_enter(d, &pushed);
    if (e)
        return e;
    pthread_once(&once, name_process);
    pthread_mutex_lock(&d->lock);
    e = share(d, memory, out);
    pthread_mutex_unlock(&d->lock);
    cuda_leave(d, pushed);
    return e;
}

/* ---- map ---- */

static int fetch_file(struct cuda_device *d, const struct ticket *t, int *fd)
{
    int process_fd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    *fd = process_fd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process_fd, t->fd, 0);
    int why = errno;
    if (process_fd >= 0)
        close(process_fd);
    if (*fd < 0)
        return d->error(WEFT_ETRANSPORT, "cannot fetch the file of device memory from process %d: %s", (int)t->pid,
                        strerror(why));
    return 0;
}

static int map_file(struct cuda_device *d, const struct ticket *t, uint64_t bytes, CUdeviceptr *base)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = d->cuda;
    CUmemGenericAllocationHandle memory;
    int fd, e = fetch_file(d, t, &fd);
    if (e)
        return e;
    CUresult r =
        d->cu->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    if (r)
        return cuda_check(d, r, "importing device memory");
    r = d->cu->cuMemAddressReserve(base, bytes, 0, 0, 0);
    if (!r) {
        r = d->cu->cuMemMap(*base, bytes, 0, memory, 0);
        if (!r) {
            r = d->cu->cuMemSetAccess(*base, bytes, &access, 1);
            if (r)
                d->cu->cuMemUnmap(*base, bytes);
        }
        if (r)
            d->cu->cuMemAddressFree(*base, bytes);
    }
    d->cu->cuMemRelease(memory); /* the mapping keeps it */
    return cuda_check(d, r, "mapping device memory");
}

static int map_new(struct cuda_device *d, struct cuda_map *m)
{
    CUdeviceptr base = 0;
    int e = 0;
    if (m->same)
        base = m->theirs;
    else if (m->ticket.kind == HANDLE)
        e = cuda_check(d, d->cu->cuIpcOpenMemHandle(&base, m->ticket.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                       "opening device memory of another process");
    else
        e = map_file(d, &m->ticket, m->bytes, &base);
    m->base = base;
    return e;
}

static void map_drop(struct cuda_device *d, struct cuda_map *m)
{
    if (m->same)
        return;
    if (m->ticket.kind == HANDLE) {
        d->cu->cuIpcCloseMemHandle(m->base);
        return;
    }
    d->cu->cuMemUnmap(m->base, m->bytes);
    d->cu->cuMemAddressFree(m->base, m->bytes);
}

int cuda_share_map(struct device *device, const struct device_share *of, void **base)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed;
    int e = cuda_enter(d, &pushed);
    if (e)
        return e;
    struct ticket t;
    memcpy(&t, of->handle, sizeof t);
    pthread_once(&once, name_process);
    pthread_mutex_lock(&d->lock);
    struct cuda_map *m = d->maps;
    while (m && (m->theirs != of->base || m->bytes != of->bytes || memcmp(&m->ticket, &t, sizeof t) != 0))
        m = m->next;
    if (m) {
        m->count++;
    } else if (!(m = malloc(sizeof *m))) {
        e = d->error(WEFT_ENOMEM, "out of memory");
    } else {
        *m = (struct cuda_map){.next = d->maps,
                               .ticket = t,
                               .theirs = of->base,
                               .bytes = of->bytes,
                               .same = t.process == process,
                               .count = 1};
        e = map_new(d, m);
        if (e)
            free(m);
        else
            d->maps = m;
    }
    if (!e)
        *base = (void *)(uintptr_t)m->base;
    pthread_mutex_unlock(&d->lock);
    cuda_leave(d, pushed);
    return e;
}

void cuda_share_unmap(struct device *device, void *base)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed = false, entered = !cuda_enter(d, &pushed);
    pthread_mutex_lock(&d->lock);
    struct cuda_map **at = &d->maps, *m;
    while (*at && (*at)->base != (uint64_t)(uintptr_t)base)
        at = &(*at)->next;
    m = *at;
    if (m && --m->count == 0) {
        *at = m->next;
        map_drop(d, m);
        free(m);
    }
    pthread_mutex_unlock(&d->lock);
    if (entered)
        cuda_leave(d, pushed);
}

void cuda_share_close(struct cuda_device *d)
{
    while (d->maps) {
        struct cuda_map *m = d->maps;
        d->maps = m->next;
        map_drop(d, m);
        free(m);
    }
    while (d->exports)
        export_drop(&d->exports);
}
