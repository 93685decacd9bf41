"""How many bytes an engine's workers receive in a sync of well-known models, without data: by weft, and by vLLM's engines nccl and nccl_m2n.

vLLM's own classes are made on PyTorch's device meta, as the first rank of several, with layers of full size: one layer of each kind, which is counted as
often as the model has it. weft's bytes are those of the boxes that the recorder learns from
load_weights. For nccl_m2n vLLM's own resolve_parameter_destinations says which tensors come as shards; all others, and all tensors with nccl, come whole to
every worker (nccl_engine.py, m2n_layout.py). bytes_table.py [RANKS [MODEL...]]
"""

import json
import math
import pathlib
import sys
import tempfile

import torch
import weft.torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.weight_transfer.m2n_common import REPLICATED
from vllm.distributed.weight_transfer.m2n_layout import resolve_parameter_destinations
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model

LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
    num_key_value_heads=8, head_dim=128, vocab_size=128256, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, hidden_act="silu",
)  # fmt: skip
QWEN = dict(
    architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=4096, intermediate_size=12288, num_hidden_layers=94, num_attention_heads=64,
    num_key_value_heads=4, head_dim=128, vocab_size=151936, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000.0, hidden_act="silu",
    num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[],
)  # fmt: skip
DEEPSEEK = dict(
    architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", hidden_size=7168, intermediate_size=18432, num_hidden_layers=61, num_attention_heads=128,
    num_key_value_heads=128, vocab_size=129280, max_position_embeddings=4096, rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu", q_lora_rank=1536,
    kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    moe_intermediate_size=2048, first_k_dense_replace=3, moe_layer_freq=1, n_group=8, topk_group=4, topk_method="noaux_tc", scoring_func="sigmoid",
    routed_scaling_factor=2.5, norm_topk_prob=True,
)  # fmt: skip
MODELS = {"Llama-3-70B": LLAMA, "Qwen3-235B-A22B": QWEN, "DeepSeek-V3": DEEPSEEK}


def mlp(at, hidden, inner):
    return {f"{at}.gate_proj.weight": (inner, hidden), f"{at}.up_proj.weight": (inner, hidden), f"{at}.down_proj.weight": (hidden, inner)}


def checkpoint(c):
    """The names and shapes of the checkpoint on the Hugging Face Hub, without scales: all in bf16, and without the layer for speculation."""
    h = c["hidden_size"]
    out = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,), "lm_head.weight": (c["vocab_size"], h)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        out.update({f"{at}.input_layernorm.weight": (h,), f"{at}.post_attention_layernorm.weight": (h,)})
        heads = c["num_attention_heads"]
        if "kv_lora_rank" in c:
            q, kv, nope, rope, v = (c[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
            shapes = dict(q_a_proj=(q, h), q_a_layernorm=(q,), q_b_proj=(heads * (nope + rope), q), kv_a_proj_with_mqa=(kv + rope, h))
            shapes.update(kv_a_layernorm=(kv,), kv_b_proj=(heads * (nope + v), kv), o_proj=(h, heads * v))
        else:
            d, kv = c["head_dim"], c["num_key_value_heads"]
            shapes = dict(q_proj=(heads * d, h), k_proj=(kv * d, h), v_proj=(kv * d, h), o_proj=(h, heads * d))
            if c["model_type"].startswith("qwen3"):
                shapes.update(q_norm=(d,), k_norm=(d,))
        out.update({f"{at}.self_attn.{name}.weight": shape for name, shape in shapes.items()})
        experts = c.get("num_experts", c.get("n_routed_experts", 0))
        if not experts or i < c.get("first_k_dense_replace", 0):
            out.update(mlp(f"{at}.mlp", h, c["intermediate_size"]))
            continue
        out[f"{at}.mlp.gate.weight"] = (experts, h)
        if c.get("topk_method") == "noaux_tc":
            out[f"{at}.mlp.gate.e_score_correction_bias"] = (experts,)
        for e in range(experts):
            out.update(mlp(f"{at}.mlp.experts.{e}", h, c["moe_intermediate_size"]))
        if c.get("n_shared_experts"):
            out.update(mlp(f"{at}.mlp.shared_experts", h, c["moe_intermediate_size"] * c["n_shared_experts"]))
    return out


def make(config, rank, ranks, folder):
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16", "tie_word_embeddings": False}))
    told = EngineArgs(model=str(folder), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16", max_model_len=128).create_engine_config()
    for group in (parallel_state._TP, parallel_state._EP):
        if group is not None:
            group.world_size, group.rank_in_group = ranks, rank
    told.parallel_config.tensor_parallel_size = ranks
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(told), torch.device("meta"):
        return initialize_model(told), told


def small(config):
    """The same with one layer of each kind, and how many of them the model has, by the number of the layer in the small one."""
    layers, dense = config["num_hidden_layers"], config.get("first_k_dense_replace", 0)
    times = [dense, layers - dense] if dense else [layers]
    return {**config, "num_hidden_layers": len(times), **({"first_k_dense_replace": 1} if dense else {})}, times


def figures(config, ranks, folder):
    """Tensors and bytes of the model, and bytes that all workers receive: by weft, nccl and nccl_m2n."""
    config, times = small(config)
    shapes = checkpoint(config)

    def count(name):
        return times[int(name.split(".")[2])] if name.startswith("model.layers.") else 1

    def size(name):
        return count(name) * 2 * math.prod(shapes[name])

    assert config["vocab_size"] % 64 == 0 == config["vocab_size"] % ranks  # then all ranks have as much as the first
    model, told = make(config, 0, ranks, folder)
    with set_current_vllm_config(told):
        learnt = weft.torch.record(model.load_weights, {n: (s, torch.bfloat16) for n, s in shapes.items()}, into=model)
    mine = ranks * sum(count(want.name) * 2 * math.prod(n) for want in learnt.wants for n in want.len)
    places = resolve_parameter_destinations(
        model, list(shapes), [torch.bfloat16] * len(shapes), list(shapes.values()), num_workers=ranks, shard_axis_size=ranks, allow_direct=True
    )
    m2n = sum(size(p.name) * (1 if p.direct and p.placements is not REPLICATED else ranks) for p in places)
    whole = sum(map(size, shapes))
    return sum(map(count, shapes)), whole, mine, ranks * whole, m2n


def main(ranks, names):
    print(f"| model | tensors | bytes | weft | nccl | nccl_m2n |\n| {' | '.join(['---'] * 6)} |")
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
        parallel_state.initialize_model_parallel(1)
        for name in names:
            tensors, *sizes = figures(MODELS[name], ranks, pathlib.Path(folder))
            print(f"| {name} | {tensors:,} | {' | '.join(f'{n / 1e9:,.0f} GB' for n in sizes)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8, sys.argv[2:] or list(MODELS))
