#define _GNU_SOURCE
#include "checkpoint_model.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "weft.h"

static const char *const model_axis[MODEL_AXES] = {"pp", "tp", "ep"};

enum { PP, TP, EP };

/* ---- random ones ---- */

static void model_random_splits(struct random *r, const struct model_kind *k, struct model_part *p)
{
    bool used[MODEL_AXES] = {[PP] = true, [EP] = k->experts};
    for (int d = 0; d < k->ndim; d++)
        for (int n = (int)random_in(r, 0, 2); n > 0; n--) {
            int a = (int)random_in(r, 0, MODEL_AXES - 1);
            if (used[a])
                continue;
            used[a] = true;
            struct model_split *s = &p->split[d][p->nsplits[d]++];
            *s = (struct model_split){.axis = a};
            if (k->nparts == 1 && random_once_in(r, 4))
                s->block = random_in(r, 1, 5);
            else if (a == TP && random_once_in(r, 2))
                s->most = INT64_C(1) << random_in(r, 0, 2);
        }
}

void model_random(struct random *r, struct model *m)
{
    static const int dtypes[] = {WEFT_F32,    WEFT_BF16, WEFT_F16, WEFT_U8,     WEFT_I64,
                                 WEFT_F8E4M3, WEFT_BOOL, WEFT_F64, WEFT_F8E8M0, WEFT_C64};
    *m = (struct model){.nkinds = (int)random_in(r, 1, MODEL_KINDS),
                        .layers = (int)random_in(r, 1, 5),
                        .experts = (int)random_in(r, 1, 3)};
    for (int i = 0; i < m->nkinds; i++) {
        struct model_kind *k = &m->kind[i];
        *k = (struct model_kind){.dtype = dtypes[random_in(r, 0, 9)],
                                 .ndim = (int)random_in(r, 0, MODEL_DIMS),
                                 .layers = !random_once_in(r, 3),
                                 .pin = (int)random_in(r, -1, 1),
                                 .nparts = 1};
        k->experts = k->layers && random_once_in(r, 3);
        if (k->ndim && random_once_in(r, 2)) {
            k->nparts = (int)random_in(r, 2, MODEL_PARTS);
            k->cat = (int)random_in(r, 0, k->ndim - 1);
        }
        for (int d = 0; d < k->ndim; d++) /* parts of what is fused are split evenly, as shares need it */
            k->shape[d] = k->nparts > 1 ? 16 * random_in(r, 1, 2) : random_in(r, 0, 40);
        static const char *const names[] = {"q", "k", "v"};
        for (int p = 0; p < k->nparts; p++) {
            k->part[p].name = k->nparts > 1 ? names[p] : "w";
            k->part[p].share = p ? 1 : random_in(r, 1, 3);
            if (!p || k->nparts == 1) {
                model_random_splits(r, k, &k->part[p]);
                for (int d = 0; d < k->ndim; d++) /* whole heads are of one length, in at most 4 pieces */
                    for (int s = 0; s < k->part[p].nsplits[d]; s++)
                        if (k->part[p].split[d][s].most)
                            k->shape[d] = (k->shape[d] + 3) / 4 * 4;
            } else { /* alike, but for how many pieces there are along the dim of the parts */
                memcpy(k->part[p].split, k->part[0].split, sizeof k->part[0].split);
                memcpy(k->part[p].nsplits, k->part[0].nsplits, sizeof k->part[0].nsplits);
                for (int s = 0; s < k->part[p].nsplits[k->cat]; s++)
                    if (k->part[p].split[k->cat][s].axis == TP)
                        k->part[p].split[k->cat][s].most = INT64_C(1) << random_in(r, 0, 2);
            }
        }
    }
}

void model_random_mesh(struct random *r, struct model_mesh *m)
{
    *m = (struct model_mesh){.ranks = 1};
    int first = (int)random_in(r, 0, 2);
    char *to = m->text;
    for (int i = 0; i < MODEL_AXES; i++) {
        int a = m->order[i] = (first + i) % MODEL_AXES;
        m->size[a] = a == TP   ? INT64_C(1) << random_in(r, 0, 2)
                     : a == EP ? INT64_C(1) << random_in(r, 0, 1)
                               : random_in(r, 1, 3);
        m->ranks *= (int)m->size[a];
        to += sprintf(to, "%s%s%d", i ? "." : "", model_axis[a], (int)m->size[a]);
    }
}

