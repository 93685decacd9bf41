/* Windows: making them, finding buffers in them, storing into them, and closing them. Calls that wait are in
 * window_sync.c.
 *
 * Why what was put is seen. Buffers are plain memory: put and the caller's own stores have no order among themselves.
 * Three kinds of words order them. All are written and polled seq_cst (core.h says why):
 *
 *   signals   notify is a release, by a store or by a read-modify-write. A wait that finds its comparison true has
 *             acquired it, and with it all that the notifier stored before, into any rank's memory. Adds keep the
 *             release sequence of the adds before them: a rank that waits until n ranks have added one each has
 *             acquired all n. A set from another rank ends that sequence: do not mix the two on one signal.
 *   group     each rank's arrival is one read-modify-write of one chain, so the last has acquired all. Its store of
 *             `met` passes that on to each rank that loads it.
 *   pairs     a word for each two ranks and each way: `turns` of rank a at rank b counts the barriers that a has
 *             entered with b. b leaves when the words of all its neighbours have reached its own count with them,
 *             and has acquired each. Barriers of one of the two with a third rank do not touch these words.
 *
 * Why nothing is cleared: counts only grow, 2^64 is not reached, and a rank is at most one barrier ahead of another
 * that it shares the word with, so "at least my count" is exact.
 *
 * The memory is zeroed before its place is in a vote; the meeting that makes the place known orders the zeroes before
 * any access. A second meeting comes after all ranks have compared descriptions and before the first use.
 *
 * The end: each rank drops its reference to every rank's head (a release), and the owner frees the memory when it finds
 * that the refcount is 0 (an acquire), so no rank can store into memory that was freed. */
#include "window/window.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "comm/lock.h"
#include "memory/add.h"
#include "window/remote.h"
#include "window/window_device.h"
#include "window/window_trace.h"

#define MOST ((uint64_t)1 << 62) /* bytes of a window on one rank */

/* ---- making ---- */

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

static int check_buffer(const weft_buffer *all, size_t i)
{
    const weft_buffer *b = &all[i];
    if (!b->name || !*b->name)
        return error_set(WEFT_EINVAL, "weft_window_open: buffer %zu has no name", i);
    if (!weft_dtype_size((int)b->dtype))
        return error_set(WEFT_EINVAL, "weft_window_open: buffer '%s': there is no dtype %d", b->name, (int)b->dtype);
    if (b->count < 0)
        return error_set(WEFT_EINVAL, "weft_window_open: buffer '%s' has %lld elements", b->name, (long long)b->count);
    if (b->align > WINDOW_PAGE || (b->align & (b->align - 1)))
        return error_set(WEFT_EINVAL,
                         "weft_window_open: the alignment of buffer '%s' is %zu: it must be a power of two up to %d",
                         b->name, b->align, WINDOW_PAGE);
    char what[96];
    snprintf(what, sizeof what, "weft_window_open: buffer '%.60s'", b->name);
    if (b->memory != WEFT_MEMORY_HOST && b->memory != WEFT_MEMORY_CUDA)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: windows of version %s are in host memory (WEFT_MEMORY_HOST, 0) or in that of a CUDA "
                         "device (WEFT_MEMORY_CUDA, %d), not in memory of kind %d",
                         what, weft_version_string(), WEFT_MEMORY_CUDA, b->memory);
    if (b->memory == WEFT_MEMORY_HOST && b->device)
        return error_set(WEFT_EINVAL, "%s: host memory has no device %d: set device to 0", what, b->device);
    if (b->reserved[0] || b->reserved[1])
        return error_set(WEFT_EINVAL, "%s: its reserved words are not zero: initialise it with WEFT_BUFFER_INIT", what);
    for (size_t k = 0; k < i; k++)
        if (!strcmp(all[k].name, b->name))
            return error_set(WEFT_EINVAL, "weft_window_open: buffers %zu and %zu are both called '%s'", k, i, b->name);
    return 0;
}

static int check(const weft_buffer *buffers, size_t n, int signals)
{
    if (n > INT_MAX || signals < 0 || (n && !buffers))
        return error_set(WEFT_EINVAL, "weft_window_open: %zu buffers%s and %d signals", n,
                         n && !buffers ? " at NULL" : "", signals);
    for (size_t i = 0; i < n; i++) {
        int err = check_buffer(buffers, i);
        if (err)
            return err;
    }
    return 0;
}

