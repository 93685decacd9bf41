#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "base/vec.h"

static const struct {
    const char *name;
    int dtype;
} dtypes[] = {
    {"BOOL", WEFT_BOOL},      {"U8", WEFT_U8},          {"I8", WEFT_I8},          {"U16", WEFT_U16}, {"I16", WEFT_I16},
    {"U32", WEFT_U32},        {"I32", WEFT_I32},        {"U64", WEFT_U64},        {"I64", WEFT_I64}, {"F16", WEFT_F16},
    {"BF16", WEFT_BF16},      {"F8_E4M3", WEFT_F8E4M3}, {"F8_E5M2", WEFT_F8E5M2}, {"F32", WEFT_F32}, {"F64", WEFT_F64},
    {"F8_E8M0", WEFT_F8E8M0}, {"C64", WEFT_C64},
};
#define DTYPES (sizeof dtypes / sizeof *dtypes)

const char *safetensors_dtype(int dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

const char *safetensors_show(const char *name, char buf[SAFETENSORS_SHOWN])
{
    struct text t = text_start(buf, SAFETENSORS_SHOWN - 4);
    text_put(&t, "'");
    text_escaped(&t, name);
    text_put(&t, "'");
    if (t.len >= SAFETENSORS_SHOWN - 4)
        memcpy(buf + SAFETENSORS_SHOWN - 5, "...'", 5);
    return buf;
}

const char *safetensors_note(const struct safetensors_header *h, const char *key)
{
    size_t lo = 0, hi = h->nnotes;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(h->notes[mid].key, key);
        if (!order)
            return h->notes[mid].value;
        *(order < 0 ? &lo : &hi) = order < 0 ? mid + 1 : mid;
    }
    return NULL;
}

/* ---- reading ---- */

struct reading {
    const char *path;
    struct json_doc doc;
    struct arena *arena;
    int64_t data;
    VEC(struct safetensors_tensor) tensors;
};

int safetensors_length(const char *path, const unsigned char *prelude, int64_t size, int64_t *length)
{
    uint64_t n = 0;
    if (size < SAFETENSORS_PRELUDE)
        return error_set(WEFT_EINVAL, "%s: it has %lld bytes, which is too short for a safetensors file", path,
                         (long long)size);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | prelude[i];
    if (n > (uint64_t)(size - SAFETENSORS_PRELUDE))
        return error_set(WEFT_EINVAL,
                         "%s: its header would have %llu bytes, and %lld follow: truncated, or not a safetensors file",
                         path, (unsigned long long)n, (long long)size - SAFETENSORS_PRELUDE);
    if (n > SAFETENSORS_HEADER_MAX)
        return error_set(WEFT_EUNSUPPORTED, "%s: its header has %llu bytes: up to %d are read", path,
                         (unsigned long long)n, SAFETENSORS_HEADER_MAX);
    *length = (int64_t)n;
    return 0;
}

