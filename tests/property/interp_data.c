#define _GNU_SOURCE
#include "interp_data.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "layout/layout.h"
#include "memory/memory.h"

void *interp_alloc(size_t n)
{
    void *p = calloc(n ? n : 1, 1);
    if (!p)
        abort();
    return p;
}

/* ---- data ---- */

void interp_fill(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(hash_u64(seed, i / 8) >> (i % 8 * 8));
}

/* A value whose sums, products and divisions by small numbers do not depend on their order. */
static void interp_number(unsigned char *out, int dtype, bool prod, uint64_t h)
{
    double f = prod ? (double)(1 << (h >> 8) % 2) : (double)((h >> 8) % (weft_dtype_size(dtype) > 2 ? 4096 : 8));
    f = h & 1 ? -f : f;
    if (dtype_is_complex(dtype)) {
        size_t part = weft_dtype_size(dtype) / 2;
        double im = (double)((h >> 24) % 4096);
        memory_cast_one(out, part == 4 ? WEFT_F32 : WEFT_F64, &f, WEFT_F64);
        memory_cast_one(out + part, part == 4 ? WEFT_F32 : WEFT_F64, &im, WEFT_F64);
    } else if (dtype_is_float(dtype))
        memory_cast_one(out, dtype, &f, WEFT_F64);
    else
        memory_cast_one(out, dtype, &h, WEFT_U64);
}

static void interp_view_of(struct interp_view *v, const weft_layout *l, int rank)
{
    weft_local local;
    if (weft_layout_local(l, rank, &local))
        abort();
    int64_t stride = (int64_t)weft_dtype_size(l->dtype);
    for (int d = l->ndim - 1; d >= 0; d--) {
        v->shape[d] = local.shape[d];
        v->stride[d] = stride;
        stride *= local.shape[d] ? local.shape[d] : 1;
    }
}

/* Along a dim: for each place the position that it stands for (-1: none), whether it is a ghost. */
struct interp_place {
    int64_t at;
    bool ghost;
};

static struct interp_place *interp_places(const weft_layout *l, int d, int64_t piece, int64_t room)
{
    struct arena arena = {0};
    struct runs slots = {.arena = &arena};
    size_t first, inner;
    struct interp_place *p = interp_alloc((size_t)room * sizeof *p);
    for (int64_t i = 0; i < room; i++)
        p[i] = (struct interp_place){-1, false};
    if (layout_piece_slots(l, d, piece, &slots, &first, &inner))
        abort();
    for (size_t k = 0; k < slots.n; k++)
        for (int64_t i = 0; i < slots.v[k].n; i++)
            for (int64_t o = 0; o < slots.v[k].len; o++)
                p[slots.v[k].to + i * slots.v[k].tostep + o] =
                    (struct interp_place){slots.v[k].at + i * slots.v[k].step + o, k < first || k >= first + inner};
    arena_free(&arena);
    return p;
}

/* Terms of the source: the same on all replicas, different for each term of each element. */
static void interp_terms(const struct interp_view *v, const weft_layout *l, int rank, uint64_t seed)
{
    struct interp_place *place[WEFT_MAX_DIMS];
    int64_t index = mesh_index(l, rank), at[WEFT_MAX_DIMS] = {0}, count = 1;
    bool prod = false;
    for (int f = 0; f < l->nfolds; f++)
        prod = prod || l->fold[f].op == WEFT_PROD;
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role <= LAYOUT_FOLD)
            seed = hash_u64(seed, (uint64_t)layout_coord(l, index, a));
    for (int d = 0; d < l->ndim; d++) {
        place[d] = interp_places(l, d, layout_piece(l, index, d), v->shape[d]);
        count *= v->shape[d];
    }
    for (int64_t k = 0; k < count; k++) {
        uint64_t h = seed;
        unsigned char *p = v->data;
        bool none = false;
        int ghosts = 0;
        for (int d = 0; d < l->ndim; d++) {
            const struct interp_place *x = &place[d][at[d]];
            h = hash_u64(h, (uint64_t)x->at);
            if (l->ghost_terms && (l->dim[d].lo || l->dim[d].hi))
                h = hash_u64(hash_u64(h, (uint64_t)layout_piece(l, index, d)), (uint64_t)at[d]);
            none = none || x->at < 0;
            ghosts += x->ghost;
            p += at[d] * v->stride[d];
        }
        if (!none && (!ghosts || l->ghost_terms) && (ghosts < 2 || !l->faces))
            interp_number(p, l->dtype, prod, hash_u64(h, 1));
        for (int d = l->ndim - 1; d >= 0 && ++at[d] == v->shape[d]; d--)
            at[d] = 0;
    }
    for (int d = 0; d < l->ndim; d++)
        free(place[d]);
}

