/* Checks of one plan by itself. A plan that was loaded may hold anything. The checks take at most n log n time in the
 * size of the plan, and read nothing through an index that was not checked before. Verify checks the rest: what the
 * plans of all ranks must fulfil together, and that each step reads what was written before. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "plan/check.h"

static int64_t size_of(int dtype)
{
    return (int64_t)weft_dtype_size(dtype);
}

static int check_head(const weft_plan *p)
{
    if (p->world < 1 || p->rank < 0 || p->rank >= p->world)
        return check_refuse("rank %d in a world of %d", (int)p->rank, (int)p->world);
    if (!plan_kind_text(p->kind, strlen(p->kind)))
        return check_refuse("kind \"%.40s\" is unknown", p->kind);
    if (!plan_is_word(p->algorithm))
        return check_refuse("\"%.40s\" cannot be the name of an algorithm", p->algorithm);
    if (p->in_place > 1)
        return check_refuse("in_place is %d, not 0 or 1", p->in_place);
    if (p->scratch < 0 || p->bound < 0 || p->stated < 0 || p->bucket < 0)
        return check_refuse("a size is negative: scratch %" PRId64 ", bound %" PRId64 ", stated %" PRId64
                            ", bucket %" PRId64,
                            p->scratch, p->bound, p->stated, p->bucket);
    if (p->machine.ranks_per_host < 0 || p->machine.latency_ns < 0 || p->machine.bytes_per_us < 0 ||
        p->machine.ranks < 0)
        return check_refuse("the machine has a negative number");
    if (p->ntensors > INT32_MAX || p->nbufs > UINT32_MAX || p->nparts > UINT32_MAX || p->nsteps > UINT32_MAX)
        return check_refuse("too large: %zu tensors, %zu buffers, %zu parts, %zu steps", p->ntensors, p->nbufs,
                            p->nparts, p->nsteps);
    if (p->nnames && p->names[p->nnames - 1] != 0)
        return check_refuse("the names do not end with a zero");
    return 0;
}

/* Checks the buffer that a tensor names for one side: it must exist exactly if the rank holds that side. */
static int check_side(const weft_plan *p, size_t i, enum plan_space space)
{
    const struct plan_tensor *t = &p->tensors[i];
    bool src = space == PLAN_SRC;
    const weft_layout *l = src ? t->src : t->dst;
    uint32_t buf = src ? t->src_buf : t->dst_buf;
    const char *side = src ? "source" : "destination";
    if (weft_layout_ranks(l) > p->world)
        return check_refuse("tensor %zu: its %s uses %d ranks, the world has %d", i, side, weft_layout_ranks(l),
                            (int)p->world);
    bool holds = mesh_index(l, p->rank) >= 0;
    if (buf == PLAN_NONE)
        return holds ? check_refuse("tensor %zu: rank %d holds its %s and has no buffer for it", i, (int)p->rank, side)
                     : 0;
    if (!holds)
        return check_refuse("tensor %zu: a buffer for its %s, which rank %d does not hold", i, side, (int)p->rank);
    size_t n = plan_side_bufs(p, (uint32_t)i, src);
    if (buf >= p->nbufs || n > p->nbufs - buf)
        return check_refuse("tensor %zu: %s buffer %" PRIu32 ", there are %zu", i, side, buf, p->nbufs);
    for (size_t k = 0; k < n; k++)
        if (p->bufs[buf + k].space != space || p->bufs[buf + k].tensor != i)
            return check_refuse("tensor %zu: buffer %zu is not its %s", i, buf + k, side);
    return 0;
}

static int check_tensors(const weft_plan *p)
{
    size_t names = 0;
    for (size_t i = 0; i < p->ntensors; i++) {
        const struct plan_tensor *t = &p->tensors[i];
        if (t->name >= p->nnames)
            return check_refuse("tensor %zu: name at %" PRIu32 " of %zu bytes of names", i, t->name, p->nnames);
        names += strlen(p->names + t->name) + 1;
        if (names > p->nnames)
            return check_refuse("tensor %zu: its name overlaps another tensor's", i);
        if (t->src->ndim != t->dst->ndim || t->src->ndim != t->ndim)
            return check_refuse("tensor %zu: %d dims, its source has %d and its destination %d", i, t->ndim,
                                t->src->ndim, t->dst->ndim);
        for (int d = 0; d < t->ndim; d++)
            if (t->src->dim[d].extent != t->dst->dim[d].extent)
                return check_refuse("tensor %zu: dim %d is %" PRId64 " long in the source, %" PRId64
                                    " in the destination",
                                    i, d, t->src->dim[d].extent, t->dst->dim[d].extent);
        int err = check_side(p, i, PLAN_SRC);
        if (!err)
            err = check_side(p, i, PLAN_DST);
        if (err)
            return err;
    }
    return 0;
}