static int64_t model_coord(const struct model_mesh *m, int rank, int axis)
{
    for (int i = MODEL_AXES - 1; m->order[i] != axis; i--)
        rank /= (int)m->size[m->order[i]];
    return rank % m->size[axis];
}

/* ---- rules ---- */

void model_write_rules(const struct model *m, FILE *to)
{
    fprintf(to, "# made by a test\n\n");
    for (int i = 0; i < m->nkinds; i++) {
        const struct model_kind *k = &m->kind[i];
        if (k->nparts > 1) {
            fprintf(to, "fuse k%d.fused =", i);
            for (int p = 0; p < k->nparts; p++)
                fprintf(to, "%s k%d.%s:%d", p ? " +" : "", i, k->part[p].name, (int)k->part[p].share);
            fprintf(to, " dim %d\n", k->cat);
        }
        for (int p = 0; p < k->nparts; p++) {
            fprintf(to, "%s%sk%d.%s  [", k->layers ? "m.{pp}." : "m.", k->experts ? "*{ep}." : "", i, k->part[p].name);
            if (k->ndim == 1 && !k->part[p].nsplits[0]) /* nothing at all would be a scalar */
                fprintf(to, "...");
            for (int d = 0; d < k->ndim; d++) {
                fprintf(to, "%s", d ? ", " : "");
                for (int s = 0; s < k->part[p].nsplits[d]; s++) {
                    const struct model_split *split = &k->part[p].split[d][s];
                    fprintf(to, "/%s", model_axis[split->axis]);
                    if (split->block)
                        fprintf(to, ":%d", (int)split->block);
                    else if (split->most)
                        fprintf(to, "<=%d", (int)split->most);
                }
            }
            fprintf(to, "]%s\n", k->layers || k->pin < 0 ? "" : k->pin ? " pp=last" : " pp=first");
        }
    }
    fprintf(to, "none [/ep, /tp] pp=0 # so that every axis is one that a rule uses\n");
}

/* ---- what a rank holds ---- */

int model_entries(const struct model *m, bool fused, int part, struct model_entry *out)
{
    int n = 0;
    for (int i = 0; i < m->nkinds; i++)
        for (int l = 0; l < (m->kind[i].layers ? m->layers : 1); l++)
            for (int e = 0; e < (m->kind[i].experts ? m->experts : 1); e++) {
                const struct model_kind *k = &m->kind[i];
                struct model_entry *o = &out[n++];
                *o = (struct model_entry){i, l, e, ""};
                char layer[16] = "", expert[24] = "";
                if (k->layers)
                    sprintf(layer, "%d.", l);
                if (k->experts)
                    sprintf(expert, "x.%d.", e);
                snprintf(o->name, sizeof o->name, "m.%s%sk%d.%s", layer, expert, i,
                         k->nparts > 1 && fused ? "fused" : k->part[part].name);
            }
    return n;
}

bool model_holds(const struct model *m, const struct model_mesh *mesh, const struct model_entry *e, int rank)
{
    const struct model_kind *k = &m->kind[e->kind];
    /* How many numbers an axis deals: all that are there. */
    bool experts = false, layers = false;
    for (int i = 0; i < m->nkinds; i++) {
        layers |= m->kind[i].layers;
        experts |= m->kind[i].experts;
    }
    int64_t stage = model_coord(mesh, rank, PP), share = (m->layers + mesh->size[PP] - 1) / mesh->size[PP];
    if (k->layers && layers && e->layer / share != stage)
        return false;
    if (!k->layers && k->pin >= 0 && stage != (k->pin ? mesh->size[PP] - 1 : 0))
        return false;
    share = (m->experts + mesh->size[EP] - 1) / mesh->size[EP];
    return !(k->experts && experts) || e->expert / share == model_coord(mesh, rank, EP);
}

