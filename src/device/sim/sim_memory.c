#define _GNU_SOURCE
#include "device/sim/sim_memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/vec.h"

struct sim_range {
    uint64_t from, to; /* public addresses */
    unsigned char *shadow;
    struct sim_device *device;
    size_t users; /* kernels that have reached it and run */

    /* device memory */
    size_t mapped; /* bytes of the mappings: whole pages */
    uint64_t nonce;
    int fd; /* -1: it is another process's */
    bool allocated;
    size_t maps; /* how often it is mapped by sim_memory_map */

    /* host memory */
    void *host; /* as it was pinned; NULL: this is device memory */
    size_t bytes;
};

/* The content of a handle. */
struct handle {
    uint64_t nonce; /* part of the file's name, too: so a handle is not taken for another file */
    int64_t pid;
    int32_t fd;
    uint32_t magic;
};
#define MAGIC 0x5e1f51b1u
_Static_assert(sizeof(struct handle) <= DEVICE_HANDLE, "a handle has room");

typedef VEC(struct sim_range *) ranges;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;   /* a kernel has ended that used a range */
static ranges device_memory;                             /* in order of addresses; they do not overlap */
static ranges pins;
static ranges parents[2]; /* in a child: those of its parent, whose mappings are not here */

/* ---- ranges ---- */

/* The index of the first range in order that begins behind the address. */
static size_t behind(struct sim_range *const *v, size_t n, uint64_t address)
{
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        if (v[mid]->from <= address)
            lo = mid + 1;
        else
            n = mid;
    }
    return lo;
}

static bool has(const struct sim_range *r, uint64_t address, size_t bytes)
{
    return address >= r->from && address <= r->to && bytes <= r->to - address;
}

static struct sim_range *find_device(uint64_t address, size_t bytes)
{
    size_t i = behind(device_memory.v, device_memory.n, address);
    return i && has(device_memory.v[i - 1], address, bytes) ? device_memory.v[i - 1] : NULL;
}

static struct sim_range *find_pin(uint64_t address, size_t bytes)
{
    for (size_t i = pins.n; i-- > 0;)
        if (has(pins.v[i], address, bytes))
            return pins.v[i];
    return NULL;
}

static bool insert(ranges *all, size_t i, struct sim_range *r)
{
    if (!vec_room(all, 1))
        return false;
    memmove(all->v + i + 1, all->v + i, (all->n++ - i) * sizeof *all->v);
    all->v[i] = r;
    return true;
}

static void erase(ranges *all, const struct sim_range *r)
{
    size_t i = 0;
    while (all->v[i] != r)
        i++;
    memmove(all->v + i, all->v + i + 1, (--all->n - i) * sizeof *all->v);
    if (all->n)
        return;
    free(all->v);
    *all = (ranges){0};
}

static void release(struct sim_range *r)
{
    if (!r->host) {
        munmap((void *)(uintptr_t)r->from, r->mapped);
        munmap(r->shadow, r->mapped);
        forks_close(r->fd);
    }
    free(r);
}

/* Takes the range out of the list, waits for the kernels that use it, and gives it back. The caller holds the lock. */
static void give_back(ranges *all, struct sim_range *r)
{
    erase(all, r);
    while (r->users)
        pthread_cond_wait(&left, &lock);
    release(r);
}

/* ---- device memory ---- */

static void file_name(uint64_t nonce, char name[40])
{
    snprintf(name, 40, "weft-sim-%016" PRIx64, nonce);
}

/* Maps the file twice. A forked child gets neither. */
static struct sim_range *map_file(struct sim_device *d, int fd, uint64_t nonce, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
    struct sim_range *r = calloc(1, sizeof *r);
    void *public = mmap(NULL, mapped, PROT_NONE, MAP_SHARED, fd, 0);
    void *shadow = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r && public != MAP_FAILED && shadow != MAP_FAILED && !madvise(public, mapped, MADV_DONTFORK) &&
        !madvise(shadow, mapped, MADV_DONTFORK)) {
        *r = (struct sim_range){.from = (uintptr_t) public,
                                .to = (uintptr_t) public + bytes,
                                .shadow = shadow,
                                .device = d,
                                .mapped = mapped,
                                .nonce = nonce,
                                .fd = -1};
        return r;
    }
    if (public != MAP_FAILED)
        munmap(public, mapped);
    if (shadow != MAP_FAILED)
        munmap(shadow, mapped);
    free(r);
    return NULL;
}

