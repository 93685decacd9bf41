#define _GNU_SOURCE
#include "property_random.h"

#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"

/* One of n numbers, each as often as its weight says. */
static int random_weighted(struct random *g, const int *weight, int n)
{
    int total = 0, i = 0;
    for (int k = 0; k < n; k++)
        total += weight[k];
    int64_t x = random_in(g, 0, total - 1);
    while (x >= weight[i])
        x -= weight[i++];
    return i;
}
#define RANDOM_WEIGHTED(g, ...) \
    random_weighted(g, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static int random_dtype(struct random *g)
{
    static const int usual[] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64, WEFT_I32, WEFT_U8};
    return random_once_in(g, 2) ? (int)random_in(g, 1, DTYPE_COUNT) : usual[random_in(g, 0, 6)];
}

static int random_op(struct random *g, int dtype)
{
    int op;
    do
        op = random_once_in(g, 3) ? WEFT_SUM : (int)random_in(g, 1, OP_COUNT);
    while (!dtype_foldable(op, dtype));
    return op;
}

static int64_t random_block(struct random *g)
{
    return random_once_in(g, 3) ? random_in(g, 1, random_once_in(g, 5) ? 20 : 4) : 0;
}

/* Mostly below 500 elements, some a few thousand; a few with enough that replicas share the sending. */
static void random_shape(struct random *g, struct side_spec *s)
{
    static const int64_t most[3][CASE_DIMS + 1] = {
        {0, 60, 16, 8, 5, 4}, {0, 180, 48, 24, 15, 12}, {0, 20000, 140, 27, 11, 7}};
    int size = RANDOM_WEIGHTED(g, 94, 4, 2);
    s->ndim = RANDOM_WEIGHTED(g, 4, 26, 34, 20, 10, 6);
    for (int d = 0; d < s->ndim; d++)
        s->dim[d].extent =
            random_once_in(g, 40) ? 0 : random_in(g, size == 2 ? most[2][s->ndim] / 2 : 1, most[size][s->ndim]);
}

/* A mesh of at most `world` ranks; which ranks comes after. Axes of size 1 are few: they make a pair smaller. */
static void random_mesh(struct random *g, struct side_spec *s, int world)
{
    int want = 1 + RANDOM_WEIGHTED(g, 22, 38, 25, 15);
    s->naxes = 0;
    for (int mesh = 1; s->naxes < want; s->naxes++) {
        int room = world / mesh, most = room < 4 || random_once_in(g, 5) ? room : 4;
        if (room < 2 && s->naxes && !random_once_in(g, 6))
            break;
        s->size[s->naxes] = most < 2 || random_once_in(g, 10) ? 1 : (int)random_in(g, 2, most);
        mesh *= s->size[s->naxes];
    }
}

void random_shuffle(struct random *g, int *v, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)random_in(g, 0, i), t = v[i];
        v[i] = v[k];
        v[k] = t;
    }
}

/* Ranks below `world` for the mesh, which has no more than that. */
static void random_ranks(struct random *g, struct side_spec *s, int world)
{
    int n = spec_mesh(s), all[CASE_RANKS], way = RANDOM_WEIGHTED(g, 50, 15, 12, 13, 10);
    for (int i = 0; i < world; i++)
        all[i] = i;
    int first = way == 1 ? world - n : way == 4 ? (int)random_in(g, 0, world - n) : 0;
    if (way == 2) /* all below n, in any order */
        random_shuffle(g, all, n);
    if (way == 3) /* any */
        random_shuffle(g, all, world);
    for (int i = 0; i < n; i++)
        s->ranks[i] = all[first + i];
}

/* Gives a free axis something to do. */
static void random_split(struct random *g, struct side_spec *s, int axis, int dim)
{
    int n = s->dim[dim].nsplits++, at = random_once_in(g, 3) ? (int)random_in(g, 0, n) : n;
    memmove(&s->dim[dim].split[at + 1], &s->dim[dim].split[at], (size_t)(n - at) * sizeof s->dim[dim].split[at]);
    s->dim[dim].split[at].axis = axis;
    s->dim[dim].split[at].block = random_block(g);
}

