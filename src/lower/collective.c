/* Collectives by name: each is a row that says how the tensor is placed on either side. The pair of layouts is then
 * lowered like any other pair; only this file knows the names. */
#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "layout/layout.h"

/* How a side is placed: whole on the root alone; whole on each rank; a term on each rank; split along the first dim;
 * split along the second dim; split along the first dim, on the ranks of `to`. */
enum placement { ROOT, WHOLE, TERMS, FIRST, SECOND, MOVED };

static const struct named {
    const char *kind;
    enum placement src, dst;
    int dims; /* 1: [count]; 2: [n, count]; 3: [n, n, count] */
} table[] = {
    {"broadcast", ROOT, WHOLE, 1},  {"scatter", ROOT, FIRST, 2},      {"gather", FIRST, ROOT, 2},
    {"reduce", TERMS, ROOT, 1},     {"allgather", FIRST, WHOLE, 2},   {"reduce_scatter", TERMS, FIRST, 2},
    {"allreduce", TERMS, WHOLE, 1}, {"all_to_all", FIRST, SECOND, 3}, {"send", ROOT, WHOLE, 1},
    {"permute", FIRST, MOVED, 2},
};
#define NAMED (sizeof table / sizeof *table)

static int make(const weft_collective *c, const struct named *row, enum placement placement, weft_layout **out)
{
    weft_dim dims[3] = {{0}};
    for (int d = 0; d < row->dims; d++)
        dims[d].extent = d == row->dims - 1 ? c->count : (int64_t)c->n;
    int split = placement == FIRST || placement == MOVED ? 0 : placement == SECOND ? 1 : -1;
    if (split >= 0) {
        dims[split].nsplits = 1;
        dims[split].splits[0].axis = "x";
    }
    weft_axis x = {"x", placement == ROOT ? 1 : (int64_t)c->n};
    weft_fold fold = {.op = c->op ? c->op : WEFT_SUM, .over = {"x"}, .nover = 1};
    weft_layout_desc d = {.size = sizeof d,
                          .dtype = c->dtype,
                          .dims = dims,
                          .ndim = row->dims,
                          .axes = &x,
                          .naxes = 1,
                          .ranks = placement == ROOT    ? &c->root
                                   : placement == MOVED ? c->to
                                                        : c->ranks,
                          .folds = &fold,
                          .nfolds = placement == TERMS};
    return weft_layout_create(&d, out);
}

/* The names that others give collectives differ from these in underscores and capitals: all_reduce, AllGather. */
static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_-");
        b += strspn(b, "_-");
        if (!*a || tolower((unsigned char)*a) != *b)
            return !*a && !*b;
    }
}

static int unknown(const char *kind)
{
    const char *likely = NULL;
    for (size_t i = 0; i < NAMED && kind; i++)
        if (same_name(kind, table[i].kind))
            likely = table[i].kind;
    return error_set(WEFT_EINVAL,
                     "collective: there is no '%.40s': %s%s%sbroadcast scatter gather reduce allgather reduce_scatter "
                     "allreduce all_to_all send permute",
                     kind ? kind : "", likely ? "do you mean " : "", likely ? likely : "",
                     likely ? "? There are " : "");
}

int weft_collective_layouts(const weft_collective *given, weft_layout **src, weft_layout **dst)
{
    if (!given || !src || !dst)
        return error_set(WEFT_EINVAL, "collective: a NULL argument");
    weft_collective one, *c = &one;
    int rc = sized_read("weft_collective_layouts", "weft_collective", c, sizeof one, given);
    if (rc)
        return rc;
    const struct named *row = NULL;
    for (size_t i = 0; i < NAMED && c->kind; i++)
        if (!strcmp(table[i].kind, c->kind))
            row = &table[i];
    if (!row)
        return unknown(c->kind);
    if (c->n < 1 || c->n > INT32_MAX)
        return error_set(WEFT_EINVAL, "collective: %s in a group of %zu ranks", c->kind, c->n);
    if (row->dst == MOVED && !c->to)
        return error_set(WEFT_EINVAL, "collective: permute needs to know where each piece goes: set `to`");
    weft_layout *a, *b;
    rc = make(c, row, row->src, &a);
    if (rc)
        return rc;
    rc = make(c, row, row->dst, &b);
    if (rc) {
        weft_layout_free(a);
        return rc;
    }
    *src = a;
    *dst = b;
    return 0;
}

int weft_lower_collective(const weft_collective *c, int rank, const weft_lower_opts *opts, weft_plan **out)
{
    weft_layout *src, *dst;
    int rc = weft_collective_layouts(c, &src, &dst);
    if (rc)
        return rc;
    rc = weft_lower(&(weft_move){c->kind, src, dst}, 1, rank, opts, out);
    weft_layout_free(src);
    weft_layout_free(dst);
    return rc;
}
