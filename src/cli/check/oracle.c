/* Data for a move and what must come out of it; see oracle.h. */
#include "cli/check/oracle.h"

#include <stdlib.h>
#include <string.h>

#include "cli/check/oracle_impl.h"
#include "cli/check/scalar.h"

int oracle_open(const weft_layout *src, const weft_layout *dst, struct oracle **out)
{
    struct oracle *o = calloc(1, sizeof *o);
    if (!o)
        return WEFT_ENOMEM;
    int err = oracle_side_open(&o->src, src);
    if (err)
        goto fail;
    if ((err = oracle_side_open(&o->dst, dst)))
        goto fail;
    err = WEFT_EINVAL;
    if (o->src.desc.ndim != o->dst.desc.ndim)
        goto fail;
    o->ndim = o->src.desc.ndim;
    o->elements = 1;
    for (int k = 0; k < o->ndim; k++) {
        if (o->src.dim[k].extent != o->dst.dim[k].extent)
            goto fail;
        o->extent[k] = o->src.dim[k].extent;
        o->elements *= o->extent[k];
    }
    if (o->src.ghost_terms && (err = oracle_side_index(&o->src)))
        goto fail;
    o->world = o->src.world > o->dst.world ? o->src.world : o->dst.world;
    o->strict = !o->src.nlevels && o->src.dtype == o->dst.dtype;
    int part = scalar_part(o->src.dtype);
    for (int i = 0; i < 17 && scalar_is_float(part); i++)
        scalar_store(part, &o->small[i], (struct scalar){.f = i - 8});
    *out = o;
    return 0;
fail:
    oracle_free(o);
    return err;
}

void oracle_free(struct oracle *o)
{
    if (!o)
        return;
    oracle_side_close(&o->src);
    oracle_side_close(&o->dst);
    free(o->value);
    free(o);
}

int oracle_world(const struct oracle *o)
{
    return o->world;
}

int64_t oracle_elements(const struct oracle *o)
{
    return o->elements;
}

int64_t oracle_src_bytes(const struct oracle *o, int rank)
{
    return oracle_side_count(&o->src, rank) * (int64_t)o->src.width;
}

int64_t oracle_dst_bytes(const struct oracle *o, int rank)
{
    return oracle_side_count(&o->dst, rank) * (int64_t)o->dst.width;
}

/* ---- walking a rank's buffer ---- */

/* A walk over all slots of a rank in order. Outer dims are worked out when they change, the last one by the caller's
 * loop over `row` slots: slot i has element base + pos[i], or none if pos[i] or base is negative. */
struct walk {
    const struct oracle_side *s;
    const int64_t *extent;
    int64_t index, piece[WEFT_MAX_DIMS], shape[WEFT_MAX_DIMS], at[WEFT_MAX_DIMS];
    int64_t slot, row, base, piece_offset;
    const int64_t *pos;
    int ghosts; /* outer dims in which the slot is a ghost */
};

static const int64_t no_dims_pos[1] = {0};

static void walk_row(struct walk *w)
{
    int last = w->s->desc.ndim - 1;
    w->base = 0;
    w->ghosts = 0;
    for (int k = 0; k < last; k++) {
        const struct oracle_side_dim *d = &w->s->dim[k];
        int64_t p = d->pos[d->first[w->piece[k]] + w->at[k]];
        w->ghosts += oracle_side_ghost(d, w->piece[k], w->at[k]);
        w->base = w->base < 0 || p < 0 ? -1 : (w->base * w->extent[k]) + p;
    }
    if (last >= 0 && w->base > 0)
        w->base *= w->extent[last];
}

/* false if the rank has no slots. */
static bool walk_start(struct walk *w, const struct oracle_side *s, const int64_t *extent, int rank)
{
    if (!oracle_side_count(s, rank))
        return false;
    *w = (struct walk){.s = s, .extent = extent, .index = s->index[rank], .row = 1, .pos = no_dims_pos};
    int last = s->desc.ndim - 1;
    for (int k = 0; k <= last; k++) {
        w->piece[k] = oracle_side_piece(s, w->index, k);
        w->shape[k] = oracle_side_extent(&s->dim[k], w->piece[k]);
        w->piece_offset += s->dim[k].offset[w->piece[k]];
    }
    if (last >= 0) {
        w->row = w->shape[last];
        w->pos = s->dim[last].pos + s->dim[last].first[w->piece[last]];
    }
    walk_row(w);
    return true;
}

static bool walk_next(struct walk *w)
{
    int last = w->s->desc.ndim - 1;
    w->slot += w->row;
    if (last < 0 || !oracle_step(last, w->shape, w->at))
        return false;
    walk_row(w);
    return true;
}

