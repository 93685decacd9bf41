/* Which terms an element has, and what a destination must hold.
 *
 * A term is identified by what distinguishes the copies of an element in the source's folds: the coordinates on the
 * fold axes. If ghosts are terms, the identity also has, for each dim with ghosts, the piece that holds the slot and
 * the distance of the slot from the position (which distinguishes turns of a periodic dim). Free axes do not count:
 * replicas are the same term. The identity is the same along a box. The terms of an element are all combinations of
 * coordinates and of the slots that have its position in each dim. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "plan/verify/verify.h"

struct slot {
    int64_t piece, shift; /* shift: place minus position */
    bool ghost;           /* of what is expected; not a part of the identity */
};
struct cover {
    struct slot *v;
    size_t n, cap;
};

static bool ghost_dim(const weft_layout *l, int d)
{
    return l->ghost_terms && (l->dim[d].lo || l->dim[d].hi);
}

static void term_id(const weft_layout *l, const int64_t *coord, const struct slot *slot, uint64_t id[2])
{
    for (int i = 0; i < 2; i++) {
        uint64_t h = (uint64_t)i + 1;
        for (int a = 0; a < l->naxes; a++)
            if (l->axis[a].role <= LAYOUT_FOLD)
                h = hash_u64(hash_u64(h, (uint64_t)a), (uint64_t)coord[a]);
        for (int d = 0; d < l->ndim; d++)
            if (ghost_dim(l, d))
                h = hash_u64(hash_u64(h, (uint64_t)slot[d].piece), (uint64_t)slot[d].shift);
        id[i] = h;
    }
}

int verify_terms_leaf(struct verify *v, size_t r, const struct plan_part *part, struct verify_value *out)
{
    const weft_plan *p = v->all[r];
    const weft_layout *l = v->tensors[verify_buf(p, part)->tensor].src;
    int64_t index = mesh_index(l, (int)r), coord[WEFT_MAX_AXES] = {0};
    struct slot slot[WEFT_MAX_DIMS] = {{0}};
    for (int a = 0; a < l->naxes; a++)
        coord[a] = layout_coord(l, index, a);
    for (int d = 0; d < l->ndim; d++) {
        if (!ghost_dim(l, d))
            continue;
        struct run x = verify_run_of(p, part, d);
        if (x.step != x.tostep) {
            char text[VERIFY_TEXT];
            return verify_refuse("rank %zu: one part, %s, has ghosts of several turns", r,
                                 verify_text_part(p, part, text));
        }
        slot[d] = (struct slot){.piece = layout_piece(l, index, d), .shift = x.to - x.at};
    }
    uint64_t id[2];
    term_id(l, coord, slot, id);
    *out = verify_value_term(id, l->dtype);
    return 0;
}

/* ---- what is expected ---- */

struct digit {
    int64_t *at, limit;
};
struct expect {
    const struct verify_tensor *t;
    const weft_layout *l;
    struct cover cover[WEFT_MAX_DIMS];
    int64_t coord[WEFT_MAX_AXES], pick[WEFT_MAX_DIMS];
    /* If there is a visitor, it gets the terms one by one instead. */
    bool (*visit)(void *arg, const struct expect *e, const uint64_t id[2]);
    void *arg;
    bool stop;
};

static int level_digits(struct expect *e, int level, struct digit *out)
{
    const struct layout_fold *f = &e->l->fold[level];
    int n = 0;
    for (int a = 0; a < e->l->naxes; a++)
        if (f->axes >> a & 1)
            out[n++] = (struct digit){&e->coord[a], e->l->axis[a].size};
    for (int d = 0; d < e->l->ndim; d++)
        if (f->ghosts && ghost_dim(e->l, d))
            out[n++] = (struct digit){&e->pick[d], (int64_t)e->cover[d].n};
    for (int i = 0; i < n; i++)
        *out[i].at = 0;
    return n;
}

static bool advance(const struct digit *g, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        if (++*g[i].at < g[i].limit)
            return true;
        *g[i].at = 0;
    }
    return false;
}

static struct verify_value expect_term(struct expect *e)
{
    struct slot slot[WEFT_MAX_DIMS] = {{0}};
    for (int d = 0; d < e->l->ndim; d++)
        if (ghost_dim(e->l, d))
            slot[d] = e->cover[d].v[e->pick[d]];
    uint64_t id[2];
    term_id(e->l, e->coord, slot, id);
    if (e->visit && e->visit(e->arg, e, id))
        e->stop = true;
    return verify_value_term(id, e->l->dtype);
}

