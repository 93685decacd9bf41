"""Layouts against PyTorch's DTensor: what a rank holds is what PyTorch's own code puts there."""

import numpy as np
import pytest

import weft
from parts import part

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the comparison with DTensor is skipped")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

PAIRS = 1200


@pytest.fixture(scope="module")
def world():
    """A process group in which nobody else is: DTensor's arithmetic needs no more."""
    dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
    yield
    dist.destroy_process_group()


def mesh_of(ranks, names):
    return DeviceMesh("cpu", ranks, mesh_dim_names=names, _init_backend=False, _rank=0)


def torch_part(whole, mesh_shape, placements, place):
    """distribute_tensor's loop, for any rank: each placement cuts what the ones before it have left."""
    for p, n, at in zip(placements, mesh_shape, place):
        if isinstance(p, (Shard, _StridedShard)):
            pieces, _ = p._split_tensor(whole, n, with_padding=False, contiguous=True)
            whole = pieces[at]
    return whole


def random_pair(rng):
    """A mesh, placements and a shape; even and uneven, strided by later axes or by any factor."""
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 3))]
    shape = [rng.choice([1, 4, 5, 7, 8, 12, 13, 16, 24, 36]) for _ in range(rng.randint(1, 3))]
    placements = []
    for i, n in enumerate(sizes):
        kind = rng.choice("SSSSsrp")
        d = rng.randrange(len(shape))
        if kind == "s":
            placements.append((d, rng.choice(["later", 2, 3])))
        else:
            placements.append({"S": Shard(d), "r": Replicate(), "p": Partial()}[kind])
    for i, p in reversed(list(enumerate(placements))):
        if isinstance(p, tuple):
            d, factor = p
            if factor == "later":
                later = [j for j in range(i + 1, len(sizes)) if getattr(placements[j], "dim", None) == d]
                factor = int(np.prod([sizes[j] for j in later[: rng.randint(0, len(later))]] or [1]))
            placements[i] = _StridedShard(d, split_factor=factor)
    ranks = list(range(int(np.prod(sizes))))
    if rng.random() < 0.3:
        rng.shuffle(ranks)
    return torch.tensor(ranks).reshape(sizes), tuple(placements), tuple(shape)


def test_random_pairs(world, rng, note):
    equal, exceptions, strided, uneven = 0, [], 0, 0
    while equal < PAIRS:
        ranks, placements, shape = random_pair(rng)
        mesh = mesh_of(ranks, tuple("xyz"[: ranks.ndim]))
        whole = torch.arange(int(np.prod(shape)), dtype=torch.int32).reshape(shape)
        factors = [p.split_factor for p in placements if isinstance(p, _StridedShard)]
        try:
            layout = weft.from_torch(mesh, placements, shape, torch.int32)
        except weft.UnsupportedError:
            exceptions.append((tuple(ranks.shape), placements, shape))
            assert any(f > 1 for f in factors), "refused, and nothing is strided"
            continue
        assert layout.shape == shape and list(layout.mesh.values()) == list(ranks.shape)
        for place in np.ndindex(*ranks.shape):
            rank = int(ranks[place])
            expected = torch_part(whole, ranks.shape, placements, place)
            ours = part(layout, rank, whole.numpy())
            assert np.array_equal(ours, expected.numpy()), (layout, placements, shape, place)
            local, _ = _compute_local_shape_and_global_offset(
                shape, tuple(ranks.shape), lambda d, place=place: place[d], placements, skip_offset=True
            )
            assert tuple(local) == layout.local(rank).shape
        equal += 1
        strided += any(f > 1 for f in factors)
        uneven += len({layout.local(int(r)).shape for r in ranks.flatten()}) > 1
    assert strided > 100 and uneven > 300
    some = "; ".join(f"{s} on {m}: {' '.join(map(str, p))}" for m, p, s in exceptions[:6])
    note(
        f"torch {torch.__version__}: {equal} pairs equal ({strided} strided, {uneven} uneven); {len(exceptions)} uneven "
        f"strided ones have no notation, such as {some}"
    )


def test_back(world, rng):
    """Placements that a layout is turned into mean the same layout, in every piece."""
    for _ in range(300):
        ranks, placements, shape = random_pair(rng)
        mesh = mesh_of(ranks, tuple("xyz"[: ranks.ndim]))
        try:
            layout = weft.from_torch(mesh, placements, shape, torch.bfloat16)
        except weft.UnsupportedError:
            continue
        again = weft.from_torch(mesh, layout.placements(), shape, torch.bfloat16)
        for rank in layout.ranks:
            assert again.boxes(rank) == layout.boxes(rank), (layout, again)
        assert again.folds == layout.folds


