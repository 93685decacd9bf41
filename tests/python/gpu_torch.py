"""The Python package on a GPU: PyTorch, CuPy and JAX. `make test-gpu` runs it; on a machine without a GPU it is skipped.

    python tests/python/gpu_torch.py [--quick]

Each check runs in ranks of its own, which share device 0. What is not installed is said, and skipped. Exit status: 0 if all is
right, 77 if there is no GPU, otherwise 1.
"""

import importlib.util
import os
import sys
import traceback

import numpy as np

import weft

QUICK = "--quick" in sys.argv
STEPS = 500 if QUICK else 10_000


def there(name):
    return importlib.util.find_spec(name) is not None


def mix(x, step):
    """Some work whose result depends on the order of all that was done."""
    return x * 1.0009765625 + (step % 7)


# ---- order ----


def steps_of(comm, synchronise):
    """Compute on a stream, start a move on it, compute on the result."""
    import torch

    torch.cuda.set_device(0)
    n = 96
    rows, columns = f"f32[{n * comm.size}/x,{n}] @x{comm.size}", f"f32[{n * comm.size},{n}/x] @x{comm.size}"
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a = torch.arange(n * n, device="cuda", dtype=torch.float32).reshape(n, n) + comm.rank
        b = torch.zeros(n * comm.size, n // comm.size, device="cuda")
        total = torch.zeros((), device="cuda", dtype=torch.float64)

        def wait():
            if synchronise:
                torch.cuda.synchronize()

        with weft.lower(rows, columns).bind(comm, a, b) as there_, weft.lower(columns, rows).bind(comm, b, a) as back:
            for i in range(STEPS):
                a.copy_(mix(a, i).remainder(1024))
                wait()
                work = there_.start()
                if synchronise:
                    work.wait()
                b.copy_(mix(b, i + comm.rank).remainder(1024))
                wait()
                work = back.start()
                if synchronise:
                    work.wait()
                total += a.double().sum() * (i % 3 + 1)
                wait()
        return a.cpu().numpy().tobytes(), float(total)


def order(comm):
    return steps_of(comm, False)


def order_synchronised(comm):
    return steps_of(comm, True)


def check_order():
    """The same bits without any synchronise as with one everywhere."""
    for ranks in (1, 2, 4) if not QUICK else (2,):
        loose = weft.spawn(order, ranks, method="spawn", timeout=900)
        tight = weft.spawn(order_synchronised, ranks, method="spawn", timeout=900)
        assert loose == tight, f"{ranks} ranks"
    return f"{STEPS} steps without a synchronise: the same bits"


# ---- graphs ----


def graph_rank(comm):
    """Replays a graph with some work, a run, and work on its result; or says why the run cannot be captured."""
    import torch

    torch.cuda.set_device(0)
    n, me = comm.size, comm.rank
    rows, shifted = f"f32[{64 * n}/x] @x{n}", f"f32[{64 * n}/x] @x{n}={','.join(str((r + 1) % n) for r in range(n))}"
    src, dst = torch.full((64,), float(me), device="cuda"), torch.zeros(64, device="cuda")
    total = torch.zeros(64, dtype=torch.float64, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with weft.lower(rows, shifted).bind(comm, src, dst) as bound:
        bound.run()
        torch.cuda.synchronize()
        refused = None
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            src += 1
            try:
                bound.start()
            except weft.Error as error:
                refused = str(error)
            total += dst
        if refused is None:
            with torch.cuda.stream(stream):
                for _ in range(1000):
                    graph.replay()
            stream.synchronize()
            left = (me + n - 1) % n
            assert float(total[0]) == 1000 * left + 1000 * 1001 / 2, float(total[0])
        comm.barrier()
    return refused


def check_graph():
    mps = weft.info()["devices"]["devices"][0]["mps"]
    for ranks in (1, 2, 4):
        told = weft.spawn(graph_rank, ranks, method="spawn", timeout=300)
        if ranks == 1 or mps:
            assert told == [None] * ranks, told
        else:
            assert all(text and "without MPS" in text for text in told), told
    return "a run in a graph, replayed 1,000 times" + ("" if mps else " on one rank; refused for processes without MPS")


# ---- kinds of memory ----


def kinds_rank(comm):
    import torch

    torch.cuda.set_device(0)
    n, me = comm.size, comm.rank
    rows, columns = f"f32[{8 * n}/x,{64 * n}] @x{n}", f"bf16[{8 * n},{64 * n}/x] @x{n}"
    whole = torch.arange(8 * n * 64 * n, dtype=torch.float32).reshape(8 * n, 64 * n)
    mine = whole[8 * me : 8 * me + 8].cuda()
    expected = whole.to(torch.bfloat16)[:, 64 * me : 64 * me + 64]
    plan = weft.lower(rows, columns)
    wide = torch.zeros(8 * n, 128, dtype=torch.bfloat16, device="cuda")
    owned = comm.empty(columns, torch=True, device="cuda")
    for dst in (torch.zeros(8 * n, 64, dtype=torch.bfloat16, device="cuda"), wide[:, ::2], owned):
        plan.bind(comm, mine, dst).run()
        assert torch.equal(dst.cpu(), expected), "device to device"
    host = torch.zeros(8 * n, 64, dtype=torch.bfloat16)
    plan.bind(comm, mine, host).run()
    assert torch.equal(host, expected), "device to host"
    back = torch.zeros(8, 64 * n, device="cuda")
    weft.lower(columns, rows).bind(comm, host, back).run()
    assert torch.equal(back, whole[8 * me : 8 * me + 8].cuda().to(torch.bfloat16).float()), "host to device"
    # weft's own memory, by both protocols, outlives the array of weft.
    raw = comm.empty(f"f32[100] @x{n}", device="cuda")
    one, two = torch.as_tensor(raw, device="cuda"), torch.from_dlpack(raw)
    assert one.data_ptr() == two.data_ptr() == raw.__cuda_array_interface__["data"][0]
    del raw
    one.fill_(3)
    torch.cuda.synchronize()
    assert float(two.sum()) == 300
    total = comm.allreduce(torch.full((1000,), me + 1.0, device="cuda"))
    assert total.is_cuda and float(total[0]) == n * (n + 1) / 2, "allreduce by name"
    side = torch.cuda.Stream()
    with plan.bind(comm, mine, owned) as bound:
        owned.zero_()
        side.wait_stream(torch.cuda.current_stream())
        bound.start(side)
        torch.cuda.current_stream().wait_stream(side)
        assert torch.equal(owned.cpu(), expected), "on another stream"
    comm.barrier()
    return True


def check_kinds():
    assert weft.spawn(kinds_rank, 2, method="spawn", timeout=300) == [True, True]
    return "tensors, views, memory of weft, host memory, collectives by name"


def check_expandable():
    """PyTorch's expandable segments cannot be shared by IPC handles, but by descriptors."""
    before = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    try:
        assert weft.spawn(kinds_rank, 2, method="spawn", timeout=300) == [True, True]
    finally:
        if before is None:
            del os.environ["PYTORCH_CUDA_ALLOC_CONF"]
        else:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = before
    return "the same with expandable segments"


# ---- DTensor ----


def dtensor_rank(comm, port):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    torch.cuda.set_device(0)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size)
    try:
        mesh = init_device_mesh("cuda", (comm.size,), mesh_dim_names=("dp",))
        torch.cuda.set_device(0)  # the mesh takes a device for each rank, if it can
        whole = torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32)
        part = whole.chunk(comm.size)[comm.rank].cuda()
        sharded = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
        out = torch.zeros(64, 32, dtype=torch.bfloat16, device="cuda")
        copies = DTensor.from_local(out, mesh, [Replicate()], run_check=False)
        with weft.bind_state(comm, {"w": sharded}, {"w": copies}) as bound:
            bound.run()
        assert torch.equal(out.cpu(), whole.to(torch.bfloat16))
        comm.barrier()
        return str(weft.from_torch(sharded))
    finally:
        dist.destroy_process_group()


