"""State dicts: each rank gives the tensors that it has, and all of them get one bound plan.

A plan needs both layouts of every tensor on every rank, and a rank knows only its own side. So ranks tell each other their
layouts first: all of those that are the same once, by the lowest rank that has them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _errors
from ._arrays import Bits, memory_of
from ._convert import layout_text, mesh_text
from ._errors import ArrayError, Error, InvalidError, MismatchError
from ._jax import from_jax, jax_local
from ._layout import Layout, layout
from ._plan import Move, lower
from ._torch import from_torch

if TYPE_CHECKING:
    from ._comm import Comm
    from ._exec import Bound

__all__ = ["bind_state"]

_SIDES = ("src", "dst")


class _Entry(NamedTuple):
    """A tensor of a state dict."""

    array: Any
    layout: Layout
    framework: bool  # the layout is that of a DTensor or of a jax.Array, on a mesh of which other ranks may lack the tensor


def _torch_rank(comm: "Comm") -> Callable[[int], int]:
    """Ranks of torch's job as ranks of the comm: in the same order, wherever the job's first one is."""
    dist: Any = sys.modules.get("torch.distributed")
    shift = comm.rank - int(dist.get_rank()) if dist is not None and dist.is_initialized() else 0
    return lambda r: r + shift


def _entry(comm: "Comm", name: str, value: Any, side: str, rank: Optional[Callable[[Any], int]], names: Any) -> Optional[_Entry]:
    """None: the value has no layout."""
    what = f"{side} of {name!r}"
    if isinstance(value, (tuple, list)) and not isinstance(value, Bits) and len(value) == 2 and isinstance(value[1], (str, Layout)):
        array, which = value[0], layout(value[1])
        return _Entry(array.to_local() if hasattr(array, "to_local") else array, which, False)
    try:
        if hasattr(value, "to_local") and hasattr(value, "placements"):
            return _Entry(value.to_local().detach(), from_torch(value, rank=rank or _torch_rank(comm), names=names), True)
        if hasattr(value, "addressable_shards") and hasattr(getattr(value, "sharding", None), "spec"):
            if side == "dst":
                raise ArrayError("an array of JAX cannot be written to: give (array, layout) with an array of comm.empty(layout)")
            by = rank or (lambda device: int(device.process_index))
            return _Entry(jax_local(value, rank=by), from_jax(value, rank=by), True)
    except Error as problem:
        raise type(problem)(f"{what}: {problem}") from None
    return None


def _bare(value: Any, entries: Mapping[str, _Entry]) -> str:
    """What is said of a value that has no layout: the layout that it has if every rank of the mesh has all of it."""
    kind = type(value).__name__
    try:
        memory = memory_of(value)
    except Error:
        return f"{kind} is no tensor: leave it out"
    meshes = [e.layout for e in entries.values() if e.framework]
    mesh = mesh_text(list(meshes[0].mesh), list(meshes[0].mesh.values()), meshes[0].ranks) if meshes else "@x2"
    whole = layout_text(memory.dtype, [str(n) for n in memory.shape], mesh, [])
    return f"{kind} says nothing of the other ranks: give a pair (array, layout), such as (array, '{whole}') if each of these ranks has all of it"


class _Side(NamedTuple):
    """One side of the state dict of this rank."""

    entries: Dict[str, _Entry]
    bare: Dict[str, str]  # values without a layout: what is wrong with them


def _side(comm: "Comm", given: Any, side: str, rank: Any, names: Any) -> _Side:
    if given is None:
        return _Side({}, {})
    if not isinstance(given, Mapping):
        raise InvalidError(f"bind_state: {side} is a dict of names to tensors, not {type(given).__name__}")
    found = {str(name): _entry(comm, str(name), value, side, rank, names) for name, value in given.items()}
    entries = {name: entry for name, entry in found.items() if entry is not None}
    return _Side(entries, {str(name): _bare(value, entries) for name, value in given.items() if found[str(name)] is None})


# ---- telling each other ----


def _tell(comm: "Comm", mine: bytes) -> List[bytes]:
    """What each rank has said, by rank. What several have said is sent once."""
    digest = np.frombuffer(hashlib.sha256(mine).digest()[:16], np.uint64)
    head = np.array([[*digest, len(mine)]], np.uint64)
    heads = [tuple(int(x) for x in row) for row in comm.allgather(head)]
    said: Dict[Any, bytes] = {}
    for root, key in enumerate(heads):
        if key not in said:
            data = np.frombuffer(mine, np.uint8) if comm.rank == root else np.zeros(key[2], np.uint8)
            said[key] = comm.broadcast(data, root=root).tobytes() if key[2] else b""
    return [said[key] for key in heads]


def _first_error(said: Sequence[Mapping[str, Any]], mine: Optional[Error]) -> None:
    if mine is not None:
        raise mine
    for rank, one in enumerate(said):
        if "error" in one:
            kind = getattr(_errors, one["error"][0], InvalidError)
            raise kind(f"rank {rank}: {one['error'][1]}")


# ---- putting it together ----


def _held(which: Layout, givers: Set[int]) -> Layout:
    """The layout on the ranks that have the tensor: without coordinates of axes along which others have no copy of it."""
    used = {s.axis for d in which.dims for s in d.splits} | {axis for f in which.folds for axis in f.over}
    sizes = which.mesh
    ranks = np.array(which.ranks).reshape(tuple(sizes.values()))
    here = np.isin(ranks, list(givers))
    if here.all():
        return which
    for i, axis in enumerate(sizes):
        if axis not in used:
            some = here.any(axis=tuple(d for d in range(here.ndim) if d != i))
            ranks, here = np.compress(some, ranks, axis=i), np.compress(some, here, axis=i)
    if not here.all() or not ranks.size:
        return which  # bind says on which rank there is no array
    text = repr(which)
    dims = text[text.index("[") + 1 : text.rindex("]")].split(",")
    folds = [(f.op, f.over) for f in which.folds]
    return layout(layout_text(which.dtype, dims, mesh_text(list(sizes), list(ranks.shape), ranks.flatten().tolist()), folds))


def _merge(said: Sequence[Mapping[str, Any]], side: str) -> Dict[str, Layout]:
    """One layout for each name, from all who have it."""
    first: Dict[str, Tuple[int, str]] = {}
    givers: Dict[str, Set[int]] = {}
    framework: Set[str] = set()
    for rank, one in enumerate(said):
        for name, (text, of_framework) in one[side].items():
            before = first.setdefault(name, (rank, text))
            if before[1] != text:
                raise MismatchError(
                    f"{side} of {name!r}: rank {before[0]} has {before[1]}, and rank {rank} has {text}: all ranks that have a tensor "
                    "must give one layout"
                )
            givers.setdefault(name, set()).add(rank)
            if of_framework:
                framework.add(name)
    return {
        name: _held(layout(text), givers[name]) if name in framework else layout(text) for name, (_, text) in first.items()
    }


def _refuse_bare(said: Sequence[Mapping[str, Any]]) -> None:
    """Values without a layout are refused, except those that their rank leaves out because no rank has the other side."""
    wanted = [{name for one in said for part in ("", " bare") for name in one[side + part]} for side in _SIDES]
    for rank, one in enumerate(said):
        for side, others in zip(_SIDES, reversed(wanted)):
            for name, text in one[side + " bare"].items():
                if one["strict"] or name in others:
                    out = "" if name in others else ", or strict=False: no rank has the other side of it"
                    raise ArrayError(f"rank {rank}: {side} of {name!r}: {text}{out}")


def _pairs(said: Sequence[Mapping[str, Any]]) -> List[Move]:
    """What moves. A tensor that has one side only is an error if a rank that has it is strict."""
    src, dst = (_merge(said, side) for side in _SIDES)
    for side, other, names, others in (("src", "destination", src, dst), ("dst", "source", dst, src)):
        strict = {name for one in said if one["strict"] for name in one[side]}
        missing = [name for name in names if name not in others and name in strict]
        if missing:
            some = ", ".join(map(repr, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise InvalidError(
                f"bind_state: no rank gives a {other} for {some}: give one, leave the tensor out, or strict=False to leave out all such"
            )
    moves = [Move(name, src[name], dst[name]) for name in src if name in dst]
    if not moves:
        raise InvalidError("bind_state: no tensor is both a source and a destination")
    return moves


def bind_state(
    comm: "Comm",
    src: Optional[Mapping[str, Any]] = None,
    dst: Optional[Mapping[str, Any]] = None,
    *,
    strict: bool = True,
    rank: Optional[Callable[[Any], int]] = None,
    names: "Union[Mapping[str, str], None]" = None,
    deadline: Optional[float] = None,
    arrivals: bool = False,
    check: Optional[bool] = None,
    **options: Any,
) -> "Bound":
    """Binds state dicts: each rank gives the tensors that it has, and all ranks get one plan, bound to them. Collective.

    A value is a DTensor, a sharded jax.Array (as a source), or a pair (array, layout), where the array may be a view of a fused
    tensor. A rank that is on one side only leaves the other out. The ranks tell each other their layouts, and every name must have
    a source and a destination. With ``strict=False`` a rank leaves those of its tensors out that have not, also values without a
    layout (buffers of a module); ranks of the other side need not pass it. Ranks of torch's job are ranks of the comm in the same
    order, wherever the job begins in it; ``rank`` says otherwise, and ``names`` renames mesh dims, both as in
    :func:`weft.from_torch`. ``deadline``, ``arrivals`` and ``check`` are those of :meth:`Plan.bind`, ``options`` those of
    :func:`weft.lower`.
    """
    problem: Optional[Error] = None
    sides: List[_Side] = []
    told: Dict[str, Any] = {"strict": bool(strict)}
    try:
        sides = [_side(comm, given, side, rank, names) for given, side in ((src, "src"), (dst, "dst"))]
        for side, here in zip(_SIDES, sides):
            told[side] = {name: (repr(e.layout), e.framework) for name, e in here.entries.items()}
            told[side + " bare"] = here.bare
    except Error as error:
        problem, told = error, {"error": (type(error).__name__, str(error))}
    said = [json.loads(text) for text in _tell(comm, json.dumps(told).encode())]
    _first_error(said, problem)
    _refuse_bare(said)
    moves = _pairs(said)
    kept = {m.name for m in moves}
    arrays = [{name: e.array for name, e in here.entries.items() if name in kept} for here in sides]
    plan = lower({m.name: (m.src, m.dst) for m in moves}, **options)
    return plan.bind(comm, arrays[0], arrays[1], deadline, arrivals, check)
