"""weft.verl with verl's own base class, registry, manager and ShardSpec: whole tensors and shards of an actor come to rollout workers, bit by bit."""

import asyncio
import importlib.util
import subprocess
import sys

import pytest

import weft
from parts import free_port

NEEDS = [name for name in ("torch", "verl", "ray", "PIL") if importlib.util.find_spec(name) is None]
needs_verl = pytest.mark.skipif(bool(NEEDS), reason=f"{', '.join(NEEDS)} cannot be imported: verl is not tried (VERL=yes make test-python installs it)")

SHAPES = {"embed.weight": (97, 12), "up.weight": (24, 12), "norm.weight": (12,), "scale": (), "steps": (3,)}


def state_of(step):
    import torch

    made = torch.Generator().manual_seed(step)
    out = {name: torch.randn(shape, generator=made) for name, shape in SHAPES.items() if name != "steps"}
    return {**out, "steps": torch.full((3,), step)}


def engine(url, **more):
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.utils.import_utils import import_external_libs

    import_external_libs("weft.verl")  # what verl does with custom_backend_module
    return CheckpointEngineRegistry.new("weft", **{"bucket_size": 2000, "bus": url, "timeout": 60, **more})


class Group:
    """What verl's manager asks of a group of workers, in this process."""

    def __init__(self, engines):
        self.engines, self.world_size = engines, len(engines)

    def execute_checkpoint_engine(self, method, **lists):
        return [getattr(e, m)(**{k: v[i] for k, v in lists.items()}) for i, (e, m) in enumerate(zip(self.engines, method))]


@pytest.fixture
def meet(monkeypatch):
    """verl's own build_process_group, without ray's processes."""
    from verl.checkpoint_engine import base
    from verl.workers.config import CheckpointEngineConfig

    monkeypatch.setattr(base.ray, "get", lambda results: results)

    def build(actors, rollouts):
        config = CheckpointEngineConfig(backend="weft", custom_backend_module="weft.verl")
        manager = base.CheckpointEngineManager(config, Group(actors), [])
        manager.build_process_group(Group(rollouts))

    return build


async def received(worker, step):
    """What verl's server adapter gets, by verl's own iteration."""
    from verl.workers.rollout.utils import ensure_async_iterator

    return {name: tensor.clone() async for name, tensor in ensure_async_iterator(worker.receive_weights(global_steps=step))}


def same(got, whole, dtype=None):
    import torch

    assert list(got) == list(whole)
    for name, t in whole.items():
        expected = t.to(dtype) if dtype is not None and t.is_floating_point() else t
        assert got[name].dtype == expected.dtype and torch.equal(got[name], expected), name


@needs_verl
def test_whole_tensors(tmp_path, meet):
    """verl's generator, of which the first rank of the actor publishes all. Three syncs, and one of a step that is not higher."""
    import torch
    from verl.checkpoint_engine.base import CheckpointEngine

    url = f"file:{tmp_path}/directory"
    actors = [engine(url, is_master=r == 0, dtype="bf16") for r in range(2)]
    rollouts = [engine(url) for _ in range(3)]
    assert all(isinstance(e, CheckpointEngine) and e.wire_format == "named_tensors" for e in actors + rollouts)

    async def sync(step):
        meet(actors, rollouts)
        weights = [((name, t.clone()) for name, t in state_of(step).items()) for _ in actors]
        return await asyncio.gather(*(a.send_weights(w, global_steps=step) for a, w in zip(actors, weights)), *(received(r, step) for r in rollouts))

    try:
        for step in (1, 2, 5, 3):
            metrics, nothing, *got = asyncio.run(sync(step))
            assert metrics["weft/sent_bytes"] == 2 * (97 * 12 + 24 * 12 + 12 + 1) + 8 * 3 and nothing == {}
            for one in got:
                same(one, state_of(step), torch.bfloat16)
            for e in actors + rollouts:
                e.finalize()
        late = engine(url)  # finds the version between two syncs
        late.init_process_group(0, 1, rollouts[0]._sync)
        same(asyncio.run(received(late, 3)), state_of(3), torch.bfloat16)
        late.close()
    finally:
        for e in actors + rollouts:
            e.close()


@needs_verl
def test_mistakes(tmp_path, meet):
    import torch

    url = f"file:{tmp_path}/directory"
    actor, rollout, other = engine(url, is_master=True), engine(url, timeout=0.2), engine(url, set="another")
    with pytest.raises(weft.MismatchError, match="engine_kwargs.weft must be the same"):
        meet([actor], [rollout, other])
    meet([actor], [rollout])
    with pytest.raises(weft.TimeoutError, match="has not published this sync within 0.2 s"):
        asyncio.run(received(rollout, 1))
    with pytest.raises(weft.InvalidError, match="'w' comes twice"):
        asyncio.run(actor.send_weights(iter([("w", torch.ones(2)), ("w", torch.ones(2))]), 1))
    asyncio.run(actor.send_weights(iter([("w", torch.ones(2))]), 1))
    with pytest.raises(weft.MismatchError, match="published step 1, and this worker was asked for 2"):
        asyncio.run(received(rollout, 2))
    same(asyncio.run(received(rollout, 1)), {"w": torch.ones(2)})
    for e in (actor, rollout, other):
        e.close()


# ---- shards ----


class Trainer:
    """A training engine: its shards as verl's engines export them."""

    def __init__(self, shards):
        self.shards = shards

    def get_per_tensor_param_shard(self):
        return iter(self.shards), None


def experts(step):
    import torch

    return torch.randn(8, 6, 4, generator=torch.Generator().manual_seed(100 + step))


