"""PyTorch's DTensor: its meshes and placements as layouts, and back. PyTorch is imported only to make placements."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes
from ._convert import default_names, layout_text, mesh_text, product, same_lengths, same_pieces
from ._errors import InvalidError, UnsupportedError
from ._layout import Dim, layout

if TYPE_CHECKING:
    from ._layout import Layout

__all__ = ["from_torch"]

_OPS = {"sum": "sum", "avg": "avg", "product": "prod", "min": "min", "max": "max", "band": "band", "bor": "bor", "bxor": "bxor"}

_NAME = re.compile("[A-Za-z](?:[A-Za-z]|_[0-9]*)*")

Axis = Tuple[str, int, int]  # name, size, split_factor


def _strided_order(axes: Sequence[Axis]) -> Optional[List[Axis]]:
    """The order in which the axes cut the dim, if each split_factor is a product of sizes of axes to its right."""
    # Right to left: a strided axis comes after those axes to its right whose sizes make its split_factor.
    order: List[Axis] = []
    for axis in reversed(axes):
        place, before = 0, 1
        while place < len(order) and before < axis[2]:
            before *= order[place][1]
            place += 1
        if before != axis[2]:
            return None
        order = [*order[:place], axis, *order[place:]]
    return order


def _dim_text(extent: int, axes: Sequence[Axis], held: bool) -> str:
    """The notation of a dim that is cut by these axes, in mesh order. ``held``: of a DTensor that exists."""
    order = _strided_order(axes)
    advice = ""
    if order is not None:
        text = "/".join([str(extent), *(name for name, _, _ in order)])
        if same_pieces(text, extent, axes):
            return text
        # What fully_shard makes of a dim that tensor parallelism has cut already is a cut of that piece, not the rule of
        # distribute_tensor. Both are told apart by the lengths, which bind compares on every rank.
        if held and not same_lengths(text, extent, axes):
            return text
        advice = f" (FSDP2 holds {text} there: write that layout, or give the DTensor)"
    # Otherwise it deals blocks.
    text, piece = str(extent), extent
    for name, size, factor in axes:
        block = -(-(-(-piece // factor)) // size)
        text += f"/{name}" if factor == 1 else f"/{name}:{max(1, block)}"
        piece = -(-piece // size)
    if same_pieces(text, extent, axes):
        return text
    rule = ", ".join(f"_StridedShard on {n} of {s} with split_factor={f}" if f > 1 else f"Shard on {n} of {s}" for n, s, f in axes)
    raise UnsupportedError(f"the notation has no layout for the uneven pieces of {extent} that PyTorch makes by {rule}{advice}")


def _root_of(mesh: Any) -> Any:
    """The mesh that this one is a part of; itself if it is none."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    module: Any = sys.modules.get("torch.distributed.device_mesh")
    resources: Any = getattr(module, "_mesh_resources", None)
    return resources.get_root_mesh(mesh) if hasattr(resources, "get_root_mesh") else mesh


class _Grid(NamedTuple):
    """A mesh as a layout has it: all ranks of the root mesh, on the axes of the sub-mesh and on those that it lacks."""

    names: List[str]
    sizes: List[int]
    ranks: List[int]


def _grid_of(mesh: Any, own: Sequence[str], rename: Mapping[str, str]) -> _Grid:
    sub = np.asarray(mesh.mesh.tolist(), dtype=np.int64).reshape(tuple(mesh.mesh.shape))
    plain = _Grid(list(own), list(sub.shape), sub.flatten().tolist())
    root = _root_of(mesh)
    if root is mesh or root is None or root.mesh.numel() == sub.size:
        return plain
    whole = np.asarray(root.mesh.tolist(), dtype=np.int64).reshape(tuple(root.mesh.shape))
    place = {int(r): at for at, r in np.ndenumerate(whole)}
    if any(int(r) not in place for r in sub.flatten()):
        return plain  # it is no part of what torch says is its root
    # Which dims of the root each dim of the sub-mesh runs through: one, or several if it was flattened.
    through: List[List[int]] = []
    for i in range(sub.ndim):
        line = [place[int(r)] for r in np.moveaxis(sub, i, 0).reshape(sub.shape[i], -1)[:, 0]]
        through.append([d for d in range(whole.ndim) if len({at[d] for at in line}) > 1])
    names = [str(n) for n in root.mesh_dim_names or default_names(whole.ndim)]
    for i, name in enumerate(mesh.mesh_dim_names or ()):  # of size 1, which runs through nothing
        if not through[i] and sub.shape[i] == 1 and name in names:
            through[i] = [names.index(name)]
    used = [d for dims in through for d in dims]
    axes = [(dims[0] if dims else -1, own[i], int(sub.shape[i]), dims) for i, dims in enumerate(through)]
    axes += [(d, rename.get(names[d], names[d]), int(whole.shape[d]), [d]) for d in range(whole.ndim) if d not in used]
    axes.sort(key=lambda a: a[0])
    if len(set(used)) == len(used) and all(product([whole.shape[d] for d in dims]) == size for _, _, size, dims in axes):
        ranks = whole.transpose([d for a in axes for d in a[3]]).reshape([a[2] for a in axes])
        # This rank's slice of it, in the order of the sub-mesh, must be the sub-mesh.
        here = place[int(sub.flatten()[0])]
        cut = ranks[tuple(slice(None) if a[1] in own else here[a[3][0]] for a in axes)]
        left = [a[1] for a in axes if a[1] in own]
        if np.array_equal(cut.transpose([left.index(n) for n in own]), sub):
            return _Grid([a[1] for a in axes], [a[2] for a in axes], ranks.flatten().tolist())
    raise UnsupportedError(f"{mesh}: from_torch does not see how this sub-mesh cuts its root {root}: give the layout by its text")


