"""State dicts of two jobs, bound by one collective call: each rank knows only its own tensors."""

import numpy as np
import pytest

import weft
from parts import free_port

HIDDEN, HEADS, VOCAB = 12, 6, 97


def checkpoint():
    """The whole state dict, as both sides shall see it."""
    rng = np.random.default_rng(3)
    shapes = {"embed": (VOCAB, HIDDEN), "norm": (HIDDEN,), "q": (HIDDEN, HIDDEN), "k": (4, HIDDEN), "v": (4, HIDDEN), "o": (HIDDEN, HIDDEN)}
    return {name: (rng.integers(-256, 256, shape) / 4).astype(np.float32) for name, shape in shapes.items()}


# ---- arrays with layouts ----


def plain_rank(comm, what):
    """Ranks 0 and 1 have pieces of a tensor, rank 2 a fused one, of which q, k and v are views."""
    whole = checkpoint()
    try:
        if comm.rank < 2:
            src = {n: (np.array_split(whole[n], 2)[comm.rank], f"f32[{whole[n].shape[0]}/x,{HIDDEN}] @x2") for n in ("q", "k", "v")}
            if what == "differ" and comm.rank == 1:
                src["k"] = (src["k"][0], "f32[4/x,12] @x2=1,0")
            if what in ("extra", "extra on one side") or "left out" in what:
                src["rope"] = (np.zeros(2, np.float32), "f32[4/x] @x2")
            if what == "buffer" or "left out" in what:  # of a module: no pair, and the other side has none
                src["inv_freq"] = np.zeros(4, np.float32)
                src["steps"] = 3
            if what == "bare" and comm.rank == 1:
                src["v"] = src["v"][0]
            bound = weft.bind_state(comm, src, strict="left out" not in what)
            bound.run()
            return None
        qkv = np.zeros((HIDDEN + 8, HIDDEN), np.float32)
        parts = {"q": qkv[:HIDDEN], "k": qkv[HIDDEN : HIDDEN + 4], "v": qkv[HIDDEN + 4 :]}
        dst = {name: (view, f"f32[{len(view)},{HIDDEN}] @x1=2") for name, view in parts.items()}
        with weft.bind_state(comm, dst=dst, strict=what not in ("left out", "extra on one side")) as bound:
            bound.run()
            assert [m.name for m in bound.plan.moves] == ["q", "k", "v"]
        return np.array_equal(qkv, np.concatenate([whole[n] for n in ("q", "k", "v")]))
    except weft.Error as error:
        comm.barrier()  # the comm is as good as before
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("what", ["well", "left out", "left out by the sources"])
def test_views_of_a_fused_tensor(what):
    assert weft.spawn(plain_rank, 3, what) == [None, None, True]


@pytest.mark.parametrize(
    "what, text",
    [
        ("differ", "MismatchError: src of 'k': rank 0 has f32[4/x,12] @x2, and rank 1 has f32[4/x,12] @x2=1,0: all ranks that have a tensor must give one layout"),
        ("extra", "InvalidError: bind_state: no rank gives a destination for 'rope': give one, leave the tensor out, or strict=False to leave out all such"),
        ("extra on one side", "InvalidError: bind_state: no rank gives a destination for 'rope': give one, leave the tensor out, or strict=False to leave out all such"),
        ("bare", "ArrayError: rank 1: src of 'v': ndarray says nothing of the other ranks: give a pair (array, layout), such as (array, 'f32[2,12] @x2') if each of these ranks has all of it"),
        ("buffer", "ArrayError: rank 0: src of 'inv_freq': ndarray says nothing of the other ranks: give a pair (array, layout), such as (array, 'f32[4] @x2') if each of these ranks has all of it, or strict=False: no rank has the other side of it"),
    ],
)
def test_mistakes_are_told_to_all(what, text):
    said = weft.spawn(plain_rank, 3, what)
    assert said == [text] * 3


def test_bits():
    """An array with the bits of a type that NumPy lacks has a layout beside it, as any array has: it is no pair of an array and a layout."""
    raw, out = np.arange(6, dtype=np.uint16) + 0x3F80, np.zeros(6, np.float32)
    with weft.open("self:") as comm:
        with weft.bind_state(comm, {"w": (weft.bits(raw, "bf16"), "bf16[6] @x1")}, {"w": (out, "f32[6] @x1")}) as bound:
            bound.run()
        np.testing.assert_array_equal(out, (raw.astype(np.uint32) << 16).view(np.float32))
        with pytest.raises(weft.ArrayError, match=r"src of 'w': Bits says nothing of the other ranks: give a pair .*'bf16\[6\] @x2'"):
            weft.bind_state(comm, {"w": weft.bits(raw, "bf16")}, {"w": (out, "f32[6] @x1")})


