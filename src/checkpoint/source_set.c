/* What the input's files hold: entries, and the layouts of their parts, which come from weft's notes in the files or
 * from rules. In both cases each rank's arrays must have the shapes that the layouts give. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "checkpoint/checkpoint.h"
#include "layout/layout.h"

/* One array of one file. */
struct item {
    const struct safetensors_tensor *tensor;
    size_t file;
    int rank;
};

static int order_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = strcmp(x->tensor->name, y->tensor->name);
    if (order)
        return order;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

static int list_items(const struct checkpoint *c, struct item **out, size_t *n)
{
    *n = 0;
    for (size_t f = 0; f < c->src.files.n; f++)
        *n += c->src.files.v[f].header.ntensors;
    struct item *items = malloc((*n + 1) * sizeof *items), *i = items;
    if (!items)
        return error_nomem();
    for (size_t f = 0; f < c->src.files.n; f++)
        for (size_t t = 0; t < c->src.files.v[f].header.ntensors; t++)
            *i++ = (struct item){&c->src.files.v[f].header.tensors[t], f, c->src.files.v[f].rank};
    qsort(items, *n, sizeof *items, order_items);
    *out = items;
    return 0;
}

/* ---- entries and parts ---- */

static int wrong(const struct checkpoint *c, const struct item *i, const char *why)
{
    char shown[SAFETENSORS_SHOWN];
    return error_set(WEFT_EINVAL, "%s: tensor %s: %s", c->src.files.v[i->file].path,
                     safetensors_show(i->tensor->name, shown), why);
}

/* Makes an entry of the arrays of one name, one for each rank. */
static int new_entry(struct checkpoint *c, const struct item *items, size_t n, int nparts,
                     struct checkpoint_entry **out)
{
    const struct safetensors_tensor *first = items->tensor;
    struct checkpoint_entry *e = checkpoint_entry_new(c, &c->src, first->name, nparts, n);
    if (!e)
        return error_nomem();
    e->dtype = first->dtype;
    e->ndim = first->ndim;
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *t = items[i].tensor;
        if (i && items[i].rank == items[i - 1].rank)
            return wrong(c, &items[i], "another file has it, too");
        if (t->dtype != e->dtype || t->ndim != e->ndim)
            return wrong(c, &items[i], "its dtype or its number of dims differs from that on other ranks");
        e->holds[i] = (struct checkpoint_hold){.rank = items[i].rank, .file = items[i].file, .begin = t->begin};
        memcpy(e->holds[i].shape, t->shape, sizeof t->shape);
    }
    for (int k = 0; k < nparts; k++) {
        struct checkpoint_part *p = checkpoint_entry_new_part(c);
        if (!p)
            return error_nomem();
        p->ndim = e->ndim;
        p->src = (struct checkpoint_end){e, k, NULL};
        e->parts[k] = p;
    }
    *out = e;
    return 0;
}

/* ---- layouts and arrays agree ---- */

static void put_shape(struct text *t, int ndim, const int64_t *shape)
{
    text_put(t, "[");
    for (int d = 0; d < ndim; d++)
        text_printf(t, "%s%" PRId64, d ? "," : "", shape[d]);
    text_put(t, "]");
}

static int wrong_shape(const struct checkpoint *c, const struct checkpoint_entry *e, const struct checkpoint_hold *h,
                       const int64_t *want)
{
    char shown[SAFETENSORS_SHOWN], a[200], b[200];
    struct text have = text_start(a, sizeof a), need = text_start(b, sizeof b);
    put_shape(&have, e->ndim, h->shape);
    put_shape(&need, e->ndim, want);
    return error_set(WEFT_EINVAL, "%s: tensor %s: its shape is %s, and the layout gives rank %d %s",
                     c->src.files.v[h->file].path, safetensors_show(e->name, shown), a, h->rank, b);
}

