"""JAX: NamedSharding and PartitionSpec as layouts, and back. JAX is imported only to make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _dtypes
from ._convert import layout_text, mesh_text, product
from ._errors import ArrayError, InvalidError, UnsupportedError
from ._layout import layout

if TYPE_CHECKING:
    from ._layout import Layout

__all__ = ["from_jax", "jax_array", "jax_local"]


def _axes(entry: Any) -> List[str]:
    if entry is None:
        return []
    names = entry if isinstance(entry, tuple) else (entry,)
    if not all(isinstance(name, str) for name in names):
        raise UnsupportedError(f"{entry!r} in a PartitionSpec: only names of mesh axes are known")
    return list(names)


class _Sharding(NamedTuple):
    """A NamedSharding in parts. Where a rank has several devices, each axis is cut in two: ``parts`` ranks of ``own`` devices
    each, in this order."""

    names: List[str]
    sizes: Dict[str, int]
    own: Dict[str, int]  # how many neighbours on the axis are devices of one rank
    ranks: List[int]  # of the axes' parts, row-major
    dims: List[List[str]]  # the axes that cut each dim


def _own_devices(grid: Any) -> List[int]:
    """For each axis of a grid of ranks: how many neighbours have one rank. The ranks must form a grid themselves."""
    own = []
    for d in range(grid.ndim):
        line = np.moveaxis(grid, d, 0).reshape(grid.shape[d], -1)[:, 0].tolist()
        run = next((i for i, r in enumerate(line) if r != line[0]), len(line))
        own.append(run if len(line) % run == 0 else 1)
    coarse = grid[tuple(slice(None, None, n) for n in own)]
    again = coarse
    for d, n in enumerate(own):
        again = np.repeat(again, n, axis=d)
    if len(set(coarse.flatten().tolist())) != coarse.size or not np.array_equal(again, grid):
        raise UnsupportedError(
            f"the devices of a rank are no box of the mesh of {grid.shape}: ranks {grid.tolist()}; reorder the mesh's devices so "
            "that those of one process are neighbours"
        )
    return own


def _sharding(sharding: Any, shape: Sequence[int], rank: Optional[Callable[[Any], int]]) -> _Sharding:
    mesh, spec = sharding.mesh, sharding.spec
    names, sizes = [str(n) for n in mesh.axis_names], [int(mesh.shape[n]) for n in mesh.axis_names]
    if len(spec) > len(shape):
        raise InvalidError(f"{spec} is for more dims than {tuple(shape)} has")
    number = rank or (lambda device: int(device.id))
    abstract = type(mesh).__name__ == "AbstractMesh"  # which has no devices
    ranks = list(range(product(sizes))) if abstract else [int(number(d)) for d in mesh.devices.flatten()]
    own = [1] * len(sizes)
    if len(set(ranks)) < len(ranks):
        grid = np.array(ranks).reshape(sizes)
        own = _own_devices(grid)
        ranks = grid[tuple(slice(None, None, n) for n in own)].flatten().tolist()
    dims = [_axes(e) for e in spec] + [[]] * (len(shape) - len(spec))
    return _Sharding(names, dict(zip(names, sizes)), dict(zip(names, own)), ranks, dims)


def _dim_text(extent: int, axes: Sequence[str], s: _Sharding, spec: Any) -> str:
    parts = product([s.sizes[axis] for axis in axes])
    several = any(s.own[axis] > 1 for axis in axes)
    if (len(axes) > 1 or several) and extent % parts:
        raise UnsupportedError(f"{spec}: {extent} elements are not a multiple of the {parts} devices that hold them")
    text, piece, before = str(extent), extent, 1
    for axis in axes:
        piece //= s.sizes[axis] if several else 1
        if s.own[axis] == s.sizes[axis] > 1:  # all on one rank: it cuts nothing
            before *= s.own[axis]
            continue
        # A rank that has several devices on an axis before holds one block of each of their pieces.
        text += f"/{axis}:{piece * s.own[axis]}" if before > 1 and piece else f"/{axis}"
        before *= s.own[axis]
    return text


def _parts_of(what: Any, shape: Any, dtype: Any) -> Tuple[Any, Any, Any]:
    """The sharding, the global shape and the dtype."""
    sharding = what
    if not hasattr(what, "spec"):
        sharding = getattr(what, "sharding", None)
        shape, dtype = getattr(what, "shape", shape), getattr(what, "dtype", dtype)
    if not hasattr(sharding, "spec") or not hasattr(sharding, "mesh"):
        raise InvalidError(f"from_jax needs a NamedSharding or an array that has one, not {type(sharding or what).__name__}")
    if shape is None or dtype is None:
        raise InvalidError("from_jax needs the global shape and the dtype with a NamedSharding")
    return sharding, tuple(shape), dtype


def from_jax(
    what: Any,
    shape: Optional[Sequence[int]] = None,
    dtype: Any = None,
    *,
    rank: Optional[Callable[[Any], int]] = None,
) -> "Layout":
    """The layout of a jax.Array, or of a NamedSharding with a global shape and a dtype. Mesh names are kept.

    A device's rank is its id, unless ``rank(device)`` says otherwise: ``lambda d: d.process_index`` with several processes.
    Several devices may have one rank, if they are a box of the mesh; its part then joins their pieces (:func:`weft.jax_local`).
    """
    sharding, shape, dtype = _parts_of(what, shape, dtype)
    s = _sharding(sharding, shape, rank)
    dims = [_dim_text(int(extent), axes, s, sharding.spec) for extent, axes in zip(shape, s.dims)]
    unreduced = [n for n in s.names if n in (getattr(sharding.spec, "unreduced", None) or ())]
    if any(s.own[n] > 1 for n in unreduced):
        raise UnsupportedError(f"{sharding.spec}: {unreduced} is not reduced, and several of its devices have one rank")
    folds = [("sum", unreduced)] if unreduced else []
    sizes = [s.sizes[n] // s.own[n] for n in s.names]
    return layout(layout_text(_dtypes.of_any(dtype), dims, mesh_text(s.names, sizes, s.ranks), folds))


def _places(sharding: Any, shape: Tuple[int, ...], rank: Optional[Callable[[Any], int]]) -> Tuple[Tuple[int, ...], Dict[Any, Any]]:
    """The shape of this process's part, and where the piece of each of its devices is in it."""
    by_rank = rank or (lambda device: device.process_index)
    s = _sharding(sharding, shape, by_rank)
    cut = [product([s.sizes[a] for a in axes]) for axes in s.dims]
    kept = [product([s.own[a] for a in axes]) for axes in s.dims]
    if any(n % c for n, c in zip(shape, cut)):
        raise UnsupportedError(f"{sharding.spec}: {shape} is not a multiple of the devices that hold it")
    piece = [n // c for n, c in zip(shape, cut)]
    devices = sharding.mesh.devices
    mine = {d.id for d in sharding.addressable_devices}
    out, ranks = {}, set()
    for at, device in np.ndenumerate(devices):
        if device.id not in mine:
            continue
        ranks.add(by_rank(device))
        where = []
        for axes, n in zip(s.dims, piece):
            index = 0
            for axis in axes:
                index = index * s.own[axis] + at[s.names.index(axis)] % s.own[axis]
            where.append(slice(index * n, (index + 1) * n))
        out[device] = tuple(where)
    if len(ranks) > 1:
        raise InvalidError(f"the devices of this process are ranks {sorted(ranks)}: give rank= so that they are one")
    return tuple(k * n for k, n in zip(kept, piece)), out


def jax_local(array: Any, *, out: Any = None, rank: Optional[Callable[[Any], int]] = None) -> Any:
    """This process's part of a sharded jax.Array, as one NumPy array: what ``from_jax(array, rank=...)`` says that it holds.

    The pieces of its devices are copied into it, or into ``out``. ``rank`` is that of :func:`from_jax`; the process's index
    unless given.
    """
    sharding, shape, dtype = _parts_of(array, None, None)
    local, places = _places(sharding, shape, rank)
    if out is None:
        out = np.empty(local, dtype)
    elif tuple(out.shape) != local:
        raise ArrayError(f"jax_local: out is {tuple(out.shape)}, this process holds {local}")
    for shard in array.addressable_shards:
        out[places[shard.device]] = np.asarray(shard.data)
    return out


def jax_array(
    local: Any, sharding: Any, shape: Sequence[int], *, rank: Optional[Callable[[Any], int]] = None
) -> Any:
    """The jax.Array of a NamedSharding and a global shape, of which this process's part is ``local``. The reverse of
    :func:`jax_local`. Imports JAX."""
    import jax

    sharding, shape, _ = _parts_of(sharding, shape, local.dtype)
    have, places = _places(sharding, tuple(shape), rank)
    if tuple(local.shape) != have:
        raise ArrayError(f"jax_array: the part is {tuple(local.shape)}, this process holds {have} of {shape}")
    pieces = [jax.device_put(np.array(local[where]), device) for device, where in places.items()]
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


def partition_spec(of: "Layout") -> Any:
    """The PartitionSpec of a layout."""
    from jax.sharding import PartitionSpec

    entries: List[Any] = []
    for dim in of.dims:
        if dim.lo or dim.hi or any(s.block for s in dim.splits):
            raise UnsupportedError(f"{of}: a PartitionSpec has neither ghosts nor blocks")
        axes = tuple(s.axis for s in dim.splits)
        entries.append(axes if len(axes) > 1 else axes[0] if axes else None)
    unreduced = set()
    for fold in of.folds:
        if fold.op != "sum":
            raise UnsupportedError(f"{of}: a PartitionSpec has no {fold.op}")
        unreduced |= set(fold.over)
    return PartitionSpec(*entries, unreduced=unreduced) if unreduced else PartitionSpec(*entries)


def named_sharding(of: "Layout", devices: Optional[Sequence[Any]] = None) -> Any:
    """The NamedSharding of a layout over devices[rank]."""
    import jax

    have = list(jax.devices() if devices is None else devices)
    if of.world > len(have):
        raise InvalidError(f"{of} uses rank {of.world - 1}, and there are {len(have)} devices")
    grid = np.empty(len(of.ranks), dtype=object)
    for i, r in enumerate(of.ranks):
        grid[i] = have[r]
    mesh = jax.sharding.Mesh(grid.reshape(tuple(of.mesh.values())), tuple(of.mesh))
    return jax.sharding.NamedSharding(mesh, partition_spec(of))