def check_dtensor():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    assert weft.spawn(dtensor_rank, 2, port, method="spawn", timeout=300) == ["f32[64/dp,32] @dp2"] * 2
    return "DTensors on a CUDA mesh of 2 processes"


# ---- CuPy and JAX ----


def cupy_rank(comm):
    import cupy

    n, me = comm.size, comm.rank
    rows, whole = f"f32[{4 * n}/x,8] @x{n}", f"f32[{4 * n},8] @x{n}"
    stream = cupy.cuda.Stream(non_blocking=True)
    owned = comm.empty(whole, device="cuda")
    with stream:
        src, dst = cupy.zeros((4, 8), cupy.float32), cupy.asarray(owned)
        assert dst.data.ptr == owned.__cuda_array_interface__["data"][0]
        with weft.lower(rows, whole).bind(comm, src, dst) as bound:
            for i in range(100):
                src += me + 1
                (bound.start() if i % 2 else bound.start(stream))  # by the interface's stream, or by the one that is given
                total = dst.sum()
                assert float(total) == (i + 1) * 32 * n * (n + 1) / 2, i
    del owned
    comm.barrier()
    return True


def check_cupy():
    assert weft.spawn(cupy_rank, 2, method="spawn", timeout=300) == [True, True]
    return "arrays of CuPy, by the stream of their interface"


