"""From a trainer with Megatron's fused tensors to vLLM's own model classes: the names and shapes are those of the checkpoint, and what comes is what load_weights gives."""

import json
import pathlib
import sys

import pytest
import tiny
import torch
import weft
import weft.megatron
import weft.torch
from test_loaders import alone, make  # noqa: F401
from vllm.config import set_current_vllm_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from test_megatron import ranks_state  # noqa: E402

CASES = [
    ("llama", {"tp": 2, "pp": 2}),
    ("llama-tied", {}),
    ("qwen2", {"tp": 4}),
    ("qwen3", {"tp": 2}),
    ("qwen3-moe", {"tp": 2, "ep": 2}),
    ("mixtral", {"pp": 2, "ep": 2}),
]
RANKS = 4


@pytest.mark.parametrize("name,how", CASES, ids=[name for name, _ in CASES])
def test_from_megatron(name, how, alone, tmp_path, monkeypatch):  # noqa: F811
    size = 2
    weights = tiny.save(name, tmp_path, seed=1)
    config = json.loads((tmp_path / "config.json").read_text())
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    names = weft.megatron.Names(config, RANKS, vocab_multiple=16, **how)
    assert {n: l.shape for n, l in names.layouts.items()} == {n: tuple(w.shape) for n, w in weights.items()}
    wanted, models, records = [], [], []
    for rank in range(size):
        loaded, made = make(tmp_path, rank, size, monkeypatch)
        with set_current_vllm_config(made):
            loaded.load_weights(iter(weights.items()))
        fresh, made = make(tmp_path, rank, size, monkeypatch)
        with set_current_vllm_config(made):
            records.append(weft.torch.record(fresh.load_weights, {n: (l.shape, torch.float32) for n, l in names.layouts.items()}, into=fresh))
        wanted.append(loaded)
        models.append(fresh)
    layouts = weft.torch.join(dict(enumerate(records)))
    plan = weft.lower({key: (names.layouts[key.partition(" -> ")[0]], which) for key, which in layouts.items()})
    wholes = {n: w.numpy() for n, w in weights.items()}

    def rank_main(comm):
        mine = names.arrays(comm.rank, ranks_state(wholes, config, comm.rank, RANKS, **how))
        given = {key: mine[key.partition(" -> ")[0]].reshape(-1) for key in layouts if key.partition(" -> ")[0] in mine}
        with plan.bind(comm, given, records[comm.rank].arrays(layouts) if comm.rank < size else {}) as bound:
            bound.run(timeout=60)

    tiny.on_threads(RANKS, f"megatron-{name}", rank_main)
    for rank, (got, want) in enumerate(zip(models, wanted)):
        mine = {**dict(got.named_buffers()), **dict(got.named_parameters())}
        for path, p in [*want.named_buffers(), *want.named_parameters()]:
            assert torch.equal(p, mine[path]), (path, rank)
