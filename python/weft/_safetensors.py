"""The arrays of safetensors files, where they are: a file, or a folder as on the Hugging Face Hub, mapped into memory. Files are not trusted."""

from __future__ import annotations

import json
import mmap
import os
from math import prod
from typing import Any, Dict, Union

import numpy as np

from . import _dtypes
from ._arrays import Bits
from ._errors import InvalidError, MismatchError
from ._given import some

__all__ = ["folder_tensors"]

_INDEX = "model.safetensors.index.json"
_END = ".safetensors"
_DTYPES = {
    "BOOL": "bool", "U8": "u8", "I8": "i8", "U16": "u16", "I16": "i16", "U32": "u32", "I32": "i32", "U64": "u64", "I64": "i64",
    "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2", "F8_E8M0": "f8e8m0", "C64": "c64",
}  # fmt: skip
_UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
_OF_ML_DTYPES = ("bf16", "f8e4m3", "f8e5m2", "f8e8m0")


def _array(name: str, where: str, entry: Any, data: Any, base: int) -> Any:
    """The array of one entry of a header."""
    wrong = InvalidError(f"{where}: tensor {name!r}: its entry in the header is damaged")
    if not isinstance(entry, dict):
        raise wrong
    dtype = _DTYPES.get(str(entry.get("dtype")))
    shape: Any = entry.get("shape")
    span: Any = entry.get("data_offsets")
    if dtype is None:
        raise InvalidError(f"{where}: tensor {name!r} is of the type {entry.get('dtype')}, which weft does not have")
    for numbers in (shape, span):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
    size, count = _dtypes.size_of(dtype), prod(shape)
    if len(span) != 2 or span[1] - span[0] != size * count or base + span[1] > len(data):
        raise InvalidError(f"{where}: tensor {name!r}: its data_offsets do not span what its shape and dtype need")
    raw = np.frombuffer(data, np.uint8, size * count, base + span[0])
    if (base + span[0]) % size:
        raw = raw.copy()
    bits = dtype in _OF_ML_DTYPES
    try:
        array = raw.view(_UNSIGNED[size] if bits else _dtypes.to_numpy(dtype)).reshape(shape)
    except ValueError:
        raise InvalidError(f"{where}: tensor {name!r}: there are no arrays of the shape {shape}") from None
    return Bits(array, dtype) if bits else array


def _file(path: str) -> Dict[str, Any]:
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        length = int.from_bytes(f.read(8), "little")
        if size < 8 or length > size - 8:
            raise InvalidError(f"{path}: it is no safetensors file: its header is longer than the file")
        try:
            header = json.loads(f.read(length))
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise InvalidError(f"{path}: it is no safetensors file: its header is not JSON")
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    header.pop("__metadata__", None)
    return {name: _array(name, path, entry, data, 8 + length) for name, entry in header.items()}


def folder_tensors(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """Names to arrays, which are mapped and read-only: of a file, of the files that the folder's index names, or of all files of a folder without an index."""
    at = os.fspath(path)
    if not os.path.isdir(at):
        if not os.path.exists(at):
            raise InvalidError(f"{at}: there is no such file or folder")
        return _file(at)
    index = os.path.join(at, _INDEX)
    told: Dict[str, str] = {}
    if os.path.exists(index):
        try:
            with open(index, encoding="utf-8") as f:
                told = json.load(f)["weight_map"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidError(f"{index}: it is no index: it has no weight_map") from None
        if not isinstance(told, dict) or not all(isinstance(f, str) and f and os.path.basename(f) == f for f in told.values()):
            raise InvalidError(f"{index}: its weight_map has names of files that are not in the folder")
        files = sorted(set(told.values()))
    else:
        files = sorted(name for name in os.listdir(at) if name.endswith(_END))
    if not files:
        raise InvalidError(f"{at}: there is no file NAME{_END} in it")
    gone = [name for name in files if not os.path.exists(os.path.join(at, name))]
    if gone:
        raise MismatchError(f"{index}: the files {some(gone)} are not there")
    out: Dict[str, Any] = {}
    where: Dict[str, str] = {}
    for name in files:
        for tensor, array in _file(os.path.join(at, name)).items():
            if tensor in out:
                raise MismatchError(f"{at}: tensor {tensor!r} is in {where[tensor]} and in {name}")
            out[tensor], where[tensor] = array, name
    if told:
        missing = [tensor for tensor, name in told.items() if where.get(tensor) != name]
        extra = [tensor for tensor in out if tensor not in told]
        parts = [f"the files do not have {some(missing)} where it says"] * bool(missing) + [f"it does not name {some(extra)}"] * bool(extra)
        if parts:
            raise MismatchError(f"{index}: {'; '.join(parts)}")
    return out
