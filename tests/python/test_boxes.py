"""Boxes as a layout: what inference engines make of weights, against NumPy."""

import numpy as np
import pytest

import weft
from test_run import threads

RNG = np.random.default_rng(20)


def moved(name, moves, wholes, room, world=4):
    """Moves tensors from rows on a mesh of all ranks into one flat buffer a rank; returns the buffers."""
    src = {k: weft.layout(f"f32[{','.join([f'{w.shape[0]}/x', *map(str, w.shape[1:])])}] @x{world}") for k, w in wholes.items()}
    plan = weft.lower({k: (src[k], moves[k]) for k in moves})

    def rank_main(comm):
        given, out = {}, np.full(room, -1, np.float32)
        for k, w in wholes.items():
            given[k] = np.zeros(src[k].local(comm.rank).shape, np.float32)
            for box in src[k].boxes(comm.rank):
                given[k][...] = w[tuple(slice(a, a + n) for a, n in zip(box.at, box.len))]
        into = {k: out[: l.local(comm.rank).elements] for k, l in moves.items()}
        with plan.bind(comm, given, into) as bound:
            bound.run(timeout=20)
        return out

    return threads(world, rank_main, name)


def test_fused_qkv_and_kv_heads_of_several_ranks():
    heads, kv, size, hidden, world = 8, 2, 4, 12, 4
    q, k, v = (RNG.random((n * size, hidden), np.float32) for n in (heads, kv, kv))
    rows = heads // world * size
    own = [(r * rows, r * kv // world * size) for r in range(world)]
    moves = {
        "q": weft.boxes("f32", q.shape, range(world), [(a, 0) for a, _ in own], [(rows, hidden)] * world),
        "k": weft.boxes("f32", k.shape, range(world), [(b, 0) for _, b in own], [(size, hidden)] * world, [rows * hidden] * world, overlaps=True),
        "v": weft.boxes("f32", v.shape, range(world), [(b, 0) for _, b in own], [(size, hidden)] * world, [(rows + size) * hidden] * world, overlaps=True),
    }
    for (a, b), got in zip(own, moved("qkv", moves, {"q": q, "k": k, "v": v}, (rows + 2 * size) * hidden)):
        assert np.array_equal(got.reshape(-1, hidden), np.concatenate([q[a : a + rows], k[b : b + size], v[b : b + size]]))


def test_stacked_experts():
    experts, inter, hidden, world = 3, 8, 5, 4
    part = inter // world
    gate = [RNG.random((inter, hidden), np.float32) for _ in range(experts)]
    up = [RNG.random((inter, hidden), np.float32) for _ in range(experts)]
    moves, wholes = {}, {}
    for e in range(experts):
        for half, w in enumerate((gate[e], up[e])):
            offset = (e * 2 + half) * part * hidden
            moves[f"{e}.{half}"] = weft.boxes("f32", w.shape, range(world), [(r * part, 0) for r in range(world)], [(part, hidden)] * world, [offset] * world)
            wholes[f"{e}.{half}"] = w
    for r, got in enumerate(moved("w13", moves, wholes, experts * 2 * part * hidden)):
        cut = slice(r * part, (r + 1) * part)
        assert np.array_equal(got.reshape(experts, 2 * part, hidden), [np.concatenate([g[cut], u[cut]]) for g, u in zip(gate, up)])


def test_transposed_conv1d():
    w = RNG.random((12, 20), np.float32)
    columns = 5
    l = weft.boxes("f32", w.shape, range(4), [(0, r * columns) for r in range(4)], [(12, columns)] * 4, [0] * 4, [(1, 12)] * 4)
    assert l == weft.layout("f32[20/x,12] @x4").boxed().permute(1, 0)
    for r, got in enumerate(moved("conv", {"w": l}, {"w": w}, columns * 12)):
        assert np.array_equal(got.reshape(columns, 12), w[:, r * columns : (r + 1) * columns].T)


def test_padded_vocabulary():
    w = RNG.random((10, 3), np.float32)  # padded to 16, of which each rank has 4 rows
    l = weft.boxes("f32", w.shape, range(4), [(min(4 * r, 10), 0) for r in range(4)], [(max(0, min(4, 10 - 4 * r)), 3) for r in range(4)])
    assert l.ranks == (0, 1, 2)
    want = np.full((16, 3), -1, np.float32)
    want[:10] = w
    for r, got in enumerate(moved("vocab", {"w": l}, {"w": w}, 12)):
        assert np.array_equal(got.reshape(4, 3), want[4 * r : 4 * r + 4])


def test_forms_and_errors():
    l = weft.layout("f32[2,6] @{0: [:,0:3]; 1: [:,3:6]=2(1,2)}")
    assert weft.layout(repr(l)) == l and l.ranks == (0, 1)
    assert l.reshape(2, 2, 3).reshape(2, 6).shape == (2, 6)
    with pytest.raises(weft.LayoutError, match="overlap"):
        weft.boxes("f32", [4], [0, 1], [[0], [1]], [[2], [3]])
    with pytest.raises(weft.LayoutError, match=r"\[3:4\] are in no box"):
        weft.boxes("f32", [4], [0], [[0]], [[3]])
    with pytest.raises(weft.InvalidError, match="at has 3 numbers"):
        weft.boxes("f32", [4], [0], [1, 2, 3], [[3]])
