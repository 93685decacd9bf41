/* From rules and a mesh to layouts; see rules.h for what a rule means. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "base/math.h"
#include "checkpoint/checkpoint.h"
#include "layout/layout.h"

/* ---- meshes ---- */

int checkpoint_place_mesh(const char *what, const char *text, weft_layout **out)
{
    size_t n = strlen(text);
    char *whole = malloc(n + 8);
    if (!whole)
        return error_nomem();
    memcpy(whole, "u8[] @", 6);
    memcpy(whole + 6, text, n + 1);
    weft_layout *l = NULL;
    int rc = strpbrk(text, "=+@[{*") ? error_set(WEFT_EINVAL, "%s: '%s' is not a mesh such as tp4.pp2", what, text)
                                     : weft_layout_parse(whole, &l);
    free(whole);
    if (rc == WEFT_EINVAL && !strpbrk(text, "=+@[{*"))
        return error_set(WEFT_EINVAL, "%s: '%s' is not a mesh such as tp4.pp2", what, text);
    if (!rc && l->mesh > CHECKPOINT_RANKS) {
        weft_layout_free(l);
        return error_set(WEFT_EUNSUPPORTED, "%s: a checkpoint has %d ranks at most", what, CHECKPOINT_RANKS);
    }
    if (!rc)
        *out = l;
    return rc;
}

int checkpoint_place_mesh_used(const struct checkpoint *c, const weft_layout *mesh, const char *what, const char *text)
{
    if (mesh->mesh > 1 && !c->rules.nrules)
        return error_set(WEFT_EINVAL, "%s: '%s' has %" PRId64 " ranks, but no rules say how tensors are split", what,
                         text, mesh->mesh);
    for (int a = 0; a < mesh->naxes; a++)
        if (mesh->axis[a].size > 1 && !rules_match_mention(&c->rules, mesh->axis[a].name))
            return error_set(WEFT_EINVAL, "%s: no rule of %s splits or places anything over '%s'", what, c->rules.path,
                             mesh->axis[a].name);
    return 0;
}

static int mesh_axis(const weft_layout *mesh, const char *name, size_t len)
{
    for (int a = 0; a < mesh->naxes; a++)
        if (strlen(mesh->axis[a].name) == len && !memcmp(mesh->axis[a].name, name, len))
            return a;
    return -1;
}

/* The axis of a number in a pattern is the text up to the closing brace. */
static int number_axis(const weft_layout *mesh, const struct rules_pin *number)
{
    return mesh_axis(mesh, number->axis, strcspn(number->axis, "}"));
}

int checkpoint_place_count(struct checkpoint *c, const weft_layout *mesh, const char *name)
{
    struct rules_match m;
    if (!rules_match_find(&c->rules, name, &m))
        return 0;
    for (int i = 0; i < m.n; i++) {
        int a = number_axis(mesh, &m.number[i]);
        if (a >= 0)
            c->count[a] = max64(c->count[a], m.number[i].at + 1);
    }
    return 0;
}

/* ---- variables ---- */

static int no_value(const struct checkpoint *c, int line, const char *name, const char *why)
{
    return error_set(WEFT_EINVAL, "%s:%d: $%s has no value: %s; set %s=NUMBER", c->rules.path, line, name, why, name);
}

int checkpoint_place_config(struct checkpoint *c)
{
    char *text, why[JSON_WRONG];
    size_t len;
    if (c->config_doc)
        return 0;
    int rc = checkpoint_files_read_text(c->config, CHECKPOINT_CONFIG_MOST, &text, &len);
    if (rc)
        return rc;
    struct json_doc *doc = calloc(1, sizeof *doc);
    if (!doc) {
        free(text);
        return error_nomem();
    }
    c->config_doc = doc;
    if (json_read(doc, text, len, why))
        return error_set(WEFT_EINVAL, "%s: it is not JSON: %s", c->config, why);
    return 0;
}

int checkpoint_place_value(struct checkpoint *c, int line, const struct rules_value *v, int64_t *out)
{
    if (!v->variable) {
        *out = v->number;
        return 0;
    }
    size_t n = strlen(v->variable);
    for (size_t i = 0; i < c->opts->nset; i++) {
        const char *text = c->opts->set[i];
        if (strncmp(text, v->variable, n) || text[n] != '=')
            continue;
        char *end;
        long long value = strtoll(text + n + 1, &end, 10);
        if (*end || end == text + n + 1 || value < 1 || value > RULES_NUMBER_MAX)
            return error_set(WEFT_EINVAL, "'%s': a number from 1 to %d is needed", text, RULES_NUMBER_MAX);
        *out = value;
        return 0;
    }
    if (!c->config)
        return no_value(c, line, v->variable, "there is no " CHECKPOINT_CONFIG " beside the input");
    int rc = checkpoint_place_config(c);
    if (rc)
        return rc;
    /* Models for images or sound have the numbers of their language part in an object of its own. */
    const struct json_value *all = &c->config_doc->values[1];
    const struct json_value *found = json_member(c->config_doc, all, v->variable);
    if (!found)
        found = json_member(c->config_doc, json_member(c->config_doc, all, "text_config"), v->variable);
    if (!found || found->kind != JSON_INT || found->number < 1 || found->number > RULES_NUMBER_MAX)
        return no_value(c, line, v->variable, "the input's " CHECKPOINT_CONFIG " does not say it");
    *out = found->number;
    return 0;
}

