#include "foresee/models.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "checkpoint/checkpoint.h"

/* What the config.json of a model says. Latent attention has q_rank and kv_rank above 0. */
struct config {
    const char *name, *about, *rules;
    int layers, dense; /* all; the first ones without experts */
    int hidden, heads, kv_heads, head, vocab;
    int ffn, expert_ffn, experts, shared; /* shared: experts that all tokens use */
    int q_rank, kv_rank, rope;
    bool head_norms;
};
static const struct config configs[] = {
    {"llama-3-70b", "80 layers, dense, 141 GB in bf16", "llama", 80, 80, 8192, 64, 8, 128, 128256, 28672, 0, 0, 0, 0, 0,
     0, false},
    {"qwen3-235b-a22b", "94 layers of 128 experts, 470 GB in bf16", "moe", 94, 0, 4096, 64, 4, 128, 151936, 12288, 1536,
     128, 0, 0, 0, 0, true},
    {"deepseek-v3", "61 layers, 58 of them of 256 experts, 1.34 TB in bf16", "moe", 61, 3, 7168, 128, 128, 128, 129280,
     18432, 2048, 256, 1, 1536, 512, 64, false},
    {"kimi-k2", "61 layers, 60 of them of 384 experts, 2.05 TB in bf16", "moe", 61, 1, 7168, 64, 64, 128, 163840, 18432,
     2048, 384, 1, 1536, 512, 64, false},
};
#define MODELS (sizeof configs / sizeof *configs)

const char *models_name(size_t i)
{
    return i < MODELS ? configs[i].name : NULL;
}

const char *models_about(size_t i)
{
    return i < MODELS ? configs[i].about : NULL;
}

/* ---- tensors ---- */

struct tensor {
    char name[96];
    int64_t shape[2];
    int ndim;
    bool matrix; /* of attention, an MLP or an expert: what is quantised, if anything is */
};
struct tensors {
    VEC(struct tensor) all;
    bool failed;
};

#define ROUTER "mlp.gate.weight"

/* layer: -1 for a tensor that is of none; what: its name inside the layer. cols 0: one dim. */
static void put(struct tensors *t, int layer, const char *what, int64_t rows, int64_t cols)
{
    struct tensor *x = vec_push(&t->all);
    if (!x) {
        t->failed = true;
        return;
    }
    if (layer < 0)
        snprintf(x->name, sizeof x->name, "%s", what);
    else
        snprintf(x->name, sizeof x->name, "model.layers.%d.%s", layer, what);
    x->shape[0] = rows;
    x->shape[1] = cols;
    x->ndim = cols ? 2 : 1;
    x->matrix = layer >= 0 && cols && strcmp(what, ROUTER);
}

static void put_attention(struct tensors *t, const struct config *m, int l)
{
    int nope = m->head, value = m->head;
    if (m->q_rank) {
        put(t, l, "self_attn.q_a_proj.weight", m->q_rank, m->hidden);
        put(t, l, "self_attn.q_a_layernorm.weight", m->q_rank, 0);
        put(t, l, "self_attn.q_b_proj.weight", m->heads * (nope + m->rope), m->q_rank);
        put(t, l, "self_attn.kv_a_proj_with_mqa.weight", m->kv_rank + m->rope, m->hidden);
        put(t, l, "self_attn.kv_a_layernorm.weight", m->kv_rank, 0);
        put(t, l, "self_attn.kv_b_proj.weight", m->heads * (nope + value), m->kv_rank);
    } else {
        put(t, l, "self_attn.q_proj.weight", m->heads * m->head, m->hidden);
        put(t, l, "self_attn.k_proj.weight", m->kv_heads * m->head, m->hidden);
        put(t, l, "self_attn.v_proj.weight", m->kv_heads * m->head, m->hidden);
    }
    if (m->head_norms) {
        put(t, l, "self_attn.q_norm.weight", m->head, 0);
        put(t, l, "self_attn.k_norm.weight", m->head, 0);
    }
    put(t, l, "self_attn.o_proj.weight", m->hidden, m->heads * m->head);
}

static void put_mlp(struct tensors *t, const struct config *m, int l, const char *where, int ffn)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s.weight", where, parts[i]);
        put(t, l, name, i < 2 ? ffn : m->hidden, i < 2 ? m->hidden : ffn);
    }
}

static void put_layer(struct tensors *t, const struct config *m, int l)
{
    put(t, l, "input_layernorm.weight", m->hidden, 0);
    put_attention(t, m, l);
    put(t, l, "post_attention_layernorm.weight", m->hidden, 0);
    if (l < m->dense) {
        put_mlp(t, m, l, "mlp", m->ffn);
        return;
    }
    put(t, l, ROUTER, m->experts, m->hidden);
    if (m->shared)
        put_mlp(t, m, l, "mlp.shared_experts", m->shared * m->expert_ffn);
    for (int e = 0; e < m->experts; e++) {
        char where[32];
        snprintf(where, sizeof where, "mlp.experts.%d", e);
        put_mlp(t, m, l, where, m->expert_ffn);
    }
}

static void put_model(struct tensors *t, const struct config *m)
{
    put(t, -1, "model.embed_tokens.weight", m->vocab, m->hidden);
    for (int l = 0; l < m->layers; l++)
        put_layer(t, m, l);
    put(t, -1, "model.norm.weight", m->hidden, 0);
    put(t, -1, "lm_head.weight", m->vocab, m->hidden);
}

