"""The bus from Python: what a user writes, arrays of each library, several ranks, deaths, and what is refused."""

import asyncio
import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft

DEADLINE = 60  # seconds; what is waited for comes, on a loaded machine, too


@pytest.fixture
def url(tmp_path):
    return f"file:{tmp_path}/directory"


def weights(step, dtype=np.float32):
    return {"embed": (np.arange(24, dtype=dtype) + step).reshape(4, 6), "bias": np.full(5, step, dtype)}


def same(pin, step, dtype=np.float32):
    for name, array in weights(step, dtype).items():
        np.testing.assert_array_equal(np.asarray(pin[name]), array)


def test_walk(url):
    with weft.bus(url) as there, weft.bus(url, job="server") as here:
        assert here.job == "server"
        with there.publish("policy", weights(0)) as pub, here.subscribe("policy", weights(0)) as sub:
            assert pub.epoch == 1 and repr(pub.layouts["embed"]) == "f32[4,6] @x1"
            assert sub.version is None
            with pytest.raises(weft.InvalidError):
                sub.use()
            with pytest.raises(weft.TimeoutError, match="policy"):
                sub.fetch(timeout=0.05)
            for step in (3, 4, 7):
                pub.put(step, weights(step))
                assert pub.commit(step, {"loss": step / 2})
                assert sub.verify(timeout=DEADLINE) == (1, step)
                assert "bytes" in sub.explain()
                version = sub.fetch("newer", timeout=DEADLINE)
                assert version == weft.Version(1, step) and sub.version != version
                sub.swap(version)
                with sub.use() as w:
                    assert w.version == version and w.meta == {"loss": step / 2} and set(w) == {"embed", "bias"} and len(w) == 2
                    same(w, step)
                    assert not w["embed"].flags.writeable
            assert [v.version.step for v in here.versions("policy")] == [4, 7]  # two are kept
            assert "weft_bus_put_seconds_count 3\n" in there.metrics() and there.metrics().endswith("# EOF\n")
            assert {n: repr(w) for n, w in here.describe("policy").items()} == {"embed": "f32[4,6] @x1", "bias": "f32[5] @x1"}
            with pytest.raises(weft.TimeoutError):
                here.describe("policy", 99, timeout=0)
            assert sub.fetch(4, timeout=DEADLINE).step == 4
            assert sub.fetch(">=5", timeout=DEADLINE).step == 7
            with pytest.raises(weft.TimeoutError):
                sub.fetch(">=8", timeout=0.05)
        assert here.versions("policy") == []  # they went with their publisher


def test_bits(url):
    """An array with the bits of a type that NumPy lacks is no pair of an array and a layout."""
    raw = np.arange(6, dtype=np.uint16) + 0x3F80
    with weft.bus(url) as b:
        pub = b.publish("p", {"w": weft.bits(raw, "bf16")})
        assert repr(pub.layouts["w"]) == "bf16[6] @x1"
        pub.put(0, {"w": weft.bits(raw, "bf16")})
        pub.commit(0)
        out = np.zeros(6, np.float32)
        sub = b.subscribe("p", {"w": out}, into={"w": out})
        sub.swap(sub.fetch(timeout=DEADLINE))
        np.testing.assert_array_equal(out, (raw.astype(np.uint32) << 16).view(np.float32))
        sub.close()
        pub.close()


def test_partial_sums_are_refused_by_name(url):
    with weft.bus(url) as b, pytest.raises(weft.InvalidError, match="publish: 'w' has partial sums, which are folded in C only: reduce it first"):
        b.publish("p", {"w": "f32[4] @x2 +sum(x)"}, rank=0, ranks=2, run="a")