/* Bytes of a buffer, or -1 if an extent is negative or the product is too large. */
static int64_t buf_bytes(const weft_plan *p, const struct plan_buf *b)
{
    int64_t bytes = size_of(b->dtype);
    int ndim = p->tensors[b->tensor].ndim;
    bool empty = false;
    for (int d = 0; d < ndim; d++) {
        if (p->shapes[b->shape + (size_t)d] < 0)
            return -1;
        empty |= p->shapes[b->shape + (size_t)d] == 0;
    }
    for (int d = 0; d < ndim && !empty; d++)
        if (__builtin_mul_overflow(bytes, p->shapes[b->shape + (size_t)d], &bytes))
            return -1;
    return empty ? 0 : bytes;
}

static int check_side_buf(const weft_plan *p, size_t i)
{
    const struct plan_buf *b = &p->bufs[i];
    const struct plan_tensor *t = &p->tensors[b->tensor];
    const weft_layout *l = b->space == PLAN_SRC ? t->src : t->dst;
    size_t first = b->space == PLAN_SRC ? t->src_buf : t->dst_buf;
    if (i < first || i - first >= plan_side_bufs(p, b->tensor, b->space == PLAN_SRC))
        return check_refuse("buffer %zu: tensor %" PRIu32 " has another buffer on that side", i, b->tensor);
    if (b->offset != 0)
        return check_refuse("buffer %zu: offset %" PRId64 " outside the scratch", i, b->offset);
    if (b->dtype != l->dtype)
        return check_refuse("buffer %zu: dtype %s, its layout has %s", i, weft_dtype_name(b->dtype),
                            weft_dtype_name(l->dtype));
    weft_local local;
    int err = weft_layout_local(l, p->rank, &local);
    if (err)
        return err;
    if (l->boxes)
        for (size_t d = 0, box = plan_side_box(p, (uint32_t)i), n = t->ndim; d < n; d++)
            local.shape[d] = l->boxes->len[box * n + d];
    for (int d = 0; d < t->ndim; d++)
        if (p->shapes[b->shape + (size_t)d] != local.shape[d])
            return check_refuse("buffer %zu: dim %d is %" PRId64 " long, its layout gives rank %d %" PRId64, i, d,
                                p->shapes[b->shape + (size_t)d], (int)p->rank, local.shape[d]);
    return 0;
}

static int check_bufs(const weft_plan *p)
{
    for (size_t i = 0; i < p->nbufs; i++) {
        const struct plan_buf *b = &p->bufs[i];
        if (b->tensor >= p->ntensors)
            return check_refuse("buffer %zu: tensor %" PRIu32 ", there are %zu", i, b->tensor, p->ntensors);
        int ndim = p->tensors[b->tensor].ndim;
        if (b->space < PLAN_SRC || b->space > PLAN_TEMP)
            return check_refuse("buffer %zu: space %d is unknown", i, b->space);
        if (!weft_dtype_size(b->dtype))
            return check_refuse("buffer %zu: dtype %d is unknown", i, b->dtype);
        if (b->shape > p->nshapes || (size_t)ndim > p->nshapes - b->shape)
            return check_refuse("buffer %zu: shape at %" PRIu32 " of %zu", i, b->shape, p->nshapes);
        int64_t bytes = buf_bytes(p, b), end;
        if (bytes < 0)
            return check_refuse("buffer %zu: its shape is negative or too large", i);
        if (b->space != PLAN_TEMP) {
            int err = check_side_buf(p, i);
            if (err)
                return err;
        } else if (bytes == 0) {
            return check_refuse("buffer %zu: scratch without elements", i);
        } else if (b->offset < 0 || b->offset % CHECK_PAD) {
            return check_refuse("buffer %zu: offset %" PRId64 " is not a multiple of %d", i, b->offset, CHECK_PAD);
        } else if (__builtin_add_overflow(b->offset, bytes, &end) || end > p->scratch) {
            return check_refuse("buffer %zu: %" PRId64 " bytes at %" PRId64 " of a scratch of %" PRId64, i, bytes,
                                b->offset, p->scratch);
        }
    }
    return 0;
}

