"""Running a plan: bound arrays, runs in flight, and waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._aio import Flight, Poller, forget
from ._arrays import Memory, memory_for
from ._arrivals import Arrival, Arrivals, boxes_of
from ._comm import SLICE, ChildHandle, Closing, Comm, in_slices, limit_of, nanoseconds
from ._device import order_of, stream_handle
from ._errors import ArrayError, InvalidError, check, failure
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._plan import Move, Plan

__all__ = ["Bound", "ExecStats", "Work"]

_ETIMEOUT: int = lib.WEFT_ETIMEOUT
_start, _wait = lib.weft_exec_start, lib.weft_exec_wait


class ExecStats(NamedTuple):
    """What an exec has done so far, and the staging memory of its comm."""

    runs: int
    staging_peak: int
    staging_limit: int
    checked: int  #: messages that this rank has received and checked


# ---- arrays ----


def _arrays(plan: "Plan", given: Any, side: str) -> List[Any]:
    """One array (or None) a tensor."""
    if not plan._many:
        if isinstance(given, Mapping):
            raise ArrayError(f"{side}: the plan has one tensor without a name; give an array, not a dict")
        return [given]
    if given is None:
        return [None] * len(plan.moves)
    if not isinstance(given, Mapping):
        raise ArrayError(f"{side}: the plan has named tensors; give a dict of arrays, not {type(given).__name__}")
    names = {m.name for m in plan.moves}
    strange = [repr(name) for name in given if name not in names]
    if strange:
        some = ", ".join(repr(m.name) for m in plan.moves[:5]) + ", ..." * (len(plan.moves) > 5)
        raise ArrayError(f"{side}: the plan has no tensor {', '.join(strange)}; it has {some}")
    return [given.get(m.name) for m in plan.moves]


def _what(side: str, move: "Move", which: Any, rank: int) -> str:
    name = f" of {move.name!r}" if move.name else ""
    return f"rank {rank}: {side}{name} ({which})"


def _memories(plan: "Plan", comm: Comm, given: Any, side: str) -> List[Optional[Memory]]:
    out: List[Optional[Memory]] = []
    for move, array in zip(plan.moves, _arrays(plan, given, side)):
        which = move.src if side == "src" else move.dst
        what = _what(side, move, which, comm.rank)
        scales = None
        if which.scale:
            if array is not None and (not isinstance(array, (tuple, list)) or len(array) != 2):
                raise ArrayError(f"{what}: the layout has scales; give a pair of arrays, (values, scales)")
            array, scales = array or (None, None)
        out.append(memory_for(array, which, comm.rank, what, side == "dst"))
        if which.scale:
            what = f"{what}: scales ({which.scales})"
            out.append(memory_for(scales, which.scales, comm.rank, what, side == "dst"))
        elif move.src.scale or move.dst.scale:
            out.append(None)
    return out


def views_of(memories: Sequence[Optional[Memory]]) -> Tuple[Any, List[Any]]:
    views, keep = ffi.new("weft_view[]", max(1, len(memories))), []
    for view, m in zip(views, memories):
        if m is not None:
            view.data, view.bytes = ffi.cast("void *", m.address), m.bytes
            view.memory, view.device = m.kind, m.device
            if not m.dense:
                view.strides = strides = ffi.new("int64_t[]", m.strides)
                keep.append(strides)
    return views, keep


def _holds(plan: "Plan", rank: int) -> bool:
    return any(which.local(rank).elements for move in plan.moves for which in (move.src, move.dst))


# ---- bound ----


class Bound(Closing):
    """A plan with its arrays and peers, made by :meth:`Plan.bind`. It runs any number of times, one run at a time."""

    def __init__(
        self,
        plan: "Plan",
        comm: Comm,
        src: Any,
        dst: Any,
        deadline: Optional[float] = None,
        arrivals: bool = False,
        check_messages: Optional[bool] = None,
    ) -> None:
        handle = comm._open()
        handle.used()
        self.plan = plan  #: what it runs
        self.comm = comm  #: with whom
        self.src = src  #: the arrays that were given
        self.dst = dst
        self._run = 0
        self._settled = 0  # runs that are known to be over
        self._flag = ffi.new("bool *")
        opts = ffi.new("weft_bind_opts *")
        opts.size = ffi.sizeof("weft_bind_opts")
        opts.deadline_ns = 0 if deadline is None else max(1, nanoseconds(deadline))
        opts.check = 0 if check_messages is None else 1 if check_messages else -1
        out = ffi.new("weft_exec **")
        part = ffi.NULL
        try:
            part = plan._part(comm.rank, comm.size)
            memories = [_memories(plan, comm, given, side) for side, given in (("src", src), ("dst", dst))]
        except Exception:  # takes part without arrays, which cannot succeed: the other ranks learn of it at once
            lib.weft_bind(part if _holds(plan, comm.rank) else ffi.NULL, handle.ptr, ffi.NULL, ffi.NULL, opts, out)
            raise
        (src_views, src_keep), (dst_views, dst_keep) = map(views_of, memories)
        check(lib.weft_bind(part, handle.ptr, src_views, dst_views, opts, out))
        self._x = out[0]
        self._order = order_of(m for side in memories for m in side)
        keep = (part, memories, src_keep, dst_keep)
        self._handle: Optional[ChildHandle] = ChildHandle(handle, self._x, lib.weft_exec_close, keep)
        self._arrivals: Optional[List[Arrival]] = None
        if arrivals:
            check(lib.weft_exec_on_arrival(self._x, ffi.NULL, ffi.NULL))
            self._arrivals = boxes_of(part, plan._tensors())
        comm._bound.add(self)

    def _boxes(self) -> List[Arrival]:
        if self._arrivals is None:
            raise InvalidError("arrivals are not watched: bind the plan with arrivals=True")
        return self._arrivals

    def _still_open(self) -> ChildHandle:
        if self._handle is None:
            raise InvalidError("what was bound here is closed: bind the plan again")
        return self._handle

    def start(self, stream: Any = None) -> "Work":
        """Starts a run. Source arrays must not change, and destination arrays not be looked at, until it is done.

        With arrays on a device, ``stream`` orders the run: it begins after the work that is in the stream, and work that is added
        to the stream later comes after the run. It is a handle (int), a torch.cuda.Stream or a cupy.cuda.Stream. Without
        it, the run is ordered by PyTorch's current stream if a tensor is PyTorch's, or by the stream that the array's interface
        names. ``stream="host"``: the arrays are ready, and no stream orders the run.
        """
        if stream is not None or self._order is not None:
            return self._start_on(stream)
        code = _start(self._x)
        if code:
            self._still_open()
            raise failure(code)
        self._settled = self._run
        self._run += 1
        return Work(self, self._run)

    def _start_on(self, stream: Any) -> "Work":
        self._still_open()
        if isinstance(stream, str) and stream == "host":
            handle = None
        elif stream is not None:
            handle = stream_handle(stream)
        else:
            handle = None if self._order is None else self._order.stream()
        if handle is None:
            check(_start(self._x))
            self._settled = self._run
        else:  # on a stream several runs may be in flight
            check(lib.weft_exec_start_on(self._x, ffi.cast("void *", handle)))
        self._run += 1
        return Work(self, self._run)

    def _last(self) -> "Work":
        return Work(self, self._run)

    def run(self, timeout: Optional[float] = None, stream: Any = None) -> None:
        """Starts a run and waits for it."""
        if timeout is not None:
            limit_of(timeout, self._still_open().comm)  # nothing starts if it is wrong
        self.start(stream).wait(timeout)

    def rebind(self, src: Any = None, dst: Any = None) -> None:
        """Goes on with other arrays. Collective; not in flight."""
        handle = self._still_open()
        handle.comm.used()
        try:
            memories = [_memories(self.plan, self.comm, given, side) for side, given in (("src", src), ("dst", dst))]
        except Exception:  # as in bind
            if _holds(self.plan, self.comm.rank):
                lib.weft_exec_rebind(self._x, ffi.NULL, ffi.NULL)
            raise
        (src_views, src_keep), (dst_views, dst_keep) = map(views_of, memories)
        check(lib.weft_exec_rebind(self._x, src_views, dst_views))
        self.src, self.dst = src, dst
        self._order = order_of(m for side in memories for m in side)
        handle.keep = (handle.keep[0], memories, src_keep, dst_keep)

    @property
    def stats(self) -> ExecStats:
        """What it has done so far."""
        self._still_open()
        out = ffi.new("weft_exec_info *")
        out.size = ffi.sizeof("weft_exec_info")
        check(lib.weft_exec_stats(self._x, out))
        return ExecStats(out.runs, out.staging_peak, out.staging_limit, out.checked)

    def close(self) -> None:
        """Frees it. A run in flight is waited for until the comm's deadline."""
        handle, x, self._handle, self._x = self._handle, self._x, None, ffi.NULL
        if handle is not None:
            handle.free()
            forget(x)

    def __repr__(self) -> str:
        return f"<weft.Bound {self.plan!r} on {self.comm!r}>"


