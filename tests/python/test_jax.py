"""Layouts against JAX: what a rank holds is what NamedSharding says that its device holds. On eight CPU devices."""

import os
import random

import numpy as np
import pytest

import weft
from parts import free_port, part, share

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="JAX is not installed: the comparison with NamedSharding is skipped")
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

PAIRS = 240


@pytest.fixture(scope="module")
def devices():
    found = jax.devices()
    if len(found) < 8:
        pytest.skip(f"JAX has {len(found)} devices and the tests need 8: XLA_FLAGS was set too late")
    return found


def random_sharding(rng, devices):
    sizes = rng.choice([(8,), (2, 4), (4, 2), (2, 2, 2), (2, 3), (1, 4), (3,)])
    chosen = rng.sample(devices, int(np.prod(sizes)))
    names = rng.sample(["dp", "tp", "pp", "x", "data_axis"], len(sizes))
    left = list(zip(names, sizes))
    rng.shuffle(left)
    ndim = rng.randint(1, 3)
    entries, shape = [], []
    for d in range(ndim):
        mine = [left.pop() for _ in range(rng.choice([0, 1, 1, 2])) if left]
        entries.append(None if not mine else mine[0][0] if len(mine) == 1 else tuple(n for n, _ in mine))
        shape.append(rng.randint(1, 4) * int(np.prod([s for _, s in mine], dtype=int)))
    if rng.random() < 0.3:
        while entries and entries[-1] is None:
            entries.pop()
    mesh = Mesh(np.array(chosen, dtype=object).reshape(sizes), tuple(names), axis_types=(AxisType.Auto,) * len(sizes))
    return NamedSharding(mesh, PartitionSpec(*entries)), tuple(shape)


def test_random_pairs(devices, rng, note):
    for _ in range(PAIRS):
        sharding, shape = random_sharding(rng, devices)
        whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        layout = weft.from_jax(sharding, shape, np.int32)
        assert tuple(layout.mesh) == sharding.mesh.axis_names
        array = jax.device_put(whole, sharding)
        assert weft.from_jax(array) == layout
        for shard in array.addressable_shards:
            assert np.array_equal(part(layout, shard.device.id, whole), np.asarray(shard.data)), (layout, sharding)
        again = layout.named_sharding(devices)
        assert again.is_equivalent_to(sharding, len(shape)) and again.mesh.axis_names == sharding.mesh.axis_names
    note(f"jax {jax.__version__}: {PAIRS} NamedShardings equal")


def test_examples(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("dp", "tp"))
    for spec, text in (
        (PartitionSpec(("dp", "tp"), None), "bf16[4096/dp/tp,512] @dp2.tp4"),
        (PartitionSpec(("tp", "dp")), "bf16[4096/tp/dp,512] @dp2.tp4"),
        (PartitionSpec(None, "tp"), "bf16[4096,512/tp] @dp2.tp4"),
    ):
        layout = weft.from_jax(NamedSharding(mesh, spec), (4096, 512), jax.numpy.bfloat16)
        assert repr(layout) == text
        assert tuple(layout.partition_spec())[: len(spec)] == tuple(spec)
    with pytest.raises(weft.UnsupportedError, match="neither ghosts nor blocks"):
        weft.layout("f32[8/x:2] @x2").partition_spec()
    with pytest.raises(weft.InvalidError, match="needs the global shape"):
        weft.from_jax(NamedSharding(mesh, PartitionSpec()))
    abstract = jax.sharding.AbstractMesh((2, 2), ("a", "b"))
    assert repr(weft.from_jax(NamedSharding(abstract, PartitionSpec("b")), (4,), np.uint8)) == "u8[4/b] @a2.b2"


def test_arrays(devices):
    """A jax.Array is a source as it is; as a destination it is refused, since it must not change."""
    comm = weft.open("self:")
    for dtype, name in ((np.float32, "f32"), (jax.numpy.bfloat16, "bf16"), (jax.numpy.float8_e5m2, "f8e5m2"), (np.complex64, "c64")):
        x = jax.numpy.arange(6).astype(dtype).reshape(2, 3)
        layout = f"{name}[2,3] @x1"
        out = comm.empty(layout)
        plan = weft.lower(layout, layout)
        plan.bind(comm, x, out).run()
        assert np.array_equal(out, np.asarray(x)) and out.dtype == x.dtype
        with pytest.raises(weft.ArrayError, match="read-only"):
            plan.bind(comm, out, x)


