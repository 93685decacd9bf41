"""The bus: versions of sharded tensors between jobs that do not know each other. docs/bus.md has the rules."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping as MappingOf
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes
from ._arrays import Bits, array_at, memory_for, memory_of
from ._checkpoint import Call, show_bar, stop
from ._comm import Closing, nanoseconds
from ._convert import layout_text, mesh_text
from ._device import device_array, device_number, finish_work, order_of, stream_handle
from ._errors import ArrayError, BusyError, Error, InvalidError, TimeoutError, check, failure, filled, text_of
from ._exec import views_of
from ._jax import from_jax, jax_local
from ._layout import Layout, layout
from ._torch import from_torch
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._comm import Comm

__all__ = ["Bus", "Fetching", "Pin", "Publisher", "Subscriber", "Version", "VersionInfo", "bus"]

_LOOK = 0.5  # seconds; between two of them Python looks for signals, so that Ctrl-C ends a wait for a version
_SLOW = {"refuse": False, "wait": True}


class Version(NamedTuple):
    """A version of a set: the publisher's epoch, and its step. They are ordered as tuples are."""

    epoch: int
    step: int


class VersionInfo(NamedTuple):
    """A committed version: ``holders`` of the publisher's ``ranks`` have a part that can be read now."""

    version: Version
    bytes: int
    ranks: int
    holders: int
    meta: Any  #: what :meth:`Publisher.commit` was given; None: nothing


def _version(v: Any) -> Version:
    return Version(int(v.epoch), int(v.step))


def _meta(raw: bytes) -> Any:
    """A text that is not of :meth:`Publisher.commit` is given as it is."""
    if not raw:
        return None
    text = raw.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _timeout(seconds: Optional[float], otherwise: int) -> int:
    return otherwise if seconds is None else nanoseconds(seconds)


# ---- what a user gives ----


def _is_pair(value: Any) -> bool:
    """(array, layout). What :func:`weft.bits` makes is a tuple, too."""
    return isinstance(value, (tuple, list)) and not isinstance(value, Bits) and len(value) == 2 and isinstance(value[1], (str, Layout))


def _layout_of(name: str, value: Any, alone: bool, rank: Optional[Callable[[Any], int]]) -> Layout:
    """The layout that a value of a dict stands for: a text, a Layout, a pair (array,
    layout), a DTensor, a sharded jax.Array, or an array of this process."""
    if _is_pair(value):
        return layout(value[1])
    if isinstance(value, (str, Layout)):
        return layout(value)
    try:
        if hasattr(value, "to_local") and hasattr(value, "placements"):
            return from_torch(value, rank=rank)
        if hasattr(value, "addressable_shards") and hasattr(getattr(value, "sharding", None), "spec"):
            return from_jax(value, rank=rank or (lambda device: int(device.process_index)))
        memory = memory_of(value)
    except Error as problem:
        raise type(problem)(f"{name!r}: {problem}") from None
    if not alone:
        raise ArrayError(f"{name!r}: an array says nothing of the other ranks: give a layout, such as 'f32[8/x,4] @x2'")
    return layout(layout_text(memory.dtype, [str(n) for n in memory.shape], mesh_text(["x"], [1], [0]), []))


def _cast(which: Layout, dtype: str) -> Layout:
    text = repr(which)
    return layout(dtype + text[text.index("[") :])


def _local(value: Any, rank: Optional[Callable[[Any], int]]) -> Any:
    if hasattr(value, "to_local") and hasattr(value, "placements"):
        return value.to_local().detach()
    if hasattr(value, "addressable_shards") and hasattr(getattr(value, "sharding", None), "spec"):
        return jax_local(value, rank=rank or (lambda device: int(device.process_index)))
    return value.detach() if hasattr(value, "detach") else value


def _tensors(names: Sequence[str], layouts: Sequence[Layout], dtypes: Sequence[str], sources: Sequence[Optional[str]]) -> Tuple[Any, List[Any]]:
    out, keep = ffi.new("weft_bus_tensor[]", max(1, len(names))), []
    for t, name, which, dtype, source in zip(out, names, layouts, dtypes, sources):
        chars = ffi.new("char[]", name.encode())
        t.name, t.layout = chars, which._ptr
        t.dtype = _dtypes.CODES[dtype] if dtype != which.dtype else 0
        keep += [chars, which]
        if source is not None:
            other = ffi.new("char[]", source.encode())
            t.__setattr__("from", other)
            keep.append(other)
    return out, keep


def _names(given: Any, call: str) -> Dict[str, Any]:
    if not isinstance(given, MappingOf):
        raise InvalidError(f"{call}: layouts is a dict of names to layouts or arrays, not {type(given).__name__}")
    if not given:
        raise InvalidError(f"{call}: there is no tensor")
    return {str(name): value for name, value in given.items()}