static void random_fold(struct random *g, struct side_spec *s, int axis)
{
    int f = s->nfolds && random_once_in(g, 2) ? (int)random_in(g, 0, s->nfolds - 1) : s->nfolds;
    if (f == s->nfolds) {
        s->nfolds++;
        s->fold[f].op = random_op(g, s->dtype);
        s->fold[f].nover = 0;
    }
    s->fold[f].over[s->fold[f].nover++] = axis;
}

static void random_role(struct random *g, struct side_spec *s, int axis)
{
    int what = RANDOM_WEIGHTED(g, 56, 24, 20);
    if (what == 0 && s->ndim)
        random_split(g, s, axis, (int)random_in(g, 0, s->ndim - 1));
    else if (what == 1)
        random_fold(g, s, axis);
}

static int64_t random_width(struct random *g, int64_t extent, int ndim)
{
    if (random_once_in(g, 8) && ndim < 3)
        return random_in(g, 0, extent > 12 ? extent : 2 * extent + 1);
    return random_in(g, 0, ndim > 3 ? 1 : 2);
}

static void random_ghosts(struct random *g, struct side_spec *s)
{
    if (!s->ndim)
        return;
    for (int64_t k = random_in(g, 1, s->ndim > 1 ? 2 : 1); k > 0; k--) {
        int d = (int)random_in(g, 0, s->ndim - 1);
        s->dim[d].lo = random_width(g, s->dim[d].extent, s->ndim);
        s->dim[d].hi = random_once_in(g, 2) ? s->dim[d].lo : random_width(g, s->dim[d].extent, s->ndim);
        s->dim[d].wrap = random_once_in(g, 2);
        for (int i = 0; i < s->dim[d].nsplits; i++)
            s->dim[d].split[i].block = 0;
    }
    s->faces = random_once_in(g, 2);
}

static void random_roles(struct random *g, struct side_spec *s)
{
    int order[CASE_AXES] = {0, 1, 2, 3};
    random_shuffle(g, order, s->naxes);
    for (int a = 0; a < s->naxes; a++)
        random_role(g, s, order[a]);
    if (random_once_in(g, 5))
        random_ghosts(g, s);
    if (spec_has_ghosts(s) && random_once_in(g, 3))
        random_fold(g, s, CASE_GHOSTS);
}

static void random_clear(struct side_spec *s)
{
    s->nfolds = 0;
    s->faces = false;
    for (int d = 0; d < s->ndim; d++) {
        s->dim[d].nsplits = 0;
        s->dim[d].lo = s->dim[d].hi = 0;
        s->dim[d].wrap = false;
    }
}

/* ---- destinations ---- */

static void change_a_little(struct random *g, struct side_spec *s, int world)
{
    int axis = (int)random_in(g, 0, s->naxes - 1), d = s->ndim ? (int)random_in(g, 0, s->ndim - 1) : -1;
    switch (RANDOM_WEIGHTED(g, 35, 15, 15, 10, 10, 10, 5)) {
    case 0: /* an axis does something else */
        spec_free_axis(s, axis);
        random_role(g, s, axis);
        break;
    case 1: /* other ghosts */
        if (spec_has_ghosts(s) && random_once_in(g, 2))
            for (int k = 0; k < s->ndim; k++)
                s->dim[k].lo = s->dim[k].hi = 0;
        else
            random_ghosts(g, s);
        break;
    case 2: /* folds are done */ s->nfolds = 0; break;
    case 3: /* other blocks */
        if (d >= 0 && s->dim[d].nsplits)
            s->dim[d].split[random_in(g, 0, s->dim[d].nsplits - 1)].block = random_block(g);
        break;
    case 4: /* splits in another order */
        if (d >= 0 && s->dim[d].nsplits > 1) {
            int a = s->dim[d].split[0].axis;
            s->dim[d].split[0].axis = s->dim[d].split[s->dim[d].nsplits - 1].axis;
            s->dim[d].split[s->dim[d].nsplits - 1].axis = a;
        }
        break;
    case 5: /* other ranks */ random_ranks(g, s, world); break;
    default: /* ghosts are terms, or are no more */
        if (!spec_has_ghosts(s))
            break;
        spec_free_axis(s, CASE_GHOSTS);
        if (random_once_in(g, 2))
            random_fold(g, s, CASE_GHOSTS);
    }
}

