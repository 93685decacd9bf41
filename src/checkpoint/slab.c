/* Moving one slab; see slab.h. */
#define _GNU_SOURCE
#include "checkpoint/slab.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "memory/memory.h"

#define DIRECT_LEAST                                                                                                  \
    65536 /* if the runs of a piece have at least this many bytes on average, they are read straight into their place \
           */

/* The current slab. */
struct slab {
    const struct slab_cut *p;
    int64_t at[WEFT_MAX_DIMS]; /* index, in the dims before p->dim */
    int64_t lo, hi;            /* in p->dim */
};

/* The part of a slab that a piece has: positions in the dims before p->dim, rows lo .. hi of its array in p->dim, and
 * the number of elements. */
struct clip {
    const struct slab_piece *piece;
    int64_t at[WEFT_MAX_DIMS];
    int64_t lo, hi, count;
    unsigned char *data; /* for a destination: its address in the buffer */
};

/* ---- what a piece has of a slab ---- */

static int64_t place_of(const struct runs *l, int64_t position)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct run *r = &l->v[i];
        int64_t off = position - r->at, k = off >= 0 && r->n > 1 ? off / r->step : 0;
        if (off >= 0 && k < r->n && off - k * r->step < r->len)
            return r->to + k * r->tostep + off - k * r->step;
    }
    return -1;
}

static int64_t count_below(const struct runs *l, int64_t position)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct run *r = &l->v[i];
        int64_t off = position - r->at, k = off > 0 && r->n > 1 ? min64(off / r->step, r->n) : 0;
        if (off > 0)
            n += k == r->n ? r->n * r->len : k * r->len + min64(r->len, off - k * r->step);
    }
    return n;
}

static bool clip_piece(const struct slab *s, const struct slab_piece *piece, struct clip *out)
{
    int dim = s->p->dim;
    *out = (struct clip){.piece = piece};
    for (int d = 0; d < dim; d++)
        if ((out->at[d] = place_of(&piece->runs[d], s->at[d])) < 0)
            return false;
    out->lo = count_below(&piece->runs[dim], s->lo);
    out->hi = count_below(&piece->runs[dim], s->hi);
    out->count = out->hi - out->lo;
    for (int d = dim + 1; d < s->p->ndim; d++)
        out->count *= piece->shape[d];
    return out->count > 0;
}

/* ---- in a file ---- */

/* Ranges of a file, `n` of `bytes` each, `step` apart. */
struct ranges {
    int64_t at, n, bytes, step;
};

static struct ranges find_ranges(const struct slab *s, const struct slab_side *side, const struct clip *k,
                                 const struct slab_place *place)
{
    const int64_t *array = place->hold->shape;
    int64_t size = (int64_t)weft_dtype_size(side->dtype), stride = size, at = 0;
    int dim = s->p->dim;
    for (int d = s->p->ndim - 1; d >= 0; d--) {
        int64_t index = d < dim ? k->at[d] : d == dim ? k->lo : 0;
        at += (index + (side->fused && d == side->cat ? place->cat : 0)) * stride;
        stride *= side->fused ? array[d] : k->piece->shape[d];
    }
    struct ranges r = {place->file->data + place->hold->begin + at, 1, k->count * size, 0};
    if (side->fused && side->cat > dim) {
        r.bytes = r.step = size;
        for (int d = side->cat; d < s->p->ndim; d++) {
            r.bytes *= k->piece->shape[d];
            r.step *= array[d];
        }
        r.n = k->count * size / r.bytes;
    }
    return r;
}

static int read_ranges(const struct slab_place *place, const struct ranges *r, unsigned char *to)
{
    int rc = 0;
    for (int64_t i = 0; i < r->n && !rc; i++)
        rc = checkpoint_files_read_all(place->file->fd, to + i * r->bytes, (size_t)r->bytes, r->at + i * r->step,
                                       place->file->path);
    return rc;
}