def _want(want: Union[str, int, None]) -> Any:
    """``latest``, ``newer``, ``>=40``, or a step."""
    out = ffi.new("weft_want *")
    if isinstance(want, bool):
        raise InvalidError("a version is 'latest', 'newer', a step, or '>=STEP', not a bool")
    if want is None or want == "latest":
        out.kind = lib.WEFT_WANT_LATEST
    elif want == "newer":
        out.kind = lib.WEFT_WANT_NEWER
    else:
        text = str(want).strip()
        at_least = text.startswith(">=")
        try:
            out.step = int(text[2:] if at_least else text)
        except (ValueError, OverflowError):
            raise InvalidError(f"a version is 'latest', 'newer', a step, or '>=STEP', not {want!r}") from None
        out.kind = lib.WEFT_WANT_AT_LEAST if at_least else lib.WEFT_WANT_STEP
    return out


def _arrays_into(which: Mapping[str, Layout], into: Mapping[str, Any], rank: int, rank_of: Any) -> Tuple[Any, Dict[str, int], Any]:
    """Views of the arrays in which a subscriber's versions live, the devices of those that are on one, and what they need."""
    missing = [n for n, w in which.items() if n not in into and w.local(rank).elements]
    strange = [n for n in into if n not in which]
    if missing or strange:
        raise InvalidError(f"subscribe: into: {_differences(missing, strange)}")
    arrays = {n: _local(into[n], rank_of) for n in which if n in into}
    memories = [memory_for(arrays.get(n), w, rank, f"into {n!r}", True) for n, w in which.items()]
    views, keep = views_of(memories)
    return views, {n: m.device for n, m in zip(which, memories) if m is not None and m.on_device}, (keep, arrays)


# ---- the bus ----


class _Handle:
    """Owns an object of weft/bus.h, and what must outlive it."""

    def __init__(self, ptr: Any, free: Callable[[Any], Any], *keep: Any) -> None:
        self.ptr, self._free, self._keep = ptr, free, keep
        self._process = os.getpid()

    def get(self) -> Any:
        if self.ptr is None:
            raise InvalidError("it is closed")
        return self.ptr

    def close(self) -> None:
        ptr, self.ptr = self.ptr, None
        if ptr is not None and self._process == os.getpid():  # a forked child has no part in it
            self._free(ptr)

    def __del__(self) -> None:
        self.close()


