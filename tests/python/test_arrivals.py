"""Pieces of a destination as they come: each once, all of them, and with their final values."""

import asyncio
import os
import signal

import numpy as np
import pytest

import weft

PAIRS = {
    "w": ("f32[64/x,32] @x3", "f32[64,32/x] @x3"),
    "b": ("f32[100/x] @x3", "f32[100] @x3"),
    "scalar": ("f32[] @x1=2", "f32[] @x3"),
}


def setting(comm):
    """A plan of several tensors with small buckets, so that much comes in many pieces."""
    plan = weft.lower(PAIRS, bucket=512)
    whole = {
        "w": np.arange(64 * 32, dtype=np.float32).reshape(64, 32),
        "b": np.arange(100, dtype=np.float32),
        "scalar": np.float32(7),
    }
    src, dst = ({m.name: comm.empty(side(m)) for m in plan.moves} for side in (lambda m: m.src, lambda m: m.dst))
    return plan, whole, src, dst


def fill(comm, plan, whole, src, by):
    for move in plan.moves:
        for box in move.src.boxes(comm.rank):
            there = tuple(slice(a, a + n) for a, n in zip(box.at, box.len))
            here = tuple(slice(a, a + n) for a, n in zip(box.local, box.len))
            src[move.name][here] = whole[move.name][there] + by


def right(arrival, dst, whole, by, filled):
    """The piece has its values, and was not there before."""
    there = tuple(slice(a, a + n) for a, n in zip(arrival.box.at, arrival.box.len))
    assert np.array_equal(dst[arrival.name][arrival.where], whole[arrival.name][there] + by)
    assert not filled[arrival.name][arrival.where].any()
    filled[arrival.name][arrival.where] = True


def all_pieces(comm, how):
    plan, whole, src, dst = setting(comm)
    bound = plan.bind(comm, src, dst, arrivals=True)

    async def collect(arrivals, by, filled):
        async for arrival in arrivals:
            right(arrival, dst, whole, by, filled)
            yield arrival

    async def main(arrivals, by, filled):
        return [arrival async for arrival in collect(arrivals, by, filled)]

    for run in range(3):
        fill(comm, plan, whole, src, run)
        filled = {name: np.zeros(x.shape, bool) for name, x in dst.items()}
        comm.barrier()
        work = bound.start()
        if how == "for":
            came = []
            for arrival in work.arrivals():
                right(arrival, dst, whole, run, filled)
                came.append(arrival)
        else:
            came = asyncio.run(main(work.arrivals(), run, filled))
        assert work.done() and all(x.all() for x in filled.values())
        assert sorted(came) == sorted(plan.arrivals(comm.rank)) and len(came) > 3
        assert list(work.arrivals()) == came  # what is over can be told again
    later = bound.start()
    with pytest.raises(weft.InvalidError, match="later run"):
        next(work.arrivals())
    later.wait()
    return True


@pytest.mark.parametrize("progress", ["caller", "thread"])
@pytest.mark.parametrize("how", ["for", "async for"])
def test_all_pieces_come_once(how, progress):
    assert weft.spawn(all_pieces, 3, how, progress=progress) == [True] * 3


def test_pieces_come_before_the_end():
    """What rank 0 sends is here while rank 1 has not begun."""
    half = 400_000

    def rank_main(comm):
        plan = weft.lower(f"i32[{2 * half}/x] @x2", f"i32[{2 * half}] @x1=2")
        src = np.full(half, comm.rank, np.int32) if comm.rank < 2 else None
        dst = comm.empty(plan.moves[0].dst)
        bound = plan.bind(comm, src, dst, arrivals=True)
        window = comm.window({}, signals=1)
        if comm.rank == 1:
            window.wait(0, ">=", 1, timeout=60)
        work = bound.start()
        if comm.rank < 2:
            return work.wait()
        arrivals = work.arrivals()
        first = next(arrivals)
        assert first.box.at == (0,) and first.where == (slice(0, half),) and not work.done()
        assert not dst[first.where].any()
        window.notify(1, 0)
        assert [a.box.at for a in arrivals] == [(half,)]
        return dst[half:].all()

    assert weft.spawn(rank_main, 3)[2]


def test_must_be_asked_for():
    with weft.open("self:") as comm:
        x = np.zeros(4, np.float32)
        bound = weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, x, x.copy())
        with pytest.raises(weft.InvalidError, match="arrivals=True"):
            bound.start().arrivals()


def test_failure_ends_them():
    def rank_main(comm):
        plan = weft.lower("f32[4/x] @x2", "f32[4] @x2")
        bound = plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst), arrivals=True)
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        list(bound.start().arrivals())

    with pytest.raises(weft.RankError) as caught:
        weft.spawn(rank_main, 2)
    assert caught.value.rank == 1 and isinstance(caught.value.errors[0], weft.PeerError)
