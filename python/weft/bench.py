"""What Python costs on top of C, and weft beside torch.distributed (gloo) and mpi4py, all in one run.

    python -m weft.bench            # starts two ranks
    mpirun -n 2 python -m weft.bench  # in a job of MPI, with mpi4py beside it

Each number is the median of rounds; in a round all take turns. Times are of the slowest rank.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import socket
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

import weft

from ._errors import check
from ._weft import ffi, lib

Case = Tuple[str, Callable[[], None]]
Cases = Callable[[weft.Comm, int], Dict[str, List[Case]]]


def c_loop(bound: weft.Bound, runs: int) -> float:
    """Seconds that as many runs take in a loop in C."""
    ns = ffi.new("int64_t *")
    check(lib.weft_python_runs(bound._x, runs, ns))
    return float(ns[0]) / 1e9


def python_loop(bound: weft.Bound, runs: int) -> float:
    """Seconds that as many runs take in a loop in Python."""
    begin = time.perf_counter()
    for _ in range(runs):
        bound.start().wait()
    return time.perf_counter() - begin


def slowest(comm: weft.Comm, seconds: float) -> float:
    return float(comm.allreduce(np.array([seconds]), op="max")[0])


def turns(comm: weft.Comm, loops: Sequence[Callable[[], float]], rounds: int) -> List[List[float]]:
    """Each loop's times, all of them in turns."""
    times: List[List[float]] = [[] for _ in loops]
    for round_ in range(rounds + 1):
        for i, loop in enumerate(loops):
            comm.barrier()
            seconds = slowest(comm, loop())
            if round_:  # the first one warms up
                times[i].append(seconds)
    return times


def overhead(comm: weft.Comm, small: bool) -> Dict[str, float]:
    """8 bytes from each of the ranks to the others: start and wait, by C and by Python."""
    runs, n = 500 if small else 5000, comm.size
    plan = weft.lower(f"f64[{n}/x] @x{n}", f"f64[{n}] @x{n}")
    with plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)) as bound:
        c, python = turns(comm, [lambda: c_loop(bound, runs), lambda: python_loop(bound, runs)], 15)
    more = statistics.median(p - t for p, t in zip(python, c))
    each = 1e6 / runs
    return {"c_us": statistics.median(c) * each, "python_us": statistics.median(python) * each, "more_us": more * each}


def rate(comm: weft.Comm, small: bool) -> Dict[str, float]:
    """1 GiB (64 MiB if small) of rows to columns in window memory, by C and by Python."""
    n, side = comm.size, 4096 if small else 16384
    plan = weft.lower(f"f32[{side}/x,{side}] @x{n}", f"f32[{side},{side}/x] @x{n}")
    with plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)) as bound:
        c, python = turns(comm, [lambda: c_loop(bound, 1), lambda: python_loop(bound, 1)], 15)
    size = side * side * 4 / 1e9
    share = statistics.median(t / p for p, t in zip(python, c))
    rates = {"c_gbs": size / statistics.median(c), "python_gbs": size / statistics.median(python)}
    return {"bytes": side * side * 4, **rates, "share": share}


# ---- beside others ----


def weft_cases(comm: weft.Comm, count: int) -> Dict[str, List[Case]]:
    n, x = comm.size, np.ones(count, np.float32)
    out, wide = np.empty_like(x), np.empty(n * count, np.float32)
    bound = []
    for src, dst in (
        (f"f32[{count}] @x{n} +sum(x)", f"f32[{count}] @x{n}"),
        (f"f32[{n * count}/x] @x{n}", f"f32[{n * count}] @x{n}"),
        (f"f32[{n}/x,{n * count}] @x{n}", f"f32[{n},{n * count}/x] @x{n}"),
    ):
        plan = weft.lower(src, dst)
        bound.append(plan.bind(comm, comm.empty(src), comm.empty(dst)))
    return {
        "allreduce": [("weft, bound", bound[0].run), ("weft, by name", lambda: drop(comm.allreduce(x, out=out)))],
        "allgather": [("weft, bound", bound[1].run), ("weft, by name", lambda: drop(comm.allgather(x, out=wide)))],
        "reshard": [("weft, bound", bound[2].run)],
    }


def drop(_: Any) -> None:
    """For what is returned and not needed."""


def gloo_cases(comm: weft.Comm, count: int) -> Dict[str, List[Case]]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    n = comm.size
    x, wide = torch.ones(count), torch.empty(n * count)
    mesh = init_device_mesh("cpu", (n,))
    local = DTensor.from_local(torch.ones(1, n * count), mesh, [Shard(0)])
    return {
        "allreduce": [("gloo all_reduce", lambda: drop(dist.all_reduce(x)))],
        "allgather": [("gloo all_gather_into_tensor", lambda: drop(dist.all_gather_into_tensor(wide, x)))],
        "reshard": [("DTensor redistribute", lambda: drop(local.redistribute(mesh, [Shard(1)])))],
    }