def test_a_sharded_array_is_told_what_to_do(devices):
    comm = weft.open("self:")
    array = jax.device_put(np.zeros(8, np.float32), NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x")))
    with pytest.raises(weft.ArrayError, match=r"weft\.jax_local\(array\)"):
        weft.lower("f32[8] @x1", "f32[8] @x1").bind(comm, array, comm.empty("f32[8] @x1"))


def process_main(comm, port, each, seed, count):
    """One of several processes of JAX, each with `each` devices, and one rank of weft: pairs of shardings, moved by weft."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", each)
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=comm.size, process_id=comm.rank)
    rng = random.Random(seed)
    refused, several = [], 0
    by_process = lambda device: device.process_index  # noqa: E731
    for case in range(count):
        src, shape = random_processes(rng, None)
        dst = random_processes(rng, shape)[0]
        dtype = rng.choice(["int32", "float32", "bfloat16"])
        whole = (np.arange(np.prod(shape)) % 251).astype(jax.numpy.dtype(dtype)).reshape(shape)
        sides = []
        try:
            sides = [weft.from_jax(sharding, shape, whole.dtype, rank=by_process) for sharding in (src, dst)]
        except weft.UnsupportedError as error:
            refused.append(str(error).partition(":")[0])
            continue
        array = jax.make_array_from_callback(shape, src, lambda index: whole[index])
        local, out = weft.jax_local(array), np.zeros(sides[1].local(comm.rank).shape, whole.dtype)
        assert np.array_equal(local, part(sides[0], comm.rank, whole)), (case, sides[0], src)
        with weft.lower(*sides).bind(comm, local, out) as bound:
            bound.run()
        moved = weft.jax_array(out, dst, shape)
        for shard in moved.addressable_shards:
            assert np.array_equal(np.asarray(shard.data), whole[shard.index]), (case, sides, src, dst)
        if case % 8 == 0:
            again = np.zeros_like(out)
            with weft.bind_state(comm, {"w": array}, {"w": (again, sides[1])}) as bound:
                bound.run()
            assert np.array_equal(again, out)
        several += local.size > whole.size // int(np.prod(src.mesh.devices.shape))
    jax.distributed.shutdown()
    return count - len(refused), several, refused


def random_processes(rng, shape):
    """A sharding of all devices of all processes, whose order in the mesh may be any that keeps a process's together, or not."""
    import jax

    devices = sorted(jax.devices(), key=lambda d: d.id)
    n = len(devices)
    sizes = rng.choice([s for s in [(n,), (2, n // 2), (n // 2, 2), (2, 2, n // 4), (4, n // 4)] if np.prod(s) == n])
    grid = np.empty(n, dtype=object)
    grid[:] = devices
    grid = grid.reshape(sizes)
    if rng.random() < 0.5:
        grid = grid.transpose(rng.sample(range(len(sizes)), len(sizes)))
    elif rng.random() < 0.1:
        flat = grid.flatten()
        rng.shuffle(flat)
        grid = flat.reshape(grid.shape)
    names = tuple(rng.sample(["dp", "tp", "pp"], grid.ndim))
    mesh = Mesh(grid, names, axis_types=(AxisType.Auto,) * grid.ndim)
    ndim = rng.randint(1, 3) if shape is None else len(shape)
    left = list(zip(names, grid.shape))
    rng.shuffle(left)
    entries, made = [], []
    for d in range(ndim):
        mine = []
        for _ in range(rng.choice([0, 1, 1, 2])):
            if left and (shape is None or shape[d] % (left[-1][1] * int(np.prod([s for _, s in mine]))) == 0):
                mine.append(left.pop())
        entries.append(None if not mine else mine[0][0] if len(mine) == 1 else tuple(a for a, _ in mine))
        made.append(rng.randint(1, 3) * n)
    return NamedSharding(mesh, PartitionSpec(*entries)), tuple(made) if shape is None else shape


@pytest.mark.parametrize("processes, each", [(2, 2), (2, 4), (4, 2)])
def test_several_processes(processes, each, note):
    """Several processes with several devices each: one rank of weft for each process."""
    count = share(30, 80)
    told = weft.spawn(process_main, processes, free_port(), each, 100 * processes + each, count, method="forkserver")
    assert len({repr(t[2]) for t in told}) == 1
    equal, several, refused = told[0]
    assert equal > count // 2 and several > count // 8
    assert all(text.startswith("the devices of a rank are no box of the mesh of ") for text in refused)
    note(f"jax {jax.__version__}: {equal} pairs on {processes} processes of {each} devices equal, {len(refused)} refused: "
         f"devices of a process that are no box of the mesh")
