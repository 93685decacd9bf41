"""Tiny models of the classes that vLLM serves, with random weights, as Hugging Face's library writes them."""

import json
import pathlib
import threading

import torch
import weft

_COMMON = dict(vocab_size=1000, hidden_size=128, num_hidden_layers=2, max_position_embeddings=256)
_HEADS = dict(num_attention_heads=8, num_key_value_heads=2, head_dim=32)
_MLP = dict(intermediate_size=256)
_MOE = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[])
_MLA = dict(
    num_attention_heads=8, num_key_value_heads=8, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32,
    n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=64, first_k_dense_replace=1, n_group=2, topk_group=1,
    routed_scaling_factor=1.0, norm_topk_prob=True,
)  # fmt: skip

#: for each name: the config class of Hugging Face's library, and what is tiny in it
CONFIGS = {
    "llama": ("LlamaConfig", {**_COMMON, **_HEADS, **_MLP, "tie_word_embeddings": False}),
    "llama-tied": ("LlamaConfig", {**_COMMON, **_HEADS, **_MLP, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {**_COMMON, **_HEADS, **_MLP, "tie_word_embeddings": False}),
    "qwen2": ("Qwen2Config", {**_COMMON, "num_attention_heads": 8, "num_key_value_heads": 4, **_MLP, "tie_word_embeddings": False}),
    "qwen3-moe": ("Qwen3MoeConfig", {**_COMMON, **_HEADS, **_MLP, **_MOE, "tie_word_embeddings": False}),
    "mixtral": ("MixtralConfig", {**_COMMON, **_HEADS, **_MLP, "num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False}),
    "deepseek-v2": ("DeepseekV2Config", {**_COMMON, **_MLP, **_MLA, "topk_method": "group_limited_greedy", "tie_word_embeddings": False}),
    "deepseek-v3": ("DeepseekV3Config", {**_COMMON, **_MLP, **_MLA, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "tie_word_embeddings": False}),
    "gemma": ("GemmaConfig", {**_COMMON, **_HEADS, **_MLP}),
    "gpt2": ("GPT2Config", {"vocab_size": 1000, "n_embd": 128, "n_layer": 2, "n_head": 8, "n_positions": 256}),
}


def model(name):
    """Hugging Face's model without weights."""
    import transformers

    kind, tiny = CONFIGS[name]
    config = getattr(transformers, kind)(**tiny, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def save(name, folder, seed):
    """Writes a checkpoint of f32 with random weights. Returns its tensors."""
    from safetensors.torch import load_file

    folder = pathlib.Path(folder)
    made = model(name).to_empty(device="cpu")
    made.tie_weights()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, p in sorted(made.named_parameters()):
            p.normal_(0.0, 0.05, generator=draw)
            if p.dim() == 1:
                p.add_(1.0)
        for _, b in sorted(made.named_buffers()):
            if b.is_floating_point():
                b.zero_()
    made.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config))
    return load_file(folder / "model.safetensors")


def on_threads(n, name, rank_main):
    """Calls rank_main(comm) on n ranks, which are threads, and raises the first error."""
    errors = []

    def one(rank):
        try:
            with weft.open(f"threads:{n}/{name}", rank=rank) as comm:
                rank_main(comm)
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=one, args=(r,)) for r in range(n)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    if errors:
        raise errors[0]
