/* The output's files: which rank holds which pieces, the headers, and where everything is in the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "layout/layout.h"

#define SHARD INT64_C(5000000000)

/* ---- layouts ---- */

static int target_dtype(const struct checkpoint *c, int dtype)
{
    return c->opts->dtype && dtype_is_float(dtype) && weft_dtype_size(dtype) > 1 ? (int)c->opts->dtype : dtype;
}

static int place_parts(struct checkpoint *c)
{
    memset(c->count, 0, sizeof c->count);
    for (size_t i = 0; i < c->parts.n; i++) {
        int rc = c->parts.v[i]->name ? checkpoint_place_count(c, c->dst.mesh, c->parts.v[i]->name) : 0;
        if (rc)
            return rc;
    }
    char shown[SAFETENSORS_SHOWN];
    for (size_t i = 0; i < c->parts.n; i++) {
        struct checkpoint_part *p = c->parts.v[i];
        if (!p->name && c->dst.mesh->mesh > 1)
            return error_set(WEFT_EINVAL, "tensor %s: it is fused, and no fuse line of the rules names its parts",
                             safetensors_show(p->src.entry->name, shown));
        int rc = checkpoint_place(c, c->dst.mesh, p->name ? p->name : "", target_dtype(c, p->src.entry->dtype), p->ndim,
                                  p->shape, &p->dst.layout);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- which rank holds what ---- */

static int hold_shape(const struct checkpoint_entry *e, struct checkpoint_hold *h)
{
    char shown[SAFETENSORS_SHOWN];
    int64_t along = 0;
    for (int k = 0; k < e->nparts; k++) {
        weft_local local;
        int rc = weft_layout_local(e->parts[k]->dst.layout, h->rank, &local);
        if (rc)
            return rc;
        for (int d = 0; d < e->ndim; d++)
            if (!k)
                h->shape[d] = local.shape[d];
            else if (d != e->cat && h->shape[d] != local.shape[d])
                return error_set(WEFT_EINVAL,
                                 "tensor %s: its parts are split in different ways, so they cannot be fused",
                                 safetensors_show(e->name, shown));
        if (e->ndim)
            along += local.shape[e->cat];
    }
    if (e->ndim)
        h->shape[e->cat] = along;
    return 0;
}

static int order_holds(const void *a, const void *b)
{
    const struct checkpoint_hold *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int list_holds(struct checkpoint *c, struct checkpoint_entry *e)
{
    const weft_layout *l = e->parts[0]->dst.layout;
    char shown[SAFETENSORS_SHOWN];
    e->dtype = l->dtype;
    e->nholds = (size_t)l->mesh;
    e->holds = arena_alloc(&c->arena, e->nholds * sizeof *e->holds);
    if (!e->holds)
        return error_nomem();
    for (int k = 1; k < e->nparts; k++)
        for (int64_t i = 0; i < l->mesh; i++)
            if (e->parts[k]->dst.layout->mesh != l->mesh || mesh_index(e->parts[k]->dst.layout, mesh_rank(l, i)) < 0)
                return error_set(WEFT_EINVAL, "tensor %s: its parts are on different ranks, so they cannot be fused",
                                 safetensors_show(e->name, shown));
    for (int64_t i = 0; i < l->mesh; i++) {
        e->holds[i] = (struct checkpoint_hold){.rank = mesh_rank(l, i)};
        int rc = hold_shape(e, &e->holds[i]);
        if (rc)
            return rc;
    }
    qsort(e->holds, e->nholds, sizeof *e->holds, order_holds);
    return 0;
}

/* ---- files ---- */

static int64_t hold_bytes(const struct checkpoint_entry *e, const struct checkpoint_hold *h)
{
    int64_t n = (int64_t)weft_dtype_size(e->dtype);
    for (int d = 0; d < e->ndim; d++)
        n *= h->shape[d];
    return n;
}

static struct checkpoint_file *add_file(struct checkpoint *c, int rank)
{
    struct checkpoint_file *f = vec_push(&c->dst.files);
    if (f)
        *f = (struct checkpoint_file){.fd = -1, .rank = rank};
    return f;
}

/* Each rank has one file. If there is only one rank, it has several files if one would be larger than a shard. */
static int assign_files(struct checkpoint *c, bool one)
{
    int64_t most = one ? INT64_MAX : c->opts->shard > 0 ? c->opts->shard : SHARD, bytes = 0;
    bool shards = c->dst.mesh->mesh == 1;
    for (int64_t r = 0; r < c->dst.mesh->mesh; r++)
        if (!add_file(c, (int)r))
            return error_nomem();
    for (size_t i = 0; i < c->dst.entries.n; i++) {
        struct checkpoint_entry *e = c->dst.entries.v[i];
        for (size_t k = 0; k < e->nholds; k++) {
            int64_t n = hold_bytes(e, &e->holds[k]);
            if (shards && bytes && n > most - bytes) {
                if (!add_file(c, 0))
                    return error_nomem();
                bytes = 0;
            }
            bytes += shards ? n : 0;
            e->holds[k].file = shards ? c->dst.files.n - 1 : (size_t)e->holds[k].rank;
        }
    }
    return 0;
}

int checkpoint_target_name_files(struct checkpoint *c, const char *folder, bool one)
{
    int n = (int)c->dst.files.n;
    for (int i = 0; i < n; i++) {
        char name[64];
        if (c->dst.mesh->mesh > 1)
            snprintf(name, sizeof name, CHECKPOINT_RANK, i, n);
        else if (n > 1)
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, n);
        else
            snprintf(name, sizeof name, "%s", CHECKPOINT_ONE);
        struct checkpoint_file *f = &c->dst.files.v[i];
        f->path = one ? folder : checkpoint_files_path(&c->arena, folder, name);
        if (!f->path)
            return error_nomem();
    }
    return 0;
}

/* Wide elements before narrow ones, so that each tensor's data is aligned to its element. */
static int list_tensors(struct checkpoint *c)
{
    for (size_t i = 0; i < c->dst.entries.n; i++)
        for (size_t k = 0; k < c->dst.entries.v[i]->nholds; k++)
            c->dst.files.v[c->dst.entries.v[i]->holds[k].file].header.ntensors++;
    for (size_t i = 0; i < c->dst.files.n; i++) {
        struct safetensors_header *h = &c->dst.files.v[i].header;
        h->tensors = arena_alloc(&c->arena, (h->ntensors + 1) * sizeof *h->tensors);
        if (!h->tensors)
            return error_nomem();
        h->ntensors = 0;
    }
    for (size_t size = DTYPE_MAX_SIZE; size; size /= 2)
        for (size_t i = 0; i < c->dst.entries.n; i++) {
            struct checkpoint_entry *e = c->dst.entries.v[i];
            if (weft_dtype_size(e->dtype) != size)
                continue;
            for (size_t k = 0; k < e->nholds; k++) {
                struct checkpoint_hold *hold = &e->holds[k];
                struct safetensors_header *h = &c->dst.files.v[hold->file].header;
                const struct safetensors_tensor *last = h->ntensors ? &h->tensors[h->ntensors - 1] : NULL;
                struct safetensors_tensor *t = &h->tensors[h->ntensors++];
                *t = (struct safetensors_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
                memcpy(t->shape, hold->shape, sizeof t->shape);
                hold->begin = t->begin = last ? last->begin + last->bytes : 0;
                t->bytes = hold_bytes(e, hold);
            }
        }
    return 0;
}

/* ---- notes ---- */

static void put_layouts(struct text *t, const struct checkpoint_entry *e)
{
    if (e->nparts > 1)
        text_printf(t, "cat %d: ", e->cat);
    for (int k = 0; k < e->nparts; k++) {
        text_put(t, k ? " | " : "");
        size_t len = 0, room = t->len < t->cap ? t->cap - t->len : 0;
        weft_layout_format(e->parts[k]->dst.layout, room ? t->buf + t->len : NULL, room, &len);
        t->len += len;
    }
}

static int layout_note(struct checkpoint *c, const struct checkpoint_entry *e, struct safetensors_note *out)
{
    struct text t = text_start(NULL, 0);
    put_layouts(&t, e);
    size_t n = t.len + 1, k = strlen(e->name) + sizeof CHECKPOINT_LAYOUT_NOTE;
    char *value = arena_alloc(&c->arena, n), *key = arena_alloc(&c->arena, k);
    if (!value || !key)
        return error_nomem();
    t = text_start(value, n);
    put_layouts(&t, e);
    snprintf(key, k, CHECKPOINT_LAYOUT_NOTE "%s", e->name);
    *out = (struct safetensors_note){key, value};
    return 0;
}

/* Notes of other programs in the first input file are copied into all files; weft's own notes are made anew. */
static int add_notes(struct checkpoint *c, const char *to)
{
    static const struct safetensors_header none;
    const struct safetensors_header *first = c->src.files.n ? &c->src.files.v[0].header : &none;
    bool own = c->dst.mesh->mesh > 1;
    int rc = 0;
    for (size_t f = 0; f < c->dst.files.n; f++) {
        struct safetensors_header *h = &c->dst.files.v[f].header;
        char *rank = arena_alloc(&c->arena, 16);
        h->notes = arena_alloc(&c->arena, (first->nnotes + 2 + (own ? h->ntensors : 0)) * sizeof *h->notes);
        if (!h->notes || !rank)
            return error_nomem();
        for (size_t i = 0; i < first->nnotes; i++)
            if (strncmp(first->notes[i].key, "weft.", 5))
                h->notes[h->nnotes++] = first->notes[i];
        snprintf(rank, 16, "%d", c->dst.files.v[f].rank);
        if (own) {
            h->notes[h->nnotes++] = (struct safetensors_note){CHECKPOINT_MESH_NOTE, to};
            h->notes[h->nnotes++] = (struct safetensors_note){CHECKPOINT_RANK_NOTE, rank};
        }
    }
    for (size_t i = 0; i < c->dst.entries.n && own && !rc; i++) {
        const struct checkpoint_entry *e = c->dst.entries.v[i];
        struct safetensors_note note;
        rc = layout_note(c, e, &note);
        for (size_t k = 0; k < e->nholds && !rc; k++) {
            struct safetensors_header *h = &c->dst.files.v[e->holds[k].file].header;
            h->notes[h->nnotes++] = note;
        }
    }
    return rc;
}

int checkpoint_target(struct checkpoint *c, const char *to, bool one)
{
    int rc = place_parts(c);
    for (size_t i = 0; i < c->dst.entries.n && !rc; i++)
        rc = list_holds(c, c->dst.entries.v[i]);
    if (!rc)
        rc = assign_files(c, one);
    if (!rc)
        rc = list_tensors(c);
    return rc ? rc : add_notes(c, to);
}
