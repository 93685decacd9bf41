/* Places: each part of one rank against the layouts and against what was written before.
 *
 *   SRC   read only, and what is read is there (in the interior, or in ghosts that are terms)
 *   DST   what is written belongs there, and every slot that has an element is written once
 *   TEMP  no two writes overlap
 *   a read of TEMP lies in one part that a direct dep wrote, a read of DST in one or more, with the same positions at
 *   the same places */
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "plan/verify/verify.h"

struct map {
    struct runs dim[WEFT_MAX_DIMS];
    struct runs inner[WEFT_MAX_DIMS]; /* of a layout without corners: the interiors */
};
struct places {
    struct verify *v;
    const weft_plan *p;
    size_t r;
    uint32_t *writer, *origin, **others; /* of this rank's parts */
    struct arena arena;
    struct map **src, **dst; /* one for each tensor, made when it is first needed */
    struct map box;          /* of a buffer that is a box */
    struct run box_run[WEFT_MAX_DIMS];
    /* Written parts, by buffer (newest first) and by hash. */
    uint32_t *head, *older, *nwritten;
    uint32_t *table;
    size_t mask;
    size_t *waited; /* for each step: 1 + the last step that has it among its deps */
};

/* The number of positions of r that are in one of the n runs of list, at the same place. Negative: an error. */
static int64_t shared(const struct run *r, const struct run *list, size_t n, struct arena *work)
{
    struct run copy = *r;
    struct runs a = {.v = &copy, .n = 1}, b = {.n = n};
    struct pair_runs both = {.arena = work};
    memcpy(&b.v, &list, sizeof list); /* a join only reads */
    int rc = runs_join(&a, &b, &both);
    int64_t same = 0;
    for (size_t i = 0; i < both.n; i++)
        if (both.v[i].a == both.v[i].b && both.v[i].astep == both.v[i].bstep)
            same += both.v[i].n * both.v[i].len;
    arena_reset(work);
    return rc ? rc : same;
}

int verify_place_within(const struct run *r, const struct run *list, size_t n, struct arena *work)
{
    int64_t end = r->at + (r->n - 1) * r->step + r->len;
    for (size_t i = 0; i < n; i++) { /* in most cases one interval holds all of it */
        const struct run *m = &list[i];
        if (m->n == 1 && r->at >= m->at && end <= m->at + m->len && r->to - r->at == m->to - m->at &&
            r->step == r->tostep)
            return 1;
        if (memcmp(m, r, sizeof *r) == 0)
            return 1;
    }
    int64_t same = shared(r, list, n, work);
    return same < 0 ? (int)same : same == r->n * r->len;
}

/* The buffer of a box has its positions, from place 0 on. The map is that of the last box that was asked for. */
static int map_of_box(struct places *x, const struct box_list *b, size_t box, struct map **out)
{
    *out = &x->box;
    for (int d = 0; d < b->ndim; d++) {
        size_t k = box * (size_t)b->ndim + (size_t)d;
        x->box_run[d] = (struct run){.at = b->at[k], .len = b->len[k], .n = 1};
        x->box.dim[d] = (struct runs){.v = &x->box_run[d], .n = 1, .cap = 1};
        x->box.inner[d] = (struct runs){0};
    }
    return 0;
}

/* The positions and places of this rank's buffer on one side. For a source only what may be read. */
static int map_of(struct places *x, uint32_t buf, struct map **out)
{
    uint32_t tensor = x->p->bufs[buf].tensor;
    bool src = x->p->bufs[buf].space == PLAN_SRC;
    struct map **m = src ? &x->src[tensor] : &x->dst[tensor];
    const struct verify_tensor *t = &x->v->tensors[tensor];
    const weft_layout *l = src ? t->src : t->dst;
    if (l->boxes)
        return map_of_box(x, l->boxes, plan_side_box(x->p, buf), out);
    int64_t index = mesh_index(l, (int)x->r);
    if (!*m) {
        *m = verify_alloc(&x->arena, 1, sizeof **m);
        if (!*m)
            return WEFT_ENOMEM;
        for (int d = 0; d < t->ndim; d++) {
            size_t first, inner;
            int64_t piece = layout_piece(l, index, d);
            struct runs *runs = &(*m)->dim[d];
            runs->arena = &x->arena;
            int rc = src && !l->ghost_terms ? layout_piece_interior(l, d, piece, runs)
                                            : layout_piece_slots(l, d, piece, runs, &first, &inner);
            (*m)->inner[d].arena = &x->arena;
            if (!rc && l->faces)
                rc = layout_piece_interior(l, d, piece, &(*m)->inner[d]);
            if (rc)
                return rc;
        }
    }
    *out = *m;
    return 0;
}

