"""Moves: ranks that are processes and threads, errors on all ranks, windows, memory that lives on."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import weft
from parts import part


def threads(n, fn, name, **options):
    """fn(comm) on n threads; their results, or the first exception."""
    out, errors = [None] * n, []

    def rank_main(rank):
        try:
            with weft.open(f"threads:{n}/{name}", rank=rank, **options) as comm:
                out[rank] = fn(comm)
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=rank_main, args=(r,)) for r in range(n)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    if errors:
        raise errors[0]
    return out


def move(comm, src, dst, whole):
    a, b = weft.layout(src), weft.layout(dst)
    x, y = comm.empty(a), comm.empty(b)
    x[...] = part(a, comm.rank, whole)
    with weft.lower(a, b).bind(comm, x, y) as bound:
        for _ in range(3):
            y[...] = 0
            comm.barrier()
            bound.run(timeout=20)
            comm.barrier()
            assert np.array_equal(y, part(b, comm.rank, whole))
        assert bound.stats.runs == 3
    return True


PAIRS = [
    ("f32[12/x,7] @x3", "f32[12,7/x] @x3"),
    ("i64[13/x:2] @x3", "i64[13/x] @x2=2,1"),
    ("f64[9/x/y] @x2.y2", "f64[9] @x1=3"),
]


@pytest.mark.parametrize("src,dst", PAIRS)
def test_processes_and_threads(src, dst):
    whole = np.arange(84).reshape(12, 7) if ",7" in src else np.arange(weft.layout(src).shape[0])
    n = max(weft.layout(src).world, weft.layout(dst).world)
    assert weft.spawn(move, n, src, dst, whole) == [True] * n
    assert threads(n, lambda comm: move(comm, src, dst, whole), "pairs") == [True] * n
    assert weft.spawn(move, n + 1, src, dst, whole) == [True] * (n + 1)  # more ranks than it needs


def test_state_dict():
    pairs = {"w": ("f32[8/x,4] @x2", "f16[8,4/x] @x2=2,3"), "b": ("f32[8] @x2", "f32[8] @x2=2,3")}

    def rank_main(comm):
        plan = weft.lower(pairs)
        weights = {"w": np.arange(32, dtype=np.float32).reshape(8, 4), "b": np.ones(8, np.float32)}
        src = {k: part(weft.layout(pairs[k][0]), comm.rank, v) for k, v in weights.items()} if comm.rank < 2 else None
        dst = {k: comm.empty(pairs[k][1]) for k in pairs}
        plan.bind(comm, src, dst).run()
        return all(np.array_equal(dst[k], part(weft.layout(pairs[k][1]), comm.rank, v)) for k, v in weights.items())

    assert weft.spawn(rank_main, 4) == [True] * 4


# ---- runs ----


def test_works():
    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        x, y = comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)
        bound = plan.bind(comm, x, y)
        if comm.rank == 0:
            work = bound.start()
            with pytest.raises(weft.TimeoutError, match="rank 1") as caught:
                work.wait(timeout=0.05)
            assert isinstance(caught.value, TimeoutError) and not work.done()
            with pytest.raises(weft.BusyError, match="in flight"):
                bound.start()
            comm.barrier()
            work.wait()
        else:
            comm.barrier()
            work = bound.start()
            while not work.done():
                pass
        x[:] = comm.rank + 1
        later = bound.start()
        work.wait()  # an earlier run is over
        assert work.done()
        later.wait()
        assert y.tolist() == [1, 1, 2, 2]
        z = comm.empty(plan.moves[0].dst)
        bound.rebind(x, z)
        bound.run()
        bound.close()
        bound.close()
        with pytest.raises(weft.InvalidError):
            bound.start()
        return z.tolist()

    assert weft.spawn(rank_main, 2) == [[1, 1, 2, 2]] * 2


def test_gil_is_released_while_waiting():
    """A rank that waits lets the thread of the other run: they could not finish otherwise."""

    def rank_main(comm):
        x = comm.empty("f64[4/x] @x2")
        bound = weft.lower("f64[4/x] @x2", "f64[4] @x2").bind(comm, x, comm.empty("f64[4] @x2"))
        for _ in range(200):
            bound.run()
        return True

    assert threads(2, rank_main, "gil") == [True, True]


def test_ctrl_c_ends_a_wait():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have this started with it ignored
    def first():
        with weft.open("threads:2/interrupt", rank=0) as comm:
            window = comm.window({}, signals=1)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                window.wait(0, ">=", 1)
            window.barrier()

    def second():
        with weft.open("threads:2/interrupt", rank=1) as comm:
            comm.window({}, signals=1).barrier()

    other = threading.Thread(target=second)
    other.start()
    first()
    other.join()


@pytest.mark.parametrize("which", ["comm", "window", "some"])
def test_ctrl_c_ends_a_barrier(which):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = threading.Event()

    def barrier(comm):
        window = comm.window({}, signals=1)
        return {"comm": comm.barrier, "window": window.barrier, "some": lambda: window.barrier([0, 1])}[which]

    def second():
        with weft.open("threads:2/barriers", rank=1, deadline=60) as comm:
            enter = barrier(comm)
            interrupted.wait()
            enter()

    other = threading.Thread(target=second)
    other.start()
    with weft.open("threads:2/barriers", rank=0, deadline=60) as comm:
        enter = barrier(comm)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                enter()
            assert time.monotonic() - began < 30  # not the deadline
        finally:
            interrupted.set()
        enter()  # it is still in it
    other.join()


def test_barriers_have_the_deadline_of_their_comm(monkeypatch):
    monkeypatch.delenv("WEFT_DEADLINE_MS", raising=False)
    with weft.open("self:") as comm:
        assert comm._open().deadline == 30
    monkeypatch.setenv("WEFT_DEADLINE_MS", "2500")
    with weft.open("self:") as comm, comm.split([0]) as part:
        assert comm._open().deadline == part._open().deadline == 2.5
    gone = threading.Event()

    def rank_main(comm):
        if comm.rank == 0:
            with pytest.raises(weft.TimeoutError, match="rank 1 not there yet"):
                comm.barrier()
            gone.set()
        gone.wait()
        comm.barrier(timeout=100)

    threads(2, rank_main, "deadline", deadline=3)


def test_ranks_end_with_a_script_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time, weft\n"
        "def rank_main(comm):\n"
        "    comm.barrier()\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"
        "    time.sleep(1000)\n"
        "weft.spawn(rank_main, 2)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    ranks = [int(process.stdout.readline()) for _ in range(2)]
    process.kill()
    process.wait()
    assert process.stdout.read() == b""  # until both have closed it
    assert len(set(ranks)) == 2


def test_groups():
    def rank_main(comm):
        half = comm.split([0, 2] if comm.rank % 2 == 0 else [3, 1])
        assert half.size == 2
        none = comm.split([0] if comm.rank == 0 else [])
        assert (none is None) == (comm.rank != 0)
        return half.allgather(np.array([comm.rank])).tolist()

    assert weft.spawn(rank_main, 4) == [[0, 2], [3, 1], [0, 2], [3, 1]]


def test_dead_rank_is_named():
    def rank_main(comm):
        plan = weft.lower("f32[6/x] @x3", "f32[6] @x3")
        bound = plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst))
        bound.run()
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        bound.run()

    with pytest.raises(weft.RankError) as caught:
        weft.spawn(rank_main, 3)
    error = caught.value
    assert error.rank == 2 and "killed by signal 9" in str(error)
    assert isinstance(error.errors[0], weft.PeerError) and error.errors[0].rank == 2


def test_spawn_brings_exceptions_back():
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a)

    def rank_main(comm, what):
        if comm.rank == 1:
            raise what
        comm.barrier()

    with pytest.raises(weft.RankError, match="rank 1 of 2: KeyError: 'x'") as caught:
        weft.spawn(rank_main, 2, KeyError("x"))
    assert caught.value.rank == 1 and isinstance(caught.value.__cause__, KeyError)
    assert "rank_main" in str(caught.value.__cause__.__cause__)
    with pytest.raises(weft.RankError, match="Odd: 1"):
        weft.spawn(rank_main, 2, Odd(1, 2))
    with pytest.raises(weft.InvalidError):
        weft.spawn(rank_main, 0)
    assert weft.spawn(_rank, 3, 10, method="spawn") == [10, 11, 12]


def _rank(comm, base):
    return base + comm.rank


def test_open_errors():
    for url, options, kind in (
        ("carrier-pigeon:", {}, weft.InvalidError),
        ("threads:2/late", {"rank": 0, "deadline": 0.1}, weft.Error),
        ("self:", {"inflight_bytes": -1}, weft.InvalidError),
        (None, {}, weft.InvalidError),
    ):
        with pytest.raises(kind):
            weft.open(url, **options)
    assert "self:" in weft.transports()
    comm = weft.open("self:")
    assert (comm.rank, comm.size, comm.machine.ranks_per_host) == (0, 1, 0) and "rank 0 of 1" in repr(comm)


def test_open_twice_says_what_to_do():
    def rank_main(comm):
        name = f"shm:twice-{os.getppid()}"
        with weft.open(name, rank=comm.rank, ranks=comm.size) as first:
            with pytest.raises(weft.BusyError) as caught:
                weft.open(name, rank=comm.rank, ranks=comm.size)
            second = first.split(range(comm.size))  # what the text says works
            total = int(second.allreduce(np.array([1]))[0]) + int(first.allreduce(np.array([1]))[0])
        return str(caught.value).partition(": rank")[2], total

    text = " is open already, in this process: use that comm, or a split of it (weft_comm_split; comm.split in Python)"
    assert weft.spawn(rank_main, 2) == [(f" {r}{text}", 4) for r in range(2)]


# ---- windows ----


def test_windows():
    def rank_main(comm):
        n, me = comm.size, comm.rank
        with comm.window({"a": ("f32", (n, 2)), "sum": (np.int64, 1)}, signals=2) as w:
            mine = w.array("a")
            for r in range(n):
                w.put("a", r, np.full(2, me, np.float32), offset=2 * me)
                w.put_add("sum", r, np.array([me + 1]))
                w.notify(r, 0)
            w.wait(0, ">=", n, timeout=20)
            assert mine[:, 0].tolist() == list(range(n)) and w.signal(0) == n
            w.barrier()
            assert w.array("sum", (me + 1) % n)[0] == n * (n + 1) // 2
            w.array("a", 0)[me, 1] = 9
            w.barrier(ranks=[r for r in range(n) if r != me])
            w.notify(me, 1, 5, add=False)
            with pytest.raises(weft.TimeoutError):
                w.wait(1, "==", 6, timeout=0.01)
            with pytest.raises(weft.InvalidError, match="no buffer 'b'"):
                w.array("b")
            with pytest.raises(weft.ArrayError, match="i64"):
                w.put("a", 0, np.array([1]))
            with pytest.raises(weft.InvalidError):
                w.array("a", n)
            with pytest.raises(weft.InvalidError):
                w.put("a", 0, np.zeros(2 * n + 1, np.float32))
            first = w.array("a", 0)
            w.barrier()
        with pytest.raises(weft.InvalidError, match="closed"):
            w.array("a")
        return first[:, 1].tolist()  # the array keeps its memory

    assert weft.spawn(rank_main, 3) == [[9, 9, 9]] * 3


# ---- leaks ----


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_timeouts_mean_the_same_everywhere():
    """Rank 1 does nothing for two deadlines: DEADLINE ends before, FOREVER and None do not."""

    def rank(comm):
        x, other = np.zeros(4, np.float32), 1 - comm.rank
        plan = weft.lower("f32[4] @x1=1", "f32[4] @x1=0")
        with plan.bind(comm, x if comm.rank else None, None if comm.rank else x) as bound:
            with comm.window({}, signals=1) as window, comm.exchange([other], [other]) as exchange:
                if comm.rank:
                    time.sleep(2)
                    bound.run(weft.FOREVER)
                    exchange.finish().wait(None)
                    window.notify(0, 0)
                else:
                    work, round_ = bound.start(), exchange.finish()
                    waits = (work.wait, round_.wait, lambda t: window.wait(0, ">=", 1, t))
                    for wait in waits:
                        for bad in (-3, -0.5):
                            with pytest.raises(weft.InvalidError, match="weft.FOREVER or weft.DEADLINE"):
                                wait(bad)
                        with pytest.raises(weft.TimeoutError):
                            wait(0)
                        before = time.monotonic()
                        with pytest.raises(weft.TimeoutError):
                            wait(weft.DEADLINE)
                        assert time.monotonic() - before >= 0.2
                    with pytest.raises(weft.TimeoutError):
                        window.barrier()
                    for wait, limit in zip(waits, (weft.FOREVER, None, weft.FOREVER)):
                        wait(limit)
                window.barrier(timeout=weft.FOREVER)
                window.barrier([other], timeout=None)
                comm.barrier(weft.FOREVER)
        return True

    assert weft.spawn(rank, 2, deadline=0.2) == [True, True]


def test_odd_numbers():
    comm = weft.open("self:", deadline=float("inf"))
    x = np.zeros(4, np.float32)
    bound = weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, x, x.copy(), deadline=1e12)
    bound.run(timeout=float("inf"))
    comm.barrier(timeout=1e12)
    with pytest.raises(weft.InvalidError, match="NaN"):
        bound.run(timeout=float("nan"))
    with pytest.raises(weft.InvalidError, match="a time of -3 seconds"):
        bound.run(timeout=-3)
    for shape in ((1 << 33, (1 << 31) + 1), (-2, -3), -1):
        with pytest.raises(weft.InvalidError, match="the buffer 'a' cannot have the shape"):
            comm.window({"a": ("u8", shape)})
    with comm.window({"a": ("u8", np.int64(3)), "b": ("u8", ())}) as window:
        assert window.array("a").shape == (3,) and window.array("b").shape == ()
    for dtype in ("datetime64[s]", "no", [("a", "f4")], ["f4"]):
        with pytest.raises(weft.ArrayError, match="element type"):
            weft.collective("allreduce", dtype, 4, 2)
    work = bound.start()
    bound.close()
    for call in (work.wait, work.done, bound.start, lambda: bound.stats):
        with pytest.raises(weft.InvalidError, match="is closed: bind the plan again"):
            call()


def test_nothing_leaks():
    comm = weft.open("self:")

    def once():
        plan = weft.lower("f32[64,8/x] @x1", "f32[64/x,8] @x1")
        x, y = comm.empty(plan.moves[0].src), np.zeros((64, 8), np.float32)
        bound = plan.bind(comm, x, y)
        bound.run()
        plan.explain()
        weft.load(plan.save())
        comm.allreduce(y)
        with comm.window({"a": ("f32", 100)}, signals=1) as w:
            w.array("a")[0] = 1
        try:
            weft.layout("f32[")
        except weft.Error:
            pass

    for _ in range(300):
        once()
    gc.collect()
    before = resident()
    for _ in range(3000):
        once()
    gc.collect()
    grown = resident() - before
    assert grown < 2 << 20, f"{grown} bytes more after 3000 rounds"


def test_freed_on_another_thread():
    """A comm is used by one thread: what another one drops is put aside until that comes by."""
    comm = weft.open("self:")
    plan, x = weft.lower("f32[4] @x1", "f32[4] @x1"), np.zeros(4, np.float32)
    held = [plan.bind(comm, x, x.copy())]
    other = threading.Thread(target=held.clear)
    other.start()
    other.join()
    assert len(comm._handle.aside) == 1
    plan.bind(comm, x, x.copy()).run()
    assert not comm._handle.aside


def test_dropped_on_another_thread_in_flight():
    """What the run needs stays until it is freed."""

    def rank_main(comm):
        plan = weft.lower("u8[2000000/x] @x2", "u8[2000000] @x2")
        src, dst = np.full(1_000_000, comm.rank + 1, np.uint8), np.zeros(2_000_000, np.uint8)
        bound = plan.bind(comm, src, dst)
        if comm.rank:
            comm.barrier()
            bound.run()
            return np.array_equal(dst, np.repeat(np.array([1, 2], np.uint8), 1_000_000))
        bound.start()
        held = [bound, src, dst]
        del bound, src, dst
        other = threading.Thread(target=held.clear)
        other.start()
        other.join()
        other_things = [np.full(1_000_000, 9, np.uint8) for _ in range(4)]
        comm.barrier()
        comm.close()
        return len(other_things)

    assert weft.spawn(rank_main, 2, staged=True) == [4, True]


def test_dropped_on_another_thread_with_memory_of_the_comm():
    """What is put aside holds arrays, which hold the comm: it goes when nobody else does."""
    for close in (True, False):
        comm = weft.open("self:")
        held = [weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, comm.empty("f32[4] @x1"), comm.empty("f32[4] @x1"))]
        other = threading.Thread(target=held.clear)
        other.start()
        other.join()
        assert len(comm._handle.aside) == 1
        handle = weakref.ref(comm._handle)
        if close:
            comm.close()
        del comm
        gc.collect()
        assert handle() is None


def test_memory_is_used_again_on_another_thread():
    comm = weft.open("self:")

    def use():
        for _ in range(100):
            comm.empty("u8[1000] @x1")
        assert len(comm._handle.aside) < 2

    assert_on_thread(use)


def assert_on_thread(fn):
    errors = []

    def run():
        try:
            fn()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


LEFT_OPEN = """
import numpy as np, weft
comm = weft.open("shm:left-open", rank=0, ranks=1, progress="thread")
x = comm.empty("f32[4] @x1")
bound = weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, x, np.zeros(4, np.float32))
work, window, halo = bound.start(), comm.window({"a": ("f32", 3)}), comm.halo()
array, round_ = window.array("a"), halo.start(b"", b"")
comm.allreduce(x)
print("end")
"""


def test_exit_with_everything_open():
    done = subprocess.run([sys.executable, "-X", "dev", "-c", LEFT_OPEN], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_cycles_are_collected():
    """Garbage in cycles, with the comm in it: freed in any order."""
    before = len(os.listdir("/dev/shm"))
    for _ in range(20):
        comm = weft.open("shm:cycle", rank=0, ranks=1)
        x = comm.empty("f32[4] @x1")
        bound = weft.lower("f32[4] @x1", "f32[4] @x1").bind(comm, x, np.zeros(4, np.float32))
        window = comm.window({"a": ("u8", 3)})
        bound.run()
        ring = [comm, x, bound, window, window.array("a")]
        ring.append(ring)
        comm.ring = ring
        del comm, x, bound, window, ring
        gc.collect()
    assert len(os.listdir("/dev/shm")) <= before


def test_messages_are_checked_if_that_is_asked_for():
    def rank(comm):
        a, b = weft.layout("f32[12/x,7] @x3"), weft.layout("f32[12,7/x] @x3")
        x, y = comm.empty(a), comm.empty(b)
        x[...] = part(a, comm.rank, np.arange(84, dtype=np.float32).reshape(12, 7))
        plan = weft.lower(a, b)
        with plan.bind(comm, x, y, check=True) as bound:
            bound.run(timeout=20)
            assert bound.stats.checked == 2
        with plan.bind(comm, x, y, check=False) as bound:
            bound.run(timeout=20)
            assert bound.stats.checked == 0
        with pytest.raises(weft.MismatchError, match="some do not"):
            plan.bind(comm, x, y, check=comm.rank == 1)
        return True

    assert threads(3, rank, "checked") == [True] * 3
