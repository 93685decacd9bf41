/* Boxes of one region of the tensor are copies of each other. Of 40,000 ranks that all have the same, lowering looks at
 * the region, not at each of them. Ranks that have an element in several of their own boxes have an index of these. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/found.h"
#include "base/hash.h"
#include "layout/box_list.h"

int box_copies_number(const struct box_list *b, uint32_t *region, uint32_t *first, size_t *n)
{
    struct found table;
    size_t dims = (size_t)b->ndim, bytes = dims * sizeof(int64_t);
    *n = 0;
    if (!found_open(&table, b->n))
        return error_nomem();
    for (size_t i = 0; i < b->n; i++) {
        const int64_t *at = b->at + i * dims, *len = b->len + i * dims;
        size_t k = found_first(&table, hash_bytes(hash_bytes(1, at, bytes), len, bytes));
        for (; table.v[k] != FOUND_NONE; k = found_next(&table, k))
            if (!memcmp(b->at + first[table.v[k]] * dims, at, bytes) &&
                !memcmp(b->len + first[table.v[k]] * dims, len, bytes))
                break;
        if (table.v[k] == FOUND_NONE) {
            first[*n] = (uint32_t)i;
            table.v[k] = (uint32_t)(*n)++;
        }
        region[i] = table.v[k];
    }
    free(table.v);
    return 0;
}

/* Lists the boxes of each region. */
static int list_members(const struct box_list *b, struct box_copies *c)
{
    c->member = malloc(b->n * sizeof *c->member);
    c->first = calloc(c->n + 1, sizeof *c->first);
    size_t *next = malloc(c->n * sizeof *next);
    int rc = c->member && c->first && next ? 0 : error_nomem();
    for (size_t i = 0; i < b->n && !rc; i++)
        c->first[c->region[i] + 1]++;
    for (size_t k = 0; k < c->n && !rc; k++) {
        next[k] = c->first[k];
        c->first[k + 1] += c->first[k];
    }
    for (size_t i = 0; i < b->n && !rc; i++)
        c->member[next[c->region[i]]++] = (uint32_t)i;
    free(next);
    return rc;
}

/* Makes the index of the boxes of one holder, if some of them meet. ids has room for them. */
static int index_own(const struct box_list *b, struct box_copies *c, size_t holder, uint32_t *ids)
{
    size_t from = b->first[holder], n = b->first[holder + 1] - from;
    uint32_t one, two;
    struct box_index x;
    if (n < 2)
        return 0;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)(from + i);
    int rc = box_index_new(b, ids, n, &x);
    if (rc)
        return rc;
    bool meet = box_index_overlap(b, &x, &one, &two);
    if (meet && !c->own && !(c->own = calloc(b->holders, sizeof *c->own))) {
        box_index_free(&x);
        return error_nomem();
    }
    if (meet)
        c->own[holder] = x;
    else
        box_index_free(&x);
    return 0;
}

int box_copies_new(struct box_list *b)
{
    struct box_copies *c = &b->copies;
    uint32_t *ids = malloc(b->n * sizeof *ids);
    c->region = malloc(b->n * sizeof *c->region);
    int rc = ids && c->region ? box_copies_number(b, c->region, ids, &c->n) : error_nomem();
    if (!rc)
        rc = box_index_new(b, ids, c->n, &c->index);
    if (!rc)
        rc = list_members(b, c);
    for (size_t i = 0; i < b->holders && !rc; i++)
        rc = index_own(b, c, i, ids);
    free(ids);
    return rc;
}

void box_copies_free(struct box_list *b)
{
    struct box_copies *c = &b->copies;
    for (size_t i = 0; i < b->holders && c->own; i++)
        box_index_free(&c->own[i]);
    box_index_free(&c->index);
    free(c->own);
    free(c->region);
    free(c->first);
    free(c->member);
    *c = (struct box_copies){0};
}