/* The positions of a dim that a rank has of a part, in order. */
static int64_t model_positions(const struct model_kind *k, int part, int dim, const struct model_mesh *mesh, int rank,
                               int64_t *at)
{
    const struct model_part *p = &k->part[part];
    int64_t n = k->shape[dim] * (dim == k->cat && k->nparts > 1 ? p->share : 1);
    for (int64_t i = 0; i < n; i++)
        at[i] = i;
    for (int s = 0; s < p->nsplits[dim]; s++) {
        const struct model_split *split = &p->split[dim][s];
        int64_t size = mesh->size[split->axis], c = model_coord(mesh, rank, split->axis), kept = 0;
        if (split->most && split->most < size) { /* neighbours share */
            c /= size / split->most;
            size = split->most;
        }
        int64_t chunk = (n + size - 1) / size;
        for (int64_t i = 0; i < n; i++)
            if ((split->block ? i / split->block % size : i / chunk) == c)
                at[kept++] = at[i];
        n = kept;
    }
    return n;
}

/* The bytes of an element, by what it is: small whole numbers in every dtype, which all casts keep. */
static void model_element(int dtype, const char *name, int part, const int64_t *index, int ndim, unsigned char *to)
{
    uint64_t h = hash_bytes((uint64_t)part, name, strlen(name));
    for (int d = 0; d < ndim; d++)
        h = hash_u64(h, (uint64_t)index[d]);
    int v = (int)(h % 8); /* 0 to 7 */
    size_t size = weft_dtype_size(dtype);
    memset(to, 0, size);
    double f64 = v;
    float f32 = (float)v;
    static const uint16_t f16[8] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
    static const unsigned char f8[8] = {0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e};
    uint32_t bits;
    memcpy(&bits, &f32, 4);
    uint16_t bf16 = (uint16_t)(bits >> 16);
    const void *from = dtype == WEFT_F64      ? (const void *)&f64
                       : dtype == WEFT_F32    ? (const void *)&f32
                       : dtype == WEFT_F16    ? (const void *)&f16[v]
                       : dtype == WEFT_BF16   ? (const void *)&bf16
                       : dtype == WEFT_F8E4M3 ? (const void *)&f8[v]
                                              : NULL;
    if (from)
        memcpy(to, from, size);
    else
        to[0] = (unsigned char)(dtype == WEFT_BOOL ? v & 1 : v);
}

unsigned char *model_array(const struct model *m, const struct model_mesh *mesh, const struct model_entry *e, int rank,
                           int first, int last, int dtype, int64_t *shape)
{
    const struct model_kind *k = &m->kind[e->kind];
    static int64_t at[MODEL_PARTS][MODEL_DIMS][256];
    int64_t n[MODEL_PARTS][MODEL_DIMS], count = 1, index[MODEL_DIMS] = {0}, global[MODEL_DIMS];
    size_t size = weft_dtype_size(dtype);
    for (int d = 0; d < k->ndim; d++) {
        shape[d] = 0;
        for (int p = first; p < last; p++) {
            n[p][d] = model_positions(k, p, d, mesh, rank, at[p][d]);
            shape[d] = d == k->cat ? shape[d] + n[p][d] : n[p][d];
        }
        count *= shape[d];
    }
    struct model_entry id[MODEL_ENTRIES]; /* elements are named by the unfused tensor, whichever way it is stored */
    model_entries(m, true, 0, id);
    const char *name = "";
    for (int i = 0, all = model_entries(m, true, 0, id); i < all; i++)
        if (id[i].kind == e->kind && id[i].layer == e->layer && id[i].expert == e->expert)
            name = id[i].name;
    unsigned char *data = malloc((size_t)count * size + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;
        for (int d = k->ndim - 1; d >= 0; d--) {
            index[d] = rest % shape[d];
            rest /= shape[d];
        }
        int p = first;
        for (int64_t x = k->ndim ? index[k->cat] : 0; k->ndim && p < last - 1 && x >= n[p][k->cat]; p++) {
            x -= n[p][k->cat];
            index[k->cat] = x;
        }
        for (int d = 0; d < k->ndim; d++)
            global[d] = at[p][d][index[d]];
        model_element(dtype, name, p, global, k->ndim, data + (size_t)i * size);
    }
    return data;
}
