"""A move beside a matrix product on one GPU: `python bench/gpu_overlap.py [--ranks N]`.

Rank 0 multiplies matrices on one stream. All ranks start runs of a move, rows to columns, on another one. The size of the move is
chosen so that its runs alone take half as long as the product alone. The time of both together is the one in which the later of the two
streams ends, and the figure is this time over that of the product alone: medians of rounds that take turns. The ranks are
processes: under MPS their kernels run at the same time. Exit status: 77 if there is no GPU, otherwise 0.
"""

import argparse
import json
import sys

import weft


def median(values):
    return sorted(values)[len(values) // 2]


class Move:
    """Rows to columns of a square f32 matrix, `runs` times back to back."""

    def __init__(self, comm, side, runs):
        import torch

        n = comm.size
        self.runs, self.comm = runs, comm
        rows, columns = f"f32[{side}/x,{side}] @x{n}", f"f32[{side},{side}/x] @x{n}"
        self.src = torch.ones(side // n, side, device="cuda")
        self.dst = torch.zeros(side, side // n, device="cuda")
        self.bound = weft.lower(rows, columns).bind(comm, self.src, self.dst)

    def start(self, stream):
        for _ in range(self.runs):
            self.bound.start(stream=stream)

    def close(self):
        self.bound.close()


def timed(comm, product, move, streams):
    """Milliseconds on rank 0 from the start of both until the later one ends. `product` or `move` may be None."""
    import torch

    torch.cuda.synchronize()
    comm.barrier()
    start, ends = torch.cuda.Event(enable_timing=True), [torch.cuda.Event(enable_timing=True) for _ in streams]
    start.record(streams[0])
    streams[1].wait_event(start)
    if product:
        with torch.cuda.stream(streams[0]):
            product()
    if move:
        move.start(streams[1])
    for end, stream in zip(ends, streams):
        end.record(stream)
    torch.cuda.synchronize()
    return max(start.elapsed_time(end) for end in ends)


def rank(comm, side, rounds):
    import torch

    torch.cuda.set_device(0)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    product = None
    if comm.rank == 0:
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        c = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)

        def product():
            for _ in range(4):
                torch.matmul(a, b, out=c)

    # How often the move is run: rank 0 measures and tells the others, by a sum to which they add zero.
    once = Move(comm, side, 1)
    for _ in range(3):
        timed(comm, product, once, streams)
    alone = median([timed(comm, product, None, streams) for _ in range(rounds)])
    ten = Move(comm, side, 10)
    run = median([timed(comm, None, ten, streams) for _ in range(rounds)]) / 10
    runs = torch.zeros(1, dtype=torch.int32)
    told = torch.full((1,), max(1, round(alone / 2 / run)) if comm.rank == 0 else 0, dtype=torch.int32)
    with weft.lower(f"i32[1] @x{comm.size} +sum(x)", f"i32[1] @x{comm.size}").bind(comm, told, runs) as bound:
        bound.run()
    half = Move(comm, side, int(runs[0]))
    times = {"product": [], "move": [], "together": []}
    for _ in range(rounds):
        times["product"].append(timed(comm, product, None, streams))
        times["move"].append(timed(comm, None, half, streams))
        times["together"].append(timed(comm, product, half, streams))
    comm.barrier()
    for move in (once, ten, half):
        move.close()
    return {"runs": int(runs[0]), **{name: median(values) for name, values in times.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--side", type=int, default=4096, help="of the matrix that is moved")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("skip: there is no PyTorch with a GPU")
        sys.exit(77)
    figures = weft.spawn(rank, options.ranks, options.side, options.rounds, method="spawn", timeout=300)[0]
    figures = {"ranks": options.ranks, **figures, "ratio": figures["together"] / figures["product"]}
    print(json.dumps({k: round(v, 4) for k, v in figures.items()}))


if __name__ == "__main__":
    main()
