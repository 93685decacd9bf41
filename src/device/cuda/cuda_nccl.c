/* A communicator is a blocking one: NCCL starts a thread for each group of messages of another kind, which takes 100
 * us. So its calls that wait for peers are made by a thread of this file, beside the caller's, which waits for it no
 * longer than a time that is given: joining, the first messages, by which ranks connect, and leaving. */
#define _GNU_SOURCE
#include "device/cuda/cuda_nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "device/cuda/cuda_device.h"
#include "weft.h"

#define LIBRARY "libnccl.so.2"
#define LEAST 22800    /* the version: 2.28.0 */
#define TOGETHER 23000 /* that takes several ranks on a device */

/* ---- NCCL's documented interface ---- */

enum { NCCL_SUCCESS = 0, NCCL_UINT8 = 1 };
enum { NCCL_ERROR = 1000, NCCL_LATE }; /* of this file: a call was not made; it has not returned yet */

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
    const char *file = secure_getenv("WEFT_NCCL");
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
    int rank, size;
    struct nccl_id id;
    int64_t ns;       /* for which a call waits for peers */
    atomic_int users; /* the rank that has joined, and threads that are at work; the last one frees it */
    /* The communicator; NULL: there is none any more. Whoever takes it out ends it. A thread that waits inside of NCCL
     * goes on, with an error, when another one aborts it. */
    _Atomic(void *) comm;
    pthread_mutex_t moves; /* messages are queued by one thread at a time; guards: */
    bool connected;        /* the first messages have gone */
    pthread_mutex_t ends;  /* a communicator is not asked for its health while it is ended */
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int report(const struct device_group *g, int result, const char *what)
{
    const char *text = result == NCCL_ERROR ? "no memory, or no thread" : nccl.ncclGetLastError(NULL);
    return g->device->error(WEFT_ETRANSPORT, "CUDA device %d: %s: NCCL: %s", g->device->device.number, what,
                            text && *text ? text : "an unknown error");
}

/* The last user destroys the communicator if nobody has. */
static void drop(struct device_group *g)
{
    if (atomic_fetch_sub_explicit(&g->users, 1, memory_order_acq_rel) > 1)
        return;
    void *comm = atomic_exchange(&g->comm, NULL);
    if (comm)
        nccl.ncclCommAbort(comm);
    pthread_mutex_destroy(&g->moves);
    pthread_mutex_destroy(&g->ends);
    free(g);
}

/* What a thread does beside the caller. Both hold it; the last one frees it. */
struct beside {
    struct device_group *group;
    int (*body)(struct device_group *g, const struct beside *b);
    void *comm, *stream;
    const struct device_message *messages; /* a copy, behind this struct */
    size_t n;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done, left; /* guarded by the lock: the body has come to its end; the caller waits no more */
    int result;
};

static void *serve(void *arg)
{
    struct beside *b = arg;
    struct device_group *g = b->group;
    struct cuda_device *d = g->device;
    bool pushed;
    int result = cuda_enter(d, &pushed) ? NCCL_ERROR : b->body(g, b);
    pthread_mutex_lock(&b->lock);
    b->result = result;
    b->done = true;
    bool left = b->left;
    pthread_cond_signal(&b->over);
    pthread_mutex_unlock(&b->lock);
    if (left)
        free(b);
    drop(g);
    cuda_leave(d, pushed);
    return NULL;
}

/* Does it in a thread, for which the caller waits at most ns. NCCL_LATE: it goes on. */
static int do_beside(struct device_group *g, int (*body)(struct device_group *g, const struct beside *b), int64_t ns,
                     void *stream, const struct device_message *messages, size_t n)
{
    struct beside *b = calloc(1, sizeof *b + n * sizeof *messages);
    if (!b)
        return NCCL_ERROR;
    *b = (struct beside){
        .group = g, .body = body, .comm = atomic_load(&g->comm), .stream = stream, .messages = (void *)(b + 1), .n = n};
    if (n)
        memcpy(b + 1, messages, n * sizeof *messages);
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->over, &attr);
    pthread_condattr_destroy(&attr);
    atomic_fetch_add_explicit(&g->users, 1, memory_order_relaxed);
    if (thread_start_detached(serve, b)) {
        atomic_fetch_sub_explicit(&g->users, 1, memory_order_relaxed);
        free(b);
        return NCCL_ERROR;
    }
    int64_t until = now_ns() + ns;
    const struct timespec at = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&b->lock);
    while (!b->done && !pthread_cond_timedwait(&b->over, &b->lock, &at)) {
    }
    bool done = b->done;
    int result = done ? b->result : NCCL_LATE;
    b->left = true;
    pthread_mutex_unlock(&b->lock);
    if (done)
        free(b);
    return result;
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

