"""The names of element types: weft's beside NumPy's, PyTorch's, DLPack's and JAX's."""

from __future__ import annotations

import sys
from typing import Any, Dict, Tuple

import numpy as np

from ._errors import ArrayError, UnsupportedError, text_of
from ._weft import ffi, lib

# weft's name -> the name of the dtype in NumPy (those of ml_dtypes included) and JAX, in PyTorch, and DLPack's (code, bits)
_TABLE: Tuple[Tuple[str, str, str, Tuple[int, int]], ...] = (
    ("bool", "bool", "bool", (6, 8)),
    ("u8", "uint8", "uint8", (1, 8)),
    ("i8", "int8", "int8", (0, 8)),
    ("u16", "uint16", "uint16", (1, 16)),
    ("i16", "int16", "int16", (0, 16)),
    ("u32", "uint32", "uint32", (1, 32)),
    ("i32", "int32", "int32", (0, 32)),
    ("u64", "uint64", "uint64", (1, 64)),
    ("i64", "int64", "int64", (0, 64)),
    ("f16", "float16", "float16", (2, 16)),
    ("bf16", "bfloat16", "bfloat16", (4, 16)),
    ("f32", "float32", "float32", (2, 32)),
    ("f64", "float64", "float64", (2, 64)),
    ("f8e4m3", "float8_e4m3fn", "float8_e4m3fn", (10, 8)),
    ("f8e5m2", "float8_e5m2", "float8_e5m2", (12, 8)),
    ("f8e8m0", "float8_e8m0fnu", "float8_e8m0fnu", (14, 8)),
    ("c64", "complex64", "complex64", (5, 64)),
    ("c128", "complex128", "complex128", (5, 128)),
)
# What no library has as a type of its own: the same bits, but what is too large becomes the largest value
_SATURATING: Dict[str, str] = {"f8e4m3sat": "f8e4m3", "f8e5m2sat": "f8e5m2"}
_FROM_ML_DTYPES = ("bf16", "f8e4m3", "f8e5m2", "f8e8m0")
_FROM_NUMPY: Dict[str, str] = {numpy: name for name, numpy, _, _ in _TABLE}
_FROM_TORCH: Dict[str, str] = {"torch." + torch: name for name, _, torch, _ in _TABLE}
_FROM_DLPACK: Dict[Tuple[int, int], str] = {code: name for name, _, _, code in _TABLE}
_KNOWN: Dict[Any, str] = {}  # dtypes of NumPy that have been asked for
_TO_NUMPY: Dict[str, str] = {name: numpy for name, numpy, _, _ in _TABLE}
_TO_TORCH: Dict[str, str] = {name: torch for name, _, torch, _ in _TABLE}

_TO_DLPACK: Dict[str, Tuple[int, int]] = {name: code for name, _, _, code in _TABLE}

CODES: Dict[str, int] = {}
NAMES: Dict[int, str] = {}
for _code in range(1, 64):
    _name = lib.weft_dtype_name(_code)
    if _name == ffi.NULL:
        break
    NAMES[_code] = text_of(_name)
    CODES[NAMES[_code]] = _code

OPS: Dict[str, int] = {}
OP_NAMES: Dict[int, str] = {}
for _code in range(1, 64):
    _name = lib.weft_op_name(_code)
    if _name == ffi.NULL:
        break
    OP_NAMES[_code] = text_of(_name)
    OPS[OP_NAMES[_code]] = _code


def of_numpy(dtype: Any) -> str:
    """weft's name of a NumPy (or ml_dtypes, or JAX) dtype."""
    try:
        known = _KNOWN.get(dtype)
        if known is not None:
            return known
        dtype = np.dtype(dtype)
    except (TypeError, ValueError):
        raise ArrayError(f"there is no element type {dtype!r}: weft has {', '.join(CODES)}") from None
    if dtype.byteorder == (">" if sys.byteorder == "little" else "<"):
        raise ArrayError(f"{dtype.str} has the byte order of other machines")
    name = _FROM_NUMPY.get(dtype.name)
    if name is None:
        raise ArrayError(f"weft has no element type for NumPy's {dtype.name}")
    _KNOWN[dtype] = name
    return name


def of_torch(dtype: Any) -> str:
    """weft's name of a torch.dtype."""
    name = _FROM_TORCH.get(str(dtype))
    if name is None:
        raise ArrayError(f"weft has no element type for {dtype}")
    return name


def of_dlpack(code: int, bits: int, lanes: int) -> str:
    """weft's name of a DLPack type."""
    name = _FROM_DLPACK.get((code, bits)) if lanes == 1 else None
    if name is None:
        raise ArrayError(f"weft has no element type for DLPack's type {code} of {bits} bits and {lanes} lanes")
    return name


def to_dlpack(name: str) -> Tuple[int, int]:
    """DLPack's code and bits of an element type."""
    return _TO_DLPACK[name]


def of_any(dtype: Any) -> str:
    """weft's name of whatever may stand for a dtype: weft's own name, a torch.dtype, anything NumPy takes."""
    if isinstance(dtype, str) and dtype in CODES:
        return dtype
    if type(dtype).__module__ == "torch":
        return of_torch(dtype)
    return of_numpy(dtype)


def bits_of(name: str) -> str:
    """The type of the arrays that hold elements of a type: the type itself, but f8e4m3 for f8e4m3sat."""
    return _SATURATING.get(name, name)


def to_numpy(name: str) -> "np.dtype[Any]":
    """The NumPy dtype; those that NumPy does not have come from ml_dtypes."""
    name = bits_of(name)
    numpy = _TO_NUMPY[name]
    if name not in _FROM_ML_DTYPES:
        return np.dtype(numpy)
    try:
        import ml_dtypes

        known: "np.dtype[Any]" = np.dtype(getattr(ml_dtypes, numpy))
    except (ImportError, AttributeError):  # or one that does not have it yet
        raise UnsupportedError(
            f"NumPy has no {name}: install ml_dtypes, ask for a torch tensor (torch=True), "
            f"or give the bits as an array of unsigned integers in weft.bits(array, {name!r})"
        ) from None
    return known


def to_torch(name: str) -> Any:
    """The torch.dtype. Imports PyTorch."""
    import torch

    return getattr(torch, _TO_TORCH[bits_of(name)])


def size_of(name: str) -> int:
    """Bytes of one element."""
    return int(lib.weft_dtype_size(CODES[name]))
