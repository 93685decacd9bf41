/* The index of boxes. The boxes are sorted along a Z-order curve through their centres, eight neighbours on the curve
 * make a node, and eight nodes a node of the next level. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "layout/box_list.h"

/* ---- the order ---- */

struct keyed {
    uint64_t key;
    uint32_t box;
};

/* The bits of the centre, dim by dim from the top bit down. Each dim gives as many bits as 64 allow, of its position
 * relative to the bounds of all boxes. */
static uint64_t curve_key(const struct box_list *b, size_t box, const int *drop, int bits)
{
    uint64_t key = 0, centre[WEFT_MAX_DIMS];
    size_t n = (size_t)b->ndim;
    for (int d = 0; d < b->ndim; d++)
        centre[d] = (uint64_t)(b->at[box * n + (size_t)d] + b->len[box * n + (size_t)d] / 2) >> drop[d];
    for (int bit = bits - 1; bit >= 0; bit--)
        for (int d = 0; d < b->ndim; d++)
            key = key << 1 | (centre[d] >> bit & 1);
    return key;
}

/* Sorts by 16 bits at a time; passes in which all keys are equal are left out. */
static void sort_keys(struct keyed *v, struct keyed *tmp, size_t n, size_t *count)
{
    struct keyed *from = v, *to = tmp;
    for (int shift = 0; shift < 64; shift += 16) {
        memset(count, 0, 65536 * sizeof *count);
        for (size_t i = 0; i < n; i++)
            count[from[i].key >> shift & 0xffff]++;
        if (count[from[0].key >> shift & 0xffff] == n)
            continue;
        size_t sum = 0;
        for (size_t i = 0; i < 65536; i++) {
            size_t here = count[i];
            count[i] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++)
            to[count[from[i].key >> shift & 0xffff]++] = from[i];
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != v)
        memcpy(v, from, n * sizeof *v);
}

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->box > y->box) - (x->box < y->box);
}

static int sort_boxes(const struct box_list *b, const uint32_t *ids, size_t n, uint32_t *order)
{
    int drop[WEFT_MAX_DIMS] = {0}, bits = b->ndim ? 64 / b->ndim : 0;
    bits = bits > 63 ? 63 : bits;
    for (int d = 0; d < b->ndim; d++) {
        uint64_t most = 1;
        for (size_t i = 0; i < n; i++) {
            size_t k = (ids ? ids[i] : i) * (size_t)b->ndim + (size_t)d;
            uint64_t end = (uint64_t)(b->at[k] + b->len[k]);
            most = end > most ? end : most;
        }
        int wide = 64 - __builtin_clzll(most);
        drop[d] = wide > bits ? wide - bits : 0;
    }
    struct keyed *v = malloc(n * sizeof *v), *tmp = NULL;
    size_t *count = NULL;
    if (!v)
        return error_nomem();
    for (size_t i = 0; i < n; i++) {
        uint32_t box = ids ? ids[i] : (uint32_t)i;
        v[i] = (struct keyed){curve_key(b, box, drop, bits), box};
    }
    if (n < 4096) {
        qsort(v, n, sizeof *v, by_key);
    } else {
        tmp = malloc(n * sizeof *tmp);
        count = malloc(65536 * sizeof *count);
        if (tmp && count)
            sort_keys(v, tmp, n, count);
    }
    int rc = n < 4096 || (tmp && count) ? 0 : error_nomem();
    for (size_t i = 0; i < n; i++)
        order[i] = v[i].box;
    free(v);
    free(tmp);
    free(count);
    return rc;
}

/* ---- the tree ---- */

static const int64_t *bound_of(const struct box_list *b, const struct box_index *x, int level, size_t node)
{
    return x->bound + (x->start[level] + node) * 2 * (size_t)b->ndim;
}

static void fill_bounds(const struct box_list *b, struct box_index *x)
{
    size_t n = (size_t)b->ndim;
    int64_t *out = x->bound;
    for (size_t i = 0; i < x->n; i++) {
        const int64_t *at = b->at + x->order[i] * n, *len = b->len + x->order[i] * n;
        for (size_t d = 0; d < n; d++) {
            *out++ = at[d];
            *out++ = at[d] + len[d];
        }
    }
    for (int k = 1; k < x->levels; k++)
        for (size_t i = 0; i < x->count[k - 1]; i++) {
            const int64_t *child = bound_of(b, x, k - 1, i);
            int64_t *bound = x->bound + (x->start[k] + i / BOX_FAN) * 2 * n;
            for (size_t d = 0; d < 2 * n; d += 2) {
                if (i % BOX_FAN == 0 || child[d] < bound[d])
                    bound[d] = child[d];
                if (i % BOX_FAN == 0 || child[d + 1] > bound[d + 1])
                    bound[d + 1] = child[d + 1];
            }
        }
}

