"""Comms: who takes part, and how they reach each other."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._arrays import array_at
from ._collectives import Collectives
from ._device import device_array, device_number
from ._errors import InvalidError, check, filled
from ._layout import Layout, layout
from ._plan import Machine
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._exchange import Exchange, Halo
    from ._hook import Buffer
    from ._window import Window

__all__ = ["DEADLINE", "FOREVER", "Comm", "open"]

_Self = TypeVar("_Self")
_PROGRESS = {"caller": lib.WEFT_PROGRESS_CALLER, "thread": lib.WEFT_PROGRESS_THREAD}


FOREVER: float = lib.WEFT_FOREVER  #: a timeout: no limit; None is the same
DEADLINE: float = lib.WEFT_DEADLINE  #: a timeout: the deadline of the comm


def nanoseconds(seconds: float) -> int:
    """A time in seconds as weft.h has it."""
    if seconds != seconds:
        raise InvalidError("a time in seconds cannot be NaN")
    if seconds < 0:
        raise InvalidError(f"a time of {seconds} seconds: it must be 0 or more, weft.FOREVER or weft.DEADLINE")
    return int(min(seconds * 1e9, 2e18))  # infinity becomes 63 years, which weft.h accepts


class Closing:
    """What ``with`` closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


SLICE = 100_000_000  # ns; between two of them Python looks for signals, so that Ctrl-C ends a wait


def limit_of(timeout: Optional[float], comm: "CommHandle") -> int:
    """A timeout in nanoseconds; -1: no limit."""
    if timeout is None or timeout == FOREVER:
        return -1
    return nanoseconds(comm.deadline if timeout == DEADLINE else timeout)


def in_slices(wait: Callable[[int], int], timeout: Optional[float], comm: "CommHandle") -> int:
    """Calls wait(ns) until it has another answer than a timeout, or until this timeout is over."""
    left = limit_of(timeout, comm)
    while True:
        code = wait(SLICE if left < 0 else min(left, SLICE))
        if code != lib.WEFT_ETIMEOUT or 0 <= left <= SLICE:
            return code
        left -= SLICE if left > 0 else 0


class CommHandle:
    """Owns a weft_comm, and closes it when nobody holds it: not the Comm, no exec or window, no array.

    A comm and what belongs to it is used by one thread at a time. The garbage collector knows nothing of that, so what
    it frees on another thread is put aside until the comm's own thread comes by, or the Comm is gone: what an exec needs
    until then may be memory of the comm, which holds this.
    """

    def __init__(self, ptr: Any, threaded: bool, deadline: float) -> None:
        self.ptr = ptr
        self.threaded = threaded  # there is a progress thread
        self.deadline = deadline  # in seconds
        self.thread = threading.get_ident()
        self.process = os.getpid()
        self.children = 0
        self.unheld = False
        self.left = False  # the Comm is closed, or gone
        self.aside: Deque[Tuple[Callable[[Any], None], Any, Any]] = deque()  # what frees it, it, what it needs until then

    def used(self) -> None:
        """The caller's thread is the one that uses the comm."""
        self.thread = threading.get_ident()
        self.sweep()

    def leave(self) -> None:
        self.left = True
        self.sweep()

    def sweep(self) -> None:
        while self.aside:
            free, ptr, _keep = self.aside.popleft()
            if self.process == os.getpid():  # a forked child has no part in it
                free(ptr)

    def free(self, call: Callable[[Any], None], ptr: Any, keep: Any) -> None:
        if self.unheld or threading.get_ident() == self.thread or (self.left and keep is not None):
            call(ptr)
        else:
            self.aside.append((call, ptr, keep))

    def child_gone(self) -> None:
        self.children -= 1
        if self.unheld and not self.children:
            self.close()

    def close(self) -> None:
        ptr, self.ptr = self.ptr, None
        self.sweep()
        if ptr is not None and self.process == os.getpid():
            lib.weft_comm_close(ptr)

    def __del__(self) -> None:
        self.unheld = True
        if not self.children:
            self.close()


class ChildHandle:
    """Owns an object that belongs to a comm: an exec, a window, memory. Holds what that needs to stay."""

    def __init__(self, comm: CommHandle, ptr: Any, free: Callable[[Any], None], keep: Any = None) -> None:
        self.comm = comm
        self.ptr = ptr
        self._free: Optional[Callable[[Any], None]] = free
        self.keep = keep
        comm.children += 1

    def free(self) -> None:
        """Frees it now. Again is no error."""
        call, self._free = self._free, None
        if call is None:
            return
        if self.comm.process == os.getpid():
            self.comm.free(call, self.ptr, self.keep)
        self.keep = None
        self.comm.child_gone()

    def __del__(self) -> None:
        self.free()


_threaded: "weakref.WeakSet[Comm]" = weakref.WeakSet()


