"""What PyTorch's engines want of a checkpoint, learnt from their own loaders. Imports PyTorch: ``import weft.torch``."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch

from . import _dtypes
from ._errors import InvalidError, MismatchError, UnsupportedError
from ._layout import Layout, boxes
from ._pieces import LIMIT, Dense, TooMany
from ._pieces import boxes as _boxes_of
from ._record import Constant, Memory, Recorder, Refusal, Source, Stop
from ._state import _tell

if TYPE_CHECKING:
    from ._comm import Comm

__all__ = ["Fixed", "Record", "Refused", "Want", "join", "layouts", "record"]

_WHOLE = "whole"  # in place of a parameter's name: the tensor comes whole


class Refused(NamedTuple):
    """What the loader does with a tensor and is no copy."""

    name: str  #: the tensor of the checkpoint
    line: str  #: file, line and function of the loader
    why: str


class Want(NamedTuple):
    """The boxes of one tensor of the checkpoint that this rank wants in one parameter."""

    name: str
    into: str  #: the parameter; "whole" if the tensor comes whole
    dtype: str  #: of the parameter
    shape: Tuple[int, ...]  #: of the tensor
    at: Tuple[Tuple[int, ...], ...]
    len: Tuple[Tuple[int, ...], ...]
    offset: Tuple[int, ...]  #: in elements, from the first element of the parameter
    stride: Tuple[Tuple[int, ...], ...]


class Fixed(NamedTuple):
    """What the loader itself fills into a parameter on the device ``meta``, which has no memory for it."""

    into: str  #: the parameter
    offset: int  #: in elements, from the first element of the parameter
    stride: Tuple[int, ...]
    values: Any  #: a tensor

    def write(self, parameter: Any) -> None:
        """Into the parameter, which has memory now."""
        parameter.detach().as_strided(self.values.shape, self.stride, parameter.storage_offset() + self.offset).copy_(self.values)


class Record:
    """What one rank's loader wants, made by :func:`record`."""

    def __init__(
        self, wants: List[Want], refused: List[Refused], unused: List[str], fixed: List[Fixed], flat: Mapping[str, Any], load_fn: Any
    ) -> None:
        self.wants = wants  #: one for each tensor and parameter
        self.refused = refused  #: what is no copy; these tensors come whole
        self.unused = unused  #: tensors of which nothing comes into a parameter of this rank
        self.fixed = fixed  #: constants of the loader in parameters that have no memory
        self._flat = flat
        self._load_fn = load_fn
        self._whole: Dict[str, Any] = {}

    def arrays(self, layouts: Mapping[str, Layout]) -> Dict[str, Any]:
        """For the layouts of :func:`layouts` or :func:`join`: the flat memory of this rank's parameters, for ``Plan.bind`` or
        :func:`weft.bind_state`. Tensors that come whole get memory of their own."""
        out: Dict[str, Any] = {}
        for want in self.wants:
            key = want.name if want.name in layouts else f"{want.name} -> {want.into}"
            if key not in layouts:
                raise InvalidError(f"there is no layout for {key!r}: give those that layouts() or join() made of this record")
            if want.into == _WHOLE:
                if want.name not in self._whole:
                    self._whole[want.name] = torch.empty(want.shape, dtype=_dtypes.to_torch(want.dtype))
                flat = self._whole[want.name].reshape(-1)
            else:
                flat = self._flat[want.into]
            ends = (o + 1 + sum((n - 1) * s for n, s in zip(*box)) for o, *box in zip(want.offset, want.len, want.stride))
            out[key] = flat[: max(ends)]
        return out

    def finish(self) -> None:
        """After a run: gives the tensors that came whole to the loader."""
        if self._whole:
            self._load_fn(iter(list(self._whole.items())))


def _described(given: Any) -> Dict[str, Tuple[Tuple[int, ...], torch.dtype]]:
    out: Dict[str, Tuple[Tuple[int, ...], torch.dtype]] = {}
    for name, what in given.items() if isinstance(given, Mapping) else given:
        shape, dtype = (what.shape, what.dtype) if hasattr(what, "dtype") and hasattr(what, "shape") else what
        if name in out:
            raise InvalidError(f"record: {name!r} is given twice")
        out[str(name)] = tuple(int(n) for n in shape), _dtypes.to_torch(_dtypes.of_any(dtype))
    return out


