/* Which parts are stored together under which name in the output: as in the input, joined by fuse rules, or each by
 * itself. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

static struct checkpoint_entry *add_entry(struct checkpoint *c, const char *name, int nparts, int cat)
{
    struct checkpoint_entry *e = checkpoint_entry_new(c, &c->dst, name, nparts, 0);
    if (e)
        e->cat = cat;
    return e;
}

static void put_part(struct checkpoint_entry *e, int k, struct checkpoint_part *p)
{
    e->parts[k] = p;
    e->ndim = p->ndim;
    e->dtype = p->src.entry->dtype;
    p->dst.entry = e;
    p->dst.index = k;
}

static int wrong(const char *name, const char *why)
{
    char shown[SAFETENSORS_SHOWN];
    return error_set(WEFT_EINVAL, "tensor %s: %s", safetensors_show(name, shown), why);
}

static int keep_entry(struct checkpoint *c, const struct checkpoint_entry *from)
{
    struct checkpoint_entry *e = add_entry(c, from->name, from->nparts, from->cat);
    if (!e)
        return error_nomem();
    for (int k = 0; k < from->nparts; k++)
        put_part(e, k, from->parts[k]);
    return 0;
}

static int split_entry(struct checkpoint *c, const struct checkpoint_entry *from)
{
    for (int k = 0; k < from->nparts; k++) {
        if (!from->parts[k]->name)
            return wrong(from->name, "it is fused, and no fuse line of the rules names its parts");
        struct checkpoint_entry *e = add_entry(c, from->parts[k]->name, 1, 0);
        if (!e)
            return error_nomem();
        put_part(e, 0, from->parts[k]);
    }
    return 0;
}

/* ---- joining ---- */

/* A part that is to be joined with others under one name. */
struct member {
    const char *name;
    const struct rules_fuse *fuse;
    int k;
    size_t order; /* position of the entry in the input */
    struct checkpoint_part *part;
};

static int order_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->k - y->k;
}

/* Are these all the parts of one tensor, with equal extents in all dims except the one along which they are joined? */
static int check_members(struct checkpoint *c, const struct member *m, size_t n)
{
    const struct rules_fuse *f = m->fuse;
    const struct checkpoint_part *p = m->part;
    int64_t sum = 0, share[RULES_PARTS];
    if (f->dim >= p->ndim)
        return wrong(p->name, "it has fewer dims than the line that fuses it");
    for (int k = 0; k < f->nparts; k++) {
        if ((size_t)k >= n || m[k].k != k) {
            char shown[SAFETENSORS_SHOWN];
            return error_set(WEFT_EINVAL, "tensor %s: it cannot be joined: there is no %s, or two of them (%s:%d)",
                             safetensors_show(m->name, shown), f->part[k], c->rules.path, f->line);
        }
        const struct checkpoint_part *q = m[k].part;
        bool same = q->ndim == p->ndim && q->src.entry->dtype == p->src.entry->dtype;
        for (int d = 0; d < p->ndim && same; d++)
            same = d == f->dim || q->shape[d] == p->shape[d];
        if (!same || __builtin_add_overflow(sum, q->shape[f->dim], &sum))
            return wrong(q->name, "its dtype or its shape does not fit the parts that it is to be joined with");
    }
    int rc = checkpoint_place_shares(c, f, m->name, sum, share);
    for (int k = 0; k < f->nparts && !rc; k++)
        if (share[k] != m[k].part->shape[f->dim])
            rc = wrong(m[k].part->name, "its length is not its share of the fused tensor");
    return rc;
}

static int join_members(struct checkpoint *c, struct member *m, size_t n, struct checkpoint_entry **at)
{
    qsort(m, n, sizeof *m, order_members);
    for (size_t i = 0, k; i < n; i = k) {
        size_t first = m[i].order;
        for (k = i + 1; k < n && !strcmp(m[k].name, m[i].name); k++)
            first = m[k].order < first ? m[k].order : first;
        int rc = check_members(c, m + i, k - i);
        if (rc)
            return rc;
        if (k - i != (size_t)m[i].fuse->nparts)
            return wrong(m[i].name, "more tensors than its parts would be joined in it");
        struct checkpoint_entry *e = add_entry(c, m[i].name, m[i].fuse->nparts, m[i].fuse->dim);
        if (!e)
            return error_nomem();
        c->dst.entries.n--; /* the joined entry takes the position of its first part */
        for (int p = 0; p < e->nparts; p++)
            put_part(e, p, m[i + (size_t)p].part);
        at[first] = e;
    }
    return 0;
}

static int join_entries(struct checkpoint *c)
{
    size_t n = c->src.entries.n, nmembers = 0;
    struct member *m = malloc((n + 1) * sizeof *m);
    struct checkpoint_entry **at = calloc(n + 1, sizeof *at);
    bool *taken = calloc(n + 1, sizeof *taken);
    int rc = m && at && taken ? 0 : error_nomem();
    for (size_t i = 0; i < n && !rc; i++) {
        struct checkpoint_entry *e = c->src.entries.v[i];
        int k;
        const struct rules_fuse *f = e->nparts == 1 ? rules_match_part(&c->rules, e->name, &k) : NULL;
        if (!f)
            continue;
        m[nmembers] =
            (struct member){rules_match_renamed(e->name, f->part[k], f->fused, &c->arena), f, k, i, e->parts[0]};
        rc = m[nmembers++].name ? 0 : error_nomem();
        taken[i] = true;
    }
    if (!rc)
        rc = join_members(c, m, nmembers, at);
    for (size_t i = 0; i < n && !rc; i++) {
        struct checkpoint_entry **to;
        if (!taken[i])
            rc = keep_entry(c, c->src.entries.v[i]);
        else if (at[i] && (to = vec_push(&c->dst.entries)))
            *to = at[i];
        else if (at[i])
            rc = error_nomem();
    }
    free(m);
    free(at);
    free(taken);
    return rc;
}

/* ---- all entries ---- */

static int order_names(const void *a, const void *b)
{
    const struct checkpoint_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int check_names(const struct checkpoint *c)
{
    size_t n = c->dst.entries.n;
    struct checkpoint_entry **by_name = malloc((n + 1) * sizeof *by_name);
    if (!by_name)
        return error_nomem();
    if (n)
        memcpy(by_name, c->dst.entries.v, n * sizeof *by_name);
    qsort(by_name, n, sizeof *by_name, order_names);
    int rc = 0;
    for (size_t i = 1; i < n && !rc; i++)
        if (!order_names(&by_name[i], &by_name[i - 1]))
            rc = wrong(by_name[i]->name, "two tensors of the output would have this name");
    free(by_name);
    return rc;
}

int checkpoint_regroup(struct checkpoint *c)
{
    int rc = 0;
    if (c->opts->fused == WEFT_FUSED_JOIN)
        rc = join_entries(c);
    else
        for (size_t i = 0; i < c->src.entries.n && !rc; i++) {
            const struct checkpoint_entry *e = c->src.entries.v[i];
            rc = c->opts->fused == WEFT_FUSED_SPLIT && e->nparts > 1 ? split_entry(c, e) : keep_entry(c, e);
        }
    return rc ? rc : check_names(c);
}
