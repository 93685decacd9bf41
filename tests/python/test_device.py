"""Arrays on a device, by the simulated one: no GPU, no PyTorch and no CuPy is needed. Ranks are processes that open the device
after they were forked."""

import gc
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import simulated
import weft

pytestmark = pytest.mark.skipif(simulated.module() is None, reason="weft_sim.so is not there: nothing is tried on a device")


@pytest.fixture(autouse=True)
def sim(monkeypatch):
    monkeypatch.setenv("WEFT_DEVICE", "sim")
    monkeypatch.setenv("WEFT_MODULES", str(simulated.module().parent))


class Interface:
    """Only __cuda_array_interface__, as of other libraries."""

    def __init__(self, array, **change):
        self.array, self.change = array, change

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.change}


class DLPack:
    """Only DLPack; an old one does not know max_version."""

    def __init__(self, array, old=False):
        self.array, self.old, self.streams = array, old, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **how):
        if self.old and "max_version" in how:
            raise TypeError("no such argument")
        self.streams.append(how.get("stream"))
        return self.array.__dlpack__(**how)


class TorchStream:
    def __init__(self, handle):
        self.cuda_stream = handle


class CupyStream:
    def __init__(self, handle):
        self.ptr = handle


class CoreStream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


def alone(fn, *args):
    """In a process of one rank: this one never opens the device."""
    return weft.spawn(fn, 1, *args, timeout=120)[0]


def moved(comm, src, dst, which):
    weft.lower(which, which).bind(comm, src, dst).run()
    return dst


# ---- memory ----


def test_host_to_device_and_back():
    def rank_main(comm):
        rows, columns = f"f32[64/x,96] @x{comm.size}", f"f32[64,96/x] @x{comm.size}"
        here, there, back = comm.empty(rows, device="cuda"), comm.empty(columns, device="cuda:0"), comm.empty(rows)
        whole = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
        n = 64 // comm.size
        mine = whole[n * comm.rank : n * (comm.rank + 1)]
        weft.lower(rows, rows).bind(comm, mine, here).run()
        with weft.lower(rows, columns).bind(comm, here, there) as bound:
            for _ in range(3):
                bound.run()
        weft.lower(columns, rows).bind(comm, there, back).run()
        assert here.device == "cuda:0" and here.nbytes == mine.nbytes and len(here) == n and "cuda:0" in repr(here)
        comm.barrier()
        return np.array_equal(back, mine)

    assert weft.spawn(rank_main, 2, timeout=120) == [True, True]
    assert weft.spawn(rank_main, 4, timeout=120) == [True] * 4


def test_device_on_one_rank_and_host_on_the_other():
    def rank_main(comm):
        device = "cuda" if comm.rank else None
        src, dst = comm.empty("i32[8/x] @x2", device=device), comm.empty("i32[8] @x2", device=device)
        mine = np.arange(4 * comm.rank, 4 * comm.rank + 4, dtype=np.int32)
        weft.lower("i32[8/x] @x2", "i32[8/x] @x2").bind(comm, mine, src).run()
        weft.lower("i32[8/x] @x2", "i32[8] @x2").bind(comm, src, dst).run()
        out = np.zeros(8, np.int32)
        weft.lower("i32[8] @x2", "i32[8] @x2").bind(comm, dst, out).run()
        comm.barrier()
        return out.tolist()

    assert weft.spawn(rank_main, 2, timeout=120) == [list(range(8))] * 2