static char *keep(struct reading *r, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(r->arena, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static int wrong(const struct reading *r, const char *tensor, const char *why)
{
    char shown[SAFETENSORS_SHOWN];
    return error_set(WEFT_EINVAL, "%s: tensor %s: %s", r->path, safetensors_show(tensor, shown), why);
}

static int read_dtype(struct reading *r, const struct json_value *v, struct safetensors_tensor *t)
{
    char shown[SAFETENSORS_SHOWN], name[SAFETENSORS_SHOWN];
    if (v->kind != JSON_TEXT)
        return wrong(r, t->name, "its dtype is not a string");
    for (size_t i = 0; i < DTYPES; i++)
        if (!strcmp(dtypes[i].name, v->text)) {
            t->dtype = dtypes[i].dtype;
            return 0;
        }
    return error_set(WEFT_EUNSUPPORTED, "%s: tensor %s: its dtype is %s, which weft does not know", r->path,
                     safetensors_show(t->name, name), safetensors_show(v->text, shown));
}

static int read_shape(struct reading *r, const struct json_value *v, struct safetensors_tensor *t)
{
    if (v->kind != JSON_ARRAY)
        return wrong(r, t->name, "its shape is not an array");
    for (v = json_first(&r->doc, v); v; v = json_next(&r->doc, v)) {
        if (t->ndim == WEFT_MAX_DIMS)
            return wrong(r, t->name, "it has more than 8 dims");
        if (v->kind != JSON_INT || v->number < 0)
            return wrong(r, t->name, "its shape has an element that is not an extent");
        t->shape[t->ndim++] = v->number;
    }
    return 0;
}

static int read_offsets(struct reading *r, const struct json_value *v, struct safetensors_tensor *t)
{
    const struct json_value *a = v->kind == JSON_ARRAY ? json_first(&r->doc, v) : NULL;
    const struct json_value *b = a ? json_next(&r->doc, a) : NULL;
    if (!b || json_next(&r->doc, b) || a->kind != JSON_INT || b->kind != JSON_INT)
        return wrong(r, t->name, "its data_offsets are not two numbers");
    if (a->number < 0 || b->number < a->number)
        return wrong(r, t->name, "its data_offsets run backwards");
    if (b->number > r->data)
        return wrong(r, t->name, "its data lies beyond the end of the file");
    t->begin = a->number;
    t->bytes = b->number - a->number;
    return 0;
}

/* Does the tensor have as many bytes as its shape needs? The product of the other extents must not overflow even if one
 * extent is 0, since a layout needs the shape, too. */
static int check_bytes(const struct reading *r, const struct safetensors_tensor *t)
{
    int64_t size = (int64_t)weft_dtype_size(t->dtype), count = size;
    int zero = 0;
    for (int d = 0; d < t->ndim; d++) {
        zero |= !t->shape[d];
        if (__builtin_mul_overflow(count, t->shape[d] ? t->shape[d] : 1, &count))
            return wrong(r, t->name, "its shape has more elements than can be counted");
    }
    if ((zero ? 0 : count) != t->bytes)
        return wrong(r, t->name, "its data_offsets do not span what its shape and dtype need");
    return 0;
}

static int read_tensor(struct reading *r, const struct json_value *v)
{
    struct safetensors_tensor *t = vec_push(&r->tensors);
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int seen[3] = {0}, rc = 0;
    if (!t)
        return error_nomem();
    *t = (struct safetensors_tensor){.name = keep(r, v->key)};
    if (!t->name)
        return error_nomem();
    if (v->kind != JSON_OBJECT)
        return wrong(r, t->name, "it is not an object");
    for (v = json_first(&r->doc, v); v && !rc; v = json_next(&r->doc, v)) {
        int k = 0;
        while (k < 3 && strcmp(v->key, keys[k]))
            k++;
        if (k == 3)
            rc = wrong(r, t->name, "it has members other than dtype, shape and data_offsets");
        else if (seen[k]++)
            rc = wrong(r, t->name, "one of its members is there twice");
        else
            rc = k == 0 ? read_dtype(r, v, t) : k == 1 ? read_shape(r, v, t) : read_offsets(r, v, t);
    }
    if (!rc && !(seen[0] && seen[1] && seen[2]))
        rc = wrong(r, t->name, "it lacks its dtype, its shape or its data_offsets");
    return rc ? rc : check_bytes(r, t);
}

static int read_notes(struct reading *r, const struct json_value *v, struct safetensors_header *out)
{
    size_t n = 0;
    if (out->notes)
        return error_set(WEFT_EINVAL, "%s: \"__metadata__\" is there twice", r->path);
    if (v->kind != JSON_OBJECT)
        return error_set(WEFT_EINVAL, "%s: \"__metadata__\" is not an object", r->path);
    for (const struct json_value *m = json_first(&r->doc, v); m; m = json_next(&r->doc, m))
        n++;
    out->notes = arena_alloc(r->arena, (n + 1) * sizeof *out->notes);
    if (!out->notes)
        return error_nomem();
    for (v = json_first(&r->doc, v); v; v = json_next(&r->doc, v)) {
        if (v->kind != JSON_TEXT)
            return error_set(WEFT_EINVAL, "%s: \"__metadata__\" has a value that is not a string", r->path);
        struct safetensors_note *note = &out->notes[out->nnotes++];
        *note = (struct safetensors_note){keep(r, v->key), keep(r, v->text)};
        if (!note->key || !note->value)
            return error_nomem();
    }
    return 0;
}

static int order_by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Tensors without bytes come before the one that begins at the same offset. */
static int order_by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int order_notes(const void *a, const void *b)
{
    const struct safetensors_note *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static int check_all(struct reading *r, struct safetensors_header *h)
{
    struct safetensors_tensor *t = r->tensors.v;
    size_t n = r->tensors.n;
    if (n)
        qsort(t, n, sizeof *t, order_by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(t[i].name, t[i - 1].name))
            return wrong(r, t[i].name, "it is there twice");
    if (h->nnotes)
        qsort(h->notes, h->nnotes, sizeof *h->notes, order_notes);
    for (size_t i = 1; i < h->nnotes; i++)
        if (!strcmp(h->notes[i].key, h->notes[i - 1].key))
            return error_set(WEFT_EINVAL, "%s: \"__metadata__\" has a key twice", r->path);
    if (n)
        qsort(t, n, sizeof *t, order_by_place);
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].begin != at)
            return wrong(r, t[i].name,
                         t[i].begin < at ? "its data overlaps that of another" : "there is a gap before its data");
        at += t[i].bytes;
    }
    if (at != r->data)
        return error_set(WEFT_EINVAL, "%s: its tensors have %lld bytes, but its data has %lld", r->path, (long long)at,
                         (long long)r->data);
    return 0;
}

