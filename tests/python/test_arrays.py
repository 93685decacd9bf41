"""Arrays of all kinds as memory of moves: what fits, what is refused on all ranks, and how long it lives."""

import array
import gc
import mmap

import numpy as np
import pytest

import weft


class Interface:
    """Only __array_interface__."""

    def __init__(self, x):
        self.x, self.__array_interface__ = x, x.__array_interface__


class DLPack:
    """Only DLPack; an old one does not know max_version."""

    def __init__(self, x, old=False):
        self.x, self.old = x, old

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **how):
        if self.old and how:
            raise TypeError("no such argument")
        return self.x.__dlpack__(**how)


def test_kinds_of_arrays():
    comm = weft.open("self:")
    plan = weft.lower("f32[2,3] @x1", "f32[2,3] @x1")
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    wide = np.zeros((4, 9), np.float32)
    wide[::2, 1::3] = whole
    numpy_dlpack = hasattr(np.ndarray, "__dlpack__")
    sources = [whole, wide[::2, 1::3], np.asfortranarray(whole), memoryview(whole), Interface(whole), Interface(wide[::2, 1::3])]
    sources += [DLPack(whole), DLPack(whole, old=True), DLPack(wide[::2, 1::3])] if numpy_dlpack else []
    for src in sources:
        for dst in (np.empty((2, 3), np.float32), np.empty((3, 2), np.float32).T, np.empty((2, 6), np.float32)[:, ::2]):
            plan.bind(comm, src, dst).run()
            assert np.array_equal(dst, whole)
    flat = weft.lower("f64[4] @x1", "f64[4] @x1")
    out = array.array("d", [0] * 4)
    flat.bind(comm, array.array("d", [1, 2, 3, 4]), out).run()
    assert list(out) == [1, 2, 3, 4]
    u8 = weft.lower("u8[4] @x1", "u8[4] @x1")
    room = bytearray(4)
    u8.bind(comm, b"weft", room).run()
    assert room == b"weft"
    bf16 = weft.lower("f32[3] @x1", "bf16[3] @x1")
    raw = np.zeros(3, np.uint16)
    bf16.bind(comm, np.array([1, 2, 3], np.float32), weft.bits(raw, "bf16")).run()
    assert raw.tolist() == [0x3F80, 0x4000, 0x4040]
    codes = np.zeros(3, np.uint8)
    for name, want in (("f8e4m3", [0x7F, 0xFF, 0x38]), ("f8e4m3sat", [0x7E, 0xFE, 0x38]), ("f8e8m0", [255, 137, 127])):
        cast = weft.lower("f32[3] @x1", f"{name}[3] @x1")
        cast.bind(comm, np.array([np.inf, -1000, 1], np.float32), weft.bits(codes, name)).run()
        assert codes.tolist() == want and name in str(cast.explain())
    both = comm.empty("c128[3] @x1")
    weft.lower("c64[3] @x1", "c128[3] @x1").bind(comm, np.array([1, 2j, 3 - 4j], np.complex64), both).run()
    assert both.tolist() == [1, 2j, 3 - 4j] and comm.allreduce(both[::2]).tolist() == [1, 3 - 4j]
    weft.lower("i32[3] @x1", "c128[3] @x1").bind(comm, np.array([1, 2, 3], np.int32), both).run()
    assert both.tolist() == [1, 2, 3]


def test_memory_stays_while_it_is_bound():
    """Whatever the array was made of, or its owner does."""
    comm = weft.open("self:")
    plan = weft.lower("f64[] @x1", "f64[] @x1")
    scalars, out = [np.float64(i) for i in range(100)], np.zeros(())
    bound = [plan.bind(comm, x, out) for x in scalars]  # NumPy makes an array of each
    for i, b in enumerate(bound):
        b.run()
        assert out == i
    room, mapped = bytearray(4), mmap.mmap(-1, 4096)
    plans = [weft.lower(f"u8[{n}] @x1", f"u8[{n}] @x1") for n in (4, 4096)]
    held = [plans[0].bind(comm, b"weft", room), plans[1].bind(comm, bytes(4096), mapped)]
    for shrink in (room.clear, mapped.close):
        with pytest.raises(BufferError):
            shrink()
    for b in held:
        b.run()
        b.close()
    room.clear()
    mapped.close()