static void *take(weft_window *w, size_t n, size_t size)
{
    void *p = arena_alloc(&w->arena, n * size + !n);
    if (p)
        memset(p, 0, n * size);
    return p;
}

/* Places the buffers one after the other, in host memory and on the device; bytes[0] and bytes[1] are what they need
 * there. */
static int place_buffers(weft_window *w, const weft_buffer *buffers, uint64_t bytes[2])
{
    wide ends[2] = {0, 0};
    for (int i = 0; i < w->n; i++) {
        const weft_buffer *b = &buffers[i];
        const bool on_device = b->memory != WEFT_MEMORY_HOST;
        wide at = ends[on_device];
        size_t size = weft_dtype_size((int)b->dtype), name = strlen(b->name) + 1;
        uint64_t align = b->align ? b->align : CORE_LINE;
        char *copy = take(w, name, 1);
        if (!copy)
            return error_nomem();
        memcpy(copy, b->name, name);
        align = align < size ? size : align;
        at += at % (wide)align ? (wide)align - at % (wide)align : 0;
        w->buffers[i] = (struct window_buffer){copy, (int)b->dtype, size, b->count, (uint64_t)at, on_device};
        at += (wide)b->count * (wide)size;
        if (at > (wide)MOST)
            return error_set(WEFT_EUNSUPPORTED, "weft_window_open: the buffers up to '%s' have more than 2^62 bytes",
                             b->name);
        ends[on_device] = at;
    }
    bytes[0] = (uint64_t)ends[0];
    bytes[1] = (uint64_t)ends[1];
    return 0;
}

/* Of all that the user asked for. */
static uint64_t digest(const weft_window *w, const struct window_head *h)
{
    const struct window_desc *d = (const void *)((const char *)h + h->describe);
    int64_t shape[2] = {w->n, w->signals};
    uint64_t all = hash_bytes(0, shape, sizeof shape);
    for (int i = 0; i < w->n; i++) {
        const char *name = (const char *)h + d[i].name;
        int64_t desc[3] = {d[i].count, (int64_t)d[i].align, (int64_t)d[i].dtype | (int64_t)d[i].memory << 32};
        all = hash_bytes(hash_bytes(all, desc, sizeof desc), name, strlen(name) + 1);
    }
    return all;
}

/* Makes this rank's memory, with all that others will see in it. */
static int build(weft_window *w, const weft_buffer *buffers, uint64_t *place)
{
    weft_comm *c = w->comm;
    uint64_t sizes[2] = {0, 0}, names = 0;
    int err = window_device_check(w, buffers);
    err = err ? err : place_buffers(w, buffers, sizes);
    if (err)
        return err;
    const uint64_t data = sizes[0];
    for (int i = 0; i < w->n; i++)
        names += strlen(w->buffers[i].name) + 1;
    uint64_t words = (uint64_t)w->signals + (uint64_t)c->size;
    uint64_t came = sizeof(struct window_head) + words * sizeof(struct window_word);
    uint64_t let_go = came + (w->remote ? (uint64_t)c->size * sizeof(uint64_t) : 0);
    uint64_t describe = round_up(let_go + (uint64_t)c->size, _Alignof(struct window_desc));
    uint64_t front = describe + (uint64_t)w->n * sizeof(struct window_desc) + names;
    uint64_t bytes = front + WINDOW_PAGE + round_up(data, WINDOW_PAGE);
    struct window_head *h = c->transport->alloc(c->link, bytes, place);
    if (!h)
        return error_set(WEFT_ENOMEM, "weft_window_open: no memory for a window of %llu bytes",
                         (unsigned long long)data);
    comm_alloc_populate((char *)h, bytes);
    w->heads[c->rank] = h;
    h->buffers = w->n;
    h->signals = w->signals;
    h->describe = describe;
    h->came = came;
    h->let_go = let_go;
    h->data = round_up((uintptr_t)h + front, WINDOW_PAGE) - (uintptr_t)h;
    uint32_t refcount = 0;
    for (int r = 0; r < c->size; r++)
        refcount += !transport_elsewhere(c->link, r);
    atomic_store_explicit(&h->refcount, refcount, memory_order_relaxed); /* published by the meeting */
    struct window_desc *d = (struct window_desc *)(void *)((char *)h + describe);
    uint64_t name = describe + (uint64_t)w->n * sizeof *d;
    for (int i = 0; i < w->n; i++) {
        size_t len = strlen(buffers[i].name) + 1;
        d[i] = (struct window_desc){.count = buffers[i].count,
                                    .align = buffers[i].align,
                                    .name = name,
                                    .dtype = (uint32_t)buffers[i].dtype,
                                    .memory = (uint32_t)buffers[i].memory};
        memcpy((char *)h + name, buffers[i].name, len);
        name += len;
    }
    if (w->remote) {
        w->remote->bytes = data;
        w->remote->digest = digest(w, h);
    }
    for (int i = 0; i < w->n; i++)
        if (w->buffers[i].on_device)
            return window_device_make(w, buffers[i].device, sizes[1]);
    return 0;
}

