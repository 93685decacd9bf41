"""DTensors that exist, over gloo: FSDP2 x TP, sub-meshes and uneven pieces, moved by weft and compared with brute force."""

import functools
import random

import numpy as np
import pytest

import weft
from parts import free_port, share

torch = pytest.importorskip("torch", reason="PyTorch is not installed: FSDP2 x TP is not tried")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402


MODELS = {4: (2, 2), 8: (4, 2)}


def pairs():
    return share(40, 170)


def rank_main(comm, port, count):
    """All that is tried with this number of ranks: gloo is set up once."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    out = {}
    if comm.size in MODELS:
        out["model"] = model_rank(comm, MODELS[comm.size], 50257)
    out["pairs"] = pairs_rank(comm, comm.size, count)
    if comm.size == 8:
        out["refused"] = refused_rank(comm)
    dist.destroy_process_group()
    return out


@pytest.fixture(scope="module")
def told():
    """What the ranks of a world have found."""
    return functools.lru_cache(None)(lambda world: weft.spawn(rank_main, world, free_port(), pairs(), method="forkserver"))


# ---- a model ----


class Model(nn.Module):
    """GPT's parts: an embedding, whose weight the head shares, a norm and an MLP; no dim but `hidden` is even."""

    def __init__(self, vocab, hidden, inner):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embed.weight


PARALLEL = {"embed": RowwiseParallel, "up": ColwiseParallel, "down": RowwiseParallel, "head": ColwiseParallel}


def model_rank(comm, sizes, vocab):
    torch.manual_seed(5)
    model = Model(vocab, 6, 21)
    whole = {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {name: kind() for name, kind in PARALLEL.items()})
    model.head.weight = model.embed.weight  # parallelize_module has replaced both
    fully_shard(model, mesh=mesh["dp"])
    layouts, src, dst = {}, {}, {}
    for name, p in model.named_parameters(remove_duplicate=False):
        layouts[name] = weft.from_torch(p)
        src[name] = p.to_local()
        dst[name] = torch.zeros_like(whole[name])
    target = {name: f"f32[{','.join(map(str, t.shape))}] @x{comm.size}" for name, t in whole.items()}
    with weft.lower(layouts, target).bind(comm, src, dst) as bound:
        bound.run()
    wrong = [name for name in whole if not torch.equal(dst[name], whole[name])]
    return wrong, {name: repr(l) for name, l in layouts.items()}


@pytest.mark.parametrize("sizes", [(2, 2), (4, 2)], ids=["2x2", "4x2"])
def test_fsdp2_and_tp(sizes, told):
    """The whole state dict of an FSDP2 x TP model, norms on the sub-mesh and the uneven vocabulary of GPT-2 included."""
    n = sizes[0] * sizes[1]
    results = [t["model"] for t in told(n)]
    assert [wrong for wrong, _ in results] == [[]] * n
    assert all(layouts == results[0][1] for _, layouts in results)
    layouts, mesh = results[0][1], f"@dp{sizes[0]}.tp{sizes[1]}"
    assert layouts["norm.weight"] == f"f32[6/dp] {mesh}"
    assert layouts["embed.weight"] == layouts["head.weight"] == f"f32[50257/tp/dp,6] {mesh}"
    assert layouts["down.weight"] == f"f32[6/dp,21/tp] {mesh}"


# ---- random pairs ----


def pieces(whole, mesh, placements, place):
    """A rank's part by distribute_tensor's own loop."""
    for p, n, at in zip(placements, mesh.mesh.shape, place):
        if isinstance(p, (Shard, _StridedShard)):
            whole = p._split_tensor(whole, n, with_padding=False, contiguous=True)[0][at]
    return whole


def summand(whole, placements, place):
    """What a rank adds: different along the axes of a Partial, the same along all others."""
    number = 0
    for p, at in zip(placements, place):
        if isinstance(p, Partial):
            number = 7 * number + at + 1
    return whole * (1 + number) - number


def value(whole, mesh, placements):
    """The whole tensor that the summands make."""
    op = next((p.reduce_op for p in placements if isinstance(p, Partial)), None)
    if op is None:
        return whole
    over = [range(n) if isinstance(p, Partial) else range(1) for p, n in zip(placements, mesh.mesh.shape)]
    parts = [summand(whole, placements, place) for place in np.ndindex(*map(len, over))]
    stack = torch.stack(parts)
    return {"sum": stack.sum(0), "max": stack.amax(0), "min": stack.amin(0)}[op]


