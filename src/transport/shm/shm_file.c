/* The file that the ranks share: making it, and mapping it whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/shm/shm.h"

#define MAGIC UINT64_C(0x0631746665770a00) /* includes the version of the layout of all shared structures */

#define LEAST (SHM_PAGE << 4) /* a file of this size or less is of no use */

/* Makes a file without a name, for this user alone: a memfd, or a file of /dev/shm if the system has no memfd. */
static int file_open(void)
{
    int fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && fchmod(fd, 0600)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Maps the whole file at a multiple of a huge page. This takes address space only, and core dumps leave it out. */
static char *map_file(int fd, uint64_t total)
{
    char *room = mmap(NULL, total + SHM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *at = (char *)(((uintptr_t)room + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE);
    size_t before = (size_t)(at - room);
    if (before)
        munmap(room, before);
    if (SHM_PAGE - before)
        munmap(at + total, SHM_PAGE - before);
    if (mmap(at, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        munmap(at, total);
        return NULL;
    }
    madvise(at, total, MADV_DONTDUMP);
    return at;
}

/* The size of the file: four times the memory of the machine, since free parts may be scattered. It respects
 * RLIMIT_FSIZE, because the kernel kills a process that makes a file longer than that. */
static uint64_t total_bytes(void)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), total = SHM_PAGE << 10;
    struct rlimit most = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &most);
    while (total / 4 < memory)
        total *= 2;
    while (most.rlim_cur != RLIM_INFINITY && total > most.rlim_cur)
        total /= 2;
    return total;
}

void shm_file_unmap(struct shm_link *l)
{
    if (l->home->map)
        munmap(l->home->map, l->home->head->total);
    if (l->home->file >= 0)
        close(l->home->file);
    l->home->map = NULL;
    l->home->head = NULL;
    l->home->file = -1;
    l->base.group = NULL;
}

static int no_room(struct shm_link *l, const char *what, int err)
{
    shm_file_unmap(l);
    return error_set(WEFT_ENOMEM, "shm:%s: %s: %s", l->name, what, strerror(err));
}

int shm_file_create(struct shm_link *l)
{
    int size = l->base.size;
    uint64_t total = total_bytes();
    uint64_t core =
        (sizeof(struct shm_head) + (uint64_t)size * sizeof(struct shm_process) + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    l->home->file = file_open();
    if (l->home->file < 0)
        return no_room(l, "a memfd cannot be made", errno);
    while (total > LEAST && !(l->home->map = map_file(l->home->file, total)))
        total /= 2;
    if (total <= LEAST)
        return no_room(l, "no address space, or no file of the size (ulimit -v, ulimit -f)", ENOMEM);
    l->home->head = (struct shm_head *)(void *)l->home->map; /* it is not touched before it is backed */
    int err = ftruncate(l->home->file, (off_t)total) || !shm_heap_back(l, 0, core + core_bytes(size)) ? errno : 0;
    if (err) {
        munmap(l->home->map, total);
        l->home->map = NULL;
        return no_room(l, "no memory for the group", err);
    }
    /* No rank can make the file shorter, so no access can end beyond it. A file of /dev/shm cannot be sealed. */
    fcntl(l->home->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    l->home->head->magic = MAGIC;
    l->home->head->total = total;
    l->home->head->core = core;
    atomic_store_explicit(&l->home->head->top, (core + core_bytes(size) + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE,
                          memory_order_relaxed); /* relaxed: the sockets publish it */
    l->base.group = (struct core_group *)(void *)(l->home->map + core);
    core_init(l->base.group, size, true);
    return 0;
}

int shm_file_attach(struct shm_link *l)
{
    struct stat s;
    if (fstat(l->home->file, &s))
        return no_room(l, "the group's file cannot be looked at", errno);
    l->home->map = map_file(l->home->file, (uint64_t)s.st_size);
    if (!l->home->map)
        return no_room(l, "the group's file cannot be mapped (ulimit -v)", errno);
    l->home->head = (struct shm_head *)(void *)l->home->map;
    if (l->home->head->magic != MAGIC || l->home->head->total != (uint64_t)s.st_size) {
        munmap(l->home->map, (size_t)s.st_size);
        l->home->map = NULL;
        shm_file_unmap(l);
        return error_set(WEFT_EMISMATCH, "shm:%s: the others use another version of weft", l->name);
    }
    l->base.group = (struct core_group *)(void *)(l->home->map + l->home->head->core);
    return 0;
}
