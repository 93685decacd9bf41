#include "version/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/blake2s.h"
#include "base/error.h"
#include "base/math.h"
#include "layout/box_json.h"
#include "layout/layout.h"
#include "version/packed.h"
#include "version/record.h"

#define MAGIC "weft-lay"
#define HEAD 12                     /* magic[8], number of tensors[4] */
#define LENGTHS 8                   /* of the name and of the layout's text, 4 bytes each */
#define TEXT_MAX ((size_t)64 << 20) /* of a layout's text: a list of boxes may be long */

/* ---- what can be published ---- */

static int check_layout(const char *call, const char *name, const weft_layout *l)
{
    bool ghosts = false;
    for (int d = 0; d < l->ndim; d++)
        ghosts = ghosts || l->dim[d].lo || l->dim[d].hi;
    if (l->nfolds || ghosts)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: tensor '%s': a layout with %s cannot be on the bus: move it to one without first%s", call,
                         name, l->nfolds ? "folds (partial sums)" : "ghosts",
                         l->nfolds ? ", or publish with a comm, over which put folds them" : "");
    if (l->scale.dtype)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: tensor '%s': a layout with scales cannot be on the bus: publish values and scales as two "
                         "tensors",
                         call, name);
    return 0;
}

/* Takes over the reference to the layout. */
static int add(struct schema *s, const char *call, const char *name, weft_layout *l)
{
    size_t len = strlen(name);
    struct schema_tensor *t = &s->v[s->n];
    char *kept = arena_alloc(&s->arena, len + 1);
    int64_t bytes = (int64_t)weft_dtype_size(l->dtype);
    *t = (struct schema_tensor){.layout = l, .name = kept};
    s->n++;
    if (!kept)
        return error_nomem();
    memcpy(kept, name, len + 1);
    if (table_find(&s->names, kept, len))
        return error_set(WEFT_EINVAL, "%s: two tensors have the name '%s'", call, kept);
    if (!table_put(&s->names, &t->node, kept, len))
        return error_nomem();
    bool over = false;
    for (int d = 0; d < l->ndim; d++)
        over = over || __builtin_mul_overflow(bytes, l->dim[d].extent, &bytes);
    if (over || __builtin_add_overflow(s->total, bytes, &s->total) || s->total > SCHEMA_PART_MAX)
        return error_set(WEFT_EUNSUPPORTED, "%s: the set has more than %lld bytes", call, (long long)SCHEMA_PART_MAX);
    s->ranks = weft_layout_ranks(l) > s->ranks ? weft_layout_ranks(l) : s->ranks;
    return check_layout(call, name, l);
}

/* ---- bytes and hashes ---- */

static int write_bytes(struct schema *s)
{
    size_t size = HEAD, len;
    for (size_t i = 0; i < s->n; i++) {
        weft_layout_format(s->v[i].layout, NULL, 0, &len);
        if (len > TEXT_MAX)
            return error_set(WEFT_EUNSUPPORTED, "tensor '%s': the text of its layout has %zu bytes: %zu is the most",
                             s->v[i].name, len, TEXT_MAX);
        size += LENGTHS + strlen(s->v[i].name) + len;
    }
    if (size > SCHEMA_BYTES_MAX)
        return error_set(WEFT_EUNSUPPORTED, "the names and layouts of the set have %zu bytes: %zu is the most", size,
                         SCHEMA_BYTES_MAX);
    unsigned char *at = s->bytes = malloc(size + 1);
    if (!at)
        return error_nomem();
    s->size = size;
    uint32_t n = (uint32_t)s->n;
    memcpy(at, MAGIC, 8);
    memcpy(at + 8, &n, 4);
    at += HEAD;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t lengths[2] = {(uint32_t)strlen(s->v[i].name), 0};
        unsigned char *text = at + LENGTHS + lengths[0];
        /* The closing zero goes where the next tensor begins, and is overwritten by it. */
        weft_layout_format(s->v[i].layout, (char *)text, (size_t)(s->bytes + size + 1 - text), &len);
        lengths[1] = (uint32_t)len;
        memcpy(at, lengths, LENGTHS);
        memcpy(at + LENGTHS, s->v[i].name, lengths[0]);
        at = text + len;
    }
    return 0;
}