def test_kinds_of_arrays():
    def rank_main(comm):
        which = "f32[4,6] @x1"
        whole = np.arange(24, dtype=np.float32).reshape(4, 6)
        here = moved(comm, whole, comm.empty(which, device="cuda"), which)
        old, new = DLPack(here, old=True), DLPack(here)
        for src in (here, Interface(here), Interface(here, version=2), Interface(here, strides=(24, 4)), old, new):
            assert np.array_equal(moved(comm, src, np.empty((4, 6), np.float32), which), whole)
        assert old.streams == new.streams == [-1]
        part = Interface(here, shape=(4, 2), strides=(24, 12))  # every third column
        assert np.array_equal(moved(comm, part, np.empty((4, 2), np.float32), "f32[4,2] @x1"), whole[:, ::3])
        for dst in (Interface(comm.empty(which, device="cuda")), DLPack(comm.empty(which, device="cuda"))):
            moved(comm, whole, dst, which)
            assert np.array_equal(moved(comm, dst, np.empty((4, 6), np.float32), which), whole)
        # bf16 has no typestr: DLPack says it, and so does weft.bits.
        half = comm.empty("bf16[4,6] @x1", device="cuda")
        assert not hasattr(half, "__cuda_array_interface__")
        weft.lower(which, "bf16[4,6] @x1").bind(comm, here, half).run()
        out = np.zeros((4, 6), np.uint16)
        moved(comm, DLPack(half), weft.bits(out, "bf16"), "bf16[4,6] @x1")
        raw = comm.empty("u16[4,6] @x1", device="cuda")
        weft.lower(which, "bf16[4,6] @x1").bind(comm, here, weft.bits(raw, "bf16")).run()
        assert np.array_equal(moved(comm, raw, np.zeros((4, 6), np.uint16), "u16[4,6] @x1"), out)
        assert np.array_equal(out.astype(np.uint32) << 16, whole.view(np.uint32))
        return True

    assert alone(rank_main)


def test_memory_lives_as_long_as_what_was_made_of_it():
    def rank_main(comm):
        which = "u8[1000] @x1"
        array = moved(comm, np.full(1000, 7, np.uint8), comm.empty(which, device="cuda"), which)
        for how in ({}, {"max_version": (1, 0)}, {"max_version": (1, 3), "stream": 1, "dl_device": (2, 0), "copy": False}):
            gone = array.__dlpack__(**how)  # nobody consumes it
            del gone
        out, plan = np.zeros(1000, np.uint8), weft.lower(which, which)
        bound = plan.bind(comm, DLPack(array), out)
        del array
        gc.collect()
        bound.run()
        assert (out == 7).all()
        second = comm.empty(which, device="cuda")
        interface = Interface(second)
        bound.rebind(interface, out)
        del second, interface
        gc.collect()
        bound.run()
        assert not out.any()
        left = comm.empty(which, device="cuda")
        comm.close()
        del left
        gc.collect()
        return True

    assert alone(rank_main)


def test_empty():
    def rank_main(comm):
        assert comm.empty("f32[0,3] @x1", device="cuda").shape == (0, 3)
        assert comm.empty("f32[] @x1", device="cuda").__cuda_array_interface__["shape"] == ()
        assert comm.empty("f32[4] @x1", device="cpu").tolist() == [0.0] * 4
        plan = weft.lower("f32[0,3] @x1", "f32[0,3] @x1")
        plan.bind(comm, comm.empty("f32[0,3] @x1", device="cuda"), np.empty((0, 3), np.float32)).run()
        x = comm.empty("f32[4] @x1", device="cuda")
        for call, kind, words in (
            (lambda: comm.empty("f32[4] @x1", device="cuda:9"), weft.InvalidError, "no device 9"),
            (lambda: comm.empty("f32[4] @x1", device="tpu"), weft.InvalidError, "no device 'tpu'"),
            (lambda: comm.empty("f32[4] @x1", device="cuda:x"), weft.InvalidError, "no device 'cuda:x'"),
            (lambda: np.asarray(x), TypeError, "the host cannot read"),
            (lambda: x.__dlpack__(stream=0), weft.InvalidError, "stream 0 has two meanings"),
            (lambda: x.__dlpack__(copy=True), BufferError, "without a copy"),
            (lambda: x.__dlpack__(dl_device=(1, 0)), BufferError, "on cuda:0"),
        ):
            with pytest.raises(kind, match=words):
                call()
        return True

    assert alone(rank_main)


def test_arrays_that_do_not_fit():
    def rank_main(comm):
        which = "f32[4] @x1"
        x, host = comm.empty(which, device="cuda"), np.zeros(4, np.float32)
        address = x.__cuda_array_interface__["data"][0]
        plan = weft.lower(which, which)
        for src, dst, words in (
            (host, Interface(x, data=(address, True)), "dst .*read-only"),
            (Interface(x, typestr="<f8"), host, "the array is f64"),
            (Interface(x, typestr="<V2"), host, "bf16 and f8 have no name there.*weft.bits"),
            (Interface(x, version=1), host, "version 1: weft knows 2 and 3"),
            (Interface(x, mask=x), host, "has a mask"),
            (Interface(x, stream=0), host, "stream 0, which its rules forbid"),
            (Interface(x, strides=(-4,)), host, "runs backwards"),
        ):
            with pytest.raises(weft.Error, match=words):
                plan.bind(comm, src, dst)
        managed = DLPack(x)
        managed.__class__ = type("Managed", (DLPack,), {"__dlpack_device__": lambda self: (13, 0)})
        with pytest.raises(weft.UnsupportedError, match="type 13: .*not managed"):
            plan.bind(comm, managed, host)
        with comm.window({"w": ("f32", (4,))}) as w:
            with pytest.raises(weft.UnsupportedError, match="put: the array is on a device"):
                w.put("w", 0, x)
        plan.bind(comm, x, host).run()  # and the comm is as good as before
        return True

    assert alone(rank_main)


