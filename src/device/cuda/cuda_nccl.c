/* NCCL's calls never block here: a communicator is opened with `blocking` = 0, and what is in progress is asked for
 * again until it is done, the group is aborted, or time runs out. */
#define _GNU_SOURCE
#include "device/cuda/cuda_nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/cuda_device.h"
#include "weft.h"

#define LIBRARY "libnccl.so.2"
#define LEAST 22800        /* the version: 2.28.0 */
#define TOGETHER 23000     /* that takes several ranks on a device */
#define LOOK_NS 20000      /* between two looks at what is in progress */
#define FLUSH_NS 100000000 /* that a rank waits for its last messages to leave, when it leaves the group */

/* ---- NCCL's documented interface ---- */

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_UINT8 = 1 };

struct nccl_id {
    char bytes[DEVICE_GROUP];
};

/* The beginning of ncclConfig_t, as it was in version 2.14. NCCL takes defaults for what is behind it. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

static struct {
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(struct nccl_id *id);
    int (*ncclCommInitRankConfig)(void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config);
    int (*ncclCommGetAsyncError)(void *comm, int *state);
    const char *(*ncclGetLastError)(void *comm);
    int (*ncclCommFinalize)(void *comm);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommAbort)(void *comm);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclSend)(const void *from, size_t n, int type, int peer, void *comm, void *stream);
    int (*ncclRecv)(void *to, size_t n, int type, int peer, void *comm, void *stream);
} nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int version;
static char name[32], problem[256]; /* problem is empty: the library can be used */

static bool find(void *library, const char *call, void *out)
{
    void *at = dlsym(library, call);
    if (!at)
        snprintf(problem, sizeof problem, "%s has no %s: version 2.28 or later is needed", LIBRARY, call);
    else
        memcpy(out, &at, sizeof at);
    return at;
}

static void open_library(void)
{
    const char *file = getenv("WEFT_NCCL");
    void *library = dlopen(file && *file ? file : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof problem, "NCCL is not found (%.200s)", file && *file ? file : LIBRARY);
        return;
    }
