/* Checks of a list of boxes: that elements are in one box each, unless the caller allows otherwise, and that no slot of
 * a rank's buffer is in two boxes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/text.h"
#include "layout/box_list.h"

#define TEXT 300

static int caret_at(const struct caret *w, size_t box)
{
    return w && w->box ? w->box[box] : -1;
}

/* "[0:4,8:12]" */
static const char *region_text(int ndim, const struct box_region *r, char buf[TEXT])
{
    struct text t = text_start(buf, TEXT);
    text_put(&t, "[");
    for (int d = 0; d < ndim; d++) {
        text_put(&t, d ? "," : "");
        text_int(&t, r->at[d]);
        text_put(&t, ":");
        text_int(&t, r->at[d] + r->len[d]);
    }
    text_put(&t, "]");
    return buf;
}

/* ---- elements ---- */

struct cover {
    const struct box_list *b;
    uint32_t own; /* boxes with lower numbers are taken out */
    struct box_regions left;
    int64_t work; /* regions that may still be made */
};

static int take_out(void *arg, uint32_t box)
{
    struct cover *c = arg;
    if (box >= c->own)
        return 0;
    struct box_region r = box_region_of(c->b, box);
    int rc = box_region_without(c->b->ndim, &c->left, &r);
    c->work -= (int64_t)c->left.n + 1;
    return rc ? rc : c->work < 0 ? 1 : 0;
}

/* Counts the elements that are in some box. -1: that takes too long, or an error, in *rc. */
static wide count_covered(const struct box_list *b, int *rc)
{
    wide sum = 0;
    const struct box_copies *x = &b->copies;
    uint32_t one, two;
    size_t n = b->shared ? x->n : b->n;
    bool apart = !b->shared || !box_index_overlap(b, &x->index, &one, &two);
    struct arena arena = {0};
    struct cover c = {.b = b, .work = 1000000 + 64 * (int64_t)b->n};
    for (size_t i = 0; i < n && !*rc; i++) {
        uint32_t box = b->shared ? x->member[x->first[i]] : (uint32_t)i;
        struct box_region r = box_region_of(b, box);
        if (apart) {
            sum += box_region_count(b->ndim, &r);
            continue;
        }
        arena_reset(&arena);
        c.left = (struct box_regions){.arena = &arena};
        c.own = box;
        *rc = box_region_add(&c.left, &r);
        if (!*rc)
            *rc = box_index_at(b, &x->index, &r, take_out, &c);
        for (size_t k = 0; k < c.left.n && !*rc; k++)
            sum += box_region_count(b->ndim, &c.left.v[k]);
    }
    arena_free(&arena);
    if (*rc == 1) {
        *rc = 0;
        return -1;
    }
    return sum;
}

struct probe {
    const struct box_list *b;
    struct box_region hit;
};

static int note_box(void *arg, uint32_t box)
{
    struct probe *p = arg;
    p->hit = box_region_of(p->b, box);
    return 1;
}

/* A region that no box has; false: none was found in a reasonable time. */
static bool find_gap(const struct box_list *b, const int64_t *extents, struct box_region *out)
{
    struct arena arena = {0}, rest = {0};
    struct box_regions todo = {.arena = &arena};
    struct probe p = {.b = b};
    struct box_region all;
    bool found = false;
    for (int d = 0; d < b->ndim; d++) {
        all.at[d] = 0;
        all.len[d] = extents[d];
    }
    int rc = box_region_add(&todo, &all);
    for (int64_t work = 1000000; work && todo.n && !rc && !found; work--) {
        struct box_regions one = {.arena = &rest};
        arena_reset(&rest);
        *out = todo.v[--todo.n];
        found = !box_index_at(b, &b->index, out, note_box, &p);
        if (found)
            break;
        rc = box_region_add(&one, out);
        if (!rc)
            rc = box_region_without(b->ndim, &one, &p.hit);
        for (size_t i = 0; i < one.n && !rc; i++)
            rc = box_region_add(&todo, &one.v[i]);
    }
    arena_free(&arena);
    arena_free(&rest);
    return found;
}

