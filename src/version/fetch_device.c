/* The blocks that a fetch reads are cut into chunks. A chunk has loads: ranges of the parts of the publisher's ranks,
 * which the copy engine copies into the staging memory. Level c of a table has the work of chunk c: kernels scatter and
 * cast the elements into the subscriber's memory, and sum the blocks. When chunk c is on its way, the host waits for
 * chunk c - 1, whose lane is the next one's. The table serves all fetches into the same buffer from the same ranks. */
#include "version/fetch_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "layout/layout.h"
#include "version/packed.h"

#define GAP 4096 /* bytes between two loads up to which they are one copy */

struct load {
    int64_t from, bytes; /* of the part of a rank of the publisher */
    int64_t at;          /* in the staging memory */
    size_t chunk;
    int rank;
};
struct chunk {
    size_t pieces; /* before this piece all are loaded when the chunk is */
    size_t sums;   /* the first sum that is not of this chunk or an earlier one */
};
/* What is loaded of a piece. */
struct loaded {
    size_t first, end; /* loads */
    size_t sum;        /* of its first block */
};
struct work_table {
    struct device_queue *queue;
    const void *base; /* the buffer, and ... */
    int *rank;        /* ... the ranks, for which it is */
    bool sums;
    VEC(struct load) loads;
    VEC(struct chunk) chunks;
    struct loaded *pieces;
    size_t n, nsums;
    void *there;    /* the sums, on the device */
    uint64_t *told; /* the same on the host */
};
struct fetch_device {
    struct bus_device device;
    struct work_table tables[2]; /* of the buffers */
    struct device_queue *write;  /* from the buffers, which have the same memory then, into the caller's arrays */
    /* the fetch that runs: */
    struct work_table *now;
    size_t begun, loaded; /* chunks */
    struct {
        unsigned char *to;
        const unsigned char *from;
        size_t bytes;
    } copy; /* that is not queued yet */
};

/* ---- opening ---- */

int fetch_device_open(int number, struct fetch_device **out)
{
    struct fetch_device *f = calloc(1, sizeof *f);
    if (!f)
        return error_nomem();
    int err = bus_device_open("weft_subscribe", number, &f->device);
    if (err)
        free(f);
    else
        *out = f;
    return err;
}

struct bus_device *fetch_device_lanes(struct fetch_device *f)
{
    return &f->device;
}

static void drop_table(struct fetch_device *f, struct work_table *t)
{
    device_queue_free(t->queue);
    bus_device_free(&f->device, t->there);
    free(t->rank);
    free(t->loads.v);
    free(t->chunks.v);
    free(t->pieces);
    free(t->told);
    *t = (struct work_table){0};
}

void fetch_device_forget(struct fetch_device *f)
{
    for (int i = 0; f && i < 2; i++)
        drop_table(f, &f->tables[i]);
}

void fetch_device_close(struct fetch_device *f)
{
    if (!f)
        return;
    fetch_device_forget(f);
    device_queue_free(f->write);
    bus_device_close(&f->device);
    free(f);
}

/* ---- the table ---- */

/* A table that is being made. */
struct making {
    weft_subscriber *s;
    const struct subscribe_buffer *to;
    const struct schema_part *const *places;
    struct work_table *t;
    int64_t used; /* bytes of the last chunk */
};

static int next_chunk(struct making *m, size_t piece)
{
    struct work_table *t = m->t;
    if (t->chunks.n)
        t->chunks.v[t->chunks.n - 1].pieces = piece;
    struct chunk *c = vec_push(&t->chunks);
    if (!c)
        return error_nomem();
    *c = (struct chunk){piece, t->nsums};
    m->used = 0;
    return 0;
}

/* Room for `bytes` of the part from `from` on, or for as many whole blocks as the chunk has: how many, 0 if there is
 * none. *at: where. What follows the load before in the same part follows it here, too, so that one copy does both. */