static int walk_ghosts(const struct walk *w, int64_t i)
{
    int last = w->s->desc.ndim - 1;
    return w->ghosts + (last >= 0 && oracle_side_ghost(&w->s->dim[last], w->piece[last], i));
}

/* Has slot i of the row an element? */
static bool walk_holds(const struct walk *w, int64_t i)
{
    return w->base >= 0 && w->pos[i] >= 0 && !oracle_side_corner(w->s, walk_ghosts(w, i));
}

/* ---- source data ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) + UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* What the folds of the source ask of its data. */
struct taste {
    int dtype;               /* of one part of a complex number */
    bool is_float, any_bits; /* any_bits: any order of any values gives the same bits */
    bool products, bits;
    bool wild;
    bool alone;               /* an element has one term */
    uint64_t one, unit, sign; /* codes of floats: 1, one step of the exponent, the sign */
    uint64_t odd;             /* elements whose hash has none of these bits may have odd terms */
};

static struct taste taste_of(const struct oracle *o, enum oracle_values values)
{
    int part = scalar_part(o->src.dtype);
    struct taste t = {.dtype = part, .is_float = scalar_is_float(part), .any_bits = true};
    for (int l = 0; l < o->src.nlevels; l++) {
        int op = o->src.level[l].op;
        t.any_bits = t.any_bits && (op == WEFT_MIN || op == WEFT_MAX);
        t.products = t.products || op == WEFT_PROD;
        t.bits = t.bits || op == WEFT_BAND || op == WEFT_BOR;
    }
    t.wild = values == ORACLE_WILD || t.any_bits;
    t.alone = !o->src.nlevels;
    t.odd = t.any_bits ? 0 : 7;
    if (t.is_float) {
        t.one = scalar_code(t.dtype, false, 0, 0);
        t.unit = scalar_code(t.dtype, false, 1, 0) - t.one;
        t.sign = scalar_code(t.dtype, true, 0, 0) - t.one;
    }
    return t;
}

/* The code of a float. `element` is the hash of the element, `term` that of the term, `combo` its number: products stay
 * exact because only the first few terms may be other than 1 or -1. Few elements have terms that swallow the others. */
static uint64_t make_float(const struct oracle *o, const struct taste *t, uint64_t element, uint64_t term,
                           int64_t combo)
{
    uint64_t r = term >> 40, code;
    if (!t->wild) {
        if (t->products)
            return o->small[r & 1 ? (r & 6 || combo >= 8 ? 9 : 10) : (r & 6 || combo >= 8 ? 7 : 6)];
        return o->small[r % 17];
    }
    if ((element & t->odd) == 0 && (r & 7) == 0 && scalar_special(t->dtype, (int)(r >> 3 & 15), &code))
        return code;
    if ((element & t->odd) == 0 && (r & 7) == 1)
        return scalar_held(t->dtype, term);
    int64_t e = t->products ? (int64_t)(r >> 3 & 1) - 1 : (int64_t)(r >> 3 & 7) - 4;
    code = t->one + (uint64_t)e * t->unit; /* and the low bits of the hash as its mantissa */
    return code | (r & 256 ? t->sign : 0) | (term & (t->unit - 1));
}

static uint64_t make_integer(const struct taste *t, uint64_t element, uint64_t term)
{
    if (t->dtype == WEFT_BOOL) /* most terms of an element agree, so that the ops do not swallow them */
        return (element & 2) / 2 ^ ((term >> 40 & 7) == 0);
    if (t->bits)
        return element & 2 ? term | mix(term, 1) | mix(term, 2) : term & mix(term, 1) & mix(term, 2);
    return (term >> 60) < 4 ? (term & 15) - 7 : term;
}

void oracle_fill(const struct oracle *o, uint64_t seed, enum oracle_values values, int rank, void *buf)
{
    const struct oracle_side *s = &o->src;
    struct taste taste = taste_of(o, values);
    struct walk w;
    if (!walk_start(&w, s, o->extent, rank))
        return;
    int64_t combo = oracle_side_combo(s, w.index);
    size_t part = weft_dtype_size(taste.dtype), parts = s->width / part;
    do {
        unsigned char *p = (unsigned char *)buf + (size_t)w.slot * s->width;
        for (int64_t i = 0; i < w.row; i++, p += s->width) {
            bool ghost = walk_ghosts(&w, i) > 0, nothing = !walk_holds(&w, i);
            uint64_t code, other = 0;
            if (nothing || (ghost && !s->ghost_terms)) {
                code = mix(mix(seed, (uint64_t)rank), ~(uint64_t)(w.slot + i));
                code = taste.dtype == WEFT_BOOL ? code & 1 : code;
            } else {
                uint64_t element = mix(seed, (uint64_t)(w.base + w.pos[i]));
                uint64_t term = taste.alone ? element : mix(element, (uint64_t)combo);
                if (ghost)
                    term = mix(mix(term, (uint64_t)w.piece_offset + 1), (uint64_t)(w.slot + i));
                code = taste.is_float ? make_float(o, &taste, element, term, ghost ? s->folds + 8 : combo)
                                      : make_integer(&taste, element, term);
                if (parts > 1)
                    other = make_float(o, &taste, element, mix(term, 2), ghost ? s->folds + 8 : combo);
            }
            memcpy(p, &code, part);
            if (parts > 1)
                memcpy(p + part, &other, part);
        }
    } while (walk_next(&w));
}

