"""weft.store: state dicts under keys, as users of torchstore know them, compared with the arrays that were put."""

import asyncio
import importlib.util
import json
import random
import warnings

import numpy as np
import pytest

import weft
import weft.store
from parts import free_port, share

DEADLINE = 60  # seconds; what is waited for comes, on a loaded machine, too


@pytest.fixture
def url(tmp_path):
    return f"file:{tmp_path}/directory"


def weights(step):
    return {"embed": (np.arange(24, dtype=np.float32) + step).reshape(4, 6), "bias": np.full(5, step, np.float64), "count": np.array(step)}


def same(a, b):
    """The same tree, with the same types and bits."""
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(b, dict):
        return isinstance(a, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_walk(url):
    with weft.store.Store(url) as trainer, weft.store.Store(url, torch=False) as server:
        assert not server.exists("policy")
        with pytest.raises(weft.TimeoutError):
            server.get_state_dict("policy", timeout=0.05)
        mine = {name: np.zeros_like(array) for name, array in weights(0).items()}
        for step in range(3):
            assert trainer.put_state_dict(weights(step), "policy") == weft.Version(1, step)
            assert same(server.get_state_dict("policy", timeout=DEADLINE), weights(step))
            assert server.get_state_dict("policy", mine, timeout=DEADLINE)["embed"] is mine["embed"]
            assert same(mine, weights(step))
        assert same(server.get_state_dict("policy", mine, version=1, timeout=DEADLINE), weights(1))
        assert [v.version.step for v in server.versions("policy")] == [1, 2] and server.exists("policy")
        assert trainer.put_state_dict(weights(9), "policy", version=9) == (1, 9)
        with pytest.raises(weft.TimeoutError):
            server.get_state_dict("policy", mine, version=">=10", timeout=0.05)
        assert same(mine, weights(1))  # nothing is written where nothing came
        with pytest.raises(weft.InvalidError, match="has put nothing under 'policy'"):
            server.delete("policy")
        trainer.delete("policy")
        assert not server.exists("policy")


@pytest.mark.parametrize("nested", [False, True])
def test_newer(url, nested):
    """Than what the same tensors have, also beside values that are no tensors."""
    with weft.store.Store(url, torch=False) as there, weft.store.Store(url, torch=False) as here:
        mine = {"w": np.zeros(3), **({"step": None} if nested else {})}
        for step in range(3):
            state = {"w": np.full(3, float(step)), **({"step": step} if nested else {})}
            there.put_state_dict(state, "k")
            assert same(here.get_state_dict("k", mine, version="newer", timeout=DEADLINE), state)
            with pytest.raises(weft.TimeoutError):
                here.get_state_dict("k", mine, version="newer", timeout=0.05)


class Late(weft.store.Store):
    """A reader between whose look at a key and whose fetch somebody puts."""

    def _fetch(self, *args, **how):
        self.put_meanwhile()
        return super()._fetch(*args, **how)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("later", [{"w": np.ones(3), "step": "long " * 40}, {"w": np.ones(3), "step": 1, "b": np.ones(2)}, {"w": np.ones(3), "b": np.ones(2)}])
def test_other_tensors_come_while_a_reader_waits(url, later, strict):
    """Values that have become longer come; names that nobody asked for are told."""
    with weft.store.Store(url) as there, Late(url, torch=False) as here:
        puts = iter([lambda: there.put_state_dict(later, "k")])
        here.put_meanwhile = lambda: next(puts, lambda: None)()
        first = {"w": np.zeros(3), **({"step": 0} if "step" in later else {})}
        there.put_state_dict(first, "k")
        mine = {**first, "w": np.full(3, 7.0)}
        if "b" not in later:
            assert same(here.get_state_dict("k", mine, strict, timeout=DEADLINE), later)
        elif strict:
            with pytest.raises(weft.MismatchError, match="it has 'b', which was not asked for"):
                here.get_state_dict("k", mine, timeout=DEADLINE)
            assert mine["w"].tolist() == [7, 7, 7]
        else:
            with pytest.warns(UserWarning, match="it has 'b', which was not asked for"):
                here.get_state_dict("k", mine, False, timeout=DEADLINE)
            assert mine["w"].tolist() == [1, 1, 1]


def test_other_tensors_begin_an_epoch(url):
    with weft.store.Store(url, torch=False) as store:
        assert store.put_state_dict({"w": np.zeros(3)}, "k") == (1, 0)
        assert store.put_state_dict({"w": np.ones(3)}, "k") == (1, 1)
        assert store.put_state_dict({"w": np.ones(4), "b": np.ones(2)}, "k") == (2, 2)
        assert same(store.get_state_dict("k", timeout=DEADLINE), {"w": np.ones(4), "b": np.ones(2)})
        assert [v.version for v in store.versions("k")] == [(2, 2)]


def random_state(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 5) if depth else 5
    if kind < 3:
        shape = [rng.randrange(4) for _ in range(rng.randrange(3))]
        return np.array(rng.choices(range(100), k=int(np.prod(shape, dtype=int)))).astype(rng.choice(["f4", "i8", "u1"])).reshape(shape)
    if kind < 5:
        return rng.choice([None, True, 7, -0.5, "a text", "", 2**70])
    if kind < 7:
        keys = rng.sample(["a", "b.c", "state", 0, 17, "weight"], rng.randrange(4))
        return {key: random_state(rng, depth + 1) for key in keys}
    return rng.choice([list, tuple])(random_state(rng, depth + 1) for _ in range(rng.randrange(3)))


@pytest.mark.parametrize("seed", range(share(12, 100)))
def test_any_state_dict_comes_back(url, seed):
    """Also what is no tensor, keys that are ints, lists, and tensors without dims or elements."""
    rng = random.Random(seed)
    state = random_state(rng)
    with weft.store.Store(url, torch=False) as store:
        store.put_state_dict(state, "k")
        got = store.get_state_dict("k", timeout=DEADLINE)
        assert same(got, state), (got, state)


def test_names_that_differ_are_listed(url):
    with weft.store.Store(url, torch=False) as store:
        there = {"a": np.ones(2), "b": {"c": np.ones(3), "lr": 0.5}}
        store.put_state_dict(there, "k")
        mine = {"a": np.zeros(2), "b": {"d": np.zeros(3)}, "e": np.zeros(1)}
        text = "'k' has no 'b.d', 'e'; it has 'b.c', 'b.lr', which was not asked for"
        with pytest.raises(weft.MismatchError) as caught:
            store.get_state_dict("k", mine, timeout=DEADLINE)
        assert text in str(caught.value) and not mine["a"].any()
        with pytest.warns(UserWarning) as warned:
            got = store.get_state_dict("k", mine, strict=False, timeout=DEADLINE)
        assert text in str(warned[0].message) and warned[0].filename == __file__
        assert same(got, {"a": np.ones(2), "b": {"lr": 0.5}}) and mine["a"].all()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            full = {"a": np.zeros(2), "b": {"c": np.zeros(3), "lr": None}}
            assert same(store.get_state_dict("k", full, strict=False, timeout=DEADLINE), there)
            store.put_state_dict({"a": np.ones(2), "says": [1, [2, "x"]]}, "lists")  # a list without tensors is one value
            assert store.get_state_dict("lists", {"a": np.zeros(2), "says": None}, timeout=DEADLINE)["says"] == [1, [2, "x"]]
        with pytest.raises(weft.MismatchError, match="'a'"):
            store.get_state_dict("k", {"a": np.zeros(3), "b": {"c": np.zeros(3), "lr": 0}}, timeout=DEADLINE)


@pytest.mark.parametrize(
    "state, text",
    [
        ({"a": {"f": print}}, "'a.f' is of the type builtin_function_or_method"),
        ({"a": {1.5: np.ones(1)}}, "'a' has the key 1.5"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "two tensors have the name 'a.b'"),
        ({"weft.values": np.ones(1)}, "the name 'weft.values', which the store itself uses"),
    ],
)
def test_what_cannot_be_put_is_named(url, state, text):
    with weft.store.Store(url) as store:
        with pytest.raises(weft.InvalidError) as caught:
            store.put_state_dict(state, "k")
        assert text in str(caught.value) and not store.exists("k")


def test_single_tensors_and_slices(url, rng):
    whole = np.arange(7 * 5 * 3, dtype=np.int32).reshape(7, 5, 3)
    with weft.store.Store(url, torch=False) as store:
        store.put("t", whole)
        assert same(store.get("t", timeout=DEADLINE), whole)
        for _ in range(8):
            at = [rng.randrange(n) for n in whole.shape]
            shape = [rng.randint(1, n - a) for n, a in zip(whole.shape, at)]
            part = whole[tuple(slice(a, a + n) for a, n in zip(at, shape))]
            into = np.zeros(shape, np.float64)
            assert same(store.get("t", tensor_slice_spec=(at, shape), timeout=DEADLINE), np.ascontiguousarray(part))
            assert store.get("t", into, (at, shape), timeout=DEADLINE) is into and np.array_equal(into, part)
        with pytest.raises(weft.InvalidError, match="the slice has the shape"):
            store.get("t", np.zeros((2, 2, 2), np.int32), ((0, 0, 0), (1, 1, 1)), timeout=DEADLINE)
        store.put("number", {"lr": 0.25})
        assert store.get("number", timeout=DEADLINE) == {"lr": 0.25}
        store.put_state_dict(weights(1), "policy")
        with pytest.raises(weft.InvalidError, match="state dict of 3 tensors, .*: use get_state_dict"):
            store.get("policy", timeout=DEADLINE)


# ---- folders of safetensors ----


def save_file(path, tensors, header=None):
    """A file as the safetensors library writes it; NumPy's types alone."""
    names, entries, at = {"f4": "F32", "i8": "I64", "u1": "U8", "f2": "F16"}, {}, 0
    for name, a in tensors.items():
        entries[name] = {"dtype": names[a.dtype.str[1:]], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header(entries) if header else entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values()))