@atexit.register
def _close_threaded() -> None:
    """A progress thread that calls back when the interpreter ends never returns, with weft's locks in its hands: whoever frees
    anything then would wait for ever. Comms that another thread still uses are left alone."""
    others = {t.ident for t in threading.enumerate()} - {threading.get_ident()}
    for comm in list(_threaded):
        if comm._handle is not None and comm._handle.thread not in others:
            comm.close()


class Comm(Collectives, Closing):
    """A group of ranks, opened by :func:`weft.open`. Used by one thread at a time."""

    def __init__(self, handle: CommHandle) -> None:
        self._handle: Optional[CommHandle] = handle
        self._bound: "weakref.WeakSet[Any]" = weakref.WeakSet()  # execs, windows: close() closes them
        self._poller: Any = None
        self._plans: "OrderedDict[Any, Any]" = OrderedDict()  # of the collectives
        self._known: Any = {}  # of the collectives
        self._unsettled: Any = None  # of the collectives
        self._rank: int = lib.weft_comm_rank(handle.ptr)
        self._size: int = lib.weft_comm_size(handle.ptr)
        if handle.threaded:
            _threaded.add(self)

    def _open(self) -> CommHandle:
        if self._handle is None:
            raise InvalidError("the comm is closed: open another")
        return self._handle

    @property
    def rank(self) -> int:
        """The caller's number, from 0 on."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def machine(self) -> Machine:
        """The machine as lowering sees it."""
        out = ffi.new("weft_machine *")
        out.size = ffi.sizeof("weft_machine")
        check(lib.weft_comm_machine(self._open().ptr, out))
        return Machine(*(getattr(out, name) for name in Machine._fields))

    def split(self, ranks: Optional[Sequence[int]] = None) -> Optional["Comm"]:
        """A comm of some ranks, numbered in the order of the list. Collective: all of a group give the same list, who is
        in none gives none and gets None."""
        handle = self._open()
        handle.used()
        group = list(ranks or ())
        out = ffi.new("weft_comm **")
        check(lib.weft_comm_split(handle.ptr, ffi.new("int[]", group), len(group), out))
        return None if out[0] == ffi.NULL else Comm(CommHandle(out[0], handle.threaded, handle.deadline))

    def metrics(self) -> str:
        """What this rank has done on the comm, as OpenMetrics text: runs, bytes by way and host, staging memory, failures.

        Times of runs and waits are in it only if WEFT_METRICS was set when the comm was opened."""
        handle = self._open()
        return filled(lambda *room: lib.weft_comm_metrics_text(handle.ptr, *room)).decode()

    def survivors(self) -> List[int]:
        """The ranks that are left after a rank has died (PeerError), in ascending order: the same list on all of them.
        Collective among those. Raises PeerError if no majority agrees, or if the others have left this rank out."""
        handle = self._open()
        handle.used()
        n, ranks = ffi.new("size_t *"), ffi.new("int[]", self._size)
        check(lib.weft_comm_survivors(handle.ptr, ranks, self._size, n))
        return list(ffi.unpack(ranks, n[0]))

    def reopen(self, ranks: Sequence[int]) -> "Comm":
        """A new comm of some ranks of this one, such as its :meth:`survivors`, numbered in the order of the list, which
        ascends. Collective among them. This comm stays, and has to be closed."""
        handle = self._open()
        handle.used()
        out = ffi.new("weft_comm **")
        check(lib.weft_comm_reopen(handle.ptr, ffi.new("int[]", list(ranks)), len(ranks), out))
        return Comm(CommHandle(out[0], handle.threaded, handle.deadline))

    def empty(self, what: Union[str, Layout], torch: bool = False, device: Any = None) -> Any:
        """An array for this rank's part of a layout, in memory that peers reach without a copy between; zeroed.

        A NumPy array, or a torch tensor on request. With ``device="cuda"`` or ``"cuda:1"`` the memory is on that device, in a
        :class:`weft.DeviceArray` or a torch tensor. The memory lives as long as the array, even if the comm is closed. For a
        layout with scales it is a pair of arrays: values and scales.
        """
        which = layout(what)
        if which.scale:
            values = self._empty(which, torch, device)
            return values, self._empty(which.scales, torch, device)
        return self._empty(which, torch, device)

    def _empty(self, which: Layout, torch: bool, device: Any) -> Any:
        local = which.local(self._rank)
        number = None if device is None else device_number(device)
        if not local.bytes:
            if number is not None:
                return device_array(None, 0, which.dtype, local.shape, number, torch)
            return array_at(None, 0, which.dtype, local.shape, torch)
        handle = self._open()
        handle.used()
        out = ffi.new("void **")
        kind = lib.WEFT_MEMORY_HOST if number is None else lib.WEFT_MEMORY_CUDA
        check(lib.weft_comm_alloc(handle.ptr, local.bytes, kind, number or 0, out))
        comm = handle.ptr
        owner = ChildHandle(handle, out[0], lambda ptr: lib.weft_comm_free(comm, ptr))
        address = int(ffi.cast("uintptr_t", out[0]))
        if number is not None:
            return device_array(owner, address, which.dtype, local.shape, number, torch)
        return array_at(owner, address, which.dtype, local.shape, torch)

    def barrier(self, timeout: Optional[float] = DEADLINE) -> None:
        """Waits until all ranks are here. After TimeoutError or Ctrl-C this rank is still in the barrier: enter it again
        before any other collective call."""
        handle = self._open()
        check(in_slices(lambda ns: int(lib.weft_comm_barrier(handle.ptr, ns)), timeout, handle))

    def window(self, buffers: Mapping[str, Tuple[Any, ...]], signals: int = 0, *, device: Any = "cpu") -> "Window":
        """Memory of one shape on every rank, in which all load, store and wait: names to (dtype, shape). Collective.

        ``device="cuda"`` allocates the buffers on a CUDA device; a buffer that is to be elsewhere says so itself: (dtype, shape, "cpu").
        """
        from ._window import Window

        return Window(self, buffers, signals, device)

    def exchange(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        *,
        vote: bool = False,
        budget: int = 0,
        buffer: "Optional[Buffer]" = None,
    ) -> "Exchange":
        """Rounds of messages whose sizes only their senders know: from the ranks of one list, to those of the other. Collective.

        With ``vote`` a round ends with a vote of all ranks; ``budget`` is the bytes in flight, 0 for the default.
        ``buffer(source, meta, size)`` may give the array that a payload shall be stored in: dense, of ``size`` bytes at least;
        None: not now, ask again. Whoever makes progress calls it, and it must not call weft.
        """
        from ._exchange import Exchange

        return Exchange(self, sources, targets, vote, budget, buffer)

    def halo(
        self, periodic: bool = False, *, vote: bool = False, budget: int = 0, buffer: "Optional[Buffer]" = None
    ) -> "Halo":
        """Rounds in which each rank sends one message to the rank before it and one to the rank after it. Collective.

        The options are those of :meth:`exchange`."""
        from ._exchange import Halo

        return Halo(self, periodic, vote, budget, buffer)

    def close(self) -> None:
        """Frees what is bound, and leaves. Arrays of :meth:`empty` stay until they are gone themselves; the ranks that are
        left see this one leave then."""
        for bound in list(self._bound):
            bound.close()
        if self._poller is not None:
            self._poller.close()
        self._plans.clear()
        self._known.clear()
        self._unsettled = None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.leave()

    def __del__(self) -> None:
        if self._handle is not None:
            self._handle.leave()

    def __repr__(self) -> str:
        closed = ", closed" if self._handle is None else ""
        return f"<weft.Comm rank {self._rank} of {self._size}{closed}>"


def _deadline() -> float:
    """That of a comm which was told none, in seconds."""
    try:
        return int(os.environ.get("WEFT_DEADLINE_MS", "")) / 1e3
    except ValueError:
        return 30.0


def open(
    url: Optional[str] = None,
    *,
    rank: int = 0,
    ranks: int = 0,
    deadline: Optional[float] = None,
    inflight_bytes: int = 0,
    inflight_buckets: int = 0,
    channel_buckets: int = 0,
    staged: bool = False,
    progress: str = "caller",
    communicator: Any = None,
) -> Comm:
    """Joins a comm. All of its ranks call this, and wait for each other.

    Without a URL it is the job that ``weft run``, mpirun, srun or torchrun has started this process in. ``self:`` is a
    comm of one rank, ``threads:4/name`` of four threads, each with its ``rank``, ``shm:name`` of processes of one machine,
    each with its ``rank`` and the number of ``ranks``. ``tcp:name``, ``ucx:name``, ``mpi:`` and ``auto:name`` reach other machines, by
    sockets or the modules that :func:`weft.info` lists; ``communicator`` is one of mpi4py's for ``mpi:`` to use.

    ``deadline`` is in seconds: a rank that made no progress for so long has failed. ``progress="thread"`` has a thread move along what is in flight while this one computes. The other options
    are those of weft.h; zeros are the defaults.
    """
    if progress not in _PROGRESS:
        raise InvalidError(f"progress is {progress!r}: it must be one of {', '.join(map(repr, _PROGRESS))}")
    opts = ffi.new("weft_comm_opts *")
    opts.size, opts.rank, opts.ranks = ffi.sizeof("weft_comm_opts"), rank, ranks
    opts.deadline_ns = 0 if deadline is None else max(1, nanoseconds(deadline))
    opts.inflight_bytes, opts.inflight_buckets = inflight_bytes, inflight_buckets
    opts.channel_buckets, opts.staged, opts.progress = channel_buckets, staged, _PROGRESS[progress]
    if communicator is not None:
        from mpi4py import MPI

        opts.communicator = ffi.cast("void *", MPI._addressof(communicator))
    out = ffi.new("weft_comm **")
    check(lib.weft_comm_open(ffi.NULL if url is None else url.encode(), opts, out))
    return Comm(CommHandle(out[0], progress == "thread", opts.deadline_ns / 1e9 or _deadline()))
