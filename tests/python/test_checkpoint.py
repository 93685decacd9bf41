"""Checkpoints from Python. The package `safetensors` writes the inputs and reads the outputs: what is between is compared with a
straight load, split and save by NumPy."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft

safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed: checkpoints are not compared")

HEADS, KV, HEAD, HIDDEN, INNER, VOCAB, LAYERS = 8, 2, 4, 32, 48, 24, 4
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KV}


def llama(seed=0, dtype=np.float32):
    """A small one, by name."""
    rng = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes[at + "input_layernorm.weight"] = (HIDDEN,)
        shapes[at + "self_attn.q_proj.weight"] = (HEADS * HEAD, HIDDEN)
        shapes[at + "self_attn.q_proj.bias"] = (HEADS * HEAD,)
        shapes[at + "self_attn.k_proj.bias"] = shapes[at + "self_attn.v_proj.bias"] = (KV * HEAD,)
        shapes[at + "self_attn.k_proj.weight"] = (KV * HEAD, HIDDEN)
        shapes[at + "self_attn.v_proj.weight"] = (KV * HEAD, HIDDEN)
        shapes[at + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        shapes[at + "mlp.gate_proj.weight"] = (INNER, HIDDEN)
        shapes[at + "mlp.up_proj.weight"] = (INNER, HIDDEN)
        shapes[at + "mlp.down_proj.weight"] = (HIDDEN, INNER)
    return {name: rng.integers(-100, 100, shape).astype(dtype) for name, shape in shapes.items()}


def piece(name, array, t, tp):
    """Rank t's of tp, as tensor parallelism of a Llama splits."""
    if "norm" in name:
        return array
    if "o_proj" in name or "down_proj" in name:
        return np.array_split(array, tp, axis=1)[t]
    if "k_proj" in name or "v_proj" in name:
        parts = min(tp, KV)
        return np.array_split(array, parts)[t // (tp // parts)]
    return np.array_split(array, tp)[t]


def stage(name, pp):
    words = name.split(".")
    return int(words[2]) * pp // LAYERS if words[1] == "layers" else 0 if "embed" in name else pp - 1


def fuse(arrays):
    """q, k, v and gate, up as one, each."""
    out = {}
    for name, array in arrays.items():
        if "q_proj" in name:
            rest = [arrays[name.replace("q_proj", w)] for w in ("k_proj", "v_proj")]
            out[name.replace("q_proj", "qkv_proj")] = np.concatenate([array, *rest])
        elif "gate_proj" in name:
            out[name.replace("gate_proj", "gate_up_proj")] = np.concatenate([array, arrays[name.replace("gate_proj", "up_proj")]])
        elif not any(w in name for w in ("k_proj", "v_proj", "up_proj")):
            out[name] = array
    return out


def rank_file(folder, rank, ranks):
    return safetensors.load_file(str(folder / f"rank-{rank:05d}-of-{ranks:05d}.safetensors"))


def same(got, want):
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == want[name].dtype and np.array_equal(got[name], want[name]), name


@pytest.fixture
def model(tmp_path):
    arrays = llama()
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file(arrays, str(folder / "model.safetensors"), metadata={"format": "np"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return arrays, folder


@pytest.mark.parametrize("tp,pp", [(1, 2), (2, 1), (4, 2), (8, 4)])
def test_there_and_back(model, tmp_path, tp, pp):
    arrays, folder = model
    out, back = tmp_path / "out", tmp_path / "back.safetensors"
    info = weft.reshard_checkpoint(folder, out, f"tp{tp}.pp{pp}", rules="llama")
    assert (info.tensors, info.files_in, info.files_out) == (len(arrays), 1, tp * pp)
    assert info.bytes_in == sum(a.nbytes for a in arrays.values())
    for t in range(tp):
        for s in range(pp):
            want = {name: piece(name, a, t, tp) for name, a in arrays.items() if stage(name, pp) == s}
            same(rank_file(out, t * pp + s, tp * pp), want)
    weft.reshard_checkpoint(out, back, "tp1")
    same(safetensors.load_file(str(back)), arrays)


def test_notes(model, tmp_path):
    from safetensors import safe_open

    _, folder = model
    weft.reshard_checkpoint(folder, tmp_path / "out", "tp4.pp2", rules="llama")
    with safe_open(str(tmp_path / "out" / "rank-00003-of-00008.safetensors"), "np") as f:
        notes = f.metadata()
    assert (notes["format"], notes["weft.mesh"], notes["weft.rank"]) == ("np", "tp4.pp2", "3")
    text = notes["weft.layout:model.layers.2.self_attn.k_proj.weight"]
    assert text == f"f32[{KV * HEAD}/tp,{HIDDEN}] @tp2.tp_copy2=1,3,5,7"
    assert weft.layout(text).local(3).shape == (HEAD, HIDDEN)


def test_ranks_without_notes(model, tmp_path):
    arrays, _ = model
    for t in range(4):
        part = fuse({name: piece(name, a, t, 4) for name, a in arrays.items()})
        safetensors.save_file({name: np.ascontiguousarray(a) for name, a in part.items()}, str(tmp_path / f"tp{t}.safetensors"))
    weft.reshard_checkpoint(tmp_path / "tp%r.safetensors", tmp_path / "whole", "tp1", rules="llama", from_mesh="tp4", values=CONFIG)
    same(safetensors.load_file(str(tmp_path / "whole" / "model.safetensors")), fuse(arrays))


def test_join_and_split(model, tmp_path):
    arrays, folder = model
    weft.reshard_checkpoint(folder, tmp_path / "a", "tp2", rules="llama", fused="join")
    for t in range(2):
        same(rank_file(tmp_path / "a", t, 2), fuse({name: piece(name, a, t, 2) for name, a in arrays.items()}))
    weft.reshard_checkpoint(tmp_path / "a", tmp_path / "b", "tp8", rules="llama")
    for t in range(8):
        same(rank_file(tmp_path / "b", t, 8), fuse({name: piece(name, a, t, 8) for name, a in arrays.items()}))
    weft.reshard_checkpoint(tmp_path / "b", tmp_path / "c", "tp1", rules="llama", fused="split")
    same(safetensors.load_file(str(tmp_path / "c" / "model.safetensors")), arrays)


@pytest.mark.parametrize("rules", ["llama", "moe"])
def test_scales(tmp_path, rules):
    """Those of f8 weights: with their rows or blocks, or refused; never a part of one."""
    at = "model.layers.0."
    names = {"self_attn.q_proj": (32, 16), "self_attn.o_proj": (16, 32), "mlp.gate_proj": (48, 16), "mlp.down_proj": (16, 48)}

    def reshard(scales):
        arrays = {at + n + ".weight": np.ones(shape, np.float32) for n, shape in names.items()}
        safetensors.save_file(arrays | {at + n: a for n, a in scales.items()}, str(tmp_path / "in.safetensors"))
        out = tmp_path / "out"
        weft.reshard_checkpoint(tmp_path / "in.safetensors", out, "tp4", rules=rules, values=CONFIG, force=True)
        return [{n: rank_file(out, r, 4)[at + n] for n in scales} for r in range(4)]

    rows = {n + ".weight_scale": np.arange(shape[0], dtype=np.float32)[:, None] for n, shape in names.items()}
    rows |= {n + ".input_scale": np.ones(1, np.float32) for n in names}
    for r, got in enumerate(reshard(rows)):
        same(got, {n: np.split(a, 4)[r] if "q_proj.w" in n or "gate_proj.w" in n else a for n, a in rows.items()})
    blocks = {n + ".weight_scale_inv": np.arange(a * b // 16, dtype=np.float32).reshape(a // 4, b // 4) for n, (a, b) in names.items()}
    for r, got in enumerate(reshard(blocks)):
        same(got, {n: np.split(a, 4, axis="o_proj" in n or "down_proj" in n)[r] for n, a in blocks.items()})
    for n in ("self_attn.q_proj", "mlp.gate_proj"):
        with pytest.raises(weft.InvalidError, match="another number of dims than its rule"):
            reshard({n + ".weight_scale": np.ones(1, np.float32)})


def test_experts(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {"model.layers.0.block_sparse_moe.gate.weight": rng.random((4, 8), np.float32)}
    for e in range(4):
        at = f"model.layers.0.block_sparse_moe.experts.{e}."
        arrays |= {at + "w1.weight": rng.random((12, 8), np.float32), at + "w2.weight": rng.random((8, 12), np.float32)}
    safetensors.save_file(arrays, str(tmp_path / "in.safetensors"))
    weft.reshard_checkpoint(tmp_path / "in.safetensors", tmp_path / "out", "ep2.tp2", rules="moe")
    for rank in range(4):
        e, t = divmod(rank, 2)
        want = {}
        for name, a in arrays.items():
            words = name.split(".")
            if "experts" not in name:
                want[name] = a
            elif int(words[5]) // 2 == e:
                want[name] = np.split(a, 2, axis=1 if "w2" in name else 0)[t]
        same(rank_file(tmp_path / "out", rank, 4), want)


def test_index_and_cast(model, tmp_path):
    arrays, folder = model
    weft.reshard_checkpoint(folder, tmp_path / "shards", "tp1", shard=20000)
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2 and index["metadata"]["total_size"] == sum(a.nbytes for a in arrays.values())
    for name, file in index["weight_map"].items():
        assert name in safetensors.load_file(str(tmp_path / "shards" / file))
    weft.reshard_checkpoint(tmp_path / "shards", tmp_path / "half.safetensors", "tp1", dtype="f16")
    same(safetensors.load_file(str(tmp_path / "half.safetensors")), {n: a.astype(np.float16) for n, a in arrays.items()})


def test_mistakes(model, tmp_path):
    _, folder = model
    with pytest.raises(weft.InvalidError, match="no rules"):
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp2")
    with pytest.raises(weft.InvalidError, match="zero byte"):
        weft.reshard_checkpoint(folder, f"{tmp_path}/out\0.safetensors", "tp1")
    with pytest.raises(weft.InvalidError, match="fused is 'yes'"):
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp1", fused="yes")
    with pytest.raises(weft.InvalidError, match="no dtype 'float'"):
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp1", dtype="float")
    with pytest.raises(weft.InvalidError, match="nowhere: No such file"):
        weft.reshard_checkpoint(tmp_path / "nowhere", tmp_path / "out", "tp1")
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(weft.InvalidError, match="bad.safetensors: its header would have"):
        weft.reshard_checkpoint(tmp_path / "bad.safetensors", tmp_path / "out", "tp1")
    weft.reshard_checkpoint(folder, tmp_path / "out", "tp1")
    with pytest.raises(weft.InvalidError, match="not empty"):
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp1")
    weft.reshard_checkpoint(folder, tmp_path / "out", "tp1", force=True)


def test_rules_come_along():
    rules = weft.checkpoint_rules()
    assert set(rules) == {"gpt2", "gpt_oss", "llama", "megatron", "moe"} and all("[/tp" in text for text in rules.values())


def test_progress(model, tmp_path):
    """It is told in the caller's thread, and what it raises stops the work."""
    _, folder = model
    heard = []
    weft.reshard_checkpoint(folder, tmp_path / "a", "tp2", rules="llama", progress=lambda d, n: heard.append((threading.get_ident(), d, n)))
    assert heard and all(t == threading.get_ident() and 0 <= d <= n for t, d, n in heard)

    def refuse(done, size):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        weft.reshard_checkpoint(folder, tmp_path / "b", "tp2", rules="llama", progress=refuse)
    # The last word may come when all is written: then it is there, complete.
    assert sorted(p.name for p in tmp_path.iterdir()) in (["a", "model"], ["a", "b", "model"])


def test_interrupt(tmp_path):
    """A signal's handler runs while it works, and nothing is left."""
    code = """
import signal, sys, numpy as np, safetensors.numpy, weft
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored
safetensors.numpy.save_file({"a": np.zeros((1 << 17, 256), np.float32)}, "in.safetensors")
try:
    sys.stdout.write("go\\n"); sys.stdout.flush()
    while True:
        weft.reshard_checkpoint("in.safetensors", "out", "tp1", memory=1 << 20, threads=1, force=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert out == "interrupted\n" and child.returncode == 0
    assert {p.name for p in tmp_path.iterdir()} <= {"in.safetensors", "out"}


def test_interrupt_at_any_time(tmp_path):
    """Also one that strikes when the library is about to tell of its progress."""
    source = tmp_path / "in.safetensors"
    safetensors.save_file({"a": np.zeros((1 << 17, 256), np.float32)}, str(source))

    class Interrupt(Exception):
        pass

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(10):
            with pytest.raises(Interrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                while True:
                    weft.reshard_checkpoint(source, tmp_path / "out", "tp1", memory=1 << 20, threads=1, force=True)
                    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0, "the interrupt was lost"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert {p.name for p in tmp_path.iterdir()} <= {"in.safetensors", "out"}


def test_the_command(model, tmp_path):
    """weft checkpoint gives the same files."""
    command = pathlib.Path(sys.executable).with_name("weft")
    if not command.exists():
        pytest.skip("the package was not installed by pip: there is no command weft beside python")
    _, folder = model
    weft.reshard_checkpoint(folder, tmp_path / "a", "tp2.pp2", rules="llama")
    done = subprocess.run([str(command), "checkpoint", str(folder), str(tmp_path / "b"), "--to", "tp2.pp2", "--rules", "llama"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# ---- rules by model_type, and names that no rule knows ----


def save_model(tmp_path, shapes, config):
    rng = np.random.default_rng(7)
    arrays = {name: rng.integers(-100, 100, shape).astype(np.float32) for name, shape in shapes.items()}
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file(arrays, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder, arrays


GPT_OSS = {
    "model.layers.0.self_attn.q_proj.weight": ((32, 16), (0, None)),
    "model.layers.0.self_attn.q_proj.bias": ((32,), (0, None)),
    "model.layers.0.self_attn.o_proj.weight": ((16, 32), (1, None)),
    "model.layers.0.self_attn.o_proj.bias": ((16,), None),
    "model.layers.0.self_attn.sinks": ((8,), (0, None)),
    "model.layers.0.mlp.router.weight": ((4, 16), None),
    "model.layers.0.mlp.experts.gate_up_proj": ((4, 16, 48), (2, 0)),
    "model.layers.0.mlp.experts.gate_up_proj_bias": ((4, 48), (1, 0)),
    "model.layers.0.mlp.experts.down_proj_blocks": ((4, 16, 2, 8), (2, 0)),
    "model.layers.0.mlp.experts.down_proj_scales": ((4, 16, 2), (2, 0)),
    "model.layers.0.input_layernorm.weight": ((16,), None),
    "model.norm.weight": ((16,), None),
}


def test_gpt_oss_by_its_model_type(tmp_path):
    """Experts are split over ep and tp, sinks with their heads; (dim of tp, dim of ep) of each tensor is in the table."""
    folder, arrays = save_model(tmp_path, {n: s for n, (s, _) in GPT_OSS.items()}, CONFIG | {"model_type": "gpt_oss"})
    weft.reshard_checkpoint(folder, tmp_path / "out", "ep2.tp2")
    for r in range(4):
        mine = rank_file(tmp_path / "out", r, 4)
        for name, (_, cut) in GPT_OSS.items():
            expected = arrays[name]
            if cut is not None:
                expected = np.split(expected, 2, axis=cut[0])[r % 2]
                expected = expected if cut[1] is None else np.split(expected, 2, axis=cut[1])[r // 2]
            assert np.array_equal(mine[name], expected), name
    weft.reshard_checkpoint(tmp_path / "out", tmp_path / "whole.safetensors", "tp1")
    same(safetensors.load_file(str(tmp_path / "whole.safetensors")), arrays)


MEGATRON_GROUPS, MEGATRON_HEADS, MEGATRON_DIM = 4, 3, 2  # groups; query heads of each; positions of a head


def megatron_layer(at, rng):
    """A layer's q, k, v, gate and up as they are computed with, and Megatron's fused tensors of them."""
    q = rng.integers(-99, 99, (MEGATRON_GROUPS, MEGATRON_HEADS * MEGATRON_DIM, 16)).astype(np.float32)
    k, v = (rng.integers(-99, 99, (MEGATRON_GROUPS, MEGATRON_DIM, 16)).astype(np.float32) for _ in range(2))
    gate, up = (rng.integers(-99, 99, (24, 16)).astype(np.float32) for _ in range(2))
    fused = {at + "self_attention.linear_qkv.weight": np.concatenate([q, k, v], axis=1).reshape(-1, 16), at + "mlp.linear_fc1.weight": np.concatenate([gate, up])}
    return (q, k, v, gate, up), fused


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_megatron_splits_groups_of_heads_and_both_halves(tmp_path, tp):
    """Each rank can compute with what it has: whole groups of q, k and v, and its rows of gate and of up."""
    rng = np.random.default_rng(tp)
    parts, tensors = {}, {"embedding.word_embeddings.weight": (32, 16), "output_layer.weight": (32, 16), "decoder.final_layernorm.weight": (16,)}
    for i in range(2):
        at = f"decoder.layers.{i}."
        tensors |= {at + "self_attention.linear_proj.weight": (16, 24), at + "self_attention.linear_qkv.layer_norm_weight": (16,), at + "mlp.linear_fc2.weight": (16, 24)}
        tensors |= {at + "mlp.linear_fc1.layer_norm_weight": (16,), at + "mlp.experts.local_experts.3.linear_fc1.weight": (8, 16), at + "mlp.router.weight": (4, 16)}
    arrays = {n: rng.integers(-99, 99, shape).astype(np.float32) for n, shape in tensors.items()}
    for i in range(2):
        parts[i], fused = megatron_layer(f"decoder.layers.{i}.", rng)
        arrays |= fused
    safetensors.save_file(arrays, str(tmp_path / "m.safetensors"))
    weft.reshard_checkpoint(tmp_path / "m.safetensors", tmp_path / "out", f"pp2.tp{tp}", rules="megatron", values={"num_query_groups": MEGATRON_GROUPS})
    for r in range(2 * tp):
        mine, layer, t = rank_file(tmp_path / "out", r, 2 * tp), r // tp, r % tp
        at, (q, k, v, gate, up) = f"decoder.layers.{layer}.", parts[layer]
        local = mine[at + "self_attention.linear_qkv.weight"].reshape(MEGATRON_GROUPS // tp, -1, 16)
        for found, whole in zip(np.split(local, [MEGATRON_HEADS * MEGATRON_DIM, (MEGATRON_HEADS + 1) * MEGATRON_DIM], axis=1), (q, k, v)):
            assert np.array_equal(found, np.split(whole, tp)[t])
        for found, whole in zip(np.split(mine[at + "mlp.linear_fc1.weight"], 2), (gate, up)):
            assert np.array_equal(found, np.split(whole, tp)[t])
        expert = at + "mlp.experts.local_experts.3.linear_fc1.weight"
        assert np.array_equal(mine[expert], np.concatenate([np.split(half, tp)[t] for half in np.split(arrays[expert], 2)]))
        for name, axis in (("self_attention.linear_proj.weight", 1), ("mlp.linear_fc2.weight", 1)):
            assert np.array_equal(mine[at + name], np.split(arrays[at + name], tp, axis=axis)[t])
        for name in ("self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight", "mlp.router.weight"):
            assert np.array_equal(mine[at + name], arrays[at + name])
        assert ("embedding.word_embeddings.weight" in mine, "output_layer.weight" in mine) == (layer == 0, layer == 1)
    weft.reshard_checkpoint(tmp_path / "out", tmp_path / "whole.safetensors", "tp1")
    same(safetensors.load_file(str(tmp_path / "whole.safetensors")), arrays)


def test_megatron_does_not_cut_a_group(tmp_path):
    _, fused = megatron_layer("decoder.layers.0.", np.random.default_rng(1))
    safetensors.save_file(fused, str(tmp_path / "m.safetensors"))
    with pytest.raises(weft.InvalidError, match="linear_qkv"):
        weft.reshard_checkpoint(tmp_path / "m.safetensors", tmp_path / "out", "tp3", rules="megatron", values={"num_query_groups": MEGATRON_GROUPS})


def test_gpt2_by_its_model_type(tmp_path):
    """Conv1D's weights are [in, out], and q, k and v are side by side in one."""
    shapes = {"wte.weight": (25, 16), "wpe.weight": (8, 16), "ln_f.weight": (16,), "ln_f.bias": (16,)}
    for i in range(2):
        at = f"h.{i}."
        shapes |= {at + "ln_1.weight": (16,), at + "attn.c_attn.weight": (16, 48), at + "attn.c_attn.bias": (48,)}
        shapes |= {at + "attn.c_proj.weight": (16, 16), at + "attn.c_proj.bias": (16,), at + "attn.bias": (1, 1, 8, 8)}
        shapes |= {at + "mlp.c_fc.weight": (16, 64), at + "mlp.c_fc.bias": (64,), at + "mlp.c_proj.weight": (64, 16)}
    folder, arrays = save_model(tmp_path, shapes, {"model_type": "gpt2", "n_head": 4})
    weft.reshard_checkpoint(folder, tmp_path / "out", "pp2.tp2")
    for r in range(4):
        mine, at, t = rank_file(tmp_path / "out", r, 4), f"h.{r // 2}.", r % 2
        qkv = np.split(arrays[at + "attn.c_attn.weight"], 3, axis=1)
        assert np.array_equal(mine[at + "attn.c_attn.weight"], np.concatenate([np.split(x, 2, axis=1)[t] for x in qkv], axis=1))
        assert np.array_equal(mine[at + "mlp.c_proj.weight"], np.split(arrays[at + "mlp.c_proj.weight"], 2)[t])
        assert ("wte.weight" in mine, "ln_f.bias" in mine) == (r < 2, r >= 2) and f"h.{1 - r // 2}.ln_1.weight" not in mine
    weft.reshard_checkpoint(tmp_path / "out", tmp_path / "whole.safetensors", "tp1")
    same(safetensors.load_file(str(tmp_path / "whole.safetensors")), arrays)


@pytest.mark.parametrize("kind", ["mamba2", "llava", "qwen2_5_vl", "gpt_neox"])
def test_a_model_type_without_rules_is_named(tmp_path, kind):
    folder, _ = save_model(tmp_path, {"w": (4, 4)}, {"model_type": kind})
    with pytest.raises(weft.InvalidError, match=f"no rules for the model_type '{kind}': give rules, a file or one of gpt2, gpt_oss"):
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp2")


@pytest.mark.parametrize(
    "rules, name, shape",
    [
        ("llama", "model.layers.0.mlp.experts.0.gate_proj.weight", (8, 8)),
        ("llama", "model.layers.0.block_sparse_moe.experts.0.w1.weight", (8, 8)),
        ("moe", "model.layers.0.mlp.experts.gate_up_proj", (4, 8, 8)),
        ("moe", "model.layers.0.self_attn.sinks", (8,)),
        ("llama", "backbone.layers.0.mixer.in_proj.weight", (8, 8)),
        ("llama", "model.layers.0.mixer.A_log", (8,)),
        ("llama", "language_model.model.layers.0.self_attn.q_proj.weight", (32, 8)),
        ("llama", "model.visual.blocks.0.attn.qkv.weight", (8, 8)),
        ("llama", "transformer.h.0.attn.c_attn.weight", (8, 24)),
        ("llama", "model.layers.0.self_attn.q_proj.lora_A.weight", (8, 8)),
    ],
)
def test_a_name_that_no_rule_knows_is_refused(tmp_path, rules, name, shape):
    """These were copied whole to all ranks, without a word, or are refused as before."""
    folder, _ = save_model(tmp_path, {"model.norm.weight": (8,), name: shape}, CONFIG)
    with pytest.raises(weft.InvalidError) as refused:
        weft.reshard_checkpoint(folder, tmp_path / "out", "tp2", rules=rules)
    text = str(refused.value)
    assert f"no rule of {rules} matches its name" in text and text.split("'")[1].split(".")[-1] in text and not (tmp_path / "out").exists()


def test_model_types_of_llama_and_moe_choose_rules(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file(llama(), str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "qwen3"}))
    weft.reshard_checkpoint(folder, tmp_path / "a", "tp4")
    weft.reshard_checkpoint(folder, tmp_path / "b", "tp4", rules="llama")
    for r in range(4):
        same(rank_file(tmp_path / "a", r, 4), rank_file(tmp_path / "b", r, 4))


def test_a_dcp_folder_is_refused_by_name(tmp_path):
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").write_bytes(b"\x80\x04")
    (tmp_path / "dcp" / "__0_0.distcp").write_bytes(b"")
    with pytest.raises(weft.UnsupportedError, match=r"Distributed Checkpoint \(DCP\).*: read it by weft.dcp in Python"):
        weft.reshard_checkpoint(tmp_path / "dcp", tmp_path / "out", "tp2", rules="llama")