class Bus(Closing):
    """A process on the bus, made by :func:`weft.bus`."""

    def __init__(self, handle: _Handle, url: str) -> None:
        self._handle, self.url = handle, url

    @property
    def job(self) -> str:
        """The name of this process in the directory and in errors."""
        return text_of(lib.weft_bus_job(self._handle.get()))

    def metrics(self) -> str:
        """What this process has done on the bus, as OpenMetrics text."""
        return filled(lambda buf, cap, n: lib.weft_bus_metrics(self._handle.get(), buf, cap, n)).decode()

    def versions(self, name: str, timeout: Optional[float] = None) -> List[VersionInfo]:
        """The committed versions of a set, in ascending order."""
        n, room = ffi.new("size_t *"), 16
        while True:
            out = ffi.new("weft_bus_version[]", room)
            check(lib.weft_bus_versions(self._handle.get(), name.encode(), _timeout(timeout, lib.WEFT_DEADLINE), out, room, n))
            if n[0] <= room:
                break
            room = n[0]
        return [
            VersionInfo(_version(v.version), v.bytes, v.ranks, v.holders, _meta(bytes(ffi.buffer(v.meta, v.meta_len))))
            for v in out[0 : n[0]]
        ]

    def describe(self, name: str, want: Union[str, int, None] = "latest", timeout: Optional[float] = None) -> Dict[str, Layout]:
        """The tensors of a version, with the layouts of its publisher: what there is to subscribe to."""
        return self._described(name, want, timeout)[1]

    def _described(self, name: str, want: Union[str, int, None], timeout: Optional[float]) -> Tuple[Version, Dict[str, Layout]]:
        out = ffi.new("weft_bus_set **")
        check(lib.weft_bus_describe(self._handle.get(), name.encode(), _want(want), _timeout(timeout, lib.WEFT_DEADLINE), out))
        handle, n = _Handle(out[0], lib.weft_bus_set_free), ffi.new("size_t *")
        tensors = lib.weft_bus_set_tensors(handle.get(), n)

        def text(which: Any) -> str:
            return filled(lambda buf, cap, length: lib.weft_layout_format(which, buf, cap, length)).decode()

        version = lib.weft_bus_set_version(handle.get())
        return _version(version), {text_of(t.name): layout(text(t.layout)) for t in tensors[0 : n[0]]}

    def publish(
        self,
        name: str,
        layouts: Mapping[str, Any],
        *,
        dtype: Optional[str] = None,
        rank: int = 0,
        ranks: int = 0,
        comm: "Optional[Comm]" = None,
        run: Optional[str] = None,
        keep: Optional[int] = None,
        slow: str = "refuse",
        digest: bool = True,
        lend: bool = False,
        timeout: Optional[float] = None,
        threads: int = 0,
        rank_of: Optional[Callable[[Any], int]] = None,
    ) -> "Publisher":
        """Takes the next epoch of the set.

        ``layouts`` has a layout for each tensor of the set: a text, a DTensor, a sharded jax.Array, or, where there is one rank, any
        array. ``dtype`` publishes all floating tensors as that type: arrays are cast when they are put. A pair (array, layout) says
        both for one tensor: arrays of that type are put, and the layout is published. With several ranks there is a ``comm`` of them, or each gives its ``rank`` of ``ranks`` and a name ``run``
        that all ranks of this start have in common and no other start has. Memory is ``keep`` times what the rank holds (2 times by default;
        with ``lend`` none: versions are lent only). With
        ``slow="wait"``, put waits for readers of the oldest version; otherwise it raises BusyError if all versions are being read.
        ``threads`` copy during put, the one that puts among them; 0: as many as this rank has cores, at most 4.
        """
        given = _names(layouts, "publish")
        if slow not in _SLOW:
            raise InvalidError(f"publish: slow is one of {', '.join(map(repr, _SLOW))}, not {slow!r}")
        alone = comm is None and ranks <= 1
        here = comm.rank if comm is not None else rank
        which = {n: _layout_of(n, v, alone, rank_of) for n, v in given.items()}
        if dtype is not None:
            to = _dtypes.of_any(dtype)
            which = {n: _cast(w, to) if w.dtype.startswith(("f", "bf")) else w for n, w in which.items()}
        sums = [n for n, w in which.items() if w.folds]
        if sums:
            raise InvalidError(f"publish: {sums[0]!r} has partial sums, which are folded in C only: reduce it first")
        opts = ffi.new("weft_publish_opts *")
        opts.size = ffi.sizeof("weft_publish_opts")
        opts.rank, opts.ranks, opts.keep = here, ranks if comm is None else 0, keep or 0
        opts.wait, opts.no_digest, opts.lend = _SLOW[slow], not digest, lend
        opts.timeout_ns, opts.threads = _timeout(timeout, 0), threads
        chars = ffi.new("char[]", run.encode()) if run is not None else ffi.NULL
        opts.run = chars
        if comm is not None:
            opts.comm = comm._open().ptr
        return Publisher(self, name, which, given, opts, here, rank_of, (chars, comm))

    def subscribe(
        self,
        name: str,
        layouts: Mapping[str, Any],
        *,
        comm: "Optional[Comm]" = None,
        rank: int = 0,
        only: bool = False,
        aliases: Optional[Mapping[str, str]] = None,
        digest: bool = True,
        torch: bool = False,
        progress: Union[None, bool, Callable[[int, int], Any]] = None,
        arrived: Optional[Callable[[Version, str, Any], Any]] = None,
        into: Optional[Mapping[str, Any]] = None,
        direct: bool = False,
        alone: bool = False,
        delta: bool = True,
        device: Any = None,
        threads: int = 0,
        rank_of: Optional[Callable[[Any], int]] = None,
    ) -> "Subscriber":
        """Says which tensors of a set this job wants, and how it holds them. The set need not be published yet.

        ``layouts`` is as in :meth:`publish`. ``comm`` has the ranks of this job: then verify, fetch, swap and close are collective.
        Without one, this process fetches and swaps alone, as ``rank`` of the layouts. Tensors of the set that are not named are an
        error, unless ``only``. ``aliases`` gives the names in the set of tensors that have another one here. ``torch`` gives tensors
        of PyTorch. ``progress(done, total)`` is called during a fetch; True shows a bar, if stderr is a terminal. ``arrived(version, name, array)``
        is called for each tensor as soon as it is staged and checked; the array is for this call only. If the fetch has to begin again, all arrive
        again. An exception in either stops the fetch.

        ``into`` has an array for each tensor, where versions are to live: swap copies into them, when all ranks have staged and checked the
        version, and waits until no pin is held. With ``direct``, fetch writes into them at once, without memory to stage; :meth:`Subscriber.use` is
        then refused until a fetch was whole and is swapped. These arrays may be on a CUDA device.

        With ``device="cuda"`` or ``"cuda:1"`` versions live in memory of that device: arrays are :class:`weft.DeviceArray`, or tensors of PyTorch
        with ``torch``. A pin is given back when the work that reads its arrays has ended; for PyTorch's current stream weft waits by itself.

        Data of another host is pulled once for all readers of this host, as changed elements where that is shorter. ``alone`` pulls for this rank only, with less
        memory and more traffic; without ``delta`` it is pulled whole. ``threads`` copy during fetch, the one that fetches among them; 0: as many as
        this rank has cores, at most 4.

        A tensor whose layout is boxes has a flat array. As an array of ``into`` it may be of any shape, dense, and longer than the boxes reach, and
        several tensors may be in one: only the elements of their boxes are written. Such a tensor arrives as its boxes alone, one behind the other.
        """
        given = _names(layouts, "subscribe")
        here = comm.rank if comm is not None else rank
        which = {n: _layout_of(n, v, comm is None, rank_of) for n, v in given.items()}
        known = dict(aliases or {})
        strange = sorted(set(known) - set(which))
        if strange:
            raise InvalidError(f"subscribe: aliases has {', '.join(map(repr, strange))}, which layouts has not")
        bar = progress is True and sys.stderr is not None and sys.stderr.isatty()
        heard = show_bar if bar else progress if callable(progress) else None
        opts = ffi.new("weft_subscribe_opts *")
        opts.size = ffi.sizeof("weft_subscribe_opts")
        opts.rank, opts.only, opts.no_check = here, only, not digest
        opts.alone, opts.no_delta, opts.threads = alone, not delta, threads
        if comm is not None:
            opts.comm = comm._open().ptr
        keep: Any = None
        devices: Dict[str, int] = {}
        if into is not None:
            views, devices, more = _arrays_into(which, into, here, rank_of)
            keep, opts.into, opts.direct = (views, more), views, direct
        elif direct:
            raise InvalidError("subscribe: direct is for arrays of yours: give them as into")
        number = None if device is None else device_number(device)
        if number is not None and into is not None:
            raise InvalidError("subscribe: device says where versions live, and with into they live in your arrays: give one of them")
        if number is not None:
            opts.memory, opts.device = lib.WEFT_MEMORY_CUDA, number
            devices = dict.fromkeys(which, number)
        call = _Calls(heard, arrived, bar)
        return Subscriber(self, name, which, [known.get(n) for n in which], opts, here, torch, devices, call, comm, keep)

    def close(self) -> None:
        """Its publishers and subscribers have to be closed before."""
        ptr = self._handle.ptr
        if ptr is not None:
            check(lib.weft_bus_close(ptr))
            self._handle.ptr = None

    def __repr__(self) -> str:
        return f"weft.Bus({self.url!r}{', closed' * (self._handle.ptr is None)})"