def test_examples(world):
    mesh = mesh_of(torch.arange(8).reshape(2, 4), ("dp", "tp"))
    shape = (4096, 14336)
    for placements, text in (
        ((Shard(0), Shard(0)), "f32[4096/dp/tp,14336] @dp2.tp4"),
        ((_StridedShard(0, split_factor=4), Shard(0)), "f32[4096/tp/dp,14336] @dp2.tp4"),
        ((Shard(0), Shard(1)), "f32[4096/dp,14336/tp] @dp2.tp4"),
        ((Partial(), Replicate()), "f32[4096,14336] @dp2.tp4 +sum(dp)"),
        ((Partial("max"), Shard(-1)), "f32[4096,14336/tp] @dp2.tp4 +max(dp)"),
    ):
        layout = weft.from_torch(mesh, placements, shape, torch.float32)
        assert repr(layout) == text
        assert layout.placements() == [Shard(1) if p == Shard(-1) else p for p in placements]
    dealt = weft.from_torch(mesh, [Replicate(), _StridedShard(0, split_factor=3)], (24, 5), torch.float32)
    assert repr(dealt) == "f32[24/tp:2,5] @dp2.tp4"  # a factor that is no axis: blocks
    other = mesh_of(torch.tensor([[3, 1], [0, 2]]), None)
    assert repr(weft.from_torch(other, [Shard(0), Replicate()], (4,), torch.uint8)) == "u8[4/a] @a2.b2=3,1,0,2"
    with pytest.raises(weft.InvalidError, match="2 dims, and there are 1 placements"):
        weft.from_torch(mesh, [Shard(0)], shape, torch.float32)
    for names in (("x",), ("x", "y", "z")):
        with pytest.raises(weft.InvalidError, match=f"2 dims, and there are {len(names)} names"):
            weft.from_torch(mesh, [Shard(0), Replicate()], shape, torch.float32, names=names)
    with pytest.raises(weft.UnsupportedError, match="no ghosts"):
        weft.layout("f32[8/x~1] @x2").placements()
    wide = mesh_of(torch.arange(8).reshape(4, 2), None)
    with pytest.raises(weft.UnsupportedError, match="uneven pieces of 9"):
        weft.from_torch(wide, [_StridedShard(0, split_factor=2), Shard(0)], (9,), torch.int8)


