"""JAX: NamedSharding and PartitionSpec as layouts, and back. JAX is imported only to make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence

from . import _dtypes
from ._convert import layout_text, mesh_text, product
from ._errors import InvalidError, UnsupportedError
from ._layout import layout

if TYPE_CHECKING:
    from ._layout import Layout

__all__ = ["from_jax"]


def _axes(entry: Any) -> List[str]:
    if entry is None:
        return []
    names = entry if isinstance(entry, tuple) else (entry,)
    if not all(isinstance(name, str) for name in names):
        raise UnsupportedError(f"{entry!r} in a PartitionSpec: only names of mesh axes are known")
    return list(names)


def from_jax(
    what: Any,
    shape: Optional[Sequence[int]] = None,
    dtype: Any = None,
    *,
    rank: Optional[Callable[[Any], int]] = None,
) -> "Layout":
    """The layout of a jax.Array, or of a NamedSharding with a global shape and a dtype. Mesh names are kept.

    A device's rank is its id, unless ``rank(device)`` says otherwise.
    """
    sharding = what
    if not hasattr(what, "spec"):
        sharding = getattr(what, "sharding", None)
        shape, dtype = getattr(what, "shape", shape), getattr(what, "dtype", dtype)
    if not hasattr(sharding, "spec") or not hasattr(sharding, "mesh"):
        raise InvalidError(f"from_jax needs a NamedSharding or an array that has one, not {type(sharding or what).__name__}")
    if shape is None or dtype is None:
        raise InvalidError("from_jax needs the global shape and the dtype with a NamedSharding")
    mesh, spec = sharding.mesh, sharding.spec
    names, sizes = [str(n) for n in mesh.axis_names], [int(mesh.shape[n]) for n in mesh.axis_names]
    if len(spec) > len(shape):
        raise InvalidError(f"{spec} is for more dims than {tuple(shape)} has")
    entries = [_axes(e) for e in spec] + [[]] * (len(shape) - len(spec))
    dims = []
    for extent, axes in zip(shape, entries):
        parts = product([int(mesh.shape[axis]) for axis in axes])
        if len(axes) > 1 and extent % parts:
            raise UnsupportedError(f"{spec}: {extent} elements are not a multiple of the {parts} devices that hold them")
        dims.append("/".join([str(extent), *axes]))
    unreduced = [n for n in names if n in (getattr(spec, "unreduced", None) or ())]
    number = rank or (lambda device: int(device.id))
    abstract = type(mesh).__name__ == "AbstractMesh"  # which has no devices
    ranks = list(range(product(sizes))) if abstract else [number(d) for d in mesh.devices.flatten()]
    folds = [("sum", unreduced)] if unreduced else []
    return layout(layout_text(_dtypes.of_any(dtype), dims, mesh_text(names, sizes, ranks), folds))


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
    import numpy as np

    have = list(jax.devices() if devices is None else devices)
    if of.world > len(have):
        raise InvalidError(f"{of} uses rank {of.world - 1}, and there are {len(have)} devices")
    grid = np.empty(len(of.ranks), dtype=object)
    for i, r in enumerate(of.ranks):
        grid[i] = have[r]
    mesh = jax.sharding.Mesh(grid.reshape(tuple(of.mesh.values())), tuple(of.mesh))
    return jax.sharding.NamedSharding(mesh, partition_spec(of))