def bus(
    url: str,
    *,
    token: Optional[str] = None,
    job: Optional[str] = None,
    deadline: Optional[float] = None,
    lease: Optional[float] = None,
    listen: Optional[str] = None,
    metrics: Optional[str] = None,
) -> Bus:
    """Opens the directory in which jobs find each other: ``file:DIR`` for processes of one user on one machine, ``tcp:HOST:PORT/SPACE`` of
    ``weft bus serve``, or ``etcd:http://HOST:PORT/SPACE``.

    ``token`` is by default that of WEFT_TOKEN or WEFT_TOKEN_FILE. ``deadline`` is for calls that have no timeout (30 s), and after ``lease``
    seconds (10) others take this process for gone if it does not answer. ``listen="HOST:PORT"`` lets other hosts pull what this
    process publishes. ``metrics`` is a file that has the text of :meth:`Bus.metrics`; it is written anew after a
    commit, a swap or a call that fails, at most once a second, and when the bus is closed.
    """
    opts = ffi.new("weft_bus_opts *")
    opts.size = ffi.sizeof("weft_bus_opts")
    texts = [ffi.new("char[]", text.encode()) if text is not None else ffi.NULL for text in (token, job, listen, metrics)]
    opts.token, opts.job, opts.listen, opts.metrics = texts
    opts.deadline_ns, opts.lease_ns = _timeout(deadline, 0), _timeout(lease, 0)
    out = ffi.new("weft_bus **")
    check(lib.weft_bus_open(url.encode(), opts, out))
    return Bus(_Handle(out[0], lib.weft_bus_close), url)


# ---- publishing ----


