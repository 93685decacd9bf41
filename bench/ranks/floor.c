/* Collectives by hand; see floor.h.
 *
 * A collective has three steps: all ranks are ready, each rank pulls from the owners, all ranks are done. Small ones (4
 * KiB) go through slots that alternate and need only one synchronisation. */
#define _GNU_SOURCE
#include "bench/ranks/floor.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/work/matrix.h"

enum { SMALL = 4096, LINE = 128, YIELDS = 20, BLOCK = 8192 };
#define SPINS 10000 /* a rank that spins for longer waits for a rank that has no core, because other programs run */

struct line {
    _Alignas(LINE) _Atomic uint32_t v;
};

struct control {
    struct line count, sense, sleepers, ping[2];
    char slot[2][ORDERS_RANKS][2 * SMALL];
    char letter[2][SMALL];
};

struct floor {
    struct control *c;
    int me, ranks;
    enum floor_wait wait;
    bool staged;
    size_t in_cap, out_cap;
    char *in[ORDERS_RANKS], *out[ORDERS_RANKS];
    char *own_in, *own_out; /* private: staged runs and memory tests */
    size_t own_in_bytes, own_out_bytes;
    uint32_t epoch, slots, pings;
    struct work_cell cell;
    struct matrix matrix;   /* reshard */
    struct matrix *tensors; /* many */
};

static float *floats(char *p)
{
    return (float *)(void *)p;
}

