#include "bench/work/random_pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DIMS = 5, AXES = 3 };

/* ---- chance ---- */

struct chance {
    uint64_t state;
};

/* A counter, whose bits are mixed by two multiplications. */
static uint64_t next(struct chance *c)
{
    uint64_t x = c->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static int64_t from_to(struct chance *c, int64_t low, int64_t high)
{
    return low + (int64_t)(next(c) % (uint64_t)(high - low + 1));
}

static bool percent(struct chance *c, int n)
{
    return from_to(c, 0, 99) < n;
}

/* ---- one side ---- */

struct side {
    enum weft_dtype dtype;
    int ndim, axes;
    int64_t extent[DIMS];
    int size[AXES];     /* of each axis */
    char dim[DIMS][96]; /* the text of each dim */
    char folds[48];
    char ranks[96];
};

static void put(char *text, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(char *text, size_t cap, const char *format, ...)
{
    va_list args;
    size_t at = strlen(text);
    va_start(args, format);
    vsnprintf(text + at, cap - at, format, args);
    va_end(args);
}

/* Factors n into up to AXES axes. */
static void choose_mesh(struct chance *c, struct side *s, int n)
{
    s->axes = 0;
    while (n > 1 && s->axes < AXES - 1 && percent(c, 60)) {
        int f = (int)from_to(c, 2, n);
        if (n % f)
            continue;
        s->size[s->axes++] = f;
        n /= f;
    }
    if (n > 1 || !s->axes)
        s->size[s->axes++] = n;
}

/* Some axes split dims, some are folded, the others replicate. `first`: the letter of the first axis. */
static void choose_splits(struct chance *c, struct side *s, char first, int folds, const char *op)
{
    static const int blocks[] = {1, 3, 16, 64, 1000};
    bool cyclic[DIMS] = {false}, split[DIMS] = {false}, folded = false;
    for (int d = 0; d < s->ndim; d++)
        snprintf(s->dim[d], sizeof s->dim[d], "%lld", (long long)s->extent[d]);
    for (int a = 0; a < s->axes; a++) {
        int d = (int)from_to(c, 0, s->ndim - 1);
        if (percent(c, folds)) {
            put(s->folds, sizeof s->folds, "%s%c", folded ? "," : "", first + a);
            folded = true;
        } else if (percent(c, 80) && s->extent[d] > 1) {
            put(s->dim[d], sizeof s->dim[d], "/%c", first + a);
            split[d] = true;
            if (percent(c, 12)) {
                put(s->dim[d], sizeof s->dim[d], ":%d", blocks[from_to(c, 0, 4)]);
                cyclic[d] = true;
            }
        }
    }
    if (folded) {
        char axes[48];
        memcpy(axes, s->folds, sizeof axes);
        snprintf(s->folds, sizeof s->folds, " +%s(%.32s)", op, axes);
    }
    for (int d = 0; d < s->ndim && first == 'x'; d++)
        if (split[d] && !cyclic[d] && percent(c, 8))
            put(s->dim[d], sizeof s->dim[d], "~%d%s", (int)from_to(c, 1, 3), percent(c, 50) ? "o" : "");
}

/* n ranks from `low` on, sometimes in another order. */
static void choose_ranks(struct chance *c, struct side *s, int low, int n)
{
    int ranks[64];
    bool mixed = n <= 16 && percent(c, 20);
    if (!low && !mixed)
        return;
    for (int i = 0; i < n; i++)
        ranks[i] = low + i;
    for (int i = n - 1; i > 0 && mixed; i--) {
        int k = (int)from_to(c, 0, i), rank = ranks[i];
        ranks[i] = ranks[k];
        ranks[k] = rank;
    }
    for (int i = 0; i < n; i++)
        put(s->ranks, sizeof s->ranks, "%s%d", i ? "," : "=", ranks[i]);
}

static void print(const struct side *s, char first, char *text)
{
    text[0] = 0;
    put(text, RANDOM_PAIR_TEXT, "%s[", weft_dtype_name((int)s->dtype));
    for (int d = 0; d < s->ndim; d++)
        put(text, RANDOM_PAIR_TEXT, "%s%s", d ? "," : "", s->dim[d]);
    put(text, RANDOM_PAIR_TEXT, "] @");
    for (int a = 0; a < s->axes; a++)
        put(text, RANDOM_PAIR_TEXT, "%s%c%d", a ? "." : "", first + a, s->size[a]);
    put(text, RANDOM_PAIR_TEXT, "%s%s", s->ranks, s->folds);
}

/* ---- the pair ---- */

/* A dtype that stands here twice is twice as likely. */
static const enum weft_dtype floats[] = {WEFT_F32, WEFT_F32, WEFT_F32,    WEFT_BF16,  WEFT_BF16,
                                         WEFT_F16, WEFT_F64, WEFT_F8E4M3, WEFT_F8E5M2};
static const enum weft_dtype integers[] = {WEFT_I32, WEFT_U8, WEFT_I64, WEFT_I16};
#define ONE_OF(c, list) (list)[from_to(c, 0, (int64_t)(sizeof(list) / sizeof *(list)) - 1)]

/* Complex numbers, scales, and f8 that saturate. They are drawn apart, so that all other pairs of a seed stay the same.
 * *op becomes one that folds them, and *identity one that a destination may have. */
static void choose_rare(struct chance c, struct side *src, struct side *dst, const char **op, const char **identity)
{
    static const enum weft_dtype complexes[] = {WEFT_C64, WEFT_C64, WEFT_C128}, reals[] = {WEFT_F32, WEFT_F64};
    static const enum weft_dtype saturating[] = {WEFT_F8E4M3SAT, WEFT_F8E5M2SAT};
    bool cast = src->dtype != dst->dtype;
    c.state = ~c.state;
    if (!percent(&c, 10))
        return;
    switch (from_to(&c, 0, 2)) {
    case 0:
        dst->dtype = ONE_OF(&c, complexes);
        src->dtype = !cast ? dst->dtype : percent(&c, 50) ? ONE_OF(&c, complexes) : ONE_OF(&c, reals);
        *op = percent(&c, 50) ? "sum" : "avg";
        break;
    case 1:
        dst->dtype = ONE_OF(&c, saturating);
        src->dtype = !cast ? dst->dtype : ONE_OF(&c, floats);
        break;
    default:
        dst->dtype = WEFT_F8E8M0;
        src->dtype = !cast ? dst->dtype : ONE_OF(&c, floats);
        *op = *identity = "max";
    }
}

static void choose_extents(struct chance *c, struct side *s, int64_t elements)
{
    s->ndim = (int)(percent(c, 75) ? from_to(c, 1, 3) : from_to(c, 4, DIMS));
    int last = (int)from_to(c, 0, s->ndim - 1); /* takes what the others leave */
    int64_t rest = elements;
    for (int d = 0; d < s->ndim; d++) {
        int64_t most = s->ndim == 2 ? 8192 : s->ndim == 3 ? 256 : 32;
        if (d == last)
            continue;
        s->extent[d] = percent(c, 50) ? from_to(c, 1, most) : INT64_C(1) << from_to(c, 0, 13);
        if (s->extent[d] > most)
            s->extent[d] = most;
        rest = (rest + s->extent[d] - 1) / s->extent[d];
    }
    s->extent[last] = percent(c, 50) ? rest + from_to(c, 0, 7) : (rest + 63) / 64 * 64;
}

struct random_pair random_pair(uint64_t seed, int64_t number, int64_t bytes, int ranks)
{
    static const char *const ops[] = {"sum", "sum", "sum", "sum", "avg", "max", "min"};
    struct chance c = {seed};
    c.state = next(&c) ^ (uint64_t)number;
    c.state = next(&c); /* so that the pairs of neighbouring numbers have nothing in common */
    struct side src = {0}, dst = {0};
    struct random_pair out;
    bool real = percent(&c, 85), apart = ranks >= 4 && percent(&c, 25);
    int n = (int)from_to(&c, apart ? 4 : 2, ranks), half = apart ? n / 2 : n;
    src.dtype = real ? ONE_OF(&c, floats) : ONE_OF(&c, integers);
    dst.dtype = percent(&c, 60) ? src.dtype : real ? ONE_OF(&c, floats) : ONE_OF(&c, integers);
    const char *rare = NULL, *identity = "sum";
    choose_rare(c, &src, &dst, &rare, &identity);
    int64_t size = (int64_t)weft_dtype_size((int)src.dtype);
    choose_extents(&c, &src, (bytes + size - 1) / size);
    dst.ndim = src.ndim;
    memcpy(dst.extent, src.extent, sizeof dst.extent);
    choose_mesh(&c, &src, half);
    choose_mesh(&c, &dst, apart ? n - half : n);
    bool folds = percent(&c, 30);
    const char *op = ONE_OF(&c, ops);
    choose_splits(&c, &src, 'a', folds ? 50 : 0, rare ? rare : op);
    choose_splits(&c, &dst, 'x', percent(&c, 5) ? 40 : 0, identity);
    choose_ranks(&c, &src, 0, half);
    choose_ranks(&c, &dst, apart ? half : 0, apart ? n - half : n);
    print(&src, 'a', out.src);
    print(&dst, 'x', out.dst);
    return out;
}

/* ---- facts ---- */

/* Of one side: elements that all ranks hold, bytes, and how many copies of an element are folded into one. */
struct totals {
    double held;
    int64_t bytes, folded;
};

static int64_t axis_size(const weft_layout_desc *d, const char *name)
{
    for (int a = 0; a < d->naxes; a++)
        if (!strcmp(d->axes[a].name, name))
            return d->axes[a].size;
    return 1; /* ghosts */
}

static int totals_of(const weft_layout *l, const weft_layout_desc *d, struct totals *t)
{
    *t = (struct totals){.folded = 1};
    for (int r = 0; r < weft_layout_ranks(l); r++) {
        weft_local local;
        int err = weft_layout_local(l, r, &local);
        if (err)
            return err;
        t->held += (double)local.count;
        t->bytes += local.bytes;
    }
    for (int i = 0; i < d->nfolds; i++)
        for (int k = 0; k < d->folds[i].nover; k++)
            t->folded *= axis_size(d, d->folds[i].over[k]);
    return 0;
}

static bool is_whole(const weft_dim *d)
{
    return !d->nsplits && !d->lo && !d->hi;
}

static int64_t run_of(const weft_layout_desc *d)
{
    const weft_dim *dim = &d->dims[d->ndim - 1];
    int64_t n = dim->extent, size = (int64_t)weft_dtype_size((int)d->dtype);
    for (int i = 0; i < dim->nsplits; i++) {
        int64_t parts = axis_size(d, dim->splits[i].axis), block = dim->splits[i].block;
        n = block && parts > 1 ? (block < n ? block : n) : (n + parts - 1) / parts;
    }
    for (int i = d->ndim - 1; i > 0 && is_whole(&d->dims[i]); i--) /* rows that follow each other */
        n *= is_whole(&d->dims[i - 1]) ? d->dims[i - 1].extent : 1;
    return n * size;
}

static void note_dims(const weft_layout_desc *d, struct random_pair_facts *f)
{
    for (int i = 0; i < d->ndim; i++) {
        int64_t parts = 1;
        f->ghosts |= d->dims[i].lo || d->dims[i].hi;
        for (int k = 0; k < d->dims[i].nsplits; k++) {
            f->cyclic |= d->dims[i].splits[k].block > 0;
            parts *= axis_size(d, d->dims[i].splits[k].axis);
        }
        f->uneven |= d->dims[i].extent % parts != 0;
    }
}

int random_pair_facts(const weft_layout *src, const weft_layout *dst, struct random_pair_facts *out)
{
    weft_layout_desc s = WEFT_LAYOUT_DESC_INIT, d = WEFT_LAYOUT_DESC_INIT;
    struct totals from, to;
    int err = weft_layout_describe(src, &s);
    if (!err)
        err = weft_layout_describe(dst, &d);
    if (!err)
        err = totals_of(src, &s, &from);
    if (!err)
        err = totals_of(dst, &d, &to);
    if (err)
        return err;
    double elements = 1, read = (double)weft_dtype_size((int)s.dtype), written = (double)weft_dtype_size((int)d.dtype);
    for (int i = 0; i < s.ndim; i++)
        elements *= (double)s.dims[i].extent;
    double values = to.held / (double)to.folded, copies = values > elements ? values - elements : 0;
    double again = from.folded > 1 || written < read ? written : read; /* bytes read for a copy on a further rank */
    int ns = weft_layout_ranks(src), nd = weft_layout_ranks(dst);
    *out = (struct random_pair_facts){
        .ranks = ns > nd ? ns : nd,
        .memory = from.bytes + to.bytes,
        .moved = elements * (double)from.folded * read + copies * again + to.held * written,
        .run = {run_of(&s), run_of(&d)},
        .casts = s.dtype != d.dtype,
        .folds = from.folded > 1 || to.folded > 1,
        .apart = d.ranks[0] >= ns || s.ranks[0] >= nd,
    };
    if (out->folds)
        snprintf(out->op, sizeof out->op, "%s", weft_op_name((int)(from.folded > 1 ? s.folds[0].op : d.folds[0].op)));
    snprintf(out->dtypes, sizeof out->dtypes, "%s%s%s", weft_dtype_name((int)s.dtype), out->casts ? " to " : "",
             out->casts ? weft_dtype_name((int)d.dtype) : "");
    note_dims(&s, out);
    note_dims(&d, out);
    return 0;
}