def test_casts(url):
    """f32 that is published as bf16, and read as f32: rounded once, by the published type."""
    with weft.bus(url) as b:
        values = np.linspace(-3, 3, 1000, dtype=np.float32)
        tensors = {"w": values, "n": np.arange(4)}
        pub = b.publish("p", tensors, dtype="bf16")
        assert [repr(x) for x in pub.layouts.values()] == ["bf16[1000] @x1", "i64[4] @x1"]
        pub.put(0, tensors)
        pub.commit(0)
        sub = b.subscribe("p", {"w": "f32[1000] @x1", "n": "i64[4] @x1"})
        sub.swap(sub.fetch(timeout=DEADLINE))
        with sub.use() as w:
            rounded = (values.view(np.uint32) + 0x7FFF + ((values.view(np.uint32) >> 16) & 1)) & 0xFFFF0000
            np.testing.assert_array_equal(w["w"].view(np.uint32), rounded)
            assert w.meta is None
            del w
        one = b.publish("q", {"w": (values, "f64[1000] @x1")})  # for one tensor
        one.put(0, {"w": values})
        one.commit(0)
        pair = b.subscribe("q", {"w": "f64[1000] @x1"})
        pair.swap(pair.fetch(timeout=DEADLINE))
        with pair.use() as w:
            np.testing.assert_array_equal(w["w"], values.astype(np.float64))
        for closing in (sub, pair, one, pub):
            closing.close()


def test_names_are_told(url):
    with weft.bus(url) as b, b.publish("policy", weights(0)) as pub:
        pub.put(0, weights(0))
        pub.commit(0)
        with b.subscribe("policy", {"embed": "f32[4,6] @x1", "head": "f32[2] @x1"}) as sub:
            with pytest.raises(weft.MismatchError, match="(?s)head.*bias|bias.*head"):
                sub.fetch(timeout=DEADLINE)
        with b.subscribe("policy", {"embed": "f32[4,7] @x1"}, only=True) as sub:
            with pytest.raises(weft.MismatchError, match="embed"):
                sub.verify(timeout=DEADLINE)
        with b.subscribe("policy", {"tied": "f32[4,6] @x1"}, only=True, aliases={"tied": "embed"}) as sub:
            sub.swap(sub.fetch(timeout=DEADLINE))
            with sub.use() as w:
                np.testing.assert_array_equal(w["tied"], weights(0)["embed"])


def test_what_is_refused(url):
    with pytest.raises(weft.InvalidError):
        weft.bus("nonsense:x")
    with weft.bus(url) as b:
        with pytest.raises(weft.InvalidError, match="dict"):
            b.publish("p", [1])
        with pytest.raises(weft.InvalidError, match="no tensor"):
            b.publish("p", {})
        with pytest.raises(weft.InvalidError, match="slow"):
            b.publish("p", weights(0), slow="never")
        with pytest.raises(weft.ArrayError, match="other ranks"):
            b.publish("p", weights(0), rank=0, ranks=2, run="r")
        with pytest.raises(weft.InvalidError, match="aliases"):
            b.subscribe("p", weights(0), aliases={"x": "y"})
        pub = b.publish("p", weights(0))
        with pytest.raises(weft.InvalidError, match="no array for 'bias'.*'odd' is not published"):
            pub.put(0, {"embed": weights(0)["embed"], "odd": 1})
        with pytest.raises(weft.ArrayError, match="embed"):
            pub.put(0, {**weights(0), "embed": np.zeros((4, 5), np.float32)})
        with pytest.raises(weft.ArrayError, match="embed"):
            pub.put(0, weights(0, np.float64))
        sub = b.subscribe("p", weights(0))
        for want in ("yesterday", True, ">=", 1.5):
            with pytest.raises(weft.InvalidError, match="STEP"):
                sub.fetch(want)
        with pytest.raises(weft.BusyError):
            b.close()
        sub.close()
        pub.close()
        for closed in (pub.put, sub.fetch):
            with pytest.raises(weft.InvalidError, match="closed"):
                closed(0, weights(0)) if closed == pub.put else closed()


def test_arrays_outlive_the_with(url):
    """An array that is kept keeps its version; the subscriber cannot be closed under it."""
    with weft.bus(url) as b, b.publish("p", weights(0)) as pub:
        sub = b.subscribe("p", weights(0))
        kept = None
        for step in range(1, 4):
            pub.put(step, weights(step))
            pub.commit(step)
            sub.swap(sub.fetch(timeout=DEADLINE))
            if step == 1:
                with sub.use() as w:
                    kept = w["embed"]
                with pytest.raises(weft.InvalidError, match="given back"):
                    w["bias"]
            if step == 2:
                np.testing.assert_array_equal(kept, weights(1)["embed"])
                with pytest.raises(weft.BusyError, match="pins"):
                    sub.close()
                with pytest.raises(weft.TimeoutError, match="pin"):
                    sub.fetch("latest", timeout=0.05)  # its memory is that of the version that is kept
                np.testing.assert_array_equal(kept, weights(1)["embed"])
                kept = None
                gc.collect()
        with sub.use() as w:
            same(w, 3)
        sub.close()


