#define _GNU_SOURCE
#include "layout_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

/* ---- the struct form ---- */

static void sample_name(struct random *g, char *out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    int n = (int)(random_once_in(g, 8) ? random_in(g, 1, WEFT_MAX_NAME) : random_in(g, 1, 4));
    bool digits = false;
    for (int i = 0; i < n; i++) {
        int64_t what = i ? random_in(g, 0, 5) : 0;
        if (what == 4) {
            out[i] = '_';
            digits = true;
        } else if (what == 5 && digits) {
            out[i] = (char)('0' + random_in(g, 0, 9));
        } else {
            out[i] = letters[random_in(g, 0, 51)];
            digits = false;
        }
    }
    out[n] = 0;
}

static void sample_mesh(struct random *g, struct sample *s, const struct sample_options *o)
{
    int64_t mesh = 1;
    s->desc.naxes = (int)random_in(g, 1, o->axes);
    s->desc.axes = s->axes;
    for (int a = 0; a < s->desc.naxes; a++) {
        bool again;
        do {
            sample_name(g, s->names[a]);
            again = false;
            for (int b = 0; b < a; b++)
                again = again || !strcmp(s->names[a], s->names[b]);
        } while (again);
        int64_t most = o->mesh / mesh, size = random_in(g, 1, most < 5 || random_once_in(g, 6) ? most : 5);
        s->axes[a] = (weft_axis){s->names[a], size};
        mesh *= size;
    }
    int64_t way = mesh > SAMPLE_RANKS ? 0 : random_in(g, 0, 3), first = random_in(g, 0, 99);
    s->desc.ranks = way ? s->ranks : NULL;
    if (!way)
        return;
    for (int64_t i = 0; i < mesh; i++)
        s->ranks[i] = (int)(first + (way == 1 ? i : 2 * i + random_in(g, 0, 1)));
    if (way == 3) /* any order, so that neighbours may or may not go on from each other */
        for (int64_t k = random_in(g, 1, mesh); k > 0; k--) {
            int64_t i = random_in(g, 0, mesh - 1), j = random_in(g, 0, mesh - 1);
            int t = s->ranks[i];
            s->ranks[i] = s->ranks[j];
            s->ranks[j] = t;
        }
    if (random_once_in(g, 8))
        s->ranks[random_in(g, 0, mesh - 1)] = INT32_MAX - 1;
}

static void sample_ghosts(struct random *g, const struct sample_options *o, weft_dim *d)
{
    for (int k = 0; k < d->nsplits; k++)
        if (d->splits[k].block)
            return;
    if (!o->ghosts || random_once_in(g, 2))
        return;
    d->lo = random_in(g, 0, o->ghosts);
    d->hi = random_once_in(g, 2) ? d->lo : random_in(g, 0, o->ghosts);
    d->wrap = random_once_in(g, 2);
    /* Stay well below the limit on turns. */
    if (d->wrap && d->extent && (d->lo / d->extent > 100 || d->hi / d->extent > 100))
        d->lo = d->hi = d->extent;
}

static enum weft_op sample_op(struct random *g, int dtype)
{
    int op;
    do
        op = (int)random_in(g, 1, OP_COUNT);
    while (!dtype_foldable(op, dtype));
    return (enum weft_op)op;
}

/* Deals the axes: each splits a dim, is folded over, or is free. */
static void sample_roles(struct random *g, struct sample *s, const struct sample_options *o)
{
    int order[WEFT_MAX_AXES], n = s->desc.naxes;
    for (int a = 0; a < n; a++) {
        int at = (int)random_in(g, 0, a);
        order[a] = a;
        order[a] = order[at];
        order[at] = a;
    }
    for (int k = 0; k < n; k++) {
        const char *name = s->names[order[k]];
        int64_t role = random_in(g, 0, 5);
        if ((role < 4 || o->split) && s->desc.ndim) {
            weft_dim *d = &s->dims[random_in(g, 0, s->desc.ndim - 1)];
            int64_t block = !random_once_in(g, 3) ? 0 : random_in(g, 1, random_once_in(g, 4) ? o->extent : 4);
            d->splits[d->nsplits++] = (weft_split){name, block};
        } else if (role == 4) {
            bool fresh = !s->desc.nfolds || random_once_in(g, 2);
            weft_fold *f = &s->folds[fresh ? s->desc.nfolds++ : random_in(g, 0, s->desc.nfolds - 1)];
            f->op = fresh ? sample_op(g, (int)s->desc.dtype) : f->op;
            f->over[f->nover++] = name;
        }
    }
}

/* Ghosts where there is room for them: the whole must stay within 2^62 bytes. Were there any? */
static bool sample_all_ghosts(struct random *g, struct sample *s, const struct sample_options *o)
{
    bool any = false, fits = true;
    int64_t count = 1;
    for (int i = 0; i < s->desc.ndim; i++) {
        weft_dim *d = &s->dims[i];
        sample_ghosts(g, o, d);
        any = any || d->lo || d->hi;
        int64_t n = d->lo + d->extent + d->hi;
        fits = fits && !__builtin_mul_overflow(count, n ? n : 1, &count) && count <= INT64_C(1) << 58;
    }
    for (int i = 0; i < s->desc.ndim && !fits; i++)
        s->dims[i].lo = s->dims[i].hi = 0;
    return any && fits;
}