class Publisher(Closing):
    """What :meth:`Bus.publish` returns. One thread at a time uses it."""

    def __init__(self, bus: Bus, name: str, which: Dict[str, Layout], given: Mapping[str, Any], opts: Any, rank: int, rank_of: Any, keep: Any) -> None:
        self.name, self.rank = name, rank
        self._rank_of = rank_of
        self._layouts = which
        # Arrays that are put have the types of those that were given here; with a text, that of the text.
        self._dtypes = {n: _given_dtype(given[n]) for n in which}
        tensors, _keep = _tensors(list(which), list(which.values()), [self._dtypes[n] for n in which], [None] * len(which))
        out = ffi.new("weft_publisher **")
        check(lib.weft_publish(bus._handle.get(), name.encode(), tensors, len(which), opts, out))
        self._handle = _Handle(out[0], lib.weft_publisher_close, bus._handle, keep)

    @property
    def layouts(self) -> Dict[str, Layout]:
        """What is published."""
        return dict(self._layouts)

    @property
    def epoch(self) -> int:
        """Which start of a publisher of this set this is."""
        return int(lib.weft_publisher_epoch(self._handle.get()))

    def _views(self, call: str, arrays: Mapping[str, Any]) -> Tuple[Any, Any]:
        missing = [n for n in self._layouts if n not in arrays]
        strange = [n for n in arrays if n not in self._layouts]
        if strange or any(self._layouts[n].local(self.rank).elements for n in missing):
            raise InvalidError(f"{call}: {_differences(missing, strange)}")
        memories = []
        for name, which in self._layouts.items():
            array = _local(arrays[name], self._rank_of) if name in arrays else None
            fits = _cast(which, self._dtypes[name]) if self._dtypes[name] != which.dtype else which
            memories.append(memory_for(array, fits, self.rank, f"{call} {name!r}", False))
        views, keep = views_of(memories)
        return views, (keep, memories)

    def put(self, step: int, arrays: Mapping[str, Any], stream: Any = None) -> None:
        """Copies this rank's part of every tensor into memory of the bus, and casts it. The arrays are free on return.

        Arrays may be on a CUDA device: it casts them, after the work of the stream that they name (PyTorch's current one, CuPy's). Others must be ready.
        ``stream`` is another one that is to be awaited, or ``"host"``: the arrays are ready.
        """
        views, (_keep, memories) = self._views("put", arrays)
        order = order_of(memories)
        if isinstance(stream, str) and stream == "host":
            handle = None
        elif stream is not None:
            handle = stream_handle(stream)
        else:
            handle = None if order is None else order.stream()
        if handle is None:
            check(lib.weft_put(self._handle.get(), step, views))
        else:
            check(lib.weft_put_on(self._handle.get(), step, views, ffi.cast("void *", handle)))

    @contextmanager
    def lend(self, step: int, arrays: Mapping[str, Any], meta: Any = None, wait: float = 0) -> Iterator[bool]:
        """Publishes the arrays where they are, without a copy, until the ``with`` block ends: ``with pub.lend(step, arrays): ...``.

        They are dense and of the published type, and are not written to in the block. The version is committed when it begins; the
        value is what :meth:`commit` returns. At its end the version goes: readers that have begun may end within ``wait`` seconds, others look for another version.
        """
        views, _keep = self._views("lend", arrays)
        limit = nanoseconds(wait)  # a value that is none is refused before anything is lent
        check(lib.weft_lend(self._handle.get(), step, views))
        try:
            yield self.commit(step, meta)
        finally:
            if self._handle.ptr is not None:
                code = lib.weft_lend_end(self._handle.ptr, limit)
                if code != lib.WEFT_ETIMEOUT:  # readers that were not done are no fault of the lender
                    check(code)

    def commit(self, step: int, meta: Any = None) -> bool:
        """Makes the version visible when all ranks have committed it; whether this call has done that. ``meta`` is anything that
        JSON has, for readers; that of rank 0 counts."""
        visible = ffi.new("bool *")
        text = ffi.NULL if meta is None else ffi.new("char[]", json.dumps(meta).encode())
        check(lib.weft_commit(self._handle.get(), step, text, visible))
        return bool(visible[0])

    def close(self) -> None:
        """Its versions go."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"weft.Publisher({self.name!r}{', closed' * (self._handle.ptr is None)})"


def _given_dtype(value: Any) -> str:
    if isinstance(value, (str, Layout)):
        return layout(value).dtype
    return memory_of(_local(value[0] if _is_pair(value) else value, None)).dtype


def _differences(missing: Sequence[str], strange: Sequence[str]) -> str:
    parts = [f"there is no array for {', '.join(map(repr, missing))}"] * bool(missing)
    parts += [f"{', '.join(map(repr, strange))} is not published"] * bool(strange)
    return "; ".join(parts)


# ---- subscribing ----


class _Held:
    """A pin of the library, until the last array in it is gone."""

    def __init__(self, ptr: Any, owner: "_Owner", devices: Mapping[str, int]) -> None:
        self.ptr, self.owner, self.devices = ptr, owner, set(devices.values())
        with owner.lock:
            owner.pins += 1

    def __del__(self) -> None:
        mine = self.owner.handle._process == os.getpid()
        try:
            if mine:
                finish_work(self.devices)
        finally:  # also if the device has failed: otherwise the next fetch would wait for this pin
            if mine:
                lib.weft_unuse(self.ptr)
            with self.owner.lock:
                self.owner.pins -= 1


class _Owner:
    """A subscriber's handle, with the number of its pins."""

    def __init__(self, handle: _Handle) -> None:
        self.handle = handle
        self.lock = threading.RLock()  # the garbage collector may end a pin at any place
        self.pins = 0