def test_progress_and_exceptions(url):
    with weft.bus(url) as b, b.publish("p", weights(0)) as pub:
        pub.put(1, weights(1))
        pub.commit(1)
        heard = []
        with b.subscribe("p", weights(0), progress=lambda done, total: heard.append((done, total))) as sub:
            sub.fetch(timeout=DEADLINE)
        assert heard and heard[-1] == (116, 116) and heard == sorted(heard)

        def refuse(done, total):
            raise KeyError("enough")

        with b.subscribe("p", weights(0), progress=refuse) as sub:
            with pytest.raises(KeyError, match="enough"):
                sub.fetch(timeout=DEADLINE)


def test_background(url):
    """A fetch that does not stop the reader: how far it is, its result, its end, and tensors as they arrive."""
    came, gate = [], threading.Event()
    with weft.bus(url) as b, b.publish("policy", weights(0)) as pub:

        def arrived(version, name, array):
            gate.wait(DEADLINE)
            np.testing.assert_array_equal(np.asarray(array), weights(version.step)[name])
            came.append((version.step, name))

        with b.subscribe("policy", weights(0), arrived=arrived) as sub:
            with sub.start(timeout=DEADLINE) as f:  # there is no version yet: the end of the block cancels it
                assert f.progress == (0, 0) and not f.over and "0 of 0" in repr(f)
                with pytest.raises(weft.TimeoutError):
                    f.wait(0.01)
                with pytest.raises(weft.BusyError, match="background"):
                    sub.fetch(timeout=0)
            with pytest.raises(weft.InvalidError, match="cancelled"):
                f.wait()
            pub.put(1, weights(1))
            pub.commit(1)
            f = sub.start("newer", timeout=DEADLINE)
            assert sub.version is None
            gate.set()
            version = f.wait(DEADLINE)
            assert version.step == 1 and f.over and f.wait() == version and f.progress == (116, 116)
            assert came == [(1, "embed"), (1, "bias")]
            sub.swap(version)
            with sub.use() as w:
                same(w, 1)

        def wrong(version, name, array):
            raise ValueError(name)

        with b.subscribe("policy", weights(0), arrived=wrong) as sub:
            with pytest.raises(ValueError, match="embed"):
                sub.fetch(timeout=DEADLINE)
            with pytest.raises(ValueError, match="embed"):
                sub.start(timeout=DEADLINE).wait(DEADLINE)


def test_background_from_other_threads(url):
    """A fetch is cancelled while another thread waits for it, by its own callback, and by the end of its subscriber."""
    with weft.bus(url) as b, b.publish("policy", weights(0)) as pub:
        with b.subscribe("policy", weights(0)) as sub:
            f, waits = sub.start(timeout=DEADLINE), threading.Event()

            def wait():
                waits.set()
                with pytest.raises(weft.InvalidError):
                    f.wait(DEADLINE)

            thread = threading.Thread(target=wait)
            thread.start()
            waits.wait(DEADLINE)
            f.cancel()
            thread.join(DEADLINE)
            assert not thread.is_alive() and f.over
            sub.start(timeout=DEADLINE)  # nobody has it: it is freed, and the subscriber is free
            last = sub.start(timeout=DEADLINE)
        with pytest.raises(weft.InvalidError, match="cancelled"):
            last.wait()
        pub.put(1, weights(1))
        pub.commit(1)
        told, begin = [], threading.Event()

        def progress(done, total):
            begin.wait(DEADLINE)
            with pytest.raises(weft.InvalidError, match="callback"):
                f.wait()
            f.cancel()
            told.append(f.progress)

        with b.subscribe("policy", weights(0), progress=progress) as sub:
            f = sub.start(timeout=DEADLINE)
            begin.set()
            with pytest.raises(weft.InvalidError, match="stopped"):
                f.wait(DEADLINE)
            assert len(told) == 1 and 0 < told[0][0] < told[0][1]
            assert sub.version is None


