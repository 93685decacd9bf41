#include "version/part_blocks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "bus/delta.h"
#include "layout/layout.h"

#define DELTA_SHARE 16 /* a delta is expected to be that much shorter, at most */

/* A mark of a host, not 0. */
static uint32_t mark_of(uint64_t who)
{
    return (uint32_t)(who >> 32) | 1;
}

static int64_t most_of(const struct part_link_message *m)
{
    return max64(SCHEMA_BLOCK, min64(m->most, PART_LINK_MOST));
}

size_t part_blocks_choose(struct part_blocks_given *g, const struct schema_part *places, const _Atomic uint8_t *have,
                          const struct part_link_message *m, const unsigned char *wanted, bool scarce, uint32_t *list)
{
    uint32_t me = mark_of(m->who), lost = m->lost ? mark_of(m->lost) : 0;
    size_t first = (size_t)m->at, count = (size_t)m->count, n = 0;
    int64_t room = most_of(m) * (m->flags & PART_LINK_BASE ? DELTA_SHARE : 1);
    int passes = scarce && !(m->flags & PART_LINK_INSIST) ? 2 : 3;
    g->several |= g->taker && g->taker != me;
    g->taker = me;
    size_t from = g->several ? g->cursor : g->first;
    size_t begin = from > first && from < first + count ? from - first : 0;
    for (int pass = 0; pass < passes && !n; pass++)
        for (size_t k = 0; k < count && n < PART_BLOCKS_LIST; k++) {
            size_t i = begin + k < count ? begin + k : begin + k - count, b = first + i;
            if (!wanted[i / 8]) {
                if (i % 8 == 0 && i + 8 <= count)
                    k += 7;
                continue;
            }
            if (!part_blocks_bit(wanted, i) || (pass == 0 && g->who[b] && g->who[b] != lost) ||
                (pass == 1 && g->who[b] != me))
                continue;
            if (have && !atomic_load_explicit(&have[b], memory_order_acquire)) /* pairs with bus_relay_store */
                continue;
            int64_t at, bytes;
            schema_block(places, b, &at, &bytes);
            if (n && bytes > room)
                break;
            room -= bytes;
            list[n++] = (uint32_t)b;
            g->who[b] = me;
            g->cursor = b + 1;
        }
    while (g->first < places->blocks && g->who[g->first])
        g->first++;
    return n;
}

void part_blocks_return(struct part_blocks_given *g, const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        g->who[list[i]] = 0;
        g->first = list[i] < g->first ? list[i] : g->first;
    }
}

void part_blocks_forget(struct part_blocks_given *g, size_t blocks)
{
    memset(g->who, 0, blocks * sizeof *g->who);
    *g = (struct part_blocks_given){.who = g->who};
}

/* The block as a delta, if that is shorter; otherwise whole. Returns its length. */
static size_t pack_one(const struct part_blocks_from *f, size_t b, unsigned char *to)
{
    int64_t at, bytes;
    size_t tensor = schema_block(f->places, b, &at, &bytes);
    size_t size = weft_dtype_size(f->schema->v[tensor].layout->dtype), n = (size_t)bytes;
    const unsigned char *data = f->arrays ? f->arrays[tensor] + (at - f->places->v[tensor].at) : f->data + at;
    if (f->deltas && f->deltas[b].data) {
        memcpy(to, f->deltas[b].data, f->deltas[b].bytes);
        return f->deltas[b].bytes;
    }
    if (f->base && delta_takes(size)) {
        size_t found = delta_find(data, f->base + at, n / size, size, to);
        if (found < n)
            return found;
    }
    memcpy(to, data, n);
    return n;
}

/* The heads of whole blocks, and where these are. */
static unsigned char *list_whole(const struct part_blocks_from *f, size_t most, const uint32_t *list, size_t *n,
                                 size_t *size, struct part_blocks_runs *runs)
{
    size_t fits = 0, heads = *n * sizeof(struct part_link_block);
    unsigned char *out = malloc(heads + *n * sizeof *runs->v + 1);
    if (!out)
        return NULL;
    *runs = (struct part_blocks_runs){.v = (struct part_blocks_run *)(void *)(out + heads)};
    for (; fits < *n && runs->bytes < most; fits++) {
        int64_t at, bytes;
        schema_block(f->places, list[fits], &at, &bytes);
        struct part_link_block head = {list[fits], (uint32_t)bytes};
        memcpy(out + fits * sizeof head, &head, sizeof head);
        struct part_blocks_run *last = runs->n ? &runs->v[runs->n - 1] : NULL;
        if (last && last->at + last->bytes == f->data + at)
            last->bytes += (size_t)bytes;
        else
            runs->v[runs->n++] = (struct part_blocks_run){f->data + at, (size_t)bytes};
        runs->bytes += (size_t)bytes;
    }
    *n = fits;
    *size = fits * sizeof(struct part_link_block);
    return out;
}

unsigned char *part_blocks_pack(const struct part_blocks_from *f, const struct part_link_message *m,
                                const uint32_t *list, size_t *n, size_t *size, struct part_blocks_runs *runs)
{
    size_t most = (size_t)most_of(m), used = 0, fits = 0, heads = *n * sizeof(struct part_link_block);
    if (f->data && !f->base && !f->deltas)
        return list_whole(f, most, list, n, size, runs);
    *runs = (struct part_blocks_runs){0};
    unsigned char *out = malloc(heads + most + (size_t)(2 * SCHEMA_BLOCK)); /* the last one may be a long delta */
    if (!out)
        return NULL;
    for (; fits < *n && used < most; fits++) {
        struct part_link_block head = {list[fits], 0};
        head.bytes = (uint32_t)pack_one(f, list[fits], out + heads + used);
        memcpy(out + fits * sizeof head, &head, sizeof head);
        used += head.bytes;
    }
    memmove(out + fits * sizeof(struct part_link_block), out + heads, used);
    *n = fits;
    *size = fits * sizeof(struct part_link_block) + used;
    return out;
}