/* Are the slots that are picked a corner of a layout without corners? */
static bool expect_corner(const struct expect *e)
{
    int ghosts = 0;
    for (int d = 0; d < e->l->ndim && e->l->faces; d++)
        ghosts += ghost_dim(e->l, d) && e->cover[d].v[e->pick[d]].ghost;
    return ghosts > 1;
}

/* The value after folds 0 .. level, at the coordinates that later folds have fixed. */
static struct verify_value expect_level(struct expect *e, int level)
{
    if (level < 0)
        return expect_term(e);
    struct digit g[WEFT_MAX_AXES + WEFT_MAX_DIMS];
    int n = level_digits(e, level, g), op = e->l->fold[level].op;
    struct verify_fold f;
    verify_value_fold_start(&f, op == WEFT_AVG ? WEFT_SUM : op);
    do {
        if (e->l->fold[level].ghosts && expect_corner(e))
            continue;
        struct verify_value x = expect_level(e, level - 1);
        verify_value_fold_add(&f, &x);
    } while (!e->stop && advance(g, n));
    return verify_value_fold_end(&f, op == WEFT_AVG ? f.inputs : 0, e->t->acc);
}

int verify_terms_tensor(struct verify *v, struct verify_tensor *t, const struct plan_tensor *from)
{
    *t = (struct verify_tensor){.src = from->src, .dst = from->dst, .ndim = from->ndim};
    int s = t->src->dtype, d = t->dst->dtype;
    t->acc = dtype_acc(s);
    t->fin = weft_dtype_size(d) < weft_dtype_size(s) ? d : s;
    t->ghosts = t->folds = t->src->ghost_terms;
    for (int a = 0; a < t->src->naxes; a++)
        t->folds = t->folds || (t->src->axis[a].role <= LAYOUT_FOLD && t->src->axis[a].size > 1);
    return t->ghosts ? 0 : verify_terms_expected(v, t, NULL, &t->expected);
}

/* ---- the slots that have a run of positions ---- */

struct covering {
    struct verify *v;
    const weft_layout *l;
    int dim;
    struct run box;
    struct cover *out;
    int64_t total; /* slots of all positions of the box */
    bool split;    /* the first position is in a run of slots that does not have all positions */
};

static int cover_piece(void *arg, int64_t piece)
{
    struct covering *c = arg;
    struct runs slots = {.arena = &c->v->work};
    size_t first, inner;
    int rc = layout_piece_slots(c->l, c->dim, piece, &slots, &first, &inner);
    for (size_t i = 0; i < slots.n && !rc; i++) {
        const struct run *s = &slots.v[i]; /* pieces with ghosts are contiguous: n is 1 */
        struct run at = c->box;
        at.to = at.at;
        at.tostep = at.step;
        int64_t held = verify_cover_below(&at, s->at + s->len) - verify_cover_below(&at, s->at);
        c->total += held;
        if (c->box.at < s->at || c->box.at >= s->at + s->len)
            continue;
        if (held < at.n * at.len)
            c->split = true;
        if (c->out->n == c->out->cap) {
            size_t cap = c->out->cap ? 2 * c->out->cap : 8;
            struct slot *more = verify_alloc(&c->v->work, cap, sizeof *more);
            if (!more)
                return WEFT_ENOMEM;
            if (c->out->n)
                memcpy(more, c->out->v, c->out->n * sizeof *more);
            c->out->v = more;
            c->out->cap = cap;
        }
        c->out->v[c->out->n++] = (struct slot){piece, s->to - s->at, i < first || i >= first + inner};
    }
    return rc;
}

/* Finds the slots of the first position; returns 1 if another position of the box has other slots. The terms of a part
 * exist for all of its positions, so it is enough that no position has more slots than the first. Without corners it
 * also counts which slots are ghosts: then each run of slots has all positions or none. */
static int cover_dim(struct verify *v, const weft_layout *l, int dim, const struct plan_run *box, struct cover *out)
{
    struct covering c = {.v = v,
                         .l = l,
                         .dim = dim,
                         .box = {.at = box->at, .len = box->len, .n = box->n, .step = box->step},
                         .out = out};
    struct runs q = {.v = &c.box, .n = 1, .cap = 1};
    int rc = layout_pieces_at(l, dim, &q, true, &v->work, cover_piece, &c);
    return rc ? rc : c.total != (int64_t)out->n * box->n * box->len || (l->faces && c.split);
}