def meshes_of(world, rng):
    """Root meshes, slices of them, flattened ones, and some whose ranks do not ascend."""
    shapes = {4: [(4,), (2, 2), (1, 4)], 6: [(6,), (2, 3), (3, 2)], 8: [(2, 4), (4, 2), (2, 2, 2)]}[world]
    out = []
    for shape in shapes:
        names = tuple("xyz"[: len(shape)])
        root = init_device_mesh("cpu", shape, mesh_dim_names=names)
        out.append(root)
        if len(shape) > 1:
            out += [root[name] for name in names]
            out.append(root[names[:2]]._flatten("flat"))
        if len(shape) == 3:
            out += [root["x", "y"], root["y", "z"], root["x", "z"]]
    ranks = list(range(world))
    rng.shuffle(ranks)
    out.append(DeviceMesh("cpu", torch.tensor(ranks).reshape(shapes[1]), mesh_dim_names=("p", "q")))
    return out


def random_placements(rng, ndim, axes, folds):
    op = rng.choice(["sum", "max", "min"])
    kinds = [Replicate(), *(Shard(d) for d in range(ndim))] + [Partial(op)] * folds
    return [rng.choice(kinds) for _ in range(axes)]


def random_side(rng, meshes, shape, folds):
    mesh = rng.choice(meshes)
    placements = random_placements(rng, len(shape), mesh.mesh.ndim, folds)
    if mesh.mesh.ndim == 2 and rng.random() < 0.3:  # strided as FSDP2 writes it; even, for which both rules are one
        d = rng.randrange(len(shape))
        a, b = mesh.mesh.shape
        if shape[d] % (a * b) == 0:
            placements = [_StridedShard(d, split_factor=int(b)), Shard(d)]
    return mesh, placements


