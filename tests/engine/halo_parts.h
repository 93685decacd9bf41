/* The parts of a rank's buffer (weft_layout_halo) against the oracle of layouts, slot by slot. */
#ifndef WEFT_TESTS_HALO_PARTS_H
#define WEFT_TESTS_HALO_PARTS_H
#include <string.h>

#include "support/layout_oracle.h"

static struct sample sample;
#define LAW(holds) SAMPLE_LAW(sample, holds)

enum { BOXES = 20000 };

/* What slot k of a dim is, and the position it stands for, or would stand for. */
static inline enum weft_halo_part slot_part(const weft_dim *d, const struct oracle *o, int64_t k, int64_t *at)
{
    int64_t x = k - o->first;
    *at = o->slot[k];
    if (x < 0 || x >= o->n) {
        if (o->slot[k] < 0)
            *at = o->at[0] + (x < 0 ? x : x - o->n + (o->at[o->n - 1] - o->at[0] + 1));
        return o->slot[k] < 0 ? WEFT_HALO_EDGES : WEFT_HALO_GHOSTS;
    }
    for (int64_t i = k - d->lo; i <= k + d->hi && (d->lo || d->hi); i++)
        if (o->slot[i] >= 0 && (i < o->first || i >= o->first + o->n))
            return WEFT_HALO_RIM;
    return WEFT_HALO_INNER;
}

/* Every slot of the box is of the part, stands where the box says, and was in no box before. */
static inline void check_box(const struct oracle *o, const weft_box *b, enum weft_halo_part part, unsigned char *seen)
{
    int ndim = sample.desc.ndim;
    int64_t count = 1;
    for (int d = 0; d < ndim; d++) {
        LAW(b->len[d] > 0 && b->local[d] >= 0 && b->local[d] + b->len[d] <= o[d].room);
        count *= b->len[d];
    }
    for (int64_t i = 0; i < count; i++) {
        enum weft_halo_part most = WEFT_HALO_INNER;
        int64_t rest = i, slot = 0, scale = 1;
        for (int d = ndim - 1; d >= 0; d--) {
            int64_t k = b->local[d] + rest % b->len[d], at;
            enum weft_halo_part is = slot_part(&sample.dims[d], &o[d], k, &at);
            LAW(at == b->at[d] + rest % b->len[d]);
            most = is > most ? is : most;
            rest /= b->len[d];
            slot += k * scale;
            scale *= o[d].room;
        }
        LAW(most == part && !seen[slot]);
        seen[slot] = 1;
    }
}

static inline void check_parts(const weft_layout *l, int rank)
{
    static struct oracle o[WEFT_MAX_DIMS];
    static weft_box boxes[BOXES + 1];
    static unsigned char seen[1 << 20];
    int64_t index = oracle_index(&sample, rank), slots = index >= 0, covered = 0;
    for (int d = 0; d < sample.desc.ndim && index >= 0; d++) {
        oracle_dim(&sample, d, index, &o[d]);
        slots = slots > (1 << 20) ? slots : slots * o[d].room;
    }
    if (slots > (1 << 20))
        return;
    memset(seen, 0, (size_t)slots);
    for (enum weft_halo_part part = WEFT_HALO_INNER; part <= WEFT_HALO_EDGES; part++) {
        size_t n = 77, again = 77;
        LAW(!weft_layout_halo(l, rank, part, NULL, 0, &n));
        size_t cap = n < BOXES ? n : BOXES, half = cap / 2;
        memset(boxes, 0x55, (cap + 1) * sizeof *boxes);
        LAW(!weft_layout_halo(l, rank, part, boxes, half, &again));
        LAW(again == n && boxes[half].local[0] == 0x5555555555555555);
        LAW(!weft_layout_halo(l, rank, part, boxes, cap, &again));
        LAW(again == n && n <= BOXES);
        for (size_t i = 0; i < n; i++)
            check_box(o, &boxes[i], part, seen);
    }
    for (int64_t i = 0; i < slots; i++)
        covered += seen[i];
    LAW(covered == slots);
}
#endif
