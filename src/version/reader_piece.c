#include "version/reader_piece.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"

int reader_piece_step(struct reader_plan *p, struct reader_piece *piece, struct memory_tile *t, int64_t size,
                      struct reader_step *s)
{
    int64_t bytes = memory_tile_count(t) * size, last = 0;
    for (int i = 0; i < t->loops; i++)
        last += (t->n[i] - 1) * t->stride[1][i];
    memory_tile_merge(t);
    s->loops = t->loops;
    int64_t *v = arena_alloc(&p->arena, (size_t)(3 * t->loops + 1) * sizeof *v);
    if (!v)
        return error_nomem();
    memcpy(v, t->n, (size_t)t->loops * sizeof *v);
    memcpy(v + t->loops, t->stride[0], (size_t)t->loops * sizeof *v);
    memcpy(v + 2 * t->loops, t->stride[1], (size_t)t->loops * sizeof *v);
    s->v = v;
    piece->bytes += bytes;
    piece->lo = min64(piece->lo, s->from);
    piece->hi = max64(piece->hi, s->from + last + size);
    return 0;
}

/* Marks the blocks that a step reads. Loops whose gaps are shorter than a block touch every block on their way. */
static void mark(const struct reader_step *s, int64_t size, int64_t base, bool *blocks)
{
    int order[2 * WEFT_MAX_DIMS], inner = 0;
    int64_t at[2 * WEFT_MAX_DIMS] = {0}, span = size;
    const int64_t *n = s->v, *stride = s->v + 2 * s->loops;
    for (int i = 0; i < s->loops; i++) {
        int k = i;
        for (; k > 0 && stride[order[k - 1]] > stride[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (; inner < s->loops && stride[order[inner]] - span < SCHEMA_BLOCK; inner++)
        span = max64(span, (n[order[inner]] - 1) * stride[order[inner]] + span);
    for (int d = inner;;) {
        int64_t from = s->from;
        for (int i = inner; i < s->loops; i++)
            from += at[i] * stride[order[i]];
        for (int64_t b = from / SCHEMA_BLOCK; b <= (from + span - 1) / SCHEMA_BLOCK; b++)
            blocks[b - base] = true;
        for (d = inner; d < s->loops && ++at[d] == n[order[d]]; d++)
            at[d] = 0;
        if (d == s->loops)
            return;
    }
}

/* Lists the blocks that its steps read. */
static int list_runs(struct reader_plan *p, struct reader_piece *piece, int64_t size)
{
    int64_t base = piece->lo / SCHEMA_BLOCK, n = ceil_div(piece->hi, SCHEMA_BLOCK) - base;
    bool *blocks = calloc((size_t)max64(n, 0) + 1, sizeof *blocks);
    if (!blocks)
        return error_nomem();
    for (size_t i = 0; i < piece->nsteps; i++)
        mark(&piece->steps[i], size, base, blocks);
    for (int64_t b = 0; b < n; b++)
        piece->nruns += blocks[b] && !blocks[b + 1];
    struct reader_run *runs = arena_alloc(&p->arena, piece->nruns * sizeof *runs);
    piece->runs = runs;
    for (int64_t b = 0; b < n && runs; b++) {
        if (!blocks[b])
            continue;
        *runs = (struct reader_run){.first = base + b};
        while (blocks[b])
            b++;
        runs++->end = base + b;
    }
    free(blocks);
    return piece->runs ? 0 : error_nomem();
}

int reader_piece_push(struct reader_plan *p, const struct reader_piece *piece)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct reader_piece *v = realloc(p->pieces, cap * sizeof *v);
        if (!v)
            return error_nomem();
        p->pieces = v;
        p->cap = cap;
    }
    p->pieces[p->n++] = *piece;
    p->bytes += piece->ways ? piece->bytes : 0;
    return 0;
}

int reader_piece_add(struct reader_plan *p, struct reader_piece *piece, int64_t size)
{
    int err = list_runs(p, piece, size);
    return err ? err : reader_piece_push(p, piece);
}
