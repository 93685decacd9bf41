"""Waiting in asyncio: one callback on the event loop moves along all that is awaited of a comm, however much that is.

First at each turn of the loop, then, when nothing has come for a while, every millisecond. What is over calls back, from
inside weft, and wakes those who await it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ._errors import check
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._comm import Comm

_flights: Dict[int, "Flight"] = {}  # by the address of what flies


EAGER = 256  # turns of the loop with nothing new, after which there are
PAUSE = 0.001  # seconds between two looks


class Flight:
    """A run or a round that somebody awaits. It stays until that is over, also when nobody awaits it any more: what was
    started goes on, and what it needs must stay."""

    def __init__(self, ptr: Any, handle: Any, notify: Callable[..., int], test: Callable[..., int]) -> None:
        self.key = int(ffi.cast("uintptr_t", ptr))
        self.ptr = ptr
        self.handle = handle
        self.notify = notify
        self.test = test
        self.poller: Optional[Poller] = None
        self.waiting: List["asyncio.Future[None]"] = []


def _interrupted(kind: Any, problem: BaseException, trace: Any) -> None:
    flight = _flights.get(int(ffi.cast("uintptr_t", trace.tb_frame.f_locals["arg"])))
    if flight is not None and flight.poller is not None and not flight.poller.loop.is_closed():
        flight.poller.loop.call_soon_threadsafe(flight.poller.landed, flight)
        flight.poller.loop.call_soon_threadsafe(_raise, problem)


def _raise(problem: BaseException) -> None:
    raise problem


# An interrupt is raised at the very beginning of the function, where it could not be caught inside: the loop raises it.
@ffi.def_extern(onerror=_interrupted)  # type: ignore[untyped-decorator]
def weft_python_done(arg: Any, err: int) -> None:
    """Something is over: called by whoever makes progress, which may be a thread of the comm's."""
    flight = _flights.get(int(ffi.cast("uintptr_t", arg)))
    poller = flight.poller if flight is not None else None
    if flight is None or poller is None:
        return
    if threading.get_ident() == poller.thread:
        poller.landed(flight)
    elif not poller.loop.is_closed():
        poller.loop.call_soon_threadsafe(poller.landed, flight)


def forget(ptr: Any) -> None:
    """What is at this address is freed: who awaits it is woken, to find that out."""
    flight = _flights.get(int(ffi.cast("uintptr_t", ptr)))
    if flight is not None and flight.poller is not None:
        flight.poller.landed(flight, freed=True)


class Poller:
    """Makes progress on one event loop for one comm."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self._flying: Dict[int, Flight] = {}
        self._flag = ffi.new("bool *")
        self._scheduled = False
        self._idle = 0

    @staticmethod
    def of(comm: "Comm") -> "Poller":
        """The one for the loop that runs here."""
        loop = asyncio.get_running_loop()
        poller: Optional[Poller] = comm._poller
        if poller is None or poller.loop is not loop:
            old, poller = poller, Poller(loop)
            if old is not None:  # its loop is over; what it left in flight is moved along here
                for flight in old._flying.values():
                    flight.poller, flight.waiting = poller, []
                    poller._flying[flight.key] = flight
            comm._poller = poller
        return poller

    def until_over(self, flight: Flight) -> "asyncio.Future[None]":
        """A future that is done when the flight is over, or that may be given up. It can be early: with a progress thread, by
        the callback of the run before. Look whether it is over, and ask again."""
        flight = self._flying.setdefault(flight.key, flight)
        if flight.poller is None:
            flight.poller = self
            _flights[flight.key] = flight
            check(flight.notify(flight.ptr, lib.weft_python_done, flight.ptr))
        future = self.loop.create_future()
        flight.waiting.append(future)
        self._idle = 0
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)
        return future

    def landed(self, flight: Flight, freed: bool = False) -> None:
        """It is over."""
        if self._flying.get(flight.key) is not flight:
            return
        del self._flying[flight.key], _flights[flight.key]
        if not freed:
            flight.notify(flight.ptr, ffi.NULL, ffi.NULL)
        self._idle = 0
        for future in flight.waiting:
            if not future.done() and not self.loop.is_closed():
                future.set_result(None)

    def close(self) -> None:
        """The comm is closed: frees what was awaited and given up, and is held here alone."""
        for flight in list(self._flying.values()):
            flight.handle.free()
            self.landed(flight, freed=True)

    def _turn(self) -> None:
        """One look at one of them makes progress with all; those that are over have called back by then. One that a thread has
        ended before its callback was set is seen here."""
        self._scheduled = False
        if self._flying:
            flight = next(iter(self._flying.values()))
            self._idle += 1
            if flight.test(flight.ptr, self._flag) or self._flag[0]:
                self.landed(flight)
        if self._flying:
            self._scheduled = True
            if self._idle < EAGER:
                self.loop.call_soon(self._turn)
            else:
                self.loop.call_later(PAUSE, self._turn)