class Work:
    """One run in flight, made by :meth:`Bound.start`. It can be waited for, asked, and awaited."""

    __slots__ = ("bound", "_run")

    def __init__(self, bound: Bound, run: int) -> None:
        self.bound = bound  #: what runs
        self._run = run

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until it is done. After a timeout (in seconds) it is still in flight, and TimeoutError names the ranks that are
        waited for. Other Python threads run meanwhile."""
        bound = self.bound
        if self._run <= bound._settled:
            return
        code = _wait(bound._x, SLICE) if timeout is None else _ETIMEOUT
        if code == _ETIMEOUT:
            code = in_slices(lambda ns: _wait(bound._x, ns), timeout, bound._still_open().comm)
        if code:
            bound._still_open()
            raise failure(code)
        bound._settled = bound._run  # wait and test are for all runs that were started

    def done(self) -> bool:
        """Whether it is done. Makes progress, and raises what the run failed with."""
        bound = self.bound
        if self._run <= bound._settled:
            return True
        code = lib.weft_exec_test(bound._x, bound._flag)
        if code:
            bound._still_open()
            raise failure(code)
        if bound._flag[0]:
            bound._settled = bound._run
        return bool(bound._flag[0])

    def arrivals(self) -> Arrivals:
        """The pieces of the destination as they come, for ``for`` and ``async for``. Needs :meth:`Plan.bind` with
        ``arrivals=True``."""
        return Arrivals(self)

    def __await__(self) -> Generator[Any, None, None]:
        while not self.done():
            bound = self.bound
            flight = Flight(bound._x, bound._handle, lib.weft_exec_on_done, lib.weft_exec_test)
            yield from Poller.of(bound.comm).until_over(flight).__await__()

    def __repr__(self) -> str:
        return f"<weft.Work run {self._run} of {self.bound!r}>"
