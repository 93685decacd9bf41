"""Arrays of whichever library, as memory that weft.h can be given: address, element type, shape and strides."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

from . import _dtypes
from ._errors import ArrayError, UnsupportedError
from ._layout import Layout, Local
from ._weft import ffi

__all__ = ["Bits", "bits"]

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.restype = ctypes.c_int
_capsule_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]

_DLPACK_CPU = (1, 3, 11)  # host memory, also where a GPU may reach it
_DLPACK_READ_ONLY = 1


class Bits(NamedTuple):
    """An array of unsigned integers that has the bits of another element type, made by :func:`weft.bits`."""

    array: Any
    dtype: str


def bits(array: Any, dtype: str) -> Bits:
    """The array's bits as elements of a type that its library does not have, such as uint16 as ``bf16``."""
    name = _dtypes.of_any(dtype)
    have = np.dtype(array.dtype).itemsize if isinstance(array, np.ndarray) else memory_of(array).itemsize
    if have != _dtypes.size_of(name):
        raise ArrayError(f"elements of {have} bytes cannot be the bits of {name}, which has {_dtypes.size_of(name)}")
    return Bits(array, name)


class Memory(NamedTuple):
    """Where an array's elements are. Strides are in bytes; ``keep`` is what keeps the memory alive."""

    address: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    itemsize: int
    writable: bool
    keep: Any

    @property
    def bytes(self) -> int:
        """How many may be touched from the address on."""
        if 0 in self.shape:
            return 0
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides) if s > 0) + self.itemsize

    @property
    def dense(self) -> bool:
        """Row-major, without gaps."""
        step = self.itemsize
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n > 1 and s != step:
                return False
            step *= n
        return True

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


def _of_numpy(array: "np.ndarray[Any, Any]") -> Memory:
    return Memory(
        array.__array_interface__["data"][0],
        _dtypes.of_numpy(array.dtype),
        array.shape,
        array.strides,
        array.dtype.itemsize,
        array.flags.writeable,
        array,
    )


