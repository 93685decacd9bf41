/* The mesh: ranks by position and positions by rank, kept as segments of consecutive ranks, so that the cost is that of
 * the list of ranks as it is written, whatever the size of the world. */
#include "layout/mesh.h"

#include <stdlib.h>

#include "base/error.h"

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t mesh_axis_name_length(const char *s)
{
    if (!is_letter(*s))
        return 0;
    size_t n = 1;
    int digits = 0; /* may a digit follow here? */
    for (;; n++) {
        if (s[n] == '_')
            digits = 1;
        else if (is_letter(s[n]))
            digits = 0;
        else if (!(s[n] >= '0' && s[n] <= '9' && digits))
            return n;
    }
}

static int order_by_rank(const void *a, const void *b)
{
    const struct layout_seg *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int mesh_set_ranks(weft_layout *l, const struct layout_seg *segs, size_t n, const struct caret *w)
{
    l->by_index = malloc(n * sizeof *l->by_index);
    l->by_rank = malloc(n * sizeof *l->by_rank);
    if (!l->by_index || !l->by_rank)
        return error_nomem();
    size_t k = 0; /* neighbouring segments that are consecutive are joined, so that equal lists have equal segments */
    for (size_t i = 0; i < n; i++) {
        struct layout_seg *last = k ? &l->by_index[k - 1] : NULL;
        if (last && segs[i].rank == last->rank + last->n)
            last->n += segs[i].n;
        else
            l->by_index[k++] = segs[i];
    }
    l->nsegs = k;
    for (size_t i = 0; i < k; i++)
        l->by_rank[i] = l->by_index[i];
    qsort(l->by_rank, k, sizeof *l->by_rank, order_by_rank);
    for (size_t i = 1; i < k; i++)
        if (l->by_rank[i].rank < l->by_rank[i - 1].rank + l->by_rank[i - 1].n)
            return caret_fail(w, w ? w->rank_again(w, l->by_rank[i].rank) : -1, "rank %d is listed twice",
                              l->by_rank[i].rank);
    l->minrank = l->by_rank[0].rank;
    l->nranks = (int)(l->by_rank[k - 1].rank + l->by_rank[k - 1].n);
    return 0;
}

int64_t mesh_index(const weft_layout *l, int rank)
{
    if (rank < l->minrank || rank >= l->nranks)
        return -1;
    size_t lo = 0, hi = l->nsegs;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (l->by_rank[mid].rank <= rank)
            lo = mid;
        else
            hi = mid;
    }
    const struct layout_seg *s = &l->by_rank[lo];
    return rank < s->rank + s->n ? s->index + (rank - s->rank) : -1;
}

int mesh_rank(const weft_layout *l, int64_t index)
{
    size_t lo = 0, hi = l->nsegs;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (l->by_index[mid].index <= index)
            lo = mid;
        else
            hi = mid;
    }
    return l->by_index[lo].rank + (int)(index - l->by_index[lo].index);
}

int weft_layout_ranks(const weft_layout *l)
{
    return l->nranks;
}
