"""Memory of the caller's for the payloads of an exchange."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import numpy as np

from ._arrays import Memory, host_memory_of, memory_of
from ._errors import ArrayError
from ._weft import ffi

Buffer = Callable[[int, bytes, int], Any]  #: (source, meta, bytes) to an array of `bytes` bytes or more; None: ask again later


class Hook:
    """Asks where a payload shall be stored, and knows what it was told until the message is taken.

    What the caller's function raises cannot pass through weft: the next call raises it, and that payload comes in an array of
    its own."""

    def __init__(self, ask: Buffer) -> None:
        self.ask = ask
        self.held: Dict[int, Any] = {}  # by address
        self.problem: Optional[BaseException] = None

    def place(self, source: int, meta: bytes, size: int) -> int:
        """An address; 0 for none yet."""
        try:
            given = self.ask(source, meta, size)
            if given is None:
                return 0
            memory = self._check(host_memory_of(given, "buffer"), size)
        except BaseException as problem:
            self.problem = problem
            memory = memory_of(np.empty(size, np.uint8))
        self.held[memory.address] = memory.keep
        return memory.address

    def _check(self, memory: Memory, size: int) -> Memory:
        if not memory.dense or not memory.writable or memory.bytes < size:
            raise ArrayError(
                f"buffer: the array is {memory}; a dense one is needed, of {size} bytes at least, that may be written to"
            )
        if memory.address in self.held:
            raise ArrayError("buffer: this array was given for another message, which was not taken yet")
        return memory

    def taken(self, address: int) -> Any:
        """What keeps the memory of a message; None: it is weft's."""
        return self.held.pop(address, None)

    def check(self) -> None:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem


def _raised(kind: Any, problem: BaseException, trace: Any) -> None:
    hook: Hook = ffi.from_handle(trace.tb_frame.f_locals["arg"])
    hook.problem = problem


# An interrupt is raised at the very beginning of the function, where it could not be caught inside: weft is told to ask again.
@ffi.def_extern(onerror=_raised)  # type: ignore[untyped-decorator]
def weft_python_buffer(arg: Any, source: int, meta: Any, meta_bytes: int, size: int) -> Any:
    """Called by whoever makes progress, which may be a thread of the comm's."""
    hook: Hook = ffi.from_handle(arg)
    return ffi.cast("void *", hook.place(source, bytes(ffi.buffer(meta, meta_bytes)) if meta_bytes else b"", size))