/* Are the ranks that have the entry exactly the ranks of the layout? */
static int check_ranks(const struct checkpoint *c, const struct checkpoint_entry *e, const weft_layout *l)
{
    char shown[SAFETENSORS_SHOWN];
    for (size_t i = 0; i < e->nholds; i++)
        if (mesh_index(l, e->holds[i].rank) < 0)
            return error_set(WEFT_EINVAL, "%s: tensor %s: rank %d has it, but its layout does not include that rank",
                             c->src.files.v[e->holds[i].file].path, safetensors_show(e->name, shown), e->holds[i].rank);
    for (int64_t i = 0; i < l->mesh && (size_t)l->mesh != e->nholds; i++) {
        size_t k = 0;
        while (k < e->nholds && e->holds[k].rank != mesh_rank(l, i))
            k++;
        if (k == e->nholds)
            return error_set(WEFT_EINVAL, "tensor %s: the files of rank %d lack it", safetensors_show(e->name, shown),
                             mesh_rank(l, i));
    }
    return 0;
}

static int check_entry(const struct checkpoint *c, const struct checkpoint_entry *e)
{
    for (int k = 0; k < e->nparts; k++) {
        int rc = check_ranks(c, e, e->parts[k]->src.layout);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < e->nholds; i++) {
        const struct checkpoint_hold *h = &e->holds[i];
        int64_t want[WEFT_MAX_DIMS] = {0}, along = 0;
        for (int k = 0; k < e->nparts; k++) {
            weft_local local;
            int rc = weft_layout_local(e->parts[k]->src.layout, h->rank, &local);
            if (rc)
                return rc;
            for (int d = 0; d < e->ndim; d++)
                if (!k || d == e->cat)
                    want[d] = local.shape[d];
                else if (want[d] != local.shape[d])
                    return wrong_shape(c, e, h, local.shape);
            if (e->ndim && __builtin_add_overflow(along, local.shape[e->cat], &along))
                return wrong_shape(c, e, h, local.shape);
        }
        if (e->ndim)
            want[e->cat] = along;
        if (memcmp(want, h->shape, (size_t)e->ndim * sizeof *want))
            return wrong_shape(c, e, h, want);
    }
    return 0;
}

/* ---- by rules ---- */

/* The extent of a dim is the sum of the extents of its pieces. */
static int sum_pieces(const struct checkpoint_entry *e, const weft_layout *l, int dim, int64_t *out)
{
    *out = 0;
    for (int64_t p = 0; p < l->dim[dim].pieces; p++)
        if (__builtin_add_overflow(
                *out, checkpoint_entry_hold(e, mesh_rank(l, layout_piece_offset(l, dim, p)))->shape[dim], out))
            return error_set(WEFT_EINVAL, "tensor '%.100s': the arrays of its ranks are too large together", e->name);
    return 0;
}

/* Shares s_i in k_i pieces each make the first rank's extent E: E = u * sum(s_i / k_i). The parts are s_i * u long. */
static int fused_extents(struct checkpoint *c, const struct rules_fuse *f, const struct checkpoint_entry *e,
                         weft_layout *const *who, int64_t *out)
{
    int64_t share[RULES_PARTS], all = 1, sum = 0;
    for (int k = 0; k < f->nparts; k++) {
        int64_t pieces = who[k]->dim[e->cat].pieces;
        int rc = checkpoint_place_value(c, f->line, &f->share[k], &share[k]);
        if (rc)
            return rc;
        all = all / gcd64(all, pieces) *
              pieces; /* pieces are at most 65,536 and divide the mesh's ranks or a head count */
    }
    wide total = 0;
    for (int k = 0; k < f->nparts; k++)
        total += (wide)share[k] * (all / who[k]->dim[e->cat].pieces);
    wide have = (wide)checkpoint_entry_hold(e, mesh_rank(who[0], 0))->shape[e->cat] * all;
    sum = total > INT64_MAX ? 0 : (int64_t)total;
    if (!sum || have % sum || have / sum > INT64_MAX / RULES_NUMBER_MAX)
        return error_set(WEFT_EINVAL, "tensor '%.100s': dim %d does not divide into the shares of its parts (%s:%d)",
                         e->name, e->cat, c->rules.path, f->line);
    for (int k = 0; k < f->nparts; k++)
        out[k] = (int64_t)(have / sum) * share[k];
    return 0;
}