static int64_t find_room(const struct making *m, int rank, int64_t from, int64_t bytes, int64_t *at)
{
    const struct work_table *t = m->t;
    const struct load *last = t->loads.n ? &t->loads.v[t->loads.n - 1] : NULL;
    *at = (m->used + SCHEMA_ALIGN - 1) / SCHEMA_ALIGN * SCHEMA_ALIGN;
    if (last && last->chunk == t->chunks.n - 1 && last->rank == rank && from >= last->from + last->bytes &&
        from - (last->from + last->bytes) <= GAP)
        *at = last->at + (from - last->from);
    int64_t room = m->s->device->device.chunk - *at;
    return room >= bytes ? bytes : room < SCHEMA_BLOCK ? 0 : room / SCHEMA_BLOCK * SCHEMA_BLOCK;
}

/* The bytes [lo, hi) of the publisher's array, which are at `at` in the staging memory of the last chunk. */
static int add_work(const struct making *m, const struct reader_piece *p, int64_t lo, int64_t hi, int64_t at)
{
    const weft_subscriber *s = m->s;
    struct work_table *t = m->t;
    size_t c = t->chunks.n - 1;
    const void *lane = s->device->device.lane[c % BUS_DEVICE_LANES].memory;
    struct bus_device_move move = {
        .base = {(uint64_t)(uintptr_t)subscribe_place(s, m->to, p->mine),
                 (uint64_t)(uintptr_t)lane + (uint64_t)(at - lo)},
        .dtype = {(int)s->mine->v[p->mine].layout->dtype, (int)s->theirs->v[p->theirs].layout->dtype},
        .cut = 1,
        .lo = lo,
        .hi = hi};
    int err = 0;
    for (size_t i = 0; i < p->nsteps && !err; i++) {
        struct memory_tile tile;
        reader_plan_tile(&p->steps[i], &tile);
        move.tile = &tile;
        move.at[0] = p->steps[i].to;
        move.at[1] = p->steps[i].from;
        err = bus_device_add(t->queue, (uint32_t)c, &move);
    }
    for (int64_t k = lo; k < hi && t->sums && !err; k += SCHEMA_BLOCK)
        err = device_queue_sum(t->queue, (uint32_t)c, (uint64_t)(uintptr_t)((uint64_t *)t->there + t->nsums++),
                               (uint64_t)(uintptr_t)lane + (uint64_t)(at + k - lo),
                               (uint32_t)min64(SCHEMA_BLOCK, hi - k));
    t->chunks.v[c].sums = t->nsums;
    return err;
}

static int add_piece(struct making *m, size_t i)
{
    struct work_table *t = m->t;
    const struct reader_piece *p = &m->s->plan.pieces[i];
    const struct schema_place *place = &m->places[t->rank[i]]->v[p->theirs];
    int err = 0;
    t->pieces[i] = (struct loaded){t->loads.n, t->loads.n, t->nsums};
    for (size_t k = 0; k < p->nruns && !err; k++) {
        int64_t lo = p->runs[k].first * SCHEMA_BLOCK, end = min64(p->runs[k].end * SCHEMA_BLOCK, place->bytes), take,
                at;
        for (; lo < end && !err; lo += take) {
            take = t->chunks.n ? find_room(m, t->rank[i], place->at + lo, end - lo, &at) : 0;
            if (!take) {
                err = next_chunk(m, i);
                take = find_room(m, t->rank[i], place->at + lo, end - lo, &at);
            }
            struct load *l = err ? NULL : vec_push(&t->loads);
            if (!l)
                return err ? err : error_nomem();
            *l = (struct load){place->at + lo, take, at, t->chunks.n - 1, t->rank[i]};
            m->used = at + take;
            err = add_work(m, p, lo, lo + take, at);
        }
    }
    t->pieces[i].end = t->loads.n;
    return err;
}