int checkpoint_place_shares(struct checkpoint *c, const struct rules_fuse *f, const char *name, int64_t n, int64_t *out)
{
    int64_t share[RULES_PARTS], all = 0;
    for (int i = 0; i < f->nparts; i++) {
        int rc = checkpoint_place_value(c, f->line, &f->share[i], &share[i]);
        if (rc)
            return rc;
        all += share[i];
    }
    char shown[SAFETENSORS_SHOWN];
    if (n % all)
        return error_set(WEFT_EINVAL,
                         "tensor %s: dim %d is %" PRId64 " long, which does not divide into %" PRId64 " shares (%s:%d)",
                         safetensors_show(name, shown), f->dim, n, all, c->rules.path, f->line);
    for (int i = 0; i < f->nparts; i++)
        out[i] = n / all * share[i];
    return 0;
}

/* ---- layouts ---- */

/* A layout that is being made: the axes of the mesh along which the tensor is not pinned. */
struct placing {
    struct checkpoint *c;
    const weft_layout *mesh;
    const char *name;
    struct rules_match m;
    int64_t at[WEFT_MAX_AXES];   /* coordinate along an axis that is pinned; -1: free */
    int64_t most[WEFT_MAX_AXES]; /* pieces along the axis: fewer than its size if some ranks have copies */
    char copy[WEFT_MAX_AXES][WEFT_MAX_NAME + 8];
    weft_axis axes[2 * WEFT_MAX_AXES];
    int naxes;
    weft_dim dims[WEFT_MAX_DIMS];
};

static int wrong(const struct placing *p, const char *why)
{
    char shown[SAFETENSORS_SHOWN];
    return error_set(WEFT_EINVAL, "tensor %s: %s (%s:%d)", safetensors_show(p->name, shown), why, p->c->rules.path,
                     p->m.rule->line);
}

static int pin_axes(struct placing *p)
{
    for (int a = 0; a < p->mesh->naxes; a++) {
        p->at[a] = -1;
        p->most[a] = p->mesh->axis[a].size;
    }
    for (int i = 0; i < p->m.n; i++) {
        int a = number_axis(p->mesh, &p->m.number[i]);
        if (a >= 0) /* in the same way as a dim with `count` positions is cut into chunks */
            p->at[a] = p->m.number[i].at / ceil_div(p->c->count[a], p->mesh->axis[a].size);
    }
    for (int i = 0; i < p->m.rule->npins; i++) {
        const struct rules_pin *pin = &p->m.rule->pin[i];
        int a = mesh_axis(p->mesh, pin->axis, strlen(pin->axis));
        if (a < 0)
            continue;
        p->at[a] = pin->at == RULES_LAST ? p->mesh->axis[a].size - 1 : pin->at;
        if (p->at[a] >= p->mesh->axis[a].size)
            return wrong(p, "it is placed beyond the end of an axis");
    }
    return 0;
}

/* Applies one dim of a rule to one dim of the tensor. */
static int split_dim(struct placing *p, const struct rules_dim *from, weft_dim *to)
{
    for (int s = 0; s < from->n; s++) {
        const struct rules_split *split = &from->split[s];
        int a = mesh_axis(p->mesh, split->axis, strlen(split->axis));
        if (a < 0)
            continue;
        int64_t size = p->mesh->axis[a].size, most = size;
        if (split->most.number || split->most.variable) {
            int rc = checkpoint_place_value(p->c, p->m.rule->line, &split->most, &most);
            if (rc)
                return rc;
            if (size > most ? size % most : most % size)
                return error_set(WEFT_EINVAL,
                                 "tensor '%.100s': %" PRId64 " pieces and %s of %" PRId64
                                 ": neither number divides the other (%s:%d)",
                                 p->name, most, split->axis, size, p->c->rules.path, p->m.rule->line);
            p->most[a] = min64(size, most);
        }
        to->splits[to->nsplits++] = (weft_split){p->mesh->axis[a].name, split->block};
    }
    return 0;
}