def test_without_the_module(monkeypatch, tmp_path):
    """The text says what is missing, and where it was looked for."""

    class Foreign:
        __cuda_array_interface__ = {"version": 3, "data": (1 << 40, False), "shape": (4,), "typestr": "<f4", "stream": None}

        def __dlpack_device__(self):
            return (2, 0)

    monkeypatch.delenv("WEFT_DEVICE")
    monkeypatch.setenv("WEFT_MODULES", str(tmp_path))

    def rank_main(comm):
        for call in (
            lambda: weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, Foreign(), np.zeros(4, np.float32)),
            lambda: comm.empty("f32[4] @x1", device="cuda"),
        ):
            with pytest.raises(weft.UnsupportedError, match="memory of a CUDA device"):
                call()
        os.environ["WEFT_DEVICE"] = "abacus"
        with pytest.raises(weft.InvalidError, match="WEFT_DEVICE=abacus: expected cuda or sim"):
            comm.empty("f32[4] @x1", device="cuda")
        return True

    assert alone(rank_main)


# ---- streams ----


def test_streams():
    """Runs on a stream need no wait in between, and handles of all kinds are taken."""

    def rank_main(comm):
        streams, n = simulated.Streams(), comm.size
        rows, whole = f"i64[{4 * n}/x] @x{n}", f"i64[{4 * n}] @x{n}"
        mine, out = np.zeros(4, np.int64), np.zeros(4 * n, np.int64)
        a, b = comm.empty(rows, device="cuda"), comm.empty(whole, device="cuda")
        up, across, down = (
            weft.lower(x, y).bind(comm, src, dst)
            for x, y, src, dst in ((rows, rows, mine, a), (rows, whole, a, b), (whole, whole, b, out))
        )
        for step in range(8):
            stream = streams.new()
            kinds = (stream, TorchStream(stream), CupyStream(stream), CoreStream(stream))
            mine[:] = 10 * step + comm.rank
            work = [bound.start(kinds[step % 4]) for bound in (up, across, down)]
            if step % 2:
                streams.sync(stream)
            else:
                work[2].wait()
            assert out.tolist() == [10 * step + r for r in range(n) for _ in range(4)]
            for w in work:
                w.wait()
                assert w.done()
        stream = streams.new()
        runs = [across.start(stream) for _ in range(20)]  # of one exec, several in flight
        runs[0].wait()
        assert runs[-1].done() and across.stats.runs == 28
        across.run(stream="host")
        across.run()  # no array says anything of streams
        for wrong in ("legacy", -1, True, 1.5):
            with pytest.raises(weft.InvalidError, match="stream is .*: give the handle as an int"):
                across.start(wrong)
        comm.barrier()
        return True

    assert weft.spawn(rank_main, 2, timeout=120) == [True, True]


def test_the_stream_of_an_interface_orders_runs():
    """A run waits for the stream that the array names when the run starts."""

    def rank_main(comm):
        streams, which = simulated.Streams(), "i32[1000] @x1"
        stream, other = streams.new(), streams.new()
        host, out = np.zeros(1000, np.int32), np.zeros(1000, np.int32)
        x = comm.empty(which, device="cuda")
        array = Interface(x, stream=stream)
        plan = weft.lower(which, which)
        up, down = plan.bind(comm, host, x), plan.bind(comm, array, out)
        for step in range(20):
            host[:] = step
            work = up.start(stream)
            down.start().wait()  # on the same stream, so behind it
            assert (out == step).all()
            work.wait()
        array.change["stream"] = other
        down.run()
        streams.sync(other)
        array.change["stream"] = 1  # the default one
        down.run()
        array.change["stream"] = None
        down.run()
        two = weft.lower({"a": (which, which), "b": (which, which)})
        y = comm.empty(which, device="cuda")
        bound = two.bind(comm, {"a": Interface(x, stream=stream), "b": Interface(y, stream=other)}, {"a": host, "b": out})
        with pytest.raises(weft.ArrayError, match="ordered by 2 streams.*give stream="):
            bound.start()
        bound.run(stream=stream)
        return True

    assert alone(rank_main)


