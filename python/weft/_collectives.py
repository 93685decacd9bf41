"""Collectives by name, for arrays of any shape. Each is a plan, made once for a dtype and a size, and kept by the comm.

Most keep more than that: arrays of their own in window memory, bound once, which the caller's are copied into and out of. That
costs less than binding, and than moving private memory. Arrays that would take too much of it are bound as they are, for one run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _dtypes
from ._arrays import Memory, is_torch, memory_of
from ._errors import ArrayError, InvalidError

_SMALL = 16 << 20  # bytes on either side of one rank: up to here arrays are kept for it
_KEPT_BYTES = 256 << 20  # of all that are kept; the same on all ranks, so that all forget the same ones
_KEPT = 64  # of each kind; also the same on all ranks
_UNSIGNED: "Dict[int, np.dtype[Any]]" = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8"), 16: np.dtype("V16")}


class _Room(NamedTuple):
    """A bound exec with arrays of its own; None where the rank holds nothing."""

    bound: Any
    size: int  # the same on all ranks: the most that one has on a side
    src: "Optional[np.ndarray[Any, Any]]"
    dst: "Optional[np.ndarray[Any, Any]]"


class _Known(NamedTuple):
    """A room with its arrays as the caller's NumPy arrays look."""

    key: Tuple[Any, ...]
    room: _Room
    src: "Optional[np.ndarray[Any, Any]]"
    dst: "np.ndarray[Any, Any]"


class _Strided:
    """The elements of some memory, as unsigned integers of their size."""

    def __init__(self, memory: Memory) -> None:
        self._keep = memory
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.address, not memory.writable),
            "shape": memory.shape,
            "strides": memory.strides,
            "typestr": _UNSIGNED[memory.itemsize].str,
        }


def _elements(memory: Memory) -> "np.ndarray[Any, Any]":
    keep = memory.keep
    if isinstance(keep, np.ndarray) and keep.shape == memory.shape and keep.strides == memory.strides:
        return keep.view(_UNSIGNED[memory.itemsize])
    if not memory.bytes:
        return np.zeros(memory.shape, _UNSIGNED[memory.itemsize])
    return np.asarray(_Strided(memory))


def _like(x: Any, dtype: str, shape: Tuple[int, ...]) -> Any:
    """A new array, of PyTorch where x is one of its, else of NumPy."""
    if is_torch(x):
        import torch

        return torch.empty(shape, dtype=_dtypes.to_torch(dtype), device=x.device)
    return np.empty(shape, _dtypes.to_numpy(dtype))


def _flat(memory: Optional[Memory], shape: Tuple[int, ...]) -> Optional[Memory]:
    """Dense memory in another shape of as many elements."""
    if memory is None:
        return None
    strides, step = [0] * len(shape), memory.itemsize
    for i in reversed(range(len(shape))):
        strides[i] = step
        step *= shape[i]
    return memory._replace(shape=shape, strides=tuple(strides))


def _copy(memory: Memory) -> Memory:
    return memory_of(_elements(memory).copy())._replace(dtype=memory.dtype)


def _dense(memory: Optional[Memory]) -> Optional[Memory]:
    """The memory, or a copy of it where a plan could not be bound to it."""
    if memory is None or memory.dense and not memory.address % memory.itemsize:
        return memory
    if memory.on_device:
        raise ArrayError("a collective by name needs dense arrays on a device: bind a plan to strided ones, or make a dense copy")
    return _copy(memory)


def _overlap(a: Memory, b: Memory) -> bool:
    return a.address < b.address + b.bytes and b.address < a.address + a.bytes