/* Pieces of whole heads have the same length. A dim that cannot be cut that way has no heads. */
static int check_heads(const struct placing *p, const struct rules_dim *from, const weft_dim *to)
{
    for (int s = 0; s < from->n && to->nsplits == 1; s++) {
        int a = mesh_axis(p->mesh, from->split[s].axis, strlen(from->split[s].axis));
        bool heads = from->split[s].most.number || from->split[s].most.variable;
        if (a >= 0 && heads && to->extent % p->most[a])
            return error_set(WEFT_EINVAL,
                             "tensor '%.100s': a dim of %" PRId64 " is not %" PRId64 " pieces of whole heads (%s:%d)",
                             p->name, to->extent, p->most[a], p->c->rules.path, p->m.rule->line);
    }
    return 0;
}

static int split_dims(struct placing *p, int ndim, const int64_t *shape)
{
    const struct rules_rule *r = p->m.rule;
    if (r->more < 0 ? ndim != r->ndim : ndim < r->ndim)
        return wrong(p, "it has another number of dims than its rule");
    int skip = ndim - r->ndim; /* dims that "..." stands for */
    for (int d = 0; d < ndim; d++) {
        bool before = r->more < 0 || d < r->more;
        p->dims[d] = (weft_dim){.extent = shape ? shape[d] : 1};
        if (!before && d < r->more + skip)
            continue;
        const struct rules_dim *from = &r->dim[before ? d : d - skip];
        int rc = split_dim(p, from, &p->dims[d]);
        if (!rc && shape)
            rc = check_heads(p, from, &p->dims[d]);
        if (rc)
            return rc;
        for (int s = 0; s < p->dims[d].nsplits && !shape; s++) {
            int a = mesh_axis(p->mesh, p->dims[d].splits[s].axis, strlen(p->dims[d].splits[s].axis));
            p->dims[d].extent *= p->most[a];
            p->dims[d].splits[s].block = 0;
        }
    }
    return 0;
}

/* Lists the free axes in the mesh's order. An axis with fewer pieces than ranks becomes two: the inner one has the
 * copies. */
static int list_axes(struct placing *p)
{
    for (int a = 0; a < p->mesh->naxes; a++) {
        const struct layout_axis *axis = &p->mesh->axis[a];
        if (p->at[a] >= 0)
            continue;
        p->axes[p->naxes++] = (weft_axis){axis->name, p->most[a]};
        if (p->most[a] == axis->size)
            continue;
        struct text t = text_start(p->copy[a], sizeof p->copy[a]);
        text_put(&t, axis->name);
        text_put(&t, "_copy");
        p->axes[p->naxes++] = (weft_axis){p->copy[a], axis->size / p->most[a]};
    }
    if (p->naxes > WEFT_MAX_AXES)
        return wrong(p, "it needs more than 8 axes");
    if (!p->naxes)
        p->axes[p->naxes++] = (weft_axis){p->mesh->axis[0].name, 1};
    return 0;
}

/* The ranks that are at the pinned coordinates, in the mesh's order. */
static int list_ranks(const struct placing *p, int **out)
{
    size_t n = 0;
    int *ranks = malloc((size_t)p->mesh->mesh * sizeof *ranks);
    if (!ranks)
        return error_nomem();
    for (int64_t i = 0; i < p->mesh->mesh; i++) {
        bool there = true;
        for (int a = 0; a < p->mesh->naxes && there; a++)
            there = p->at[a] < 0 || layout_coord(p->mesh, i, a) == p->at[a];
        if (there)
            ranks[n++] = (int)i;
    }
    *out = ranks;
    return 0;
}

int checkpoint_place(struct checkpoint *c, const weft_layout *mesh, const char *name, int dtype, int ndim,
                     const int64_t *shape, weft_layout **out)
{
    struct placing p = {.c = c, .mesh = mesh, .name = name};
    static const struct rules_rule whole = {.more = 0};
    char shown[SAFETENSORS_SHOWN];
    int *ranks = NULL;
    if (!rules_match_find(&c->rules, name, &p.m)) {
        if (mesh->mesh > 1)
            return error_set(WEFT_EINVAL, "tensor %s: no rule of %s matches its name", safetensors_show(name, shown),
                             c->rules.path);
        p.m = (struct rules_match){.rule = &whole};
    }
    int rc = pin_axes(&p);
    if (!rc)
        rc = split_dims(&p, ndim, shape);
    if (!rc)
        rc = list_axes(&p);
    if (!rc)
        rc = list_ranks(&p, &ranks);
    if (!rc) {
        weft_layout_desc desc = {.size = sizeof desc,
                                 .dtype = (enum weft_dtype)dtype,
                                 .dims = p.dims,
                                 .ndim = ndim,
                                 .axes = p.axes,
                                 .naxes = p.naxes,
                                 .ranks = ranks};
        rc = weft_layout_create(&desc, out);
        if (rc == WEFT_EINVAL) {
            char why[256]; /* weft_errmsg's text is overwritten by the next error */
            struct text t = text_start(why, sizeof why);
            text_put(&t, weft_errmsg());
            rc = wrong(&p, why);
        }
    }
    free(ranks);
    return rc;
}
