"""Checkpoints of torch.distributed.checkpoint: what weft writes torch reads, and what torch writes weft reads, in any layout."""

import importlib.util
import os
import pickle
import random

import numpy as np
import pytest

import weft
from parts import free_port, part, share

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: no checkpoints of DCP are tried", allow_module_level=True)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as torch_dcp  # noqa: E402

import weft.dcp  # noqa: E402

SHAPES = {"embed": (13, 6), "up": (8, 6), "bias": (5,), "scale": (), "none": (0, 3)}


def state_of(seed):
    made = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=made) for name, shape in SHAPES.items()}


def random_layout(rng, shape, ranks, dtype="f32"):
    """A mesh of some of the ranks, with some dims cut, also in blocks; or boxes that are rows."""
    if shape and rng.random() < 0.25 and 0 not in shape:
        cuts = sorted(rng.sample(range(1, shape[0]), min(rng.randrange(3), shape[0] - 1)))
        ends = [0, *cuts, shape[0]]
        at = [(a, *([0] * (len(shape) - 1))) for a in ends[:-1]]
        size = [(b - a, *shape[1:]) for a, b in zip(ends, ends[1:])]
        return weft.boxes(dtype, shape, [rng.randrange(ranks) for _ in at], at, size)
    axes = [("a", rng.choice([1, 2])), ("b", rng.choice([1, ranks // 2]))]
    dims = []
    free = [name for name, _ in axes]
    for n in shape:
        text = str(n)
        if free and rng.random() < 0.6:
            text += "/" + free.pop(rng.randrange(len(free))) + rng.choice(["", ":2"])
        dims.append(text)
    size = axes[0][1] * axes[1][1]
    return weft.layout(f"{dtype}[{','.join(dims)}] @{'.'.join(n + str(k) for n, k in axes)}={','.join(map(str, rng.sample(range(ranks), size)))}")


def flat_part(layout, rank, array):
    """What the rank holds: by brute force."""
    if layout.mesh:
        return part(layout, rank, array)
    boxes = [array[tuple(slice(a, a + n) for a, n in zip(b.at, b.len))].reshape(-1) for b in layout.boxes(rank)]
    return np.concatenate([np.zeros(0, array.dtype), *boxes])


def save_rank(comm, path, seed):
    rng = random.Random(seed)
    whole = {name: t.numpy() for name, t in state_of(seed).items()}
    which = {name: random_layout(rng, a.shape, comm.size) for name, a in whole.items()}
    state = {name: (flat_part(w, comm.rank, whole[name]), w) for name, w in which.items() if w.local(comm.rank).elements or not whole[name].size}
    weft.dcp.save(path, {"model": state, "step": seed, "plain": np.arange(4)}, comm=comm)
    other = {name: random_layout(rng, a.shape, comm.size, "f64") for name, a in whole.items()}
    mine = {name: (np.zeros(w.local(comm.rank).shape if w.mesh else w.local(comm.rank).elements, np.float64), w) for name, w in other.items()}
    got = weft.dcp.load(path, {"model": mine, "step": None, "plain": np.zeros(4)}, rank=comm.rank)
    for name, (array, w) in mine.items():
        assert np.array_equal(array, flat_part(w, comm.rank, whole[name])), (name, which[name], w)
    return got["step"] == seed and np.array_equal(got["plain"], np.arange(4))


@pytest.mark.parametrize("seed", range(share(4, 40)))
def test_torch_reads_what_weft_writes(tmp_path, seed):
    """From random layouts of 4 ranks, read by weft into others, and by torch as whole tensors."""
    assert weft.spawn(save_rank, 4, str(tmp_path / "ckpt"), seed, method="forkserver", timeout=120) == [True] * 4
    whole = state_of(seed)
    got = {"model": {name: torch.zeros_like(t) for name, t in whole.items()}, "step": -1, "plain": torch.zeros(4, dtype=torch.int64)}
    torch_dcp.load(got, checkpoint_id=tmp_path / "ckpt", no_dist=True)
    assert got["step"] == seed and got["plain"].tolist() == [0, 1, 2, 3]
    for name, t in whole.items():
        assert torch.equal(got["model"][name], t), name
    for name, w in weft.dcp.layouts(tmp_path / "ckpt").items():  # each element is in one box
        if name != "plain" and np.prod(w.shape):
            assert sum(int(np.prod(b.len)) for r in w.ranks for b in w.boxes(r)) == np.prod(w.shape)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(tmp_path / "ckpt", tmp_path / "one.pt")  # its own tool, by the paths of the metadata
    one = torch.load(tmp_path / "one.pt", weights_only=True)
    assert one["step"] == seed and all(torch.equal(one["model"][name], t) for name, t in whole.items())


def torch_rank(comm, port, path):
    """DTensors of torch's job, written by torch and by weft, read by weft and by torch."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    grid, line = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), init_device_mesh("cpu", (4,))
    whole = {name: t for name, t in state_of(3).items() if t.ndim and t.numel()}
    src = {name: distribute_tensor(t, grid, [Shard(0), Shard(1) if t.ndim > 1 else Replicate()]) for name, t in whole.items()}
    made = {"model": src, "optimizer": {"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"lr": 0.5, "params": [0, 1]}]}}
    torch_dcp.save(made, checkpoint_id=path + "-torch")
    weft.dcp.save(path + "-weft", made)
    for kind in ("torch", "weft"):
        for load in ("torch", "weft"):
            mine = {name: distribute_tensor(torch.zeros_like(t), line, [Shard(t.ndim - 1)]) for name, t in whole.items()}
            optimizer = {"state": {0: {"step": torch.tensor(0.0)}}, "param_groups": [{"lr": 0.0, "params": []}]}
            got = {"model": mine, "optimizer": optimizer}
            if load == "weft":
                assert weft.dcp.load(f"{path}-{kind}", got) is got
            else:
                torch_dcp.load(got, checkpoint_id=f"{path}-{kind}")
            for name, t in whole.items():
                assert torch.equal(mine[name].to_local(), distribute_tensor(t, line, [Shard(t.ndim - 1)]).to_local()), (kind, load, name)
            assert optimizer == {"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"lr": 0.5, "params": [0, 1]}]}, (kind, load)
    dist.destroy_process_group()
    return True


def test_dtensors(tmp_path):
    assert weft.spawn(torch_rank, 4, free_port(), str(tmp_path / "ckpt"), method="forkserver", timeout=240) == [True] * 4


# ---- one process ----


@pytest.fixture
def folder(tmp_path):
    torch_dcp.save({"a": torch.arange(6.0).reshape(2, 3), "b": {"c": torch.ones(2, dtype=torch.bfloat16), "n": 3}}, checkpoint_id=tmp_path / "ckpt", no_dist=True)
    return tmp_path / "ckpt"


def test_layouts(folder):
    assert {name: repr(w) for name, w in weft.dcp.layouts(folder).items()} == {"a": "f32[2,3] @{0: [:,:]}", "b.c": "bf16[2] @{0: [:]}"}


def test_boxes_with_strides(tmp_path, folder):
    """A transposed weight in the middle of a flat array, both ways; and the bits of bf16."""
    turned = weft.boxes("f32", (2, 3), [0], [(0, 0)], [(2, 3)], offset=[4], stride=[(1, 2)])
    flat = np.full(12, -1, np.float32)
    raw = np.zeros(2, np.uint16)
    weft.dcp.load(folder, {"a": (flat, turned), "b": {"c": weft.bits(raw, "bf16"), "n": 0}})
    assert flat.tolist() == [-1, -1, -1, -1, 0, 3, 1, 4, 2, 5, -1, -1] and raw.tolist() == [0x3F80] * 2
    weft.dcp.save(tmp_path / "new", {"a": (flat, turned), "c": weft.bits(raw, "bf16")})
    got = {"a": torch.zeros(2, 3), "c": torch.zeros(2, dtype=torch.bfloat16)}
    torch_dcp.load(got, checkpoint_id=tmp_path / "new", no_dist=True)
    assert got["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and got["c"].tolist() == [1, 1]


def test_a_checkpoint_on_the_bus(folder, tmp_path):
    """What a checkpoint has, as a version: cast, on two ranks."""
    state = {"a": torch.zeros(2, 3), "b.c": torch.zeros(2, dtype=torch.bfloat16), "b.n": None}
    weft.dcp.load(folder, state)
    tensors = {name: t for name, t in state.items() if isinstance(t, torch.Tensor)}
    with weft.bus(f"file:{tmp_path}/bus") as bus, bus.publish("policy", tensors) as pub:
        pub.put(0, tensors)
        pub.commit(0)
        half = np.zeros((2, 2), np.float16)
        with bus.subscribe("policy", {"a": "f16[2,3/x] @x2"}, only=True, into={"a": half}) as sub:
            sub.swap(sub.fetch(timeout=60))
        assert half.tolist() == [[0, 1], [3, 4]]


def test_names_and_shapes_that_differ(folder):
    state = {"a": torch.zeros(2, 3), "b": {"d": torch.zeros(2)}}
    text = "has no 'b.d'; it has 'b.c', 'b.n', which was not asked for"
    with pytest.raises(weft.MismatchError) as caught:
        weft.dcp.load(folder, state)
    assert text in str(caught.value) and not state["a"].any()
    with pytest.warns(UserWarning, match="left out, since strict=False") as warned:
        weft.dcp.load(folder, state, strict=False)
    assert text in str(warned[0].message) and warned[0].filename == __file__
    assert state["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(weft.MismatchError, match=r"'a' is \(2, 3\) there and \(3, 2\) here"):
        weft.dcp.load(folder, {"a": torch.zeros(3, 2), "b": {"c": torch.zeros(2), "n": 0}})
    with pytest.raises(weft.MismatchError, match="'b.n': a tensor on one side"):
        weft.dcp.load(folder, {"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": torch.zeros(1)}})


class Bomb:
    def __reduce__(self):
        return os.mkdir, (self.where,)


@pytest.mark.parametrize("where", ["metadata", "value"])
def test_no_code_of_a_checkpoint_runs(tmp_path, folder, where):
    bomb = Bomb()
    bomb.where = str(tmp_path / "ran")
    state = {"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": 0}}
    if where == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(bomb))
    else:
        state["x"] = None
        torch_dcp.save({"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": 0}, "x": bomb}, checkpoint_id=folder, no_dist=True)
    with pytest.raises(weft.UnsupportedError, match="mkdir|run code"):
        weft.dcp.load(folder, state)
    assert not (tmp_path / "ran").exists()


def test_no_class_of_dcp_is_changed(folder):
    """A pickle can set attributes of what it names, without calling anything."""
    module = "torch.distributed.checkpoint.metadata"
    (folder / ".metadata").write_bytes(f"c{module}\nMetadata\n(N}}Vstrange\nI1\nsV__init__\nI1\nstb.".encode())
    with pytest.raises(weft.UnsupportedError, match="changes classes of DCP"):
        weft.dcp.layouts(folder)
    assert not hasattr(torch_dcp.Metadata, "strange") and callable(torch_dcp.Metadata.__init__)


DAMAGED = {
    "no dict": lambda m, a, info: setattr(m, "state_dict_metadata", []),
    "no chunk object": lambda m, a, info: setattr(a, "chunks", [3]),
    "chunk outside": lambda m, a, info: setattr(a.chunks[0], "offsets", torch.Size([0, 1])),
    "negative size": lambda m, a, info: setattr(a, "size", torch.Size([2, -3])),
    "no dtype": lambda m, a, info: setattr(a, "properties", 3),
    "negative place": lambda m, a, info: setattr(info, "offset", -5),
    "a text as place": lambda m, a, info: setattr(info, "offset", "5"),
    "huge": lambda m, a, info: setattr(info, "length", 10**30),
    "twice": lambda m, a, info: a.chunks.__setitem__(slice(None), [torch_dcp.ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([1, 3]))] * 2),
}


@pytest.mark.parametrize("what", list(DAMAGED))
def test_metadata_that_lies_is_refused(folder, what):
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    (info,) = [info for index, info in metadata.storage_data.items() if index.fqn == "a"]
    DAMAGED[what](metadata, metadata.state_dict_metadata["a"], info)
    path.write_bytes(pickle.dumps(metadata))
    state = {"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": 0}}
    for call in (lambda: weft.dcp.load(folder, state), lambda: weft.dcp.layouts(folder)):
        with pytest.raises(weft.InvalidError, match="damaged|no metadata|once"):
            call()
    assert not state["a"].any()


def test_a_file_that_is_cut_is_named(folder):
    (file,) = folder.glob("*.distcp")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(weft.InvalidError, match="a file is damaged"):
        weft.dcp.load(folder, {"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": 0}})


@pytest.mark.parametrize("what", ["no metadata", "cut", "outside", "gap", "no chunk"])
def test_what_is_damaged_is_refused(tmp_path, folder, what):
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    text = {"no metadata": "it is no checkpoint of DCP", "cut": "it is damaged", "outside": "is not in the folder", "gap": "once", "no chunk": "no file has"}[what]
    if what == "no metadata":
        path.unlink()
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        index = next(i for i in metadata.storage_data if i.fqn == "a")
        if what == "outside":
            metadata.storage_data[index].relative_path = "../" + metadata.storage_data[index].relative_path
        elif what == "gap":
            metadata.state_dict_metadata["a"].chunks[0].sizes = torch.Size([1, 3])
        else:
            del metadata.storage_data[index]
        path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(weft.InvalidError, match=text):
        weft.dcp.load(folder, {"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2), "n": 0}})
    with pytest.raises(weft.InvalidError, match=text):
        weft.dcp.layouts(folder)


def test_save_refuses(tmp_path, folder):
    with pytest.raises(weft.InvalidError, match="there is a checkpoint already"):
        weft.dcp.save(folder, {"a": torch.zeros(1)})
    weft.dcp.save(folder, {"a": torch.full((1,), 5.0)}, overwrite=True)
    got = {"a": torch.zeros(1)}
    assert weft.dcp.load(folder, got) is got and got["a"].item() == 5
    with pytest.raises(weft.InvalidError, match="'x': neither tensors nor"):
        weft.dcp.save(tmp_path / "new", {"x": print})
    with pytest.raises(weft.UnsupportedError, match="'g': .* has ghosts"):
        weft.dcp.save(tmp_path / "new", {"g": (np.zeros(10, np.float32), weft.layout("f32[8~1] @x1"))})
    two = weft.boxes("f32", (4,), [0, 0], [(0,), (1,)], [(3,), (3,)], overlaps=True)
    for path in (tmp_path / "new", folder):
        with pytest.raises(weft.UnsupportedError, match="not the whole tensor once"):
            weft.dcp.save(path, {"o": (np.zeros(6, np.float32), two)}, overwrite=True)
    assert not (tmp_path / "new" / ".metadata").exists()
    assert weft.dcp.load(folder, got) is got  # what is refused replaces nothing
    flat, gaps = weft.boxes("f32", (2, 3), [0], [(0, 0)], [(2, 3)]), np.zeros(12, np.float32)[::2]
    with pytest.raises(weft.UnsupportedError, match="save 'a': .*the array must have no gaps"):
        weft.dcp.save(tmp_path / "new", {"a": (gaps, flat)})
    weft.dcp.save(tmp_path / "new", {"a": torch.ones(2, 3)})
    with pytest.raises(weft.UnsupportedError, match="load 'a': .*the array must have no gaps"):
        weft.dcp.load(tmp_path / "new", {"a": (gaps, flat)})


def differ_rank(comm, path):
    text = "f32[4/x] @x2" if comm.rank == 0 else "f32[4/x] @x2=1,0"
    out = []
    for state in ({"w": (np.zeros(2, np.float32), weft.layout(text))}, {"w": np.zeros(3), "bad": print if comm.rank == 1 else 0}):
        try:
            weft.dcp.save(path, state, comm=comm)
        except weft.Error as error:
            out.append(f"{type(error).__name__}: {error}")
    return out


def test_all_ranks_are_told(tmp_path):
    (first, other), (second, own) = weft.spawn(differ_rank, 2, str(tmp_path / "ckpt"), method="forkserver", timeout=120)
    assert first == second == "MismatchError: 'w': rank 0 has f32[4/x] @x2, and rank 1 has f32[4/x] @x2=1,0"
    assert other == "InvalidError: rank 1: save: 'bad': neither tensors nor numbers, texts and lists of them: leave them out"
    assert own == other.replace("rank 1: ", "") and not (tmp_path / "ckpt" / ".metadata").exists()
