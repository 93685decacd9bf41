"""weft.megatron: what Megatron's ranks have, made here by NumPy from whole tensors, comes out of the bus under the names of Hugging Face."""

import json

import numpy as np
import pytest

import weft
import weft.megatron
from test_run import threads

BASE = dict(hidden_size=12, num_attention_heads=8, num_key_value_heads=4, head_dim=2, num_hidden_layers=2, vocab_size=37, intermediate_size=8)
MOE = dict(num_experts=4, moe_intermediate_size=4, decoder_sparse_step=1, mlp_only_layers=[1])

CASES = {
    "llama-tp2-pp2": (dict(BASE, model_type="llama"), 4, dict(tp=2, pp=2)),
    "llama-tied-dp3": (dict(BASE, model_type="llama", tie_word_embeddings=True), 3, dict()),
    "llama-biases": (dict(BASE, model_type="llama", attention_bias=True), 2, dict(tp=2)),
    "qwen2-tp4": (dict(BASE, model_type="qwen2"), 4, dict(tp=4)),
    "qwen3-tp2-dp2": (dict(BASE, model_type="qwen3"), 4, dict(tp=2)),
    "qwen3-uneven-stages": (dict(BASE, model_type="qwen3", num_hidden_layers=3), 2, dict(pp=2, stages=[1, 2])),
    "qwen3-moe-tp2-ep2": (dict(BASE, model_type="qwen3_moe", **MOE), 8, dict(tp=2, ep=2)),
    "qwen3-moe-tp2-ep4-etp1": (dict(BASE, model_type="qwen3_moe", **MOE), 4, dict(tp=2, ep=4, etp=1)),
    "mixtral-pp2-ep2": (dict(BASE, model_type="mixtral", num_local_experts=4), 4, dict(pp=2, ep=2)),
}