/* The two ends of a collective on one axis of a mesh that both sides share. */
static void both_ends(struct random *g, struct side_spec *src, struct side_spec *dst)
{
    int axis = (int)random_in(g, 0, src->naxes - 1), what = RANDOM_WEIGHTED(g, 3, 3, 3, 3, 2, 2, 2);
    spec_free_axis(src, axis);
    if (random_once_in(g, 2)) /* what else there is stands in no fold */
        src->nfolds = 0;
    *dst = *src;
    int d = src->ndim ? (int)random_in(g, 0, src->ndim - 1) : -1;
    int e = src->ndim ? (int)random_in(g, 0, src->ndim - 1) : -1;
    int64_t block = random_once_in(g, 4) ? random_block(g) : 0;
    if (what == 0 || what == 1 || d < 0) /* all-reduce, reduce-scatter */
        random_fold(g, src, axis);
    if ((what == 2 || what == 3) && d >= 0) { /* all-gather, all-to-all: innermost */
        src->dim[d].split[src->dim[d].nsplits].axis = axis;
        src->dim[d].split[src->dim[d].nsplits++].block = block;
    }
    if ((what == 1 || what == 3) && d >= 0) {
        dst->dim[e].split[dst->dim[e].nsplits].axis = axis;
        dst->dim[e].split[dst->dim[e].nsplits++].block = block;
    }
    if (what == 4) /* a halo, there */
        random_ghosts(g, dst);
    if (what == 5) { /* and back */
        spec_free_axis(src, CASE_GHOSTS);
        random_ghosts(g, src);
        if (spec_has_ghosts(src))
            random_fold(g, src, CASE_GHOSTS);
    }
    if (what == 6) { /* one root, inside of the mesh or not */
        struct side_spec *one = random_once_in(g, 2) ? src : dst, *many = one == src ? dst : src;
        random_clear(one);
        one->naxes = one->size[0] = 1;
        one->ranks[0] = random_once_in(g, 3) ? (int)random_in(g, 0, CASE_RANKS - 1)
                                             : many->ranks[random_in(g, 0, spec_mesh(many) - 1)];
        random_clear(many);
        for (int a = 0, way = (int)random_in(g, 0, 2); a < many->naxes; a++)
            if (way == 0 && d >= 0)
                random_split(g, many, a, d);
            else if (way == 1 && many == src)
                random_fold(g, many, a);
    }
    if (what != 6 && src->naxes > 1 && random_once_in(g, 3))
        dst->nfolds = 0;
}

/* Keeps what ghosts add within bounds: they multiply over dims, and as terms over pieces. */
static void random_tame(struct side_spec *s)
{
    double slots = 1, terms = 1, elements = 1;
    for (int d = 0; d < s->ndim; d++) {
        double n = (double)s->dim[d].extent, pieces = 1, more = (double)(s->dim[d].lo + s->dim[d].hi);
        for (int k = 0; k < s->dim[d].nsplits; k++)
            pieces *= s->size[s->dim[d].split[k].axis];
        pieces = pieces > n ? n : pieces;
        elements *= n;
        slots *= n + pieces * more;
        terms *= n > 0 ? 1 + pieces * more / n : 1;
    }
    for (int d = 0; d < s->ndim; d++)
        if (slots > 8000 + 2 * elements || terms > 60)
            s->dim[d].lo = s->dim[d].hi = 0;
}