static void hash(struct schema *s)
{
    struct blake2s b;
    blake2s_begin(&b, SCHEMA_HASH, NULL, 0);
    blake2s_add(&b, s->bytes, s->size);
    blake2s_end(&b, s->layouts);
    blake2s_begin(&b, SCHEMA_HASH, NULL, 0);
    for (size_t i = 0; i < s->n; i++) {
        const weft_layout *l = s->v[i].layout;
        int64_t words[2 + WEFT_MAX_DIMS] = {l->dtype, l->ndim};
        for (int d = 0; d < l->ndim; d++)
            words[2 + d] = l->dim[d].extent;
        blake2s_add(&b, s->v[i].name, strlen(s->v[i].name) + 1);
        blake2s_add(&b, words, sizeof words);
    }
    blake2s_end(&b, s->digest);
}

static struct schema *begin(size_t n)
{
    struct schema *s = calloc(1, sizeof *s);
    if (s && !(s->v = calloc(n ? n : 1, sizeof *s->v))) {
        free(s);
        s = NULL;
    }
    return s;
}

static int finish(struct schema *s, int err, struct schema **out)
{
    if (!err && !s->bytes)
        err = write_bytes(s);
    if (err) {
        schema_free(s);
        return err;
    }
    hash(s);
    *out = s;
    return 0;
}

int schema_make(const char *call, const weft_bus_tensor *tensors, size_t n, struct schema **out)
{
    if (!tensors || !n || n > WEFT_BUS_TENSORS)
        return error_set(WEFT_EINVAL, "%s: a set has 1 to %d tensors", call, WEFT_BUS_TENSORS);
    struct schema *s = begin(n);
    if (!s)
        return error_nomem();
    int err = 0;
    for (size_t i = 0; i < n && !err; i++) {
        const weft_bus_tensor *t = &tensors[i];
        size_t len = t->name ? strlen(t->name) : 0, from = t->from ? strlen(t->from) : 1;
        if (!len || len > SCHEMA_NAME || !from || from > SCHEMA_NAME)
            err = error_set(WEFT_EINVAL, "%s: tensor %zu: a name must have 1 to %d bytes", call, i, SCHEMA_NAME);
        else if (!t->layout)
            err = error_set(WEFT_EINVAL, "%s: tensor '%s' has no layout", call, t->name);
        else if (t->reserved)
            err = error_set(WEFT_EINVAL, "%s: tensor '%s': the reserved word is not 0", call, t->name);
        else if (t->dtype && !weft_dtype_size(t->dtype))
            err = error_set(WEFT_EINVAL, "%s: tensor '%s': there is no dtype %d", call, t->name, (int)t->dtype);
        else
            err = add(s, call, t->name, (weft_layout *)(uintptr_t)layout_hold(t->layout));
        if (err)
            break;
        s->v[i].from_dtype = t->dtype ? t->dtype : t->layout->dtype;
        s->v[i].from = s->v[i].name;
        if (t->from) {
            char *kept = arena_alloc(&s->arena, from + 1);
            s->v[i].from = kept ? memcpy(kept, t->from, from + 1) : s->v[i].name;
            err = kept ? 0 : error_nomem();
        }
    }
    return finish(s, err, out);
}

static int load_one(struct schema *s, const char *source, const unsigned char *bytes, size_t size, size_t *at)
{
    uint32_t lengths[2];
    weft_layout *l = NULL;
    if (size - *at < LENGTHS)
        return error_set(WEFT_EMISMATCH, "%s: its list of tensors is cut off", source);
    memcpy(lengths, bytes + *at, LENGTHS);
    *at += LENGTHS;
    if (!lengths[0] || lengths[0] > SCHEMA_NAME || !lengths[1] || lengths[1] > TEXT_MAX ||
        (size_t)lengths[0] + lengths[1] > size - *at || memchr(bytes + *at, 0, (size_t)lengths[0] + lengths[1]))
        return error_set(WEFT_EMISMATCH, "%s: its list of tensors is damaged", source);
    char *text = malloc((size_t)lengths[0] + lengths[1] + 2);
    if (!text)
        return error_nomem();
    memcpy(text, bytes + *at, lengths[0]);
    text[lengths[0]] = 0;
    char *layout = text + lengths[0] + 1;
    memcpy(layout, bytes + *at + lengths[0], lengths[1]);
    layout[lengths[1]] = 0;
    /* write_bytes writes no JSON: a peer that sends it can only want memory, which JSON takes much of. */
    int err = box_json_is(layout) ? error_set(WEFT_EMISMATCH, "%s: its list of tensors is damaged", source)
                                  : weft_layout_parse(layout, &l);
    if (!err)
        err = add(s, source, text, l);
    free(text);
    *at += (size_t)lengths[0] + lengths[1];
    return err;
}