def to_hf(start, rows):
    """Each expert's rows are gate and up, which the checkpoint has apart."""
    for e, row in enumerate(rows, start):
        yield f"experts.{e}.gate", row[:3]
        yield f"experts.{e}.up", row[3:]


def shard_rank(comm, port, url):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from verl.workers.engine.spec import BlockPlacement, ShardSpec

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    flat, grid = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    actor = engine(url, is_master=comm.rank == 0)
    rollout = engine(url) if comm.rank == 0 else None

    def shards(step):
        whole = state_of(step)
        placed = {"embed.weight": (flat, [Shard(0)]), "up.weight": (grid, [Shard(1), Shard(0)]), "norm.weight": (grid, [Shard(0), Replicate()])}
        for name, (mesh, placements) in placed.items():
            t = distribute_tensor(whole[name], mesh, placements)
            yield name, t.to_local().reshape(-1), ShardSpec.from_param(t)
        for name in ("scale", "steps"):
            yield name, whole[name], ShardSpec.from_param(whole[name])
        rows = slice(2 * comm.rank, 2 * comm.rank + 2)
        block = BlockPlacement((2, 6, 4), (2 * comm.rank, 0, 0), (8, 6, 4))
        spec = ShardSpec((8, 6, 4), place=block, to_hf_chunk=to_hf, hf_slots=[(n, tuple(t.shape)) for n, t in to_hf(0, experts(step))])
        yield "experts", experts(step)[rows].reshape(-1), spec
        cut = BlockPlacement((4, 6, 2), (4 * (comm.rank // 2), 0, 2 * (comm.rank % 2)), (8, 6, 4))
        mine = experts(step + 50)[cut.global_offset[0] :][:4, :, cut.global_offset[2] :][:, :, :2]
        yield "stack", mine.reshape(-1), ShardSpec((8, 6, 4), place=cut, hf_slots=[(f"stack.{e}", (6, 4)) for e in range(8)])
        if step == 3:  # uneven blocks, which no mesh has
            begin, end = [(0, 1), (1, 4), (4, 6), (6, 8)][comm.rank]
            yield "rows", experts(step)[begin:end].reshape(-1), ShardSpec((8, 6, 4), place=24 * begin)
        else:
            yield "rows", experts(step)[rows].reshape(-1), ShardSpec((8, 6, 4), place=48 * comm.rank)

    async def sync(step, names):
        told, _ = type(actor).build_topology(4, 1, [actor.prepare()] * 5)
        syncs = [None]
        syncs[0] = told["sync"][0]
        dist.broadcast_object_list(syncs, src=0)
        actor.init_process_group(comm.rank, 4, syncs[0])
        sends = actor.send_weights(Trainer(s for s in shards(step) if s[0] not in names), global_steps=step)
        if rollout is None:
            return await sends, None
        rollout.init_process_group(0, 1, syncs[0])
        return await asyncio.gather(sends, received(rollout, step))

    try:
        for step in (1, 2, 3):
            _, got = asyncio.run(sync(step, ["rows"] if step == 2 else []))
            assert actor._lends == (step < 3)
            if got is not None:
                whole = dict(state_of(step))
                whole.update({name: t for name, t in to_hf(0, experts(step))})
                whole.update({f"stack.{e}": t for e, t in enumerate(experts(step + 50))})
                if step != 2:
                    whole["rows"] = experts(step)
                same({name: got[name] for name in whole}, whole)
                assert len(got) == len(whole)
            dist.barrier()  # the loan of this rank lasts until all have fetched
        told = asyncio.run(refused(actor, comm))
        dist.barrier()
    finally:
        for e in (actor, rollout):
            if e is not None:
                e.close()
        dist.destroy_process_group()
    return told


async def refused(actor, comm):
    """A shard that no rank has, one that is cut where it is converted, and one that is so on rank 1 alone."""
    import torch
    from verl.workers.engine.spec import BlockPlacement, ShardSpec

    half = ShardSpec((4, 3), place=BlockPlacement((1, 3), (comm.rank, 0), (4, 3)), contributes=comm.rank != 2)
    cut = ShardSpec((4, 3), place=BlockPlacement((4, 1), (0, 0), (4, 3)), to_hf_chunk=to_hf)
    out = []
    good = ShardSpec((4, 3), place=BlockPlacement((1, 3), (comm.rank, 0), (4, 3)))
    for name, spec in (("half", half), ("cut", cut), ("one", cut if comm.rank == 1 else good)):
        try:
            await actor.send_weights(Trainer([(name, torch.zeros(spec.place.local_shape).reshape(-1), spec)]), 9)
        except weft.Error as error:
            out.append(f"{type(error).__name__}: {error}")
    return out


@needs_verl
def test_shards(tmp_path):
    """Each rank publishes what it has; fused experts become the checkpoint's tensors."""
    told = weft.spawn(shard_rank, 4, free_port(), f"file:{tmp_path}/directory", method="forkserver", timeout=240)
    for rank, (half, cut, one) in enumerate(told):
        assert half.startswith("InvalidError: 'half': the shards of the actor's ranks are not the whole tensor once: ")
        assert cut.startswith("UnsupportedError: 'cut' is converted row by row, and this rank has (4, 1)")
        assert one.startswith("" if rank == 1 else "PeerError: rank 1 of the actor has failed, so none publishes: ") and "UnsupportedError: 'one' is converted" in one


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import weft; assert 'verl' not in sys.modules; import weft.verl"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "ImportError: weft.verl needs PyTorch and verl 0.9 or later" in done.stderr, done.stderr
