#include "version/part_record.h"

#include <string.h>

#include "base/blake2s.h"
#include "base/hash.h"
#include "base/math.h"
#include "layout/layout.h"

/* Numbers by which the ranks that hold replicas of a piece weigh their digests: they add up to 0. So the sketches of
 * all ranks add up to 0 if all replicas are equal. If some differ, they do so with a probability of about 2^-64 for
 * each of the two words, since the digests are mixed before. */
static uint64_t weight(uint64_t seed, int64_t replica, int64_t replicas)
{
    uint64_t w = 0;
    if (replica)
        return hash_u64(seed, (uint64_t)replica);
    for (int64_t i = 1; i < replicas; i++)
        w -= hash_u64(seed, (uint64_t)i);
    return w;
}

/* The replicas of what a mesh position has: how many, which one this is, and the position of the first. */
struct replicas {
    int64_t n, number, first;
};

static struct replicas replicas_of_mesh(const weft_layout *l, int64_t index)
{
    struct replicas r = {1, 0, index};
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE) {
            int64_t c = layout_coord(l, index, a);
            r.number = r.number * l->axis[a].size + c;
            r.n *= l->axis[a].size;
            r.first -= c * l->axis[a].stride;
        }
    return r;
}

/* Of boxes: the ranks that have the same boxes in the same order. Packed, these have the same bytes. */
static struct replicas replicas_of_boxes(const struct box_list *b, int64_t index)
{
    struct replicas r = {b->shared ? 0 : 1, 0, index};
    size_t n = b->first[index + 1] - b->first[index], dims = (size_t)b->ndim;
    for (size_t h = 0; h < b->holders && b->shared; h++) {
        if (b->first[h + 1] - b->first[h] != n ||
            memcmp(b->at + b->first[h] * dims, b->at + b->first[index] * dims, n * dims * sizeof *b->at) ||
            memcmp(b->len + b->first[h] * dims, b->len + b->first[index] * dims, n * dims * sizeof *b->len))
            continue;
        r.first = r.n ? r.first : (int64_t)h;
        r.number += (int64_t)h < index;
        r.n++;
    }
    return r;
}

static void sketch(const weft_publisher *p, const struct publish_ring *r, uint64_t out[2])
{
    out[0] = out[1] = 0;
    for (size_t i = 0; i < p->schema->n && p->digests; i++) {
        const weft_layout *l = p->schema->v[i].layout;
        int64_t index = mesh_index(l, p->rank);
        if (index < 0 || !p->part.v[i].bytes)
            continue;
        struct replicas x = l->boxes ? replicas_of_boxes(l->boxes, index) : replicas_of_mesh(l, index);
        size_t blocks = (size_t)ceil_div(p->part.v[i].bytes, SCHEMA_BLOCK);
        for (size_t b = 0; b < blocks && x.n > 1; b++)
            for (uint64_t k = 0; k < 2; k++) {
                uint64_t seed = hash_u64(hash_u64(hash_u64(k + 1, i), (uint64_t)x.first), b);
                out[k] += weight(seed, x.number, x.n) * hash_u64(k, r->sums[p->part.v[i].block + b]);
            }
    }
}

void part_record_hash(const weft_publisher *p, const struct publish_ring *r, unsigned char hash[CATALOG_PART])
{
    struct blake2s b;
    blake2s_begin(&b, CATALOG_PART, NULL, 0);
    blake2s_add(&b, r->sums, p->digests ? p->part.blocks * sizeof *r->sums : 0);
    blake2s_end(&b, hash);
}

size_t part_record_write(const weft_publisher *p, const struct publish_ring *r, const char *meta, char *record)
{
    unsigned char hash[CATALOG_PART], words[16];
    uint64_t sums[2];
    part_record_hash(p, r, hash);
    sketch(p, r, sums);
    memcpy(words, sums, sizeof words);
    struct text t = text_start(record, PART_RECORD_MAX);
    text_printf(&t, "generation %llu\ndigests %d\n", (unsigned long long)r->generation, p->digests);
    record_hex(&t, "hash", hash, sizeof hash);
    record_hex(&t, "sketch", words, sizeof words);
    text_printf(&t, "meta %s", p->rank == 0 && meta ? meta : "");
    return t.len;
}