def test_stream_with_host_arrays():
    def rank_main(comm):
        bound = weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, np.ones(4, np.float32), np.zeros(4, np.float32))
        with pytest.raises(weft.UnsupportedError, match="all buffers of this exec are in host memory"):
            bound.start(stream=5)
        bound.run(stream="host")
        bound.run()
        return bound.stats.runs

    assert alone(rank_main) == 2


class Tensor:
    """A CUDA tensor of a PyTorch that is not there, with what weft asks of it."""

    is_cuda, layout, dtype = True, "torch.strided", "torch.float32"

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.device = type("device", (), {"index": 0, "type": "cuda"})

    def data_ptr(self):
        return self.array.__cuda_array_interface__["data"][0]

    def element_size(self):
        return 4

    def stride(self):
        return (1,)

    def is_neg(self):
        return False

    def is_conj(self):
        return False

    def detach(self):
        return self


def test_default_stream_of_torch(monkeypatch):
    """Torch's current stream when the run starts, asked for the tensor's device; no stream if torch is not there."""
    asked, current = [], [None]

    class Cuda:
        @staticmethod
        def current_stream(device):
            asked.append(device)
            return TorchStream(current[0])

        @staticmethod
        def is_available():
            return False

    torch = type("torch", (), {"Tensor": Tensor, "cuda": Cuda, "version": type("version", (), {"hip": None})})

    def rank_main(comm):
        monkeypatch.setitem(sys.modules, "torch", torch)
        streams, which = simulated.Streams(), "f32[6] @x1"
        first, second = streams.new(), streams.new()
        a, b = comm.empty(which, device="cuda"), comm.empty(which, device="cuda")
        host, out, plan = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), weft.lower(which, which)
        up, across, down = (plan.bind(comm, *pair) for pair in ((host, Tensor(a)), (Tensor(a), Tensor(b)), (Tensor(b), out)))
        for stream in (first, second, 0):
            current[0] = stream
            host += 1
            for bound in (up, across):
                bound.start()
            down.start().wait()
            assert np.array_equal(out, host)
        assert asked == [0] * 9
        across.run(stream=first)
        across.run(stream="host")
        assert len(asked) == 9  # not asked if the caller says it
        return True

    assert alone(rank_main)


# ---- collectives ----


def test_collectives_by_name():
    def rank_main(comm):
        which = "f32[8] @x2"
        x = comm.empty(which, device="cuda")
        weft.lower(which, which).bind(comm, np.full(8, comm.rank + 1, np.float32), x).run()

        def host(array, n):
            one = f"f32[{n}] @x2"
            return moved(comm, array, np.zeros(n, np.float32), one).tolist()

        total = comm.allreduce(x)
        assert isinstance(total, weft.DeviceArray) and host(total, 8) == [3.0] * 8
        assert host(comm.allgather(x), 16) == [1.0] * 8 + [2.0] * 8
        assert host(comm.reduce_scatter(x, "max"), 4) == [2.0] * 4
        assert host(comm.broadcast(x, root=1), 8) == [2.0] * 8
        comm.allreduce(x, out=x)
        assert host(x, 8) == [3.0] * 8
        comm.barrier()
        return True

    assert weft.spawn(rank_main, 2, timeout=120) == [True, True]


# ---- windows ----


