"""Messages whose sizes only their senders know, in rounds among neighbours; and the exchange with the ranks before and after."""

from __future__ import annotations

from typing import Any, Generator, Generic, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np

from ._aio import Flight, Poller, forget
from ._arrays import array_at, host_memory_of
from ._comm import ChildHandle, Closing, Comm, in_slices
from ._errors import ArrayError, InvalidError, check, failure
from ._hook import Buffer, Hook
from ._weft import ffi, lib

__all__ = ["Exchange", "ExchangeStats", "Halo", "Message", "Round"]

_Result = TypeVar("_Result")


class Message(NamedTuple):
    """A message that has come. ``payload`` is an array of bytes, which may be viewed as any dtype. It owns its memory, or is the
    beginning of the array that ``buffer`` gave for it."""

    source: int
    round: int
    meta: bytes
    payload: "np.ndarray[Any, Any]"


class ExchangeStats(NamedTuple):
    """What an exchange has done so far, in bytes but for the counts at the beginning."""

    rounds: int
    sent: int
    received: int
    budget: int
    inflight: int
    inflight_peak: int
    untaken: int
    untaken_peak: int
    memory: int


class _Taken:
    """Owns a message of weft's."""

    def __init__(self, ptr: Any) -> None:
        self.ptr = ptr

    def __del__(self) -> None:
        lib.weft_message_free(self.ptr)


def _message(ptr: Any, hook: Optional[Hook]) -> Optional[Message]:
    if ptr == ffi.NULL:
        return None
    owner = _Taken(ptr)
    meta = bytes(ffi.buffer(ptr.meta, ptr.meta_bytes)) if ptr.meta_bytes else b""
    address = int(ffi.cast("uintptr_t", ptr.payload))
    theirs = None if hook is None else hook.taken(address)
    payload = array_at(owner if theirs is None else theirs, address, "u8", (ptr.bytes,), False)
    return Message(getattr(ptr, "from"), ptr.round, meta, payload)


class _Part(NamedTuple):
    """Memory that is to go: its address, how many bytes, and what keeps it."""

    address: Any
    bytes: int
    keep: Any


def _part(what: Any, side: str) -> _Part:
    if what is None:
        return _Part(ffi.NULL, 0, None)
    memory = host_memory_of(what, side)
    if not memory.dense:
        raise ArrayError(f"{side}: the array is strided; numpy.ascontiguousarray gives a dense one")
    return _Part(ffi.cast("void *", memory.address), memory.bytes, memory)


class _Kept:
    """The payloads of a round until it is complete. The next one's may be put before the caller has taken what this one brought."""

    def __init__(self) -> None:
        self.put: List[Any] = []
        self.flying: List[Any] = []

    def finish(self) -> None:
        self.flying, self.put = self.put, []


class Round(Generic[_Result]):
    """A round in flight. It can be waited for, asked, and awaited; each gives what the round has brought."""

    def __init__(self, rounds: "_Rounds[_Result]") -> None:
        self._rounds = rounds
        self._number = rounds._number
        self._result: Optional[Tuple[_Result]] = None

    def wait(self, timeout: Optional[float] = None) -> _Result:
        """Until it is complete. After a timeout (in seconds) it is still in flight."""
        if self._result is None:
            self._result = (self._rounds._wait(self, timeout),)
        return self._result[0]

    def done(self) -> bool:
        """Whether it is complete. Makes progress, and raises what it failed with."""
        return self._result is not None or self._rounds._test(self)

    def __await__(self) -> Generator[Any, None, _Result]:
        while not self.done():
            rounds = self._rounds
            flight = Flight(rounds._open(), rounds._handle, lib.weft_exchange_on_done, lib.weft_exchange_test)
            yield from Poller.of(rounds.comm).until_over(flight).__await__()
        return self.wait(0)


class _Rounds(Closing, Generic[_Result]):
    """What exchanges and halos have in common: rounds on a weft_exchange."""

    def __init__(self, comm: Comm, buffer: Optional[Buffer]) -> None:
        self.comm = comm  #: with whom
        self._handle: Optional[ChildHandle] = None
        self._x: Any = ffi.NULL
        self._flag = ffi.new("bool *")
        self._kept = _Kept()
        self._number = 0
        self._hook = None if buffer is None else Hook(buffer)
        self._arg: Any = None  # what weft knows the hook by
        comm._bound.add(self)

    def _options(self, vote: bool, budget: int) -> Any:
        opts = ffi.new("weft_exchange_opts *")
        opts.size, opts.vote, opts.budget = ffi.sizeof("weft_exchange_opts"), vote, budget
        if self._hook is not None:
            self._arg = ffi.new_handle(self._hook)
            opts.buffer, opts.arg = lib.weft_python_buffer, self._arg
        return opts

    def _open(self) -> Any:
        if self._handle is None:
            raise InvalidError("the exchange is closed")
        if self._hook is not None:
            self._hook.check()
        return self._x

    def _collect(self) -> _Result:
        raise NotImplementedError

    def _test(self, round_: Round[_Result]) -> bool:
        if round_._number != self._number:
            return True
        check(lib.weft_exchange_test(self._open(), self._flag))
        return bool(self._flag[0])

    def _wait(self, round_: Round[_Result], timeout: Optional[float]) -> _Result:
        if round_._number != self._number:
            raise InvalidError("a later round has begun: what this one brought was not taken in time")
        x = self._open()

        def wait(ns: int) -> int:
            code = int(lib.weft_exchange_wait(x, ns))
            if self._hook is not None:
                self._hook.check()
            return code

        code = in_slices(wait, timeout, self.comm._open())
        if code:
            raise failure(code)
        self._kept.flying.clear()
        return self._collect()

    @property
    def over(self) -> bool:
        """Whether all ranks voted done in the last complete round."""
        return bool(lib.weft_exchange_over(self._open()))

    @property
    def stats(self) -> ExchangeStats:
        """What it has done so far."""
        out = ffi.new("weft_exchange_info *")
        out.size = ffi.sizeof("weft_exchange_info")
        check(lib.weft_exchange_stats(self._open(), out))
        return ExchangeStats(*(getattr(out, field) for field in ExchangeStats._fields))

    def close(self) -> None:
        """Frees it. A round in flight is waited for until the comm's deadline."""
        handle, x, self._handle, self._x = self._handle, self._x, None, ffi.NULL
        if handle is not None:
            handle.free()
            forget(x)


