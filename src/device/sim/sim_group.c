/* A group is a memory file that all its ranks map: for each rank and each other one a box, through which the messages
 * from the one to the other go piece by piece. The rank that made the id keeps the file open until it leaves, and the
 * others find it in /proc. */
#define _GNU_SOURCE
#include "device/sim/sim_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/sim/sim_stream.h"

#define RANKS_MOST 64
#define PIECE 4096    /* bytes of a box */
#define LOOK_NS 20000 /* between two looks that find nothing */

/* `in` pieces were put in by the sender, and `out` of them taken out by the receiver: the box is empty if both are the
 * same. Each is written by one rank with release, and read by the other with acquire. */
struct box {
    _Alignas(64) _Atomic uint64_t in;
    _Alignas(64) _Atomic uint64_t out;
    _Alignas(64) char piece[PIECE];
};

struct table {
    _Alignas(64) _Atomic int32_t joined;
    struct box boxes[]; /* from each rank to each */
};

struct id {
    int64_t pid;
    int32_t file;
};

/* Messages that go at the same time. */
struct move {
    struct move *next;
    struct device_group *group;
    size_t n;
    bool kept;        /* a graph may do it again */
    atomic_bool over; /* it was done */
    struct device_message messages[];
};

struct device_group {
    struct sim_device *device;
    struct table *table;
    size_t bytes;
    int rank, size, file; /* file: of the rank that made the id; otherwise -1 */
    atomic_bool stopped;
    pthread_mutex_t lock; /* guards the list */
    struct move *moves;
};

static bool is_set(const char *value)
{
    const char *set = getenv("WEFT_SIM_NCCL");
    return set && !strcmp(set, value);
}

const char *sim_group_name(bool together, const char **why)
{
    (void)together;
    *why = "the simulated device has groups only with WEFT_SIM_NCCL=1";
    return is_set("1") || is_set("2") ? "a simulation of NCCL" : NULL;
}

static size_t table_bytes(int size)
{
    return sizeof(struct table) + (size_t)size * (size_t)size * sizeof(struct box);
}

