"""Exceptions: one class for each code of weft.h, with the library's own words as the text."""

from __future__ import annotations

import builtins
import re
from typing import Any, Dict, Optional, Type

from ._weft import ffi, lib

__all__ = [
    "ArrayError",
    "BusyError",
    "Error",
    "InvalidError",
    "LayoutError",
    "MismatchError",
    "OutOfMemoryError",
    "PeerError",
    "RankError",
    "SystemError",
    "TimeoutError",
    "TransportError",
    "UnsupportedError",
]


class Error(Exception):
    """Whatever weft refuses or cannot do.

    ``code`` is the ``WEFT_E`` code of weft.h, ``rank`` the rank that the text names as the one that failed, if any.
    """

    code: int = lib.WEFT_EINVAL

    def __init__(self, text: str, rank: Optional[int] = None) -> None:
        super().__init__(text)
        self.rank = rank

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.rank)


class InvalidError(Error, ValueError):
    """An argument, a layout or a file is wrong."""

    code = lib.WEFT_EINVAL


class LayoutError(InvalidError):
    """A layout that does not parse; the text shows it with a caret under the place that is wrong."""


class ArrayError(InvalidError):
    """An array that does not fit the layout: its dtype, its shape or its memory. The text shows both."""


class OutOfMemoryError(Error, MemoryError):
    """Memory, or a limit that was set on it."""

    code = lib.WEFT_ENOMEM


class UnsupportedError(Error):
    """Right, but not possible here."""

    code = lib.WEFT_EUNSUPPORTED


class MismatchError(Error):
    """Ranks do not agree: other plans, another order of calls."""

    code = lib.WEFT_EMISMATCH


class BusyError(Error):
    """The object is in use."""

    code = lib.WEFT_EBUSY


class TimeoutError(Error, builtins.TimeoutError):
    """Time ran out. A run that was waited for is still in flight, and may be waited for again."""

    code = lib.WEFT_ETIMEOUT


class PeerError(Error):
    """Another rank failed: ``rank``."""

    code = lib.WEFT_EPEER


class TransportError(Error):
    """The transport failed."""

    code = lib.WEFT_ETRANSPORT


class SystemError(Error):
    """A file or the operating system failed."""

    code = lib.WEFT_EIO


class RankError(Error):
    """A rank of :func:`weft.spawn` failed: ``rank``. Its own exception is the cause (``__cause__``).

    ``errors`` has the exceptions of all ranks that failed.
    """

    code = lib.WEFT_EPEER

    def __init__(self, text: str, rank: Optional[int] = None, errors: Optional[Dict[int, BaseException]] = None) -> None:
        super().__init__(text, rank)
        self.errors: Dict[int, BaseException] = errors or {}


_CLASSES: Dict[int, Type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidError,
        OutOfMemoryError,
        UnsupportedError,
        MismatchError,
        BusyError,
        TimeoutError,
        PeerError,
        TransportError,
        SystemError,
    )
}


def text_of(chars: Any) -> str:
    """A C string as a Python one."""
    raw: bytes = ffi.string(chars)
    return raw.decode("utf-8", "replace")


def failure(code: int, kind: Optional[Type[Error]] = None) -> Error:
    """The exception for a code that a function of this thread has just returned."""
    text = text_of(lib.weft_errmsg()) or text_of(lib.weft_strerror(code))
    named = re.search(r"\brank (\d+)", text)
    if kind is None or code != lib.WEFT_EINVAL:
        kind = _CLASSES.get(code, Error)
    return kind(text, int(named.group(1)) if named else None)


def check(code: int) -> None:
    """Raises what a function of weft.h has returned, if that is an error."""
    if code:
        raise failure(code)


def filled(call: Any) -> bytes:
    """What a function of weft.h fills a buffer with: call(buf, cap, len) -> code."""
    size = ffi.new("size_t *")
    room, buf = 0, ffi.NULL
    check(call(buf, room, size))
    while size[0] >= room:  # texts such as metrics may have grown since
        room = size[0] + 1
        buf = ffi.new("char[]", room)
        check(call(buf, room, size))
    return bytes(ffi.buffer(buf, size[0]))