def test_windows():
    def rank_main(comm):
        parts = weft.layout("f32[16/x] @x2")
        other = 1 - comm.rank
        host = np.zeros(8, np.float32)
        with comm.window({"w": ("f32", (8,)), "sum": ("i32", (4,)), "here": ("f32", (2,), "cpu")}, signals=2, device="cuda") as w:
            w.put("w", other, np.arange(6, dtype=np.float32) + 10 * comm.rank, offset=2)
            w.put_add("sum", 0, np.full(4, comm.rank + 1, np.int32))
            w.put("here", other, np.full(2, comm.rank, np.float32))
            w.notify(other, 0)
            w.wait(0, ">=", 1, timeout=60)
            mine = w.array("w")
            assert isinstance(mine, weft.DeviceArray) and mine.shape == (8,) and mine.device == "cuda:0"
            moved(comm, mine, host, parts)
            assert host.tolist() == [0, 0] + [10 * other + i for i in range(6)]
            assert w.array("here").tolist() == [other, other]
            w.barrier()
            if comm.rank == 0:
                w.put("w", 1, Interface(mine))  # from device memory
            w.barrier()
            moved(comm, mine, host, parts)
            assert host.tolist() == [0, 0] + [10 + i for i in range(6)]
            sums = np.zeros(4 if comm.rank == 0 else 0, np.int32)
            weft.lower("i32[4] @x1=0", "i32[4] @x1=0").bind(comm, *((w.array("sum"), sums) if comm.rank == 0 else (None, None))).run()
            assert comm.rank or sums.tolist() == [3] * 4
            theirs = w.array("w", rank=other).__cuda_array_interface__
            assert theirs["data"][0] != mine.__cuda_array_interface__["data"][0] and theirs["shape"] == (8,)
            signals = {w.signal_pointer(r, s) for r in range(2) for s in range(2)}
            assert len(signals) == 4 and all(at % 8 == 0 for at in signals)
            with pytest.raises(weft.InvalidError, match="no signal 2 of rank 0"):
                w.signal_pointer(0, 2)
            with pytest.raises(weft.ArrayError, match="the buffer 'w' has f32"):
                w.put("w", 0, np.zeros(2))
            w.barrier()
        moved(comm, mine, host, parts)  # its memory lives as long as the array
        return host.tolist() == [0, 0] + [10 + i for i in range(6)]

    assert weft.spawn(rank_main, 2, timeout=120) == [True, True]


def test_windows_that_are_refused():
    def rank_main(comm):
        with pytest.raises(weft.InvalidError, match="no device 'tpu'"):
            comm.window({"w": ("f32", 4)}, device="tpu")
        with pytest.raises(weft.InvalidError, match=r"'w' is \(dtype, shape\) or"):
            comm.window({"w": ("f32", 4, "cuda", 1)})
        with pytest.raises(weft.Error, match="no device 7"):
            comm.window({"w": ("f32", 4)}, device="cuda:7")
        with comm.window({"w": ("f32", 4)}, signals=1) as w:
            with pytest.raises(weft.InvalidError, match="no buffer on a device"):
                w.signal_pointer(0, 0)
        return True

    assert alone(rank_main)


# ---- the bus ----


def test_bus(tmp_path):
    """Put from the device, cast there; read into memory of the device, into arrays on it, and into host memory."""

    def rank_main(comm):
        which, url = "f32[500,300] @x1", f"file:{tmp_path}/directory"
        here, into, out = comm.empty(which, device="cuda"), comm.empty("bf16[500,300] @x1", device="cuda"), comm.empty("bf16[500,300] @x1")
        seen = []
        with weft.bus(url) as bus, bus.publish("policy", {"w": here}, dtype="bf16") as pub:
            mine = {"w": "bf16[500,300] @x1"}
            on, given, host = (
                bus.subscribe("policy", mine, device="cuda:0", arrived=lambda v, n, a: seen.append((n, a.device))),
                bus.subscribe("policy", mine, into={"w": into}),
                bus.subscribe("policy", {"w": "f32[500,300] @x1"}),
            )
            for step in range(1, 4):
                whole = np.arange(500 * 300, dtype=np.float32).reshape(500, 300) % 128 + step
                pub.put(step, {"w": moved(comm, whole, here, which)})
                pub.commit(step)
                for sub in (on, given, host):
                    sub.swap(sub.fetch("newer"))
                with host.use() as w:
                    assert np.array_equal(w["w"], whole)
                for sub in (on, given):
                    with sub.use() as w:
                        array = w["w"]
                        assert isinstance(array, weft.DeviceArray) and (array.dtype, array.shape, array.device) == ("bf16", (500, 300), "cuda:0")
                        bits = np.asarray(moved(comm, array, out, "bf16[500,300] @x1")).view(np.uint16)
                        assert np.array_equal(bits, (whole.view(np.uint32) >> 16).astype(np.uint16))
                    del array
            assert seen == [("w", "cuda:0")] * 3
            with pytest.raises(weft.InvalidError, match="give one of them"):
                bus.subscribe("policy", mine, into={"w": into}, device="cuda")
            with pytest.raises(weft.UnsupportedError, match="'w': its array is not in host memory"), pub.lend(9, {"w": here}):
                pass
            for sub in (on, given, host):
                sub.close()
        return True

    assert alone(rank_main)