static int make_table(weft_subscriber *s, struct work_table *t, const struct subscribe_buffer *to, const int *rank,
                      const struct schema_part *const *places, bool sums)
{
    struct fetch_device *f = s->device;
    struct making m = {s, to, places, t, 0};
    size_t n = s->plan.n, blocks = 0;
    drop_table(f, t);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rank[i] >= 0 && k < s->plan.pieces[i].nruns; k++)
            blocks += (size_t)(s->plan.pieces[i].runs[k].end - s->plan.pieces[i].runs[k].first);
    *t = (struct work_table){.base = to->there, .n = n, .sums = sums, .rank = calloc(n + 1, sizeof *t->rank)};
    t->pieces = calloc(n + 1, sizeof *t->pieces);
    t->told = calloc(blocks + 1, sizeof *t->told);
    if (!t->rank || !t->pieces || !t->told)
        return error_nomem();
    memcpy(t->rank, rank, n * sizeof *rank);
    int err = bus_device_alloc(&f->device, (blocks + 1) * sizeof *t->told, "for digests", &t->there);
    if (!err)
        err = device_queue_new(f->device.device, &t->queue);
    for (size_t i = 0; i < n && !err; i++)
        if (rank[i] >= 0 && s->there[s->plan.pieces[i].mine])
            err = add_piece(&m, i);
    if (!err && t->chunks.n)
        t->chunks.v[t->chunks.n - 1].pieces = n;
    return err ? err : device_queue_close(t->queue);
}

/* ---- the caller's arrays ---- */

static int add_array(const weft_subscriber *s, size_t i, const struct subscribe_buffer *from)
{
    struct device_queue *q = s->device->write;
    const weft_layout *l = s->mine->v[i].layout;
    int64_t size = (int64_t)weft_dtype_size(l->dtype), bytes = s->part.v[i].bytes;
    struct memory_tile tile = {.loops = 1, .n = {bytes / size}, .stride = {{size}, {size}}};
    struct bus_device_move m = {
        .tile = &tile,
        .base = {(uint64_t)(uintptr_t)s->into[i], (uint64_t)(uintptr_t)subscribe_place(s, from, i)},
        .dtype = {(int)l->dtype, (int)l->dtype},
        .cut = 1,
        .hi = bytes};
    int err = 0;
    if (!l->boxes)
        return bus_device_add(q, 0, &m);
    for (struct packed_walk w = packed_begin(l, s->rank); !err && packed_next(&w);) {
        tile = packed_tile(&w, 1, size, size);
        m.at[0] = w.loose * size;
        m.at[1] = w.packed * size;
        err = bus_device_add(q, 0, &m);
    }
    return err;
}

/* The work of fetch_device_write. It is made before a version is staged, so that swap needs no memory. */
static int make_write(weft_subscriber *s, const struct subscribe_buffer *from)
{
    struct fetch_device *f = s->device;
    int err = device_queue_new(f->device.device, &f->write);
    for (size_t i = 0; i < s->mine->n && !err; i++)
        if (s->part.v[i].bytes && s->there[i])
            err = add_array(s, i, from);
    if (!err)
        err = device_queue_close(f->write);
    if (err) {
        device_queue_free(f->write);
        f->write = NULL;
    }
    return err;
}

/* ---- a fetch ---- */

int fetch_device_begin(weft_subscriber *s, const struct subscribe_buffer *to, const int *rank,
                       const struct schema_part *const *places, bool sums)
{
    struct fetch_device *f = s->device;
    struct work_table *t = &f->tables[!s->into && to == &s->buffers[1]]; /* with `into` both have the same memory */
    int err = 0;
    if (!t->queue || t->n != s->plan.n || t->sums != sums || t->base != to->there ||
        memcmp(t->rank, rank, t->n * sizeof *rank))
        err = make_table(s, t, to, rank, places, sums);
    if (!err && s->into && !s->direct && !f->write)
        err = make_write(s, to);
    if (err)
        drop_table(f, t);
    f->now = t;
    f->begun = f->loaded = 0;
    f->copy.bytes = 0;
    return err;
}