def hub_folder(path):
    """Two files and their index, as on the Hub."""
    parts = [
        {"a.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "odd": np.arange(3, dtype=np.uint8), "late": np.arange(4)},
        {"b.weight": np.arange(6, dtype=np.float16).reshape(2, 3)},
    ]
    path.mkdir()
    where = {}
    for i, tensors in enumerate(parts):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        save_file(path / file, tensors, lambda h: {"__metadata__": {"format": "pt"}, **h})
        where.update({name: file for name in tensors})
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return {**parts[0], **parts[1]}


def test_folder(url, tmp_path):
    whole = hub_folder(tmp_path / "hub")
    with weft.store.Store(url, torch=False) as there, weft.store.Store(url, torch=False) as here:
        assert there.put_folder(tmp_path / "hub", "base") == (1, 0)
        assert same(here.get_state_dict("base", timeout=DEADLINE), whole)
        half = np.zeros((3, 2), np.float32)  # a rank of two
        mine = {"a.weight": (half, weft.layout("f32[3,4/x] @x2=0,7"))}
        with pytest.warns(UserWarning, match="'b.weight', 'late', 'odd'"):
            here.get_state_dict("base", mine, strict=False, timeout=DEADLINE)
        assert np.array_equal(half, whole["a.weight"][:, :2])
        assert there.put_folder(tmp_path / "hub" / "model-00002-of-00002.safetensors", "base", transfer_dtype="f32") == (2, 1)
        assert same(here.get_state_dict("base", timeout=DEADLINE), {"b.weight": whole["b.weight"].astype(np.float32)})
        assert there.put_state_dict({"w": np.ones(2)}, "base") == (3, 2)
        there.delete("base")
        assert not here.exists("base")


def test_folder_of_the_library(url, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no bf16 is written")
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: no file of it is read")
    whole = {"w": torch.randn(5, 3).to(torch.bfloat16), "s": torch.randn(2).to(torch.float8_e4m3fn), "b": torch.tensor([True, False])}
    library.save_file(whole, tmp_path / "model.safetensors")
    with weft.store.Store(url) as store:
        store.put_folder(tmp_path / "model.safetensors", "k")
        got = store.get_state_dict("k", timeout=DEADLINE)
        assert got.keys() == whole.keys()
        for name, t in whole.items():
            assert got[name].dtype == t.dtype and torch.equal(got[name].view(torch.uint8), t.view(torch.uint8)), name


@pytest.mark.parametrize(
    "what, text",
    [
        ("no file", "the files 'model-00002-of-00002.safetensors' are not there"),
        ("no tensor", "the files do not have 'gone' where it says"),
        ("not named", "it does not name 'b.weight'"),
        ("outside", "files that are not in the folder"),
        ("no index", "it has no weight_map"),
        ("twice", "tensor 'b.weight' is in model-00002-of-00002.safetensors and in model.safetensors"),
        ("span", "its data_offsets do not span"),
        ("long", "its header is longer than the file"),
        ("text", "its header is not JSON"),
        ("dtype", "is of the type F4"),
        ("deep", "its header is not JSON"),
        ("dims", "there are no arrays of the shape"),
        ("empty", "there is no file NAME.safetensors in it"),
    ],
)
def test_folders_that_lie_are_refused(url, tmp_path, what, text):
    folder = tmp_path / "hub"
    hub_folder(folder)
    index, last = folder / "model.safetensors.index.json", folder / "model-00002-of-00002.safetensors"
    where, b = json.loads(index.read_text())["weight_map"], {"b.weight": np.zeros((2, 3), np.float16)}
    if what == "no file":
        last.unlink()
    elif what in ("no tensor", "not named", "outside"):
        change = {"no tensor": {"gone": last.name}, "outside": {"b.weight": "../" + last.name}}.get(what)
        where = {**where, **change} if change else {n: f for n, f in where.items() if n != "b.weight"} | {"x": last.name}
        index.write_text(json.dumps({"weight_map": where}))
    elif what == "no index":
        index.write_text("[]")
    elif what == "twice":
        index.unlink()
        save_file(folder / "model.safetensors", b)
    elif what == "empty":
        for file in folder.iterdir():
            file.unlink()
    elif what == "long":
        last.write_bytes(b"\xff" * 7)
    elif what == "deep":
        last.write_bytes((10**5).to_bytes(8, "little") + b"[" * 10**5)
    elif what == "dims":
        save_file(last, {"b.weight": np.zeros(1, np.float16)}, lambda h: {n: {**e, "shape": [1] * 65} for n, e in h.items()})
    elif what == "text":
        last.write_bytes((4).to_bytes(8, "little") + b"[1,]")
    else:
        change = {"span": {"shape": [2, 4]}, "dtype": {"dtype": "F4"}}[what]
        save_file(last, b, lambda h: {n: {**e, **change} for n, e in h.items()})
    with weft.store.Store(url) as store:
        with pytest.raises(weft.Error) as caught:
            store.put_folder(folder, "base")
        assert text in str(caught.value) and not store.exists("base")


def test_coroutines(url):
    async def main():
        with pytest.raises(weft.InvalidError, match="initialize"):
            await weft.store.exists("k")
        await weft.store.initialize(url, torch=False)
        try:
            with pytest.raises(weft.InvalidError, match="already"):
                await weft.store.initialize(url)
            await weft.store.put_state_dict(weights(3), "policy")
            await weft.store.put("t", np.arange(4.0))
            assert await weft.store.exists("t") and len(await weft.store.versions("t")) == 1
            assert same(await weft.store.get_state_dict("policy", timeout=DEADLINE), weights(3))
            assert same(await weft.store.get("t", timeout=DEADLINE), np.arange(4.0))
            await weft.store.delete("t")
            assert not await weft.store.exists("t")
        finally:
            await weft.store.shutdown()

    asyncio.run(main())


def test_ranks_need_a_name(url):
    with weft.store.Store(url, rank=0, ranks=2) as store, pytest.raises(weft.InvalidError, match="2 ranks need run="):
        store.put("k", np.ones(2))
    with pytest.raises(weft.InvalidError, match="rank 2 of 2"):
        weft.store.Store(url, rank=2, ranks=2)


# ---- PyTorch ----


def state_of(torch, step):
    made = torch.Generator().manual_seed(step)
    shapes = {"embed": (97, 12), "up": (24, 12), "norm": (12,), "down": (12, 24), "scale": ()}
    return {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}


def shardings(rng, ndim, mesh_ndim):
    from torch.distributed.tensor import Replicate, Shard

    return [Shard(rng.randrange(ndim)) if ndim and rng.random() < 0.7 else Replicate() for _ in range(mesh_ndim)]


def torch_rank(comm, port, url, seed):
    """Ranks of a trainer on a mesh of 2 x 2, and of a server on a mesh of 4, which are one job of torch here."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    rng = random.Random(seed)
    here, there = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    placed = {name: shardings(rng, t.ndim, 2) for name, t in state_of(torch, 0).items()}
    wanted = {name: shardings(rng, t.ndim, 1) for name, t in state_of(torch, 0).items()}
    with weft.store.Store(url) as store:
        assert (store.rank, store.ranks) == (comm.rank, comm.size)
        for step in range(2):
            whole = state_of(torch, step)
            src = {name: distribute_tensor(t, here, placed[name]) for name, t in whole.items()}
            src["buffer"] = torch.full((3,), float(step))  # plain: the same on all ranks
            store.put_state_dict({"model": src, "step": step}, "policy", transfer_dtype=torch.bfloat16 if step else None)
            dst = {name: distribute_tensor(torch.zeros_like(t), there, wanted[name]) for name, t in whole.items()}
            dst["buffer"] = torch.zeros(3)
            got = store.get_state_dict("policy", {"model": dst, "step": None}, version=step, timeout=DEADLINE)
            assert got["step"] == step and got["model"]["norm"] is dst["norm"]
            alone = store.get_state_dict("policy", version=step, timeout=DEADLINE)["model"]
            comm.barrier()  # nobody puts the next version while another one asks for this one by "latest"
            for name, t in {**whole, "buffer": src["buffer"]}.items():
                sent = t.to(torch.bfloat16) if step else t
                assert alone[name].dtype == sent.dtype and torch.equal(alone[name], sent), name
                expected = sent.float() if name == "buffer" else distribute_tensor(sent.float(), there, wanted[name]).to_local()
                mine = dst[name] if name == "buffer" else dst[name].to_local()
                assert torch.equal(mine, expected), (name, placed.get(name), wanted.get(name))
        epoch = store.versions("policy")[-1].version.epoch
        comm.barrier()
        again = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))  # another object, and the same ranks
        src = {name: distribute_tensor(t, again, placed[name]) if name in placed else t for name, t in {**whole, "buffer": src["buffer"]}.items()}
        assert store.put_state_dict({"model": src, "step": 2}, "policy", transfer_dtype=torch.bfloat16) == (epoch, 2)
        comm.barrier()
    dist.destroy_process_group()
    return True


@pytest.mark.parametrize("seed", range(share(1, 6)))
def test_dtensors_in_any_sharding_out(tmp_path, seed):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: no DTensors are put")
    assert weft.spawn(torch_rank, 4, free_port(), f"file:{tmp_path}/directory", seed, method="forkserver", timeout=240) == [True] * 4


def test_module(url):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no module is put")
    trainer, server = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(trainer.parameters())
    trainer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    with weft.store.Store(url) as store:
        store.put_state_dict({"model": trainer.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint")
        got = store.get_state_dict("checkpoint", timeout=DEADLINE)
        server.load_state_dict(got["model"])
        other = torch.optim.AdamW(server.parameters())
        other.load_state_dict(got["optimizer"])
        for net, opt in ((trainer, optimizer), (server, other)):
            opt.zero_grad()
            net(torch.ones(2, 4)).square().sum().backward()
            opt.step()
        assert all(torch.equal(a, b) for a, b in zip(trainer.parameters(), server.parameters()))
        store.put_state_dict(trainer.state_dict(), "policy")
        store.get_state_dict("policy", dict(server.named_parameters()), timeout=DEADLINE)  # parameters, in place
        assert torch.equal(server.weight, trainer.weight)
