#include "layout/box_json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/text.h"
#include "base/vec.h"
#include "layout/build.h"
#include "layout/layout.h"

/* ---- reading ---- */

struct reading {
    struct json_doc doc;
    weft_layout_desc desc;
    weft_dim dims[WEFT_MAX_DIMS];
    bool placed, strided; /* the boxes have offsets; strides */
    VEC(int) rank;
    VEC(int64_t) at;
    VEC(int64_t) len;
    VEC(int64_t) stride;
    VEC(int64_t) offset;
};

bool box_json_is(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return *text == '{';
}

static int wrong(const char *what)
{
    return error_set(WEFT_EINVAL, "layout: JSON: %s", what);
}

/* Are all members of the object among these, and each there once? Readers of JSON differ in which of two they take. */
static int check_keys(const struct json_doc *doc, const struct json_value *v, const char *const *keys, const char *of)
{
    if (v->kind != JSON_OBJECT)
        return error_set(WEFT_EINVAL, "layout: JSON: %s is not an object", of);
    unsigned seen = 0;
    for (const struct json_value *m = json_first(doc, v); m; m = json_next(doc, m)) {
        size_t k = 0;
        while (keys[k] && strcmp(keys[k], m->key))
            k++;
        if (!keys[k])
            return error_set(WEFT_EINVAL, "layout: JSON: %s has '%.60s', which is not known", of, m->key);
        if (seen >> k & 1)
            return error_set(WEFT_EINVAL, "layout: JSON: %s has '%s' twice", of, m->key);
        seen |= 1u << k;
    }
    return 0;
}

static int take_flag(struct reading *r, const struct json_value *all, const char *key, uint64_t flag)
{
    const struct json_value *v = json_member(&r->doc, all, key);
    if (v && v->kind != JSON_TRUE && v->kind != JSON_FALSE)
        return error_set(WEFT_EINVAL, "layout: JSON: '%s' is neither true nor false", key);
    r->desc.flags |= v && v->kind == JSON_TRUE ? flag : 0;
    return 0;
}

static int take_shape(struct reading *r, const struct json_value *all)
{
    const struct json_value *v = json_member(&r->doc, all, "shape");
    if (!v || v->kind != JSON_ARRAY)
        return wrong("there is no list 'shape'");
    for (v = json_first(&r->doc, v); v; v = json_next(&r->doc, v)) {
        if (v->kind != JSON_INT)
            return wrong("'shape' has something that is no whole number");
        if (r->desc.ndim == WEFT_MAX_DIMS)
            return error_set(WEFT_EINVAL, "layout: JSON: 'shape' has more than %d dims", WEFT_MAX_DIMS);
        r->dims[r->desc.ndim++].extent = v->number;
    }
    return 0;
}

/* One number for each dim, behind *n of them. */
static int take_numbers(struct reading *r, const struct json_value *v, size_t box, const char *key, int64_t *to,
                        size_t *n)
{
    int have = 0;
    bool whole = v && v->kind == JSON_ARRAY;
    for (v = whole ? json_first(&r->doc, v) : NULL; v && whole; v = json_next(&r->doc, v)) {
        whole = v->kind == JSON_INT && have++ < r->desc.ndim;
        if (whole)
            to[(*n)++] = v->number;
    }
    return whole && have == r->desc.ndim
               ? 0
               : error_set(WEFT_EINVAL, "layout: JSON: box %zu: '%s' is not a list of %d whole numbers", box, key,
                           r->desc.ndim);
}

static int take_box(struct reading *r, const struct json_value *b)
{
    static const char *const keys[] = {"rank", "at", "len", "offset", "stride", NULL};
    size_t box = r->rank.n, n = (size_t)r->desc.ndim;
    const struct json_value *rank = json_member(&r->doc, b, "rank"), *offset = json_member(&r->doc, b, "offset"),
                            *stride = json_member(&r->doc, b, "stride");
    int err = check_keys(&r->doc, b, keys, "a box");
    if (err)
        return err;
    if (!vec_room(&r->rank, 1) || !vec_room(&r->offset, 1) || !vec_room(&r->at, n + 1) || !vec_room(&r->len, n + 1) ||
        !vec_room(&r->stride, n + 1))
        return error_nomem();
    if (!rank || rank->kind != JSON_INT || rank->number < 0 || rank->number > INT32_MAX - 1)
        return error_set(WEFT_EINVAL, "layout: JSON: box %zu: 'rank' is not a whole number from 0 to %d", box,
                         INT32_MAX - 1);
    if (offset && (offset->kind != JSON_INT || offset->number < 0))
        return error_set(WEFT_EINVAL, "layout: JSON: box %zu: 'offset' is not a whole number from 0 on", box);
    if (box && (r->placed != (offset != NULL) || r->strided != (stride != NULL)))
        return error_set(WEFT_EINVAL, "layout: JSON: box %zu: 'offset' and 'stride' are in all boxes or in none", box);
    r->placed = offset != NULL;
    r->strided = stride != NULL;
    r->rank.v[r->rank.n++] = (int)rank->number;
    r->offset.v[r->offset.n++] = offset ? offset->number : 0;
    err = take_numbers(r, json_member(&r->doc, b, "at"), box, "at", r->at.v, &r->at.n);
    if (!err)
        err = take_numbers(r, json_member(&r->doc, b, "len"), box, "len", r->len.v, &r->len.n);
    if (!err && stride)
        err = take_numbers(r, stride, box, "stride", r->stride.v, &r->stride.n);
    return err;
}

