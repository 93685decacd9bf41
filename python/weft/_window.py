"""Windows: memory of one shape on every rank, of the host or of a device, in which all load, store and wait."""

from __future__ import annotations

import math
from operator import index
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _dtypes
from ._arrays import array_at, host_memory_of, memory_of
from ._comm import DEADLINE, ChildHandle, Closing, Comm, in_slices
from ._device import device_array, device_number
from ._errors import ArrayError, InvalidError, check, failure
from ._weft import ffi, lib

__all__ = ["Window"]

_COMPARE: Dict[str, int] = {
    "==": lib.WEFT_EQ,
    "!=": lib.WEFT_NE,
    ">=": lib.WEFT_GE,
    ">": lib.WEFT_GT,
    "<=": lib.WEFT_LE,
    "<": lib.WEFT_LT,
}


class _Buffer(NamedTuple):
    number: int
    dtype: str
    shape: Tuple[int, ...]
    device: Optional[int]  # None: in host memory


class Window(Closing):
    """Named arrays of one shape and counters (signals) on every rank, made by :meth:`Comm.window`."""

    def __init__(self, comm: Comm, buffers: Mapping[str, Tuple[Any, ...]], signals: int = 0, device: Any = "cpu") -> None:
        handle = comm._open()
        handle.used()
        self.comm = comm
        self._buffers: Dict[str, _Buffer] = {}
        names = []
        wanted = ffi.new("weft_buffer[]", max(1, len(buffers)))
        for i, (name, (dtype, shape, *where)) in enumerate(buffers.items()):
            if len(where) > 1:
                raise InvalidError(f"window: the buffer {name!r} is (dtype, shape) or (dtype, shape, device)")
            whole = tuple(map(index, shape)) if isinstance(shape, Iterable) else (index(shape),)
            count = math.prod(whole)
            if min(whole, default=0) < 0 or count >= 1 << 63:
                raise InvalidError(f"window: the buffer {name!r} cannot have the shape {whole}")
            number = device_number(where[0] if where else device)
            self._buffers[name] = _Buffer(i, _dtypes.of_any(dtype), whole, number)
            names.append(ffi.new("char[]", name.encode()))
            wanted[i].name, wanted[i].dtype = names[-1], _dtypes.CODES[self._buffers[name].dtype]
            wanted[i].count = count
            if number is not None:
                wanted[i].memory, wanted[i].device = lib.WEFT_MEMORY_CUDA, number
        out = ffi.new("weft_window **")
        check(lib.weft_window_open(handle.ptr, wanted, len(buffers), signals, out))
        self._w = out[0]
        self._handle: Optional[ChildHandle] = ChildHandle(handle, self._w, lib.weft_window_close)
        comm._bound.add(self)

    def _open(self) -> Any:
        if self._handle is None:
            raise InvalidError("the window is closed")
        return self._w

    def _find(self, name: str) -> _Buffer:
        buffer = self._buffers.get(name)
        if buffer is None:
            raise InvalidError(f"the window has no buffer {name!r}: it has {', '.join(map(repr, self._buffers))}")
        return buffer

    def array(self, name: str, rank: Optional[int] = None, torch: bool = False) -> Any:
        """A rank's array (this one's unless told), to load from and store to. Notify and wait, or a barrier, order that.

        On a device it is a :class:`DeviceArray`, whose address (``__cuda_array_interface__``) kernels use. The memory lives as
        long as the array."""
        w, b = self._open(), self._find(name)
        owner = self.comm.rank if rank is None else rank
        address = lib.weft_window_pointer(w, b.number, owner)
        if address == ffi.NULL and not 0 <= owner < self.comm.size:
            raise InvalidError(f"there is no rank {owner} in a comm of {self.comm.size}")
        if address == ffi.NULL:  # on another host
            raise failure(lib.WEFT_EUNSUPPORTED)
        at = int(ffi.cast("uintptr_t", address))
        if b.device is not None:
            return device_array(self._handle, at, b.dtype, b.shape, b.device, torch)
        return array_at(self._handle, at, b.dtype, b.shape, torch)

    def signal_pointer(self, rank: int, signal: int) -> int:
        """The address of a rank's signal for kernels, if the window has buffers on a device: 8 bytes. A kernel sets it by a store
        with release at system scope and waits by loads with acquire; it does not add."""
        address = lib.weft_window_signal_pointer(self._open(), rank, signal)
        if address == ffi.NULL:
            raise InvalidError(f"there is no signal {signal} of rank {rank} for kernels: the window has too few, or no buffer on a device")
        return int(ffi.cast("uintptr_t", address))

    def _put(self, call: Any, name: str, rank: int, x: Any, offset: int) -> None:
        w, b = self._open(), self._find(name)
        m = host_memory_of(x, "put") if b.device is None else memory_of(x)
        if m.dtype != b.dtype:
            raise ArrayError(f"put: the array is {m}, the buffer {name!r} has {b.dtype} {b.shape}")
        if not m.dense:
            raise ArrayError("put: the array is strided; numpy.ascontiguousarray gives a dense one")
        check(call(w, b.number, rank, offset, ffi.cast("void *", m.address), math.prod(m.shape)))

    def put(self, name: str, rank: int, x: Any, offset: int = 0) -> None:
        """Stores x's elements into the rank's buffer from its element ``offset`` on.

        Into a buffer on a device, x may be on a device, too; what its stream computes must be done."""
        self._put(lib.weft_window_put, name, rank, x, offset)

    def put_add(self, name: str, rank: int, x: Any, offset: int = 0) -> None:
        """Adds x's elements to the rank's buffer; atomic for each element among all that do so."""
        self._put(lib.weft_window_put_add, name, rank, x, offset)

    def notify(self, rank: int, signal: int, value: int = 1, add: bool = True) -> None:
        """Adds to the rank's signal, or sets it. Whoever waits for it sees all that this rank has stored before."""
        how = lib.WEFT_NOTIFY_ADD if add else lib.WEFT_NOTIFY_SET
        check(lib.weft_window_notify(self._open(), rank, signal, how, value % (1 << 64)))

    def wait(self, signal: int, compare: str, value: int, timeout: Optional[float] = None) -> None:
        """Until this rank's signal compares so: ``wait(0, ">=", 3)``. Other Python threads run meanwhile."""
        if compare not in _COMPARE:
            raise InvalidError(f"there is no comparison {compare!r}: one of {' '.join(_COMPARE)}")
        w, how = self._open(), _COMPARE[compare]
        code = in_slices(lambda ns: int(lib.weft_window_wait(w, signal, how, value, ns)), timeout, self.comm._open())
        if code:
            raise failure(code)

    def signal(self, signal: int) -> int:
        """This rank's signal now."""
        out = ffi.new("uint64_t *")
        check(lib.weft_window_signal(self._open(), signal, out))
        return int(out[0])

    def barrier(self, ranks: Optional[Sequence[int]] = None, timeout: Optional[float] = DEADLINE) -> None:
        """Waits for all ranks of the comm, or for the listed ones, each of which must list the others. TimeoutError and Ctrl-C
        are as in :meth:`Comm.barrier`."""
        w, comm = self._open(), self.comm._open()
        if ranks is None:
            check(in_slices(lambda ns: int(lib.weft_window_barrier(w, ns)), timeout, comm))
        else:
            group = ffi.new("int[]", list(ranks))
            check(in_slices(lambda ns: int(lib.weft_window_barrier_with(w, group, len(group), ns)), timeout, comm))

    def close(self) -> None:
        """Lets go of it. Its memory stays while arrays of it are there."""
        self._handle = None

    def __repr__(self) -> str:
        what = ", ".join(f"{name}: {b.dtype} {b.shape}" for name, b in self._buffers.items())
        return f"<weft.Window {what} on {self.comm!r}>"