/* What a window has in addition on a comm of several hosts. */
static int prepare_remote(weft_window *w)
{
    const struct transport_hosts *hosts = w->comm->link->hosts;
    size_t size = (size_t)w->comm->size;
    int err = remote_open(w->comm);
    if (err)
        return err;
    w->chair = hosts->firsts[hosts->host[w->comm->rank]];
    struct window_remote *remote = w->remote = take(w, 1, sizeof *remote);
    if (!remote || !(remote->freed = take(w, size, sizeof *remote->freed)) ||
        !(remote->told = take(w, size, sizeof *remote->told)))
        return error_nomem();
    return 0;
}

static int prepare(weft_comm *c, const weft_buffer *buffers, size_t n, int signals, weft_window **out, uint64_t *place)
{
    int err = check(buffers, n, signals);
    if (err)
        return err;
    weft_window *w = *out = calloc(1, sizeof *w);
    if (!w)
        return error_nomem();
    size_t size = (size_t)c->size;
    w->comm = c;
    w->n = (int)n;
    w->signals = signals;
    w->buffers = take(w, n, sizeof *w->buffers);
    w->heads = take(w, size, sizeof *w->heads);
    w->data = take(w, size, sizeof *w->data);
    w->turns = take(w, size, sizeof *w->turns);
    w->with = take(w, size, sizeof *w->with);
    w->deferred = malloc(sizeof *w->deferred);
    if (!w->buffers || !w->heads || !w->data || !w->turns || !w->with || !w->deferred)
        return error_nomem();
    if (remote_wide(c))
        err = prepare_remote(w);
    if (!err)
        err = window_trace_make(w);
    return err ? err : build(w, buffers, place);
}

/* Did this rank ask for the same as rank 0? */
static int compare(const struct window_head *mine, const struct window_head *zero)
{
    if (mine->buffers != zero->buffers || mine->signals != zero->signals)
        return error_set(WEFT_EMISMATCH, "its window has %d buffers and %d signals, rank 0's %d and %d", mine->buffers,
                         mine->signals, zero->buffers, zero->signals);
    const struct window_desc *a = (const void *)((const char *)mine + mine->describe);
    const struct window_desc *b = (const void *)((const char *)zero + zero->describe);
    for (int i = 0; i < mine->buffers; i++, a++, b++) {
        const char *an = (const char *)mine + a->name, *bn = (const char *)zero + b->name;
        if (a->memory != b->memory)
            return error_set(WEFT_EMISMATCH, "buffer '%.60s' of its window is in %s memory, rank 0's in %s memory", an,
                             a->memory == WEFT_MEMORY_HOST ? "host" : "device",
                             b->memory == WEFT_MEMORY_HOST ? "host" : "device");
        if (a->count != b->count || a->dtype != b->dtype || a->align != b->align || strcmp(an, bn))
            return error_set(WEFT_EMISMATCH,
                             "buffer %d of its window is '%.60s', %s, %lld elements, align %llu; rank 0's is '%.60s', "
                             "%s, %lld elements, align %llu",
                             i, an, weft_dtype_name((int)a->dtype), (long long)a->count, (unsigned long long)a->align,
                             bn, weft_dtype_name((int)b->dtype), (long long)b->count, (unsigned long long)b->align);
    }
    return 0;
}

