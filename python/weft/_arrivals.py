"""Arrivals: the destination of a run piece by piece, each as soon as it has its final values."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, List, NamedTuple, Sequence, Tuple

from ._aio import EAGER, PAUSE
from ._errors import InvalidError, check, failure
from ._layout import Box, box_of
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._exec import Work
    from ._plan import Move

__all__ = ["Arrival", "Arrivals"]

_FIRST, _LONGEST = 20_000, 1_000_000  # ns between two looks at a run that has brought nothing new


class Arrival(NamedTuple):
    """A box of a tensor's destination on one rank. ``name`` is the tensor's, "" in a plan of one."""

    name: str
    box: Box

    @property
    def where(self) -> Tuple[slice, ...]:
        """The box as an index into the rank's array: ``dst[arrival.where]``."""
        return tuple(slice(a, a + n) for a, n in zip(self.box.local, self.box.len))


def boxes_of(part: Any, moves: "Sequence[Move]") -> List[Arrival]:
    """All of a rank's, by their numbers."""
    n = ffi.new("size_t *")
    check(lib.weft_plan_arrivals(part, ffi.NULL, 0, n))
    room = max(1, n[0])
    out = ffi.new("weft_arrival[]", room)
    check(lib.weft_plan_arrivals(part, out, room, n))
    return [
        Arrival(moves[out[i].tensor].name, box_of(out[i].box, len(moves[out[i].tensor].dst.shape))) for i in range(n[0])
    ]


class Arrivals:
    """The boxes of a run in the order in which they are complete, to iterate over once: by ``for``, which waits for the next,
    or by ``async for``. It ends with the run, and raises what that fails with."""

    def __init__(self, work: "Work") -> None:
        bound = work.bound
        self._work = work
        self._boxes = bound._boxes()
        self._numbers = ffi.new("size_t[]", max(1, len(self._boxes)))
        self._n = ffi.new("size_t *")
        self._seen = 0
        self._next: Deque[Arrival] = deque()

    def _look(self) -> bool:
        """Takes over what has come; whether the run is over, and nothing more will."""
        work = self._work
        if work._run != work.bound._run:
            raise InvalidError("a later run has started: what this one has brought cannot be told any more")
        over = work.done()  # before the look: what came until then is seen by it
        check(lib.weft_exec_arrived(work.bound._x, self._numbers, len(self._boxes), self._n))
        self._next.extend(self._boxes[self._numbers[i]] for i in range(self._seen, self._n[0]))
        self._seen = self._n[0]
        return over

    def __iter__(self) -> "Arrivals":
        return self

    def __next__(self) -> Arrival:
        pause = _FIRST
        while not self._next:
            if self._look() and not self._next:
                raise StopIteration
            if not self._next:
                code = lib.weft_exec_wait(self._work.bound._x, pause)
                if code and code != lib.WEFT_ETIMEOUT:
                    raise failure(code)
                pause = min(2 * pause, _LONGEST)
        return self._next.popleft()

    def __aiter__(self) -> "Arrivals":
        return self

    async def __anext__(self) -> Arrival:
        looks = 0
        while not self._next:
            if self._look() and not self._next:
                raise StopAsyncIteration
            if not self._next:
                looks += 1
                await asyncio.sleep(0 if looks < EAGER else PAUSE)
        return self._next.popleft()