def wholes(c, rng):
    """The checkpoint of Hugging Face."""
    h, heads, kv, size = (c[n] for n in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    kind = c["model_type"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, n in (("q", heads), ("k", kv), ("v", kv)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (n * size, h)
            if kind == "qwen2" or c.get("attention_bias"):
                shapes[f"{at}self_attn.{name}_proj.bias"] = (n * size,)
        if c.get("attention_bias"):
            shapes[f"{at}self_attn.o_proj.bias"] = (h,)
        shapes[f"{at}self_attn.o_proj.weight"] = (h, heads * size)
        if "qwen3" in kind:
            shapes.update({f"{at}self_attn.{x}_norm.weight": (size,) for x in "qk"})
        shapes.update({f"{at}{x}_layernorm.weight": (h,) for x in ("input", "post_attention")})
        if kind == "mixtral":
            shapes[f"{at}block_sparse_moe.gate.weight"] = (c["num_local_experts"], h)
            mlps = [(f"{at}block_sparse_moe.experts.{e}.", ("w1", "w3", "w2"), c["intermediate_size"]) for e in range(c["num_local_experts"])]
        elif kind == "qwen3_moe" and i not in c["mlp_only_layers"]:
            shapes[f"{at}mlp.gate.weight"] = (c["num_experts"], h)
            mlps = [(f"{at}mlp.experts.{e}.", ("gate_proj", "up_proj", "down_proj"), c["moe_intermediate_size"]) for e in range(c["num_experts"])]
        else:
            mlps = [(f"{at}mlp.", ("gate_proj", "up_proj", "down_proj"), c["intermediate_size"])]
        for path, (gate, up, down), inner in mlps:
            shapes.update({f"{path}{gate}.weight": (inner, h), f"{path}{up}.weight": (inner, h), f"{path}{down}.weight": (h, inner)})
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def ranks_state(w, c, rank, ranks, tp=1, pp=1, ep=1, etp=None, stages=None, multiple=16, te=True):
    """What Megatron has on this rank. te: with the names of Transformer Engine."""
    etp = etp or tp
    inner = ranks // pp
    stage, t, et, e_rank = rank // inner, rank % inner % tp, rank % inner % etp, rank % inner // etp % ep
    counts = stages or [c["num_hidden_layers"] // pp] * pp
    first = sum(counts[:stage])
    out = {}

    def words(x):
        padded = -(-len(x) // (multiple * tp)) * multiple * tp
        return np.split(np.concatenate([x, np.full((padded - len(x), x.shape[1]), 99, np.float32)]), tp)[t]

    def mlp(path, names):
        gate, up, down = (w[f"{path}{n}.weight"] for n in names)
        n, k = (etp, et) if "experts" in path else (tp, t)
        return np.concatenate([np.split(gate, n)[k], np.split(up, n)[k]]), np.split(down, n, axis=1)[k].copy()

    if stage == 0:
        out["embedding.word_embeddings.weight"] = words(w["model.embed_tokens.weight"])
    for i in range(counts[stage]):
        at, of = f"decoder.layers.{i}.", f"model.layers.{first + i}."
        out[at + ("self_attention.linear_qkv.layer_norm_weight" if te else "input_layernorm.weight")] = w[of + "input_layernorm.weight"]
        for what in ("weight", "bias"):
            if f"{of}self_attn.q_proj.{what}" in w:
                groups = [
                    w[f"{of}self_attn.{x}_proj.{what}"].reshape(c["num_key_value_heads"], -1, *([c["hidden_size"]] * (what == "weight")))
                    for x in "qkv"
                ]
                fused = np.split(np.concatenate(groups, axis=1), tp)[t]
                out[f"{at}self_attention.linear_qkv.{what}"] = fused.reshape(-1, *fused.shape[2:]).copy()
        out[f"{at}self_attention.linear_proj.weight"] = np.split(w[of + "self_attn.o_proj.weight"], tp, axis=1)[t].copy()
        for hf, name in (
            ("self_attn.o_proj.bias", "linear_proj.bias"),
            ("self_attn.q_norm.weight", "q_layernorm.weight"),
            ("self_attn.k_norm.weight", "k_layernorm.weight"),
        ):
            if of + hf in w:
                out[f"{at}self_attention.{name}"] = w[of + hf]
        dense = of + "mlp.gate_proj.weight" in w
        out[at + ("mlp.linear_fc1.layer_norm_weight" if te and dense else "pre_mlp_layernorm.weight")] = w[of + "post_attention_layernorm.weight"]
        if dense:
            out[at + "mlp.linear_fc1.weight"], out[at + "mlp.linear_fc2.weight"] = mlp(of + "mlp.", ("gate_proj", "up_proj", "down_proj"))
            continue
        mixtral = of + "block_sparse_moe.gate.weight" in w
        inside = of + ("block_sparse_moe." if mixtral else "mlp.")
        out[at + "mlp.router.weight"] = router = w[inside + "gate.weight"]
        each = len(router) // ep
        for e in range(each):
            both = mlp(f"{inside}experts.{e_rank * each + e}.", ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj"))
            for n, x in zip((1, 2), both):
                out[f"{at}mlp.experts.linear_fc{n}.weight{e}" if te else f"{at}mlp.experts.local_experts.{e}.linear_fc{n}.weight"] = x
    if stage == pp - 1:
        out["decoder.final_layernorm.weight"] = w["model.norm.weight"]
        if "lm_head.weight" in w:
            out["output_layer.weight"] = words(w["lm_head.weight"])
    return out


@pytest.mark.parametrize("te", [True, False], ids=["te", "local"])
@pytest.mark.parametrize("case", list(CASES))
def test_the_checkpoint_comes_out(case, te, tmp_path):
    config, ranks, how = CASES[case]
    whole = wholes(config, np.random.default_rng(20))
    names = weft.megatron.Names(config, ranks, vocab_multiple=16, **how)
    assert {n: l.shape for n, l in names.layouts.items()} == {n: w.shape for n, w in whole.items()}
    url = f"file:{tmp_path}/bus"

    def rank_main(comm):
        state = {f"module.module.{n}": x for n, x in ranks_state(whole, config, comm.rank, ranks, te=te, **how).items()}
        state["module.module.decoder.layers.0.mlp.linear_fc1._extra_state"] = b""
        arrays = names.arrays(comm.rank, state)
        assert all(any(x is y for y in state.values()) for x in arrays.values())  # no copies
        with weft.bus(url) as bus, bus.publish("policy", names.layouts, comm=comm) as publisher:
            publisher.put(1, arrays)
            publisher.commit(1)
            comm.barrier()
            if comm.rank == 0:
                got = {n: np.zeros_like(w) for n, w in whole.items()}
                with bus.subscribe("policy", got, into=got) as reader:
                    reader.swap(reader.fetch(1, timeout=60))
                for n, w in whole.items():
                    assert np.array_equal(got[n], w), n
            comm.barrier()
        return sum(
            names.layouts[n].local(comm.rank).elements and sum(np.prod(b.len) for b in names.layouts[n].boxes(comm.rank)) for n in names.layouts
        )

    published = threads(ranks, rank_main, f"megatron-{case}-{te}")
    assert sum(published) == sum(w.size for w in whole.values())  # each element once
    assert min(published) > 0


def test_what_does_not_fit_is_refused(tmp_path):
    config, ranks, how = CASES["llama-tp2-pp2"]
    whole = wholes(config, np.random.default_rng(1))
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = weft.megatron.Names(tmp_path, ranks, vocab_multiple=16, **how)
    state = ranks_state(whole, config, 0, ranks, **how)
    with pytest.raises(weft.MismatchError, match="no tensor of a checkpoint is in decoder.layers.0.self_attention.rotary of rank 0"):
        names.arrays(0, {**state, "decoder.layers.0.self_attention.rotary": np.zeros(3, np.float32)})
    with pytest.raises(
        weft.MismatchError, match="rank 0 has none of decoder.layers.0.mlp.linear_fc2.weight, for model.layers.0.mlp.down_proj.weight"
    ):
        names.arrays(0, {n: x for n, x in state.items() if "fc2" not in n})
    with pytest.raises(weft.MismatchError, match=r"word_embeddings.weight of rank 0 is \(32, 12\), and model.embed_tokens.weight needs \(128, 12\)"):
        weft.megatron.Names(config, ranks, **how).arrays(0, state)
    with pytest.raises(weft.UnsupportedError, match="type 'gemma' are not known, only llama"):
        weft.megatron.Names(dict(config, model_type="gemma"), 1)
    with pytest.raises(weft.InvalidError, match="4 groups of heads do not fall into 3 equal parts"):
        weft.megatron.Names(config, 3, tp=3)
    with pytest.raises(weft.InvalidError, match=r"stages is \[2, 1\], and there are 2 stages and 2 layers"):
        weft.megatron.Names(config, 2, pp=2, stages=[2, 1])