def side(mesh, placements, whole, fill):
    """A DTensor with the summand of this rank, or with zeros, and what this rank must hold if the value is `whole`."""
    place = mesh.get_coordinate()
    local = pieces(summand(whole, placements, place) if fill else torch.zeros_like(whole), mesh, placements, place)
    tensor = DTensor.from_local(
        local.contiguous().clone(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
    return tensor, place


def fsdp_side(rng, roots, shape, whole):
    """A parameter that TP has cut, or not, and FSDP2 has cut after it."""
    mesh = rng.choice(roots)
    names = mesh.mesh_dim_names
    module = nn.Module()
    module.linear = nn.Linear(shape[1], shape[0], bias=False)
    module.linear.weight.data = whole.clone()
    kind = rng.choice([ColwiseParallel, ColwiseParallel, RowwiseParallel, None])
    if kind:
        parallelize_module(module, mesh[names[1]], {"linear": kind()})
    fully_shard(module, mesh=mesh[names[0]])
    return module.linear.weight


def pairs_rank(comm, seed, count):
    rng = random.Random(seed)
    meshes = meshes_of(comm.size, rng)
    roots = [m for m in meshes if m.mesh.ndim == 2 and m.mesh.numel() == comm.size and m.mesh_dim_names == ("x", "y")]
    told = {"fsdp": 0, "uneven fsdp": 0, "sub-mesh": 0, "folds": 0, "refused": []}
    for case in range(count):
        fsdp = rng.random() < 0.35
        ndim = 2 if fsdp else rng.randint(1, 3)
        shape = tuple(rng.choice([1, 4, 5, 7, 8, 12, 13, 17, 25, 97]) for _ in range(ndim))
        whole = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape) % 251
        if fsdp:
            tensor, expected = fsdp_side(rng, roots, shape, whole), whole
        else:
            mesh, placements = random_side(rng, meshes, shape, True)
            tensor, _ = side(mesh, placements, whole, True)
            expected = value(whole, mesh, placements)
        to, target = random_side(rng, meshes, shape, False)
        out, place = side(to, target, whole, False)
        try:
            src, dst = weft.from_torch(tensor), weft.from_torch(out)
        except weft.UnsupportedError as refused:
            told["refused"].append(str(refused))
            continue
        into = out.to_local().detach()
        with weft.lower(src, dst).bind(comm, rng.choice([tensor, tensor.to_local()]), into) as bound:
            bound.run()
        assert torch.equal(into, pieces(expected, to, target, place)), (case, src, dst, tensor.placements, target)
        told["fsdp"] += fsdp
        told["uneven fsdp"] += fsdp and any(getattr(p, "split_factor", 1) > 1 for p in tensor.placements) and any(
            n % comm.size for n in shape
        )
        told["sub-mesh"] += tensor.device_mesh.mesh.numel() < comm.size or to.mesh.numel() < comm.size
        told["folds"] += bool(src.folds)
    return told


@pytest.mark.parametrize("world", [4, 6, 8])
def test_random_pairs(world, note, told):
    """Pairs of DTensors, among them those on sub-meshes and uneven ones of FSDP2, equal brute force."""
    count, results = pairs(), [t["pairs"] for t in told(world)]
    assert all(len(t["refused"]) == len(results[0]["refused"]) for t in results)
    first = results[0]
    assert not first["refused"], first["refused"][:3]
    assert count < 40 or (first["fsdp"] > 10 and first["uneven fsdp"] > 2 and first["sub-mesh"] > 10 and first["folds"] > 5)
    numbers = ", ".join(f"{n} {what}" for what, n in first.items() if what != "refused")
    note(f"torch {torch.__version__}: {count} pairs of DTensors on {world} ranks equal brute force ({numbers}), none refused")


# ---- ranks, names, and what is refused ----


def refused_rank(comm):
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp1", "tp"))
    said = []
    tensor = DTensor.from_local(torch.zeros(2), mesh["tp"], [Shard(0)], run_check=False)
    try:
        weft.from_torch(tensor)
    except weft.InvalidError as error:
        said.append(str(error))
    moved = weft.from_torch(tensor, names={"dp1": "dp"}, rank=lambda r: 10 + r)
    # distribute_tensor's rule, which is not FSDP2's: some rank sees it by the shape of its piece, and no rank moves anything.
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    rule, whole = [_StridedShard(0, split_factor=2), Shard(0)], torch.arange(9.0)
    local = pieces(whole, mesh, rule, mesh.get_coordinate()).contiguous()
    odd = DTensor.from_local(local, mesh, rule, run_check=False, shape=whole.shape, stride=whole.stride())
    try:
        bound = weft.lower(weft.from_torch(odd), "f32[9] @x8").bind(comm, local, torch.zeros(9), deadline=20)
        said.append(f"bound: {bound}")
    except weft.UnsupportedError as error:
        said.append(str(error))
        comm.close()
    except weft.Error as error:
        said.append(type(error).__name__)
    return said, repr(moved)


def test_names_ranks_and_refusals(told):
    results = [t["refused"] for t in told(8)]
    for said, moved in results:
        assert said[0] == "a mesh dim is named 'dp1', which the notation cannot have: give names={'dp1': 'another'}"
        assert moved == "f32[4/tp] @dp4.tp2=10..17"
    last = [said[1] for said, _ in results]
    assert "neither pieces of FSDP2 nor ones that the notation has" in last[6]
    assert not any(text.startswith("bound") for text in last)


def differs_rank(comm, what):
    same = {"wq": ("f32[8/x] @x2", "f32[8] @x2"), "wk": ("f32[6/x] @x2", "f32[6] @x2")}
    other = dict(same)
    if what == "source":
        other["wk"] = ("f32[6/x] @x2=1,0", "f32[6] @x2")
    elif what == "missing":
        del other["wk"]
    elif what == "name":
        other = {"wq": same["wq"], "wv": same["wk"]}
    options = {"bucket": 4096} if what == "option" and comm.rank else {}
    plan = weft.lower(other if comm.rank else same, **options)
    arrays = [{m.name: comm.empty(getattr(m, side)) for m in plan.moves} for side in ("src", "dst")]
    try:
        plan.bind(comm, *arrays)
    except weft.MismatchError as error:
        comm.barrier()  # the comm is as good as before
        return str(error)


@pytest.mark.parametrize(
    "what, text",
    [
        ("source", "the source of tensor 1 'wk' is f32[6/x] @x2=1,0, and on rank 0 f32[6/x] @x2"),
        ("missing", "it has no tensor 1, which is 'wk' on rank 0"),
        ("name", "tensor 1 is 'wv', and on rank 0 'wk'"),
        ("option", "here the tensors are the same, and an option of weft_lower differs"),
    ],
)
def test_plans_that_differ(what, text):
    """The error names the first tensor that differs, and both layouts, on all ranks."""
    said = weft.spawn(differs_rank, 2, what)
    assert said[0] == said[1] and said[0].startswith("rank 1: its plan differs from rank 0's") and text in said[0]