int oracle_replica_of(const struct oracle *o, int rank)
{
    const struct oracle_side *s = &o->src;
    if (rank >= s->world || s->index[rank] < 0)
        return rank;
    int64_t at = 0;
    for (int k = 0; k < s->desc.ndim; k++)
        at += s->dim[k].offset[oracle_side_piece(s, s->index[rank], k)];
    return s->desc.ranks[at + s->fold[oracle_side_combo(s, s->index[rank])]];
}

/* ---- values ---- */

/* Folds terms that are in order, with one accumulator for each level. All terms are at `slot`, or at their own slots if
 * `slot` is negative. */
static struct scalar fold_terms(const struct oracle_side *s, const struct oracle_term *term, size_t n, int64_t slot,
                                const void *const *src)
{
    int acc = scalar_acc(s->dtype), top = s->nlevels - 1;
    struct scalar sum[WEFT_MAX_AXES + 1];
    int64_t count[WEFT_MAX_AXES + 1] = {0};
    for (size_t i = 0; i <= n; i++) {
        int close = i == n ? top : term[i].close;
        for (int l = 0; i && l < close; l++) {
            struct scalar v = sum[l];
            if (s->level[l].op == WEFT_AVG && count[l] > 1)
                v = scalar_divide(acc, v, count[l]);
            sum[l + 1] = count[l + 1] ? scalar_fold(s->level[l + 1].op, acc, sum[l + 1], v) : v;
            count[l + 1]++;
            count[l] = 0;
        }
        if (i == n)
            break;
        int64_t at = slot >= 0 ? slot : term[i].slot;
        const unsigned char *p = (const unsigned char *)src[term[i].rank] + (size_t)at * s->width;
        struct scalar v = scalar_cast(s->dtype, acc, scalar_load(s->dtype, p));
        sum[0] = count[0] ? scalar_fold(s->level[0].op, acc, sum[0], v) : v;
        count[0]++;
    }
    if (s->level[top].op == WEFT_AVG && count[top] > 1)
        return scalar_divide(acc, sum[top], count[top]);
    return sum[top];
}

/* Elements that one piece owns have the same terms except for the slot, unless ghosts are summands. So terms are cached
 * by mesh offset. */
struct term_cache {
    struct oracle_term **by_piece;
    struct oracle_terms scratch;
};

static const struct oracle_term *cached_terms(const struct oracle_side *s, struct term_cache *c, int64_t piece,
                                              const int64_t *index)
{
    if (!c->by_piece[piece]) {
        if (oracle_terms_of(s, index, &c->scratch))
            return NULL;
        size_t bytes = c->scratch.n * sizeof *c->scratch.v;
        if (!(c->by_piece[piece] = malloc(bytes)))
            return NULL;
        memcpy(c->by_piece[piece], c->scratch.v, bytes);
    }
    return c->by_piece[piece];
}

/* Does the element have copies other than those of its owners? */
static bool has_ghosts(const struct oracle_side *s, const int64_t *index)
{
    bool more = false;
    for (int k = 0; k < s->desc.ndim && s->ghost_terms; k++)
        more = more || s->dim[k].at[index[k] + 1] - s->dim[k].at[index[k]] > 1;
    return more;
}

