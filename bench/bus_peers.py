#!/usr/bin/env python3
"""What frameworks do today instead of the bus, for `weft bench bus --peers bench/bus_peers.py`.

A set of f32 tensors lies by rows in two processes. Each process ends up with half of the columns of every tensor in bf16, in memory that was
there before. Each way prints a line: its name, a tab, and the median of its rounds in seconds; or "skipped" with the reason.
"""

import argparse
import http.server
import importlib.util
import multiprocessing
import socket
import statistics
import sys
import threading
import time
import urllib.request

RANKS = 2


def shape(size):
    """As weft bench bus: nearly square, rows and columns even."""
    n, columns = size // 4, 2
    while columns * columns * 4 <= n:
        columns *= 2
    return max(n // columns // RANKS, 1) * RANKS, columns


class Gloo:
    """Each tensor is gathered, cast, broadcast, and cut: what trainers with a process group do."""

    name, needs = "torch: gloo gather, broadcast and load", ["torch"]

    def __init__(self, rank, port, tensors, rows, columns):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.columns = torch, dist, rank, columns
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
        self.mine = [torch.full((rows // RANKS, columns), float(i % 7)) for i in range(tensors)]
        self.parts = [torch.empty(rows // RANKS, columns) for _ in range(RANKS)]
        self.whole = torch.empty(rows, columns, dtype=torch.bfloat16)
        self.out = [torch.zeros(rows, columns // RANKS, dtype=torch.bfloat16) for _ in range(tensors)]

    def step(self):
        wide = self.columns // RANKS
        for mine, out in zip(self.mine, self.out):
            self.dist.gather(mine, self.parts if self.rank == 0 else None, dst=0)
            if self.rank == 0:
                self.torch.cat([p.to(self.torch.bfloat16) for p in self.parts], out=self.whole)
            self.dist.broadcast(self.whole, 0)
            out.copy_(self.whole[:, self.rank * wide : (self.rank + 1) * wide])

    def right(self):
        return all(bool((out == float(i % 7)).all()) for i, out in enumerate(self.out))

    def close(self):
        self.dist.destroy_process_group()


class Http:
    """Each process writes its rows as safetensors and serves them by HTTP; each takes all and cuts its columns."""

    name, needs = "HTTP with safetensors", ["torch", "safetensors"]

    def __init__(self, rank, port, tensors, rows, columns):
        import torch
        from safetensors.torch import load, save

        self.torch, self.load, self.save, self.rank, self.port, self.columns = torch, load, save, rank, port, columns
        torch.set_num_threads(1)
        self.mine = {f"t{i}": torch.full((rows // RANKS, columns), float(i % 7)) for i in range(tensors)}
        self.out = {f"t{i}": torch.zeros(rows, columns // RANKS, dtype=torch.bfloat16) for i in range(tensors)}
        peer, self.body, self.ready = self, b"", threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                peer.ready.wait()
                self.send_response(200)
                self.send_header("Content-Length", str(len(peer.body)))
                self.end_headers()
                self.wfile.write(peer.body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port + rank), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def step(self):
        self.body = self.save({n: t.to(self.torch.bfloat16) for n, t in self.mine.items()})
        self.ready.set()
        wide = self.columns // RANKS
        for other in range(RANKS):
            got = self.load(urllib.request.urlopen(f"http://127.0.0.1:{self.port + other}/").read())
            for name, part in got.items():
                rows = part.shape[0]
                self.out[name][other * rows : (other + 1) * rows].copy_(part[:, self.rank * wide : (self.rank + 1) * wide])

    def after(self):
        self.ready.clear()

    def right(self):
        return all(bool((self.out[f"t{i}"] == float(i % 7)).all()) for i in range(len(self.out)))

    def close(self):
        self.server.shutdown()


WAYS = {"gloo": Gloo, "http": Http}


def rank_main(way, rank, port, args, barrier, out):
    try:
        rows, columns = shape(args.bytes // args.tensors)
        peer = WAYS[way](rank, port, args.tensors, rows, columns)
        times = []
        for _ in range(args.rounds + 1):
            barrier.wait(60)
            begin, used = time.perf_counter(), time.process_time()
            peer.step()
            used = time.process_time() - used
            barrier.wait(60)
            times.append(used if args.cpu else time.perf_counter() - begin)
            getattr(peer, "after", lambda: None)()
        right = peer.right()
        barrier.wait(60)
        peer.close()
        out.put(statistics.median(times[1:]) if right else "skipped: its result is wrong")
    except Exception as error:  # what goes wrong stands in the table
        barrier.abort()
        out.put(f"skipped: {type(error).__name__}: {error}".split("\n")[0])


def ray_main(args):
    """One process puts, two actors get and cut. Numpy has no bf16: its bits travel as uint16, cut off from f32."""
    import numpy as np
    import ray

    rows, columns = shape(args.bytes // args.tensors)
    ray.init(num_cpus=RANKS, include_dashboard=False, object_store_memory=max(args.bytes * 2, 80 << 20), log_to_driver=False)

    @ray.remote
    class Side:
        def __init__(self, rank):
            self.rank = rank
            self.mine = [np.full((rows // RANKS, columns), float(i % 7), np.float32) for i in range(args.tensors)]
            self.out = [np.zeros((rows, columns // RANKS), np.uint16) for _ in range(args.tensors)]

        def put(self):
            return [ray.put([(a.view(np.uint32) >> 16).astype(np.uint16) for a in self.mine])]

        def get(self, refs):
            wide = columns // RANKS
            for other, ref in enumerate(refs):
                for out, part in zip(self.out, ray.get(ref[0])):
                    n = part.shape[0]
                    out[other * n : (other + 1) * n] = part[:, self.rank * wide : (self.rank + 1) * wide]

        def right(self):
            return all((o == np.array([i % 7], np.float32).view(np.uint32)[0] >> 16).all() for i, o in enumerate(self.out))

    sides = [Side.remote(r) for r in range(RANKS)]
    times = []
    for _ in range(args.rounds + 1):
        begin = time.perf_counter()
        refs = ray.get([s.put.remote() for s in sides])
        ray.get([s.get.remote(refs) for s in sides])
        times.append(time.perf_counter() - begin)
        del refs
    right = all(ray.get([s.right.remote() for s in sides]))
    ray.shutdown()
    return statistics.median(times[1:]) if right else "skipped: its result is wrong"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def missing(modules):
    gone = [m for m in modules if importlib.util.find_spec(m) is None]
    return f"skipped: {', '.join(gone)} is not installed" if gone else None


def run_pair(way, args):
    context = multiprocessing.get_context("spawn")
    barrier, out, port = context.Barrier(RANKS), context.Queue(), free_port()
    ranks = [context.Process(target=rank_main, args=(way, r, port, args, barrier, out)) for r in range(RANKS)]
    for p in ranks:
        p.start()
    results = [out.get(timeout=300) for _ in ranks]
    for p in ranks:
        p.join()
    words = [r for r in results if isinstance(r, str)]
    return words[0] if words else sum(results) / RANKS if args.cpu else max(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--tensors", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    for way, peer in WAYS.items():
        print(peer.name, missing(peer.needs) or run_pair(way, args), sep="\t", flush=True)
    try:
        result = missing(["ray", "numpy"]) or ("skipped: its processor time is not known" if args.cpu else ray_main(args))
    except Exception as error:
        result = f"skipped: {type(error).__name__}: {error}".split("\n")[0]
    print("Ray: object store", result, sep="\t", flush=True)


if __name__ == "__main__":
    sys.exit(main())
