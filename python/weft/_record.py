"""Runs a loader of weights on tensors without data, and keeps for every slot that it writes which element of which tensor comes there.

Tensors of the checkpoint are on PyTorch's device `meta`: they have shapes, strides and a storage that is only a name, so views of
them are PyTorch's own. The recorder sees every operation. It follows copies; anything else makes its result unknown, with the line
that did it. What the loader does without any tensor of the checkpoint (zeros in a padding, say) is done as it stands, in memory of the host
even if the loader asks for the device `meta`. Tensors on `meta` carry such constants beside what comes from the checkpoint.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from math import prod
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ._errors import InvalidError, UnsupportedError
from ._pieces import LIMIT, Content, Run, Step, TooMany, dense_strides

_OURS = tuple(os.path.dirname(os.path.abspath(f)) + os.sep for f in (__file__, torch.__file__))
_VIEWS = {"_unsafe_view", "detach", "alias", "lift_fresh", "_reshape_alias"}  # their schemas do not say so in all versions
_TOO_MANY = f"the copy falls into more than {LIMIT} boxes"
_VALUES = "the loader asks for its values"
_NOWHERE = "values are copied that are nowhere: a tensor on the device meta that the loader has not written"
_META = torch.device("meta")
_NEW = {"empty_like", "zeros_like", "ones_like", "full_like"}
_NEW |= {"new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"}
_WIDER = {
    torch.float64: 3,
    torch.float32: 2,
    torch.bfloat16: 1,
    torch.float16: 1,
    torch.float8_e4m3fn: 0,
    torch.float8_e5m2: 0,
}


class Source(NamedTuple):
    """Elements of a tensor of the checkpoint, cast to a dtype."""

    name: str
    dtype: torch.dtype


class Refusal(NamedTuple):
    """What is no copy: the tensors that it reads, the line that did it, and what it was."""

    names: FrozenSet[str]
    line: str
    why: str


class Constant:
    """Elements that the loader has made itself, one behind the other."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


Tag = Union[Source, Refusal, Constant]


class Stop(Exception):
    """The loader asks for values."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{', '.join(sorted(refusal.names))}: {refusal.line}: {refusal.why}")
        self.refusal = refusal


def _foreign(code: Any) -> bool:
    """Neither PyTorch's nor ours."""
    return not os.path.abspath(code.co_filename).startswith(_OURS)


def caller() -> str:
    """The line of the loader that is at work."""
    frame: Any = sys._getframe(1)
    while frame is not None and not _foreign(frame.f_code):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame is not None else "an unknown line"