static void random_pair(struct random *g, struct side_spec *src, struct side_spec *dst, int world)
{
    memset(src, 0, sizeof *src);
    src->dtype = random_dtype(g);
    random_shape(g, src);
    random_mesh(g, src, world);
    random_ranks(g, src, world);
    random_roles(g, src);
    *dst = *src;
    switch (RANDOM_WEIGHTED(g, 25, 15, 35, 25)) {
    case 0: /* another mesh */
        random_clear(dst);
        random_mesh(g, dst, world);
        random_ranks(g, dst, world);
        random_roles(g, dst);
        break;
    case 1: /* the same mesh, used in another way */
        random_clear(dst);
        random_roles(g, dst);
        break;
    case 2:
        for (int64_t k = random_in(g, 1, 3); k > 0; k--)
            change_a_little(g, dst, world);
        break;
    default:
        both_ends(g, src, dst);
        if (random_once_in(g, 4))
            random_ranks(g, dst, world > spec_mesh(dst) ? world : spec_mesh(dst));
    }
    if (random_once_in(g, 3))
        do
            dst->dtype = random_dtype(g);
        while (!dtype_castable(src->dtype, dst->dtype));
    for (int k = 0; k < 2; k++) {
        struct side_spec *s = k ? dst : src;
        spec_mend(s, k == 1);
        random_tame(s);
        spec_mend(s, k == 1);
    }
}

void random_case(uint64_t seed, int64_t number, struct property_case *c)
{
    static const int worlds[] = {2, 3, 4, 5, 6, 8, 12, 16, 24};
    struct random g = {hash_u64(seed, (uint64_t)number)};
    memset(c, 0, sizeof *c);
    c->number = number;
    c->moves = random_once_in(&g, 8) ? (int)random_in(&g, 2, CASE_MOVES) : 1;
    int world = worlds[RANDOM_WEIGHTED(&g, 4, 6, 14, 4, 12, 18, 16, 12, 14)];
    for (int m = 0; m < c->moves; m++)
        random_pair(&g, &c->side[m][0], &c->side[m][1], world);
    c->bucket = (int64_t[]){1, random_in(&g, 2, 300), 0}[random_in(&g, 0, 2)];
    c->ranks_per_host = random_once_in(&g, 4) ? (int)random_in(&g, 1, 4) : 0;
    c->in_place = random_once_in(&g, 6);
    c->staged = random_once_in(&g, 2);
    c->wild = !random_once_in(&g, 4);
    c->seed = random_next(&g) >> 40;
}

void random_hosts(uint64_t seed, struct property_case *c)
{
    struct random g = {hash_u64(seed + 2, (uint64_t)c->number)};
    int hosts = (int)random_in(&g, 1, 6), way = (int)random_in(&g, 0, 2);
    c->hosts = random_once_in(&g, 4);
    for (int r = 0; r < CASE_RANKS; r++)
        c->host[r] = way == 0   ? r * hosts / CASE_RANKS
                     : way == 1 ? r % hosts
                                : (int)random_in(&g, 0, CASE_RANKS - 1) / hosts;
}

void random_giant(uint64_t seed, int64_t number, struct property_case *c)
{
    struct random g = {hash_u64(seed + 1, (uint64_t)number)};
    random_case(seed, number, c);
    for (int m = 0; m < c->moves; m++) {
        double room = 0x1p58;
        struct side_spec *both = c->side[m];
        for (int k = 0; k < 2; k++)
            for (int d = 0; d < both->ndim; d++)
                room /= 1 + (double)(both[k].dim[d].extent + both[k].dim[d].lo + both[k].dim[d].hi);
        for (int d = 0; d < both->ndim && room > 1000; d++) {
            int64_t most = room > 0x1p40 ? INT64_C(1) << 40 : (int64_t)room;
            int64_t by = both->dim[d].extent ? random_in(&g, 1, random_once_in(&g, 3) ? 9 : most) : 1;
            int64_t more = random_in(&g, 0, by - 1);
            for (int k = 0; k < 2; k++) {
                both[k].dim[d].extent = both[k].dim[d].extent * by + more;
                both[k].dim[d].lo *= random_once_in(&g, 2) || both[k].dim[d].wrap ? by : 1;
                both[k].dim[d].hi *= random_once_in(&g, 2) || both[k].dim[d].wrap ? by : 1;
                for (int i = 0; i < both[k].dim[d].nsplits; i++)
                    both[k].dim[d].split[i].block *= by;
            }
            room /= (double)by + 1;
        }
    }
}