def test_arrays_that_do_not_fit():
    comm = weft.open("self:")
    plan = weft.lower("f32[2,3] @x1", "f32[2,3] @x1")
    good = np.zeros((2, 3), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    for src, dst, words in (
        (good.astype(np.float64), good, r"src \(f32\[2,3\] @x1\): the array is f64 \(2, 3\), the layout has f32 \(2, 3\) here"),
        (good, good.T, r"dst .*the array is f32 \(3, 2\), the layout has f32 \(2, 3\)"),
        (good, frozen, "dst .*read-only"),
        (good, None, r"dst .*there is no array; the layout has f32 \(2, 3\) here"),
        (good, b"123456", "the array is u8"),
        ([1.0], good, "list is no array"),
        (good.astype(">f4"), good, "byte order"),
        (good.astype(complex), good, r"the array is c128 \(2, 3\), the layout has f32 \(2, 3\) here; convert it$"),
        (good.astype("M8[s]"), good, "no element type for NumPy's datetime64"),
        (good[::-1], np.zeros((2, 3), np.float32), "runs backwards"),
        (good, np.broadcast_to(np.zeros(3, np.float32), (2, 3)), "read-only"),
        (weft.bits(np.zeros((2, 3), np.uint32), "f32"), weft.bits(np.zeros((2, 3), np.uint32), "i32"), "i32"),
    ):
        with pytest.raises(weft.InvalidError, match=words):
            plan.bind(comm, src, dst)
    with pytest.raises(weft.ArrayError, match="4 bytes cannot be the bits of bf16"):
        weft.bits(good, "bf16")
    named = weft.lower({"w": ("f32[2] @x1", "f32[2] @x1")})
    with pytest.raises(weft.ArrayError, match="give a dict of arrays, not ndarray"):
        named.bind(comm, good, good)
    with pytest.raises(weft.ArrayError, match="no tensor 'v'"):
        named.bind(comm, {"v": good}, {})
    with pytest.raises(weft.ArrayError, match="rank 0: src of 'w' .*there is no array"):
        named.bind(comm, {}, {"w": np.zeros(2, np.float32)})
    plan.bind(comm, good, good.copy()).run()  # and the comm is as good as before


def test_wrong_array_on_one_rank_is_told_to_all():
    def rank_main(comm):
        plan = weft.lower("f32[8/x] @x2", "f32[8] @x2")
        src = np.zeros(4 + comm.rank, np.float32)
        with pytest.raises(weft.Error) as caught:
            plan.bind(comm, src, np.zeros(8, np.float32))
        gone = memoryview(b"")
        gone.release()
        with pytest.raises(weft.Error if comm.rank else ValueError, match="rank 0" if comm.rank else "released"):
            plan.bind(comm, np.zeros(4, np.float32) if comm.rank else gone, np.zeros(8, np.float32), deadline=600)
        bound = plan.bind(comm, np.zeros(4, np.float32), np.zeros(8, np.float32))
        bound.run()
        with pytest.raises(weft.Error, match="rank 0"):
            bound.rebind(np.zeros(5 - comm.rank, np.float32), np.zeros(8, np.float32))
        bound.run()
        return str(caught.value), caught.value.rank

    (text0, rank0), (text1, _) = weft.spawn(rank_main, 2)
    assert text0 == "rank 1: tensor 0: there is no source buffer" and rank0 == 1
    assert "the array is f32 (5,), the layout has f32 (4,) here" in text1


def test_window_memory_lives_as_long_as_its_array():
    def rank_main(comm):
        x = comm.empty("f32[100000] @x2")
        assert not x.any()
        x[:] = 7
        view = x[5:10]
        comm.close()
        del x
        gc.collect()
        assert (view == 7).all()
        view[:] = 8
        with pytest.raises(weft.InvalidError, match="closed"):
            comm.empty("f32[1] @x2")
        return float(view.sum())

    assert weft.spawn(rank_main, 2) == [40.0, 40.0]


def test_empty_of_all_types():
    comm = weft.open("self:")
    for name, dtype in (("f32", "f4"), ("i8", "i1"), ("bool", "?"), ("u64", "u8"), ("f16", "f2"), ("c64", "c8"), ("c128", "c16")):
        x = comm.empty(f"{name}[3,4] @x1")
        assert x.dtype == np.dtype(dtype) and x.shape == (3, 4) and x.flags.c_contiguous and x.flags.writeable
    assert comm.empty("f32[] @x1").shape == ()
    assert comm.empty("f32[0,3] @x1").shape == (0, 3)
    assert comm.empty("f32[4/x] @x1=1").size == 0  # this rank is not in the mesh