/* In a layout without corners: is some slot of a part a ghost in two dims? */
static bool has_corner(struct places *x, const struct plan_part *part, const weft_layout *l)
{
    int64_t index = mesh_index(l, (int)x->r), inner;
    int ghosted = 0;
    for (int d = 0; d < l->ndim && l->faces; d++) {
        struct run r = verify_run_of(x->p, part, d);
        layout_piece_extent(l, d, layout_piece(l, index, d), &inner);
        int64_t lo = l->dim[d].lo, inside = verify_cover_below(&r, lo + inner) - verify_cover_below(&r, lo);
        ghosted += inside < r.n * r.len;
    }
    return ghosted > 1;
}

static int check_side(struct places *x, size_t s, const struct plan_part *part, bool src)
{
    struct map *m;
    int rc = map_of(x, part->buf, &m);
    for (int d = 0; d < plan_ndim(x->p, part) && !rc; d++) {
        struct run r = verify_run_of(x->p, part, d);
        int in = verify_place_within(&r, m->dim[d].v, m->dim[d].n, &x->v->work);
        char step[VERIFY_TEXT], what[VERIFY_TEXT];
        if (in == 0)
            return verify_refuse("%s: %s is not at %" PRId64 " of dim %d of rank %zu's %s",
                                 verify_text_step(x->v, x->r, s, step), verify_text_part(x->p, part, what), r.to, d,
                                 x->r, src ? "source" : "destination");
        rc = in < 0 ? in : 0;
    }
    const struct verify_tensor *t = &x->v->tensors[verify_buf(x->p, part)->tensor];
    if (!rc && has_corner(x, part, src ? t->src : t->dst)) {
        char step[VERIFY_TEXT], what[VERIFY_TEXT];
        return verify_refuse("%s: %s is at a corner of rank %zu's %s, which has none",
                             verify_text_step(x->v, x->r, s, step), verify_text_part(x->p, part, what), x->r,
                             src ? "source" : "destination");
    }
    return rc;
}

/* ---- what was written ---- */

static uint64_t part_hash(const weft_plan *p, const struct plan_part *part)
{
    size_t n = (size_t)plan_ndim(p, part);
    uint64_t h = hash_u64(1, part->buf);
    h = n ? hash_bytes(h, &p->runs[part->runs], n * sizeof *p->runs) : h;
    return n ? hash_bytes(h, &p->spots[part->spots], n * sizeof *p->spots) : h;
}

static bool part_same(const weft_plan *p, const struct plan_part *a, const struct plan_part *b)
{
    size_t n = (size_t)plan_ndim(p, a);
    return a->buf == b->buf &&
           (n == 0 || (memcmp(&p->runs[a->runs], &p->runs[b->runs], n * sizeof *p->runs) == 0 &&
                       memcmp(&p->spots[a->spots], &p->spots[b->spots], n * sizeof *p->spots) == 0));
}

static int refuse_twice(struct places *x, const struct plan_part *part, size_t a, size_t b)
{
    char what[VERIFY_TEXT], one[VERIFY_TEXT], two[VERIFY_TEXT];
    return verify_refuse("%s in %s is written twice, by %s and by %s", verify_text_part(x->p, part, what),
                         verify_buf(x->p, part)->space == PLAN_DST ? "the destination" : "scratch",
                         verify_text_step(x->v, x->r, a, one), verify_text_step(x->v, x->r, b, two));
}