def jax_rank(comm):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    n, me = comm.size, comm.rank
    rows, whole = f"bf16[{4 * n}/x,8] @x{n}", f"f32[{4 * n},8] @x{n}"
    src = (jnp.ones((4, 8), jnp.bfloat16) * (me + 1)).block_until_ready()
    assert src.devices().pop().platform == "gpu", "JAX has no GPU"
    out = np.zeros((4 * n, 8), np.float32)
    with weft.lower(rows, whole).bind(comm, src, out) as bound:
        bound.run()
    assert out[:, 0].tolist() == [float(r + 1) for r in range(n) for _ in range(4)]
    device = comm.empty(whole, device="cuda")
    weft.lower(rows, whole).bind(comm, src, device).run()
    back = jax.dlpack.from_dlpack(device)
    assert np.array_equal(np.asarray(back), out)
    try:
        weft.lower(whole, rows).bind(comm, device, src)
    except weft.ArrayError as refused:
        assert "read-only" in str(refused), refused
    else:
        raise AssertionError("an array of JAX was taken as a destination")
    comm.barrier()
    return True


def check_jax():
    assert weft.spawn(jax_rank, 2, method="spawn", timeout=300) == [True, True]
    return "arrays of JAX as sources, and memory of weft as one of them"


# ---- the bus ----


def bus_rank(comm, folder):
    """A model on the GPU, trained on a stream: each version is that of its step, in tensors that live on the GPU, and in given ones."""
    import torch

    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model = {f"w{i}": torch.randn(300 + i, 257, device="cuda") for i in range(20)}
        into = {n: torch.zeros_like(t, dtype=torch.bfloat16) for n, t in model.items()}
        with weft.bus(f"file:{folder}/directory") as bus, bus.publish("policy", model, dtype="bf16") as pub:
            mine = {n: f"bf16[{t.shape[0]},{t.shape[1]}] @x1" for n, t in model.items()}
            with bus.subscribe("policy", mine, device="cuda", torch=True) as on, bus.subscribe("policy", mine, into=into, torch=True) as given:
                for step in range(1, 6 if QUICK else 51):
                    for t in model.values():
                        t.copy_(mix(t, step).remainder(1024))  # on the stream: put waits for it
                    pub.put(step, model)
                    pub.commit(step)
                    want = {n: t.to(torch.bfloat16) for n, t in model.items()}
                    for sub in (on, given):
                        sub.swap(sub.fetch("newer"))
                        with sub.use() as w:
                            for n, t in want.items():
                                assert w[n].is_cuda and torch.equal(w[n], t), (step, n)
    return True


def check_bus():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert weft.spawn(bus_rank, 1, folder, method="spawn", timeout=300) == [True]
    return "the bus: put from tensors of PyTorch, and fetched into memory of the GPU and into given tensors"


def main():
    if not there("torch"):
        print("skip: PyTorch is not installed: nothing is tried on a GPU")
        return 77
    import torch

    if not torch.cuda.is_available():
        print("skip: PyTorch sees no GPU")
        return 77
    failed = 0
    for check, needs in (
        (check_kinds, "torch"),
        (check_expandable, "torch"),
        (check_dtensor, "torch"),
        (check_cupy, "cupy"),
        (check_jax, "jax"),
        (check_bus, "torch"),
        (check_graph, "torch"),
        (check_order, "torch"),
    ):
        if not there(needs):
            print(f"skip: {needs} is not installed: {check.__name__} is not run", flush=True)
            continue
        try:
            print(f"ok: {check()}", flush=True)
        except Exception:
            failed = 1
            print(f"FAILED: {check.__name__}", flush=True)
            traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main())
