"""The simulated device (weft_sim.so) for the tests: streams, which a program would make by CUDA's own library."""

import ctypes
import os
import pathlib
import re

import weft

_HEADER = pathlib.Path(__file__).parents[2] / "src" / "device" / "device.h"
_ABI = int(re.search(r"#define DEVICE_ABI (\d+)", _HEADER.read_text())[1])
_NAMES = "count open close owner facts alloc free share map unmap pin pin_read unpin health stream_open stream_close sync idle"


class _Device(ctypes.Structure):
    _fields_ = [("ops", ctypes.c_void_p), ("number", ctypes.c_int), ("id", ctypes.c_ubyte * 16)]


class _Ops(ctypes.Structure):
    """The beginning of struct device_ops."""

    _fields_ = [("abi", ctypes.c_uint32), ("name", ctypes.c_char_p), *((name, ctypes.c_void_p) for name in _NAMES.split())]


_ERROR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p)


def module():
    """Where the module is: beside the package, or in the folder of WEFT_MODULES; None if it was not built."""
    for folder in (os.environ.get("WEFT_MODULES"), os.path.dirname(weft.__file__)):
        if folder and (pathlib.Path(folder) / "weft_sim.so").exists():
            return pathlib.Path(folder) / "weft_sim.so"
    return None


class Streams:
    """Streams of device 0, in a process that does not fork afterwards."""

    def __init__(self):
        library = ctypes.CDLL(str(module()))
        self.ops = _Ops.in_dll(library, "weft_device_ops")
        assert self.ops.abi == _ABI and self.ops.name == b"sim"
        self.error = _ERROR(lambda code, form: code)
        self.device = ctypes.POINTER(_Device)()
        self._call("open", (ctypes.c_int, _ERROR, ctypes.c_void_p), 0, self.error, ctypes.addressof(self.device))

    def _call(self, name, types, *arguments):
        code = ctypes.CFUNCTYPE(ctypes.c_int, *types)(getattr(self.ops, name))(*arguments)
        assert code == 0, name

    def new(self):
        stream = ctypes.c_void_p()
        self._call("stream_open", (ctypes.c_void_p, ctypes.c_void_p), self.device, ctypes.addressof(stream))
        return stream.value

    def sync(self, stream):
        self._call("sync", (ctypes.c_void_p, ctypes.c_void_p), self.device, stream)