def mpi_cases(comm: weft.Comm, count: int) -> Dict[str, List[Case]]:
    from mpi4py import MPI

    n, world = comm.size, MPI.COMM_WORLD
    x, out, wide = np.ones(count, np.float32), np.empty(count, np.float32), np.empty(n * count, np.float32)
    send, receive = np.ones(n * count, np.float32), np.empty(n * count, np.float32)
    return {
        "allreduce": [("mpi4py Allreduce", lambda: world.Allreduce(x, out))],
        "allgather": [("mpi4py Allgather", lambda: world.Allgather(x, wide))],
        "reshard": [("mpi4py Alltoall", lambda: world.Alltoall(send, receive))],
    }


def others(comm: weft.Comm, port: int) -> Tuple[List[Cases], List[str]]:
    """Those that can be measured here, and why the rest cannot."""
    found: List[Cases] = [weft_cases]
    missing: List[str] = []
    if importlib.util.find_spec("torch"):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        # On each rank it warns that gloo has no alltoall, and that redistribute takes an allgather.
        logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
        where = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=where, rank=comm.rank, world_size=comm.size)
        found.append(gloo_cases)
    else:
        missing.append("torch.distributed: PyTorch is not installed")
    if not importlib.util.find_spec("mpi4py"):
        missing.append("mpi4py: it is not installed")
    elif not any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")):
        missing.append("mpi4py: this is no job of MPI, start it by mpirun -n 2 python -m weft.bench")
    else:
        found.append(mpi_cases)
    return found, missing


def beside(comm: weft.Comm, port: int, small: bool) -> Tuple[List[Dict[str, Any]], List[str]]:
    """The same work by each, in turns."""
    rows: List[Dict[str, Any]] = []
    found, missing = others(comm, port)
    for size in (8, 64 << 10) if small else (8, 64 << 10, 1 << 20, 16 << 20):
        cases: Dict[str, List[Case]] = {}
        for who in found:
            for work, some in who(comm, size // 4).items():
                cases.setdefault(work, []).extend(some)
        runs = max(1, min(200, (4 << 20) // size) // (10 if small else 1))
        for work, each in cases.items():
            medians = map(statistics.median, turns(comm, [timed(run, runs) for _, run in each], 5))
            rows += [
                {"work": work, "bytes": size, "who": who, "us": t / runs * 1e6} for (who, _), t in zip(each, medians)
            ]
    return rows, missing


def timed(run: Callable[[], Any], runs: int) -> Callable[[], float]:
    def loop() -> float:
        begin = time.perf_counter()
        for _ in range(runs):
            run()
        return time.perf_counter() - begin

    return loop


# ---- the program ----


def rank_main(comm: weft.Comm, port: int, small: bool) -> Dict[str, Any]:
    """All measurements; the same on all ranks."""
    result: Dict[str, Any] = {"ranks": comm.size, "overhead": overhead(comm, small), "rate": rate(comm, small)}
    result["beside"], result["missing"] = beside(comm, port, small)
    if importlib.util.find_spec("torch"):
        import torch.distributed as dist

        comm.barrier()  # no rank uses the process group any more
        dist.destroy_process_group()  # otherwise its threads end the process with a message of C++
    return result


def report(result: Dict[str, Any]) -> str:
    """The result as text."""
    o, r = result["overhead"], result["rate"]
    lines = [
        f"{result['ranks']} ranks",
        f"8 bytes, start and wait: C {o['c_us']:.2f} us, Python {o['python_us']:.2f} us, {o['more_us']:.2f} us more",
        f"reshard of {r['bytes'] / 2**20:.0f} MiB: C {r['c_gbs']:.2f} GB/s, Python {r['python_gbs']:.2f} GB/s, {100 * r['share']:.1f} %",
        "",
        f"{'work':10} {'bytes':>10}  {'by':28} {'us':>10}",
    ]
    lines += [f"{row['work']:10} {row['bytes']:>10}  {row['who']:28} {row['us']:>10.1f}" for row in result["beside"]]
    return "\n".join(lines + [f"not measured: {why}" for why in result["missing"]])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def join() -> Optional[weft.Comm]:
    """The job that this process is a rank of, if it is of one."""
    launchers = ("WEFT_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")
    return weft.open() if any(name in os.environ for name in launchers) else None


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", type=int, default=2, help="ranks to start (2)")
    parser.add_argument("--small", action="store_true", help="smaller sizes, fewer runs: a few seconds")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    comm = join()
    if comm is None:
        result = weft.spawn(rank_main, options.n, free_port(), options.small, method="spawn")[0]
    else:
        port = int(comm.broadcast(np.array([free_port()]))[0])
        result = rank_main(comm, port, options.small)
        if comm.rank:
            return 0
    print(json.dumps(result, indent=1) if options.json else report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