def _array(owner: Any, data: Any, dtype: str, shape: Tuple[int, ...], torch: bool, device: Optional[int]) -> Any:
    """An array for reading, in host memory or on a device."""
    address = int(ffi.cast("uintptr_t", data))
    if device is not None:
        return device_array(owner, address, dtype, shape, device, torch)
    array = array_at(owner, address, dtype, shape, torch)
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


class Pin(MappingOf):  # type: ignore[type-arg]
    """One version's tensors by name, which do not change while the pin is held: ``with sub.use() as w: w["embed"]``.

    The memory is given back when the ``with`` has ended and no array of it is left. Arrays are for reading.
    """

    def __init__(self, held: _Held, layouts: Mapping[str, Layout], rank: int, torch: bool, devices: Mapping[str, int]) -> None:
        self._held: Optional[_Held] = held
        self._layouts, self._rank, self._torch, self._devices = layouts, rank, torch, devices
        self._index = {name: i for i, name in enumerate(layouts)}
        self.version = _version(lib.weft_pin_version(held.ptr))

    @property
    def _pin(self) -> _Held:
        if self._held is None:
            raise InvalidError("the pin was given back: use the arrays inside 'with sub.use() as w'")
        return self._held

    @property
    def meta(self) -> Any:
        """What :meth:`Publisher.commit` was given; None: nothing."""
        return _meta(filled(lambda buf, cap, n: lib.weft_pin_meta(self._pin.ptr, buf, cap, n)))

    def __getitem__(self, name: str) -> Any:
        which, held = self._layouts[name], self._pin
        data, size = ffi.new("void **"), ffi.new("int64_t *")
        check(lib.weft_pin_data(held.ptr, self._index[name], ffi.cast("const void **", data), size))
        shape = which.local(self._rank).shape
        return _array(held, data[0], which.dtype, shape, self._torch, self._devices.get(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)

    def __len__(self) -> int:
        return len(self._layouts)

    def close(self) -> None:
        """Gives the version back, as the end of ``with`` does."""
        self._held = None

    def __enter__(self) -> "Pin":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"weft.Pin({len(self._layouts)} tensors, {self.version})"


class _Calls(Call):
    """What hears of a fetch: its progress, and tensors that arrive."""

    def __init__(self, heard: Optional[Callable[[int, int], Any]], arrived: Optional[Callable[[Version, str, Any], Any]], bar: bool) -> None:
        super().__init__(heard)
        self.arrived, self.bar = arrived, bar
        self.names: Sequence[str] = ()
        self.layouts: Mapping[str, Layout] = {}
        self.rank, self.torch = 0, False
        self.devices: Mapping[str, int] = {}


@ffi.def_extern(error=lib.WEFT_EINVAL, onerror=stop)  # type: ignore[untyped-decorator]
def weft_python_arrived(arg: Any, version: Any, i: int, data: Any, size: int) -> int:
    """Called by the thread that fetches."""
    call: _Calls = ffi.from_handle(arg)
    if call.arrived is not None:
        name = call.names[i]
        which = call.layouts[name]
        shape = (size // _dtypes.size_of(which.dtype),) if which._desc.boxes else which.local(call.rank).shape
        array = _array(call, data, which.dtype, shape, call.torch, call.devices.get(name))
        call.tell(call.arrived, _version(version), name, array)
        if name in call.devices:  # the array is for this call only, and so is what the callback has put on a stream
            finish_work({call.devices[name]})
    return 0


class Fetching:
    """A fetch in the background, made by :meth:`Subscriber.start`. Until its end, the subscriber can be used, and nothing else.

    Any thread may call it. A callback of the fetch may cancel it, which then does not wait.
    """

    def __init__(self, subscriber: "Subscriber", ptr: Any) -> None:
        self._subscriber = subscriber
        self._handle: Optional[_Handle] = _Handle(ptr, lib.weft_fetching_free, subscriber._owner.handle)
        self._changed = threading.Condition()  # of what follows, and of the handle, which one thread takes away to free it
        self._inside = 0  # calls of the library with it
        self._result: Union[None, Version, BaseException] = None
        self._far = (0, 0)
        _running.add(self)

    @contextmanager
    def _using(self) -> Iterator[Any]:
        """What the library calls it, not freed before the end of the ``with``; None: it is freed."""
        with self._changed:
            ptr = self._handle.get() if self._handle is not None else None
            self._inside += ptr is not None
        try:
            yield ptr
        finally:
            if ptr is not None:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

    def _look(self, ptr: Any) -> Tuple[bool, int, int]:
        over, done, total = ffi.new("bool *"), ffi.new("int64_t *"), ffi.new("int64_t *")
        check(lib.weft_fetching_test(ptr, over, done, total))
        return bool(over[0]), int(done[0]), int(total[0])

    @property
    def over(self) -> bool:
        """Whether :meth:`wait` returns at once."""
        with self._using() as ptr:
            return ptr is None or self._look(ptr)[0]

    @property
    def progress(self) -> Tuple[int, int]:
        """Bytes that are staged, and of how many; (0, 0) as long as there is no version."""
        with self._using() as ptr:
            return self._far if ptr is None else self._look(ptr)[1:]

    def wait(self, timeout: Optional[float] = None) -> Version:
        """The version that is staged, or what the fetch has failed with. Raises TimeoutError if it is not over in time; then it goes on."""
        if self._subscriber._call.thread == threading.get_ident():
            raise InvalidError("wait: a callback of the fetch cannot wait for its end")
        until = None if timeout is None else time.monotonic() + timeout
        out = ffi.new("weft_epoch_step *")
        while self._result is None:
            left = _LOOK if until is None else max(0.0, until - time.monotonic())
            with self._using() as ptr:
                over = ptr is None or self._look(ptr)[0]
                code = 0 if ptr is None else lib.weft_fetching_wait(ptr, nanoseconds(min(left, _LOOK)), out)
                error = failure(code) if code else None
            if over or not isinstance(error, TimeoutError):
                self._end(error or _version(out))
            elif until is not None and until <= time.monotonic():
                raise error
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def _end(self, result: Union[Version, BaseException]) -> None:
        """Frees it, if no other thread does; then waits until that one has."""
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
            handle, self._handle = self._handle, None
            if handle is None:
                self._changed.wait_for(lambda: self._result is not None)
                return
            self._far = self._look(handle.get())[1:]
        handle.close()  # without the lock: a callback may ask how far it is
        raised = self._subscriber._heard()
        with self._changed:
            self._result = raised if raised is not None else result
            self._changed.notify_all()

    def cancel(self) -> None:
        """Stops the fetch, and waits until it has. The version that is live stays live."""
        with self._using() as ptr:
            if ptr is not None:
                lib.weft_fetching_cancel(ptr)
        if ptr is not None and self._subscriber._call.thread != threading.get_ident():
            self._end(InvalidError("the fetch was cancelled"))

    def __enter__(self) -> "Fetching":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"weft.Fetching({self._subscriber.name!r}, {'over' if self.over else '%d of %d bytes' % self.progress})"


_running: "weakref.WeakSet[Fetching]" = weakref.WeakSet()


@atexit.register
def _cancel_all() -> None:
    """No callback may come when the interpreter has ended."""
    process = os.getpid()
    for f in list(_running):
        if f._subscriber._owner.handle._process == process:
            f.cancel()


class Subscriber(Closing):
    """What :meth:`Bus.subscribe` returns. One thread at a time verifies, fetches, swaps and closes; any thread may use."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        which: Dict[str, Layout],
        sources: Sequence[Optional[str]],
        opts: Any,
        rank: int,
        torch: bool,
        devices: Mapping[str, int],
        call: _Calls,
        comm: "Optional[Comm]",
        keep: Any,
    ) -> None:
        self.name, self.rank = name, rank
        self._layouts, self._torch, self._devices, self._comm = which, torch, devices, comm
        self._call = call
        self._direct = bool(opts.direct)
        self._written = set(devices.values()) if keep is not None else set()  # devices of arrays into which swap writes, or fetch
        self._fetching: Callable[[], Optional[Fetching]] = lambda: None
        call.names, call.layouts, call.rank, call.torch, call.devices = list(which), which, rank, torch, devices
        self._arg = opts.arg = ffi.new_handle(call)
        if call.heard is not None:
            opts.progress = lib.weft_python_progress
        if call.arrived is not None:
            opts.arrived = lib.weft_python_arrived
        tensors, _keep = _tensors(list(which), list(which.values()), [w.dtype for w in which.values()], sources)
        out = ffi.new("weft_subscriber **")
        check(lib.weft_subscribe(bus._handle.get(), name.encode(), tensors, len(which), opts, out))
        self._owner = _Owner(_Handle(out[0], lib.weft_subscriber_close, bus._handle, comm, self._arg, call, keep))

    @property
    def _ptr(self) -> Any:
        return self._owner.handle.get()

    @property
    def layouts(self) -> Dict[str, Layout]:
        """What this job wants."""
        return dict(self._layouts)

    @property
    def version(self) -> Optional[Version]:
        """The version that is live here; None: none is yet."""
        try:
            with self.use() as pin:
                return pin.version
        except InvalidError:
            return None

    def _heard(self) -> Optional[BaseException]:
        """What a callback has raised. A bar is wiped."""
        if self._call.bar:
            sys.stderr.write("\r\033[K")
        raised, self._call.raised = self._call.raised, None
        return raised

    def _raise(self, code: int) -> None:
        error = failure(code) if code else None
        raised = self._heard()
        if raised is not None:
            raise raised
        if error is not None:
            raise error

    def _await(self, call: Callable[[Any, int, Any], int], want: Any, timeout: Optional[float]) -> Version:
        """Waits for a version in short turns, in which Python looks for signals. Ranks of a comm wait together, so in one turn."""
        out, until = ffi.new("weft_epoch_step *"), None if timeout is None else time.monotonic() + timeout
        while self._comm is None and timeout is not None and timeout > _LOOK:
            left = until - time.monotonic() if until is not None else 0
            if left <= _LOOK:
                break
            code = lib.weft_subscriber_verify(self._ptr, want, nanoseconds(_LOOK), out)
            if code != lib.WEFT_ETIMEOUT:
                break
        left_ns = lib.WEFT_DEADLINE if until is None else nanoseconds(max(0.0, until - time.monotonic()))
        self._raise(call(want, left_ns, out))
        return _version(out)

    def verify(self, want: Union[str, int, None] = "latest", timeout: Optional[float] = None) -> Version:
        """Proves, before a byte moves, that a version has all that this rank needs, and that live holders have it."""
        return self._await(lambda w, ns, out: lib.weft_subscriber_verify(self._ptr, w, ns, out), _want(want), timeout)

    def explain(self) -> str:
        """What the last verify or fetch has found: which bytes come from whom, and on which way."""
        return filled(lambda buf, cap, n: lib.weft_subscriber_explain(self._ptr, False, buf, cap, n)).decode()

    def _finish(self, writes: bool) -> None:
        """Before the caller's arrays on a device are written: PyTorch's current stream may read them still."""
        if writes and self._written:
            finish_work(self._written)

    def fetch(self, want: Union[str, int, None] = "latest", timeout: Optional[float] = None) -> Version:
        """Stages a version beside the live one, and checks it; without a timeout, until the bus's deadline.

        ``want`` is ``latest``, ``newer`` (than the live version), a step, or ``>=STEP``. The live version can be used meanwhile, by
        other threads, too.
        """
        self._finish(self._direct)
        return self._await(lambda w, ns, out: lib.weft_fetch(self._ptr, w, ns, out), _want(want), timeout)

    def start(self, want: Union[str, int, None] = "latest", timeout: Optional[float] = None) -> Fetching:
        """:meth:`fetch` in the background: ``f = sub.start("newer"); ...; sub.swap(f.wait())``. The progress and arrivals of this subscriber
        are told by the thread that fetches."""
        out = ffi.new("weft_fetching **")
        self._finish(self._direct)
        check(lib.weft_fetch_start(self._ptr, _want(want), _timeout(timeout, lib.WEFT_DEADLINE), out))
        f = Fetching(self, out[0])
        self._fetching = weakref.ref(f)
        return f

    def swap(self, version: Version, timeout: Optional[float] = None) -> None:
        """Makes the staged version live, on all ranks of the comm or on none."""
        v = ffi.new("weft_epoch_step *", {"epoch": version[0], "step": version[1]})
        self._finish(not self._direct)
        self._raise(lib.weft_swap(self._ptr, v, _timeout(timeout, lib.WEFT_DEADLINE)))

    def use(self) -> Pin:
        """Pins the live version. Raises InvalidError if there is none yet."""
        out = ffi.new("weft_pin **")
        check(lib.weft_use(self._ptr, out))
        return Pin(_Held(out[0], self._owner, self._devices), self._layouts, self.rank, self._torch, self._devices)

    async def __aiter__(self) -> AsyncIterator[Version]:
        """Every newer version, staged: ``async for v in sub: sub.swap(v)``. Without a swap the next one is the same or a newer one.

        A version must be staged within the deadline of the bus; otherwise it is begun anew.
        """

        def stage() -> Version:
            self.verify("newer", timeout=_LOOK)  # waits in short turns, so that a task that is cancelled ends soon
            return self.fetch("newer")

        loop = asyncio.get_running_loop()
        while True:
            try:
                version = await loop.run_in_executor(None, stage)
            except TimeoutError:
                continue
            yield version

    def close(self) -> None:
        """Raises BusyError while arrays of a version are in use. A fetch in the background is cancelled."""
        with self._owner.lock:
            if self._owner.pins and self._owner.handle.ptr is not None:
                raise BusyError(f"subscriber of {self.name!r}: {self._owner.pins} pins are held, or arrays of them")
        running = self._fetching()
        if running is not None:
            running.cancel()
        self._owner.handle.close()

    def __repr__(self) -> str:
        return f"weft.Subscriber({self.name!r}{', closed' * (self._owner.handle.ptr is None)})"