void sample_desc(struct random *g, struct sample *s, const struct sample_options *o)
{
    memset(s, 0, sizeof *s);
    s->desc.size = sizeof s->desc;
    s->desc.dtype = (enum weft_dtype)random_in(g, 1, DTYPE_COUNT);
    sample_mesh(g, s, o);
    s->desc.ndim = (int)random_in(g, o->split, o->dims);
    s->desc.dims = s->dims;
    s->desc.folds = s->folds;
    for (int64_t i = 0, room = INT64_C(1) << 58; i < s->desc.ndim; i++) {
        int64_t most = o->extent < room ? o->extent : room;
        s->dims[i].extent = random_once_in(g, 12) ? 0 : random_in(g, 1, most);
        room /= s->dims[i].extent ? s->dims[i].extent : 1;
    }
    sample_roles(g, s, o);
    bool ghosts = sample_all_ghosts(g, s, o);
    s->desc.flags = ghosts && random_once_in(g, 2) ? WEFT_LAYOUT_FACES : 0;
    if (ghosts && random_once_in(g, 3)) {
        bool fresh = !s->desc.nfolds || random_once_in(g, 2);
        weft_fold *f = &s->folds[fresh ? s->desc.nfolds++ : random_in(g, 0, s->desc.nfolds - 1)];
        f->op = fresh ? sample_op(g, (int)s->desc.dtype) : f->op;
        f->over[f->nover++] = "~";
    }
}

int64_t sample_mesh_size(const struct sample *s)
{
    int64_t n = 1;
    for (int a = 0; a < s->desc.naxes; a++)
        n *= s->axes[a].size;
    return n;
}

/* ---- the text form ---- */

/* One token, and in `loose` texts white space behind it. */
static void sample_token(struct random *loose, struct sample *s, const char *token)
{
    size_t n = strlen(token);
    memcpy(s->text + s->len, token, n + 1);
    s->len += n;
    while (loose && random_once_in(loose, 3)) {
        s->text[s->len++] = " \t\n\r"[random_in(loose, 0, 3)];
        s->text[s->len] = 0;
    }
}

static void sample_number(struct random *loose, struct sample *s, int64_t n)
{
    char token[24];
    snprintf(token, sizeof token, "%lld", (long long)n);
    sample_token(loose, s, token);
}

static void sample_text_dim(struct random *g, struct random *loose, struct sample *s, const weft_dim *d)
{
    sample_number(loose, s, d->extent);
    for (int k = 0; k < d->nsplits; k++) {
        sample_token(loose, s, "/");
        sample_token(loose, s, d->splits[k].axis);
        if (d->splits[k].block) {
            sample_token(loose, s, ":");
            sample_number(loose, s, d->splits[k].block);
        }
    }
    if (!d->lo && !d->hi && !d->wrap)
        return;
    sample_token(loose, s, "~");
    sample_number(loose, s, d->lo);
    if (d->lo != d->hi || random_once_in(g, 4)) {
        sample_token(loose, s, ":");
        sample_number(loose, s, d->hi);
    }
    if (d->wrap)
        sample_token(loose, s, "o");
}

static void sample_text_ranks(struct random *g, struct random *loose, struct sample *s)
{
    int64_t mesh = sample_mesh_size(s);
    for (int64_t i = 0, k; i < mesh; i = k) {
        sample_token(loose, s, i ? "," : "=");
        for (k = i + 1; k < mesh && s->ranks[k] == s->ranks[k - 1] + 1 && !random_once_in(g, 9);)
            k++;
        sample_number(loose, s, s->ranks[i]);
        if (k - i > 1 || random_once_in(g, 9)) {
            sample_token(loose, s, "..");
            sample_number(loose, s, s->ranks[k - 1]);
        }
    }
}

void sample_text(struct random *g, struct sample *s, bool spaces)
{
    struct random *loose = spaces ? g : NULL;
    s->len = 0;
    sample_token(loose, s, "");
    sample_token(loose, s, weft_dtype_name((int)s->desc.dtype));
    sample_token(loose, s, "[");
    for (int i = 0; i < s->desc.ndim; i++) {
        if (i)
            sample_token(loose, s, ",");
        sample_text_dim(g, loose, s, &s->dims[i]);
    }
    sample_token(loose, s, "]");
    if (s->desc.flags)
        sample_token(loose, s, "+");
    sample_token(loose, s, "@");
    for (int a = 0; a < s->desc.naxes; a++) {
        if (a)
            sample_token(loose, s, ".");
        sample_token(loose, s, s->names[a]);
        if (strpbrk(s->names[a], "_")) /* else a digit could read as part of the name */
            sample_token(loose, s, " ");
        sample_number(loose, s, s->axes[a].size);
    }
    if (s->desc.ranks)
        sample_text_ranks(g, loose, s);
    for (int f = 0; f < s->desc.nfolds; f++) {
        sample_token(loose, s, "+");
        sample_token(loose, s, weft_op_name((int)s->folds[f].op));
        for (int k = 0; k < s->folds[f].nover; k++) {
            sample_token(loose, s, k ? "," : "(");
            sample_token(loose, s, s->folds[f].over[k]);
        }
        sample_token(loose, s, ")");
    }
}
