#define _GNU_SOURCE
#include "halo_grid.h"

#include <stdio.h>
#include <string.h>

#include "unwatched.h"
#include "values.h"

struct grid_rank grid_rank(const struct grid *g, int rank)
{
    struct grid_rank r = {.slots = 1};
    for (int d = g->ndim - 1; d >= 0; d--) {
        const struct grid_dim *k = &g->dim[d];
        int64_t c = rank % k->pieces, size = (k->extent + k->pieces - 1) / k->pieces;
        rank /= (int)k->pieces;
        r.at[d] = c * size;
        r.own[d] = r.at[d] >= k->extent ? 0 : r.at[d] + size > k->extent ? k->extent - r.at[d] : size;
        r.shape[d] = r.own[d] ? k->lo + r.own[d] + k->hi : 0;
        r.slots *= r.shape[d];
    }
    return r;
}

UNWATCHED int64_t grid_slot(const struct grid *g, const struct grid_rank *r, int64_t slot, bool *own)
{
    int64_t global = 0, scale = 1;
    bool edge = false;
    *own = true;
    for (int d = g->ndim - 1; d >= 0; d--) {
        const struct grid_dim *k = &g->dim[d];
        int64_t x = slot % r->shape[d] - k->lo;
        slot /= r->shape[d];
        *own = *own && x >= 0 && x < r->own[d];
        x += r->at[d];
        if (k->wrap)
            x = (x % k->extent + k->extent) % k->extent;
        edge = edge || x < 0 || x >= k->extent;
        global += x * scale;
        scale *= k->extent;
    }
    return edge ? EDGE : global;
}

void grid_random(struct random *g, int ranks, struct grid *out)
{
    int64_t widest;
    *out = (struct grid){.ndim = (int)random_in(g, 1, GRID_DIMS), .ranks = ranks};
    widest = out->ndim == 1 ? 20 : out->ndim == 2 ? 7 : out->ndim == 3 ? 3 : 2;
    for (int d = 0; d < out->ndim; d++) {
        struct grid_dim *k = &out->dim[d];
        k->extent = random_in(g, 1, out->ndim < 3 ? 13 : 6);
        k->pieces = 1;
        k->lo = random_once_in(g, 3) ? random_in(g, 0, widest) : random_in(g, 0, 2);
        k->hi = random_once_in(g, 2) ? k->lo : random_in(g, 0, widest);
        k->wrap = random_once_in(g, 2);
    }
    if (!out->dim[0].lo && !out->dim[0].hi)
        out->dim[0].hi = 1;
    for (int p = 2, left = ranks; left > 1; p++)
        for (; left % p == 0; left /= p)
            out->dim[random_in(g, 0, out->ndim - 1)].pieces *= p;
}

void grid_text(const struct grid *g, const char *dtype, bool ghosts, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s[", dtype);
    for (int d = 0; d < g->ndim; d++) {
        const struct grid_dim *k = &g->dim[d];
        n += (size_t)snprintf(out + n, cap - n, "%s%lld/%c", d ? "," : "", (long long)k->extent, 'a' + d);
        if (ghosts && (k->lo || k->hi))
            n += (size_t)snprintf(out + n, cap - n, "~%lld:%lld%s", (long long)k->lo, (long long)k->hi,
                                  k->wrap ? "o" : "");
    }
    n += (size_t)snprintf(out + n, cap - n, "] @");
    for (int d = 0; d < g->ndim; d++)
        n += (size_t)snprintf(out + n, cap - n, "%s%c%lld", d ? "." : "", 'a' + d, (long long)g->dim[d].pieces);
}

int grid_layouts(const struct grid *g, const char *dtype, weft_layout **own, weft_layout **all)
{
    char text[200];
    grid_text(g, dtype, false, text, sizeof text);
    int err = weft_layout_parse(text, own);
    if (err)
        return err;
    grid_text(g, dtype, true, text, sizeof text);
    return weft_layout_parse(text, all);
}

void grid_view(const struct grid *g, const struct grid_rank *r, void *buffer, size_t size, struct grid_view *out)
{
    int64_t step = (int64_t)size, first = 0;
    for (int d = g->ndim - 1; d >= 0; d--) {
        out->strides[d] = step;
        first += g->dim[d].lo * step;
        step *= r->shape[d];
    }
    size_t bytes = (size_t)r->slots * size;
    out->all = (weft_view){.data = buffer, .bytes = bytes};
    out->own =
        r->slots ? (weft_view){.data = (char *)buffer + first, .bytes = bytes - (size_t)first, .strides = out->strides}
                 : (weft_view){0};
}

void grid_check(const struct grid *g, int64_t slot, int64_t global, int64_t expected, int64_t found)
{
    int64_t extents[GRID_DIMS];
    if (found == expected)
        return;
    for (int d = 0; d < g->ndim; d++)
        extents[d] = g->dim[d].extent;
    values_slot_differs(slot, global, g->ndim, extents, (long double)expected, (long double)found);
}