int box_index_new(const struct box_list *b, const uint32_t *ids, size_t n, struct box_index *out)
{
    *out = (struct box_index){.n = n};
    size_t nodes = 0, level = n;
    for (;;) {
        out->start[out->levels] = nodes;
        out->count[out->levels++] = level;
        nodes += level;
        if (level == 1)
            break;
        level = (level + BOX_FAN - 1) / BOX_FAN;
    }
    out->order = malloc(n * sizeof *out->order);
    out->bound = malloc(nodes * 2 * (size_t)b->ndim * sizeof *out->bound + 1);
    int rc = out->order && out->bound ? sort_boxes(b, ids, n, out->order) : error_nomem();
    if (rc)
        box_index_free(out);
    else
        fill_bounds(b, out);
    return rc;
}

void box_index_free(struct box_index *x)
{
    free(x->order);
    free(x->bound);
    *x = (struct box_index){0};
}

/* ---- searches ---- */

struct search {
    const struct box_list *b;
    const struct box_index *x;
    int64_t at[WEFT_MAX_DIMS], end[WEFT_MAX_DIMS];
    int (*visit)(void *arg, uint32_t box);
    void *arg;
};

/* Searches below a node that meets the region. */
static int search_node(const struct search *s, int level, size_t node)
{
    if (!level)
        return s->visit(s->arg, s->x->order[node]);
    size_t n = 2 * (size_t)s->b->ndim, end = (node + 1) * BOX_FAN, all = s->x->count[level - 1];
    end = end < all ? end : all;
    const int64_t *bound = bound_of(s->b, s->x, level - 1, node * BOX_FAN);
    for (size_t i = node * BOX_FAN; i < end; i++, bound += n) {
        bool meets = true;
        for (size_t d = 0; d < n && meets; d += 2)
            meets = bound[d] < s->end[d / 2] && s->at[d / 2] < bound[d + 1];
        int rc = meets ? search_node(s, level - 1, i) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int box_index_at(const struct box_list *b, const struct box_index *x, const struct box_region *r,
                 int (*visit)(void *arg, uint32_t box), void *arg)
{
    struct search s = {.b = b, .x = x, .visit = visit, .arg = arg};
    for (int d = 0; d < b->ndim; d++) {
        s.at[d] = r->at[d];
        s.end[d] = r->at[d] + r->len[d];
    }
    const int64_t *all = bound_of(b, x, x->levels - 1, 0);
    for (int d = 0; d < b->ndim; d++)
        if (all[2 * d] >= s.end[d] || s.at[d] >= all[2 * d + 1])
            return 0;
    return search_node(&s, x->levels - 1, 0);
}

struct join {
    const struct box_list *b;
    const struct box_index *x;
    uint32_t one, two;
};

static bool nodes_meet(const struct box_list *b, const struct box_index *x, int level, size_t i, size_t j)
{
    const int64_t *p = bound_of(b, x, level, i), *q = bound_of(b, x, level, j);
    for (int d = 0; d < b->ndim; d++)
        if (p[2 * d] >= q[2 * d + 1] || q[2 * d] >= p[2 * d + 1])
            return false;
    return true;
}

/* Finds two boxes that meet, one below node p and one below node q of a level, p <= q, which meet or are the same. */
static bool join_nodes(struct join *j, int level, size_t p, size_t q)
{
    if (!level) {
        j->one = j->x->order[p];
        j->two = j->x->order[q];
        return p != q;
    }
    size_t all = j->x->count[level - 1];
    size_t p_end = (p + 1) * BOX_FAN < all ? (p + 1) * BOX_FAN : all;
    size_t q_end = (q + 1) * BOX_FAN < all ? (q + 1) * BOX_FAN : all;
    for (size_t i = p * BOX_FAN; i < p_end; i++)
        for (size_t k = p == q ? i : q * BOX_FAN; k < q_end; k++)
            if ((i == k || nodes_meet(j->b, j->x, level - 1, i, k)) && join_nodes(j, level - 1, i, k))
                return true;
    return false;
}

bool box_index_overlap(const struct box_list *b, const struct box_index *x, uint32_t *one, uint32_t *two)
{
    struct join j = {.b = b, .x = x};
    if (!join_nodes(&j, x->levels - 1, 0, 0))
        return false;
    *one = j.one < j.two ? j.one : j.two;
    *two = j.one < j.two ? j.two : j.one;
    return true;
}
