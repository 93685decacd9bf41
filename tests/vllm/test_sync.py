"""A trainer of four processes and the real vLLM: after each sync, what is served is what a vLLM serves that loaded the same weights from a file."""

import json
import os
import pathlib
import re

import pytest
import tiny
from engine import Process
from trainer import Trainer

SYNCS = 3


def checkpoints(name, folder, count=SYNCS):
    """Versions, each as a folder for vLLM; the tensors of the last one."""
    for step in range(1, count + 1):
        tensors = tiny.save(name, folder / f"v{step}", seed=100 + step)
    return tensors


def load_and_ask(folder, ranks, count=SYNCS):
    """What vLLM answers with each version, loaded from its file."""
    with Process(folder / "answers", ranks, models=[str(folder / f"v{step}") for step in range(1, count + 1)]) as engine:
        engine.ready(timeout=200 * count)
        found = json.loads((folder / "answers").read_text())
    assert len({str(answer) for answer in found}) == count  # the weights matter
    return found


def wanted_bytes(tensors, name, ranks):
    """The fewest bytes that must be read in f32: the tensors that all ranks need whole, and the others once. Keys and values are on several
    ranks if there are more ranks than heads."""
    heads = tiny.CONFIGS[name][1].get("num_key_value_heads", ranks)
    total = 0
    for path, t in tensors.items():
        copies = 1
        if t.dim() < 2 or ".gate.weight" in path:
            copies = ranks
        elif "k_proj" in path or "v_proj" in path:
            copies = max(1, ranks // heads)
        total += 4 * t.numel() * copies
    return total


def read_bytes(path, ranks):
    text = "".join(pathlib.Path(f"{path}.{rank}").read_text() for rank in range(ranks))
    return sum(int(n) for n in re.findall(r'weft_bus_data_bytes_total\{path="(?:mapped|tcp)"\} (\d+)', text))


# Experts are with one rank alone: vLLM's own reload, which the answers of two ranks come from, does not pack their weights again on the CPU.
CASES = [("llama", 1), ("llama", 2), ("qwen3", 1), ("qwen3", 2), ("llama-tied", 1), ("qwen3-moe", 1)]


@pytest.mark.parametrize("name,ranks", CASES, ids=[f"{name}-{ranks}" for name, ranks in CASES])
def test_three_syncs(name, ranks, tmp_path, note):
    tensors = checkpoints(name, tmp_path)
    loaded = load_and_ask(tmp_path, ranks)
    bus = f"file:{tmp_path}/bus"
    path = tmp_path / "engine"
    metrics = tmp_path / "metrics"
    served = dict(model=str(tmp_path / "v1"), backend="weft", load_format="dummy")
    with Process(path, ranks, **served) as engine, Trainer(tmp_path / "t1", bus=bus, set="policy") as trainer:
        trainer.do("load", str(tmp_path / "v1" / "model.safetensors"))
        engine.ready()
        trainer.do("init", str(path), {"metrics": str(metrics)})
        assert engine.generate() != loaded[0]  # nothing comes before it is asked for
        for step in range(1, SYNCS + 1):
            trainer.do("load", str(tmp_path / f"v{step}" / "model.safetensors"))
            trainer.do("send")
            assert engine.generate() == loaded[step - 1], step
            assert engine.weight_version() == f"1.{step}"
        engine.ask("shutdown_weight_transfer_engine")  # which writes the metrics
    fewest = SYNCS * wanted_bytes(tensors, name, ranks)
    read = read_bytes(metrics, ranks)
    note(f"{name}, trainer of 4, engine of {ranks}: read {read} bytes in {SYNCS} syncs, {read / fewest:.4f} of the fewest")
    assert fewest <= read <= 1.01 * fewest


@pytest.mark.parametrize("ranks", [1, 2])
def test_faults(ranks, tmp_path):
    """The trainer is killed in the middle of a commit, the engine is killed; each starts again and goes on."""
    checkpoints("llama", tmp_path, 2)
    first, second = (str(tmp_path / f"v{step}" / "model.safetensors") for step in (1, 2))
    loaded = load_and_ask(tmp_path, ranks, 2)
    served = dict(model=str(tmp_path / "v1"), backend="weft", load_format="dummy")
    bus = f"file:{tmp_path}/bus"
    path = tmp_path / "engine"
    with Process(path, ranks, **served) as engine:
        with Trainer(tmp_path / "t1", bus=bus, set="policy") as trainer:
            trainer.do("load", first)
            engine.ready()
            trainer.do("init", str(path), {"timeout": 20})
            trainer.do("send")
            assert engine.generate() == loaded[0]
            trainer.do("load", second)
            answers = trainer.do("die_in_commit")
            assert answers[-1] is None and answers[0] == [1, 2]
            engine.start_weight_update()
            with pytest.raises(RuntimeError, match="step 2|version|timed out"):
                engine.update_weights({"step": 2, "epoch": 1})
            assert engine.generate() == loaded[0]  # the old weights serve
            assert engine.weight_version() == "1.1"
        with Trainer(tmp_path / "t2", bus=bus, set="policy") as trainer:
            trainer.do("load", second)
            trainer.do("init", str(path), {"timeout": 20})
            assert engine.generate() == loaded[0]
            trainer.do("send")
            assert engine.generate() == loaded[1]
            assert engine.weight_version() == "2.1"
            engine.close()
            with Process(tmp_path / "again", ranks, **served) as again:
                again.ready().init_weight_transfer_engine({"bus": bus, "set": "policy"})
                again.start_weight_update()
                again.update_weights({"step": 1})
                again.finish_weight_update("2.1")
                assert again.generate() == loaded[1]
    assert not os.path.exists(path)
