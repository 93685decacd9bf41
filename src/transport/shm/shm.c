/* The transport shm:NAME: the file that the ranks share, memory in it, and whether a peer is alive. */
#define _GNU_SOURCE
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"

#define MAGIC UINT64_C(0x0331746665770a00) /* with the version of the layout of all that is shared */

#define LEAST (SHM_PAGE << 4) /* bytes of a file that would not be worth it */

/* ---- the file ---- */

/* A file without a name, for this user alone. Where there are no memfds, /dev/shm has such files, too. */
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

/* Maps the whole file at a multiple of the huge page. It is address space alone, and no part of a core dump. */
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

/* Four times the memory that there is: parts that were given back may be scattered. A process that makes a file longer
 * than it may is killed for it. */
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

void shm_unmap(struct shm_link *l)
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
    shm_unmap(l);
    return error_set(WEFT_ENOMEM, "shm:%s: %s: %s", l->name, what, strerror(err));
}

int shm_create(struct shm_link *l)
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
    l->home->head = (struct shm_head *)(void *)l->home->map; /* not touched before it is backed */
    int err = ftruncate(l->home->file, (off_t)total) || !shm_heap_back(l, 0, core + core_bytes(size)) ? errno : 0;
    if (err) {
        munmap(l->home->map, total);
        l->home->map = NULL;
        return no_room(l, "no memory for the group", err);
    }
    /* Nobody can make the file shorter, so nobody's access can end beyond it. A file of /dev/shm has no such seals. */
    fcntl(l->home->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    l->home->head->magic = MAGIC;
    l->home->head->total = total;
    l->home->head->core = core;
    atomic_store_explicit(&l->home->head->top, (core + core_bytes(size) + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE,
                          memory_order_relaxed); /* published by the sockets */
    l->base.group = (struct core_group *)(void *)(l->home->map + core);
    core_init(l->base.group, size, true);
    return 0;
}

int shm_attach(struct shm_link *l)
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
        shm_unmap(l);
        return error_set(WEFT_EMISMATCH, "shm:%s: the others use another version of weft", l->name);
    }
    l->base.group = (struct core_group *)(void *)(l->home->map + l->home->head->core);
    l->home->head->process[l->base.rank].map = (uintptr_t)l->home->map;
    return 0;
}

/* ---- joining ---- */

static struct shm_home *home_new(int size)
{
    struct shm_home *h = calloc(1, sizeof *h);
    int *watch = malloc((size_t)size * sizeof *watch);
    if (!h || !watch) {
        free(h);
        free(watch);
        return NULL;
    }
    for (int r = 0; r < size; r++)
        watch[r] = -1;
    h->ranks = size;
    h->watch = watch;
    h->file = -1;
    h->links = 1;
    return h;
}

static int shm_join(const struct transport_ask *ask, struct transport_link **out)
{
    const char *place = ask->place;
    int rank = ask->rank, size = ask->size;
    if (strlen(place) > SHM_NAME)
        return error_set(WEFT_EINVAL, "shm:%s: the name has more than %d letters", place, SHM_NAME);
    if (!*place)
        return error_set(WEFT_EINVAL, "shm: has no name here; weft run makes one for the ranks that it starts");
    if (size < 1)
        return error_set(WEFT_EINVAL,
                         "shm:%s: how many ranks there are is not known: set ranks and rank, or start with weft run",
                         place);
    if (size > SHM_RANKS)
        return error_set(WEFT_EUNSUPPORTED, "shm:%s: at most %d ranks, not %d", place, SHM_RANKS, size);
    if (rank < 0 || rank >= size)
        return error_set(WEFT_EINVAL, "shm:%s: there is no rank %d among %d", place, rank, size);
    struct shm_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_nomem();
    l->base = (struct transport_link){.transport = &transport_shm, .rank = rank, .size = size};
    l->claim = -1;
    snprintf(l->name, sizeof l->name, "%s", place);
    l->home = home_new(size);
    int err = l->home ? shm_meet(l, ask->wait_ns) : error_nomem();
    if (err)
        shm_link_free(l);
    else
        *out = &l->base;
    return err;
}