static int take_one(const struct oracle *o, const int64_t *index, const void *const *src, struct term_cache *c,
                    unsigned char *out)
{
    const struct oracle_side *s = &o->src;
    int64_t piece = 0, slot = 0;
    for (int k = 0; k < o->ndim; k++) {
        const struct oracle_side_dim *d = &s->dim[k];
        int64_t p = d->owner_piece[index[k]];
        piece += d->offset[p];
        slot = slot * oracle_side_extent(d, p) + d->owner_slot[index[k]];
    }
    if (!s->nlevels) {
        const void *p = (const unsigned char *)src[s->desc.ranks[piece]] + (size_t)slot * s->width;
        if (o->strict)
            memcpy(out, p, s->width);
        else
            scalar_store(o->dst.dtype, out, scalar_cast(s->dtype, o->dst.dtype, scalar_load(s->dtype, p)));
        return 0;
    }
    struct scalar v;
    if (has_ghosts(s, index)) {
        if (oracle_terms_of(s, index, &c->scratch))
            return WEFT_ENOMEM;
        v = fold_terms(s, c->scratch.v, c->scratch.n, -1, src);
    } else {
        const struct oracle_term *t = cached_terms(s, c, piece, index);
        if (!t)
            return WEFT_ENOMEM;
        v = fold_terms(s, t, (size_t)s->folds, slot, src);
    }
    int finished = scalar_finished(s->dtype, o->dst.dtype);
    v = scalar_cast(scalar_acc(s->dtype), finished, v);
    scalar_store(o->dst.dtype, out, scalar_cast(finished, o->dst.dtype, v));
    return 0;
}

int oracle_take(struct oracle *o, const void *const *src)
{
    if (!o->value && !(o->value = malloc((size_t)o->elements * o->dst.width + 1)))
        return WEFT_ENOMEM;
    struct term_cache cache = {.by_piece = calloc((size_t)o->src.mesh, sizeof(struct oracle_term *))};
    int err = cache.by_piece ? 0 : WEFT_ENOMEM;
    int64_t index[WEFT_MAX_DIMS] = {0};
    unsigned char *out = o->value;
    for (int64_t e = 0; e < o->elements && !err; e++, out += o->dst.width) {
        err = take_one(o, index, src, &cache, out);
        oracle_step(o->ndim, o->extent, index);
    }
    for (int64_t i = 0; i < o->src.mesh && cache.by_piece; i++)
        free(cache.by_piece[i]);
    free(cache.by_piece);
    free(cache.scratch.v);
    return err;
}

/* ---- the destination ---- */

/* The op that gives the identity to copies with these fold coordinates, or 0 for those that carry the value. */
static int identity_op(const struct oracle_side *s, int64_t combo, bool ghost)
{
    for (int l = 0; l < s->nlevels; l++)
        if (s->coord[combo * s->nlevels + l] || (s->level[l].ghosts && ghost))
            return s->level[l].op;
    return 0;
}

void oracle_expect(const struct oracle *o, int rank, void *buf)
{
    const struct oracle_side *s = &o->dst;
    struct walk w;
    if (!walk_start(&w, s, o->extent, rank))
        return;
    int64_t combo = oracle_side_combo(s, w.index);
    int op[2] = {identity_op(s, combo, false), identity_op(s, combo, true)};
    unsigned char identity[2][16];
    for (int g = 0; g < 2; g++)
        if (op[g])
            scalar_store(s->dtype, identity[g], scalar_identity(op[g], s->dtype));
    do {
        unsigned char *p = (unsigned char *)buf + (size_t)w.slot * s->width;
        for (int64_t i = 0; i < w.row; i++, p += s->width) {
            bool ghost = walk_ghosts(&w, i) > 0;
            if (!walk_holds(&w, i))
                continue;
            const unsigned char *value = o->value + (size_t)(w.base + w.pos[i]) * s->width;
            memcpy(p, op[ghost] ? identity[ghost] : value, s->width);
        }
    } while (walk_next(&w));
}

int64_t oracle_compare(const struct oracle *o, int rank, const void *got, const void *want)
{
    int64_t n = oracle_side_count(&o->dst, rank);
    size_t width = o->dst.width;
    if (!n || memcmp(got, want, (size_t)n * width) == 0)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *a = (const unsigned char *)got + (size_t)i * width;
        const unsigned char *b = (const unsigned char *)want + (size_t)i * width;
        if (o->strict ? memcmp(a, b, width) != 0 : !scalar_same(o->dst.dtype, a, b))
            return i;
    }
    return -1;
}

bool oracle_locate(const struct oracle *o, int rank, int64_t slot, int64_t *index)
{
    const struct oracle_side *s = &o->dst;
    bool inside = true;
    int ghosts = 0;
    for (int k = o->ndim - 1; k >= 0; k--) {
        int64_t piece = oracle_side_piece(s, s->index[rank], k), n = oracle_side_extent(&s->dim[k], piece);
        index[k] = s->dim[k].pos[s->dim[k].first[piece] + slot % n];
        inside = inside && index[k] >= 0;
        ghosts += oracle_side_ghost(&s->dim[k], piece, slot % n);
        slot /= n;
    }
    return inside && !oracle_side_corner(s, ghosts);
}