static struct sim_range *allocate(struct sim_device *d, size_t bytes)
{
    uint64_t nonce;
    char name[40];
    if (bytes > INT64_MAX / 2 || getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return NULL;
    file_name(nonce, name);
    int fd = forks_own(memfd_create(name, MFD_CLOEXEC));
    struct sim_range *r = fd < 0 || ftruncate(fd, (off_t)bytes) ? NULL : map_file(d, fd, nonce, bytes);
    if (!r)
        forks_close(fd);
    else
        r->fd = fd;
    return r;
}

static bool list_device_memory(struct sim_range *r)
{
    return insert(&device_memory, behind(device_memory.v, device_memory.n, r->from), r);
}

void *sim_memory_alloc(struct device *d, size_t bytes)
{
    if (sim_device_check(sim_device_of(d)))
        return NULL;
    struct sim_range *r = allocate(sim_device_of(d), bytes ? bytes : 1);
    if (!r)
        return NULL;
    r->allocated = true;
    pthread_mutex_lock(&lock);
    bool listed = list_device_memory(r);
    pthread_mutex_unlock(&lock);
    if (listed)
        return (void *)(uintptr_t)r->from;
    release(r);
    return NULL;
}

/* The range that begins at the address; NULL: there is none. */
static struct sim_range *begins_at(const void *base)
{
    struct sim_range *r = find_device((uintptr_t)base, 0);
    return r && r->from == (uintptr_t)base ? r : NULL;
}

void sim_memory_free(struct device *d, void *memory)
{
    if (!memory || sim_device_state(sim_device_of(d)) == SIM_FORKED)
        return;
    pthread_mutex_lock(&lock);
    struct sim_range *r = begins_at(memory);
    bool ok = r && r->allocated;
    if (ok)
        r->allocated = false;
    if (ok && !r->maps)
        give_back(&device_memory, r);
    pthread_mutex_unlock(&lock);
    if (!ok)
        sim_device_fail(sim_device_of(d), "free(%p): no allocation begins there", memory);
}

int sim_memory_owner(const void *address)
{
    pthread_mutex_lock(&lock);
    const struct sim_range *r = find_device((uintptr_t)address, 1);
    int number = r ? r->device->device.number : -1;
    pthread_mutex_unlock(&lock);
    return number;
}

/* What only happens to be in a pinned page is not pinned: the page may be unpinned at any time. */
bool sim_memory_pinned(const void *address, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < pins.n && !found; i++) {
        uint64_t from = (uintptr_t)pins.v[i]->host, skipped = (uintptr_t)address - from;
        found = (uintptr_t)address >= from && skipped <= pins.v[i]->bytes && bytes <= pins.v[i]->bytes - skipped;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- memory of other processes ---- */

int sim_memory_share(struct device *device, const void *memory, struct device_share *out)
{
    struct sim_device *d = sim_device_of(device);
    int err = sim_device_check(d);
    if (err)
        return err;
    struct handle h = {.pid = getpid(), .magic = MAGIC};
    atomic_fetch_add_explicit(&d->shares, 1, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    const struct sim_range *r = find_device((uintptr_t)memory, 1);
    if (!r)
        err = d->error(WEFT_EINVAL, "%p is not in memory of the simulated device", memory);
    else if (r->fd < 0)
        err = d->error(WEFT_EUNSUPPORTED, "%p is in memory of another process, which alone can share it", memory);
    if (!err) {
        *out = (struct device_share){.base = r->from, .bytes = r->to - r->from};
        h.nonce = r->nonce;
        h.fd = r->fd;
        memcpy(out->handle, &h, sizeof h);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* The file of a handle; -1: it is gone. */
static int open_file(const struct handle *h, uint64_t bytes)
{
    char path[64], wanted[40], expected[64], is[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId32, h->pid, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    file_name(h->nonce, wanted);
    snprintf(expected, sizeof expected, "/memfd:%s (deleted)", wanted);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, is, sizeof is);
    if (n == (ssize_t)strlen(expected) && !memcmp(is, expected, (size_t)n) && !fstat(fd, &st) &&
        (uint64_t)st.st_size == bytes)
        return fd;
    close(fd);
    return -1;
}

static struct sim_range *find_nonce(uint64_t nonce)
{
    for (size_t i = 0; i < device_memory.n; i++)
        if (device_memory.v[i]->nonce == nonce)
            return device_memory.v[i];
    return NULL;
}

/* Maps the file of a handle that this process has not mapped yet. The caller holds the lock, so that nobody else maps
 * it meanwhile. */
static int map_new(struct sim_device *d, const struct handle *h, uint64_t bytes, struct sim_range **out)
{
    int fd = open_file(h, bytes);
    if (fd < 0)
        return d->error(WEFT_ETRANSPORT,
                        "process %" PRId64 " has ended, or has freed the memory that it shared, or is not visible here",
                        h->pid);
    struct sim_range *r = map_file(d, fd, h->nonce, bytes);
    close(fd);
    if (r && list_device_memory(r)) {
        *out = r;
        return 0;
    }
    if (r)
        release(r);
    return d->error(WEFT_ENOMEM, "%" PRIu64 " bytes of process %" PRId64 " cannot be mapped", bytes, h->pid);
}

int sim_memory_map(struct device *device, const struct device_share *share, void **base)
{
    struct sim_device *d = sim_device_of(device);
    struct handle h;
    int err = sim_device_check(d);
    if (err)
        return err;
    memcpy(&h, share->handle, sizeof h);
    if (h.magic != MAGIC || !share->bytes || share->bytes > INT64_MAX / 2)
        return d->error(WEFT_EINVAL, "this is no handle of memory of a simulated device");
    pthread_mutex_lock(&lock);
    struct sim_range *r = find_nonce(h.nonce);
    if (!r)
        err = map_new(d, &h, share->bytes, &r);
    if (!err) {
        r->maps++;
        *base = (void *)(uintptr_t)r->from;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

void sim_memory_unmap(struct device *d, void *base)
{
    if (!base || sim_device_state(sim_device_of(d)) == SIM_FORKED)
        return;
    pthread_mutex_lock(&lock);
    struct sim_range *r = begins_at(base);
    bool ok = r && r->maps;
    if (ok && !--r->maps && !r->allocated)
        give_back(&device_memory, r);
    pthread_mutex_unlock(&lock);
    if (!ok)
        sim_device_fail(sim_device_of(d), "unmap(%p): no mapping begins there", base);
}

/* ---- pinned host memory ---- */

int sim_memory_pin(struct device *device, void *host, size_t bytes, uint64_t *at)
{
    struct sim_device *d = sim_device_of(device);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)host / page * page;
    int err = sim_device_check(d);
    if (err)
        return err;
    if (!host || !bytes || bytes > INT64_MAX / 2)
        return d->error(WEFT_EINVAL, "pin(%p, %zu): there is no memory to pin", host, bytes);
    struct sim_range *r = calloc(1, sizeof *r);
    if (!r)
        return d->error(WEFT_ENOMEM, "out of memory");
    *r = (struct sim_range){.from = first,
                            .to = ((uintptr_t)host + bytes + page - 1) / page * page,
                            .shadow = (unsigned char *)(uintptr_t)first,
                            .device = d,
                            .fd = -1,
                            .host = host,
                            .bytes = bytes};
    pthread_mutex_lock(&lock);
    if (find_device((uintptr_t)host, 1))
        err = d->error(WEFT_EINVAL, "pin(%p, %zu): this is memory of a device", host, bytes);
    else if (!insert(&pins, pins.n, r))
        err = d->error(WEFT_ENOMEM, "out of memory");
    pthread_mutex_unlock(&lock);
    if (err)
        free(r);
    else
        *at = (uintptr_t)host;
    return err;
}

void sim_memory_unpin(struct device *device, void *host)
{
    struct sim_device *d = sim_device_of(device);
    if (!host || sim_device_state(d) == SIM_FORKED)
        return;
    pthread_mutex_lock(&lock);
    struct sim_range *r = NULL;
    for (size_t i = 0; i < pins.n; i++)
        if (pins.v[i]->host == host && pins.v[i]->device == d && (!r || pins.v[i]->bytes < r->bytes))
            r = pins.v[i];
    if (r)
        give_back(&pins, r);
    pthread_mutex_unlock(&lock);
    if (!r)
        sim_device_fail(d, "unpin(%p): it was not pinned", host);
}

/* ---- the memory as a kernel sees it ---- */

static struct sim_range *reached(const struct sim_view *v, uint64_t address, size_t bytes)
{
    size_t i = behind(v->ranges, v->n, address);
    return i && has(v->ranges[i - 1], address, bytes) ? v->ranges[i - 1] : NULL;
}

/* Notes that the kernel uses the range. Pins may overlap, so that it may have been noted without having been found. */
static bool note(struct sim_view *v, struct sim_range *r)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->ranges[i] == r)
            return true;
    ranges all = {v->ranges, v->n, v->cap};
    bool ok = insert(&all, behind(all.v, all.n, r->from), r);
    v->ranges = all.v;
    v->n = all.n;
    v->cap = all.cap;
    r->users += ok;
    return ok;
}

void *sim_memory_at(struct sim_view *v, uint64_t address, size_t bytes)
{
    const struct sim_range *r = v->last;
    if (!r || !has(r, address, bytes))
        r = reached(v, address, bytes);
    if (!r) {
        pthread_mutex_lock(&lock);
        struct sim_range *found = find_device(address, bytes);
        if (!found)
            found = find_pin(address, bytes);
        if (found && note(v, found))
            r = found;
        pthread_mutex_unlock(&lock);
    }
    v->last = r;
    if (r)
        return r->shadow + (address - r->from);
    v->bad = address;
    return NULL;
}

void sim_memory_leave(struct sim_view *v)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < v->n; i++)
        v->ranges[i]->users--;
    if (v->n)
        pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
    free(v->ranges);
    *v = (struct sim_view){0};
}

/* ---- the end ---- */

void sim_memory_use(const struct sim_device *d, struct sim_use *out)
{
    out->shares = atomic_load_explicit(&d->shares, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < device_memory.n; i++) {
        const struct sim_range *r = device_memory.v[i];
        if (r->device != d)
            continue;
        out->allocations += r->allocated;
        out->bytes += r->allocated ? r->to - r->from : 0;
        out->maps += r->maps;
    }
    for (size_t i = 0; i < pins.n; i++)
        out->pins += pins.v[i]->device == d;
    pthread_mutex_unlock(&lock);
}

/* While it waits for kernels of other devices, the list may change. */
static void close_all(ranges *all, const struct sim_device *d)
{
    for (size_t i = 0; i < all->n;)
        if (all->v[i]->device == d) {
            give_back(all, all->v[i]);
            i = 0;
        } else {
            i++;
        }
}

void sim_memory_close(const struct sim_device *d)
{
    pthread_mutex_lock(&lock);
    close_all(&device_memory, d);
    close_all(&pins, d);
    pthread_mutex_unlock(&lock);
}

void sim_memory_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void sim_memory_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* The lists stay reachable, for tools that look for leaks. */
void sim_memory_in_child(void)
{
    parents[0] = device_memory;
    parents[1] = pins;
    device_memory = pins = (ranges){0};
    left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_unlock(&lock);
}