/* ---- memory ---- */

static void *shm_room(struct transport_link *base, size_t bytes, uint64_t *place)
{
    struct shm_link *l = (struct shm_link *)base;
    shm_sweep(l->home);
    *place = shm_heap_take(l, bytes);
    return *place ? l->home->map + *place : NULL;
}

static bool shm_back(struct transport_link *base, const void *memory, size_t bytes)
{
    struct shm_link *l = (struct shm_link *)base;
    return shm_heap_back(l, (uint64_t)((const char *)memory - l->home->map), bytes);
}

static void shm_release(struct transport_link *base, void *memory)
{
    struct shm_link *l = (struct shm_link *)base;
    if (memory)
        shm_heap_give(l, (uint64_t)((char *)memory - l->home->map));
}

static void *shm_alloc(struct transport_link *base, size_t bytes, uint64_t *place)
{
    char *memory = shm_room(base, bytes, place);
    if (memory && !shm_back(base, memory, bytes)) {
        shm_release(base, memory);
        return NULL;
    }
    if (memory && shm_heap_small(bytes))
        memset(memory, 0, bytes); /* others have been there; in a large one there is a hole */
    return memory;
}

static bool shm_offer(struct transport_link *base, const void *memory, size_t bytes, uint64_t *place)
{
    struct shm_link *l = (struct shm_link *)base;
    uint64_t at = (uint64_t)((uintptr_t)memory - (uintptr_t)l->home->map);
    if (at >= l->home->head->total || bytes > l->home->head->total - at)
        return false;
    *place = at;
    return true;
}

static void *shm_reach(struct transport_link *base, int rank, uint64_t place)
{
    (void)rank;
    return ((struct shm_link *)base)->home->map + place;
}

/* ---- who is alive ---- */

/* Asks /proc, which costs more than a pidfd: when that is made, so that it is of the right process, and where there is
 * none to be had. */
static bool has_ended(const struct shm_process *p)
{
    bool zombie = false;
    uint64_t start = process_start(p->pid, &zombie);
    if (start)
        return zombie || (p->start && start != p->start);
    return kill((pid_t)p->pid, 0) && errno == ESRCH;
}

bool shm_has_died(struct shm_link *l, int rank)
{
    const struct shm_process *p = &l->home->head->process[shm_process_of(l, rank)];
    int *fd = &l->home->watch[shm_process_of(l, rank)];
    if (*fd == -1) {
        int found = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
        bool ended = has_ended(p);
        if (ended && found >= 0) /* of whoever has the number now; /proc tells them apart */
            close(found);
        *fd = ended || found < 0 ? -2 : found;
        return ended;
    }
    if (*fd == -2)
        return has_ended(p);
    struct pollfd ask = {.fd = *fd, .events = POLLIN};
    return poll(&ask, 1, 0) > 0 && ask.revents & POLLIN;
}

static enum transport_fate shm_gone(struct transport_link *base, int rank)
{
    const _Atomic uint32_t *state = &base->group->ranks[rank].state;
    if (atomic_load_explicit(state, memory_order_seq_cst) >= CORE_LEFT)
        return TRANSPORT_LEFT;
    if (!shm_has_died((struct shm_link *)base, rank))
        return TRANSPORT_HERE;
    /* It may have left before it ended. */
    return atomic_load_explicit(state, memory_order_seq_cst) >= CORE_LEFT ? TRANSPORT_LEFT : TRANSPORT_DIED;
}

const struct transport transport_shm = {.scheme = "shm",
                                        .form = "shm:NAME",
                                        .can = {.loads = true, .deaths = true, .crosses = true},
                                        .join = shm_join,
                                        .split = shm_split,
                                        .leave = shm_leave,
                                        .alloc = shm_alloc,
                                        .room = shm_room,
                                        .back = shm_back,
                                        .release = shm_release,
                                        .offer = shm_offer,
                                        .reach = shm_reach,
                                        .crosses = shm_crosses,
                                        .worth = shm_worth,
                                        .cross = shm_cross,
                                        .gone = shm_gone};
