#include "boxes_random.h"

#include <stdio.h>
#include <string.h>

static int64_t count(const struct boxes_sample *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->ndim; d++)
        n *= s->extents[d];
    return n;
}

void boxes_shape(struct random *g, struct boxes_sample *s)
{
    memset(s, 0, sizeof *s);
    s->ndim = (int)random_in(g, 0, 3);
    for (int d = 0; d < s->ndim; d++)
        s->extents[d] = random_in(g, 1, s->ndim == 1 ? 40 : 8);
}

/* ---- boxes ---- */

static void add(struct boxes_sample *s, int rank, const int64_t *at, const int64_t *len)
{
    if (s->boxes.n == BOXES_MOST)
        return;
    size_t k = s->boxes.n++, n = (size_t)s->ndim;
    s->rank[k] = rank;
    memcpy(s->at + k * n, at, n * sizeof *at);
    memcpy(s->len + k * n, len, n * sizeof *len);
}

/* Cuts a box into two, again and again. */
static void cut(struct random *g, struct boxes_sample *s, int64_t *at, int64_t *len, int depth)
{
    int d = s->ndim ? (int)random_in(g, 0, s->ndim - 1) : 0;
    if (!depth || !s->ndim || len[d] < 2) {
        add(s, (int)random_in(g, 0, BOXES_RANKS - 1), at, len);
        return;
    }
    int64_t here = at[d], all = len[d], first = random_in(g, 1, all - 1);
    len[d] = first;
    cut(g, s, at, len, depth - 1);
    at[d] = here + first;
    len[d] = all - first;
    cut(g, s, at, len, depth - 1);
    at[d] = here;
    len[d] = all;
}

static void any_box(struct random *g, struct boxes_sample *s)
{
    int64_t at[4] = {0}, len[4] = {0};
    for (int d = 0; d < s->ndim; d++) {
        at[d] = random_in(g, 0, s->extents[d]);
        len[d] = random_in(g, 0, s->extents[d] - at[d]);
    }
    add(s, (int)random_in(g, 0, BOXES_RANKS - 1), at, len);
}

static bool is_empty(const struct boxes_sample *s, size_t k)
{
    for (int d = 0; d < s->ndim; d++)
        if (!s->len[k * (size_t)s->ndim + (size_t)d])
            return true;
    return false;
}

/* ---- places ---- */

/* Strides of a box in some order of its dims, with room between rows. Returns the slots that it spans. */
static int64_t stretch(struct random *g, const struct boxes_sample *s, size_t k, int64_t *stride)
{
    int order[4] = {0, 1, 2, 3};
    int64_t step = random_once_in(g, 3) ? random_in(g, 1, 3) : 1, span = 1;
    for (int d = s->ndim - 1; d > 0; d--) {
        int other = (int)random_in(g, 0, d), keep = order[d];
        order[d] = order[other];
        order[other] = keep;
    }
    for (int i = 0; i < s->ndim; i++) {
        int64_t n = s->len[k * (size_t)s->ndim + (size_t)order[i]];
        stride[order[i]] = step;
        span += n ? (n - 1) * step : 0;
        step = step * (n ? n : 1) + (random_once_in(g, 4) ? random_in(g, 0, 2) : 0);
    }
    return span;
}

/* Do the slots of box k collide with those of earlier boxes of its rank? Adds them to `taken`. */
static bool take(const struct boxes_sample *s, size_t k, int64_t (*slot)[BOXES_ROOM], int64_t *room)
{
    size_t n = (size_t)s->ndim, base = k * n;
    bool clash = false;
    if (is_empty(s, k))
        return false;
    int64_t index[4] = {0};
    for (;;) {
        int64_t at = s->offset[k], element = 0;
        for (size_t d = 0; d < n; d++) {
            at += index[d] * s->stride[base + d];
            element = element * s->extents[d] + s->at[base + d] + index[d];
        }
        clash = clash || slot[s->rank[k]][at] >= 0;
        slot[s->rank[k]][at] = element;
        if (room && at >= room[s->rank[k]])
            room[s->rank[k]] = at + 1;
        int d = s->ndim - 1;
        while (d >= 0 && ++index[d] == s->len[base + (size_t)d])
            index[d--] = 0;
        if (d < 0)
            return clash;
    }
}

