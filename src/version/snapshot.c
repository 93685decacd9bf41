#define _GNU_SOURCE
#include "version/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MAGIC UINT64_C(0x3170616e73746677) /* "wftsnap1" */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

struct snapshot_head {
    uint64_t magic;
    _Atomic uint64_t generation;
    uint64_t bytes;
};
_Static_assert(sizeof(struct snapshot_head) <= SNAPSHOT_DATA, "the head is in the first page");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share the generation");

static int map(struct snapshot *s, int protection)
{
    void *at = mmap(NULL, s->size, protection, MAP_SHARED, s->fd, 0);
    if (at == MAP_FAILED)
        return error_set(WEFT_ENOMEM, "a snapshot of %zu bytes cannot be mapped: %s", s->size, strerror(errno));
    s->head = at;
    s->data = (unsigned char *)at + SNAPSHOT_DATA;
    return 0;
}

static int reserve(int fd, int64_t at, int64_t n)
{
    int err;
    do
        err = fallocate(fd, 0, (off_t)at, (off_t)n) ? errno : 0;
    while (err == EINTR);
    return err ? error_set(WEFT_ENOMEM, "there is no memory for %lld bytes of a snapshot: %s", (long long)n,
                           strerror(err))
               : 0;
}

/* The bytes from `taken` on are taken from the system, and the head. */
static int create(int64_t bytes, int64_t taken, struct snapshot *out)
{
    struct snapshot s = {.fd = memfd_create("weft-bus", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                         .size = (size_t)bytes + SNAPSHOT_DATA};
    if (s.fd < 0)
        return error_set(WEFT_EIO, "there is no memory file for a snapshot: %s", strerror(errno));
    forks_own(s.fd);
    int err = reserve(s.fd, 0, SNAPSHOT_DATA);
    if (!err && ftruncate(s.fd, (off_t)s.size))
        err = error_set(WEFT_ENOMEM, "there is no snapshot of %zu bytes: %s", s.size, strerror(errno));
    if (!err && taken < bytes)
        err = reserve(s.fd, SNAPSHOT_DATA + taken, bytes - taken);
    if (!err)
        err = map(&s, PROT_READ | PROT_WRITE);
    if (!err && fcntl(s.fd, F_ADD_SEALS, SEALS))
        err = error_set(WEFT_EIO, "a snapshot cannot be sealed: %s", strerror(errno));
    if (!err)
        fcntl(s.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE); /* older systems do not have it */
    if (err) {
        snapshot_close(&s);
        return err;
    }
    s.head->magic = MAGIC;
    s.head->bytes = (uint64_t)bytes;
    atomic_init(&s.head->generation, 1);
    *out = s;
    return 0;
}

int snapshot_create(int64_t bytes, struct snapshot *out)
{
    return create(bytes, 0, out);
}

int snapshot_create_sparse(int64_t bytes, int64_t more, struct snapshot *out)
{
    return create(bytes + more, bytes, out);
}

int snapshot_take(struct snapshot *s, int64_t at, int64_t n)
{
    uintptr_t begin = ((uintptr_t)s->data + (uintptr_t)at) & ~(uintptr_t)(SNAPSHOT_DATA - 1);
    int err = reserve(s->fd, SNAPSHOT_DATA + at, n);
    /* All pages at once: a fault for each of them costs several times as much. Before Linux 5.14 each page comes by a
     * fault. */
    if (!err)
        madvise((void *)begin, (uintptr_t)s->data + (uintptr_t)(at + n) - begin, MADV_POPULATE_WRITE);
    return err;
}

int snapshot_map(const char *source, int fd, int64_t bytes, struct snapshot *out)
{
    struct snapshot s = {.fd = fd, .size = (size_t)bytes + SNAPSHOT_DATA};
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS), err = 0;
    if (fstat(fd, &st) || seals < 0 || (seals & SEALS) != SEALS || (uint64_t)st.st_size != s.size)
        err = error_set(WEFT_EMISMATCH, "%s has given a file that is no snapshot of %lld bytes", source,
                        (long long)bytes);
    if (!err)
        err = map(&s, PROT_READ);
    if (!err && (s.head->magic != MAGIC || s.head->bytes != (uint64_t)bytes))
        err = error_set(WEFT_EMISMATCH, "%s has given a file that is no snapshot of this version of weft", source);
    close(fd);
    s.fd = -1;
    if (err)
        snapshot_close(&s);
    else
        *out = s;
    return err;
}

void snapshot_close(struct snapshot *s)
{
    if (s->head)
        munmap(s->head, s->size);
    forks_close(s->fd);
    *s = (struct snapshot){.fd = -1};
}

void snapshot_begin(struct snapshot *s)
{
    uint64_t g = atomic_load_explicit(&s->head->generation, memory_order_relaxed);
    atomic_store_explicit(&s->head->generation, g | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* W1, pairs with R1 */
}

uint64_t snapshot_end(struct snapshot *s)
{
    uint64_t g = atomic_load_explicit(&s->head->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&s->head->generation, g, memory_order_release); /* pairs with snapshot_is */
    return g;
}

bool snapshot_is(const struct snapshot *s, uint64_t generation)
{
    return !(generation & 1) && atomic_load_explicit(&s->head->generation, memory_order_acquire) == generation;
}

bool snapshot_still(const struct snapshot *s, uint64_t generation)
{
    atomic_thread_fence(memory_order_acquire); /* R1, pairs with W1 */
    return atomic_load_explicit(&s->head->generation, memory_order_relaxed) == generation;
}