int sim_group_id(struct device *device, char id[DEVICE_GROUP])
{
    struct sim_device *d = sim_device_of(device);
    int err = sim_device_check(d);
    int file = err ? -1 : memfd_create("weft_sim_group", MFD_CLOEXEC);
    if (!err && file < 0)
        return d->error(WEFT_ENOMEM, "no memory file for a group of simulated devices");
    struct id made = {getpid(), file};
    memset(id, 0, DEVICE_GROUP);
    memcpy(id, &made, sizeof made);
    return err;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool wait_for_all(struct device_group *g, int64_t ns)
{
    int64_t until = now_ns() + ns;
    atomic_fetch_add_explicit(&g->table->joined, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&g->table->joined, memory_order_acquire) < g->size) {
        if (now_ns() > until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return true;
}

static int map_table(struct device_group *g, const struct id *id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)id->pid, id->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    g->bytes = table_bytes(g->size);
    void *at = file < 0 || ftruncate(file, (off_t)g->bytes)
                   ? MAP_FAILED
                   : mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (at == MAP_FAILED)
        return g->device->error(WEFT_ETRANSPORT, "the group of simulated devices is not found");
    g->table = at;
    return 0;
}

int sim_group_join(struct device *device, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                   struct device_group **out)
{
    struct sim_device *d = sim_device_of(device);
    struct id made;
    memcpy(&made, id, sizeof made);
    int err = sim_device_check(d);
    if (!err && rank == 1 && is_set("2"))
        err = d->error(WEFT_ETRANSPORT, "rank 1 does not join, as WEFT_SIM_NCCL=2 asks for");
    if (!err && size > RANKS_MOST)
        err = d->error(WEFT_EUNSUPPORTED, "a group of simulated devices has at most %d ranks", RANKS_MOST);
    struct device_group *g = err ? NULL : calloc(1, sizeof *g);
    if (!g)
        return err ? err : d->error(WEFT_ENOMEM, "out of memory");
    g->device = d;
    g->rank = rank;
    g->size = size;
    g->file = rank == 0 && made.pid == getpid() ? made.file : -1;
    pthread_mutex_init(&g->lock, NULL);
    err = map_table(g, &made);
    if (!err && !wait_for_all(g, ns))
        err = d->error(WEFT_EPEER, "not all ranks have joined the group of simulated devices in time");
    if (err) {
        sim_group_leave(g, 0);
        return err;
    }
    *out = g;
    return 0;
}

/* ---- messages ---- */

static struct box *box_of(const struct device_group *g, const struct device_message *m)
{
    int from = m->sends ? g->rank : m->peer, to = m->sends ? m->peer : g->rank;
    return &g->table->boxes[from * g->size + to];
}

/* The next piece of a message of which `done` bytes have gone. Returns how many bytes went. */
static size_t go_on(struct sim_view *view, const struct device_group *g, const struct device_message *m, size_t done)
{
    struct box *b = box_of(g, m);
    size_t n = m->bytes - done < PIECE ? m->bytes - done : PIECE;
    uint64_t in = atomic_load_explicit(&b->in, memory_order_acquire),
             out = atomic_load_explicit(&b->out, memory_order_acquire);
    if (m->sends ? in != out : in == out)
        return 0;
    char *at = sim_work_at(view, (const char *)m->at + done, n);
    if (m->sends) {
        memcpy(b->piece, at, n);
        atomic_store_explicit(&b->in, in + 1, memory_order_release);
    } else {
        memcpy(at, b->piece, n);
        atomic_store_explicit(&b->out, out + 1, memory_order_release);
    }
    return n;
}

/* Is there an earlier message of the same box that is not done? */
static bool behind(const struct move *m, const size_t *done, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (done[k] < m->messages[k].bytes && m->messages[k].peer == m->messages[i].peer &&
            m->messages[k].sends == m->messages[i].sends)
            return true;
    return false;
}

static bool go_on_all(struct sim_view *view, const struct move *m, size_t *done, bool *moved)
{
    bool over = true;
    *moved = false;
    for (size_t i = 0; i < m->n; i++) {
        if (done[i] == m->messages[i].bytes)
            continue;
        size_t n = behind(m, done, i) ? 0 : go_on(view, m->group, &m->messages[i], done[i]);
        done[i] += n;
        *moved |= n > 0;
        over &= done[i] == m->messages[i].bytes;
    }
    return over;
}

/* The kernel of a move. `done` of each message is behind the messages. */
static void do_move(struct sim_view *view, void *arg)
{
    struct move *m = arg;
    const struct device_group *g = m->group;
    size_t *done = (size_t *)(void *)(m->messages + m->n);
    bool moved;
    memset(done, 0, m->n * sizeof *done);
    while (!go_on_all(view, m, done, &moved)) {
        if (sim_device_state(g->device) != SIM_WORKS || atomic_load_explicit(&g->stopped, memory_order_relaxed))
            break;
        if (!moved)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    atomic_store_explicit(&m->over, true, memory_order_release);
}

/* Frees the moves that were done, or all. */
static void free_moves(struct device_group *g, bool all)
{
    for (struct move **at = &g->moves, *m; (m = *at);) {
        if (all || (!m->kept && atomic_load_explicit(&m->over, memory_order_acquire))) {
            *at = m->next;
            free(m);
        } else {
            at = &m->next;
        }
    }
}

int sim_group_move(struct device_group *g, void *stream, const struct device_message *messages, size_t n)
{
    struct sim_device *d = g->device;
    bool capturing;
    int err = sim_stream_capturing(&d->device, stream, &capturing);
    struct move *m = err ? NULL : calloc(1, sizeof *m + n * (sizeof *messages + sizeof(size_t)));
    if (!m)
        return err ? err : d->error(WEFT_ENOMEM, "out of memory");
    m->group = g;
    m->n = n;
    m->kept = capturing;
    memcpy(m->messages, messages, n * sizeof *messages);
    pthread_mutex_lock(&g->lock);
    free_moves(g, false);
    m->next = g->moves;
    g->moves = m;
    pthread_mutex_unlock(&g->lock);
    return sim_stream_add(&d->device, stream, sim_work_kernel(do_move, m));
}

int sim_group_health(struct device_group *g)
{
    return sim_device_check(g->device);
}

void sim_group_abort(struct device_group *g)
{
    atomic_store_explicit(&g->stopped, true, memory_order_relaxed);
}

void sim_group_leave(struct device_group *g, int64_t ns)
{
    (void)ns;
    free_moves(g, true);
    if (g->table)
        munmap(g->table, g->bytes);
    if (g->file >= 0)
        close(g->file);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
