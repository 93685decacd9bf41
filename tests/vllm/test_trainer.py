"""The trainer's side alone: sources of whole tensors, and an engine that refuses."""

import pytest
import torch
import weft
import weft.vllm
from vllm.distributed.weight_transfer import base


class Whole(base.WeightSource):
    """Gives whole tensors; counts how often all of them were taken."""

    def __init__(self, tensors):
        self.tensors, self.passes = tensors, 0

    def metadata(self):
        return []

    def __iter__(self):
        yield from self.tensors.items()
        self.passes += 1


class Client:
    def __init__(self, error=None):
        self.told, self.error = [], error

    def init_weight_transfer_engine(self, info):
        if self.error:
            raise self.error
        self.told.append(info)


def begin(bus, tensors, rank=0, error=None):
    info = weft.vllm.TrainerInitInfo(bus=bus, set="policy", rank=rank, ranks=2, run="a")
    return weft.vllm.Trainer.trainer_init(info, client=Client(error), source=Whole(tensors))


def test_rank_0_publishes_a_source_of_whole_tensors(tmp_path):
    bus = f"file:{tmp_path}/bus"
    other = begin(bus, {"w": torch.ones(4)}, rank=1)
    assert other.source.passes == 1 and other._publisher is None and other._tensors() == {}
    sender = begin(bus, {"w": torch.nn.Parameter(torch.ones(4))})
    assert sender.client.told == [{"bus": bus, "set": "policy"}]
    with weft.bus(bus) as reader:
        assert list(reader.describe("policy", timeout=10)) == ["w"]
    sender.shutdown()


def test_shards_with_layouts(tmp_path):
    """As of weft.megatron.Names: one array under two names."""
    bus, fused = f"file:{tmp_path}/bus", torch.arange(8.0)
    layouts = {name: weft.boxes("f32", [4], [0], [[0]], [[4]], [offset]) for name, offset in (("gate", 0), ("up", 4))}
    source = weft.vllm.Shards(lambda: {"gate": fused, "up": fused}, layouts)
    assert [(m.name, m.dtype, m.shape) for m in source.metadata()] == [("gate", torch.float32, (4,)), ("up", torch.float32, (4,))]
    with pytest.raises(weft.InvalidError, match="are not gathered"):
        list(source)
    info = weft.vllm.TrainerInitInfo(bus=bus, set="policy", rank=0, dtype="bf16")
    sender = weft.vllm.Trainer.trainer_init(info, client=Client(), source=source)
    got = {name: torch.zeros(4) for name in layouts}
    with weft.bus(bus) as reader, reader.subscribe("policy", got, into=got) as sub:
        sub.swap(sub.fetch(timeout=10))
    assert got["gate"].tolist() == [0, 1, 2, 3] and got["up"].tolist() == [4, 5, 6, 7]
    sender.shutdown()


def test_a_tensor_that_rank_0_lacks_is_named(tmp_path):
    with pytest.raises(weft.InvalidError, match="none for b: use weft.vllm.Shards"):
        begin(f"file:{tmp_path}/bus", {"a": torch.ones(4), "b": None})


def test_nothing_stays_open_when_the_engine_refuses(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(weft.vllm.Trainer, "shutdown", lambda self, real=weft.vllm.Trainer.shutdown: (real(self), closed.append(self)))
    with pytest.raises(RuntimeError, match="no engine"):
        begin(f"file:{tmp_path}/bus", {"a": torch.ones(4)}, error=RuntimeError("no engine"))
    assert [t._publisher for t in closed] == [None]