def gloo_rank(comm, port, cases):
    """distribute_tensor and full_tensor by gloo, beside weft."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    for sizes, placements, target, shape in cases:
        mesh = dist.device_mesh.init_device_mesh("cpu", sizes, mesh_dim_names=tuple("xy"[: len(sizes)]))
        whole = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)
        tensor = distribute_tensor(whole, mesh, placements)
        src = weft.from_torch(tensor)
        if not src.folds:
            assert np.array_equal(part(src, comm.rank, whole.numpy()), tensor.to_local().numpy()), (src, placements)
        moved = tensor.redistribute(mesh, target)
        dst = weft.from_torch(moved)
        out = comm.empty(dst, torch=True)
        with weft.lower(src, dst).bind(comm, tensor.to_local(), out) as bound:
            bound.run()
        assert torch.equal(out, moved.to_local()), (src, dst)
    dist.destroy_process_group()
    return len(cases)


def test_redistribute_with_gloo(rng, note):
    """The same redistribution by DTensor over gloo and by weft, on four processes."""
    import socket

    cases = []
    for _ in range(40):
        sizes = rng.choice([(4,), (2, 2)])
        shape = (rng.choice([4, 7, 8, 12]), rng.choice([3, 4, 8]))
        kinds = lambda: rng.choice([Shard(0), Shard(1), Replicate()])  # noqa: E731
        cases.append((sizes, [kinds() for _ in sizes], [kinds() for _ in sizes], shape))
    cases.append(((4,), [Partial()], [Shard(0)], (9, 4)))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    done = weft.spawn(gloo_rank, 4, port, cases, method="forkserver")
    assert done == [len(cases)] * 4
    note(f"torch {torch.__version__}: {len(cases)} redistributions by gloo equal weft's")


def test_tensors(tmp_path):
    """Tensors are taken as they are: strided, of types that NumPy lacks, parameters; others are refused."""
    comm = weft.open("self:")
    layout = "bf16[4,6] @x1"
    src = torch.nn.Parameter(torch.randn(6, 4, dtype=torch.bfloat16).T)
    dst = comm.empty(layout, torch=True)
    assert dst.dtype == torch.bfloat16 and dst.shape == (4, 6) and not dst.any()
    weft.lower(layout, layout).bind(comm, src, dst).run()
    assert torch.equal(dst, src)
    assert torch.equal(comm.allreduce(dst), dst) and comm.allreduce(dst).dtype == torch.bfloat16
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bool, torch.int64, torch.complex64, torch.complex128):
        x = torch.arange(6).to(dtype)
        y = comm.broadcast(x)
        assert y.dtype == dtype and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
    param = torch.nn.Parameter(torch.full((4, 6), 3.0, dtype=torch.bfloat16))
    with weft.lower(layout, layout).bind(comm, param, dst) as bound:
        param.data = torch.zeros(1)  # what is bound stays
        bound.run()
        assert (dst == 3).all()
    with pytest.raises(weft.UnsupportedError, match="resolve_neg"):
        comm.allreduce(torch.view_as_complex(torch.ones(4, 2)).conj().imag)
    with pytest.raises(weft.UnsupportedError, match="resolve_conj"):
        comm.allreduce(torch.view_as_complex(torch.ones(4, 2)).conj())
    with pytest.raises(weft.UnsupportedError, match="meta"):
        weft.lower(layout, layout).bind(comm, torch.empty(4, 6, dtype=torch.bfloat16, device="meta"), dst)


def test_tensors_that_require_gradients():
    """What weft moves is no part of autograd: results have no gradient, and what is bound keeps its own."""
    comm = weft.open("self:")
    x = torch.full((4, 2), 3.0, requires_grad=True)
    for result in (comm.allreduce(x), comm.allgather(2 * x), comm.broadcast(x), comm.reduce_scatter(x), comm.all_to_all(x)):
        assert not result.requires_grad and result.grad_fn is None and result.is_leaf
    layout = "f32[4,2] @x1"
    parameter = torch.nn.Parameter(torch.zeros(4, 2))
    with weft.lower(layout, layout).bind(comm, x, parameter) as bound:
        bound.run()
    assert parameter.requires_grad and parameter.is_leaf and torch.equal(parameter, x)
    (parameter * comm.allreduce(x)).sum().backward()
    assert torch.equal(parameter.grad, x) and x.grad is None
    same = comm.allreduce(x, out=parameter)
    assert same is parameter and parameter.requires_grad


def test_a_tensor_on_another_device_is_told_what_to_do():
    with weft.open("self:") as comm, pytest.raises(weft.UnsupportedError) as told:
        weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, torch.zeros(4, device="meta"), torch.zeros(4))
    assert "the tensor is on meta: weft moves memory of the host and of CUDA devices" in str(told.value)
    assert "copy it into comm.empty(layout, torch=True), and bind that" in str(told.value)


def floats_of_all_kinds():
    """Every upper half of a float32, with some lower halves."""
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0xFFFF], dtype=torch.int64)
    bits = ((torch.arange(65536, dtype=torch.int64) << 16)[:, None] | low[None, :]).reshape(-1)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32).view(torch.float32)


def cast_by_weft(comm, x, name):
    out = comm.empty(f"{name}[{len(x)}] @x1", torch=True)
    weft.lower(f"f32[{len(x)}] @x1", f"{name}[{len(x)}] @x1").bind(comm, x, out).run()
    return out


def test_casts_to_f8():
    """f8e8m0 and saturating f8e4m3 are PyTorch's own casts; saturating f8e5m2 is its cast of clamped values."""
    comm = weft.open("self:")
    x = floats_of_all_kinds()
    if hasattr(torch, "float8_e8m0fnu"):
        powers = cast_by_weft(comm, x, "f8e8m0")
        assert powers.dtype == torch.float8_e8m0fnu
        assert torch.equal(powers.view(torch.uint8), x.to(torch.float8_e8m0fnu).view(torch.uint8))
        back = comm.empty("f32[256] @x1", torch=True)
        codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        weft.lower("f8e8m0[256] @x1", "f32[256] @x1").bind(comm, codes, back).run()
        assert torch.equal(back[:255], codes[:255].float()) and back[255].isnan()
    for name, dtype in (("f8e4m3sat", torch.float8_e4m3fn), ("f8e5m2sat", torch.float8_e5m2)):
        got, most = cast_by_weft(comm, x, name), torch.finfo(dtype).max
        want = x.clamp(-most, most).to(dtype)
        number = ~x.isnan()
        assert got.dtype == dtype and torch.equal(got.view(torch.uint8)[number], want.view(torch.uint8)[number])
        assert got[~number].float().isnan().all()
        total = comm.allreduce(weft.bits(got.view(torch.uint8), name), out=torch.empty_like(got))
        assert torch.equal(total.view(torch.uint8), got.view(torch.uint8))


def test_complex_numbers():
    comm = weft.open("self:")
    x = torch.randn(4, 6, dtype=torch.complex64)
    for layout, dtype in (("c64[4,6] @x1", torch.complex64), ("c128[4,6] @x1", torch.complex128)):
        out = comm.empty(layout, torch=True)
        weft.lower("c64[4,6] @x1", layout).bind(comm, x, out).run()
        assert out.dtype == dtype and torch.equal(out, x.to(dtype))
        assert torch.equal(comm.allreduce(out.T), out.T)
    with pytest.raises(weft.InvalidError, match="no cast from c64 to f32"):
        weft.lower("c64[4,6] @x1", "f32[4,6] @x1")
