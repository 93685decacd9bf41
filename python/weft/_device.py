"""Memory of CUDA devices that weft allocates, and the streams that order runs. No library of arrays is imported here."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, Iterable, Optional, Set, Tuple

from . import _dtypes
from ._arrays import DLPACK_CUDA, Memory, interface_stream, is_torch
from ._errors import ArrayError, InvalidError
from ._weft import ffi, lib

__all__ = ["DeviceArray"]

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_DLTENSOR, _VERSIONED = b"dltensor", b"dltensor_versioned"  # a capsule refers to its name for as long as it lives
_CAPSULE_END = int(ffi.cast("uintptr_t", ffi.addressof(lib, "weft_python_capsule_end")))
_NO_TYPESTR = ("bf16", "f8e4m3", "f8e5m2")
_LEGACY = 1  # of CUDA's array interface and of DLPack: the default stream, which the driver calls NULL


# ---- devices ----


def device_number(device: Any) -> Optional[int]:
    """The number of a CUDA device by its name, such as "cuda:1", or by a torch.device. None: it is the host."""
    text = str(device)
    kind, colon, number = text.partition(":")
    if kind == "cpu" and not colon:
        return None
    if kind != "cuda" or colon and not number.isdecimal():
        raise InvalidError(f"there is no device {text!r}: weft has 'cpu', 'cuda' and 'cuda:0', 'cuda:1', ...")
    if colon:
        return int(number)
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return 0


# ---- arrays ----


class DeviceArray:
    """Memory on a device, for one rank's part of a layout, made by ``comm.empty(layout, device="cuda")``.

    It computes nothing by itself: ``torch.from_dlpack``, ``torch.as_tensor`` and ``cupy.asarray`` make arrays of it without a
    copy, and plans can be bound to it. The memory lives as long as the last of these.
    """

    def __init__(self, owner: Any, address: int, dtype: str, shape: Tuple[int, ...], device: int) -> None:
        self._owner = owner
        self._address = address
        self.dtype = dtype  #: weft's name of the element type
        self.shape = shape
        self.itemsize = _dtypes.size_of(dtype)
        self.device = f"cuda:{device}"  #: where it is
        self._number = device

    @property
    def nbytes(self) -> int:
        """All elements together."""
        count = self.itemsize
        for n in self.shape:
            count *= n
        return count

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.dtype in _NO_TYPESTR:  # then hasattr is False, and consumers ask for DLPack
            raise AttributeError(f"__cuda_array_interface__ has no name for {self.dtype}: use DLPack, such as torch.from_dlpack")
        return {
            "version": 3,
            "data": (self._address, False),
            "shape": self.shape,
            "strides": None,
            "typestr": _dtypes.to_numpy(self.dtype).str,
            "stream": None,
        }

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (DLPACK_CUDA, self._number)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """DLPack's capsule. It waits for nothing: runs that write the memory are ordered by the stream that they were started on."""
        if stream == 0:
            raise InvalidError("__dlpack__: stream 0 has two meanings for CUDA: 1 is the default stream, 2 that of the thread")
        if copy or dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on {self.device}, and is shared without a copy: a plan of weft copies it elsewhere")
        versioned = max_version is not None and max_version[0] >= 1
        code, bits = _dtypes.to_dlpack(self.dtype)
        shape = ffi.new("int64_t[]", self.shape or (0,))
        managed = lib.weft_python_dlpack(
            id(self), versioned, ffi.cast("void *", self._address), self._number, code, bits, len(self.shape), shape
        )
        if managed == ffi.NULL:
            raise MemoryError
        return _new_capsule(int(ffi.cast("uintptr_t", managed)), _VERSIONED if versioned else _DLTENSOR, _CAPSULE_END)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"the memory is on {self.device}, which the host cannot read: move it into host memory by a plan")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dims has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<weft.DeviceArray {self.dtype} {self.shape} on {self.device}>"


def device_array(owner: Any, address: int, dtype: str, shape: Tuple[int, ...], device: int, torch: bool) -> Any:
    """An array in memory of a device, that keeps the owner alive: weft's, or a tensor of PyTorch."""
    array = DeviceArray(owner, address, dtype, shape, device)
    if not torch:
        return array
    import torch as pytorch

    if not array.nbytes:
        return pytorch.empty(shape, dtype=_dtypes.to_torch(dtype), device=array.device)
    return pytorch.from_dlpack(array)


# ---- streams ----


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream: an int, a torch.cuda.Stream, a cupy.cuda.Stream, or what has ``__cuda_stream__``."""
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version == 0:
            return int(handle)
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise InvalidError(
        f"stream is {stream!r}: give the handle as an int, a torch.cuda.Stream, a cupy.cuda.Stream, or 'host' if the arrays are "
        "ready without any stream"
    )


def finish_work(devices: Iterable[int]) -> None:
    """Waits for what is in PyTorch's current streams, if PyTorch uses CUDA in this process."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for device in devices:
            torch.cuda.current_stream(device).synchronize()


class Order:
    """Which stream runs on some memories are ordered by, if the caller names none."""

    def __init__(self, memories: Iterable[Optional[Memory]]) -> None:
        self.devices: Set[int] = set()  # of tensors of PyTorch
        self.arrays: Dict[int, Any] = {}  # whose interfaces name streams
        for m in memories:
            if m is not None and m.on_device and m.order is not None:
                if is_torch(m.order):
                    self.devices.add(m.device)
                else:
                    self.arrays[id(m.order)] = m.order

    def stream(self) -> Optional[int]:
        """The one stream that all arrays name now; None: they name none."""
        named: Set[int] = set()
        if self.devices:
            torch: Any = sys.modules["torch"]
            named |= {int(torch.cuda.current_stream(d).cuda_stream) for d in self.devices}
        for array in self.arrays.values():
            stream = interface_stream(array.__cuda_array_interface__)
            if stream is not None:
                named.add(0 if stream == _LEGACY else stream)
        if len(named) > 1:
            raise ArrayError(
                f"the arrays are ordered by {len(named)} streams, {', '.join(map(hex, sorted(named)))}: give stream= the one that waits "
                "for the others"
            )
        return named.pop() if named else None


def order_of(memories: Iterable[Optional[Memory]]) -> Optional[Order]:
    """None if no stream can matter: all memory is the host's, or no array says anything of streams."""
    order = Order(memories)
    return order if order.devices or order.arrays else None