int schema_load(const char *source, const unsigned char *bytes, size_t size, struct schema **out)
{
    uint32_t n = 0;
    if (size >= HEAD)
        memcpy(&n, bytes + 8, 4);
    if (size < HEAD || memcmp(bytes, MAGIC, 8) || !n || n > WEFT_BUS_TENSORS || n > size / LENGTHS)
        return error_set(WEFT_EMISMATCH, "%s: its list of tensors is not one of this version of weft", source);
    struct schema *s = begin(n);
    if (!s)
        return error_nomem();
    size_t at = HEAD;
    int err = 0;
    for (uint32_t i = 0; i < n && !err; i++)
        err = load_one(s, source, bytes, size, &at);
    if (!err && at != size)
        err = error_set(WEFT_EMISMATCH, "%s: bytes follow its list of tensors", source);
    if (!err && !(s->bytes = malloc(size)))
        err = error_nomem();
    if (!err) {
        memcpy(s->bytes, bytes, size);
        s->size = size;
    }
    return finish(s, err, out);
}

static void drop(struct table_node *n, void *arg)
{
    (void)n, (void)arg;
}

void schema_free(struct schema *s)
{
    if (!s)
        return;
    struct error_text kept;
    error_keep(&kept);
    table_clear(&s->names, drop, NULL);
    for (size_t i = 0; i < s->n; i++)
        weft_layout_free(s->v[i].layout);
    arena_free(&s->arena);
    free(s->v);
    free(s->bytes);
    free(s);
    error_restore(&kept);
}

struct schema_tensor *schema_find(const struct schema *s, const char *name)
{
    struct table_node *n = table_find((struct table *)(uintptr_t)&s->names, name, strlen(name));
    return n ? (struct schema_tensor *)(void *)n : NULL; /* the node is its first member */
}

/* ---- parts ---- */

int schema_part(const struct schema *s, int rank, bool loose, struct schema_part *out)
{
    *out = (struct schema_part){.v = calloc(s->n, sizeof *out->v), .n = s->n};
    if (!out->v)
        return error_nomem();
    for (size_t i = 0; i < s->n; i++) {
        const weft_layout *l = s->v[i].layout;
        weft_local local;
        int err = weft_layout_local(l, rank, &local);
        if (err)
            return err;
        if (l->boxes && !loose)
            local.bytes = packed_count(l, rank) * (int64_t)weft_dtype_size(l->dtype);
        if (local.bytes > SCHEMA_PART_MAX - out->bytes)
            return error_set(WEFT_EUNSUPPORTED, "tensor '%s': rank %d has more than %lld bytes of the set",
                             s->v[i].name, rank, (long long)SCHEMA_PART_MAX);
        out->v[i] = (struct schema_place){out->bytes, local.bytes, out->blocks};
        out->blocks += (size_t)ceil_div(local.bytes, SCHEMA_BLOCK);
        out->bytes += ceil_div(local.bytes, SCHEMA_ALIGN) * SCHEMA_ALIGN;
    }
    return 0;
}

size_t schema_block(const struct schema_part *p, size_t block, int64_t *at, int64_t *bytes)
{
    size_t lo = 0,
           hi = p->n; /* the last tensor that begins at this block or before it: those without bytes come first */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (p->v[mid].block <= block)
            lo = mid;
        else
            hi = mid;
    }
    int64_t from = (int64_t)(block - p->v[lo].block) * SCHEMA_BLOCK;
    *at = p->v[lo].at + from;
    *bytes = min64(SCHEMA_BLOCK, p->v[lo].bytes - from);
    return lo;
}

void schema_part_free(struct schema_part *p)
{
    free(p->v);
    *p = (struct schema_part){0};
}