def test_exit_during_a_fetch(url):
    """A program may end while a fetch calls it back."""
    program = (
        "import sys, numpy as np, weft\n"
        "b = weft.bus(sys.argv[1])\n"
        "arrays = {n: np.zeros(4, np.float32) for n in ('a', 'b', 'c')}\n"
        "pub = b.publish('p', arrays)\n"
        "pub.put(1, arrays)\n"
        "pub.commit(1)\n"
        "sub = b.subscribe('p', arrays, progress=lambda done, total: None)\n"
        "f = sub.start(timeout=60)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, url], timeout=DEADLINE).returncode == 0


def test_arrays_of_the_caller(url):
    mine = {n: np.zeros_like(a) for n, a in weights(0).items()}
    with weft.bus(url) as b, b.publish("policy", weights(0)) as pub, b.subscribe("policy", mine, into=mine) as sub:
        for step in (1, 2):
            pub.put(step, weights(step))
            pub.commit(step)
            version = sub.fetch(timeout=DEADLINE)
            assert mine["bias"][0] == step - 1
            sub.swap(version)
            same(mine, step)
        with sub.use() as w:
            assert np.shares_memory(w["embed"], mine["embed"])
        with pytest.raises(weft.InvalidError, match="'bias'"):
            b.subscribe("policy", mine, into={"embed": mine["embed"]})
        with pytest.raises(weft.InvalidError, match="into"):
            b.subscribe("policy", mine, direct=True)
        with b.subscribe("policy", mine, into=mine, direct=True) as sub2:
            version = sub2.fetch(timeout=DEADLINE)
            with pytest.raises(weft.BusyError):
                sub2.use()
            sub2.swap(version)
            same(sub2.use(), 2)


def test_one_line_each(url):
    """weft.sync and weft.follow, in two processes."""
    trainer = (
        "import sys, numpy as np, weft\n"
        "for step in range(1, 4):\n"
        "    v = weft.sync(sys.argv[1], 'policy', {'w': np.full(4, step, np.float32)}, step, meta={'step': step})\n"
        "    print(v.step, flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    p = subprocess.Popen([sys.executable, "-c", trainer, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        mine = {"w": np.zeros(4, np.float32)}
        for step in range(1, 4):
            assert p.stdout.readline().strip() == str(step)
            options = {} if step == 2 else {"timeout": DEADLINE}  # a version that is there needs no timeout
            assert weft.follow(url, "policy", mine, **options) == (1, step)
            np.testing.assert_array_equal(mine["w"], step)
            assert weft.follow(url, "policy", mine) is None  # there is nothing newer
            p.stdin.write("\n")
            p.stdin.flush()
        other = {"w": np.zeros(4, np.float32)}
        assert p.wait(DEADLINE) == 0
        assert weft.follow(url, "policy", other) is None  # its versions went with it
    finally:
        p.kill()
        p.wait()


def test_async_for(url):
    async def follow(sub, pub):
        seen = []

        def publish():
            for step in (1, 2, 5):
                pub.put(step, weights(step))
                pub.commit(step)
                while step not in seen:
                    time.sleep(0.01)

        thread = threading.Thread(target=publish)
        thread.start()
        async for version in sub:
            sub.swap(version)
            with sub.use() as w:
                same(w, version.step)
            seen.append(version.step)
            if version.step == 5:
                break
        thread.join()
        return seen

    with weft.bus(url) as b, weft.bus(url) as c, b.publish("p", weights(0)) as pub, c.subscribe("p", weights(0)) as sub:
        assert asyncio.run(asyncio.wait_for(follow(sub, pub), DEADLINE)) == [1, 2, 5]


# ---- several ranks ----

ROWS, COLUMNS = "f32[8/x,6] @x2", "f32[8,6/x] @x2"
WHOLE = np.arange(48, dtype=np.float32).reshape(8, 6)


def _publish_rows(comm, url):
    with weft.bus(url) as b:
        pub = b.publish("p", {"w": ROWS}, comm=comm)
        for step in (1, 2):
            pub.put(step, {"w": WHOLE[4 * comm.rank : 4 * comm.rank + 4] * step})
            pub.commit(step)
        while not os.path.exists(url[5:] + ".done"):
            time.sleep(0.02)
        pub.close()


def _read_columns(comm, url):
    with weft.bus(url) as b:
        sub = b.subscribe("p", {"w": COLUMNS}, comm=comm)
        version = sub.fetch(">=2", timeout=DEADLINE)
        sub.swap(version, timeout=DEADLINE)
        with sub.use() as w:
            np.testing.assert_array_equal(w["w"], 2 * WHOLE[:, 3 * comm.rank : 3 * comm.rank + 3])
        sub.close()


def test_ranks_on_both_sides(url):
    """Two jobs of two ranks each, that share a URL alone: rows on one side, columns on the other."""
    problem = []

    def publish():
        try:
            weft.spawn(_publish_rows, 2, url, method="forkserver")
        except BaseException as error:
            problem.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        weft.spawn(_read_columns, 2, url, method="forkserver")
    finally:
        with open(url[5:] + ".done", "w"):
            pass
        thread.join()
    assert not problem


# ---- deaths ----

PUBLISHER = """
import sys, numpy as np, weft
url, first = sys.argv[1], int(sys.argv[2])
weights = lambda step: {"embed": (np.arange(24, dtype=np.float32) + step).reshape(4, 6), "bias": np.full(5, step, np.float32)}
pub = weft.bus(url, lease=1).publish("p", weights(0), slow="wait")
for step in range(first, 10**9):
    pub.put(step, weights(step))
    pub.commit(step)
    if step == first:
        print("committed", pub.epoch, flush=True)
"""


def test_publishers_that_are_killed(url):
    """A reader that never sees half a version: its publishers are killed at any moment, and others take their place, at lower steps, too."""
    with weft.bus(url) as b, b.subscribe("p", weights(0)) as sub:
        last = weft.Version(0, 0)
        for life in range(4):
            with subprocess.Popen([sys.executable, "-c", PUBLISHER, url, str(1000 - 100 * life)], stdout=subprocess.PIPE) as job:
                try:
                    assert job.stdout.readline().split()[0] == b"committed"
                    for _ in range(5):
                        version = sub.fetch("newer", timeout=DEADLINE)
                        sub.swap(version)
                        assert version > last
                        last = version
                        with sub.use() as w:
                            assert w.version == version
                            same(w, version.step)
                finally:
                    job.send_signal(signal.SIGKILL)
            with sub.use() as w:  # it stays
                same(w, last.step)
        assert last.epoch == 4


README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_readme(tmp_path):
    """The two programs of the README, started apart, the server first; the trainer is killed and started again."""
    for name in ("trainer", "server"):
        code = re.search(rf"```python\n(# {name}\.py\n.*?)```", README.read_text(), flags=re.S)[1]
        assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 10
        (tmp_path / f"{name}.py").write_text(code.replace("/tmp/run42", f"{tmp_path}/run42").replace("sleep(1)", "sleep(0.05)"))

    def start(name, **options):
        return subprocess.Popen([sys.executable, str(tmp_path / f"{name}.py")], **options)

    with start("server", stdout=subprocess.PIPE, text=True) as server:
        try:
            for epoch in (1, 2):
                with start("trainer") as trainer:
                    try:
                        seen = 0
                        while seen < 3:
                            line = server.stdout.readline()
                            told = re.fullmatch(r"Version\(epoch=(\d+), step=(\d+)\) \{'loss': (\S+)\} (\S+)\n", line)
                            assert told, line
                            step = int(told[2])
                            assert float(told[3]) == 1 / step and float(told[4]) == step
                            seen += int(told[1]) == epoch
                    finally:
                        trainer.kill()
        finally:
            server.kill()


# ---- other libraries ----


def test_torch(url):
    torch = pytest.importorskip("torch")
    with weft.bus(url) as b:
        state = {"a": torch.arange(12.0).reshape(3, 4), "t": torch.ones(4, 3).t(), "p": torch.nn.Parameter(torch.full((2,), 7.0))}
        pub = b.publish("p", state, dtype="bf16")
        pub.put(1, state)
        pub.commit(1)
        sub = b.subscribe("p", {n: repr(x) for n, x in pub.layouts.items()}, torch=True)
        sub.swap(sub.fetch(timeout=DEADLINE))
        with sub.use() as w:
            for name, tensor in state.items():
                assert w[name].dtype == torch.bfloat16 and torch.equal(w[name], tensor.detach().bfloat16())
        sub.close()
        pub.close()


def _publish_dtensor(comm, url):
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{url[5:]}.meet", rank=comm.rank, world_size=comm.size)
    mesh = init_device_mesh("cpu", (comm.size,))
    state = {"w": distribute_tensor(torch.from_numpy(WHOLE.copy()), mesh, [Shard(0)])}
    with weft.bus(url) as b, b.publish("p", state, comm=comm) as pub:
        pub.put(1, state)
        pub.commit(1)
        with weft.bus(url) as c, c.subscribe("p", {"w": "f32[8,6] @x1"}) as sub:  # each rank alone, all of it
            sub.swap(sub.fetch(1, timeout=DEADLINE))
            with sub.use() as w:
                np.testing.assert_array_equal(w["w"], WHOLE)
        comm.barrier()
    dist.destroy_process_group()


def test_dtensors(url):
    pytest.importorskip("torch")
    weft.spawn(_publish_dtensor, 2, url, method="forkserver")


def test_boxes(url):
    """A trainer by rows, an engine that has q, k and v in one array and more beside them; and the way back."""
    hidden, generator = 6, np.random.default_rng(19)
    rows = {"q": 8, "k": 4, "v": 4}
    starts = {"q": 1, "k": 9, "v": 13}
    full = {n: generator.standard_normal((r, hidden)).astype(np.float32) for n, r in rows.items()}
    parts = {n: f"f32[{r},{hidden}] @{{0: [:,:]={starts[n] * hidden}}}" for n, r in rows.items()}
    with weft.bus(url) as there, weft.bus(url) as here:
        with there.publish("qkv", {n: f"f32[{r},{hidden}] @x1" for n, r in rows.items()}) as pub:
            pub.put(1, full)
            pub.commit(1)
            fused, told = np.full((20, hidden), 7, np.float32), {}
            with here.subscribe(
                "qkv", parts, into={n: fused for n in parts}, arrived=lambda v, n, a: told.update({n: a.copy()})
            ) as sub, here.subscribe("qkv", parts) as apart:
                sub.swap(sub.fetch(timeout=DEADLINE))
                want = np.full((20, hidden), 7, np.float32)
                want[1:17] = np.concatenate([full[n] for n in ("q", "k", "v")])
                np.testing.assert_array_equal(fused, want)
                assert {n: a.tolist() for n, a in told.items()} == {n: a.ravel().tolist() for n, a in full.items()}
                apart.swap(apart.fetch(timeout=DEADLINE))
                with apart.use() as w:
                    np.testing.assert_array_equal(w["k"][starts["k"] * hidden :], full["k"].ravel())
        with there.publish("back", parts) as pub:
            pub.put(1, {n: fused for n in parts})
            pub.commit(1)
            with here.subscribe("back", {n: f"bf16[{r},{hidden}/x] @x2" for n, r in rows.items()}, rank=1) as sub:
                sub.swap(sub.fetch(timeout=DEADLINE))
                with sub.use() as w:
                    assert {n: w[n].shape for n in w} == {n: (r, 3) for n, r in rows.items()}
            lacking = weft.boxes("f32", (9, hidden), rank=[0], at=[[0, 0]], len=[[9, hidden]])
            with here.subscribe("back", {"q": lacking}, only=True) as sub, pytest.raises(weft.MismatchError, match=r"f32\[8,6\] in the set"):
                sub.fetch(timeout=DEADLINE)


def test_lend(url):
    with weft.bus(url) as there, weft.bus(url, job="server") as here:
        with there.publish("lent", weights(0), lend=True) as pub, here.subscribe("lent", weights(0), alone=True, delta=False) as sub:
            for step in (1, 2):
                arrays = weights(step)
                with pub.lend(step, arrays, {"step": step}, wait=DEADLINE) as visible:
                    assert visible
                    sub.swap(sub.fetch(timeout=DEADLINE))
                    assert "(socket)" in sub.explain()
                arrays["embed"][:] = -1
                with sub.use() as w:
                    same(w, step)
                    assert w.meta == {"step": step}
            assert here.versions("lent") == []
            with pytest.raises(weft.InvalidError, match="with lend"):
                pub.put(3, weights(3))
            with pytest.raises(weft.UnsupportedError, match="is not dense"), pub.lend(3, {**weights(3), "embed": weights(3)["embed"].T.copy().T}):
                pass
            with pytest.raises(ZeroDivisionError), pub.lend(4, weights(4)):
                raise ZeroDivisionError
            with pub.lend(5, weights(5)):
                pass


def test_a_text_that_grows_while_it_is_asked_for_is_whole():
    lengths = iter([3, 9, 12, 12])

    def call(buf, cap, n):
        n[0] = next(lengths)
        for i in range(min(n[0], cap - 1)):
            buf[i] = b"x"
        return 0

    assert weft._errors.filled(call) == b"x" * 12
