"""Collectives by name against NumPy: small and large, in place, strided, for all ops."""

import signal

import numpy as np
import pytest

import weft


def inputs(n, shape, dtype, seed):
    return [np.random.default_rng(seed + r).integers(0, 4, shape).astype(dtype) for r in range(n)]


FOLDS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "bxor": np.bitwise_xor}


def rank_main(comm, shape, dtype, seed):
    n, me = comm.size, comm.rank
    xs = inputs(n, (n * shape[0], *shape[1:]), dtype, seed)
    x = xs[me]
    cut = lambda a, r: a[r * shape[0] : (r + 1) * shape[0]]  # noqa: E731
    for op, fold in FOLDS.items():
        if op == "bxor" and np.dtype(dtype).kind == "f":
            continue
        total = fold.reduce(xs).astype(dtype)
        for _ in range(2):  # the second time the plan is there
            assert np.array_equal(comm.allreduce(x, op=op), total)
        assert np.array_equal(comm.reduce_scatter(x, op=op), cut(total, me))
        at_root = comm.reduce(x, op=op, root=n - 1)
        assert np.array_equal(at_root, total) if me == n - 1 else at_root is None
    assert np.array_equal(comm.allgather(x), np.concatenate(xs))
    gathered = comm.gather(x, root=1)
    assert np.array_equal(gathered, np.concatenate(xs)) if me == 1 else gathered is None
    assert np.array_equal(comm.broadcast(x, root=1), xs[1])
    assert np.array_equal(comm.all_to_all(x), np.concatenate([cut(xs[r], me) for r in range(n)]))
    assert np.array_equal(comm.permute(x, [(r + 1) % n for r in range(n)]), xs[(me - 1) % n])
    part = np.empty(shape, dtype)
    if me == 0:
        assert np.array_equal(comm.scatter(x), cut(x, 0))
    else:
        assert comm.scatter(out=part) is part and np.array_equal(part, cut(xs[0], me))

    wide = np.zeros((*x.shape, 2), dtype)
    wide[..., 0] = x
    total = np.add.reduce(xs).astype(dtype)
    assert np.array_equal(comm.allreduce(wide[..., 0]), total)
    assert comm.allreduce(x, out=wide[..., 1]).base is wide and np.array_equal(wide[..., 1], total)
    assert np.array_equal(wide[..., 0], x)
    y = x.copy()
    assert comm.allreduce(y, out=y) is y and np.array_equal(y, total)
    y = x.copy()
    assert comm.broadcast(y, root=0, out=y) is y and np.array_equal(y, xs[0])
    y = x.copy()
    assert comm.all_to_all(y, out=y) is y and np.array_equal(y, comm.all_to_all(x))
    return True


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("shape", [(1,), (3, 2), (40, 700)])
def test_against_numpy(n, shape):
    for dtype in ("i4", "f8") if shape == (3, 2) else ("f4",):
        assert weft.spawn(rank_main, n, shape, dtype, 7) == [True] * n


def test_arrays_that_are_not_kept(monkeypatch):
    monkeypatch.setattr("weft._collectives._SMALL", 1000)
    assert weft.spawn(rank_main, 3, (40, 70), "f4", 3) == [True] * 3


def test_kept_bytes_are_bounded(monkeypatch):
    monkeypatch.setattr("weft._collectives._KEPT_BYTES", 10_000)

    def rank_main(comm):
        for _ in range(2):
            for count in range(100, 120):
                assert comm.allreduce(np.ones(count)).sum() == count * comm.size
        return sum(v.size for k, v in comm._plans.items() if k[0] == "room") <= 10_000 and len(comm._known) <= 13

    assert weft.spawn(rank_main, 2) == [True, True]


def test_many_sizes():
    """More than a comm keeps: the oldest are forgotten, on all ranks alike."""

    def rank_main(comm):
        for _ in range(2):
            for count in range(1, 150):
                assert comm.allreduce(np.ones(count, np.float32)).sum() == count * comm.size
        return len(comm._plans) <= 2 * 64 + 2

    assert weft.spawn(rank_main, 2) == [True, True]


def test_scalars_and_nothing():
    def rank_main(comm):
        for _ in range(2):
            assert comm.allreduce(np.array(3.0)).shape == () and comm.allreduce(np.array(3.0)) == 3.0 * comm.size
            assert comm.allgather(np.array(comm.rank)).tolist() == list(range(comm.size))
            assert comm.allreduce(np.zeros((0, 4))).shape == (0, 4)
            assert comm.all_to_all(np.zeros((0, 4))).shape == (0, 4)
        return True

    assert weft.spawn(rank_main, 2) == [True, True]


def test_large_arrays_in_place_on_some_ranks(monkeypatch):
    """Which arrays a rank gives is its own affair, as with small ones; also where they are not aligned."""
    monkeypatch.setattr("weft._collectives._SMALL", 0)

    def rank_main(comm):
        x = np.frombuffer(bytearray(8 * 1000 + comm.rank), np.uint8)[comm.rank :].view(np.float64)
        x[:] = comm.rank + 1
        assert comm.allreduce(x, out=x if comm.rank else None).tolist() == [3.0] * 1000
        return x[0]

    assert weft.spawn(rank_main, 2) == [1, 3]


def test_interrupted():
    """The other ranks get what was given, though this one goes on with the next."""

    class Interrupt(Exception):
        pass

    def interrupt(*_):
        raise Interrupt

    def rank_main(comm):
        signal.signal(signal.SIGALRM, interrupt)
        window = comm.window({}, signals=1)
        x = np.full(1000, comm.rank + 1.0)
        assert comm.allreduce(x)[0] == 3
        if comm.rank == 0:
            with pytest.raises(Interrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                comm.allreduce(10 * x)
            window.notify(1, 0)
        else:
            window.wait(0, ">=", 1)
            assert comm.allreduce(10 * x).tolist() == [30.0] * 1000
        return float(comm.allreduce(100 * x)[0])

    assert weft.spawn(rank_main, 2) == [300, 300]


def test_mistakes():
    comm = weft.open("self:")
    x = np.zeros((3, 2), np.float32)
    for call, words in (
        (lambda: comm.allreduce(x, op="plus"), "no op 'plus'"),
        (lambda: comm.allreduce(x, out=np.zeros((3, 2))), r"out is f64 \(3, 2\), it should be f32 \(3, 2\)"),
        (lambda: comm.allgather(x, out=np.zeros((2, 3), np.float32)), r"out is f32 \(2, 3\), it should be f32 \(3, 2\)"),
        (lambda: comm.allreduce(x, out=bytes(24)), "out is u8"),
        (lambda: comm.permute(x, [1]), "each of the 1 ranks once"),
        (lambda: comm.allreduce(3.0), "float is no array"),
    ):
        with pytest.raises(weft.InvalidError, match=words):
            call()

    def uneven(comm):
        with pytest.raises(weft.ArrayError, match=r"\(3, 2\); its first dim must be a multiple of the 2 ranks"):
            comm.reduce_scatter(x)
        with pytest.raises(weft.InvalidError, match="give out on the ranks"):
            comm.scatter(x, root=1 - comm.rank)
        return True

    assert weft.spawn(uneven, 2) == [True, True]