static int join_group(struct device_group *g, const struct beside *b)
{
    struct nccl_config config = {sizeof config, 0xcafebeef, 21400, 1};
    (void)b;
    void *comm = NULL;
    int result = nccl.ncclCommInitRankConfig(&comm, g->size, g->id, g->rank, &config);
    atomic_store(&g->comm, comm);
    return result;
}

int cuda_nccl_join(struct device *device, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                   struct device_group **out)
{
    struct cuda_device *d = cuda_of(device);
    struct device_group *g = calloc(1, sizeof *g);
    if (!g)
        return d->error(WEFT_ENOMEM, "out of memory");
    *g = (struct device_group){.device = d, .rank = rank, .size = size, .ns = ns, .users = 1};
    memcpy(g->id.bytes, id, sizeof g->id.bytes);
    pthread_mutex_init(&g->moves, NULL);
    pthread_mutex_init(&g->ends, NULL);
    int result = do_beside(g, join_group, ns, NULL, NULL, 0), e = 0;
    if (result == NCCL_LATE)
        e = d->error(WEFT_EPEER, "CUDA device %d: not all ranks have joined a group of NCCL in time", d->device.number);
    else if (result)
        e = report(g, result, "joining a group");
    if (e)
        drop(g);
    else
        *out = g;
    return e;
}

static int move_all(struct device_group *g, const struct beside *b)
{
    (void)g;
    int result = nccl.ncclGroupStart();
    for (size_t i = 0; i < b->n && !result; i++) {
        const struct device_message *m = &b->messages[i];
        result = m->sends ? nccl.ncclSend(m->at, m->bytes, NCCL_UINT8, m->peer, b->comm, b->stream)
                          : nccl.ncclRecv(m->at, m->bytes, NCCL_UINT8, m->peer, b->comm, b->stream);
    }
    int ended = nccl.ncclGroupEnd();
    return result ? result : ended;
}

/* Takes the communicator out and aborts it; the context is entered. */
static void abort_comm(struct device_group *g)
{
    pthread_mutex_lock(&g->ends);
    void *comm = atomic_exchange(&g->comm, NULL);
    if (comm)
        nccl.ncclCommAbort(comm);
    pthread_mutex_unlock(&g->ends);
}

int cuda_nccl_move(struct device_group *g, void *stream, const struct device_message *messages, size_t n)
{
    const struct beside now = {.comm = atomic_load(&g->comm), .stream = stream, .messages = messages, .n = n};
    bool pushed;
    int e = cuda_enter(g->device, &pushed);
    if (e)
        return e;
    pthread_mutex_lock(&g->moves);
    int result = !now.comm      ? NCCL_ERROR
                 : g->connected ? move_all(g, &now)
                                : do_beside(g, move_all, g->ns, stream, messages, n);
    g->connected |= !result;
    if (result == NCCL_LATE) {
        abort_comm(g); /* the thread comes to its end */
        e = g->device->error(WEFT_EPEER, "CUDA device %d: a rank did not connect in time by NCCL",
                             g->device->device.number);
    } else if (result && !atomic_load(&g->comm)) {
        e = g->device->error(WEFT_ETRANSPORT, "CUDA device %d: the group of NCCL was aborted",
                             g->device->device.number);
    } else if (result) {
        e = report(g, result, "sending and receiving");
    }
    pthread_mutex_unlock(&g->moves);
    cuda_leave(g->device, pushed);
    return e;
}

int cuda_nccl_health(struct device_group *g)
{
    int state = NCCL_SUCCESS, e = 0;
    if (pthread_mutex_trylock(&g->ends)) /* it is being ended */
        return 0;
    void *comm = atomic_load(&g->comm);
    if (comm && (nccl.ncclCommGetAsyncError(comm, &state) || state))
        e = report(g, state, "sending and receiving");
    pthread_mutex_unlock(&g->ends);
    return e;
}

void cuda_nccl_abort(struct device_group *g)
{
    bool pushed;
    if (cuda_enter(g->device, &pushed)) /* the device has failed, and nothing waits on it any more */
        return;
    abort_comm(g);
    cuda_leave(g->device, pushed);
}

/* NCCL is done with the last messages when all ranks of the host are done, and a rank does not wait that long. */
static int leave_group(struct device_group *g, const struct beside *b)
{
    (void)b;
    void *comm = atomic_exchange(&g->comm, NULL);
    return comm ? nccl.ncclCommDestroy(comm) : NCCL_SUCCESS;
}

void cuda_nccl_leave(struct device_group *g, int64_t ns)
{
    if (atomic_load(&g->comm))
        do_beside(g, leave_group, ns, NULL, NULL, 0);
    drop(g);
}
