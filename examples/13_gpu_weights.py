"""Weights of a trainer go to a server, from GPU to GPU, cast to bf16 on the way, while both streams run on.

    python examples/13_gpu_weights.py

Two processes share one GPU. The trainer changes its f32 weights on its stream and starts a run on it; the server starts the same run
on its own stream and computes with what has come. Neither waits for the GPU in between: a run begins after the work that is in the
stream, and the work behind it waits for the run. Only in the end both look whether each version was right.

It needs PyTorch and a GPU. Without a GPU it can be tried on the simulated device, which needs neither:

    WEFT_DEVICE=sim python examples/13_gpu_weights.py
"""

import os
import sys

import numpy as np

import weft

ROWS, COLUMNS = 1024, 512
TRAINER = f"f32[{ROWS},{COLUMNS}] @x1=0"  # rank 0 has all of it
SERVER = f"bf16[{ROWS},{COLUMNS}] @x1=1"  # and so has rank 1, in bf16


def on_gpu(comm, versions):
    import torch

    torch.cuda.set_device(0)
    plan = weft.lower(TRAINER, SERVER)
    with torch.cuda.stream(torch.cuda.Stream()):
        if comm.rank == 0:
            weights = torch.zeros(ROWS, COLUMNS, device="cuda")  # any tensor will do
            with plan.bind(comm, weights, None) as bound:
                for _ in range(versions):
                    weights += 0.5  # a step of training
                    bound.start()  # on torch's current stream: after the step, and before the next one
            return None
        weights = comm.empty(SERVER, torch=True, device="cuda")  # memory of weft, which lives as long as the tensor
        sums = torch.zeros(versions, device="cuda")
        with plan.bind(comm, None, weights) as bound:
            for version in range(versions):
                bound.start()
                sums[version] = weights.float().mean()  # computed when the weights are there
        return sums.cpu().tolist()


def on_simulation(comm, versions):
    """The simulated device computes nothing for us: the weights are computed on the host, and moved there and back."""
    plan = weft.lower(TRAINER, SERVER)
    device = comm.empty(TRAINER if comm.rank == 0 else SERVER, device="cuda")
    sums, host = [], np.zeros((ROWS, COLUMNS), np.float32)
    src, dst = (device, None) if comm.rank == 0 else (None, device)
    alone = comm.split([comm.rank])  # each rank moves its own data to the device and back
    f32, bf16 = f"f32[{ROWS},{COLUMNS}] @x1", f"bf16[{ROWS},{COLUMNS}] @x1"
    with plan.bind(comm, src, dst) as bound:
        if comm.rank == 0:
            own = weft.lower(f32, f32).bind(alone, host, device)
        else:
            own = weft.lower(bf16, f32).bind(alone, device, host)
        for _ in range(versions):
            if comm.rank == 0:
                host += 0.5
                own.run()
            bound.run()
            if comm.rank == 1:
                own.run()
                sums.append(float(host.mean()))
        own.close()
    alone.close()
    return sums or None


def main():
    if os.environ.get("WEFT_DEVICE") == "sim":
        versions, where = 30, "the simulated device"
        results = weft.spawn(on_simulation, 2, versions)
    else:
        try:
            import torch
        except ImportError:
            sys.exit("PyTorch is not installed; WEFT_DEVICE=sim tries this example without it")
        if not torch.cuda.is_available():
            sys.exit("PyTorch sees no GPU; WEFT_DEVICE=sim tries this example without one")
        versions, where = 200, torch.cuda.get_device_name(0)
        results = weft.spawn(on_gpu, 2, versions, method="spawn")  # CUDA and fork do not go together
    if results[1] != [0.5 * (version + 1) for version in range(versions)]:
        sys.exit(f"the server has seen other weights than the trainer has sent: {results[1]}")
    print(f"{versions} versions of {ROWS * COLUMNS} weights on {where}, from f32 to bf16: each is right")


if __name__ == "__main__":
    main()