/* ---- layouts ---- */

struct side {
    weft_layout *mesh;
    int base;     /* its first rank */
    int dtype;    /* of the matrices */
    char **texts; /* of each tensor */
};

static int said(struct failure *why)
{
    return failure_set(why, CLI_BAD, "%s", weft_errmsg());
}

/* The same layout on the ranks from `base` on; the axis fsdp, if there is one, splits the first dim. */
static int text_of(const weft_layout *l, int base, char **out, struct failure *why)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    weft_dim dims[WEFT_MAX_DIMS];
    if (weft_layout_describe(l, &d))
        return said(why);
    size_t n = 1, len = 0;
    memcpy(dims, d.dims, (size_t)d.ndim * sizeof *dims);
    for (int a = 0; a < d.naxes; a++) {
        n *= (size_t)d.axes[a].size;
        if (!strcmp(d.axes[a].name, "fsdp") && dims[0].nsplits < WEFT_MAX_AXES)
            dims[0].splits[dims[0].nsplits++] = (weft_split){"fsdp", 0};
    }
    int *ranks = malloc(n * sizeof *ranks), code = CLI_OK;
    weft_layout *moved = NULL;
    for (size_t i = 0; ranks && i < n; i++)
        ranks[i] = d.ranks[i] + base;
    d.dims = dims;
    d.ranks = ranks;
    if (!ranks || weft_layout_create(&d, &moved) || weft_layout_format(moved, NULL, 0, &len) ||
        !(*out = malloc(len + 1)) || weft_layout_format(moved, *out, len + 1, &len))
        code = ranks ? said(why) : failure_set(why, CLI_WRONG, "not enough memory for a layout");
    weft_layout_free(moved);
    free(ranks);
    return code;
}

static int place_side(struct checkpoint *c, const struct tensors *t, struct side *s, struct failure *why)
{
    int code = CLI_OK;
    memset(c->count, 0, sizeof c->count);
    s->texts = calloc(t->all.n + 1, sizeof *s->texts);
    if (!s->texts)
        return failure_set(why, CLI_WRONG, "not enough memory for %zu layouts", t->all.n);
    for (size_t i = 0; i < t->all.n && !code; i++)
        code = checkpoint_place_count(c, s->mesh, t->all.v[i].name) ? said(why) : CLI_OK;
    for (size_t i = 0; i < t->all.n && !code; i++) {
        const struct tensor *x = &t->all.v[i];
        weft_layout *l = NULL;
        if (checkpoint_place(c, s->mesh, x->name, x->matrix ? s->dtype : WEFT_BF16, x->ndim, x->shape, &l))
            code = said(why);
        else
            code = text_of(l, s->base, &s->texts[i], why);
        weft_layout_free(l);
    }
    return code;
}

static int place(struct scene *s, const struct config *m, const struct tensors *t, struct side side[2],
                 struct failure *why)
{
    char heads[64], kv_heads[64];
    snprintf(heads, sizeof heads, "num_attention_heads=%d", m->heads);
    snprintf(kv_heads, sizeof kv_heads, "num_key_value_heads=%d", m->kv_heads);
    const char *set[] = {heads, kv_heads};
    weft_checkpoint_opts opts = {.size = sizeof opts, .set = set, .nset = 2};
    struct checkpoint c = {.opts = &opts};
    const char *rules = weft_checkpoint_rules(m->rules);
    int code = rules_parse(m->rules, rules, strlen(rules), &c.arena, &c.rules) ? said(why) : CLI_OK;
    for (int k = 0; k < 2 && !code; k++)
        code = place_side(&c, t, &side[k], why);
    for (size_t i = 0; i < t->all.n && !code; i++)
        code = scene_add(s, side[0].texts[i], side[1].texts[i], why);
    arena_free(&c.arena);
    return code;
}

/* "bf16:f8e4m3", or one name for both sides. */
static int read_dtypes(const char *text, struct side side[2], struct failure *why)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    side[0].dtype = dtype_parse(text, n);
    side[1].dtype = colon ? dtype_parse(colon + 1, strlen(colon + 1)) : side[0].dtype;
    if (!side[0].dtype || !side[1].dtype)
        return failure_set(why, CLI_BAD, "--dtype '%.40s': needs an element type, or one for each side as bf16:f8e4m3",
                           text);
    return CLI_OK;
}

int models_add(struct scene *s, const char *model, const char *from, const char *to, const char *dtypes,
               struct failure *why)
{
    const struct config *m = configs;
    while (m < configs + MODELS && strcmp(m->name, model))
        m++;
    if (m == configs + MODELS)
        return failure_set(why, CLI_BAD, "there is no model '%s' (weft sim --list)", model);
    struct tensors t = {0};
    struct side side[2] = {0};
    int code = read_dtypes(dtypes, side, why);
    if (!code &&
        (checkpoint_place_mesh("--from", from, &side[0].mesh) || checkpoint_place_mesh("--to", to, &side[1].mesh)))
        code = said(why);
    put_model(&t, m);
    if (!code && t.failed)
        code = failure_set(why, CLI_WRONG, "not enough memory for the tensors of %s", model);
    if (!code) {
        side[1].base = weft_layout_ranks(side[0].mesh);
        code = place(s, m, &t, side, why);
    }
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; side[k].texts && i < t.all.n; i++)
            free(side[k].texts[i]);
        free(side[k].texts);
        weft_layout_free(side[k].mesh);
    }
    free(t.all.v);
    return code;
}
