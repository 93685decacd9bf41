"""What this build can do."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, Callable, Dict, List, TypedDict

from ._errors import filled, text_of
from ._weft import ffi, lib

__all__ = ["Info", "algorithms", "info", "transports"]


class Info(TypedDict):
    """What :func:`weft.info` gives."""

    version: str
    dtypes: List[str]
    ops: List[str]
    algorithms: List[str]
    transports: List[str]
    modules: List[str]
    devices: Dict[str, Any]


def version() -> str:
    """That of the library."""
    return text_of(lib.weft_version_string())


def _names(get: Callable[[int], Any], first: int = 0) -> List[str]:
    """What the library numbers from ``first`` on, until it says NULL."""
    names: List[str] = []
    for i in count(first):
        name = get(i)
        if name == ffi.NULL:
            break
        names.append(text_of(name))
    return names


def transports() -> List[str]:
    """The transports of this build, as their URLs look."""
    return _names(lib.weft_transport_name)


def algorithms() -> List[str]:
    """The algorithms that can be forced."""
    return _names(lib.weft_algorithm_name)


def info() -> Info:
    """What this build can do, as ``weft info`` says. ``modules`` are those of its transports between machines that came with
    it: they were built where the headers of their libraries were found, and need these libraries when they are opened. ``devices`` says which
    devices have memory that this process can use, or why there are none."""
    return {
        "version": version(),
        "dtypes": _names(lib.weft_dtype_name, lib.WEFT_BOOL),
        "ops": _names(lib.weft_op_name, lib.WEFT_SUM),
        "algorithms": algorithms(),
        "transports": transports(),
        "modules": _names(lib.weft_module_name),
        "devices": json.loads(filled(lambda *room: lib.weft_device_explain(True, *room))),
    }