def test_bus_follows(tmp_path):
    def rank_main(comm):
        which, url = "f32[1000] @x1", f"file:{tmp_path}/directory"
        here, there = comm.empty(which, device="cuda"), comm.empty(which, device="cuda")
        for step in (1, 2):
            values = np.arange(1000, dtype=np.float32) * step
            weft.sync(url, "policy", {"w": moved(comm, values, here, which)}, step)
            assert weft.follow(url, "policy", {"w": there}, timeout=60) == (1, step)
            assert np.array_equal(moved(comm, there, np.empty(1000, np.float32), which), values)
        return True

    assert alone(rank_main)


def test_bus_waits_for_pytorch(tmp_path, monkeypatch):
    """Before a pin ends, before given arrays are written, and when an array has arrived. A pin ends also if waiting fails."""

    def rank_main(comm):
        which, url = "f32[10] @x1", f"file:{tmp_path}/directory"
        here, seen, raised = comm.empty(which, device="cuda"), [], []
        monkeypatch.setattr(weft._bus, "finish_work", lambda devices: seen.append(set(devices)))
        with weft.bus(url) as bus, bus.publish("policy", {"w": which}) as pub:
            pub.put(1, {"w": np.zeros(10, np.float32)})
            pub.commit(1)
            for opts, expected in (
                ({"into": {"w": here}}, [1]),
                ({"into": {"w": here}, "direct": True}, [0]),
                ({"device": "cuda"}, []),
                ({"device": "cuda", "arrived": lambda *_: None}, [0]),
            ):
                with bus.subscribe("policy", {"w": which}, **opts) as sub:
                    calls = []
                    for call in (lambda: sub.fetch(), lambda: sub.swap((1, 1))):
                        seen.clear()
                        call()
                        calls.append({0} in seen)
                    assert [i for i, waited in enumerate(calls) if waited] == expected
                    seen.clear()
                    with sub.use():
                        assert seen == []
                    assert seen == [{0}]

            def fail(devices):
                raise RuntimeError("the device has failed")

            monkeypatch.setattr(weft._bus, "finish_work", fail)
            monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_value))
            sub = bus.subscribe("policy", {"w": which}, device="cuda")
            sub.swap(sub.fetch())
            with sub.use():
                pass
            assert len(raised) == 1
            sub.close()  # it would be refused with a pin
        return True

    assert alone(rank_main)


def test_bus_puts_after_the_stream_of_an_interface(tmp_path):
    """What a late stream writes is put."""

    def rank_main(comm):
        streams, which = simulated.Streams(), "f32[1000] @x1"
        stream, here = streams.new(), comm.empty(which, device="cuda")
        with weft.bus(f"file:{tmp_path}/directory") as bus, bus.publish("policy", {"w": here}) as pub, bus.subscribe("policy", {"w": which}) as sub:
            for step in range(1, 6):
                values = np.arange(1000, dtype=np.float32) * step
                with weft.lower(which, which).bind(comm, values, here) as bound:
                    work = bound.start(stream=stream)
                    pub.put(step, {"w": Interface(here, stream=stream)})
                    pub.commit(step)
                    work.wait()
                sub.swap(sub.fetch("newer"))
                with sub.use() as w:
                    assert np.array_equal(w["w"], values)
            two = {"a": Interface(here, stream=stream), "b": Interface(here, stream=streams.new())}
            with bus.publish("two", {"a": which, "b": which}) as pair:
                with pytest.raises(weft.ArrayError, match="give stream= the one that waits"):
                    pair.put(1, two)
                pair.put(1, two, stream=stream)
                pair.put(2, two, stream="host")
        return True

    assert alone(rank_main)


# ---- examples ----


@pytest.mark.parametrize(
    "name,said",
    [("13_gpu_weights", "30 versions of 524288 weights on the simulated device"), ("14_gpu_heat", "40 steps of heat on 3 ranks")],
)
def test_examples(name, said):
    example = pathlib.Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "") and said in done.stdout
