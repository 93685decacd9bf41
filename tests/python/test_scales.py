"""Moves of values with scales, against NumPy with ml_dtypes, and against PyTorch."""

import numpy as np
import pytest

import weft
from test_run import threads

F8_MAX = np.float32(448)


def blocks_of(shape, block):
    """The number of the block of each element, and how many there are along each dim."""
    grid = tuple(-(-n // b) for n, b in zip(shape, block))
    index = np.meshgrid(*(np.arange(n) // b for n, b in zip(shape, block)), indexing="ij")
    return np.ravel_multi_index(index, grid), grid


def quantised(x, block, scale):
    """Scales and values before they are rounded to f8, in f32."""
    number, grid = blocks_of(x.shape, block)
    most = np.zeros(int(np.prod(grid)), np.float32)
    np.maximum.at(most, number.ravel(), np.abs(x).ravel())
    if scale == "f32":
        scales = most / F8_MAX
        scales[scales == 0] = 1
    else:
        exponent = np.floor(np.log2(np.where(most > 0, most, 1).astype(np.float64))) - 8
        scales = np.where(most > 0, np.exp2(np.maximum(exponent, -127)), 1).astype(np.float32)
    return scales.reshape(grid), np.clip(x / scales[number], -F8_MAX, F8_MAX)


def piece(whole, layout, rank):
    """What a rank has of an array, in a mesh of one box a rank, or in flat boxes."""
    parts = [whole[tuple(slice(a, a + n) for a, n in zip(b.at, b.len))] for b in layout.boxes(rank)]
    shape = layout.local(rank).shape
    if not parts:
        return np.zeros(shape, whole.dtype)
    return np.concatenate([p.ravel() for p in parts]).reshape(shape)


CASES = [
    ("f32[300/x,260] @x4", "f8e4m3[300,260/x] @x4 *f32(128,128)"),
    ("bf16[512/x,384] @x4", "f8e4m3[512,384/x] @x2=2,3 *f32(128,128)"),
    ("f32[7/a,40,96/b] @a2.b2", "f8e4m3sat[7,40/x,96] @x4 *f8e8m0(32)"),
    ("bf16[100/x,50] @x4", "f8e4m3[100,50] @{0: [0:70,:]; 3: [70:100,:]=10(1,30)} *f8e8m0(32)"),
]


@pytest.mark.parametrize("src, dst", CASES)
def test_there_and_back_as_numpy_has_it(src, dst):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    wide, narrow = weft.layout(src), weft.layout(dst)
    plan, back = weft.lower({"w": (wide, narrow)}), weft.lower({"w": (narrow, wide)})
    plan.verify()
    back.verify()
    rng = np.random.default_rng(7)
    x = (rng.standard_normal(wide.shape) * np.exp(rng.standard_normal(wide.shape) * 3)).astype(np.float32)
    x[: wide.shape[0] // 3] *= rng.random(wide.shape[1:]) < 0.5
    x = x.astype(ml_dtypes.bfloat16).astype(np.float32) if wide.dtype == "bf16" else x
    scales, values = quantised(x, narrow.scale.block, narrow.scale.dtype)
    values = values.astype(ml_dtypes.float8_e4m3fn)
    number, _ = blocks_of(x.shape, narrow.scale.block)
    returned = values.astype(np.float32) * scales.ravel()[number]
    kind = ml_dtypes.bfloat16 if wide.dtype == "bf16" else np.float32
    scale_kind = np.float32 if narrow.scale.dtype == "f32" else ml_dtypes.float8_e8m0fnu

    def rank_main(comm):
        rank = comm.rank
        given = piece(x.astype(kind), wide, rank)
        with plan.bind(comm, {"w": given}, {"w": (pair := comm.empty(narrow))}) as bound:
            bound.run(timeout=20)
        found = [array.copy() for array in pair]
        with back.bind(comm, {"w": pair}, {"w": given}) as bound:
            bound.run(timeout=20)
        return found, given

    for rank, (found, given) in enumerate(threads(4, rank_main, "scales")):
        held = narrow.boxes(rank)
        want = piece(scales.astype(scale_kind), narrow.scales, rank)
        assert want.view(np.uint8).tobytes() == found[1].view(np.uint8).tobytes()
        assert piece(returned.astype(kind), wide, rank).tobytes() == given.tobytes()
        if "=10(" in dst and rank == 3:  # 30 rows, transposed, from slot 10 on
            assert values[70:100].T.tobytes() == found[0][10:].tobytes()
        elif held:
            assert piece(values, narrow, rank).tobytes() == found[0].tobytes()


def test_pairs_as_pytorch_has_them():
    torch = pytest.importorskip("torch")
    wide, narrow = weft.layout("bf16[256/x,130] @x2"), weft.layout("f8e4m3[256,130] @x2 *f32(128,128)")
    plan = weft.load(weft.lower(wide, narrow).save(0)), weft.lower(wide, narrow)
    x = torch.randn(256, 130, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    scales = torch.stack([torch.stack([x[i : i + 128, k : k + 128].float().abs().max() / 448 for k in (0, 128)]) for i in (0, 128)])
    expanded = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:, :130]
    values = (x.float() / expanded).clamp(-448, 448).to(torch.float8_e4m3fn)

    def rank_main(comm):
        pair = comm.empty(narrow, torch=True)
        mine = x[comm.rank * 128 : comm.rank * 128 + 128].contiguous()
        part = plan[0] if comm.rank == 0 else plan[1]
        with part.bind(comm, mine, pair) as bound:
            bound.run(timeout=20)
        return [t.clone() for t in pair]

    for found in threads(2, rank_main, "scales_torch"):
        assert torch.equal(found[0].view(torch.uint8), values.view(torch.uint8))
        assert torch.equal(found[1], scales)


def test_what_a_layout_says_of_scales():
    l = weft.layout("f8e4m3[8,512/x,384] @x4 *f32(128,128)")
    assert l.scale == weft.Scale("f32", (1, 128, 128))
    assert str(l.scales) == "f32[8,4/x,3] @x4"
    plain = weft.layout("f8e4m3[8] @x1")
    assert plain.scale is None
    with pytest.raises(weft.InvalidError, match="has no scales"):
        plain.scales  # noqa: B018
    plan = weft.lower("f32[512/x] @x2", "f8e4m3[512] @x2 *f32(128)")
    assert plan.stats.tensors == 1 and plan.stats.moved == 512 + 2 * 2 * 4
    assert weft.load(plan.save(1)).moves == plan.moves
    assert {a.name for a in plan.arrivals(0)} == {"", "scale"}
    assert "is scaled before the steps" in plan.explain(0)


def test_one_array_in_the_place_of_a_pair_is_refused():
    plan = weft.lower("f32[4/x] @x2", "f8e4m3[4] @x2 *f32(2)")

    def rank_main(comm):
        with pytest.raises(weft.Error, match="give a pair of arrays|rank 0"):
            plan.bind(comm, np.zeros(2, np.float32), np.zeros(4, np.uint8) if comm.rank == 0 else comm.empty(plan.moves[0].dst))
        return True

    assert all(threads(2, rank_main, "scales_pair"))