static int write_ranges(const struct slab_place *place, const struct ranges *r, const unsigned char *from)
{
    int rc = 0;
    for (int64_t i = 0; i < r->n && !rc; i++)
        rc = checkpoint_files_write_all(place->file->fd, from + i * r->bytes, (size_t)r->bytes, r->at + i * r->step,
                                        place->file->path);
    /* Lets the system begin to write, so that the sync at the end is short. */
    if (!rc && r->n == 1 && r->bytes >= DIRECT_LEAST)
        sync_file_range(place->file->fd, (off_t)r->at, (off_t)r->bytes, SYNC_FILE_RANGE_WRITE);
    return rc;
}

/* ---- from piece to piece ---- */

/* A copy from a source piece's part of the slab: a nest of loops from one offset to one address. */
struct step {
    struct memory_tile tile;
    int64_t from;
    unsigned char *to;
};
struct steps {
    struct step *v;
    size_t n, cap;
};

static int add_step(struct steps *l, const struct step *s, struct arena *arena)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        struct step *v = arena_alloc(arena, cap * sizeof *v);
        if (!v)
            return error_nomem();
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = *s;
    return 0;
}

/* The positions in [lo, hi) of p->dim that a piece has, as rows counted from the first of them. */
static int clip_runs(const struct slab *s, const struct clip *k, struct runs *out)
{
    struct runs window = {.arena = out->arena};
    struct pair_runs both = {.arena = out->arena};
    int rc = runs_add(&window, (struct run){.at = s->lo, .len = s->hi - s->lo, .n = 1});
    if (!rc)
        rc = runs_join(&k->piece->runs[s->p->dim], &window, &both);
    for (size_t i = 0; i < both.n && !rc; i++) {
        const struct pair_run *r = &both.v[i];
        rc = runs_add(out, (struct run){r->at, r->len, r->n, r->step, r->a - k->lo, r->astep});
    }
    return rc;
}

/* Lists all combinations of one run for each dim. Each is a nest of two loops for each dim. */
static int list_steps(const struct slab *s, const struct clip *a, const struct clip *b, const struct pair_runs *joined,
                      struct steps *out, struct arena *arena)
{
    int first = s->p->dim, ndim = s->p->ndim;
    size_t pick[WEFT_MAX_DIMS] = {0};
    int64_t size[2] = {(int64_t)weft_dtype_size(s->p->dst.dtype), (int64_t)weft_dtype_size(s->p->src.dtype)};
    for (;;) {
        struct step step = {.tile = {.loops = 2 * (ndim - first)}, .to = b->data};
        int64_t to = size[0], from = size[1];
        for (int d = ndim - 1; d >= first; d--) {
            const struct pair_run *r = &joined[d].v[pick[d]];
            int at = 2 * (d - first);
            step.tile.n[at] = r->n;
            step.tile.n[at + 1] = r->len;
            step.tile.stride[0][at] = r->bstep * to;
            step.tile.stride[0][at + 1] = to;
            step.tile.stride[1][at] = r->astep * from;
            step.tile.stride[1][at + 1] = from;
            step.to += r->b * to;
            step.from += r->a * from;
            to *= d == first ? 1 : b->piece->shape[d];
            from *= d == first ? 1 : a->piece->shape[d];
        }
        memory_tile_merge(&step.tile);
        int rc = add_step(out, &step, arena);
        if (rc)
            return rc;
        int d = ndim - 1;
        while (d >= first && ++pick[d] == joined[d].n)
            pick[d--] = 0;
        if (d < first)
            return 0;
    }
}