#define FIND(call)                         \
    if (!find(library, #call, &nccl.call)) \
        return;
    FIND(ncclGetVersion)
    FIND(ncclGetUniqueId)
    FIND(ncclCommInitRankConfig)
    FIND(ncclCommGetAsyncError)
    FIND(ncclGetLastError)
    FIND(ncclCommFinalize)
    FIND(ncclCommDestroy)
    FIND(ncclCommAbort)
    FIND(ncclGroupStart)
    FIND(ncclGroupEnd)
    FIND(ncclSend)
    FIND(ncclRecv)
#undef FIND
    if (nccl.ncclGetVersion(&version) || version < LEAST)
        snprintf(problem, sizeof problem, "NCCL has version %d.%d: 2.28 or later is needed", version / 10000,
                 version / 100 % 100);
    snprintf(name, sizeof name, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* From 2.30 on NCCL takes several ranks on one device if it is told to. */
const char *cuda_nccl_name(bool together, const char **why)
{
    const char *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    *why = "the ranks have memory on one device, and NCCL_MULTI_RANK_GPU_ENABLE is not 1";
    if (together && (!enabled || strcmp(enabled, "1") != 0))
        return NULL;
    pthread_once(&once, open_library);
    *why = *problem ? problem : "NCCL takes several ranks on one device from version 2.30 on";
    return *problem || (together && version < TOGETHER) ? NULL : name;
}

/* ---- groups ---- */

struct device_group {
    struct cuda_device *device;
    pthread_mutex_t lock; /* NCCL's calls for one communicator are made by one thread at a time */
    void *comm;           /* NULL: it was aborted */
    atomic_bool stopped;  /* whoever holds the lock gives up */
    struct device_group *next;
};

static pthread_mutex_t leaving_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_group *leaving; /* groups that are not destroyed yet, because a peer is in them */

static int report(const struct device_group *g, const char *what)
{
    const char *text = nccl.ncclGetLastError(g->comm);
    return g->device->error(WEFT_ETRANSPORT, "CUDA device %d: %s: NCCL: %s", g->device->device.number, what,
                            text && *text ? text : "an unknown error");
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What `result` becomes when it is not in progress any more. At the end of the time it is still in progress. */
static int settle(struct device_group *g, int result, int64_t ns)
{
    int64_t until = now_ns() + ns;
    while (result == NCCL_IN_PROGRESS && !atomic_load_explicit(&g->stopped, memory_order_relaxed) && now_ns() < until) {
        int failed = nccl.ncclCommGetAsyncError(g->comm, &result);
        if (failed)
            return failed;
        if (result == NCCL_IN_PROGRESS)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return result;
}

static void free_group(struct device_group *g)
{
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Destroys those that have come to an end. */
static void sweep(void)
{
    pthread_mutex_lock(&leaving_lock);
    for (struct device_group **at = &leaving, *g; (g = *at);) {
        int state = NCCL_SUCCESS;
        bool pushed;
        if (!nccl.ncclCommGetAsyncError(g->comm, &state) && state == NCCL_IN_PROGRESS) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        if (!cuda_enter(g->device, &pushed)) {
            nccl.ncclCommDestroy(g->comm);
            cuda_leave(g->device, pushed);
        }
        free_group(g);
    }
    pthread_mutex_unlock(&leaving_lock);
}

int cuda_nccl_id(struct device *device, char id[DEVICE_GROUP])
{
    struct cuda_device *d = cuda_of(device);
    struct nccl_id made;
    bool pushed;
    int e = cuda_enter(d, &pushed);
    if (e)
        return e;
    int failed = nccl.ncclGetUniqueId(&made);
    cuda_leave(d, pushed);
    if (failed) {
        const char *text = nccl.ncclGetLastError(NULL);
        return d->error(WEFT_ETRANSPORT, "NCCL makes no group: %s", text && *text ? text : "an unknown error");
    }
    memcpy(id, made.bytes, sizeof made.bytes);
    return 0;
}

int cuda_nccl_join(struct device *device, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                   struct device_group **out)
{
    struct cuda_device *d = cuda_of(device);
    struct nccl_config config = {sizeof config, 0xcafebeef, 21400, 0};
    struct nccl_id group;
    bool pushed;
    struct device_group *g = calloc(1, sizeof *g);
    if (!g)
        return d->error(WEFT_ENOMEM, "out of memory");
    g->device = d;
    pthread_mutex_init(&g->lock, NULL);
    memcpy(group.bytes, id, sizeof group.bytes);
    int e = cuda_enter(d, &pushed);
    if (!e) {
        sweep();
        int result = settle(g, nccl.ncclCommInitRankConfig(&g->comm, size, group, rank, &config), ns);
        if (result == NCCL_IN_PROGRESS)
            e = d->error(WEFT_EPEER, "CUDA device %d: not all ranks have joined a group of NCCL in time",
                         d->device.number);
        else if (result)
            e = report(g, "joining a group");
        cuda_leave(d, pushed);
    }
    if (e) {
        cuda_nccl_abort(g);
        free_group(g);
        return e;
    }
    *out = g;
    return 0;
}

static int move_all(struct device_group *g, void *stream, const struct device_message *m, size_t n)
{
    int result = nccl.ncclGroupStart();
    for (size_t i = 0; i < n && !result; i++) {
        result = m[i].sends ? nccl.ncclSend(m[i].at, m[i].bytes, NCCL_UINT8, m[i].peer, g->comm, stream)
                            : nccl.ncclRecv(m[i].at, m[i].bytes, NCCL_UINT8, m[i].peer, g->comm, stream);
        if (result == NCCL_IN_PROGRESS)
            result = NCCL_SUCCESS;
    }
    int ended = nccl.ncclGroupEnd();
    return settle(g, result ? result : ended, INT64_MAX / 4);
}

int cuda_nccl_move(struct device_group *g, void *stream, const struct device_message *messages, size_t n)
{
    bool pushed;
    int e = cuda_enter(g->device, &pushed);
    if (e)
        return e;
    pthread_mutex_lock(&g->lock);
    int result = g->comm && !g->stopped ? move_all(g, stream, messages, n) : NCCL_IN_PROGRESS;
    if (result == NCCL_IN_PROGRESS)
        e = g->device->error(WEFT_ETRANSPORT, "the group of NCCL was aborted");
    else if (result)
        e = report(g, "sending and receiving");
    pthread_mutex_unlock(&g->lock);
    cuda_leave(g->device, pushed);
    return e;
}

int cuda_nccl_health(struct device_group *g)
{
    int state = NCCL_SUCCESS, e = 0;
    if (pthread_mutex_trylock(&g->lock)) /* it is at work */
        return 0;
    if (g->comm && (nccl.ncclCommGetAsyncError(g->comm, &state) || (state && state != NCCL_IN_PROGRESS)))
        e = report(g, "sending and receiving");
    pthread_mutex_unlock(&g->lock);
    return e;
}

void cuda_nccl_abort(struct device_group *g)
{
    bool pushed;
    atomic_store_explicit(&g->stopped, true, memory_order_relaxed);
    pthread_mutex_lock(&g->lock);
    void *comm = g->comm;
    g->comm = NULL;
    pthread_mutex_unlock(&g->lock);
    if (!comm || cuda_enter(g->device, &pushed))
        return;
    nccl.ncclCommAbort(comm);
    cuda_leave(g->device, pushed);
}

/* The last messages may still be on their way to another host. NCCL is done with them when all ranks are done, and a
 * rank does not wait that long. */
void cuda_nccl_leave(struct device_group *g)
{
    bool pushed;
    if (!g->comm || cuda_enter(g->device, &pushed)) {
        free_group(g);
        return;
    }
    int result = settle(g, nccl.ncclCommFinalize(g->comm), FLUSH_NS);
    if (result == NCCL_IN_PROGRESS) {
        pthread_mutex_lock(&leaving_lock);
        g->next = leaving;
        leaving = g;
        pthread_mutex_unlock(&leaving_lock);
    } else {
        nccl.ncclCommDestroy(g->comm);
        free_group(g);
    }
    cuda_leave(g->device, pushed);
}