static int entry_by_rules(struct checkpoint *c, struct checkpoint_entry *e, const struct rules_fuse *f)
{
    weft_layout *who[RULES_PARTS] = {NULL};
    int64_t along[RULES_PARTS];
    int rc = 0;
    for (int k = 0; k < e->nparts && !rc; k++) {
        struct checkpoint_part *p = e->parts[k];
        p->name = f ? rules_match_renamed(e->name, f->fused, f->part[k], &c->arena) : e->name;
        rc = !p->name ? error_nomem() : checkpoint_place(c, c->src.mesh, p->name, e->dtype, e->ndim, NULL, &who[k]);
        if (!rc)
            rc = check_ranks(c, e, who[k]);
    }
    if (!rc && f)
        rc = fused_extents(c, f, e, who, along);
    for (int k = 0; k < e->nparts && !rc; k++) {
        struct checkpoint_part *p = e->parts[k];
        for (int d = 0; d < e->ndim && !rc; d++) {
            if (f && d == e->cat)
                p->shape[d] = along[k];
            else
                rc = sum_pieces(e, who[k], d, &p->shape[d]);
        }
        if (!rc)
            rc = checkpoint_place(c, c->src.mesh, p->name, e->dtype, e->ndim, p->shape, &p->src.layout);
    }
    for (int k = 0; k < e->nparts; k++)
        weft_layout_free(who[k]);
    return rc ? rc : check_entry(c, e);
}

static int by_rules(struct checkpoint *c, const struct item *items, size_t n)
{
    const struct rules_fuse *f = rules_match_fused(&c->rules, items->tensor->name);
    struct checkpoint_entry *e;
    int rc = new_entry(c, items, n, f ? f->nparts : 1, &e);
    if (rc)
        return rc;
    e->cat = f ? f->dim : 0;
    if (f && e->cat >= e->ndim)
        return wrong(c, items, "it has fewer dims than the line that says it is fused");
    return entry_by_rules(c, e, f);
}

/* ---- by notes ---- */

static int parse_note(struct checkpoint *c, const struct item *i, const char *from, size_t len, weft_layout **out)
{
    char *text = malloc(len + 1);
    if (!text)
        return error_nomem();
    memcpy(text, from, len);
    text[len] = 0;
    weft_layout *l = NULL;
    int rc = weft_layout_parse(text, &l);
    free(text);
    if (rc)
        return rc == WEFT_EINVAL ? wrong(c, i, "weft's note of its layout does not parse") : rc;
    *out = l;
    bool plain = !l->boxes && !l->nfolds && !l->scale.dtype && l->nranks <= c->src.mesh->mesh &&
                 l->dtype == i->tensor->dtype && l->ndim == i->tensor->ndim;
    for (int d = 0; d < l->ndim; d++)
        plain = plain && !l->dim[d].lo && !l->dim[d].hi;
    return plain ? 0 : wrong(c, i, "weft's note of its layout is not that of a checkpoint's tensor");
}

static const char *note_of(const struct checkpoint *c, const struct item *i, char *key)
{
    memcpy(key, CHECKPOINT_LAYOUT_NOTE, sizeof CHECKPOINT_LAYOUT_NOTE - 1);
    memcpy(key + sizeof CHECKPOINT_LAYOUT_NOTE - 1, i->tensor->name, strlen(i->tensor->name) + 1);
    return safetensors_note(&c->src.files.v[i->file].header, key);
}

/* "LAYOUT", or "cat DIM: LAYOUT | LAYOUT ...". */
static int entry_by_note(struct checkpoint *c, const struct item *items, size_t n, const char *note)
{
    int cat = 0, nparts = 1;
    if (!strncmp(note, "cat ", 4)) {
        cat = note[4] - '0';
        if (cat < 0 || cat >= items->tensor->ndim || strncmp(note + 5, ": ", 2))
            return wrong(c, items, "weft's note of its parts does not parse");
        note += 7;
        for (const char *s = note; (s = strchr(s, '|')); s++)
            nparts++;
    }
    if (nparts > RULES_PARTS)
        return wrong(c, items, "weft's note of its parts has more than 8");
    struct checkpoint_entry *e;
    const struct rules_fuse *f = rules_match_fused(&c->rules, items->tensor->name);
    int rc = new_entry(c, items, n, nparts, &e);
    if (rc)
        return rc;
    e->cat = cat;
    if (f && (f->nparts != nparts || f->dim != cat))
        return wrong(c, items, "the rules say that it is fused of other parts than weft's note does");
    for (int k = 0; k < nparts && !rc; k++) {
        struct checkpoint_part *p = e->parts[k];
        size_t len = strcspn(note, "|");
        rc = parse_note(c, items, note, len, &p->src.layout);
        note += len + (note[len] == '|');
        for (int d = 0; d < e->ndim && !rc; d++)
            p->shape[d] = p->src.layout->dim[d].extent;
        p->name = f ? rules_match_renamed(e->name, f->fused, f->part[k], &c->arena) : nparts > 1 ? NULL : e->name;
        if (f && !p->name)
            rc = error_nomem();
    }
    return rc ? rc : check_entry(c, e);
}

