/* Prints a layout in its text form; parsing that gives an equal layout. */
#include "base/error.h"
#include "base/text.h"
#include "layout/layout.h"

static void put_dim(struct text *t, const weft_layout *l, const struct layout_dim *d)
{
    text_int(t, d->extent);
    for (int s = 0; s < d->nsplits; s++) {
        text_put(t, "/");
        text_put(t, l->axis[d->split[s].axis].name);
        if (d->split[s].block)
            text_printf(t, ":%lld", (long long)d->split[s].block);
    }
    if (!d->lo && !d->hi)
        return;
    text_printf(t, "~%lld", (long long)d->lo);
    if (d->hi != d->lo)
        text_printf(t, ":%lld", (long long)d->hi);
    if (d->wrap)
        text_put(t, "o");
}

static void put_mesh(struct text *t, const weft_layout *l)
{
    for (int a = 0; a < l->naxes; a++) {
        const char *name = l->axis[a].name, *last = name;
        for (const char *p = name; *p; p++)
            last = p;
        /* A size right behind "_" or a digit would read as part of the name. */
        const char *gap = *last == '_' || (*last >= '0' && *last <= '9') ? " " : "";
        text_printf(t, "%s%s%s%lld", a ? "." : "", name, gap, (long long)l->axis[a].size);
    }
    if (l->nsegs == 1 && l->by_index[0].rank == 0)
        return;
    for (size_t i = 0; i < l->nsegs; i++) {
        const struct layout_seg *s = &l->by_index[i];
        text_printf(t, "%s%d", i ? "," : "=", s->rank);
        if (s->n > 1)
            text_printf(t, "%s%d", s->n > 2 ? ".." : ",", s->rank + (int)s->n - 1);
    }
}

int weft_layout_format(const weft_layout *l, char *buf, size_t cap, size_t *len)
{
    if (!l || (cap && !buf))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", l ? "buf" : "layout");
    struct text t = text_start(buf, cap);
    text_put(&t, weft_dtype_name(l->dtype));
    text_put(&t, "[");
    for (int d = 0; d < l->ndim; d++) {
        if (d)
            text_put(&t, ",");
        put_dim(&t, l, &l->dim[d]);
    }
    text_put(&t, l->faces ? "]+ @" : "] @");
    put_mesh(&t, l);
    for (int f = 0; f < l->nfolds; f++) {
        text_printf(&t, " +%s", weft_op_name(l->fold[f].op));
        for (int k = 0; k < l->desc_fold[f].nover; k++)
            text_printf(&t, "%s%s", k ? "," : "(", l->desc_fold[f].over[k]);
        text_put(&t, ")");
    }
    if (len)
        *len = t.len;
    return 0;
}
