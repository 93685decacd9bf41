"""Ranks that die or hang, threads before a fork, and ranks of jobs that were started apart."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import weft


def python(tmp_path, code, *arguments, **environment):
    script = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **environment},
    )


# ---- spawn ----


def test_spawn_after_threads_of_torch(tmp_path):
    """A parallel operation before the fork, and one in each rank: it ended in neither before."""
    pytest.importorskip("torch", reason="PyTorch is not installed: its threads are not tried")
    code = """
        import warnings
        import torch
        import weft

        a = torch.ones(600, 600)
        torch.set_num_threads(4)
        (a @ a, a.exp().sum())

        def rank_main(comm):
            return float((a @ a)[0, 0]), float(a.exp().add(1).sum()) > 0

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            print(weft.spawn(rank_main, 2, timeout=60))
        print([str(w.message) for w in seen if w.category is RuntimeWarning])
    """
    out, errors = python(tmp_path, code).communicate(timeout=120)
    assert out.startswith("[(600.0, True), (600.0, True)]\n"), errors
    assert "weft.spawn forks, and " in out and "method='spawn'" in out


def hangs(comm):
    if comm.rank != 1:
        signal.pause()


def test_spawn_ends_ranks_that_hang():
    began = time.monotonic()
    with pytest.raises(weft.TimeoutError, match=r"spawn: ranks 0, 2 of 3 had not ended after 0\.5 s, and were killed"):
        weft.spawn(hangs, 3, timeout=0.5)
    assert time.monotonic() - began < 30
    assert weft.spawn(lambda comm: comm.rank, 2, timeout=60) == [0, 1]


# ---- survivors ----


def survive(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    plan = weft.lower("f32[12/x] @x4", "f32[12] @x4")
    with pytest.raises(weft.PeerError) as seen:
        with plan.bind(comm, np.zeros(3, np.float32), np.zeros(12, np.float32)) as bound:
            bound.run()
        comm.barrier()
    assert seen.value.rank == 1
    left = comm.survivors()
    again = comm.reopen(left)
    comm.close()
    total = again.allreduce(np.array([again.rank + 1]))
    return left, again.rank, again.size, int(total[0])


def test_survivors_go_on(tmp_path):
    with pytest.raises(weft.RankError) as caught:  # rank 1 was killed, which spawn tells
        weft.spawn(survive_and_write, 4, str(tmp_path))
    assert caught.value.rank == 1 and list(caught.value.errors) == [1]
    assert [eval((tmp_path / str(r)).read_text()) for r in (0, 2, 3)] == [([0, 2, 3], i, 3, 6) for i in range(3)]


def survive_and_write(comm, folder):
    rank, result = comm.rank, survive(comm)
    with open(os.path.join(folder, str(rank)), "w") as f:
        f.write(repr(result))


# ---- jobs that are started apart ----

JOB = """
    import sys
    import numpy as np
    import weft

    url, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        with weft.open(url, rank=rank, ranks=ranks, deadline=float(sys.argv[4])) as comm:
            print(int(comm.allreduce(np.array([1]))[0]))
    except weft.Error as error:
        print(f"{type(error).__name__}: {error}")
"""


def jobs(tmp_path, *each):
    """What ranks say that are jobs of their own, as torchrun starts them: (url, rank, ranks, deadline, environment)."""
    torchrun = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    all_of = []
    for i, (*arguments, environment) in enumerate(each):
        own = {**torchrun, "TORCHELASTIC_RUN_ID": f"job{i}", "MASTER_PORT": str(29540 + i), **environment}
        all_of.append(python(tmp_path, JOB, *arguments, **own))
    return [p.communicate(timeout=120)[0].strip() for p in all_of]


def test_jobs_that_are_started_apart(tmp_path):
    name = f"apart-{os.getpid()}"
    assert jobs(tmp_path, (f"shm:{name}", 0, 2, 30, {}), (f"shm:{name}", 1, 2, 30, {})) == ["2", "2"]
    at = {"WEFT_AT": f"file:{tmp_path}", "WEFT_NAME": "sync"}
    assert jobs(tmp_path, ("auto:sync", 0, 2, 30, at), ("auto:sync", 1, 2, 30, at)) == ["2", "2"]


def test_jobs_that_differ_are_told_in_what(tmp_path):
    at, name = {"WEFT_AT": f"file:{tmp_path}"}, f"apart-{os.getpid()}"
    for said in jobs(tmp_path, (f"shm:{name}", 0, 3, 30, {}), (f"shm:{name}", 1, 2, 30, {})):  # either may come first
        assert re.search("opened it with [23] ranks, (rank [01] with|not) [23]", said), said
    for i, said in enumerate(jobs(tmp_path, ("auto:sync", 0, 2, 1, at), ("auto:sync", 1, 2, 1, at))):
        assert said.startswith(f"TimeoutError: file:{tmp_path}: rank {1 - i} did not come in time; this rank waited at file:{tmp_path} under the name 'torchrun-job{i}"), said
        assert said.endswith("for 2 ranks: all ranks need the same place (WEFT_AT), name (WEFT_NAME) and number")
    said = jobs(tmp_path, (f"shm:{name}", 0, 2, 3, {}), (f"shm:{name}x", 1, 2, 3, {}))
    for i, (text, own, other) in enumerate(zip(said, (name, name + "x"), (name + "x", name))):
        assert text.startswith(f"TimeoutError: shm:{own}: rank {1 - i} did not come within 3000 ms; this rank waited for 2 ranks on host "), text
    assert any(re.search(rf"other ranks wait there now under .*shm:{name}x?(,|$)", text) for text in said), said