static void *stream_of(const struct fetch_device *f, size_t chunk)
{
    return f->device.lane[chunk % BUS_DEVICE_LANES].stream;
}

/* Queues the copy that was put off. It is one of chunk number `begun` - 1. */
static int queue_copy(struct fetch_device *f)
{
    size_t bytes = f->copy.bytes;
    f->copy.bytes = 0;
    return bytes ? f->device.device->ops->copy(f->device.device, stream_of(f, f->begun - 1), f->copy.to, f->copy.from,
                                               bytes)
                 : 0;
}

/* Waits for the oldest chunk that is not loaded. */
static int finish_chunk(struct fetch_device *f)
{
    struct work_table *t = f->now;
    const struct device_ops *ops = f->device.device->ops;
    size_t first = f->loaded ? t->chunks.v[f->loaded - 1].sums : 0, n = t->chunks.v[f->loaded].sums - first;
    void *stream = stream_of(f, f->loaded);
    int err =
        n ? ops->copy(f->device.device, stream, t->told + first, (uint64_t *)t->there + first, n * sizeof *t->told) : 0;
    if (!err)
        err = ops->sync(f->device.device, stream);
    f->loaded += !err;
    return err;
}

/* All loads of the last chunk are there. */
static int end_chunk(struct fetch_device *f)
{
    if (!f->begun)
        return 0;
    int err = queue_copy(f);
    if (!err)
        err = device_queue_run_level(f->now->queue, (uint32_t)(f->begun - 1), stream_of(f, f->begun - 1));
    while (!err && f->begun - f->loaded >= BUS_DEVICE_LANES)
        err = finish_chunk(f);
    return err;
}

static int add_load(struct fetch_device *f, const struct load *l, const unsigned char *part)
{
    unsigned char *to = (unsigned char *)f->device.lane[l->chunk % BUS_DEVICE_LANES].memory + l->at;
    const unsigned char *from = part + l->from;
    int err = 0;
    if (l->chunk == f->begun) {
        err = end_chunk(f);
        f->begun++;
    }
    if (!err && f->copy.bytes && to - f->copy.to == from - f->copy.from &&
        to - f->copy.to - (int64_t)f->copy.bytes <= GAP) {
        f->copy.bytes = (size_t)(to - f->copy.to) + (size_t)l->bytes;
        return 0;
    }
    if (!err)
        err = queue_copy(f);
    f->copy.to = to;
    f->copy.from = from;
    f->copy.bytes = (size_t)l->bytes;
    return err;
}

int fetch_device_piece(weft_subscriber *s, size_t piece, const unsigned char *part, bool stays, size_t *done)
{
    struct fetch_device *f = s->device;
    const struct loaded *p = &f->now->pieces[piece];
    int err = 0;
    for (size_t i = p->first; i < p->end && !err; i++)
        err = add_load(f, &f->now->loads.v[i], part);
    if (!err && !stays)
        err = queue_copy(f);
    *done = f->loaded ? f->now->chunks.v[f->loaded - 1].pieces : 0;
    return err;
}

int fetch_device_end(weft_subscriber *s)
{
    struct fetch_device *f = s->device;
    int err = end_chunk(f);
    while (!err && f->loaded < f->begun)
        err = finish_chunk(f);
    return err;
}

void fetch_device_stop(struct fetch_device *f)
{
    struct error_text kept;
    if (!f)
        return;
    error_keep(&kept);
    f->copy.bytes = 0;
    bus_device_rest(&f->device);
    error_restore(&kept);
}

const uint64_t *fetch_device_sums(const struct fetch_device *f, size_t piece)
{
    return f->now->told + f->now->pieces[piece].sum;
}

int fetch_device_write(weft_subscriber *s)
{
    struct fetch_device *f = s->device;
    int err = device_queue_run(f->write, f->device.lane[0].stream, NULL);
    int failed = bus_device_rest(&f->device);
    return err ? err : failed;
}