class Collectives:
    """The collectives of a comm. All ranks call them in the same order, with arrays of the same dtype and shape.

    Each returns a new array, a torch tensor for one and else NumPy's, or ``out``, which may be the array itself. Arrays on a
    device are bound for each call, and what is returned is on the device, too. All ranks give arrays of one kind, the host's or a device's.
    """

    _plans: Any
    _known: Any
    _unsettled: Any
    _rank: int
    _size: int

    def allreduce(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """The sum (or ``op``) of all ranks' arrays, on all ranks."""
        return self._to_all("allreduce", x, out, op=op)

    def reduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None) -> Any:
        """The sum (or ``op``) of all ranks' arrays on the root; None elsewhere."""
        given = memory_of(x)
        shape = given.shape if self._rank == root else None
        return self._collect("reduce", x, given, True, shape, out, op=op, root=root)

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """This rank's part of the sum (or ``op``) of all ranks' arrays, which are cut along their first dim."""
        return self._to_all("reduce_scatter", x, out, op=op)

    def allgather(self, x: Any, out: Any = None) -> Any:
        """All ranks' arrays, one after the other along the first dim, on all ranks."""
        return self._to_all("allgather", x, out)

    def gather(self, x: Any, root: int = 0, out: Any = None) -> Any:
        """All ranks' arrays, one after the other along the first dim, on the root; None elsewhere."""
        given = memory_of(x)
        shape = self._joined(given.shape) if self._rank == root else None
        return self._collect("gather", x, given, True, shape, out, root=root)

    def scatter(self, x: Any = None, root: int = 0, out: Any = None) -> Any:
        """This rank's part of the root's array, which is cut along its first dim. Other ranks give ``out`` alone."""
        if self._rank != root:
            if out is None:
                raise InvalidError("scatter: give out on the ranks that are not the root, for its dtype and shape")
            given = memory_of(out)
            return self._collect("scatter", out, given, False, given.shape, out, root=root)
        given = memory_of(x)
        return self._collect("scatter", x, given, True, self._cut(given.shape, "scatter"), out, root=root)

    def broadcast(self, x: Any, root: int = 0, out: Any = None) -> Any:
        """The root's array, on all ranks. Other ranks give an array of its dtype and shape; only ``out=x`` writes to it."""
        return self._to_all("broadcast", x, out, root=root)

    def all_to_all(self, x: Any, out: Any = None) -> Any:
        """Part r of the array, which is cut along its first dim, goes to rank r; what comes is joined the same way."""
        return self._to_all("all_to_all", x, out)

    def permute(self, x: Any, to: Sequence[int], out: Any = None) -> Any:
        """Rank r's array goes to rank ``to[r]``; every rank gets one."""
        if sorted(to) != list(range(self._size)):
            raise InvalidError(f"permute: to is {list(to)}; it must have each of the {self._size} ranks once")
        given = memory_of(x)
        return self._collect("permute", x, given, True, given.shape, out, to=tuple(to))

    # ---- how ----

    def _cut(self, shape: Tuple[int, ...], what: str) -> Tuple[int, ...]:
        if not shape or shape[0] % self._size:
            raise ArrayError(f"{what}: the array is {shape}; its first dim must be a multiple of the {self._size} ranks")
        return (shape[0] // self._size, *shape[1:])

    def _joined(self, shape: Tuple[int, ...]) -> Tuple[int, ...]:
        return (shape[0] * self._size, *shape[1:]) if shape else (self._size,)

    def _to_all(self, kind: str, x: Any, out: Any, op: str = "sum", root: int = 0) -> Any:
        """A collective in which all ranks give an array and get one."""
        again = self._again(x, out, kind, op, root)
        if again is not None:
            return again
        given = memory_of(x)
        shape = self._joined(given.shape) if kind == "allgather" else given.shape
        if kind in ("reduce_scatter", "all_to_all"):
            part = self._cut(shape, kind)
            shape = part if kind == "reduce_scatter" else shape
        return self._collect(kind, x, given, kind != "broadcast" or self._rank == root, shape, out, op=op, root=root)

    def _plan(self, in_place: bool, **what: Any) -> Any:
        from ._plan import collective

        key = ("plan", in_place, *what.values())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = collective(ranks=self._size, in_place=in_place, **what)
            self._forget(key)
        self._plans.move_to_end(key)
        return plan

    def _forget(self, key: Tuple[Any, ...]) -> None:
        plans: "OrderedDict[Any, Any]" = self._plans
        of_kind = [k for k in plans if k[0] == key[0]]
        left, size = len(of_kind), sum(plans[k].size for k in of_kind) if key[0] == "room" else 0
        for old in of_kind:
            if left <= _KEPT and size <= _KEPT_BYTES:
                break
            gone = plans.pop(old)
            left -= 1
            if isinstance(gone, _Room):
                size -= gone.size
                gone.bound.close()
                self._known = {k: v for k, v in self._known.items() if v.room is not gone}

    def _on_device(self, dtype: str, shape: Tuple[int, ...], device: int) -> Any:
        which = f"{dtype}[{','.join(map(str, shape))}] @x1={self._rank}"
        return self.empty(which, device=f"cuda:{device}")  # type: ignore[attr-defined]

    def _own(self, which: Any) -> "Optional[np.ndarray[Any, Any]]":
        bytes_here = which.local(self._rank).bytes
        if not bytes_here:
            return None
        array: "np.ndarray[Any, Any]" = self.empty(f"u8[{bytes_here}] @x1={self._rank}")  # type: ignore[attr-defined]
        return array

    def _room(self, size: int, **what: Any) -> _Room:
        key = ("room", *what.values())
        room: Optional[_Room] = self._plans.get(key)
        if room is None:
            plan = self._plan(False, **what)
            move = plan.moves[0]
            src, dst = self._own(move.src), self._own(move.dst)
            sides = []
            for array, which in ((src, move.src), (dst, move.dst)):
                memory = None if array is None else memory_of(array)
                if memory is not None:
                    memory = memory._replace(dtype=which.dtype, itemsize=_dtypes.size_of(which.dtype))
                sides.append(_flat(memory, which.local(self._rank).shape))
            room = self._plans[key] = _Room(plan.bind(self, *sides), size, src, dst)
            self._forget(key)
        self._plans.move_to_end(key)
        return room

    def _collect(
        self,
        kind: str,
        like: Any,
        given: Memory,
        sends: bool,
        shape: Optional[Tuple[int, ...]],
        out: Any,
        op: str = "sum",
        root: int = 0,
        to: Optional[Tuple[int, ...]] = None,
    ) -> Any:
        """Runs it. ``given`` is the memory of ``like``, and the source where the rank sends; the destination has the shape, and
        there is none on ranks that get nothing."""
        if not 0 <= root < self._size:
            raise InvalidError(f"{kind}: there is no rank {root} to be the root, the comm has {self._size}")
        here = given if sends else None
        if shape is None:
            target = out = None
        else:
            if out is None and given.on_device and not is_torch(like):
                out = self._on_device(given.dtype, shape, given.device)
            out = _like(like, given.dtype, shape) if out is None else out
            target = memory_of(out)
            if target.dtype == _dtypes.bits_of(given.dtype):
                target = target._replace(dtype=given.dtype)
            if target.dtype != given.dtype or target.shape != shape:
                raise ArrayError(f"{kind}: out is {target}, it should be {given.dtype} {shape}")
            if not target.writable:
                raise ArrayError(f"{kind}: out is read-only")
        count, n = math.prod(given.shape), self._size
        if kind in ("reduce_scatter", "all_to_all") or kind == "scatter" and sends:
            count //= n
        what = {"kind": kind, "dtype": given.dtype, "count": count, "op": op, "root": root, "to": to}
        size = count * given.itemsize * (1 if kind in ("broadcast", "reduce", "allreduce", "permute") else n)
        if given.on_device or target is not None and target.on_device:
            self._run_large(what, here, target)
        elif size <= _SMALL:
            room = self._run_small(size, what, here, target)
            if type(like) is np.ndarray and room.dst is not None and shape is not None:
                src = room.src.view(like.dtype).reshape(like.shape) if sends and room.src is not None else None
                known = _Known(("room", *what.values()), room, src, room.dst.view(like.dtype).reshape(shape))
                self._known[kind, op, root, like.dtype, like.shape] = known
        else:
            self._run_large(what, here, target)
        return out

    def _again(self, x: Any, out: Any, kind: str, op: str, root: int) -> Any:
        """The short way, for NumPy arrays that look like earlier ones; None where it is not open."""
        known: Optional[_Known] = self._known.get((kind, op, root, x.dtype, x.shape)) if type(x) is np.ndarray else None
        if known is None or self._plans.get(known.key) is not known.room:
            return None
        dst = known.dst
        if out is not None and (
            type(out) is not np.ndarray or out.dtype != dst.dtype or out.shape != dst.shape or not out.flags.writeable
        ):
            return None
        self._settle()
        self._plans.move_to_end(known.key)
        if known.src is not None:
            known.src[...] = x
        self._run(known.room.bound)
        if out is None:
            return dst.copy()
        out[...] = dst
        return out

    def _run(self, bound: Any) -> None:
        self._unsettled = bound
        bound.run()
        self._unsettled = None

    def _settle(self) -> None:
        """Lets a run end whose wait was interrupted: the other ranks still read its arrays."""
        if self._unsettled is not None:
            self._unsettled._last().wait()
            self._unsettled = None

    def _run_small(self, size: int, what: Any, here: Optional[Memory], target: Optional[Memory]) -> _Room:
        self._settle()
        room = self._room(size, **what)
        if room.src is not None and here is not None:
            room.src.view(_UNSIGNED[here.itemsize]).reshape(here.shape)[...] = _elements(here)
        self._run(room.bound)
        if room.dst is not None and target is not None:
            _elements(target)[...] = room.dst.view(_UNSIGNED[target.itemsize]).reshape(target.shape)
        return room

    def _run_large(self, what: Any, here: Optional[Memory], target: Optional[Memory]) -> None:
        src, dst = _dense(here), _dense(target)
        if src is not None and dst is not None and _overlap(src, dst):
            if src.address != dst.address or what["kind"] not in ("allreduce", "broadcast"):
                if src.on_device:
                    raise ArrayError(f"{what['kind']}: out overlaps the array, and both are on a device: give another out")
                src = _copy(src)
        # Whether a rank's arrays are one is its own affair, and the plan that of all.
        plan = self._plan(what["kind"] == "allreduce", **what)
        move = plan.moves[0]
        sides = [_flat(m, which.local(self._rank).shape) for m, which in ((src, move.src), (dst, move.dst))]
        with plan.bind(self, *sides) as bound:
            bound.run()
        if dst is not None and target is not None and dst is not target:
            _elements(target)[...] = _elements(dst)
