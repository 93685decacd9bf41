"""Checkpoints: safetensors files from one parallelism to another. The work is done by the C library."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Union

from . import _dtypes
from ._errors import InvalidError, failure, text_of
from ._weft import ffi, lib

__all__ = ["CheckpointInfo", "checkpoint_rules", "reshard_checkpoint"]

Progress = Callable[[int, int], object]
_FUSED = {"keep": lib.WEFT_FUSED_KEEP, "join": lib.WEFT_FUSED_JOIN, "split": lib.WEFT_FUSED_SPLIT}
_BAR = 40


class CheckpointInfo(NamedTuple):
    """What :func:`reshard_checkpoint` did."""

    tensors: int  #: names in the output; fused ones count once
    files_in: int
    files_out: int
    bytes_in: int  #: of tensors, read
    bytes_out: int  #: of tensors, written


class Call:
    """One call: what hears of its progress, and the exception that it raised there, if any."""

    def __init__(self, heard: Optional[Progress]) -> None:
        self.heard = heard
        self.raised: Optional[BaseException] = None
        self.thread: Optional[int] = None  # that is in a callback now

    def tell(self, hears: Callable[..., Any], *about: Any) -> None:
        self.thread = threading.get_ident()
        try:
            hears(*about)
        finally:
            self.thread = None


def stop(kind: Any, raised: BaseException, trace: Any) -> None:
    """It is raised again when the library has cleaned up."""
    call: Call = ffi.from_handle(trace.tb_frame.f_locals["arg"])
    call.raised = raised


# An interrupt is raised at the very beginning of the function, where it could not be caught inside.
@ffi.def_extern(error=lib.WEFT_EINVAL, onerror=stop)  # type: ignore[untyped-decorator]
def weft_python_progress(arg: Any, done: int, size: int) -> int:
    """Called by the thread that waits in the library: exceptions, an interrupt of the user's too, stop it."""
    call: Call = ffi.from_handle(arg)
    if call.heard is not None:
        call.tell(call.heard, done, size)
    return 0


def show_bar(done: int, size: int) -> None:
    full = _BAR * done // size if size else _BAR
    sys.stderr.write(f"\r\033[K[{'#' * full}{'.' * (_BAR - full)}] {done / 1e9:.2f} of {size / 1e9:.2f} GB")
    sys.stderr.flush()


def checkpoint_rules() -> Dict[str, str]:
    """The texts of the rules that come with weft, by name: to use as they are, or to start from."""
    rules: Dict[str, str] = {}
    while True:
        name = lib.weft_checkpoint_rules_name(len(rules))
        if name == ffi.NULL:
            return rules
        rules[text_of(name)] = text_of(lib.weft_checkpoint_rules(name))


def reshard_checkpoint(
    source: Union[str, "os.PathLike[str]"],
    target: Union[str, "os.PathLike[str]"],
    to: str,
    *,
    rules: Union[None, str, "os.PathLike[str]"] = None,
    from_mesh: Optional[str] = None,
    values: Optional[Mapping[str, int]] = None,
    dtype: Optional[str] = None,
    fused: str = "keep",
    memory: int = 0,
    threads: int = 0,
    shard: int = 0,
    force: bool = False,
    progress: Union[None, bool, Progress] = None,
) -> CheckpointInfo:
    """Reads the safetensors files of ``source`` and writes them to ``target`` as the ranks of the mesh ``to`` hold them.

    ``source`` is a file, a folder with an index, a folder that this function wrote, or the files of ranks with ``%r`` for the
    rank (then ``from_mesh`` says which mesh, as in ``"tp8"``). ``target`` is a folder with a file for each rank, or for
    one rank also a file ``NAME.safetensors``; it appears complete or not at all. ``rules`` is one of :func:`checkpoint_rules`, a file of
    your own, or None for those of the model_type in config.json; ``values`` has the numbers that it asks for, where the source's config.json does not. ``dtype`` casts floats;
    ``fused`` is ``"keep"``, ``"join"`` or ``"split"``. ``memory`` bounds the buffers (256 MiB). ``progress`` is called with the
    bytes done and the bytes in all; by default a bar is shown where stderr is a terminal. docs/checkpoints.md tells it at length.
    """
    if fused not in _FUSED:
        raise InvalidError(f"fused is {fused!r}: it is one of {', '.join(_FUSED)}")
    if dtype is not None and dtype not in _dtypes.CODES:
        raise InvalidError(f"there is no dtype {dtype!r}: {', '.join(_dtypes.CODES)}")
    bar = progress is True or (progress is None and sys.stderr is not None and sys.stderr.isatty())
    call = Call(show_bar if bar else progress if callable(progress) else None)
    handle = ffi.new_handle(call)
    texts = [ffi.new("char[]", f"{name}={number}".encode()) for name, number in (values or {}).items()]
    keep = [ffi.new("const char *[]", texts)]

    def text(value: Any) -> Any:
        if value is None:
            return ffi.NULL
        raw = os.fsencode(value)
        if b"\0" in raw:
            raise InvalidError(f"{value!r} has a zero byte in it")
        keep.append(ffi.new("char[]", raw))
        return keep[-1]

    opts = ffi.new("weft_checkpoint_opts *")
    opts.size = ffi.sizeof("weft_checkpoint_opts")
    opts.rules = text(rules)
    setattr(opts, "from", text(from_mesh))  # a word of Python's own
    opts.set, opts.nset = keep[0], len(texts)
    opts.dtype = _dtypes.CODES[dtype] if dtype is not None else 0
    opts.fused, opts.force = _FUSED[fused], force
    opts.memory, opts.threads, opts.shard = memory, threads, shard
    opts.progress, opts.arg = lib.weft_python_progress, handle
    info = ffi.new("weft_checkpoint_info *")
    info.size = ffi.sizeof("weft_checkpoint_info")
    code = lib.weft_checkpoint_reshard(text(source), text(target), text(to), opts, info)
    error = failure(code) if code else None
    if bar:
        sys.stderr.write("\r\033[K")
    if call.raised is not None:
        raise call.raised
    if error is not None:
        raise error
    return CheckpointInfo(info.tensors, info.files_in, info.files_out, info.bytes_in, info.bytes_out)
