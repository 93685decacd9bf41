"""weft.torch.record on the loaders of vLLM's own model classes: what weft moves is what load_weights gives, element by element.

A model of rank r of n is made in this one process: vLLM asks its group for tensor parallelism who it is, and the test answers.
"""

import numpy as np
import pytest
import tiny
import torch
import weft
import weft.torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

REQUIRED = ["llama", "llama-tied", "qwen3"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """vLLM's groups, for one process."""
    from vllm.config import VllmConfig

    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{tmp_path_factory.mktemp('group')}/store", 0, "gloo")
        parallel_state.initialize_model_parallel(1)
        yield
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def make(folder, rank, size, monkeypatch):
    """The model of one rank, with parameters that nothing has been written to."""
    config = EngineArgs(model=str(folder), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16").create_engine_config()
    for group in (parallel_state._TP, parallel_state._EP):
        if group is not None:
            monkeypatch.setattr(group, "world_size", size)
            monkeypatch.setattr(group, "rank_in_group", rank)
    config.parallel_config.tensor_parallel_size = size
    with set_current_vllm_config(config), set_default_torch_dtype(torch.bfloat16):
        made = initialize_model(config)
    with torch.no_grad():
        for p in made.parameters():
            p.fill_(-1)
    return made, config


def cut(name, whole, ranks):
    """How a trainer of 4 ranks (2 by FSDP, 2 by tensor parallelism) has a tensor."""
    dims = list(map(str, whole.shape))
    if len(dims) > 1:
        dims[0] += "/d"
        dims[1] += "/t"
    elif dims:
        dims[0] += "/d/t"
    return weft.layout(f"f32[{','.join(dims)}] @d2.t2")


def move(name, records, wholes):
    """From a trainer's layouts to where the records want them, with threads as ranks."""
    
    layouts = weft.torch.join(dict(enumerate(records)))
    of = {key: wholes[key.partition(" -> ")[0]] for key in layouts}
    src = {key: cut(key, w, 4) for key, w in of.items()}
    plan = weft.lower({key: (src[key], layouts[key]) for key in layouts})

    def rank_main(comm):
        given = {}
        for key, w in of.items():
            given[key] = np.zeros(src[key].local(comm.rank).shape, np.float32)
            for box in src[key].boxes(comm.rank):
                here = tuple(slice(a, a + n) for a, n in zip(box.local, box.len))
                given[key][here] = w[tuple(slice(a, a + n) for a, n in zip(box.at, box.len))]
        with plan.bind(comm, given, records[comm.rank].arrays(layouts) if comm.rank < len(records) else {}) as bound:
            bound.run(timeout=60)

    tiny.on_threads(4, name, rank_main)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", list(tiny.CONFIGS))
def test_what_moves_is_what_load_weights_gives(name, size, alone, tmp_path, monkeypatch, note):
    weights = tiny.save(name, tmp_path, seed=size)
    shapes = {n: (w.shape, w.dtype) for n, w in weights.items()}
    wanted, models, records = [], [], []
    for rank in range(size):
        try:
            loaded, config = make(tmp_path, rank, size, monkeypatch)
        except Exception as error:
            if name in REQUIRED:
                raise
            note(f"vLLM cannot make {name} here: {type(error).__name__}: {str(error).splitlines()[0]}")
            pytest.skip(f"vLLM cannot make {name} on this processor: {error}")
        with set_current_vllm_config(config):
            loaded.load_weights(iter(weights.items()))
        fresh, config = make(tmp_path, rank, size, monkeypatch)
        with set_current_vllm_config(config):
            records.append(weft.torch.record(fresh.load_weights, shapes, into=fresh))
        wanted.append(loaded)
        models.append(fresh)
    move(f"{name}-{size}", records, {n: w.numpy() for n, w in weights.items()})
    boxes, whole = sum(len(w.at) for r in records for w in r.wants), sum(len(r.refused) for r in records)
    for rank, (got, want) in enumerate(zip(models, wanted)):
        mine = {**dict(got.named_buffers()), **dict(got.named_parameters())}
        for path, p in [*want.named_buffers(), *want.named_parameters()]:
            assert torch.equal(p, mine[path]), (path, rank)
    note(f"{name}, {size} ranks: {len(shapes)} tensors, {boxes} boxes, {whole} come whole")