def is_torch(array: Any) -> bool:
    """Whether it is a tensor of PyTorch, which is not imported for that."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _of_torch(tensor: Any) -> Memory:
    if hasattr(tensor, "to_local"):
        raise ArrayError("this is a DTensor: give its local part, tensor.to_local()")
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"the tensor is on {tensor.device}: weft moves host memory; copy it into comm.empty(layout, torch=True), and bind that"
        )
    if str(tensor.layout) != "torch.strided":
        raise UnsupportedError(f"the tensor is {tensor.layout}: weft moves strided ones")
    if tensor.is_neg():
        raise UnsupportedError("the tensor is a view that negates its memory: tensor.resolve_neg() gives one that does not")
    if tensor.is_conj():
        raise UnsupportedError("the tensor is a view that conjugates its memory: tensor.resolve_conj() gives one that does not")
    size = tensor.element_size()
    return Memory(
        tensor.data_ptr(),
        _dtypes.of_torch(tensor.dtype),
        tuple(tensor.shape),
        tuple(s * size for s in tensor.stride()),
        size,
        True,
        tensor.detach(),  # shares the memory, and keeps it where tensor.data is set to something else
    )


def _of_dlpack(array: Any) -> Memory:
    if hasattr(array, "addressable_shards") and len(array.sharding.device_set) > 1:
        raise ArrayError("this is a jax.Array on several devices: weft.jax_local(array) is this process's part of it")
    device = array.__dlpack_device__()
    if int(device[0]) not in _DLPACK_CPU:
        raise UnsupportedError(f"the array is on a device of DLPack's type {int(device[0])}: weft moves host memory")
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # of before DLPack 1.0
        capsule = array.__dlpack__()
    # The capsule is kept, and not consumed: its end hands the memory back.
    if _capsule_valid(capsule, b"dltensor_versioned"):
        managed = ffi.cast("DLManagedTensorVersioned *", _capsule_pointer(capsule, b"dltensor_versioned"))
        writable = not managed.flags & _DLPACK_READ_ONLY
    else:
        managed = ffi.cast("DLManagedTensor *", _capsule_pointer(capsule, b"dltensor"))
        writable = False  # it cannot say; libraries whose arrays never change share them so
    t = managed.dl_tensor
    dtype = _dtypes.of_dlpack(t.dtype.code, t.dtype.bits, t.dtype.lanes)
    size = _dtypes.size_of(dtype)
    shape: Tuple[int, ...] = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides == ffi.NULL:
        strides, step = [0] * len(shape), size
        for i in reversed(range(len(shape))):
            strides[i] = step
            step *= shape[i]
    else:
        strides = [t.strides[i] * size for i in range(t.ndim)]
    address = int(ffi.cast("uintptr_t", t.data)) + t.byte_offset
    return Memory(address, dtype, shape, tuple(strides), size, writable, (capsule, array))


def memory_of(array: Any) -> Memory:
    """The memory of an array of NumPy, PyTorch or JAX, or of whatever speaks ``__array_interface__``, the buffer protocol
    or DLPack. Nothing is copied."""
    if isinstance(array, Memory):
        return array
    if isinstance(array, Bits):
        inner = memory_of(array.array)
        return inner._replace(dtype=array.dtype)
    if isinstance(array, np.ndarray):
        return _of_numpy(array)
    if is_torch(array):
        return _of_torch(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _of_dlpack(array)
    # NumPy's array holds what it was made of; so a bytearray keeps its size and a map stays while it is in use.
    if hasattr(array, "__array_interface__"):
        return _of_numpy(np.asarray(array))
    try:
        buffer = memoryview(array)
    except TypeError:
        raise ArrayError(
            f"{type(array).__name__} is no array: it has neither the buffer protocol nor __array_interface__ nor DLPack; "
            "numpy.asarray makes one of numbers and lists"
        ) from None
    return _of_numpy(np.asarray(buffer))


def _advice(memory: Memory, which: Layout, local: Local, write: bool) -> str:
    """What to do about an array that does not fit."""
    if memory.shape == local.shape:
        if write:
            return f"; the layout may say {memory.dtype}, too: weft casts on the way"
        if memory.dtype in ("c64", "c128"):  # there is no cast to a real type
            return "; convert it"
        return f"; convert it, or say {memory.dtype} in the layout: weft casts on the way"
    if local.holds and memory.shape == which.shape:
        return "; that is the whole tensor: give this rank's part of it"
    return ""


def memory_for(array: Optional[Any], which: Layout, rank: int, what: str, write: bool) -> Optional[Memory]:
    """The memory of an array that is to be the rank's buffer in a layout; None for none. Raises where it does not fit."""
    dtype, local = which.dtype, which.local(rank)
    if array is None:
        if local.elements:
            raise ArrayError(
                f"{what}: there is no array; the layout has {dtype} {local.shape} here, and comm.empty(layout) makes one"
            )
        return None
    try:
        memory = memory_of(array.to_local() if is_torch(array) and hasattr(array, "to_local") else array)
    except (ArrayError, UnsupportedError) as problem:
        raise type(problem)(f"{what}: {problem}") from None
    if not local.elements and not memory.bytes:  # of whichever shape: FSDP2 has (0, 0) where the layout has (2, 0)
        return None
    if memory.dtype == _dtypes.bits_of(dtype):
        memory = memory._replace(dtype=dtype)
    if memory.dtype != dtype or memory.shape != local.shape:
        here = f"{dtype} {local.shape}" if local.holds else "nothing"
        raise ArrayError(f"{what}: the array is {memory}, the layout has {here} here{_advice(memory, which, local, write)}")
    if write and not memory.writable:
        raise ArrayError(f"{what}: the array is read-only; give one that may be written to, such as of comm.empty(layout)")
    if any(stride < 0 for stride in memory.strides):
        raise ArrayError(f"{what}: the array runs backwards in a dim; numpy.ascontiguousarray gives one that does not")
    return memory


class WindowArray:
    """What owns the memory of an array that weft made: the array's base. It frees it when no array is left."""

    def __init__(self, owner: Any, address: int, shape: Tuple[int, ...], itemsize: int) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (*shape, itemsize),
            "typestr": "|u1",
        }


def array_at(owner: Any, address: int, dtype: str, shape: Tuple[int, ...], torch: bool) -> Any:
    """An array at an address, of NumPy or of PyTorch, that keeps the owner alive."""
    size = _dtypes.size_of(dtype)
    if 0 in shape or not address:
        flat: "np.ndarray[Any, Any]" = np.zeros((*shape, size), np.uint8)
    else:
        flat = np.asarray(WindowArray(owner, address, shape, size))
    if torch:
        import torch as pytorch

        kind = _dtypes.to_torch(dtype)
        return pytorch.from_numpy(flat).view(kind).view(shape) if flat.size else pytorch.empty(shape, dtype=kind)
    return flat.view(_dtypes.to_numpy(dtype)).reshape(shape)