static void place(struct random *g, struct boxes_sample *s, bool wild)
{
    static int64_t slot[BOXES_RANKS][BOXES_ROOM], keep[BOXES_ROOM];
    int64_t end[BOXES_RANKS] = {0};
    memset(slot, 0xff, sizeof slot);
    int how = (int)random_in(g, 0, 3);
    for (size_t k = 0; k < s->boxes.n; k++) {
        int64_t *stride = s->stride + k * (size_t)s->ndim, span = 1;
        int r = s->rank[k];
        for (int d = s->ndim - 1; d >= 0; d--) {
            int64_t n = s->len[k * (size_t)s->ndim + (size_t)d];
            stride[d] = span;
            span *= n;
        }
        s->offset[k] = end[r];
        if (how && !is_empty(s, k))
            span = stretch(g, s, k, stride);
        memcpy(keep, slot[r], sizeof keep);
        if (how > 1 && !is_empty(s, k)) { /* between others, if there is room, or wherever it comes */
            s->offset[k] = random_in(g, 0, end[r]);
            if (!wild && take(s, k, slot, NULL)) {
                memcpy(slot[r], keep, sizeof keep);
                s->offset[k] = end[r] + random_in(g, 0, 2);
            } else {
                memcpy(slot[r], keep, sizeof keep);
            }
        }
        s->clash = take(s, k, slot, NULL) || s->clash;
        if (!is_empty(s, k) && s->offset[k] + span > end[r])
            end[r] = s->offset[k] + span;
    }
    s->boxes.offset = how ? s->offset : NULL;
    s->boxes.stride = how ? s->stride : NULL;
}

static void look(struct boxes_sample *s)
{
    static int held[BOXES_ELEMENTS];
    static int64_t slot[1][BOXES_ROOM];
    memset(held, 0, sizeof held);
    for (size_t k = 0; k < s->boxes.n; k++) {
        /* A dense copy of the box alone: its elements. */
        struct boxes_sample one = *s;
        memset(slot, 0xff, sizeof slot);
        one.rank[k] = 0;
        one.offset[k] = 0;
        int64_t step = 1;
        for (int d = s->ndim - 1; d >= 0; d--) {
            one.stride[k * (size_t)s->ndim + (size_t)d] = step;
            step *= s->len[k * (size_t)s->ndim + (size_t)d];
        }
        take(&one, k, slot, NULL);
        for (int64_t i = 0; i < BOXES_ROOM; i++)
            if (slot[0][i] >= 0)
                held[slot[0][i]]++;
    }
    s->overlaps = s->gaps = false;
    for (int64_t i = 0; i < count(s); i++) {
        s->overlaps = s->overlaps || held[i] > 1;
        s->gaps = s->gaps || !held[i];
    }
}

void boxes_fill(struct random *g, struct boxes_sample *s, bool wild)
{
    int64_t at[4] = {0}, len[4];
    s->boxes = (weft_boxes){.rank = s->rank, .at = s->at, .len = s->len};
    s->flags = 0;
    s->clash = false;
    memcpy(len, s->extents, sizeof len);
    if (!wild || random_once_in(g, 2))
        cut(g, s, at, len, (int)random_in(g, 0, 4));
    else
        for (int64_t k = random_in(g, 1, 6); k > 0; k--)
            any_box(g, s);
    if (random_once_in(g, 3)) { /* copies on other ranks, and boxes across others */
        for (int64_t k = random_in(g, 1, 4); k > 0; k--) {
            size_t from = (size_t)random_in(g, 0, (int64_t)s->boxes.n - 1), n = (size_t)s->ndim;
            if (random_once_in(g, 2))
                any_box(g, s);
            else
                add(s, (int)random_in(g, 0, BOXES_RANKS - 1), s->at + from * n, s->len + from * n);
        }
    }
    if (random_once_in(g, 4) && s->boxes.n > 1)
        s->boxes.n--;
    place(g, s, wild);
    look(s);
    if (wild) {
        s->flags = (uint64_t)(random_in(g, 0, 1) * WEFT_LAYOUT_OVERLAPS + random_in(g, 0, 1) * WEFT_LAYOUT_GAPS);
    } else {
        s->flags = (s->overlaps || random_once_in(g, 8) ? WEFT_LAYOUT_OVERLAPS : 0) |
                   (s->gaps || random_once_in(g, 8) ? WEFT_LAYOUT_GAPS : 0);
    }
}