def _names_of(mesh: Any, names: Any) -> Tuple[List[str], Dict[str, str]]:
    """The names of the axes, and what the names of the root mesh become."""
    ndim = len(mesh.mesh.shape)
    have = [str(n) for n in mesh.mesh_dim_names or default_names(ndim)]
    rename = dict(names) if isinstance(names, Mapping) else {}
    own = [rename.get(n, n) for n in have] if isinstance(names, Mapping) or names is None else [str(n) for n in names]
    if len(own) != ndim:
        raise InvalidError(f"the mesh has {ndim} dims, and there are {len(own)} names: {', '.join(map(repr, own))}")
    return own, rename


def _of_placements(
    mesh: Any,
    placements: Sequence[Any],
    shape: Sequence[int],
    dtype: Any,
    names: Any,
    rank: Optional[Callable[[int], int]],
    held: bool,
) -> "Layout":
    sizes = [int(n) for n in mesh.mesh.shape]
    if len(placements) != len(sizes):
        raise InvalidError(f"the mesh has {len(sizes)} dims, and there are {len(placements)} placements")
    own, rename = _names_of(mesh, names)
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
    grid = _grid_of(mesh, own, rename)
    for name in grid.names:
        if not _NAME.fullmatch(name):
            raise InvalidError(f"a mesh dim is named {name!r}, which the notation cannot have: give names={{{name!r}: 'another'}}")
    dims = [_dim_text(int(n), axes, held) for n, axes in zip(shape, cuts)]
    ranks = grid.ranks if rank is None else [int(rank(r)) for r in grid.ranks]
    return layout(layout_text(_dtypes.of_any(dtype), dims, mesh_text(grid.names, grid.sizes, ranks), folds))


def _check_local(of: "Layout", tensor: Any, rank: int) -> None:
    """The DTensor's own piece has the shape that the layout says."""
    local = tuple(tensor.to_local().shape)
    here = of.local(rank)
    if here.holds and local != here.shape and (here.elements or 0 not in local):
        raise UnsupportedError(
            f"the DTensor of {tuple(tensor.shape)} by {tensor.placements} holds {local} on this rank, and {of} has {here.shape}: "
            "these are neither pieces of FSDP2 nor ones that the notation has"
        )


def from_torch(
    what: Any,
    placements: Optional[Sequence[Any]] = None,
    shape: Optional[Sequence[int]] = None,
    dtype: Any = None,
    *,
    names: "Union[Sequence[str], Mapping[str, str], None]" = None,
    rank: Optional[Callable[[int], int]] = None,
) -> "Layout":
    """The layout of a DTensor, or of a DeviceMesh with placements, a global shape and a dtype.

    Shard, Replicate, Partial and _StridedShard are known. The layout of a tensor on a sub-mesh (``mesh["dp"]``) is one on the
    root mesh, with copies along the axes that the sub-mesh lacks: so it is the same on all ranks. The names of the mesh are
    kept; ``names`` has others, one for each dim or a dict of theirs to others. ``rank(r)`` is the rank in weft's comm of
    torch's rank r, if they differ. Raises UnsupportedError where PyTorch's pieces have no notation: some uneven ones of
    _StridedShard that are not FSDP2's.
    """
    if placements is None:
        if not hasattr(what, "device_mesh"):
            raise InvalidError("from_torch needs a DTensor, or a DeviceMesh with placements, a shape and a dtype")
        of = _of_placements(what.device_mesh, what.placements, what.shape, what.dtype, names, rank, True)
        me = int(what.device_mesh.get_rank())
        _check_local(of, what, me if rank is None else int(rank(me)))
        return of
    if shape is None or dtype is None:
        raise InvalidError("from_torch needs the global shape and the dtype with a DeviceMesh and placements")
    if not hasattr(what, "mesh"):
        raise InvalidError(f"from_torch needs a DeviceMesh with placements, not {type(what).__name__}")
    return _of_placements(what, placements, shape, dtype, names, rank, False)


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
