#include "bench/work/model.h"

#include <stdio.h>

enum { STAGES = 4, DATA = 2, EXPERTS = 16 }; /* of training: stage-major, then data, then experts */
enum { HIDDEN = 7168, VOCAB = 129280, ROUTED = 256, DENSE_LAYERS = 3, FFN = 18432, EXPERT_FFN = 2048 };
enum { Q_RANK = 1536, KV_RANK = 512, HEADS = 128, NOPE = 128, ROPE = 64, V_HEAD = 128 };

struct out {
    int (*put)(void *arg, const char *name, const char *src, const char *dst);
    void *arg;
    int first; /* first rank of the current pipeline stage */
};

/* split: the dim that inference splits over tp, -1 for none. */
static void dst_text(char *to, size_t cap, int rows, int cols, int split)
{
    if (!cols)
        snprintf(to, cap, "bf16[%d] @dp16.tp8=128..255", rows);
    else
        snprintf(to, cap, "bf16[%d%s,%d%s] @dp16.tp8=128..255", rows, split == 0 ? "/tp" : "", cols,
                 split == 1 ? "/tp" : "");
}

/* Everything except experts: replicated over the data and expert ranks of its stage. Tensors with columns have their
 * rows sharded over data, as in FSDP. */
static int put_shared(const struct out *o, const char *name, int rows, int cols, int split)
{
    char src[128], dst[128];
    int last = o->first + DATA * EXPERTS - 1;
    if (cols)
        snprintf(src, sizeof src, "f32[%d/dp,%d] @dp%d.ep%d=%d..%d", rows, cols, DATA, EXPERTS, o->first, last);
    else
        snprintf(src, sizeof src, "f32[%d] @dp%d.ep%d=%d..%d", rows, DATA, EXPERTS, o->first, last);
    dst_text(dst, sizeof dst, rows, cols, split);
    return o->put(o->arg, name, src, dst);
}

static int put_expert(const struct out *o, const char *name, int expert, int rows, int cols, int split)
{
    char src[128], dst[128];
    int owner = o->first + expert / (ROUTED / EXPERTS);
    snprintf(src, sizeof src, "f32[%d,%d] @dp%d=%d,%d", rows, cols, DATA, owner, owner + EXPERTS);
    dst_text(dst, sizeof dst, rows, cols, split);
    return o->put(o->arg, name, src, dst);
}

static int put_mlp(const struct out *o, int layer, const char *what, int ffn)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char name[96];
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++) {
        snprintf(name, sizeof name, "layers.%d.%s.%s.weight", layer, what, parts[i]);
        rc = put_shared(o, name, i < 2 ? ffn : HIDDEN, i < 2 ? HIDDEN : ffn, i < 2 ? 0 : 1);
    }
    return rc;
}

static int put_experts(const struct out *o, int layer)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char name[96];
    int rc = 0;
    for (int e = 0; e < ROUTED && !rc; e++)
        for (int i = 0; i < 3 && !rc; i++) {
            snprintf(name, sizeof name, "layers.%d.mlp.experts.%d.%s.weight", layer, e, parts[i]);
            rc = put_expert(o, name, e, i < 2 ? EXPERT_FFN : HIDDEN, i < 2 ? HIDDEN : EXPERT_FFN, i < 2 ? 0 : 1);
        }
    return rc;
}

static int put_layer(const struct out *o, int layer)
{
    static const struct {
        const char *name;
        int rows, cols, split;
    } attention[] = {
        {"input_layernorm", HIDDEN, 0, -1},
        {"self_attn.q_a_proj", Q_RANK, HIDDEN, -1},
        {"self_attn.q_a_layernorm", Q_RANK, 0, -1},
        {"self_attn.q_b_proj", HEADS * (NOPE + ROPE), Q_RANK, 0},
        {"self_attn.kv_a_proj_with_mqa", KV_RANK + ROPE, HIDDEN, -1},
        {"self_attn.kv_a_layernorm", KV_RANK, 0, -1},
        {"self_attn.kv_b_proj", HEADS * (NOPE + V_HEAD), KV_RANK, 0},
        {"self_attn.o_proj", HIDDEN, HEADS * V_HEAD, 1},
        {"post_attention_layernorm", HIDDEN, 0, -1},
    };
    char name[96];
    int rc = 0;
    for (size_t i = 0; i < sizeof attention / sizeof *attention && !rc; i++) {
        snprintf(name, sizeof name, "layers.%d.%s.weight", layer, attention[i].name);
        rc = put_shared(o, name, attention[i].rows, attention[i].cols, attention[i].split);
    }
    if (rc || layer < DENSE_LAYERS)
        return rc ? rc : put_mlp(o, layer, "mlp", FFN);
    snprintf(name, sizeof name, "layers.%d.mlp.gate.weight", layer);
    rc = put_shared(o, name, ROUTED, HIDDEN, -1);
    if (!rc)
        rc = put_mlp(o, layer, "mlp.shared_experts", EXPERT_FFN);
    return rc ? rc : put_experts(o, layer);
}

int model_moves(int layers, int (*put)(void *arg, const char *name, const char *src, const char *dst), void *arg)
{
    struct out o = {put, arg, 0};
    int rc = put_shared(&o, "embed_tokens.weight", VOCAB, HIDDEN, 0);
    for (int l = 0; l < layers && !rc; l++) {
        o.first = l * STAGES / MODEL_LAYERS * DATA * EXPERTS;
        rc = put_layer(&o, l);
    }
    o.first = (STAGES - 1) * DATA * EXPERTS;
    if (!rc)
        rc = put_shared(&o, "norm.weight", HIDDEN, 0, -1);
    return rc ? rc : put_shared(&o, "lm_head.weight", VOCAB, HIDDEN, 0);
}