def _destinations(load_fn: Any, into: Any) -> Dict[str, torch.Tensor]:
    if into is None:
        into = getattr(load_fn, "__self__", None)
    if isinstance(into, torch.nn.Module):
        return {**dict(into.named_buffers()), **dict(into.named_parameters())}
    if not isinstance(into, Mapping):
        raise InvalidError("record: into is the module that is loaded, or a dict of names to tensors; a method of a module needs none")
    return {str(name): t for name, t in into.items()}


def _matches(name: str, patterns: Union[str, Iterable[str]]) -> Optional[str]:
    return next((p for p in ([patterns] if isinstance(patterns, str) else patterns) if fnmatchcase(name, p)), None)


class _Trial(NamedTuple):
    recorder: Recorder
    stopped: Optional[Refusal]


def _trial(load_fn: Any, given: Mapping[str, Any], into: Mapping[str, Any], rules: Mapping[str, Any], left_out: Set[str]) -> _Trial:
    """One run of the loader."""
    recorder = Recorder(into)

    def tensors() -> Any:
        for name, (shape, dtype) in given.items():
            if name not in left_out and _matches(name, rules) is None:
                yield name, recorder.source(name, shape, dtype)

    try:
        with torch.no_grad(), recorder:
            load_fn(tensors())
            for name, (shape, dtype) in given.items():
                rule = _matches(name, rules)
                if rule is not None:
                    rules[rule](recorder.source(name, shape, dtype))
    except Stop as stop:
        if not stop.refusal.names - left_out:
            raise UnsupportedError(f"{stop.refusal.line}: the loader asks for values of memory that it has not written") from None
        return _Trial(recorder, stop.refusal)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as problem:
        asked = recorder.asked(problem)
        if asked is None:
            raise
        return _Trial(recorder, asked)
    return _Trial(recorder, None)


def _dtype(of: torch.dtype, source: torch.dtype) -> str:
    """weft's name of a parameter's dtype; PyTorch's casts to f8 saturate in some versions."""
    name = _dtypes.of_any(of)
    if name in ("f8e4m3", "f8e5m2") and of != source and bool(torch.tensor(1e9).to(of).float().isfinite()):
        return name + "sat"
    return name


def _want(name: str, into: str, memory: Memory, of: Tuple[Tuple[int, ...], torch.dtype], found: Sequence[Dense]) -> Want:
    lens = tuple(tuple(b - a for a, b in zip(box.lo, box.hi)) for box in found)
    strides = tuple(tuple(s if n > 1 else 1 for s, n in zip(box.strides, ns)) for box, ns in zip(found, lens))
    return Want(name, into, _dtype(memory.dtype, of[1]), of[0], tuple(b.lo for b in found), lens, tuple(b.far for b in found), strides)


def _too_many(refused: Sequence[Refused]) -> str:
    lines = [f"  {r.name}: {r.line}: {r.why}" for r in refused[:8]]
    more = [f"  and {len(refused) - 8} more"] if len(refused) > 8 else []
    head = "the loader does more than copy; give a rule for these tensors, or let them come whole (whole=):"
    return "\n".join([head, *lines, *more])