int safetensors_read(const char *path, char *bytes, size_t length, int64_t data, struct arena *arena,
                     struct safetensors_header *out)
{
    struct reading r = {.path = path, .arena = arena, .data = data};
    char why[JSON_WRONG];
    *out = (struct safetensors_header){0};
    int rc = 0;
    if (json_read(&r.doc, bytes, length, why))
        rc = error_set(WEFT_EINVAL, "%s: its header is not JSON: %s", path, why);
    else if (r.doc.values[1].kind != JSON_OBJECT)
        rc = error_set(WEFT_EINVAL, "%s: its header is not an object", path);
    for (const struct json_value *v = rc ? NULL : json_first(&r.doc, &r.doc.values[1]); v && !rc;
         v = json_next(&r.doc, v))
        rc = strcmp(v->key, "__metadata__") ? read_tensor(&r, v) : read_notes(&r, v, out);
    if (!rc)
        rc = check_all(&r, out);
    if (!rc) {
        out->ntensors = r.tensors.n;
        out->tensors = arena_alloc(arena, (r.tensors.n + 1) * sizeof *out->tensors);
        if (!out->tensors)
            rc = error_nomem();
        else if (r.tensors.n)
            memcpy(out->tensors, r.tensors.v, r.tensors.n * sizeof *out->tensors);
    }
    free(r.tensors.v);
    json_free(&r.doc);
    return rc;
}

/* ---- writing ---- */

static void put_header(struct text *t, const struct safetensors_header *h)
{
    int64_t at = 0;
    const char *between = "";
    text_put(t, "{");
    if (h->nnotes) {
        text_put(t, "\"__metadata__\":{");
        for (size_t i = 0; i < h->nnotes; i++) {
            text_put(t, i ? "," : "");
            text_json(t, h->notes[i].key);
            text_put(t, ":");
            text_json(t, h->notes[i].value);
        }
        text_put(t, "}");
        between = ",";
    }
    for (size_t i = 0; i < h->ntensors; i++, between = ",") {
        const struct safetensors_tensor *s = &h->tensors[i];
        text_put(t, between);
        text_json(t, s->name);
        text_printf(t, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype(s->dtype));
        for (int d = 0; d < s->ndim; d++)
            text_printf(t, "%s%lld", d ? "," : "", (long long)s->shape[d]);
        text_printf(t, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)at + s->bytes);
        at += s->bytes;
    }
    text_put(t, "}");
    while (t->len % 8)
        text_put(t, " ");
}

int safetensors_write(const struct safetensors_header *h, char **out, size_t *len)
{
    struct text t = text_start(NULL, 0);
    put_header(&t, h);
    size_t n = t.len;
    if (n > SAFETENSORS_HEADER_MAX)
        return error_set(WEFT_EUNSUPPORTED, "the header of a file would have %zu bytes: up to %d can be read", n,
                         SAFETENSORS_HEADER_MAX);
    char *bytes = malloc(SAFETENSORS_PRELUDE + n + 1);
    if (!bytes)
        return error_nomem();
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)n >> 8 * i & 0xff);
    t = text_start(bytes + SAFETENSORS_PRELUDE, n + 1);
    put_header(&t, h);
    *out = bytes;
    *len = SAFETENSORS_PRELUDE + n;
    return 0;
}