static int expect_start(struct verify *v, const struct verify_tensor *t, const struct plan_run *box, struct expect *e)
{
    *e = (struct expect){.t = t, .l = t->src};
    int differ = 0;
    for (int d = 0; d < t->ndim && box; d++) {
        if (!ghost_dim(t->src, d))
            continue;
        int rc = cover_dim(v, t->src, d, &box[d], &e->cover[d]);
        if (rc < 0)
            return rc;
        differ |= rc;
    }
    return differ;
}

int verify_terms_expected(struct verify *v, const struct verify_tensor *t, const struct plan_run *box,
                          struct verify_value *out)
{
    struct expect e;
    int rc = expect_start(v, t, box, &e);
    if (!rc)
        *out = expect_level(&e, t->src->nfolds - 1);
    arena_reset(&v->work);
    return rc;
}

/* ---- what a destination holds ---- */

/* 1: all slots of the part are ghosts, 0: none is, -1: some are. A slot is a ghost if it is one in any dim. */
static int all_ghosts(const weft_plan *p, const struct plan_part *part, const weft_layout *l, int64_t index)
{
    bool some = false;
    for (int d = 0; d < l->ndim; d++) {
        int64_t inner;
        layout_piece_extent(l, d, layout_piece(l, index, d), &inner);
        struct run x = verify_run_of(p, part, d);
        int64_t lo = l->dim[d].lo;
        int64_t inside = verify_cover_below(&x, lo + inner) - verify_cover_below(&x, lo);
        if (inside == 0)
            return 1;
        some = some || inside < x.n * x.len;
    }
    return some ? -1 : 0;
}

int verify_terms_dst_op(const struct verify *v, size_t r, const struct plan_part *part)
{
    const weft_plan *p = v->all[r];
    const weft_layout *l = v->tensors[verify_buf(p, part)->tensor].dst;
    int64_t index = mesh_index(l, (int)r);
    for (int f = 0; f < l->nfolds; f++) {
        for (int a = 0; a < l->naxes; a++)
            if ((l->fold[f].axes >> a & 1) && layout_coord(l, index, a) != 0)
                return l->fold[f].op;
        int ghosts = l->fold[f].ghosts ? all_ghosts(p, part, l, index) : 0;
        if (ghosts)
            return ghosts < 0 ? -1 : l->fold[f].op;
    }
    return 0;
}

/* ---- words for terms that are wrong ---- */

struct look {
    const struct verify_value *have; /* sorted by set[0] */
    size_t n, known;
    struct text *text;
};

static size_t lower_bound(const struct look *k, uint64_t id)
{
    size_t lo = 0, hi = k->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (k->have[mid].set[0] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void term_text(struct text *out, const struct expect *e)
{
    const char *comma = "";
    for (int a = 0; a < e->l->naxes; a++)
        if (e->l->axis[a].role <= LAYOUT_FOLD) {
            text_printf(out, "%s%s=%" PRId64, comma, e->l->axis[a].name, e->coord[a]);
            comma = ",";
        }
    for (int d = 0; d < e->l->ndim; d++)
        if (ghost_dim(e->l, d)) {
            text_printf(out, "%spiece %" PRId64 " of dim %d", comma, e->cover[d].v[e->pick[d]].piece, d);
            comma = ",";
        }
}

static bool look_at(void *arg, const struct expect *e, const uint64_t id[2])
{
    struct look *k = arg;
    size_t i = lower_bound(k, id[0]), n = 0;
    while (i + n < k->n && k->have[i + n].set[0] == id[0])
        n++;
    k->known += n;
    if (n == 1)
        return false;
    text_put(k->text, "the term of ");
    term_text(k->text, e);
    text_put(k->text, n ? " is in it several times" : " is missing");
    return true;
}

int verify_terms_compare(struct verify *v, const struct verify_tensor *t, const struct plan_run *box,
                         const struct verify_value *have, size_t n, struct text *out)
{
    struct expect e;
    struct look k = {.have = have, .n = n, .text = out};
    int rc = expect_start(v, t, box, &e);
    if (rc >= 0) {
        e.visit = look_at;
        e.arg = &k;
        expect_level(&e, t->src->nfolds - 1);
        if (!e.stop && rc)
            text_put(out, "terms are missing for some of its elements");
        else if (!e.stop && k.known < n)
            text_put(out, "it has a term too many");
        else if (!e.stop)
            text_put(out, "its terms are folded in another way than the layout says");
        rc = 0;
    }
    arena_reset(&v->work);
    return rc;
}
