"""PyTorch's DTensor: its meshes and placements as layouts, and back. PyTorch is imported only to make placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from . import _dtypes
from ._convert import default_names, layout_text, mesh_text, same_pieces
from ._errors import InvalidError, UnsupportedError
from ._layout import Dim, layout

if TYPE_CHECKING:
    from ._layout import Layout

__all__ = ["from_torch"]

_OPS = {"sum": "sum", "avg": "avg", "product": "prod", "min": "min", "max": "max", "band": "band", "bor": "bor", "bxor": "bxor"}

Axis = Tuple[str, int, int]  # name, size, split_factor


def _dim_text(extent: int, axes: Sequence[Axis]) -> str:
    """The notation of a dim that is cut by these axes, in mesh order."""
    # Right to left: a strided axis comes after those axes to its right whose sizes make its split_factor.
    order: Optional[List[Axis]] = []
    for axis in reversed(axes):
        place, before = 0, 1
        while order is not None and place < len(order) and before < axis[2]:
            before *= order[place][1]
            place += 1
        if order is not None:
            order = [*order[:place], axis, *order[place:]] if before == axis[2] else None
    if order is not None:
        text = "/".join([str(extent), *(name for name, _, _ in order)])
        if same_pieces(text, extent, axes):
            return text
    # Otherwise it deals blocks.
    text, piece = str(extent), extent
    for name, size, factor in axes:
        block = -(-(-(-piece // factor)) // size)
        text += f"/{name}" if factor == 1 else f"/{name}:{max(1, block)}"
        piece = -(-piece // size)
    if same_pieces(text, extent, axes):
        return text
    rule = ", ".join(f"_StridedShard on {n} of {s} with split_factor={f}" if f > 1 else f"Shard on {n} of {s}" for n, s, f in axes)
    raise UnsupportedError(f"the notation has no layout for the uneven pieces of {extent} that PyTorch makes by {rule}")


def _of_placements(mesh: Any, placements: Sequence[Any], shape: Sequence[int], dtype: Any, names: Optional[Sequence[str]]) -> "Layout":
    ranks = mesh.mesh
    sizes = [int(n) for n in ranks.shape]
    if len(placements) != len(sizes):
        raise InvalidError(f"the mesh has {len(sizes)} dims, and there are {len(placements)} placements")
    own = names or mesh.mesh_dim_names or default_names(len(sizes))
    if len(own) != len(sizes):
        raise InvalidError(f"the mesh has {len(sizes)} dims, and there are {len(own)} names: {', '.join(map(repr, own))}")
    cuts: List[List[Axis]] = [[] for _ in shape]
    folds: List[Tuple[str, List[str]]] = []
    for name, size, p in zip(own, sizes, placements):
        kind = type(p).__name__
        if kind in ("Shard", "_StridedShard"):
            d = p.dim + len(shape) if p.dim < 0 else p.dim
            if not 0 <= d < len(shape):
                raise InvalidError(f"{p} is for a tensor of more dims than {tuple(shape)} has")
            cuts[d].append((name, size, int(p.split_factor) if kind == "_StridedShard" else 1))
        elif kind == "Partial":
            if p.reduce_op not in _OPS:
                raise UnsupportedError(f"{p}: the notation has no op {p.reduce_op}")
            op = _OPS[p.reduce_op]
            if folds and folds[-1][0] == op:
                folds[-1][1].append(name)
            else:
                folds.append((op, [name]))
        elif kind != "Replicate":
            raise UnsupportedError(f"{p}: a placement of the kind {kind} is not known")
    dims = [_dim_text(int(n), axes) for n, axes in zip(shape, cuts)]
    return layout(layout_text(_dtypes.of_any(dtype), dims, mesh_text(own, sizes, ranks.flatten().tolist()), folds))


def from_torch(
    what: Any,
    placements: Optional[Sequence[Any]] = None,
    shape: Optional[Sequence[int]] = None,
    dtype: Any = None,
    *,
    names: Optional[Sequence[str]] = None,
) -> "Layout":
    """The layout of a DTensor, or of a DeviceMesh with placements, a global shape and a dtype.

    Shard, Replicate, Partial and _StridedShard are known; the names of the mesh are kept, ``names`` stands for those that
    are missing or that the notation cannot have. Raises UnsupportedError where PyTorch's pieces have no notation: some
    uneven ones of _StridedShard.
    """
    if placements is None:
        if not hasattr(what, "device_mesh"):
            raise InvalidError("from_torch needs a DTensor, or a DeviceMesh with placements, a shape and a dtype")
        return _of_placements(what.device_mesh, what.placements, what.shape, what.dtype, names)
    if shape is None or dtype is None:
        raise InvalidError("from_torch needs the global shape and the dtype with a DeviceMesh and placements")
    if not hasattr(what, "mesh"):
        raise InvalidError(f"from_torch needs a DeviceMesh with placements, not {type(what).__name__}")
    return _of_placements(what, placements, shape, dtype, names)


def _factors(dim: Dim, mesh: Dict[str, int]) -> Dict[str, int]:
    """The split_factor of each axis that cuts the dim."""
    order, out, piece = list(mesh), {}, dim.extent
    for i, split in enumerate(dim.splits):
        factor = 1
        for earlier in dim.splits[:i]:
            if order.index(earlier.axis) > order.index(split.axis):
                factor *= mesh[earlier.axis]
        if split.block:
            factor *= max(1, -(-piece // (split.block * mesh[split.axis])))
        out[split.axis] = factor
        piece = -(-piece // mesh[split.axis])
    return out


def placements(of: "Layout") -> List[Any]:
    """One placement for each axis of the mesh."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = of.mesh
    out: Dict[str, Any] = {axis: Replicate() for axis in mesh}
    for d, dim in enumerate(of.dims):
        if dim.lo or dim.hi:
            raise UnsupportedError(f"{of}: DTensor has no ghosts")
        factors = _factors(dim, mesh)
        axes = [(axis, size, factors[axis]) for axis, size in mesh.items() if axis in factors]
        text = "/".join([str(dim.extent), *(f"{s.axis}:{s.block}" if s.block else s.axis for s in dim.splits)])
        if axes and not same_pieces(text, dim.extent, axes):
            raise UnsupportedError(f"{of}: DTensor has no placements for the pieces of dim {d}")
        for axis, _, factor in axes:
            out[axis] = Shard(d) if factor == 1 else _StridedShard(d, split_factor=factor)
    names = {ours: theirs for theirs, ours in _OPS.items()}
    for fold in of.folds:
        for axis in fold.over:
            out[axis] = Partial(names[fold.op])
    return [out[axis] for axis in mesh]