static void *map(size_t n, int how)
{
    void *p = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

static void relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until *a is no longer `old`. The acquire pairs with the release of the rank that changes it. */
static void await_change(struct floor *f, _Atomic uint32_t *a, uint32_t old)
{
    for (unsigned i = 0; atomic_load_explicit(a, memory_order_acquire) == old; i++) {
        if (f->wait == FLOOR_SPIN && i < SPINS) {
            relax();
        } else if (f->wait != FLOOR_HYBRID || i < YIELDS) {
            sched_yield();
        } else {
            atomic_fetch_add_explicit(&f->c->sleepers.v, 1, memory_order_seq_cst);
            syscall(SYS_futex, a, FUTEX_WAIT, old, NULL, NULL, 0);
            atomic_fetch_sub_explicit(&f->c->sleepers.v, 1, memory_order_relaxed);
        }
    }
}

/* The store and the load of sleepers are sequentially consistent, and so is the sleeper's add: either this rank sees
 * the sleeper, or the kernel finds that the word has changed. */
static void change(struct floor *f, _Atomic uint32_t *a, uint32_t v)
{
    atomic_store_explicit(a, v, memory_order_seq_cst);
    if (f->wait == FLOOR_HYBRID && atomic_load_explicit(&f->c->sleepers.v, memory_order_seq_cst))
        syscall(SYS_futex, a, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void barrier(struct floor *f)
{
    uint32_t s = f->epoch++;
    if (atomic_fetch_add_explicit(&f->c->count.v, 1, memory_order_acq_rel) + 1 == (uint32_t)f->ranks) {
        atomic_store_explicit(&f->c->count.v, 0, memory_order_relaxed);
        change(f, &f->c->sense.v, s + 1);
    } else {
        await_change(f, &f->c->sense.v, s);
    }
}

static void add(float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}

/* d = the sum over ranks of src[r] + off, in blocks that stay in the first cache. */
static void sum_all(const struct floor *f, char *d, char *const *src, size_t off, size_t bytes)
{
    for (size_t b = 0; b < bytes; b += BLOCK) {
        size_t m = bytes - b < BLOCK ? bytes - b : BLOCK;
        memcpy(d + b, src[0] + off + b, m);
        for (int r = 1; r < f->ranks; r++)
            add((float *)(void *)(d + b), (const float *)(const void *)(src[r] + off + b), m / sizeof(float));
    }
}

/* ---- rows to columns ---- */

static void reshard(struct floor *f, bool push)
{
    const struct matrix *m = &f->matrix;
    size_t me = (size_t)f->me;
    push = push && !f->staged;
    if (f->staged && me < m->k)
        memcpy(f->in[me], f->own_in, m->height * m->columns * sizeof(float));
    barrier(f);
    if (push && me < m->k)
        matrix_spread(m, me, floats(f->in[me]), f->out + m->first);
    for (size_t i = 0; !push && me >= m->first && i < m->k; i++) {
        size_t from = (me + i) % m->k;
        matrix_move(m, from, me - m->first, floats(f->in[from]), f->staged ? f->own_out : f->out[me]);
    }
    barrier(f);
}

static void many(struct floor *f, bool push)
{
    size_t n = (size_t)f->ranks, me = (size_t)f->me, at = 0;
    char *to = f->staged ? f->own_out : f->out[me], *out[ORDERS_RANKS];
    push = push && !f->staged;
    if (f->staged)
        memcpy(f->in[me], f->own_in, (size_t)f->cell.bytes / n);
    barrier(f);
    for (int t = 0; t < f->cell.tensors; t++) {
        const struct matrix *m = &f->tensors[t];
        for (size_t i = 0; i < n && !push; i++)
            matrix_move(m, (me + i) % n, me, floats(f->in[(me + i) % n] + at), to + at);
        for (size_t i = 0; i < n && push; i++)
            out[i] = f->out[i] + at;
        if (push)
            matrix_spread(m, me, floats(f->in[me] + at), out);
        at += m->height * m->columns * sizeof(float);
    }
    barrier(f);
}

/* ---- collectives ---- */

/* Makes every rank's input reachable: in src[], by slot or by window. */
static void publish(struct floor *f, bool small, char **src)
{
    enum work_op op = f->cell.op;
    size_t in, out, S = (size_t)work_count(&f->cell) * 4;
    work_sizes(&f->cell, f->me, f->ranks, &in, &out);
    const char *from = op == WORK_BROADCAST ? (f->staged ? f->own_out : f->out[f->me])
                       : f->staged          ? f->own_in
                                            : f->in[f->me];
    bool gives = op != WORK_BROADCAST || f->me == 0;
    size_t n = op == WORK_BROADCAST ? S : in;
    uint32_t p = f->slots & 1;
    if (small) {
        f->slots++;
        if (gives)
            memcpy(f->c->slot[p][f->me], from, n);
    } else if (f->staged && op == WORK_HALO) { /* only the faces that have a neighbour */
        if (f->me > 0)
            memcpy(f->in[f->me], from, S);
        if (f->me < f->ranks - 1)
            memcpy(f->in[f->me] + S, from + S, S);
    } else if (f->staged && gives) {
        memcpy(f->in[f->me], from, n);
    }
    for (int r = 0; r < f->ranks; r++)
        src[r] = small ? f->c->slot[p][r] : op == WORK_BROADCAST && !f->staged ? f->out[r] : f->in[r];
}

static void allreduce(struct floor *f, bool small, char **src, char *dst)
{
    size_t c = (size_t)work_count(&f->cell), n = (size_t)f->ranks, me = (size_t)f->me;
    if (small) {
        sum_all(f, dst, src, 0, c * 4);
        return;
    }
    size_t from = c * me / n * 4, to = c * (me + 1) / n * 4;
    sum_all(f, f->out[me] + from, src, from, to - from);
    barrier(f);
    for (size_t i = f->staged ? 0 : 1; i < n; i++) {
        size_t r = (me + i) % n, a = c * r / n * 4, b = c * (r + 1) / n * 4;
        memcpy(dst + a, f->out[r] + a, b - a);
    }
}

static void ping(struct floor *f)
{
    size_t n = (size_t)work_count(&f->cell) * 4;
    char *dst = f->staged ? f->own_out : f->out[f->me], *src = f->staged ? f->own_in : f->in[f->me];
    bool slot = n <= SMALL;
    uint32_t old = f->pings++;
    if (f->me == 0) {
        if (slot || f->staged)
            memcpy(slot ? f->c->letter[0] : f->in[0], src, n);
        change(f, &f->c->ping[0].v, old + 1);
        await_change(f, &f->c->ping[1].v, old);
        memcpy(dst, slot ? f->c->letter[1] : f->out[1], n);
    } else if (f->me == 1) {
        await_change(f, &f->c->ping[0].v, old);
        memcpy(dst, slot ? f->c->letter[0] : f->in[0], n);
        if (slot || f->staged)
            memcpy(slot ? f->c->letter[1] : f->out[1], dst, n);
        change(f, &f->c->ping[1].v, old + 1);
    }
}

static void collective(struct floor *f)
{
    enum work_op op = f->cell.op;
    int n = f->ranks, me = f->me;
    size_t S = (size_t)work_count(&f->cell) * 4, sh = (size_t)work_share(&f->cell, n) * 4;
    char *src[ORDERS_RANKS] = {NULL}, *dst = f->staged ? f->own_out : f->out[me];
    bool small = S <= SMALL && sh * (size_t)n <= 2 * SMALL;
    publish(f, small, src);
    barrier(f);
    switch (op) {
    case WORK_BROADCAST:
        if (me)
            memcpy(dst, src[0], S);
        break;
    case WORK_ALLGATHER:
        for (int i = 0; i < n; i++) {
            int r = (me + i) % n;
            memcpy(dst + (size_t)r * S, src[r], S);
        }
        break;
    case WORK_REDUCE_SCATTER: sum_all(f, dst, src, (size_t)me * sh, sh); break;
    case WORK_ALLREDUCE: allreduce(f, small, src, dst); break;
    case WORK_ALL_TO_ALL:
        for (int i = 0; i < n; i++) {
            int r = (me + i) % n;
            memcpy(dst + (size_t)r * sh, src[r] + (size_t)me * sh, sh);
        }
        break;
    case WORK_HALO:
        if (me > 0)
            memcpy(dst, src[me - 1] + S, S);
        if (me < n - 1)
            memcpy(dst + S, src[me + 1], S);
        break;
    default: break;
    }
    if (!small)
        barrier(f);
}

/* ---- memory ---- */

static void read_all(const char *s, size_t n)
{
    const uint64_t *p = (const uint64_t *)(const void *)s;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= n / 8; i += 4) {
        a += p[i];
        b += p[i + 1];
        c += p[i + 2];
        d += p[i + 3];
    }
    volatile uint64_t keep = a + b + c + d;
    (void)keep;
}

static int do_call(void *self, int variant)
{
    struct floor *f = self;
    size_t n = (size_t)work_count(&f->cell) * 4;
    switch (f->cell.op) {
    case WORK_BARRIER: barrier(f); break;
    case WORK_PING: ping(f); break;
    case WORK_RESHARD: reshard(f, variant == 1); break;
    case WORK_MANY: many(f, variant == 1); break;
    case WORK_COPY: memcpy(f->own_out, f->own_in, n); break;
    case WORK_READ: read_all(f->own_in, n); break;
    case WORK_WRITE: memset(f->own_out, 0, n); break;
    default: collective(f); break;
    }
    __asm__ volatile("" ::: "memory"); /* what was written counts as used */
    return 0;
}

static int do_barrier(void *self)
{
    barrier(self);
    return 0;
}

/* ---- a rank ---- */

static int own_memory(char **p, size_t *had, size_t bytes)
{
    if (*had < bytes || *had > 4 * bytes) {
        if (*p)
            munmap(*p, *had);
        *p = bytes ? map(bytes, MAP_PRIVATE) : NULL;
        *had = *p ? bytes : 0;
    }
    if (*p)
        memset(*p, 0, bytes);
    return *p || !bytes ? 0 : -1;
}

static int do_open(void *self, const struct work_cell *cell, char *why, size_t cap)
{
    struct floor *f = self;
    size_t in, out;
    f->cell = *cell;
    f->matrix = matrix_of(cell, f->ranks);
    free(f->tensors);
    f->tensors = calloc((size_t)cell->tensors + 1, sizeof *f->tensors);
    for (int i = 0; f->tensors && i < cell->tensors; i++)
        f->tensors[i] = matrix_of_tensor(i, f->ranks);
    work_sizes(cell, f->me, f->ranks, &in, &out);
    bool own = cell->op >= WORK_COPY;
    if (!f->tensors || own_memory(&f->own_in, &f->own_in_bytes, own || f->staged ? in : 0) ||
        own_memory(&f->own_out, &f->own_out_bytes, own || f->staged ? out : 0)) {
        snprintf(why, cap, "no memory for buffers of %zu and %zu bytes", in, out);
        return -1;
    }
    if (own)
        return 0;
    size_t need_in = cell->op == WORK_BROADCAST ? out : in; /* staged */
    if (need_in > f->in_cap || out > f->out_cap) {
        snprintf(why, cap, "the windows are too small");
        return -1;
    }
    madvise(f->in[f->me], f->in_cap, MADV_REMOVE); /* frees memory that larger cells used */
    madvise(f->out[f->me], f->out_cap, MADV_REMOVE);
    memset(f->in[f->me], 0, need_in);
    memset(f->out[f->me], 0, out);
    return 0;
}

static struct work_memory memory_of(struct floor *f)
{
    bool own = f->staged || f->cell.op >= WORK_COPY;
    void *in = own ? f->own_in : f->in[f->me], *out = own ? f->own_out : f->out[f->me];
    return (struct work_memory){in, out, f->cell.op == WORK_HALO ? (float *)out + work_count(&f->cell) : out};
}

static void do_fill(void *self, int variant)
{
    struct floor *f = self;
    (void)variant;
    struct work_memory m = memory_of(f);
    work_fill(&f->cell, f->me, f->ranks, &m);
}

static int64_t do_check(void *self, int variant)
{
    struct floor *f = self;
    (void)variant;
    struct work_memory m = memory_of(f);
    return work_check(&f->cell, f->me, f->ranks, &m);
}

struct floor *floor_create(int ranks, enum floor_wait wait, bool staged, size_t in, size_t out)
{
    struct floor *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->ranks = ranks;
    f->wait = wait;
    f->staged = staged;
    f->in_cap = in;
    f->out_cap = out;
    f->c = map(sizeof *f->c, MAP_SHARED);
    bool ok = f->c != NULL;
    for (int r = 0; r < ranks && ok; r++)
        ok = (f->in[r] = map(in, MAP_SHARED)) && (f->out[r] = map(out, MAP_SHARED));
    if (ok)
        return f;
    floor_free(f);
    return NULL;
}

void floor_serve(struct floor *f, int rank, struct orders *b)
{
    struct subject s = {.self = f,
                        .rank = rank,
                        .ranks = f->ranks,
                        .open = do_open,
                        .fill = do_fill,
                        .check = do_check,
                        .barrier = do_barrier,
                        .call = do_call};
    f->me = rank;
    work_pin(rank);
    orders_serve(b, &s);
}

void floor_free(struct floor *f)
{
    if (!f)
        return;
    if (f->c)
        munmap(f->c, sizeof *f->c);
    for (int r = 0; r < f->ranks; r++) {
        if (f->in[r])
            munmap(f->in[r], f->in_cap ? f->in_cap : 1);
        if (f->out[r])
            munmap(f->out[r], f->out_cap ? f->out_cap : 1);
    }
    free(f->tensors);
    free(f);
}
