/* Copying a piece of a version, by several threads if it is long. Where threads meet in a block, each has sums of its
 * own for a while: sums of parts of a block add up to the sum of the block. */
#include <stdlib.h>

#include "base/math.h"
#include "layout/layout.h"
#include "version/block_sums.h"
#include "version/fetch_share.h"
#include "version/fetch_version.h"

struct copy {
    const struct reader_piece *piece;
    const unsigned char *array; /* where the publisher's array would begin */
    int64_t end;                /* of the blocks of the piece in it */
    unsigned char *dst;
    int from, to; /* dtypes */
    int parts;
    bool together; /* only bytes that are copied are summed */
    bool apart;    /* not all blocks on the way are needed: they are summed by themselves */
    uint64_t *sums;
    uint64_t *own; /* those of each part but the first; NULL: all have `sums` */
    size_t blocks;
    int64_t units; /* turns of the outermost loops of all steps */
};

/* Adds the bytes of some of a piece's blocks to their sums, except those in [lo, hi). */
static void add_blocks(const struct copy *c, size_t first, size_t end, int64_t lo, int64_t hi)
{
    for (size_t i = first; i < end; i++) {
        int64_t from = c->piece->runs[i].first * SCHEMA_BLOCK, to = reader_run_end(&c->piece->runs[i], c->end);
        int64_t before = min64(to, max64(lo, from)), after = max64(from, min64(hi, to));
        block_sums_add(c->array + from, from, before - from, c->sums);
        block_sums_add(c->array + max64(before, after), max64(before, after), to - max64(before, after), c->sums);
    }
}

/* ---- one run on both sides: parts are whole blocks ---- */

static bool is_run(const struct copy *c)
{
    const struct reader_step *s = c->piece->steps;
    return c->piece->nsteps == 1 && c->from != WEFT_BOOL &&
           (!s->loops || (s->loops == 1 && s->v[1] == (int64_t)weft_dtype_size(c->to) &&
                          s->v[2] == (int64_t)weft_dtype_size(c->from)));
}

static void copy_run(void *arg, int i)
{
    const struct copy *c = arg;
    const struct reader_step *s = c->piece->steps;
    int64_t in = (int64_t)weft_dtype_size(c->from), out = (int64_t)weft_dtype_size(c->to);
    int64_t end = s->from + c->piece->bytes, first = s->from / SCHEMA_BLOCK,
            blocks = ceil_div(end, SCHEMA_BLOCK) - first;
    int64_t lo = max64(s->from, (first + copy_threads_cut(blocks, i, c->parts)) * SCHEMA_BLOCK);
    int64_t hi = min64(end, (first + copy_threads_cut(blocks, i + 1, c->parts)) * SCHEMA_BLOCK);
    if (lo < hi)
        block_sums_load(c->dst + s->to + (lo - s->from) / in * out, c->to, c->array + lo, lo, c->from, (hi - lo) / in,
                        c->sums);
}

/* ---- steps: parts are turns of their outermost loops ---- */

static int64_t turns_of(const struct reader_step *s)
{
    return s->loops ? s->v[0] : 1;
}

/* Some turns of a step, from `first` on, as a tile; *from and *to are where they begin. */
static void some_turns(const struct reader_step *s, int64_t first, int64_t n, struct memory_tile *t, int64_t *from,
                       int64_t *to)
{
    reader_plan_tile(s, t);
    *from = s->from;
    *to = s->to;
    if (!s->loops)
        return;
    t->n[0] = n;
    *to += first * t->stride[0][0];
    *from += first * t->stride[1][0];
}

/* The byte of the array at which a turn begins. */
static int64_t place_of(const struct copy *c, int64_t unit)
{
    const struct reader_step *s = c->piece->steps;
    for (; unit >= turns_of(s); s++)
        unit -= turns_of(s);
    return s->from + (s->loops ? unit * s->v[2 * s->loops] : 0);
}

/* Parts of the walk sum what lies between their beginnings, each byte once, whatever the order of the steps. */
static int64_t walk_begin(const struct copy *c, int part)
{
    int64_t at = c->piece->runs[0].first * SCHEMA_BLOCK;
    for (int i = 1; i <= part && i < c->parts; i++)
        at = max64(at, min64(c->end, place_of(c, copy_threads_cut(c->units, i, c->parts))));
    return part < c->parts ? at : c->end;
}

static void copy_turns(void *arg, int i)
{
    const struct copy *c = arg;
    const struct reader_piece *p = c->piece;
    uint64_t *sums = c->own && i ? c->own + (size_t)(i - 1) * c->blocks : c->sums;
    struct block_sums_walk w = {c->array, walk_begin(c, i), walk_begin(c, i + 1), c->apart ? NULL : sums, c->together};
    int64_t unit = copy_threads_cut(c->units, i, c->parts), left = copy_threads_cut(c->units, i + 1, c->parts) - unit;
    if (sums && c->apart)
        add_blocks(c, (size_t)copy_threads_cut((int64_t)p->nruns, i, c->parts),
                   (size_t)copy_threads_cut((int64_t)p->nruns, i + 1, c->parts), 0, 0);
    for (const struct reader_step *s = p->steps; left; s++) {
        int64_t turns = turns_of(s), take = min64(left, turns - unit), from, to;
        struct memory_tile t;
        if (unit >= turns) {
            unit -= turns;
            continue;
        }
        some_turns(s, unit, take, &t, &from, &to);
        block_sums_copy(&w, &t, c->dst + to, c->to, from, c->from);
        left -= take;
        unit = 0;
    }
    block_sums_upto(&w, w.end);
}

/* Parts may meet in a block. Without memory for sums of their own there is one part. */
static void copy_all_turns(struct copy *c, struct copy_threads *threads)
{
    for (size_t i = 0; i < c->piece->nsteps; i++)
        c->units += turns_of(&c->piece->steps[i]);
    c->parts = (int)min64(c->parts, c->units);
    if (c->sums && !c->apart && c->parts > 1) {
        c->own = calloc((size_t)(c->parts - 1) * c->blocks, sizeof *c->own);
        c->parts = c->own ? c->parts : 1;
    }
    copy_threads_run(threads, c->parts, copy_turns, c);
    for (size_t i = 0; c->own && i < (size_t)(c->parts - 1) * c->blocks; i++)
        c->sums[i % c->blocks] += c->own[i];
    free(c->own);
}

void fetch_copy(struct fetch_attempt *a, const struct reader_piece *p, int64_t bytes, const unsigned char *array,
                uint64_t *sums)
{
    const weft_subscriber *s = a->s;
    const struct reader_run *last = &p->runs[p->nruns - 1];
    struct copy c = {.piece = p,
                     .array = array,
                     .end = reader_run_end(last, bytes),
                     .dst = subscribe_place(s, a->to, p->mine),
                     .from = s->theirs->v[p->theirs].layout->dtype,
                     .to = s->mine->v[p->mine].layout->dtype,
                     .together = fetch_share_takes(s, p),
                     .sums = sums,
                     .blocks = (size_t)last->end};
    c.apart = p->nruns > 1 && !c.together;
    c.parts = copy_threads_parts(&a->threads, p->bytes);
    if (!is_run(&c)) {
        copy_all_turns(&c, &a->threads);
        return;
    }
    copy_threads_run(&a->threads, c.parts, copy_run, &c);
    if (sums && !c.together)
        add_blocks(&c, 0, p->nruns, p->lo, p->hi);
}