int boxes_create(const struct boxes_sample *s, enum weft_dtype dtype, weft_layout **out)
{
    weft_dim dims[WEFT_MAX_DIMS];
    weft_layout_desc desc = {
        .size = sizeof desc, .dtype = dtype, .ndim = s->ndim, .dims = dims, .flags = s->flags, .boxes = &s->boxes};
    for (int d = 0; d < s->ndim; d++)
        dims[d] = (weft_dim){.extent = s->extents[d]};
    return weft_layout_create(&desc, out);
}

void boxes_slots(const struct boxes_sample *s, struct boxes_side *out)
{
    memset(out->slot, 0xff, sizeof out->slot);
    memset(out->room, 0, sizeof out->room);
    for (size_t k = 0; k < s->boxes.n; k++)
        take(s, k, out->slot, out->room);
}

/* ---- meshes ---- */

void boxes_mesh(struct random *g, const struct boxes_sample *s, char *text, size_t cap)
{
    static const char *const meshes[] = {"x1", "x2", "x3=4,1,2", "x2.y2", "x2.y3", "x3.y2=5,4,3,2,1,0"};
    int x = s->ndim ? (int)random_in(g, -1, s->ndim - 1) : -1, y = s->ndim ? (int)random_in(g, -1, s->ndim - 1) : -1;
    const char *mesh = meshes[random_in(g, 0, 5)];
    size_t n = (size_t)snprintf(text, cap, "i32[");
    for (int d = 0; d < s->ndim; d++) {
        n += (size_t)snprintf(text + n, cap - n, "%s%lld", d ? "," : "", (long long)s->extents[d]);
        if (d == x)
            n += (size_t)snprintf(text + n, cap - n, random_once_in(g, 3) ? "/x:2" : "/x");
        if (d == y && strchr(mesh, 'y'))
            n += (size_t)snprintf(text + n, cap - n, random_once_in(g, 3) ? "/y:1" : "/y");
    }
    snprintf(text + n, cap - n, "] @%s", mesh);
}

void boxes_mesh_slots(const weft_layout *l, const struct boxes_sample *s, struct boxes_side *out)
{
    static weft_box boxes[BOXES_ELEMENTS];
    memset(out->slot, 0xff, sizeof out->slot);
    memset(out->room, 0, sizeof out->room);
    for (int r = 0; r < BOXES_RANKS; r++) {
        weft_local local;
        size_t n = 0;
        if (weft_layout_local(l, r, &local) || weft_layout_boxes(l, r, boxes, BOXES_ELEMENTS, &n))
            continue;
        out->room[r] = local.count;
        for (size_t k = 0; k < n; k++) {
            int64_t all = 1;
            for (int d = 0; d < s->ndim; d++)
                all *= boxes[k].len[d];
            for (int64_t i = 0; i < all; i++) {
                int64_t rest = i, at = 0, element = 0, step = 1, stride = 1;
                for (int d = s->ndim - 1; d >= 0; d--) {
                    int64_t index = rest % boxes[k].len[d];
                    rest /= boxes[k].len[d];
                    at += (boxes[k].local[d] + index) * stride;
                    element += (boxes[k].at[d] + index) * step;
                    stride *= local.shape[d];
                    step *= s->extents[d];
                }
                out->slot[r][at] = element;
            }
        }
    }
}