/* Does the smaller side of a rank's tensor lie inside of the larger, element for element? Then where: its first. */
static bool interp_shares(const weft_layout *out, const weft_layout *in, int rank, int64_t *first)
{
    weft_local a, b;
    if (weft_layout_local(out, rank, &a) || weft_layout_local(in, rank, &b) || !a.holds || !b.holds || !a.count ||
        !b.count || out->dtype != in->dtype)
        return false;
    bool ok = true;
    for (int d = 0; d < out->ndim && ok; d++) {
        struct interp_place *x = interp_places(out, d, layout_piece(out, mesh_index(out, rank), d), a.shape[d]);
        struct interp_place *y = interp_places(in, d, layout_piece(in, mesh_index(in, rank), d), b.shape[d]);
        int64_t shift = 0;
        while (shift < a.shape[d] && (x[shift].at != y[0].at || x[shift].ghost))
            shift++;
        for (int64_t i = 0; i < b.shape[d]; i++)
            ok = ok && shift + i < a.shape[d] && y[i].at >= 0 && x[shift + i].at == y[i].at;
        first[d] = shift;
        free(x);
        free(y);
    }
    return ok;
}

static unsigned char *interp_memory(struct interp_world *w, size_t bytes)
{
    w->bytes[w->nmemory] = bytes;
    return w->memory[w->nmemory++] = interp_alloc(bytes);
}

struct interp_world *interp_open(const weft_plan *const *all, size_t ranks, bool in_place, uint64_t seed)
{
    struct interp_world *w = interp_alloc(sizeof *w);
    w->ranks = ranks;
    w->ntensors = all[0]->ntensors;
    size_t n = ranks * w->ntensors;
    w->src = interp_alloc(n * sizeof *w->src);
    w->dst = interp_alloc(n * sizeof *w->dst);
    w->memory = interp_alloc(2 * n * sizeof *w->memory);
    w->bytes = interp_alloc(2 * n * sizeof *w->bytes);
    for (size_t i = 0; i < n; i++) {
        int r = (int)(i / w->ntensors);
        const struct plan_tensor *t = &all[0]->tensors[i % w->ntensors];
        struct interp_view *side[2] = {&w->src[i], &w->dst[i]};
        const weft_layout *l[2] = {t->src, t->dst};
        int64_t first[WEFT_MAX_DIMS];
        int inner = !in_place                             ? -1
                    : interp_shares(l[0], l[1], r, first) ? 1
                    : interp_shares(l[1], l[0], r, first) ? 0
                                                          : -1;
        for (int k = 0; k < 2; k++) {
            weft_local local;
            if (mesh_index(l[k], r) < 0 || weft_layout_local(l[k], r, &local))
                continue;
            interp_view_of(side[k], l[k], r);
            if (k == inner)
                continue;
            side[k]->data = interp_memory(w, (size_t)local.bytes);
            interp_fill(side[k]->data, (size_t)local.bytes, hash_u64(seed, 2 * i + (size_t)k));
        }
        if (inner >= 0) {
            side[inner]->data = side[1 - inner]->data;
            for (int d = 0; d < t->ndim; d++) {
                side[inner]->stride[d] = side[1 - inner]->stride[d];
                side[inner]->data += first[d] * side[1 - inner]->stride[d];
            }
        }
        if (w->src[i].data)
            interp_terms(&w->src[i], t->src, r, hash_u64(seed, 77 + i % w->ntensors));
    }
    return w;
}

void interp_close(struct interp_world *w)
{
    for (size_t i = 0; i < w->nmemory; i++)
        free(w->memory[i]);
    free(w->memory);
    free(w->bytes);
    free(w->src);
    free(w->dst);
    free(w);
}

unsigned char *interp_result(const struct interp_world *w, const weft_plan *const *all, size_t *bytes)
{
    *bytes = 0;
    for (size_t pass = 0, at = 0;; pass++) {
        unsigned char *out = pass ? interp_alloc(*bytes) : NULL;
        for (size_t i = 0; i < w->ranks * w->ntensors; i++) {
            const struct interp_view *v = &w->dst[i];
            const weft_layout *l = all[0]->tensors[i % w->ntensors].dst;
            size_t size = weft_dtype_size(l->dtype);
            int64_t count = v->data ? 1 : 0, x[WEFT_MAX_DIMS] = {0};
            for (int d = 0; d < l->ndim; d++)
                count *= v->shape[d];
            if (!pass)
                *bytes += (size_t)count * size;
            for (int64_t k = 0; pass && k < count; k++) {
                const unsigned char *p = v->data;
                for (int d = 0; d < l->ndim; d++)
                    p += x[d] * v->stride[d];
                memcpy(out + at, p, size);
                at += size;
                for (int d = l->ndim - 1; d >= 0 && ++x[d] == v->shape[d]; d--)
                    x[d] = 0;
            }
        }
        if (pass)
            return out;
    }
}