def record(
    load_fn: Callable[[Any], Any],
    names_and_shapes: Any,
    *,
    into: Any = None,
    rules: Optional[Mapping[str, Callable[[Any], Any]]] = None,
    whole: Union[str, Iterable[str]] = (),
) -> Record:
    """Runs an engine's loader on tensors without data, and returns which boxes of which tensors this rank wants, and where.

    ``load_fn`` takes an iterator of pairs (name, tensor), as ``model.load_weights`` does. ``names_and_shapes`` has for each name of
    the checkpoint a tensor or a pair (shape, dtype). ``into`` is the module that is loaded, or a dict of names to tensors; the
    default is the module whose method load_fn is. Nothing is copied from the checkpoint. What the loader itself fills in (zeros in a
    padding) it writes as it runs. The parameters may be on the device ``meta``; then ``Record.fixed`` has what the loader fills in.

    What is no copy raises UnsupportedError with the tensors and the lines. ``rules`` (patterns of names to functions) replaces the
    loader for a tensor: the function gets the tensor and copies it. Tensors whose names match ``whole`` may come whole, if
    they must: :meth:`Record.finish` then gives them to load_fn.
    """
    given, rules = _described(names_and_shapes), dict(rules or {})
    whole = [whole] if isinstance(whole, str) else list(whole)
    to = _destinations(load_fn, into)
    reasons: Dict[str, Refusal] = {}
    while True:
        before = {name: t.untyped_storage()._cdata for name, t in to.items() if t.layout == torch.strided}
        recorder, stopped = _trial(load_fn, given, to, rules, set(reasons))
        moved = [name for name, key in before.items() if to[name].untyped_storage()._cdata != key]
        if moved:
            raise UnsupportedError(f"record: the loader gave {moved[0]!r} other memory, so nothing can be copied into it: load it by copy_")
        if stopped is None:
            break
        for name in stopped.names:
            reasons.setdefault(name, stopped)
    wanted: Dict[Tuple[str, str], List[Dense]] = {}
    fixed: List[Fixed] = []
    for parameter, _, tag, run in recorder.found():
        if isinstance(tag, Constant):
            lens, near, far = zip(*run.steps) if run.steps else ((), (), ())
            fixed.append(Fixed(parameter, run.far, tuple(far), tag.values.as_strided(lens, near, run.near)))
            continue
        if isinstance(tag, Source):
            try:
                wanted.setdefault((tag.name, parameter), []).extend(_boxes_of(given[tag.name][0], run))
                continue
            except TooMany:
                tag = Refusal(frozenset([tag.name]), f"into {parameter}", f"what comes there falls into more than {LIMIT} boxes")
        if not tag.names:
            raise UnsupportedError(f"record: {parameter}: {tag.line}: {tag.why}")
        for name in tag.names:
            reasons.setdefault(name, tag)
    grows = True
    while grows:  # what came over a tensor that comes whole must do so again
        grows = False
        for new, old in sorted(recorder.over):
            if old in reasons and new not in reasons:
                reasons[new] = Refusal(frozenset([new]), reasons[old].line, f"it comes over {old!r}, which comes whole")
                grows = True
    refused = [Refused(name, reasons[name].line, reasons[name].why) for name in given if name in reasons]
    stuck = [r for r in refused if _matches(r.name, whole) is None]
    if stuck:
        raise UnsupportedError(_too_many(stuck))
    wants = [_want(n, p, recorder.into[p], given[n], found) for (n, p), found in wanted.items() if n not in reasons]
    for name, (shape, dtype) in given.items():
        if name not in reasons:
            continue
        strides = tuple(torch.empty(shape, device="meta").stride())
        wants.append(Want(name, _WHOLE, _dtypes.of_any(dtype), shape, ((0,) * len(shape),), (shape,), (0,), (strides,)))
    used = {want.name for want in wants}
    flat = {n: to[n].detach().as_strided((m.span,), (1,), m.start) for n, m in recorder.into.items()}
    return Record(wants, refused, [name for name in given if name not in used], fixed, flat, load_fn)


def _joined(wants: Mapping[int, Sequence[Want]]) -> Dict[str, Layout]:
    by_name: Dict[str, Dict[str, List[Tuple[int, Want]]]] = {}
    for rank in sorted(wants):
        for want in wants[rank]:
            by_name.setdefault(want.name, {}).setdefault(want.into, []).append((rank, want))
    out: Dict[str, Layout] = {}
    for name, places in by_name.items():
        for into, of in places.items():
            first_rank, first = of[0]
            for rank, want in of:
                if (want.shape, want.dtype) != (first.shape, first.dtype):
                    raise MismatchError(
                        f"{name!r} is {first.dtype} {first.shape} in {into!r} of rank {first_rank}, and {want.dtype} {want.shape} of rank {rank}"
                    )
            ranks = [rank for rank, want in of for _ in want.at]
            at, lens, offset, stride = ([x for _, want in of for x in part(want)] for part in _PARTS)
            key = name if len(places) == 1 else f"{name} -> {into}"
            out[key] = boxes(first.dtype, first.shape, ranks, at, lens, offset, stride, overlaps=True, gaps=True)
    return out


_PARTS: Tuple[Callable[[Want], Sequence[Any]], ...] = (lambda w: w.at, lambda w: w.len, lambda w: w.offset, lambda w: w.stride)


def join(records: Mapping[int, Record]) -> Dict[str, Layout]:
    """The layouts of what several ranks want: ranks to their records.

    The key of a layout is the tensor's name, or "name -> parameter" if the tensor comes into parameters of several names.
    """
    return _joined({rank: record.wants for rank, record in records.items()})


def layouts(comm: "Comm", record: Optional[Record] = None) -> Dict[str, Layout]:
    """The same layouts as :func:`join` on all ranks of a comm, each of which gives its record or None. Collective."""
    mine = json.dumps([] if record is None else [list(want) for want in record.wants])
    said = [json.loads(text) for text in _tell(comm, mine.encode())]
    return _joined({rank: [Want(n, i, d, tuple(shape), *rest) for n, i, d, shape, *rest in one] for rank, one in enumerate(said)})