int box_check_elements(struct box_list *b, const int64_t *extents, uint64_t flags, const struct caret *w)
{
    uint32_t one, two;
    char a[TEXT], c[TEXT];
    b->shared = box_index_overlap(b, &b->index, &one, &two);
    if (b->shared && !(flags & WEFT_LAYOUT_OVERLAPS)) {
        struct box_region x = box_region_of(b, one), y = box_region_of(b, two);
        return caret_fail(w, caret_at(w, two),
                          "box %s of rank %d and box %s of rank %d overlap: +overlaps would allow it",
                          region_text(b->ndim, &x, a), b->rank[one], region_text(b->ndim, &y, c), b->rank[two]);
    }
    int rc = b->shared ? box_copies_new(b) : 0;
    if (rc)
        return rc;
    if (flags & WEFT_LAYOUT_GAPS && b->shared) {
        b->gaps = true; /* there may be some: to find out could take long, and nobody asks */
        return 0;
    }
    wide all = 1, have;
    for (int d = 0; d < b->ndim; d++)
        all = wide_mul(all, extents[d]);
    have = count_covered(b, &rc);
    if (rc)
        return rc;
    b->gaps = have != all;
    if (!b->gaps || flags & WEFT_LAYOUT_GAPS)
        return 0;
    if (have < 0)
        return caret_fail(w, caret_at(w, 0),
                          "the boxes overlap in too many ways to tell whether they have all elements: +gaps would "
                          "allow elements in no box");
    struct box_region gap;
    if (!find_gap(b, extents, &gap))
        return caret_fail(w, caret_at(w, 0), "some elements are in no box: +gaps would allow it");
    return caret_fail(w, caret_at(w, 0), "the elements %s are in no box: +gaps would allow it",
                      region_text(b->ndim, &gap, a));
}

/* ---- buffers ---- */

/* One stride of two boxes, and how many steps each has of it. */
struct level {
    int64_t stride, na, nb;
};
struct levels {
    struct level v[2 * WEFT_MAX_DIMS];
    int n;
};

static void add_steps(struct levels *l, int64_t stride, int64_t n, bool second)
{
    int i = 0;
    while (i < l->n && l->v[i].stride > stride)
        i++;
    for (; i < l->n && l->v[i].stride == stride; i++)
        if ((second ? l->v[i].nb : l->v[i].na) == 1) {
            *(second ? &l->v[i].nb : &l->v[i].na) = n;
            return;
        }
    memmove(&l->v[i + 1], &l->v[i], (size_t)(l->n - i) * sizeof *l->v);
    l->v[i] = (struct level){stride, second ? 1 : n, second ? n : 1};
    l->n++;
}

/* Slots that the levels inside `level` span. */
static int64_t inside(const struct levels *l, int level, bool second)
{
    int64_t w = 1;
    for (int i = level + 1; i < l->n; i++)
        w += ((second ? l->v[i].nb : l->v[i].na) - 1) * l->v[i].stride;
    return w;
}

/* Do the boxes meet, from `level` on, if the second starts `off` behind the first? Each look at a level takes one off
 * *looks; when none is left, the answer is yes. */
static bool levels_meet(const struct levels *l, int level, int64_t off, int64_t *looks)
{
    if (--*looks < 0 || level == l->n)
        return *looks < 0 || off == 0;
    const struct level *x = &l->v[level];
    int64_t wa = inside(l, level, false), wb = inside(l, level, true);
    /* steps of the first minus steps of the second: off - k * stride must lie in (-wb, wa) */
    int64_t k = (off - wa) / x->stride - 1, last = (off + wb) / x->stride + 1;
    k = k < 1 - x->nb ? 1 - x->nb : k;
    last = last > x->na - 1 ? x->na - 1 : last;
    for (; k <= last; k++) {
        int64_t rest = off - k * x->stride;
        if (rest > -wb && rest < wa && levels_meet(l, level + 1, rest, looks))
            return true;
    }
    return false;
}

static bool has_slot(const struct box_list *b, uint32_t box, int64_t slot)
{
    /* The strides nest (box_list_new has checked it), so from the largest on each step is fixed. */
    size_t n = (size_t)b->ndim, base = box * n;
    bool taken[WEFT_MAX_DIMS] = {false};
    slot -= b->offset[box];
    for (size_t k = 0; k < n; k++) {
        int d = -1;
        for (size_t i = 0; i < n; i++)
            if (!taken[i] && (d < 0 || b->stride[base + i] > b->stride[base + (size_t)d]))
                d = (int)i;
        taken[d] = true;
        int64_t stride = b->stride[base + (size_t)d], most = b->len[base + (size_t)d] - 1;
        if (!most)
            continue;
        int64_t step = slot / stride < most ? slot / stride : most;
        slot -= step * stride;
    }
    return slot == 0;
}

#define FEW 65536 /* elements of a box that are looked at one by one */

enum meeting { APART, MEET, UNKNOWN };

/* Looks at the elements of box i one by one. */
static enum meeting meet_slowly(const struct box_list *b, uint32_t i, uint32_t j, int64_t *looks)
{
    struct box_region r = box_region_of(b, i);
    size_t base = i * (size_t)b->ndim;
    int64_t count = box_region_count(b->ndim, &r);
    if (count > FEW || (*looks -= count) < 0)
        return UNKNOWN;
    for (int64_t k = 0; k < count; k++) {
        int64_t slot = b->offset[i], rest = k;
        for (int d = b->ndim - 1; d >= 0; d--) {
            slot += rest % r.len[d] * b->stride[base + (size_t)d];
            rest /= r.len[d];
        }
        if (slot >= b->offset[j] && has_slot(b, j, slot))
            return MEET;
    }
    return APART;
}

