#include "version/packed.h"

void packed_boxes(const weft_layout *l, int rank, size_t *first, size_t *end)
{
    int64_t holder = mesh_index(l, rank);
    *first = holder < 0 ? 0 : l->boxes->first[holder];
    *end = holder < 0 ? 0 : l->boxes->first[holder + 1];
}

int64_t packed_box(const struct box_list *b, size_t box)
{
    int64_t n = 1;
    for (int d = 0; d < b->ndim; d++)
        n *= b->len[box * (size_t)b->ndim + (size_t)d];
    return n;
}

int64_t packed_count(const weft_layout *l, int rank)
{
    size_t first, end;
    int64_t all = 0;
    packed_boxes(l, rank, &first, &end);
    for (; first < end; first++)
        all += packed_box(l->boxes, first);
    return all;
}

struct packed_walk packed_begin(const weft_layout *l, int rank)
{
    struct packed_walk w = {.list = l->boxes};
    packed_boxes(l, rank, &w.box, &w.end);
    w.box--; /* packed_next goes to the first one */
    return w;
}

bool packed_next(struct packed_walk *w)
{
    w->packed += w->count;
    if (++w->box == w->end)
        return false;
    w->count = packed_box(w->list, w->box);
    w->loose = w->list->offset[w->box];
    return true;
}

struct memory_tile packed_tile(const struct packed_walk *w, int packed, int64_t size, int64_t loose)
{
    struct memory_tile t = {.loops = w->list->ndim};
    size_t at = w->box * (size_t)w->list->ndim;
    for (int d = w->list->ndim - 1; d >= 0; d--) {
        t.n[d] = w->list->len[at + (size_t)d];
        t.stride[packed][d] = size;
        t.stride[!packed][d] = w->list->stride[at + (size_t)d] * loose;
        size *= t.n[d];
    }
    memory_tile_merge(&t);
    return t;
}
