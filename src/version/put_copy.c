/* Copying a tensor into a snapshot, by several threads if it is long: each copies some blocks, or some turns of the
 * outermost loop, and sums whole blocks. */
#include "base/math.h"
#include "layout/layout.h"
#include "version/block_sums.h"
#include "version/packed.h"
#include "version/put_device.h"

struct copy {
    weft_publisher *p;
    struct publish_ring *into;
    size_t tensor;
    const unsigned char *src;
    const struct memory_tile *tile;
    unsigned char *dst;
    int64_t bytes; /* of the array in the snapshot */
    int from, to;  /* dtypes */
    uint64_t *sums;
    bool copied; /* the array is there, and is summed only */
    int parts;
};

/* Boxes are packed. */
static void copy_boxes(const struct copy *c)
{
    const weft_layout *l = c->p->schema->v[c->tensor].layout;
    int64_t in = (int64_t)weft_dtype_size(c->from), size = (int64_t)weft_dtype_size(c->to);
    for (struct packed_walk w = packed_begin(l, c->p->rank); packed_next(&w);) {
        struct memory_tile tile = packed_tile(&w, 0, size, in);
        memory_copy(&tile, c->dst + w.packed * size, c->to, c->src + w.loose * in, c->from);
        if (c->sums)
            block_sums_add(c->dst + w.packed * size, w.packed * size, w.count * size, c->sums);
    }
}

static void copy_turns(void *arg, int i)
{
    const struct copy *c = arg;
    struct memory_tile some = *c->tile;
    int64_t first = some.loops ? copy_threads_cut(some.n[0], i, c->parts) : 0;
    if (some.loops)
        some.n[0] = copy_threads_cut(some.n[0], i + 1, c->parts) - first;
    memory_copy(&some, c->dst + first * some.stride[0][0], c->to, c->src + first * some.stride[1][0], c->from);
}

static void copy_blocks(void *arg, int i)
{
    const struct copy *c = arg;
    int64_t in = (int64_t)weft_dtype_size(c->from), size = (int64_t)weft_dtype_size(c->to);
    int64_t blocks = ceil_div(c->bytes, SCHEMA_BLOCK), at = copy_threads_cut(blocks, i, c->parts) * SCHEMA_BLOCK;
    int64_t end = min64(c->bytes, copy_threads_cut(blocks, i + 1, c->parts) * SCHEMA_BLOCK);
    int64_t step = c->sums || c->p->delta.from ? SCHEMA_BLOCK : end - at;
    for (; at < end; at += step) {
        int64_t n = min64(step, end - at);
        if (!c->copied)
            block_sums_store(c->dst + at, at, c->to, c->src + at / size * in, c->from, n / size, c->sums);
        else if (c->sums)
            block_sums_add(c->dst + at, at, n, c->sums);
        put_delta_find(c->p, c->into, c->tensor, at, n);
    }
}

void put_copy(weft_publisher *p, struct copy_threads *threads, size_t tensor, const weft_view *v,
              const struct memory_tile *tile, struct publish_ring *into)
{
    const struct schema_tensor *t = &p->schema->v[tensor];
    const struct schema_place *at = &p->part.v[tensor];
    struct copy c = {.p = p,
                     .into = into,
                     .tensor = tensor,
                     .src = v->data,
                     .tile = tile,
                     .dst = into->snapshot.data + at->at,
                     .bytes = at->bytes,
                     .from = t->from_dtype,
                     .to = t->layout->dtype,
                     .sums = p->digests ? into->sums + at->block : NULL};
    if (t->layout->boxes) {
        copy_boxes(&c);
        return;
    }
    int most = copy_threads_parts(threads, at->bytes);
    bool dense = !tile->loops || (tile->loops == 1 && tile->stride[1][0] == (int64_t)weft_dtype_size(c.from));
    c.copied = !dense || c.from == WEFT_BOOL;
    if (c.copied) {
        c.parts = tile->loops ? (int)min64(most, tile->n[0]) : 1;
        copy_threads_run(threads, c.parts, copy_turns, &c);
    }
    c.parts = (int)min64(most, ceil_div(at->bytes, SCHEMA_BLOCK));
    copy_threads_run(threads, c.parts, copy_blocks, &c);
}
