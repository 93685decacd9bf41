"""Arrays of whichever library, as memory that weft.h can be given: address, element type, shape, strides and device."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

from . import _dtypes
from ._errors import ArrayError, UnsupportedError
from ._layout import Layout, Local
from ._weft import ffi, lib

__all__ = ["Bits", "bits"]

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.restype = ctypes.c_int
_capsule_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]

DLPACK_CUDA = 2
_DLPACK_CPU = (1, 3, 11)  # host memory, also where a GPU may reach it
_DLPACK_READ_ONLY = 1
_NO_ORDER = -1  # a stream of DLPack: the caller orders its accesses itself
_HOST: int = lib.WEFT_MEMORY_HOST
CUDA: int = lib.WEFT_MEMORY_CUDA


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
    """Where an array's elements are. Strides are in bytes; ``keep`` is what keeps the memory alive. ``order`` is the array
    that says which stream the work on it is in: a torch tensor, or one whose interface has a stream."""

    address: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    itemsize: int
    writable: bool
    keep: Any
    kind: int = _HOST  # enum weft_memory
    device: int = 0
    order: Any = None

    @property
    def on_device(self) -> bool:
        return self.kind != _HOST

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
    cuda = bool(tensor.is_cuda)
    if not cuda and tensor.device.type != "cpu" or cuda and getattr(sys.modules["torch"].version, "hip", None):
        raise UnsupportedError(
            f"the tensor is on {tensor.device}{' of ROCm' * cuda}: weft moves memory of the host and of CUDA devices; copy it into "
            "comm.empty(layout, torch=True), and bind that"
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
        CUDA if cuda else _HOST,
        int(tensor.device.index or 0) if cuda else 0,
        tensor if cuda else None,
    )


def _dense_strides(shape: Tuple[int, ...], itemsize: int) -> Tuple[int, ...]:
    strides, step = [0] * len(shape), itemsize
    for i in reversed(range(len(shape))):
        strides[i] = step
        step *= shape[i]
    return tuple(strides)


# ---- CUDA's array interface ----


def interface_stream(interface: Any) -> Optional[int]:
    """The stream that ``__cuda_array_interface__`` names; None: there is nothing to wait for."""
    stream = interface.get("stream")
    if stream is None:
        return None
    if int(stream) == 0:
        raise ArrayError("__cuda_array_interface__ has stream 0, which its rules forbid: 1 is the default stream, 2 that of the thread")
    return int(stream)


def _interface_device(array: Any) -> int:
    """The number of the array's device; -1: the driver is asked."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    number = getattr(getattr(array, "device", None), "id", None)  # as of CuPy
    return number if isinstance(number, int) else -1


def _of_cuda_interface(array: Any, interface: Any) -> Memory:
    version = int(interface.get("version", 0))
    if version < 2:
        raise UnsupportedError(f"__cuda_array_interface__ has version {version}: weft knows 2 and 3")
    if interface.get("mask") is not None:
        raise UnsupportedError("__cuda_array_interface__ has a mask: weft moves arrays without one")
    try:
        dtype = _dtypes.of_numpy(interface["typestr"])
    except ArrayError:
        if hasattr(array, "__dlpack__"):  # bf16 and f8 have no typestr
            inner = _of_dlpack(array)
            return inner if interface_stream(interface) is None else inner._replace(order=array)
        raise ArrayError(
            f"__cuda_array_interface__ has elements of the type {interface['typestr']}, which weft does not know: bf16 and f8 have no "
            "name there; give the bits as unsigned integers in weft.bits(array, 'bf16'), or an array that speaks DLPack"
        ) from None
    size, shape = _dtypes.size_of(dtype), tuple(int(n) for n in interface["shape"])
    strides = interface.get("strides")
    address, read_only = interface["data"]
    device = _interface_device(array)
    return Memory(
        int(address or 0),
        dtype,
        shape,
        _dense_strides(shape, size) if strides is None else tuple(int(s) for s in strides),
        size,
        not read_only,
        array,
        CUDA if device >= 0 else lib.WEFT_MEMORY_ANY,
        max(0, device),
        None if interface_stream(interface) is None else array,
    )


# ---- DLPack ----


def _dlpack_kind(array: Any) -> Tuple[int, int]:
    """The kind of memory, and the device."""
    kind, number = (int(n) for n in array.__dlpack_device__())
    if kind in _DLPACK_CPU:
        return _HOST, 0
    if kind == DLPACK_CUDA:
        return CUDA, number
    raise UnsupportedError(
        f"the array is on a device of DLPack's type {kind}: weft moves memory of the host and of CUDA devices"
        + " that is not managed" * (kind == 13)
    )


def _capsule_of(array: Any, kind: int) -> Any:
    """Bind does not touch the elements, so the array's library need not wait for anything: a run is ordered when it starts."""
    how = {"stream": _NO_ORDER} if kind == CUDA else {}
    if kind == CUDA and hasattr(array, "block_until_ready"):  # JAX's never change: what is computed now stays
        array.block_until_ready()
        how = {}
    try:
        return array.__dlpack__(max_version=(1, 0), **how)
    except TypeError:  # of before DLPack 1.0
        return array.__dlpack__(**how)


def _of_dlpack(array: Any) -> Memory:
    if hasattr(array, "addressable_shards") and len(array.sharding.device_set) > 1:
        raise ArrayError("this is a jax.Array on several devices: weft.jax_local(array) is this process's part of it")
    kind, device = _dlpack_kind(array)
    capsule = _capsule_of(array, kind)
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
        strides = _dense_strides(shape, size)
    else:
        strides = tuple(t.strides[i] * size for i in range(t.ndim))
    address = int(ffi.cast("uintptr_t", t.data)) + t.byte_offset
    return Memory(address, dtype, shape, strides, size, writable, (capsule, array), kind, device)


def memory_of(array: Any) -> Memory:
    """The memory of an array of NumPy, PyTorch, CuPy or JAX, or of whatever speaks ``__array_interface__``,
    ``__cuda_array_interface__``, the buffer protocol or DLPack. Nothing is copied."""
    if isinstance(array, Memory):
        return array
    if isinstance(array, Bits):
        inner = memory_of(array.array)
        return inner._replace(dtype=array.dtype)
    if isinstance(array, np.ndarray):
        return _of_numpy(array)
    if is_torch(array):
        return _of_torch(array)
    if not hasattr(array, "block_until_ready"):  # JAX's arrays say more by DLPack: bf16, and whether they are sharded
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return _of_cuda_interface(array, interface)
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


def host_memory_of(array: Any, what: str) -> Memory:
    """The memory of an array, which has to be the host's."""
    memory = memory_of(array)
    if memory.on_device:
        raise UnsupportedError(f"{what}: the array is on a device: copy it into host memory first")
    return memory


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
    if which._desc.boxes and memory.dense and math.prod(memory.shape) >= local.elements:  # a flat buffer, whatever its shape is
        memory = memory._replace(shape=local.shape, strides=(memory.itemsize,) * len(local.shape))
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