# ---- DTensors ----


def dtensor_rank(comm, port, first, kind):
    """Four ranks from `first` on are a job of torch with FSDP2 x TP or with pipeline stages; the two others serve in bf16."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.set_num_threads(1)
    whole = {name: torch.from_numpy(x) for name, x in checkpoint().items()}
    trains = first <= comm.rank < first + 4
    if trains:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank - first, world_size=4)
        model = nn.Module()
        names = list(whole)
        axes = ("dp", "tp") if kind == "tp" else ("pp", "dp")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=axes)
        if kind == "pp":
            names = names[:3] if mesh.get_coordinate()[0] == 0 else names[3:]
        for name in names:
            setattr(model, name, nn.Module())
            if whole[name].ndim == 1:
                getattr(model, name).weight = nn.Parameter(whole[name].clone())
            else:
                setattr(model, name, nn.Linear(whole[name].shape[1], whole[name].shape[0], bias=False))
                getattr(model, name).weight.data = whole[name].clone()
        if kind == "tp":
            cut = {n: ColwiseParallel() for n in ("embed", "q", "k", "v")}
            parallelize_module(model, mesh["tp"], {**cut, "o": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        mine = {name.replace(".weight", ""): p for name, p in model.state_dict().items()}
        mine["inv_freq"] = torch.zeros(4)  # as a buffer is in a state dict: a plain tensor
        with pytest.raises(weft.ArrayError, match=r"src of 'inv_freq': .*\(array, 'f32\[4\] @" + "2.".join(axes) + "2"):
            weft.bind_state(comm, mine)
        with weft.bind_state(comm, mine, strict=False) as bound:
            for _ in range(2):
                bound.run()
        layouts = {m.name: repr(m.src) for m in bound.plan.moves}
        dist.destroy_process_group()
        return layouts
    others = [r for r in range(6) if not first <= r < first + 4]
    me, at = others.index(comm.rank), f"@tp2={others[0]},{others[1]}"
    # q, k and v in one tensor, in halves; the embedding, the norm and o alone
    cut = {"embed": "97/tp,12", "norm": "12", "q": "12/tp,12", "k": "4/tp,12", "v": "4/tp,12", "o": "12,12/tp"}
    layouts = {name: weft.layout(f"bf16[{dims}] {at}") for name, dims in cut.items()}
    qkv = torch.zeros(10, 12, dtype=torch.bfloat16)
    dst = {name: (comm.empty(l, torch=True), l) for name, l in layouts.items()}
    dst.update({n: (view, layouts[n]) for n, view in zip("qkv", (qkv[:6], qkv[6:8], qkv[8:]))})
    with pytest.raises(weft.ArrayError, match="rank .: src of 'inv_freq': "):
        weft.bind_state(comm, dst=dst)
    with weft.bind_state(comm, dst=dst, strict=False) as bound:
        for _ in range(2):
            bound.run()
    cast = {name: x.to(torch.bfloat16) for name, x in whole.items()}
    expected = {
        "embed": cast["embed"].chunk(2)[me],
        "norm": cast["norm"],
        "o": cast["o"].chunk(2, 1)[me],
        **{n: cast[n].chunk(2)[me] for n in "qkv"},
    }
    return [name for name in expected if not torch.equal(dst[name][0], expected[name])]


CASES = [(0, "tp"), (2, "tp"), (0, "pp")]


def dtensor_cases(comm, ports):
    """All of them, since starting the ranks takes longest."""
    return [dtensor_rank(comm, port, *case) for port, case in zip(ports, CASES)]


def test_dtensors_of_another_job():
    pytest.importorskip("torch", reason="PyTorch is not installed: state dicts of DTensors are not tried")
    ranks = weft.spawn(dtensor_cases, 6, [free_port() for _ in CASES], method="forkserver")
    for i, (first, kind) in enumerate(CASES):
        told = [of_rank[i] for of_rank in ranks]
        trainers, servers = told[first : first + 4], told[:first] + told[first + 4 :]
        assert servers == [[], []]
        assert all(t == trainers[0] for t in trainers)
        at = "" if not first else "=2..5"
        if kind == "tp":
            assert trainers[0]["norm"] == f"f32[12/dp] @dp2.tp2{at}" and trainers[0]["embed"] == f"f32[97/tp/dp,12] @dp2.tp2{at}"
        else:  # each stage has tensors of its own
            assert trainers[0]["norm"] == "f32[12/dp] @pp1.dp2" and trainers[0]["o"] == "f32[12/dp,12] @pp1.dp2=2,3"