struct extent {
    int64_t begin, end;
    size_t buf;
};

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int check_scratch(const weft_plan *p)
{
    struct extent *v = malloc(p->nbufs * sizeof *v + 1);
    if (!v)
        return error_nomem();
    size_t n = 0;
    for (size_t i = 0; i < p->nbufs; i++) {
        const struct plan_buf *b = &p->bufs[i];
        if (b->space == PLAN_TEMP)
            v[n++] = (struct extent){b->offset, b->offset + buf_bytes(p, b), i};
    }
    qsort(v, n, sizeof *v, by_begin);
    int err = 0;
    int64_t end = 0;
    for (size_t i = 0; i < n && !err; i++) {
        if (v[i].begin < end)
            err = check_refuse("buffers %zu and %zu overlap in the scratch", v[i - 1].buf, v[i].buf);
        end = v[i].end;
    }
    if (!err && p->scratch - end >= CHECK_PAD)
        err = check_refuse("a scratch of %" PRId64 " bytes, its buffers end at %" PRId64, p->scratch, end);
    free(v);
    return err;
}

/* Checks one dim of a part: the run must be inside [0, extent), its spot inside [0, room). */
static int check_dim(size_t part, int d, const struct plan_run *r, const struct plan_spot *s, int64_t extent,
                     int64_t room)
{
    int64_t last, to;
    if (r->n < 1 || r->len < 1)
        return check_refuse("part %zu, dim %d: an empty run, %" PRId64 " times %" PRId64, part, d, r->n, r->len);
    if (r->n == 1 ? r->step != 0 : r->step < r->len)
        return check_refuse("part %zu, dim %d: step %" PRId64 " with %" PRId64 " runs of %" PRId64, part, d, r->step,
                            r->n, r->len);
    if (r->n == 1 ? s->tostep != 0 : s->tostep < r->len)
        return check_refuse("part %zu, dim %d: step %" PRId64 " in its buffer with %" PRId64 " runs of %" PRId64, part,
                            d, s->tostep, r->n, r->len);
    if (r->at < 0 || __builtin_mul_overflow(r->n - 1, r->step, &last) || __builtin_add_overflow(last, r->at, &last) ||
        __builtin_add_overflow(last, r->len, &last) || last > extent)
        return check_refuse("part %zu, dim %d: its box leaves the tensor, which is %" PRId64 " long", part, d, extent);
    if (s->to < 0 || __builtin_mul_overflow(r->n - 1, s->tostep, &to) || __builtin_add_overflow(to, s->to, &to) ||
        __builtin_add_overflow(to, r->len, &to) || to > room)
        return check_refuse("part %zu, dim %d: its place leaves the buffer, which is %" PRId64 " long", part, d, room);
    return 0;
}

static int check_part(const weft_plan *p, size_t i)
{
    const struct plan_part *part = &p->parts[i];
    if (part->buf >= p->nbufs)
        return check_refuse("part %zu: buffer %" PRIu32 ", there are %zu", i, part->buf, p->nbufs);
    const struct plan_buf *b = &p->bufs[part->buf];
    const struct plan_tensor *t = &p->tensors[b->tensor];
    if (part->runs > p->nruns || t->ndim > p->nruns - part->runs)
        return check_refuse("part %zu: runs at %" PRIu32 " of %zu", i, part->runs, p->nruns);
    if (part->spots > p->nspots || t->ndim > p->nspots - part->spots)
        return check_refuse("part %zu: spots at %" PRIu32 " of %zu", i, part->spots, p->nspots);
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) {
        const struct plan_run *r = &p->runs[part->runs + (size_t)d];
        int err = check_dim(i, d, r, &p->spots[part->spots + (size_t)d], t->src->dim[d].extent,
                            p->shapes[b->shape + (size_t)d]);
        if (err)
            return err;
        if (__builtin_mul_overflow(count, r->n * r->len, &count)) /* n * len is at most the buffer's extent */
            return check_refuse("part %zu: more elements than can be counted", i);
    }
    if (count != part->count)
        return check_refuse("part %zu: count %" PRId64 ", its box has %" PRId64 " elements", i, part->count, count);
    if (part->wire && !weft_dtype_size(part->wire))
        return check_refuse("part %zu: wire dtype %d is unknown", i, part->wire);
    return 0;
}

/* Checks every part by itself, and that the sum of their bytes does not overflow. */
static int check_parts(const weft_plan *p)
{
    int64_t total = 0, bytes;
    for (size_t i = 0; i < p->nparts; i++) {
        int err = check_part(p, i);
        if (err)
            return err;
        int64_t size = size_of(p->bufs[p->parts[i].buf].dtype), wire = size_of(p->parts[i].wire);
        if (__builtin_mul_overflow(p->parts[i].count, size > wire ? size : wire, &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return check_refuse("part %zu: more bytes than can be counted", i);
    }
    return 0;
}

int plan_check(const weft_plan *p)
{
    int (*const checks[])(const weft_plan *) = {
        check_head, check_tensors, check_bufs, check_scratch, check_parts, check_steps,
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        int err = checks[i](p);
        if (err)
            return err;
    }
    return 0;
}