static enum meeting slots_meet(const struct box_list *b, uint32_t i, uint32_t j, int64_t *looks)
{
    struct levels l = {.n = 0};
    size_t n = (size_t)b->ndim;
    for (size_t d = 0; d < n; d++) {
        if (b->len[i * n + d] > 1)
            add_steps(&l, b->stride[i * n + d], b->len[i * n + d], false);
        if (b->len[j * n + d] > 1)
            add_steps(&l, b->stride[j * n + d], b->len[j * n + d], true);
    }
    for (int k = 0; k < l.n; k++)
        if (inside(&l, k, false) > l.v[k].stride || inside(&l, k, true) > l.v[k].stride) {
            struct box_region p = box_region_of(b, i), q = box_region_of(b, j);
            bool first = box_region_count(b->ndim, &p) <= box_region_count(b->ndim, &q);
            return first ? meet_slowly(b, i, j, looks) : meet_slowly(b, j, i, looks);
        }
    bool met = levels_meet(&l, 0, b->offset[j] - b->offset[i], looks);
    return *looks < 0 ? UNKNOWN : met ? MEET : APART;
}

struct placed {
    int64_t from, end;
    uint32_t box;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->box > y->box) - (x->box < y->box);
}

static int refuse_places(const struct box_list *b, uint32_t i, uint32_t j, enum meeting how, const struct caret *w)
{
    char a[TEXT], c[TEXT];
    uint32_t one = i < j ? i : j, two = i < j ? j : i;
    struct box_region x = box_region_of(b, one), y = box_region_of(b, two);
    region_text(b->ndim, &x, a);
    region_text(b->ndim, &y, c);
    if (how == MEET)
        return caret_fail(w, caret_at(w, two), "boxes %s and %s of rank %d are at the same places of its buffer", a, c,
                          b->rank[one]);
    return caret_fail(w, caret_at(w, two),
                      "boxes %s and %s of rank %d are interleaved in its buffer with strides that cannot be compared",
                      a, c, b->rank[one]);
}

#define PAIRS 50000000  /* boxes that are interleaved are compared two by two, up to this many pairs of a rank */
#define LOOKS 500000000 /* and with this many looks at strides and elements in all: a text from outside may be bad */

static int check_holder(const struct box_list *b, size_t holder, struct placed *v, struct placed *open, int64_t *looks,
                        const struct caret *w)
{
    size_t n = 0, nopen = 0, dims = (size_t)b->ndim;
    int64_t reach = -1, pairs = 0;
    bool sorted = true, apart = true;
    for (size_t i = b->first[holder]; i < b->first[holder + 1]; i++, n++) {
        int64_t span = box_list_span(b->ndim, b->len + i * dims, b->stride + i * dims);
        v[n] = (struct placed){b->offset[i], b->offset[i] + span, (uint32_t)i};
        sorted = sorted && (!n || v[n].from >= v[n - 1].end);
    }
    if (sorted)
        return 0;
    qsort(v, n, sizeof *v, by_place);
    for (size_t i = 0; i < n; i++) {
        apart = apart && v[i].from >= reach;
        reach = v[i].end > reach ? v[i].end : reach;
    }
    for (size_t i = 0; i < n && !apart; i++) {
        size_t kept = 0;
        for (size_t k = 0; k < nopen; k++)
            if (open[k].end > v[i].from)
                open[kept++] = open[k];
        nopen = kept;
        for (size_t k = 0; k < nopen; k++) {
            enum meeting how = ++pairs > PAIRS ? UNKNOWN : slots_meet(b, open[k].box, v[i].box, looks);
            if (how != APART)
                return refuse_places(b, open[k].box, v[i].box, how, w);
        }
        open[nopen++] = v[i];
    }
    return 0;
}

int box_check_buffers(const struct box_list *b, const struct caret *w)
{
    size_t most = 0;
    for (size_t i = 0; i < b->holders; i++)
        if (b->first[i + 1] - b->first[i] > most)
            most = b->first[i + 1] - b->first[i];
    struct placed *v = malloc(2 * most * sizeof *v);
    if (!v)
        return error_nomem();
    int rc = 0;
    int64_t looks = LOOKS;
    for (size_t i = 0; i < b->holders && !rc; i++)
        rc = check_holder(b, i, v, v + most, &looks, w);
    free(v);
    return rc;
}