static int connect_ranks(weft_window *w, uint64_t meeting)
{
    weft_comm *c = w->comm;
    for (int r = 0; r < c->size; r++) {
        if (transport_elsewhere(c->link, r))
            continue;
        if (r != c->rank)
            w->heads[r] = c->transport->reach(c->link, r, core_vote_of(c->group, r, meeting)->place);
        if (!w->heads[r])
            return error_set(WEFT_ETRANSPORT, "weft_window_open: the window of rank %d cannot be reached", r);
        w->data[r] = (char *)w->heads[r] + w->heads[r]->data;
    }
    if (!w->remote) {
        int err = compare(w->heads[c->rank], w->heads[0]);
        return err || !w->device ? err : window_device_connect(w);
    }
    w->remote->id = meeting + 1; /* the digests were equal */
    remote_add(w);
    return remote_tags(c);
}

/* After a refusal no rank looks at another's memory any more. After a failure of the comm some ranks may, so the group
 * keeps the memory. */
static void discard(weft_window *w)
{
    const char *text;
    if (!w)
        return;
    if (w->remote && w->remote->id)
        remote_remove(w);
    if (w->device) {
        window_device_close(w);
        if (w->device->device)
            window_device_free(w->device->device, w->device->memory);
    }
    if (w->heads && !core_failure(w->comm->group, &text))
        w->comm->transport->release(w->comm->link, w->heads[w->comm->rank]);
    free(w->deferred);
    arena_free(&w->arena);
    free(w);
}

static int create(weft_comm *c, const weft_buffer *buffers, size_t n, int signals, weft_window **out)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_window_open: not inside a callback");
    weft_window *w = NULL;
    uint64_t place = 0, meeting = 0;
    int err = c->transport->can.loads
                  ? prepare(c, buffers, n, signals, &w, &place)
                  : error_set(WEFT_EUNSUPPORTED, "weft_window_open: ranks of %s: cannot reach each other's memory",
                              c->transport->scheme);
    struct core_vote vote = {.call = COMM_WINDOW, .place = place, .code = err};
    if (!err && w->remote)
        vote.digest = w->remote->digest;
    trace_clock_listen(c);
    err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    if (!err) {
        w->task.id = meeting; /* of its track: ranks of other hosts may put before this rank has left the meetings */
        err = connect_ranks(w, meeting);
        trace_clock_align(c);
        vote = (struct core_vote){.call = COMM_WINDOW_DONE, .object = meeting, .code = err};
        err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    }
    if (err) {
        discard(w);
        return err;
    }
    window_trace_open(w);
    comm_hold(c);
    *out = w;
    return 0;
}

int weft_window_open(weft_comm *c, const weft_buffer *buffers, size_t n, int signals, weft_window **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_window_open: the comm and out must not be NULL");
    struct comm_family *f = comm_enter(c);
    int err = create(c, buffers, n, signals, out);
    comm_leave(f);
    return err;
}

/* ---- finding ---- */

int weft_window_find(const weft_window *w, const char *name, int *buffer)
{
    if (!w || !name || !buffer)
        return error_set(WEFT_EINVAL, "weft_window_find: arguments must not be NULL");
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->buffers[i].name, name)) {
            *buffer = i;
            return 0;
        }
    return error_set(WEFT_EINVAL, "weft_window_find: the window has no buffer '%s'", name);
}

static int check_place(const weft_window *w, int buffer, int rank, const char *call)
{
    if (!w)
        return error_set(WEFT_EINVAL, "%s: the window is NULL", call);
    if (buffer < 0 || buffer >= w->n)
        return error_set(WEFT_EINVAL, "%s: there is no buffer %d, the window has %d", call, buffer, w->n);
    if (rank < 0 || rank >= w->comm->size)
        return error_set(WEFT_EINVAL, "%s: there is no rank %d, the comm has %d", call, rank, w->comm->size);
    return 0;
}

void *weft_window_pointer(const weft_window *w, int buffer, int rank)
{
    if (check_place(w, buffer, rank, "weft_window_pointer"))
        return NULL;
    if (!w->data[rank]) {
        error_set(WEFT_EUNSUPPORTED,
                  "weft_window_pointer: rank %d is on another host than rank %d: weft_window_put reaches its memory",
                  rank, w->comm->rank);
        return NULL;
    }
    return (w->buffers[buffer].on_device ? w->device->data : w->data)[rank] + w->buffers[buffer].at;
}