static int meet(const struct slab *s, const struct clip *a, const struct clip *b, struct steps *out,
                struct arena *arena)
{
    struct pair_runs joined[WEFT_MAX_DIMS];
    for (int d = s->p->dim; d < s->p->ndim; d++) {
        joined[d] = (struct pair_runs){.arena = arena};
        struct runs from = a->piece->runs[d], to = b->piece->runs[d];
        int rc = 0;
        if (d == s->p->dim) {
            from = to = (struct runs){.arena = arena};
            rc = clip_runs(s, a, &from);
            if (!rc)
                rc = clip_runs(s, b, &to);
        }
        if (!rc)
            rc = runs_join(&from, &to, &joined[d]);
        if (rc || !joined[d].n)
            return rc;
    }
    return list_steps(s, a, b, joined, out, arena);
}

/* Bytes of a step that is one run on both sides; 0: the step is not one run. */
static int64_t run_bytes(const struct memory_tile *t, int64_t size)
{
    if (!t->loops)
        return size;
    return t->loops == 1 && t->stride[0][0] == size && t->stride[1][0] == size ? t->n[0] * size : 0;
}

/* Long runs are read straight into their place. Otherwise all that the piece has of the slab is read at once and copied
 * from there. */
static int move_source(const struct slab *s, const struct clip *a, const struct steps *steps, struct slab_buffers *b,
                       int64_t *read)
{
    const struct slab_side *src = &s->p->src;
    const struct slab_place *place = a->piece->places;
    struct ranges r = find_ranges(s, src, a, place);
    int64_t size = (int64_t)weft_dtype_size(src->dtype);
    bool direct = r.n == 1 && src->dtype == s->p->dst.dtype && r.bytes / DIRECT_LEAST >= (int64_t)steps->n - 1;
    for (size_t i = 0; i < steps->n && direct; i++)
        direct = run_bytes(&steps->v[i].tile, size) > 0;
    int rc = direct ? 0 : read_ranges(place, &r, b->read);
    for (size_t i = 0; i < steps->n && !rc; i++) {
        const struct step *step = &steps->v[i];
        if (direct)
            rc = checkpoint_files_read_all(place->file->fd, step->to, (size_t)run_bytes(&step->tile, size),
                                           r.at + step->from, place->file->path);
        else
            memory_copy(&step->tile, step->to, s->p->dst.dtype, b->read + step->from, src->dtype);
    }
    *read += a->count * size;
    return rc;
}

static void find_slab(const struct slab_cut *p, int64_t i, struct slab *out)
{
    *out = (struct slab){.p = p, .lo = i % p->per * p->rows};
    out->hi = min64(out->lo + p->rows, p->shape[p->dim]);
    i /= p->per;
    for (int d = p->dim - 1; d >= 0; d--) {
        out->at[d] = i % p->shape[d];
        i /= p->shape[d];
    }
}

int slab_move(const struct slab_cut *p, int64_t i, struct slab_buffers *b, int64_t *read, int64_t *written)
{
    struct slab s;
    int64_t size = (int64_t)weft_dtype_size(p->dst.dtype);
    unsigned char *at = b->write;
    size_t n = 0;
    int rc = 0;
    find_slab(p, i, &s);
    arena_reset(&b->arena);
    struct clip *dst = arena_alloc(&b->arena, p->dst.npieces * sizeof *dst), src;
    if (!dst)
        return error_nomem();
    for (size_t k = 0; k < p->dst.npieces; k++)
        if (clip_piece(&s, &p->dst.pieces[k], &dst[n])) {
            dst[n].data = at;
            at += dst[n++].count * size;
        }
    for (size_t k = 0; k < p->src.npieces && !rc; k++) {
        struct steps steps = {0};
        if (!clip_piece(&s, &p->src.pieces[k], &src))
            continue;
        for (size_t j = 0; j < n && !rc; j++)
            rc = meet(&s, &src, &dst[j], &steps, &b->arena);
        if (!rc)
            rc = move_source(&s, &src, &steps, b, read);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < dst[k].piece->nplaces && !rc; j++) {
            struct ranges r = find_ranges(&s, &p->dst, &dst[k], &dst[k].piece->places[j]);
            rc = write_ranges(&dst[k].piece->places[j], &r, dst[k].data);
            *written += dst[k].count * size;
        }
    return rc;
}