static int note_written(struct places *x, size_t s, uint32_t k)
{
    const struct plan_part *part = &x->p->parts[k];
    if (x->writer[k] != PLAN_NONE)
        return refuse_twice(x, part, x->writer[k], s);
    size_t i = part_hash(x->p, part) & x->mask;
    for (; x->table[i] != PLAN_NONE; i = (i + 1) & x->mask)
        if (part_same(x->p, &x->p->parts[x->table[i]], part))
            return refuse_twice(x, part, x->writer[x->table[i]], s);
    x->table[i] = k;
    x->writer[k] = (uint32_t)s;
    x->older[k] = x->head[part->buf];
    x->head[part->buf] = k;
    x->nwritten[part->buf]++;
    return 0;
}

static int part_inside(struct places *x, const struct plan_part *in, const struct plan_part *out)
{
    for (int d = 0; d < plan_ndim(x->p, in); d++) {
        struct run a = verify_run_of(x->p, in, d), b = verify_run_of(x->p, out, d);
        int rc = verify_place_within(&a, &b, 1, &x->v->work);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

static int part_meets(void *arg, size_t i, size_t j)
{
    (void)arg, (void)i, (void)j;
    return 1;
}

/* Do the places that are read overlap the places that were written? Positions are ignored. */
static int part_touches(struct places *x, const struct plan_part *a, const struct plan_part *b)
{
    struct run run[2 * WEFT_MAX_DIMS];
    int n = plan_ndim(x->p, a);
    for (int d = 0; d < n; d++) {
        run[d] = verify_run_of(x->p, a, d);
        run[n + d] = verify_run_of(x->p, b, d);
    }
    return verify_cover_overlaps(&(struct verify_boxes){n, 2, run}, &x->v->work, part_meets, NULL);
}

static int refuse_read(struct places *x, size_t s, const struct plan_part *part)
{
    char step[VERIFY_TEXT], what[VERIFY_TEXT];
    const char *words = "which nothing has written before it";
    verify_text_step(x->v, x->r, s, step);
    verify_text_part(x->p, part, what);
    for (uint32_t k = x->head[part->buf]; k != PLAN_NONE; k = x->older[k]) {
        int rc = part_touches(x, part, &x->p->parts[k]);
        if (rc < 0)
            return rc;
        if (rc)
            words = "not all of which has been written, at this place, before it";
    }
    return verify_refuse("%s reads %s, %s", step, what, words);
}

/* The elements of part `in` that part `out` has at the same places. Negative: an error. */
static int64_t part_shares(struct places *x, const struct plan_part *in, const struct plan_part *out)
{
    int64_t n = 1;
    for (int d = 0; d < plan_ndim(x->p, in) && n > 0; d++) {
        struct run a = verify_run_of(x->p, in, d), b = verify_run_of(x->p, out, d);
        int64_t along = shared(&a, &b, 1, &x->v->work);
        n = along < 0 ? along : n * along;
    }
    return n;
}

/* The step that wrote part w must be among the direct deps of step s, which reads part k. */
static int check_waits(struct places *x, size_t s, uint32_t k, uint32_t w)
{
    if (x->waited[x->writer[w]] == s + 1)
        return 0;
    char step[VERIFY_TEXT], what[VERIFY_TEXT], other[VERIFY_TEXT];
    return verify_refuse("%s reads %s without waiting for %s, which writes it", verify_text_step(x->v, x->r, s, step),
                         verify_text_part(x->p, &x->p->parts[k], what),
                         verify_text_step(x->v, x->r, x->writer[w], other));
}

/* Part k of a destination, which several written parts make up. No two of these overlap, since every slot of a
 * destination is written once. So they have all elements of the part if they have as many. */
static int find_origins(struct places *x, size_t s, uint32_t k)
{
    const struct plan_part *part = &x->p->parts[k];
    int64_t have = 0;
    uint32_t n = 0, *all = verify_alloc(&x->v->arena, (size_t)x->nwritten[part->buf] + 1, sizeof *all);
    if (!all)
        return WEFT_ENOMEM;
    for (uint32_t w = x->head[part->buf]; w != PLAN_NONE && have < part->count; w = x->older[w]) {
        int64_t got = part_shares(x, part, &x->p->parts[w]);
        int rc = got > 0 ? check_waits(x, s, k, w) : (int)got;
        if (rc)
            return rc;
        if (got)
            all[n++] = w;
        have += got;
    }
    if (have != part->count)
        return refuse_read(x, s, part);
    all[n] = PLAN_NONE;
    x->origin[k] = all[0];
    x->others[k] = all + 1;
    return 0;
}

/* Finds the written part that contains part k. */
static int find_origin(struct places *x, size_t s, uint32_t k)
{
    const struct plan_part *part = &x->p->parts[k];
    uint32_t from = PLAN_NONE;
    for (size_t i = part_hash(x->p, part) & x->mask; x->table[i] != PLAN_NONE && from == PLAN_NONE;
         i = (i + 1) & x->mask)
        if (part_same(x->p, &x->p->parts[x->table[i]], part))
            from = x->table[i];
    for (uint32_t w = x->head[part->buf]; w != PLAN_NONE && from == PLAN_NONE; w = x->older[w]) {
        int rc = part_inside(x, part, &x->p->parts[w]);
        if (rc < 0)
            return rc;
        if (rc)
            from = w;
    }
    if (from == PLAN_NONE)
        return verify_buf(x->p, part)->space == PLAN_DST ? find_origins(x, s, k) : refuse_read(x, s, part);
    x->origin[k] = from;
    return check_waits(x, s, k, from);
}

static int check_read(struct places *x, size_t s, uint32_t k)
{
    const struct plan_part *part = &x->p->parts[k];
    return verify_buf(x->p, part)->space == PLAN_SRC ? check_side(x, s, part, true) : find_origin(x, s, k);
}

static int check_write(struct places *x, size_t s, uint32_t k)
{
    const struct plan_part *part = &x->p->parts[k];
    int rc = verify_buf(x->p, part)->space == PLAN_DST ? check_side(x, s, part, false) : 0;
    return rc ? rc : note_written(x, s, k);
}

static int check_step(struct places *x, size_t s)
{
    const struct plan_step *step = &x->p->steps[s];
    int rc = 0;
    for (uint32_t i = 0; i < step->ndeps; i++)
        x->waited[x->p->deps[step->dep + i]] = s + 1;
    for (uint32_t i = 0; i < step->nparts && !rc; i++)
        if (!verify_writes(step, i))
            rc = check_read(x, s, step->part + i);
    for (uint32_t i = 0; i < step->nparts && !rc; i++)
        if (verify_writes(step, i))
            rc = check_write(x, s, step->part + i);
    return rc;
}

/* ---- buffers as wholes ---- */

static int boxes_of(struct places *x, uint32_t buf, struct verify_boxes *out, uint32_t **parts)
{
    int ndim = x->p->tensors[x->p->bufs[buf].tensor].ndim;
    size_t n = 0;
    struct run *run = verify_alloc(&x->arena, (size_t)x->nwritten[buf] * (size_t)ndim, sizeof *run);
    *parts = verify_alloc(&x->arena, x->nwritten[buf], sizeof **parts);
    if (!run || !*parts)
        return WEFT_ENOMEM;
    for (uint32_t k = x->head[buf]; k != PLAN_NONE; k = x->older[k], n++) {
        (*parts)[n] = k;
        for (int d = 0; d < ndim; d++)
            run[n * (size_t)ndim + (size_t)d] = verify_run_of(x->p, &x->p->parts[k], d);
    }
    *out = (struct verify_boxes){ndim, n, run};
    return 0;
}

/* A cell of the destination is in no box, or in two or more. */
static int refuse_cell(struct places *x, uint32_t tensor, const struct map *m, const struct verify_boxes *b,
                       const uint32_t *parts, const int64_t *cell)
{
    char what[VERIFY_TEXT], one[VERIFY_TEXT], two[VERIFY_TEXT];
    size_t found[2], n = 0;
    for (size_t i = 0; i < b->n && n < 2; i++)
        if (verify_cover_holds(&b->run[i * (size_t)b->ndim], b->ndim, cell))
            found[n++] = i;
    verify_text_cell(x->p, tensor, m->dim, cell, what);
    if (n == 0)
        return verify_refuse("%s on rank %zu is never written", what, x->r);
    return verify_refuse("%s on rank %zu is written twice, by %s and by %s", what, x->r,
                         verify_text_step(x->v, x->r, x->writer[parts[found[n - 1]]], one),
                         verify_text_step(x->v, x->r, x->writer[parts[found[0]]], two));
}

/* The slots that have an element. Without corners these are the interior and, for each dim, its ghosts beside it. */
static int64_t count_cells(const struct map *m, int ndim, bool faces)
{
    int64_t cells = 1, beside = 0;
    for (int d = 0; d < ndim; d++) {
        int64_t all = runs_count(&m->dim[d]), inner = faces ? runs_count(&m->inner[d]) : all;
        beside = beside * inner + cells * (all - inner);
        cells *= inner;
    }
    return cells + beside;
}

struct uncovered {
    const struct box_list *src;
    struct box_regions left;
};

static int take_covered(void *arg, uint32_t box)
{
    struct uncovered *u = arg;
    struct box_region r = box_region_of(u->src, box);
    return box_region_without(u->src->ndim, &u->left, &r);
}

/* If the source has gaps: adds to the boxes that were written those that no box of the source has. */
static int add_gaps(struct places *x, uint32_t buf, struct verify_boxes *b)
{
    const struct verify_tensor *t = &x->v->tensors[x->p->bufs[buf].tensor];
    if (!t->src->boxes || !t->src->boxes->gaps)
        return 0;
    struct map *m;
    struct uncovered u = {.src = t->src->boxes, .left = {.arena = &x->arena}};
    struct runs pieces[WEFT_MAX_DIMS];
    int rc = map_of(x, buf, &m);
    /* A mesh's piece may be several boxes: each product of its runs, repetition by repetition. */
    size_t all = 1;
    for (int d = 0; d < b->ndim && !rc; d++) {
        pieces[d] = (struct runs){.arena = &x->arena};
        for (size_t i = 0; i < m->dim[d].n && !rc; i++)
            for (int64_t k = 0; k < m->dim[d].v[i].n && !rc; k++) {
                const struct run *r = &m->dim[d].v[i];
                rc = runs_add(
                    &pieces[d],
                    (struct run){.at = r->at + k * r->step, .len = r->len, .n = 1, .to = r->to + k * r->tostep});
            }
        all *= pieces[d].n;
    }
    struct run *run = NULL;
    size_t n = b->n, cap = 0, dims = (size_t)b->ndim;
    for (size_t i = 0; i < all && !rc; i++) {
        struct box_region r;
        int64_t shift[WEFT_MAX_DIMS];
        size_t rest = i;
        for (size_t d = 0; d < dims; d++) {
            const struct run *p = &pieces[d].v[rest % pieces[d].n];
            rest /= pieces[d].n;
            r.at[d] = p->at;
            r.len[d] = p->len;
            shift[d] = p->to - p->at;
        }
        u.left.n = 0;
        rc = box_region_add(&u.left, &r);
        if (!rc)
            rc = box_index_at(u.src, &u.src->index, &r, take_covered, &u);
        if (!rc && n + u.left.n > cap) {
            cap = 2 * (n + u.left.n);
            struct run *more = verify_alloc(&x->arena, cap * dims + 1, sizeof *more);
            if (!more)
                return WEFT_ENOMEM;
            memcpy(more, run ? run : b->run, n * dims * sizeof *more);
            run = more;
        }
        for (size_t k = 0; k < u.left.n && !rc; k++, n++)
            for (size_t d = 0; d < dims; d++)
                run[n * dims + d] = (struct run){
                    .at = u.left.v[k].at[d], .len = u.left.v[k].len[d], .n = 1, .to = u.left.v[k].at[d] + shift[d]};
    }
    if (!rc && run)
        *b = (struct verify_boxes){b->ndim, n, run};
    return rc;
}

static int check_dst(struct places *x, uint32_t tensor, uint32_t buf)
{
    uint32_t *parts;
    int64_t cells, cell[WEFT_MAX_DIMS] = {0};
    struct map *m;
    struct verify_boxes b;
    int rc = map_of(x, buf, &m);
    if (rc)
        return rc;
    const struct runs *inner = x->v->tensors[tensor].dst->faces ? m->inner : NULL;
    cells = count_cells(m, x->p->tensors[tensor].ndim, inner != NULL);
    uint32_t head = x->head[buf];
    if (x->nwritten[buf] == 1 ? x->p->parts[head].count == cells : x->nwritten[buf] == 0 && cells == 0)
        return 0; /* one part has all of it, at the right place */
    rc = boxes_of(x, buf, &b, &parts);
    size_t written = b.n;
    if (!rc)
        rc = add_gaps(x, buf, &b);
    if (!rc)
        rc = verify_cover(&b, m->dim, inner, cell);
    if (rc)
        return rc < 0 ? rc : 0;
    b.n = written;
    return refuse_cell(x, tensor, m, &b, parts, cell);
}

struct clash {
    struct places *x;
    const uint32_t *parts;
};

static int refuse_clash(void *arg, size_t i, size_t j)
{
    struct clash *c = arg;
    uint32_t a = c->parts[i], b = c->parts[j];
    uint32_t first = a < b ? a : b, second = a < b ? b : a;
    return refuse_twice(c->x, &c->x->p->parts[second], c->x->writer[first], c->x->writer[second]);
}

static int check_temp(struct places *x, uint32_t buf)
{
    struct verify_boxes b;
    struct clash c = {.x = x};
    uint32_t *parts;
    if (x->p->bufs[buf].space != PLAN_TEMP || x->nwritten[buf] < 2)
        return 0;
    int rc = boxes_of(x, buf, &b, &parts);
    c.parts = parts;
    return rc ? rc : verify_cover_overlaps(&b, &x->v->work, refuse_clash, &c);
}

static int places_init(struct places *x)
{
    const weft_plan *p = x->p;
    x->mask = 1;
    while (x->mask < 2 * p->nparts)
        x->mask *= 2;
    x->src = verify_alloc(&x->arena, p->ntensors, sizeof *x->src);
    x->dst = verify_alloc(&x->arena, p->ntensors, sizeof *x->dst);
    x->head = verify_alloc(&x->arena, p->nbufs, sizeof *x->head);
    x->nwritten = verify_alloc(&x->arena, p->nbufs, sizeof *x->nwritten);
    x->older = verify_alloc(&x->arena, p->nparts, sizeof *x->older);
    x->table = verify_alloc(&x->arena, x->mask, sizeof *x->table);
    x->waited = verify_alloc(&x->arena, p->nsteps, sizeof *x->waited);
    if (!x->src || !x->dst || !x->head || !x->nwritten || !x->older || !x->table || !x->waited)
        return WEFT_ENOMEM;
    memset(x->head, 0xff, p->nbufs * sizeof *x->head); /* PLAN_NONE */
    memset(x->table, 0xff, x->mask * sizeof *x->table);
    memset(x->writer, 0xff, p->nparts * sizeof *x->writer);
    memset(x->origin, 0xff, p->nparts * sizeof *x->origin);
    x->mask--;
    return 0;
}

int verify_place(struct verify *v, size_t r)
{
    struct places x = {.v = v,
                       .p = v->all[r],
                       .r = r,
                       .writer = v->writer + v->part0[r],
                       .origin = v->origin + v->part0[r],
                       .others = v->others + v->part0[r]};
    int rc = places_init(&x);
    for (size_t s = 0; s < x.p->nsteps && !rc; s++)
        rc = check_step(&x, s);
    for (uint32_t t = 0; t < x.p->ntensors && !rc; t++)
        for (size_t k = 0; k < plan_side_bufs(x.p, t, false) && !rc; k++)
            rc = check_dst(&x, t, x.p->tensors[t].dst_buf + (uint32_t)k);
    for (size_t b = 0; b < x.p->nbufs && !rc; b++)
        rc = check_temp(&x, (uint32_t)b);
    arena_free(&x.arena);
    return rc;
}