static int by_notes(struct checkpoint *c, const struct item *items, size_t n)
{
    char *key = malloc(sizeof CHECKPOINT_LAYOUT_NOTE + strlen(items->tensor->name));
    if (!key)
        return error_nomem();
    const char *note = note_of(c, items, key), *other;
    int rc = note ? 0 : wrong(c, items, "weft's notes in the file do not say its layout");
    for (size_t i = 1; i < n && !rc; i++)
        if (!(other = note_of(c, &items[i], key)) || strcmp(note, other))
            rc = wrong(c, &items[i], "weft's note of its layout differs from that in the first file");
    if (!rc)
        rc = entry_by_note(c, items, n, note);
    free(key);
    return rc;
}

/* Checks that each file of a set has the same mesh in its notes, and its own rank. */
static int check_notes(const struct checkpoint *c)
{
    const char *mesh = safetensors_note(&c->src.files.v[0].header, CHECKPOINT_MESH_NOTE);
    for (size_t f = 0; f < c->src.files.n; f++) {
        const struct checkpoint_file *file = &c->src.files.v[f];
        const char *m = safetensors_note(&file->header, CHECKPOINT_MESH_NOTE);
        const char *r = safetensors_note(&file->header, CHECKPOINT_RANK_NOTE);
        char rank[24];
        struct text t = text_start(rank, sizeof rank);
        text_int(&t, file->rank);
        if (!m || !r || strcmp(m, mesh) || strcmp(r, rank))
            return error_set(WEFT_EINVAL, "%s: it is not rank %d's file of a set over '%.100s'", file->path, file->rank,
                             mesh);
    }
    return 0;
}

/* Orders entries as in the files of the first rank that has them. */
static int order_entries(const void *a, const void *b)
{
    const struct checkpoint_entry *const *x = a, *const *y = b;
    const struct checkpoint_hold *h = (*x)->holds, *k = (*y)->holds;
    if (h->file != k->file)
        return h->file < k->file ? -1 : 1;
    if (h->begin != k->begin)
        return h->begin < k->begin ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

int checkpoint_source_set(struct checkpoint *c, bool rules)
{
    struct item *items = NULL;
    size_t n = 0;
    int rc = rules ? 0 : check_notes(c);
    if (!rc)
        rc = list_items(c, &items, &n);
    memset(c->count, 0, sizeof c->count);
    for (size_t i = 0; i < n && !rc && rules; i++) { /* parts of a fused tensor have the same numbers in their names */
        const struct rules_fuse *f = rules_match_fused(&c->rules, items[i].tensor->name);
        const char *name =
            f ? rules_match_renamed(items[i].tensor->name, f->fused, f->part[0], &c->arena) : items[i].tensor->name;
        rc = name ? checkpoint_place_count(c, c->src.mesh, name) : error_nomem();
    }
    for (size_t i = 0, k; i < n && !rc; i = k) {
        for (k = i + 1; k < n && !strcmp(items[k].tensor->name, items[i].tensor->name); k++) {
        }
        rc = rules ? by_rules(c, items + i, k - i) : by_notes(c, items + i, k - i);
    }
    free(items);
    if (!rc && c->src.entries.n)
        qsort(c->src.entries.v, c->src.entries.n, sizeof *c->src.entries.v, order_entries);
    return rc;
}