void *weft_window_signal_pointer(const weft_window *w, int rank, int signal)
{
    if (!w || rank < 0 || rank >= w->comm->size || signal < 0 || signal >= w->signals) {
        error_set(WEFT_EINVAL, "weft_window_signal_pointer: there is no signal %d of rank %d", signal, rank);
        return NULL;
    }
    if (!w->device) {
        error_set(WEFT_EUNSUPPORTED, "weft_window_signal_pointer: the window has no buffer on a device");
        return NULL;
    }
    const char *word = (const char *)&window_signals(w->heads[rank])[signal];
    return (void *)(uintptr_t)(w->device->head[rank] + (uint64_t)(word - (const char *)w->heads[rank]));
}

/* ---- storing ---- */

static int check_put(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count,
                     const char *call)
{
    int err = check_place(w, buffer, rank, call);
    if (err)
        return err;
    const struct window_buffer *b = &w->buffers[buffer];
    if (offset < 0 || count < 0 || offset > b->count || count > b->count - offset)
        return error_set(WEFT_EINVAL, "%s: %lld elements from %lld on, buffer '%s' has %lld", call, (long long)count,
                         (long long)offset, b->name, (long long)b->count);
    if (!src && count)
        return error_set(WEFT_EINVAL, "%s: src is NULL", call);
    return comm_failure(w->comm);
}

static int put_remote(weft_window *w, const struct window_buffer *b, int rank, int64_t offset, const void *src,
                      int64_t count, int add)
{
    struct comm_family *f = comm_enter(w->comm);
    int err = remote_out_put(w, rank, b->at + (uint64_t)offset * b->size, src, (size_t)count * b->size, add);
    comm_leave(f);
    return err;
}

int weft_window_put(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count)
{
    int err = check_put(w, buffer, rank, offset, src, count, "weft_window_put");
    if (err || !count)
        return err;
    const struct window_buffer *b = &w->buffers[buffer];
    const int64_t begun = window_trace_begin(w);
    if (b->on_device)
        err = window_device_put(w, rank, b, offset, src, count);
    else if (!w->data[rank])
        err = put_remote(w, b, rank, offset, src, count, 0);
    else
        memmove(w->data[rank] + b->at + (size_t)offset * b->size, src, (size_t)count * b->size);
    window_trace_put(w, begun, rank, buffer, count * (int64_t)b->size, false);
    return err;
}

int weft_window_put_add(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count)
{
    int err = check_put(w, buffer, rank, offset, src, count, "weft_window_put_add");
    if (err)
        return err;
    const struct window_buffer *b = &w->buffers[buffer];
    if (!dtype_foldable(WEFT_SUM, b->dtype))
        return error_set(WEFT_EINVAL, "weft_window_put_add: buffer '%s' is %s, which cannot be added", b->name,
                         weft_dtype_name(b->dtype));
    const int64_t begun = window_trace_begin(w);
    if (b->on_device)
        err = window_device_add(w, rank, b, offset, src, count);
    else if (!w->data[rank])
        err = put_remote(w, b, rank, offset, src, count, b->dtype);
    else
        memory_add(w->data[rank] + b->at + (size_t)offset * b->size, src, b->dtype, (size_t)count);
    window_trace_put(w, begun, rank, buffer, count * (int64_t)b->size, true);
    return err;
}

/* ---- the end ---- */

void weft_window_close(weft_window *w)
{
    if (!w || comm_inherited(w->comm))
        return;
    weft_comm *c = w->comm;
    struct error_text kept;
    error_keep(&kept);
    struct comm_family *f = comm_enter(c);
    window_trace_close(w);
    if (w->remote) {
        remote_free(w);
    } else {
        /* All signals of this rank are ordered before this store; pairs with the loads in window_sync.c. */
        atomic_store_explicit(&w->heads[c->rank]->freed, 1, memory_order_seq_cst);
        core_ring_all(c->group);
        window_head_end(w);
    }
    comm_drop(c);
    comm_leave(f);
    error_restore(&kept);
}