static int take_all(struct reading *r)
{
    static const char *const keys[] = {"dtype", "shape", "boxes", "overlaps", "gaps", NULL};
    const struct json_value *all = &r->doc.values[1], *dtype = json_member(&r->doc, all, "dtype"),
                            *boxes = json_member(&r->doc, all, "boxes");
    int err = check_keys(&r->doc, all, keys, "the layout");
    int code = !err && dtype && dtype->kind == JSON_TEXT ? dtype_parse(dtype->text, strlen(dtype->text)) : 0;
    if (!err && !code)
        err = wrong("'dtype' is not the name of a dtype");
    r->desc.dtype = (enum weft_dtype)code;
    if (!err)
        err = take_flag(r, all, "overlaps", WEFT_LAYOUT_OVERLAPS);
    if (!err)
        err = take_flag(r, all, "gaps", WEFT_LAYOUT_GAPS);
    if (!err)
        err = take_shape(r, all);
    if (!err && (!boxes || boxes->kind != JSON_ARRAY))
        err = wrong("there is no list 'boxes'");
    for (const struct json_value *b = err ? NULL : json_first(&r->doc, boxes); b && !err; b = json_next(&r->doc, b))
        err = take_box(r, b);
    return err;
}

int box_json_parse(const char *text, weft_layout **out)
{
    struct reading r = {.desc = {.size = sizeof r.desc}};
    size_t len = strlen(text);
    char why[JSON_WRONG], *bytes = malloc(len + 1);
    if (!bytes)
        return error_nomem();
    memcpy(bytes, text, len + 1);
    const char *bad = json_read(&r.doc, bytes, len, why);
    int err = bad ? wrong(bad) : take_all(&r);
    weft_boxes boxes = {.n = r.rank.n,
                        .rank = r.rank.v,
                        .at = r.at.v,
                        .len = r.len.v,
                        .offset = r.placed ? r.offset.v : NULL,
                        .stride = r.strided ? r.stride.v : NULL};
    r.desc.dims = r.dims;
    r.desc.boxes = &boxes;
    if (!err)
        err = layout_build(&r.desc, NULL, 0, NULL, out);
    json_free(&r.doc);
    free(r.rank.v);
    free(r.at.v);
    free(r.len.v);
    free(r.stride.v);
    free(r.offset.v);
    return err;
}

/* ---- writing ---- */

static void put_list(struct text *t, const char *name, const int64_t *v, int n)
{
    text_printf(t, ", \"%s\": [", name);
    for (int d = 0; d < n; d++) {
        text_put(t, d ? ", " : "");
        text_int(t, v[d]);
    }
    text_put(t, "]");
}

int weft_layout_json(const weft_layout *l, char *buf, size_t cap, size_t *len)
{
    if (!l || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_layout_json: %s is NULL", l ? "buf" : "layout");
    if (l->scale.dtype)
        return error_set(WEFT_EUNSUPPORTED, "weft_layout_json: the JSON form has no scales: use the text form");
    if (!l->boxes)
        return error_set(
            WEFT_EUNSUPPORTED,
            "weft_layout_json: the layout is a mesh, which has a text form: weft_layout_boxed gives boxes");
    const struct box_list *b = l->boxes;
    struct text t = text_start(buf, cap);
    int64_t shape[WEFT_MAX_DIMS];
    for (int d = 0; d < l->ndim; d++)
        shape[d] = l->dim[d].extent;
    text_printf(&t, "{\"dtype\": \"%s\"", weft_dtype_name(l->dtype));
    put_list(&t, "shape", shape, l->ndim);
    text_put(&t, l->allows & WEFT_LAYOUT_OVERLAPS ? ", \"overlaps\": true" : "");
    text_put(&t, l->allows & WEFT_LAYOUT_GAPS ? ", \"gaps\": true" : "");
    text_put(&t, ", \"boxes\": [");
    for (size_t i = 0; i < b->n; i++) {
        size_t at = i * (size_t)b->ndim;
        text_printf(&t, "%s{\"rank\": %d", i ? ", " : "", b->rank[i]);
        put_list(&t, "at", b->at + at, b->ndim);
        put_list(&t, "len", b->len + at, b->ndim);
        text_put(&t, ", \"offset\": ");
        text_int(&t, b->offset[i]);
        put_list(&t, "stride", b->stride + at, b->ndim);
        text_put(&t, "}");
    }
    text_put(&t, "]}");
    if (len)
        *len = t.len;
    return 0;
}
