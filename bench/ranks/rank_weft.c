/* See rank_weft.h. Plans, binds and runs each cell through the public interface. */
#define _GNU_SOURCE
#include "bench/ranks/rank_weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/ranks/rank_exchange.h"
#include "bench/ranks/rank_many.h"
#include "bench/work/grid.h"
#include "weft.h"

/* One bound move. */
struct bound {
    weft_plan *plan;
    weft_exec *exec;
};

struct rank_weft {
    const struct weft_setup *how;
    weft_comm *comm;
    int rank, ranks;
    struct work_cell cell;
    void *in, *out;
    size_t in_bytes, out_bytes;
    weft_layout *src, *dst; /* of a reshard */
    struct bound move[2];   /* a ping has two */
    int nmoves;
    struct rank_many *many;
    struct rank_exchange *exchange;
    double *made; /* where to write the seconds that opening took */
};

static void *take(struct rank_weft *w, size_t bytes)
{
    void *p = NULL;
    if (!bytes)
        return NULL;
    if (!w->how->private_)
        return weft_comm_alloc(w->comm, bytes, WEFT_MEMORY_HOST, 0, &p) ? NULL : p;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void give(struct rank_weft *w, void *p, size_t bytes)
{
    if (p && w->how->private_)
        munmap(p, bytes);
    else
        weft_comm_free(w->comm, p);
}

static void release(struct rank_weft *w)
{
    for (int i = 0; i < w->nmoves; i++) {
        weft_exec_close(w->move[i].exec);
        weft_plan_free(w->move[i].plan);
        w->move[i] = (struct bound){0};
    }
    w->nmoves = 0;
    rank_many_free(w->many);
    w->many = NULL;
    rank_exchange_free(w->exchange);
    w->exchange = NULL;
    weft_layout_free(w->src);
    weft_layout_free(w->dst);
    w->src = w->dst = NULL;
    give(w, w->in, w->in_bytes);
    give(w, w->out, w->out_bytes);
    w->in = w->out = NULL;
}

static int take_buffers(struct rank_weft *w, size_t in, size_t out, char *why, size_t cap)
{
    w->in_bytes = in;
    w->out_bytes = out;
    w->in = take(w, in);
    w->out = take(w, out);
    if ((w->in || !in) && (w->out || !out))
        return 0;
    snprintf(why, cap, "no memory for buffers of %zu and %zu bytes: %s", in, out,
             w->how->private_ ? "" : weft_errmsg());
    return WEFT_ENOMEM;
}

/* Binds n tensors, each behind the one before in memory; the views are those of the first. */
static int bind_alike(struct rank_weft *w, const weft_layout *src, const weft_layout *dst, weft_view from, weft_view to,
                      int n)
{
    struct bound *b = &w->move[w->nmoves++];
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = {
        .size = sizeof opts, .world = w->ranks, .algorithm = w->how->algorithm, .machine = &machine};
    weft_comm_machine(w->comm, &machine);
    weft_move *moves = calloc((size_t)n, sizeof *moves);
    weft_view *a = calloc((size_t)n, sizeof *a), *z = calloc((size_t)n, sizeof *z);
    int err = moves && a && z ? 0 : WEFT_ENOMEM;
    for (int i = 0; i < n && !err; i++) {
        moves[i] = (weft_move){"bench", src, dst};
        a[i] = (weft_view){.data = from.data ? (char *)from.data + (size_t)i * from.bytes : NULL,
                           .bytes = from.bytes,
                           .strides = from.strides};
        z[i] = (weft_view){
            .data = to.data ? (char *)to.data + (size_t)i * to.bytes : NULL, .bytes = to.bytes, .strides = to.strides};
    }
    if (!err)
        err = weft_lower(moves, (size_t)n, w->rank, &opts, &b->plan);
    if (!err)
        err = weft_bind(b->plan, w->comm, a, z, NULL, &b->exec);
    free(moves);
    free(a);
    free(z);
    return err;
}

static int bind_move(struct rank_weft *w, const weft_layout *src, const weft_layout *dst, weft_view from, weft_view to)
{
    return bind_alike(w, src, dst, from, to, 1);
}

static int bind_texts(struct rank_weft *w, const char *src, const char *dst, weft_view from, weft_view to)
{
    weft_layout *a = NULL, *b = NULL;
    int err = weft_layout_parse(src, &a);
    if (!err)
        err = weft_layout_parse(dst, &b);
    if (!err)
        err = bind_move(w, a, b, from, to);
    weft_layout_free(a);
    weft_layout_free(b);
    return err;
}

/* ---- the cells ---- */

static int open_collective(struct rank_weft *w)
{
    const struct work_cell *c = &w->cell;
    bool shares = c->op == WORK_REDUCE_SCATTER || c->op == WORK_ALL_TO_ALL, root = c->op == WORK_BROADCAST;
    weft_collective what = {.size = sizeof what,
                            .kind = work_name(c->op),
                            .dtype = WEFT_F32,
                            .count = shares ? work_share(c, w->ranks) : work_count(c),
                            .n = (size_t)w->ranks};
    weft_layout *src, *dst;
    int err = weft_collective_layouts(&what, &src, &dst);
    if (err)
        return err;
    /* The root of a broadcast has the value in its output already. */
    weft_view from = root ? (weft_view){.data = w->rank ? NULL : w->out, .bytes = w->rank ? 0 : w->out_bytes}
                          : (weft_view){.data = w->in, .bytes = w->in_bytes};
    err = bind_move(w, src, dst, from, (weft_view){.data = w->out, .bytes = w->out_bytes});
    weft_layout_free(src);
    weft_layout_free(dst);
    return err;
}

/* The faces are the two halves of the interior, which stays where it is. */
static int open_halo(struct rank_weft *w)
{
    char src[96], dst[96];
    long long c = work_count(&w->cell);
    snprintf(src, sizeof src, "f32[%lld/x] @x%d", 2 * c * w->ranks, w->ranks);
    snprintf(dst, sizeof dst, "f32[%lld/x~%lld] @x%d", 2 * c * w->ranks, c, w->ranks);
    weft_view inside = WEFT_VIEW((float *)w->out + c, (size_t)c * 8);
    return bind_texts(w, src, dst, inside, (weft_view){.data = w->out, .bytes = w->out_bytes});
}

static int open_ping(struct rank_weft *w)
{
    char zero[64], one[64];
    long long c = work_count(&w->cell);
    snprintf(zero, sizeof zero, "f32[%lld] @x1=0", c);
    snprintf(one, sizeof one, "f32[%lld] @x1=1", c);
    weft_view none = {0}, in = WEFT_VIEW(w->in, w->in_bytes), out = WEFT_VIEW(w->out, w->out_bytes);
    int err = bind_texts(w, zero, one, w->rank == 0 ? in : none, w->rank == 1 ? out : none);
    return err ? err : bind_texts(w, one, zero, w->rank == 1 ? out : none, w->rank == 0 ? out : none);
}

/* In place: the source is a rank's cells in the same buffer, and only the ghosts around them move. */
static int open_grid(struct rank_weft *w)
{
    struct grid g = grid_of(&w->cell.grid, w->rank);
    char src[200], dst[200], mesh[64];
    size_t a = (size_t)snprintf(src, sizeof src, "f32["), b = (size_t)snprintf(dst, sizeof dst, "f32["), m = 0;
    int64_t strides[WORK_DIMS], step = sizeof(float), first = 0;
    for (int d = 0; d < g.dims; d++) {
        long long extent = g.own[d] * g.ranks[d];
        const char *comma = d ? "," : "";
        a += (size_t)snprintf(src + a, sizeof src - a, "%s%lld/%c", comma, extent, 'a' + d);
        b += (size_t)snprintf(dst + b, sizeof dst - b, "%s%lld/%c~%lld", comma, extent, 'a' + d, (long long)g.wide[d]);
        m += (size_t)snprintf(mesh + m, sizeof mesh - m, "%s%c%d", d ? "." : "] @", 'a' + d, g.ranks[d]);
    }
    snprintf(src + a, sizeof src - a, "%s", mesh);
    snprintf(dst + b, sizeof dst - b, "%s", mesh);
    for (int d = g.dims - 1; d >= 0; d--, step *= g.shape[d + 1]) {
        strides[d] = step;
        first += g.wide[d] * step;
    }
    weft_view inside = {.data = (char *)w->out + first, .bytes = w->out_bytes - (size_t)first, .strides = strides};
    return bind_texts(w, src, dst, inside, (weft_view){.data = w->out, .bytes = w->out_bytes});
}

static int open_copy(struct rank_weft *w)
{
    char text[64];
    snprintf(text, sizeof text, "f32[%lld/x] @x%d", (long long)work_count(&w->cell) * w->ranks, w->ranks);
    return bind_texts(w, text, text, (weft_view){.data = w->in, .bytes = w->in_bytes},
                      (weft_view){.data = w->out, .bytes = w->out_bytes});
}

/* The number of equal tensors of a reshard. */
static size_t tensors_of(const struct rank_weft *w)
{
    return w->cell.tensors ? (size_t)w->cell.tensors : 1;
}

static int open_reshard(struct rank_weft *w, char *why, size_t cap)
{
    weft_local from, to;
    int err = weft_layout_parse(w->cell.src, &w->src);
    if (!err)
        err = weft_layout_parse(w->cell.dst, &w->dst);
    if (!err)
        err = weft_layout_local(w->src, w->rank, &from);
    if (!err)
        err = weft_layout_local(w->dst, w->rank, &to);
    if (!err)
        err = take_buffers(w, (size_t)from.bytes * tensors_of(w), (size_t)to.bytes * tensors_of(w), why, cap);
    if (err)
        return err;
    int64_t size = to.count ? to.bytes / to.count : 0, column_order[2] = {size, size * to.shape[0]};
    weft_view a = WEFT_VIEW(w->in, (size_t)from.bytes),
              b = {.data = w->out,
                   .bytes = (size_t)to.bytes,
                   .strides = w->cell.turned && to.count ? column_order : NULL};
    return bind_alike(w, w->src, w->dst, a, b, (int)tensors_of(w));
}

static int do_open(void *self, const struct work_cell *cell, char *why, size_t cap)
{
    struct rank_weft *w = self;
    size_t in, out;
    int err;
    release(w);
    w->cell = *cell;
    if (cell->op == WORK_RESHARD) {
        err = open_reshard(w, why, cap);
    } else {
        work_sizes(cell, w->rank, w->ranks, &in, &out);
        if (cell->op == WORK_HALO) {
            in = 0;
            out = 4 * (size_t)work_count(cell) * sizeof(float);
        }
        err = take_buffers(w, in, out, why, cap);
        if (!err && cell->op != WORK_BARRIER)
            err = cell->op == WORK_HALO       ? open_halo(w)
                  : cell->op == WORK_GRID     ? open_grid(w)
                  : cell->op == WORK_PING     ? open_ping(w)
                  : cell->op == WORK_COPY     ? open_copy(w)
                  : cell->op == WORK_EXCHANGE ? rank_exchange_open(w->comm, cell, w->in, w->out, &w->exchange)
                  : cell->op == WORK_MANY
                      ? rank_many_open(w->comm, w->how->algorithm, cell, w->in, w->out, w->made, &w->many)
                      : open_collective(w);
    }
    if (err && !*why)
        snprintf(why, cap, "%s", weft_errmsg());
    return err;
}

static int do_call(void *self, int variant)
{
    struct rank_weft *w = self;
    if (w->cell.op == WORK_BARRIER)
        return weft_comm_barrier(w->comm, WEFT_DEADLINE);
    if (w->cell.op == WORK_MANY)
        return rank_many_run(w->many, variant);
    if (w->cell.op == WORK_EXCHANGE)
        return rank_exchange_run(w->exchange);
    int err = 0;
    for (int i = 0; i < w->nmoves && !err; i++)
        err = weft_exec_run(w->move[i].exec);
    return err;
}

/* Explains the first exec of the cell. A cell without an exec (a barrier, an exchange) has no text. */
static int do_explain(void *self, bool json, char *buf, size_t cap)
{
    struct rank_weft *w = self;
    const weft_exec *exec = w->many ? rank_many_exec(w->many) : w->nmoves ? w->move[0].exec : NULL;
    size_t n;
    int err = exec ? weft_exec_explain(exec, json, buf, cap, &n) : 0;
    if (exec && !err && n >= cap)
        snprintf(buf, cap, json ? "null" : "(too long)\n");
    return err;
}

static int do_barrier(void *self)
{
    struct rank_weft *w = self;
    return weft_comm_barrier(w->comm, WEFT_DEADLINE);
}

/* ---- values ---- */

/* Place in the tensor and in the buffer of one row after another of a rank's box; a row is along the last dim. */
struct walk {
    const weft_box *box;
    int64_t extent[WEFT_MAX_DIMS], stride[WEFT_MAX_DIMS]; /* of the tensor; of the buffer, in elements */
    int64_t i[WEFT_MAX_DIMS];
    int ndim;
};

static void walk_at(const struct walk *k, int64_t *place, int64_t *at)
{
    *place = *at = 0;
    for (int d = 0; d < k->ndim; d++) {
        *place = *place * k->extent[d] + k->box->at[d] + k->i[d];
        *at += (k->box->local[d] + k->i[d]) * k->stride[d];
    }
}

static bool walk_next(struct walk *k)
{
    for (int d = k->ndim - 2; d >= 0; d--) {
        if (++k->i[d] < k->box->len[d])
            return true;
        k->i[d] = 0;
    }
    return false;
}

/* Buffers are filled as f32; both types are read. bf16 is the upper half of an f32. */
static float load(const void *p, int64_t i, enum weft_dtype type)
{
    float v;
    if (type == WEFT_F32)
        return ((const float *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Fills a rank's buffer (in is not NULL) or counts what is wrong in it. */
static int64_t visit(const struct rank_weft *w, const weft_layout *l, float *in, const void *out, bool turned)
{
    weft_layout_desc desc = {.size = sizeof desc};
    weft_local local;
    size_t n = 0;
    int64_t wrong = 0;
    if (weft_layout_describe(l, &desc) || weft_layout_local(l, w->rank, &local) ||
        weft_layout_boxes(l, w->rank, NULL, 0, &n))
        return 1;
    weft_box *boxes = calloc(n ? n : 1, sizeof *boxes);
    if (!boxes || weft_layout_boxes(l, w->rank, boxes, n, &n)) {
        free(boxes);
        return 1;
    }
    for (size_t b = 0; b < n; b++) {
        struct walk k = {.box = &boxes[b], .ndim = desc.ndim};
        for (int64_t d = desc.ndim - 1, step = 1; d >= 0; step *= local.shape[d--]) {
            k.extent[d] = desc.dims[d].extent;
            k.stride[d] = step;
        }
        if (turned) {
            k.stride[0] = 1;
            k.stride[1] = local.shape[0];
        }
        do {
            int last = desc.ndim - 1;
            int64_t place, at;
            walk_at(&k, &place, &at);
            for (int64_t i = 0; i < boxes[b].len[last]; i++, at += k.stride[last])
                if (in)
                    in[at] = work_value(place + i);
                else
                    wrong += load(out, at, desc.dtype) != work_value(place + i);
        } while (walk_next(&k));
    }
    free(boxes);
    return wrong;
}

static struct work_memory memory_of(const struct rank_weft *w)
{
    int64_t c = work_count(&w->cell);
    if (w->cell.op != WORK_HALO)
        return (struct work_memory){w->in, w->out, w->cell.op == WORK_EXCHANGE ? (float *)w->out + c : NULL};
    return (struct work_memory){(float *)w->out + c, w->out, (float *)w->out + 3 * c};
}

static void do_fill(void *self, int variant)
{
    struct rank_weft *w = self;
    (void)variant;
    if (w->cell.op == WORK_RESHARD) {
        if (w->out)
            memset(w->out, 0xff, w->out_bytes);
        size_t n = tensors_of(w), each = w->in_bytes / n;
        for (size_t i = 0; i < n && w->in; i++)
            visit(w, w->src, (float *)(void *)((char *)w->in + i * each), NULL, false);
        return;
    }
    struct work_memory m = memory_of(w);
    work_fill(&w->cell, w->rank, w->ranks, &m);
}

static int64_t do_check(void *self, int variant)
{
    struct rank_weft *w = self;
    (void)variant;
    if (w->cell.op == WORK_RESHARD) {
        size_t n = tensors_of(w), each = w->out_bytes / n;
        int64_t wrong = 0;
        for (size_t i = 0; i < n && w->out; i++)
            wrong += visit(w, w->dst, NULL, (const char *)w->out + i * each, w->cell.turned);
        return wrong;
    }
    struct work_memory m = memory_of(w);
    return work_check(&w->cell, w->rank, w->ranks, &m);
}

/* A rank whose comm cannot be opened says so when it is first asked. */
static int do_refuse(void *self, const struct work_cell *cell, char *why, size_t cap)
{
    (void)cell;
    snprintf(why, cap, "%s", (const char *)self);
    return WEFT_ETRANSPORT;
}

void rank_weft_serve(const struct weft_setup *how, const char *url, int rank, struct orders *b)
{
    struct rank_weft w = {.how = how, .rank = rank, .ranks = (int)b->ranks};
    struct subject s = {.self = &w,
                        .rank = rank,
                        .ranks = w.ranks,
                        .open = do_open,
                        .fill = do_fill,
                        .check = do_check,
                        .barrier = do_barrier,
                        .call = do_call,
                        .explain = do_explain,
                        .words = weft_errmsg};
    bool threads = !strcmp(how->on, "threads:"); /* their memory counts as private only if they stage */
    weft_comm_opts opts = {
        .size = sizeof opts, .rank = rank, .ranks = threads ? 0 : w.ranks, .staged = threads && how->private_};
    char why[300];
    w.made = s.made;
    work_pin(rank);
    if (weft_comm_open(url, &opts, &w.comm)) {
        snprintf(why, sizeof why, "%s", weft_errmsg());
        s.self = why;
        s.open = do_refuse;
    }
    orders_serve(b, &s);
    if (w.comm) {
        release(&w);
        weft_comm_close(w.comm);
    }
}