class Exchange(_Rounds[List[Message]]):
    """Rounds of messages among declared neighbours, made by :meth:`Comm.exchange`."""

    def __init__(
        self,
        comm: Comm,
        sources: Sequence[int],
        targets: Sequence[int],
        vote: bool,
        budget: int,
        buffer: Optional[Buffer] = None,
    ) -> None:
        super().__init__(comm, buffer)
        handle = comm._open()
        handle.used()
        out = ffi.new("weft_exchange **")
        source, target = list(sources), list(targets)
        check(
            lib.weft_exchange_open(
                handle.ptr,
                ffi.new("int[]", source),
                len(source),
                ffi.new("int[]", target),
                len(target),
                self._options(vote, budget),
                out,
            )
        )
        self._x = out[0]
        self._handle = ChildHandle(handle, self._x, lib.weft_exchange_close, (self._arg, self._kept))

    def put(self, to: int, payload: Any = None, meta: bytes = b"") -> None:
        """One message to a rank: bytes or any dense array, with a few bytes that say what it is. Large arrays must not change until
        the round is complete."""
        x, part = self._open(), _part(payload, "put")
        check(lib.weft_exchange_put(x, to, meta, len(meta), part.address, part.bytes))
        if part.bytes > lib.WEFT_EXCHANGE_SMALL:
            self._kept.put.append(part)

    def finish(self, done: bool = False) -> Round[List[Message]]:
        """No more messages of this rank in this round; ``done`` is its vote. The round gives the messages that were not taken."""
        check(lib.weft_exchange_finish(self._open(), done))
        self._kept.finish()
        self._number += 1
        return Round(self)

    def take(self, source: int = -1) -> Optional[Message]:
        """The next message of a rank, or of any one, also before the round is complete; None: none yet."""
        return self._take(self._open(), source)

    def _take(self, x: Any, source: int = -1) -> Optional[Message]:
        out = ffi.new("weft_message **")
        check(lib.weft_exchange_take(x, source, out))
        return _message(out[0], self._hook)

    def _collect(self) -> List[Message]:
        messages: List[Message] = []
        message = self._take(self._x)
        while message is not None:
            messages.append(message)
            message = self._take(self._x)
        return messages


Pair = Tuple[Optional[Message], Optional[Message]]


class Halo(_Rounds[Pair]):
    """Exchange with the ranks before and after this one, made by :meth:`Comm.halo`."""

    def __init__(self, comm: Comm, periodic: bool, vote: bool, budget: int, buffer: Optional[Buffer] = None) -> None:
        super().__init__(comm, buffer)
        handle = comm._open()
        handle.used()
        out = ffi.new("weft_halo **")
        check(lib.weft_halo_open(handle.ptr, periodic, self._options(vote, budget), out))
        self._h = out[0]
        self._x = lib.weft_halo_rounds(self._h)
        self._handle = ChildHandle(handle, self._h, lib.weft_halo_close, (self._arg, self._kept))

    def start(
        self, left: Any = None, right: Any = None, *, meta: Tuple[bytes, bytes] = (b"", b""), done: bool = False
    ) -> Round[Pair]:
        """Sends one message each way: bytes or any dense array, None for an empty one. ``done`` is the vote. The round gives
        what came from the left and from the right, None where there is no neighbour."""
        self._open()
        messages, parts = [], []
        for what, about, side in ((left, meta[0], "left"), (right, meta[1], "right")):
            part, message, held = _part(what, side), ffi.new("weft_message *"), ffi.new("char[]", about)
            message.meta, message.meta_bytes = held, len(about)
            message.payload, message.bytes = part.address, part.bytes
            messages.append(message)
            parts.append((part, held))
        check(lib.weft_halo_start(self._h, messages[0], messages[1], done))
        self._kept.put = parts
        self._kept.finish()
        self._number += 1
        return Round(self)

    def exchange(self, left: Any = None, right: Any = None) -> Pair:
        """Start and wait: what came from the left and from the right."""
        return self.start(left, right).wait()

    def _collect(self) -> Pair:
        left, right = ffi.new("weft_message **"), ffi.new("weft_message **")
        check(lib.weft_halo_take(self._h, left, right))
        return _message(left[0], self._hook), _message(right[0], self._hook)
