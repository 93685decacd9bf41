"""Comms that come and go: a process that opens, binds, runs and closes for days keeps its size."""

import asyncio
import gc
import os
import threading

import numpy as np
import pytest

import weft


def held():
    """What a process has: descriptors, threads, mappings; and bytes of memory."""
    gc.collect()
    with open("/proc/self/maps") as maps, open("/proc/self/statm") as statm:
        mappings, pages = sum(1 for _ in maps), int(statm.read().split()[1])
    return (len(os.listdir("/proc/self/fd")), threading.active_count(), mappings), pages * os.sysconf("SC_PAGE_SIZE")


def once(url, rank, progress):
    """All that a comm can do, closed in order, or left to the garbage collector."""
    comm = weft.open(url, rank=rank, ranks=2, progress=progress)
    plan = weft.lower({"w": ("f32[64/x,64] @x2", "f32[64,64/x] @x2"), "b": ("f64[300/x] @x2", "f64[300] @x2")})
    src, dst = ({m.name: comm.empty(side(m)) for m in plan.moves} for side in (lambda m: m.src, lambda m: m.dst))
    bound = plan.bind(comm, src, dst, arrivals=True)
    assert len(list(bound.start().arrivals())) == len(plan.arrivals(rank))

    async def main():
        await bound.start()
        with comm.halo(periodic=True, buffer=lambda source, meta, size: np.empty(size, np.uint8)) as halo:
            left, right = await halo.start(b"l" * 10_000, b"r")
            assert left.payload.size == 1 and right.payload.size == 10_000

    asyncio.run(main())
    group = comm.split([0, 1])
    group.allreduce(np.ones(100))
    window = comm.window({"a": ("u8", 100)}, signals=1)
    window.array("a", 1 - rank)[0] = 1
    window.barrier()
    if rank:
        return  # without a close
    window.close()
    bound.close()
    group.close()
    comm.close()


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_open_bind_run_close(progress):
    def rank_main(comm):
        name = f"shm:leaks-{os.getppid()}-{progress}"
        for i in range(20):
            once(f"{name}-{i}", comm.rank, progress)
        comm.barrier()
        before, size = held()
        for i in range(20, 170):
            once(f"{name}-{i}", comm.rank, progress)
        comm.barrier()
        after, grown = held()
        assert after[:2] == before[:2], (before, after)
        assert abs(after[2] - before[2]) < 20, (before, after)  # the allocator has some of its own
        assert grown - size < 4 << 20, f"{grown - size} bytes more after 150 rounds"
        return True

    there = set(os.listdir("/dev/shm"))
    assert weft.spawn(rank_main, 2) == [True, True]
    assert not [name for name in set(os.listdir("/dev/shm")) - there if f"leaks-{os.getpid()}" in name]