def shape_of(sizes: Sequence[int], strides: Sequence[int], total: int) -> List[int]:
    """The row-major shape of `total` slots in which views with such strides are boxes."""
    dims = sorted(((st, n) for n, st in zip(sizes, strides) if n > 1 and st > 0), reverse=True)
    shape, above = [], -(-total // dims[0][0]) if dims else total
    for (stride, _), (below, _) in zip(dims, [*dims[1:], (1, 1)]):
        if stride % below:
            return [total]
        shape.append(above)
        above = stride // below
    return [*shape, above] if above > 1 or not shape else shape


class Memory:
    """A range of a storage, and what is known of its slots."""

    def __init__(self, t: torch.Tensor, start: int, span: int) -> None:
        self.storage = StorageWeakRef(t.untyped_storage())  # so that no other storage gets its number
        self.start, self.span, self.dtype, self.size = start, span, t.dtype, int(t.element_size())
        self.content = Content(shape_of(t.shape, t.stride(), span))

    def holds(self, start: int, end: int) -> bool:
        """All of these bytes of the storage: those of a view, of another dtype, too."""
        return self.start * self.size <= start and end <= (self.start + self.span) * self.size

    def meets(self, start: int, end: int) -> bool:
        return self.start * self.size < end and start < (self.start + self.span) * self.size


def _key(t: torch.Tensor) -> int:
    return int(t.untyped_storage()._cdata)


def _reach(t: torch.Tensor) -> Tuple[int, int]:
    """First slot and the one after the last."""
    first = int(t.storage_offset())
    return first, first + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else first


def _bytes(t: torch.Tensor) -> Tuple[int, int]:
    size, (first, end) = int(t.element_size()), _reach(t)
    return first * size, end * size


def _tensors(args: Any, kwargs: Any) -> List[torch.Tensor]:
    """Those among the arguments. Most operations have no others than tensors and numbers, which are quick to look at."""
    flat = [*args, *kwargs.values()]
    if any(isinstance(a, (list, tuple, dict)) for a in flat):
        flat = tree_leaves(flat)
    return [t for t in flat if isinstance(t, torch.Tensor)]


def _between(near: torch.Tensor, begin: int, far: torch.Tensor, other: int) -> Run:
    """A copy between two views of one shape; begin and other: where the memories of the two begin."""
    return Run(tuple(map(Step, near.shape, near.stride(), far.stride())), near.storage_offset() - begin, far.storage_offset() - other)


def _far(t: torch.Tensor, run: Run) -> torch.Tensor:
    """The view of the run's far side, whose slots are those of the tensor's storage."""
    return t.as_strided([s.len for s in run.steps], [s.far for s in run.steps], run.far)


def _meta(t: Any) -> Any:
    if not isinstance(t, torch.Tensor) or t.is_meta:
        return t
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def _on_meta(v: Any) -> Any:
    return _META if isinstance(v, torch.device) else _meta(v)


def _names(tags: Iterable[Tag]) -> FrozenSet[str]:
    return frozenset(name for tag in tags for name in ([tag.name] if isinstance(tag, Source) else tag.names if isinstance(tag, Refusal) else ()))


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, it follows what is done with the tensors that it knows."""

    def __init__(self, into: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.memories: Dict[int, List[Memory]] = {}
        self.dtypes: Dict[str, torch.dtype] = {}  # of the tensors of the checkpoint
        self.into: Dict[str, Memory] = {}
        self.over: Set[Tuple[str, str]] = set()  # the first of the two tensors has come over some of the second
        self.many = 64
        self.ours = False  # a tensor of the checkpoint is being made
        self.passing: List[int] = []  # keys of storages that the loader may let go
        strided = {name: t for name, t in into.items() if t.layout == torch.strided}
        for name in sorted(strided, key=lambda name: (_reach(strided[name])[0] - _reach(strided[name])[1], name)):  # the widest first
            t = strided[name]
            start, end = _reach(t)
            there = self.memories.setdefault(_key(t), [])
            if not t.numel() or any(m.holds(*_bytes(t)) for m in there):
                continue  # a tied parameter, or a view of one
            if any(m.meets(*_bytes(t)) for m in there):
                raise UnsupportedError(f"{name!r} overlaps another parameter in part: give the tensor that has both")
            self.into[name] = Memory(t, start, end - start)
            there.append(self.into[name])

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and PyTorch would import its compiler, which takes seconds

    def source(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the checkpoint."""
        if len(self.passing) >= self.many:
            gone = {key for key in self.passing if all(m.storage.expired() for m in self.memories[key])}
            self.passing = [key for key in self.passing if key not in gone]
            for key in gone:
                del self.memories[key]
            self.many = 64 + 2 * len(self.passing)
        self.ours = True
        t = torch.empty(tuple(shape), dtype=dtype, device="meta")
        self.ours = False
        self.dtypes[name] = dtype
        self._fresh(t, Source(name, dtype))
        return t

    def _fresh(self, t: torch.Tensor, tag: Optional[Tag] = None) -> Memory:
        """Knows a new storage; with a tag, all of the tensor is in the tag's space."""
        there = self.memories.setdefault(_key(t), [])
        start, end = _reach(t) if there else (0, t.untyped_storage().nbytes() // t.element_size())
        memory = Memory(t, start, end - start)
        if not there:
            self.passing.append(_key(t))
        if tag is not None and t.numel():
            memory.content.write(tag, Run(tuple(map(Step, t.shape, t.stride(), dense_strides(t.shape))), 0, 0))
        there.append(memory)
        return memory

    def _memory(self, t: Any) -> Optional[Memory]:
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
            return None
        at_all = self.memories.get(_key(t))
        if not at_all:
            return None
        start, end = _bytes(t)
        there = [m for m in at_all if m.meets(start, end)]
        if there and not there[0].holds(start, end):
            raise UnsupportedError(
                f"{caller()}: a tensor of {tuple(t.shape)} reaches beyond a parameter of the model: give the tensor that it is a view of"
            )
        return there[0] if there else None

    def _read(self, t: torch.Tensor, far: Optional[torch.Tensor] = None) -> List[Tuple[Tag, Run]]:
        """What the view reads. Its far side are the slots of `far`."""
        memory = self._memory(t)
        if memory is None or not memory.content.entries:
            return []
        run = _between(t, memory.start, t if far is None else far, 0)
        why = f"the bits of {memory.dtype} are read as {t.dtype}"
        try:
            if t.dtype == memory.dtype:
                return memory.content.read(run)
        except TooMany:
            why = _TOO_MANY
        still = Run(tuple(Step(s.len, 0, s.far) for s in run.steps), 0, run.far)
        return [(Refusal(_names([e.tag for e in memory.content.entries]), caller(), why), still)]

    def _cast(self, tag: Tag, dtype: torch.dtype) -> Tag:
        if isinstance(tag, Constant):
            return Constant(tag.values.to(dtype))
        if isinstance(tag, Refusal) or tag.dtype == dtype:
            return tag
        own = self.dtypes[tag.name]
        names = frozenset([tag.name])
        if dtype not in _WIDER or own not in _WIDER:
            return Refusal(names, caller(), f"a cast of {tag.dtype} to {dtype}")
        if own != tag.dtype and not (_WIDER[own] < _WIDER[tag.dtype]):
            return Refusal(names, caller(), f"a cast of {tag.dtype}, to which {own} was rounded, to {dtype}")
        return Source(tag.name, dtype)

    def _write(self, dst: torch.Tensor, found: Sequence[Tuple[Tag, Run]], rest: Optional[Tuple[Tag, Run]] = None) -> None:
        """dst gets what was found, whose far sides are its slots, and where nothing was found the rest, if there is one."""
        memory = self._memory(dst)
        if memory is None:
            if not found and rest is None:
                return
            memory = self._fresh(dst)
        content = memory.content
        layers = [*([rest] if rest is not None else []), *found]
        tags = [e.tag for e in content.entries] + [tag for tag, _ in layers]
        why = f"the bits of {dst.dtype} are written as {memory.dtype}"
        try:
            if dst.dtype == memory.dtype:
                over = _names(content.erase(_between(dst, memory.start, dst, memory.start)))
                self.over.update((new, old) for old in over for new in _names([tag for tag, _ in found]) if new != old)
                for tag, run in layers:
                    here = Run(run.steps, run.near, run.far - memory.start).turned()
                    if rest is not None:
                        content.erase(here)
                    content.write(self._cast(tag, memory.dtype), here)
                return
        except TooMany:
            why = _TOO_MANY
        content.entries = []
        if _names(tags) or dst.is_meta:
            lens = content.shape
            everything = Run(tuple(map(Step, lens, dense_strides(lens), [0] * len(lens))), 0, 0)
            content.write(Refusal(_names(tags), caller(), why), everything)

    def _copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        found = self._read(src.expand(dst.shape), dst)
        all_found = sum(prod(s.len for s in run.steps) for _, run in found) >= dst.numel()
        if dst.is_meta:
            self._write(dst, found, None if all_found else self._rest(dst, src))
            return
        fixed = [(tag.values, run) for tag, run in found if isinstance(tag, Constant)]
        found = [(tag, run) for tag, run in found if not isinstance(tag, Constant)]
        self._write(dst, found, self._rest(dst, src) if src.is_meta and not all_found else None)
        if not src.is_meta and not all_found:
            places = [_far(dst, run) for _, run in found]
            before = [place.clone() for place in places]  # what is recorded comes in a run, and not before
            dst.copy_(src)
            for place, old in zip(places, before):
                place.copy_(old)
        for values, run in fixed:
            _far(dst, run).copy_(_far(values, run.turned()))

    @staticmethod
    def _rest(dst: torch.Tensor, src: torch.Tensor) -> Tuple[Tag, Run]:
        """What src has in itself: constants, or nothing that is known."""
        tag: Tag = Refusal(frozenset(), caller(), _NOWHERE)
        strides: Sequence[int] = [0] * dst.dim()
        if not src.is_meta:
            own = src.detach().clone(memory_format=torch.contiguous_format)
            tag, strides = Constant(own.reshape(-1)), own.expand(dst.shape).stride()
        return tag, Run(tuple(map(Step, dst.shape, strides, dst.stride())), 0, dst.storage_offset())

    def _unknown(self, dst: torch.Tensor, tag: Refusal) -> None:
        self._write(dst, [(tag, Run(tuple(Step(n, 0, s) for n, s in zip(dst.shape, dst.stride())), 0, dst.storage_offset()))])

    def _refusal(self, op: str, tensors: Iterable[torch.Tensor]) -> Optional[Refusal]:
        """If the op reads anything without memory: the first refusal that it meets, for the tensors of all of them."""
        tags = [tag for t in tensors for tag, _ in self._read(t)]
        names = _names(tags)
        if not names and not any(t.is_meta for t in tensors):
            return None
        first = next((tag for tag in tags if isinstance(tag, Refusal)), Refusal(names, caller(), f"{op} is no copy"))
        return first._replace(names=names)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        op = schema.name.partition("::")[2]
        tensors = _tensors(args, kwargs)
        if kwargs.get("device") == _META and not self.ours and not any(t.is_meta for t in tensors):
            kwargs = {**kwargs, "device": torch.device("cpu")}  # with memory, for constants
        if all(self._memory(t) is None for t in tensors):
            return func(*args, **kwargs)
        given = {a.name: v for a, v in zip(schema.arguments, args)}
        given.update(kwargs)
        written = [given[a.name] for a in schema.arguments if a.alias_info and a.alias_info.is_write and given.get(a.name) is not None]
        if written:
            return self._change(func, op, written, tensors, args, kwargs)
        if op in _VIEWS or any(r.alias_info is not None for r in schema.returns):
            return func(*args, **kwargs)
        if op in _NEW:
            return func(*args, **({**kwargs, "device": "cpu"} if tensors[0].is_meta else kwargs))  # with memory, for constants
        return self._make(func, op, tensors, args, kwargs)

    def _change(self, func: Any, op: str, written: List[Any], tensors: List[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """An operation that changes tensors."""
        if op == "copy_":
            self._copy(args[0], args[1])
            return args[0]
        if op in ("fill_", "zero_"):
            value = args[1] if op == "fill_" else 0
            if isinstance(value, torch.Tensor) or args[0].is_meta:
                self._copy(args[0], value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=args[0].dtype))
                return args[0]
            self._write(args[0], [])
            return func(*args, **kwargs)
        refusal = self._refusal(op, tensors)
        if refusal is None:
            return func(*args, **kwargs)
        for t in tree_leaves(written):
            self._unknown(t, refusal)
        if not func._schema.returns:
            return None
        return written[0] if len(written) == 1 else tuple(written)

    def _make(self, func: Any, op: str, tensors: List[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """An operation that makes new tensors."""
        if op in ("clone", "_to_copy") and not args[0].is_meta:
            out = func(*args, **kwargs)
            self._write(out, self._read(args[0], out))
            return out
        if op in ("clone", "_to_copy"):
            out = func(*tree_map(_on_meta, args), **{**kwargs, **({"device": "meta"} if op == "_to_copy" else {})})
            self._copy(out, args[0])
            return out
        if op in ("cat", "stack"):
            return self._join(op, *args, **kwargs)
        if op == "constant_pad_nd" and all(n >= 0 for n in args[1]):
            return self._pad(*args, **kwargs)
        refusal = self._refusal(op, tensors)
        if refusal is None:
            return func(*args, **kwargs)
        try:
            out = func(*tree_map(_on_meta, args), **tree_map(_on_meta, kwargs))
        except (RuntimeError, NotImplementedError):
            out = None
        outs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if not outs:  # values, or a shape that hangs on them
            raise Stop(refusal._replace(why=_VALUES) if refusal.why == f"{op} is no copy" else refusal)
        for t in outs:
            self._unknown(t, refusal)
        return out

    def _join(self, op: str, parts: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
        """cat and stack. PyTorch's own cat of tensors without data imports its compiler, which takes seconds."""
        parts = [t.unsqueeze(dim) for t in parts] if op == "stack" else [t for t in parts if t.shape != (0,)] or list(parts[:1])
        sizes, dtype = list(parts[0].shape), parts[0].dtype
        dim %= max(1, len(sizes))
        for t in parts:
            if [n for d, n in enumerate(t.shape) if d != dim] != [n for d, n in enumerate(sizes) if d != dim]:
                raise InvalidError(f"{caller()}: {op} of tensors of {tuple(sizes)} and {tuple(t.shape)} along dim {dim}")
            dtype = torch.promote_types(dtype, t.dtype)
        sizes[dim] = sum(t.shape[dim] for t in parts)
        real = any(not t.is_meta for t in parts)  # with constants
        out, at = torch.empty(sizes, dtype=dtype, device="cpu" if real else "meta"), 0
        for t in parts:
            self._copy(out.narrow(dim, at, t.shape[dim]), t)
            at += t.shape[dim]
        return out

    def _pad(self, t: torch.Tensor, pad: Sequence[int], value: float = 0) -> torch.Tensor:
        sizes, inside = list(t.shape), [slice(None)] * t.dim()
        for i in range(len(pad) // 2):
            k = t.dim() - 1 - i
            inside[k] = slice(pad[2 * i], pad[2 * i] + sizes[k])
            sizes[k] += pad[2 * i] + pad[2 * i + 1]
        out = torch.full(sizes, value, dtype=t.dtype)
        self._copy(out[tuple(inside)], t)
        return out

    def asked(self, problem: Exception) -> Optional[Refusal]:
        """If the problem is that a tensor has no data, which PyTorch says without asking us: the tensors that the loader had in hand."""
        if not re.search(r"\bmeta\b|unallocated storage", str(problem)):
            return None
        at = [(frame, line) for frame, line in traceback.walk_tb(problem.__traceback__) if _foreign(frame.f_code)]
        if not at:
            return None
        frame, line = at[-1]
        in_hand = [t for t in frame.f_locals.values() if isinstance(t, torch.Tensor) and t.is_meta]
        names = _names([tag for t in in_hand for tag, _ in self._read(t)])
        place = f"{frame.f_code.co_filename}:{line} ({frame.f_code.co_name})"
        return Refusal(names, place, _VALUES) if names else None

    def found(self) -> Iterator[Tuple[str, Memory, Tag, Run]]:
        """What has come into the destinations: their names, and runs from the spaces of the tags to slots of the memory."""
        for name, memory in self.into.items():
            strides = dense_strides(memory.content.shape)
            for e in memory.content.entries:
                lens = [b - a for a, b in zip(e.lo, e.hi)]
                slot = sum(a * s for a, s in zip(e.lo, strides))
                yield name, memory, e.tag, Run(tuple(map(Step, lens, e.strides, strides)), e.offset, slot)
