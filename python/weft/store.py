"""State dicts on the bus under keys, by the calls that users of torchstore know: ``put_state_dict``, ``get_state_dict``, ``put`` and ``get``.

    store = weft.store.Store("tcp:head:7077/run42")
    store.put_state_dict(model.state_dict(), "policy")          # on every rank of the trainer; DTensors are not gathered
    store.get_state_dict("policy", server.state_dict())         # elsewhere, with any other sharding: written in place

A key is a set of the bus, and each put is a version of it. Coroutines of the same names use the store of :func:`initialize`. docs/engines.md tells
more.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes
from ._arrays import Bits, memory_of
from ._bus import Publisher, Subscriber, Version, VersionInfo, bus
from ._comm import Closing
from ._errors import Error, InvalidError, MismatchError
from ._given import compare, is_dtensor, is_pair, is_tensor, local_of, some, whole
from ._layout import Layout, boxes
from ._safetensors import folder_tensors
from ._torch import from_torch
from ._tree import flatten, tree_values, unflatten

__all__ = [
    "Store",
    "delete",
    "exists",
    "get",
    "get_state_dict",
    "initialize",
    "put",
    "put_folder",
    "put_state_dict",
    "shutdown",
    "versions",
]

_VALUES = "weft.values"  # the tensor of bytes that has the text of what is no tensor, as JSON, with spaces behind it
_ALONE = "value"  # the tensor of a key that was put by put()

Want = Union[str, int, None]
Form = Tuple[Any, ...]


def _form(value: Any) -> Form:
    """What the layout of a value depends on."""
    if is_pair(value):
        return (*_form(value[0]), repr(value[1]))
    if is_dtensor(value):
        return tuple(value.shape), str(value.dtype), tuple(map(repr, value.placements)), value.device_mesh  # meshes are equal if their ranks are
    array = value.array if isinstance(value, Bits) else value
    return tuple(array.shape), str(value.dtype), repr(getattr(value, "sharding", None))


def _bytes(text: str) -> "np.ndarray[Any, Any]":
    """The text with spaces behind it, so that its length changes rarely."""
    raw = text.encode()
    return np.frombuffer(raw.ljust(1 << max(6, (len(raw) - 1).bit_length())), np.uint8)


class _Published(NamedTuple):
    publisher: Publisher
    form: Dict[str, Any]
    lent: ExitStack  # has a loan, if a version is lent

    def close(self) -> None:
        self.lent.close()
        self.publisher.close()


class _Read:
    """Who reads a key into the same arrays again has the subscriber of last time, and what it knows: ``newer``, changed elements."""

    def __init__(self, form: Dict[str, Any]) -> None:
        self.form = form
        self.subscriber: Optional[Subscriber] = None
        self.text: Optional[str] = None  # of what is no tensor
        self.check: Callable[[str], None] = lambda text: None

    def arrived(self, version: Version, name: str, array: Any) -> None:
        """The text arrives first. What the check raises ends the fetch, before anything is written."""
        if name == _VALUES:
            self.text = bytes(array).decode()
            self.check(self.text)

    def close(self) -> None:
        if self.subscriber is not None:
            self.subscriber.close()


class Store(Closing):
    """State dicts and tensors under keys, on the bus at ``url``.

    ``rank`` of ``ranks`` is that of torch.distributed, if it is initialised, and otherwise 0 of 1. ``run`` is a name that all ranks of this start have in common
    and no other start has; by default torch.distributed broadcasts one in the first put, which is collective then. ``keep`` versions of a key are kept by
    who put them. ``torch`` makes tensors of PyTorch where none are given, which is the default if PyTorch is imported. ``token``, ``listen`` and
    ``deadline`` are those of :func:`weft.bus`. Any thread may use it; calls wait for each other.
    """

    def __init__(
        self,
        url: str,
        *,
        rank: Optional[int] = None,
        ranks: Optional[int] = None,
        run: Optional[str] = None,
        keep: int = 2,
        torch: Optional[bool] = None,
        token: Optional[str] = None,
        listen: Optional[str] = None,
        deadline: Optional[float] = None,
    ) -> None:
        dist: Any = sys.modules.get("torch.distributed")
        job = dist is not None and dist.is_available() and dist.is_initialized()
        self.rank = rank if rank is not None else int(dist.get_rank()) if job else 0
        self.ranks = ranks if ranks is not None else int(dist.get_world_size()) if job else 1
        if not 0 <= self.rank < self.ranks:
            raise InvalidError(f"Store: rank {self.rank} of {self.ranks} ranks")
        self._run, self._keep, self._torch = run, keep, torch
        self._bus = bus(url, token=token, listen=listen, deadline=deadline)
        self._published: Dict[str, _Published] = {}
        self._steps: Dict[str, int] = {}
        self._starts: Dict[str, int] = {}
        self._read: Dict[str, _Read] = {}
        self._lock = threading.RLock()

    # ---- putting ----

    def _run_name(self, key: str) -> Optional[str]:
        """A name for a publisher of the key: the same on all ranks, which publish it equally often."""
        if self.ranks == 1:
            return None
        if self._run is None:
            dist: Any = sys.modules.get("torch.distributed")
            if dist is None or not dist.is_initialized():
                raise InvalidError(f"Store: {self.ranks} ranks need run=, a name that all ranks of this start have in common")
            name: List[Any] = [uuid.uuid4().hex]
            dist.broadcast_object_list(name, src=0)
            self._run = str(name[0])
        self._starts[key] = self._starts.get(key, 0) + 1
        return f"{self._run}.{self._starts[key]}"

    def _layout(self, value: Any) -> Any:
        """A plain tensor is the same on all ranks."""
        if is_pair(value) or is_dtensor(value) or hasattr(value, "addressable_shards") or self.ranks == 1:
            return value
        memory = memory_of(value.detach() if hasattr(value, "detach") else value)
        return value, whole(memory.dtype, memory.shape, range(self.ranks))

    def _put(self, key: str, arrays: Dict[str, Any], text: Optional[str], version: Optional[int], dtype: Any) -> Version:
        if _VALUES in arrays:
            raise InvalidError(f"a tensor has the name {_VALUES!r}, which the store itself uses: give it another one")
        if text is not None:
            arrays = {**arrays, _VALUES: _bytes(text)}
        form = {"dtype": str(dtype), **{name: _form(value) for name, value in arrays.items()}}
        with self._lock:
            known = self._published.get(key)
            step = self._steps.get(key, -1) + 1 if version is None else version
            if known is None or known.form != form:
                which = {name: self._layout(value) for name, value in arrays.items()}
                to = None if dtype is None else _dtypes.of_any(dtype)
                if known is not None:  # closed before: if what follows fails, no publisher is left whose epoch is over
                    self._published.pop(key).close()
                publisher = self._bus.publish(
                    key, which, dtype=to, rank=self.rank, ranks=self.ranks, run=self._run_name(key), keep=self._keep, slow="wait"
                )
                known = self._published[key] = _Published(publisher, form, ExitStack())
            known.publisher.put(step, {name: value[0] if is_pair(value) else value for name, value in arrays.items()})
            known.publisher.commit(step)
            self._steps[key] = step
            return Version(known.publisher.epoch, step)

    def put_state_dict(self, state_dict: Mapping[Any, Any], key: str, *, version: Optional[int] = None, transfer_dtype: Any = None) -> Version:
        """Puts a state dict of any depth as a version of the key: visible when all ranks have put it, or not at all.

        DTensors are taken as they are sharded, and pairs (array, layout) as the layout says; a plain tensor is the same on all ranks. What is no tensor
        must be something that JSON has. ``version`` is a step, by default one more than that of the last put. ``transfer_dtype`` casts floating
        tensors. Other names, shapes or shardings than in the put before begin a new epoch of the key; the versions before it go.
        """
        arrays, text = flatten(state_dict, is_tensor)
        return self._put(key, arrays, text, version, transfer_dtype)

    def put(self, key: str, value: Any, *, version: Optional[int] = None, transfer_dtype: Any = None) -> Version:
        """Puts one tensor, or something that JSON has."""
        if is_tensor(value):
            return self._put(key, {_ALONE: value}, None, version, transfer_dtype)
        return self.put_state_dict(value, key, version=version, transfer_dtype=transfer_dtype)

    def put_folder(self, path: "Union[str, os.PathLike[str]]", key: str, *, version: Optional[int] = None, transfer_dtype: Any = None) -> Version:
        """Puts the tensors of a safetensors file, or of a folder as on the Hugging Face Hub, as a version of the key.

        One process calls it. The files are mapped and lent, not copied, and must stay as they are until the key is put again or deleted.
        With ``transfer_dtype`` floating tensors are cast into memory of the bus. A folder and an index that do not agree are refused.
        """
        arrays = folder_tensors(path)
        with self._lock:
            step = self._steps.get(key, -1) + 1 if version is None else version
            to = None if transfer_dtype is None else _dtypes.of_any(transfer_dtype)
            if key in self._published:
                self._published.pop(key).close()
            publisher = self._bus.publish(key, arrays, dtype=to, keep=None if to is None else 1, lend=to is None)
            known = self._published[key] = _Published(publisher, {}, ExitStack())
            if to is None:
                known.lent.enter_context(publisher.lend(step, arrays))
            else:
                publisher.put(step, arrays)
                publisher.commit(step)
            self._steps[key] = step
            return Version(publisher.epoch, step)

    def delete(self, key: str) -> None:
        """The versions of the key that this process has put go."""
        with self._lock:
            known = self._published.pop(key, None)
            if known is None:
                raise InvalidError(f"delete: this store has put nothing under {key!r}: who has put it can delete it")
            known.close()

    # ---- getting ----

    def _empty(self, dtype: str, shape: Sequence[int]) -> Any:
        if self._torch or (self._torch is None and "torch" in sys.modules):
            import torch

            return torch.empty(tuple(shape), dtype=_dtypes.to_torch(dtype))
        return np.empty(tuple(shape), _dtypes.to_numpy(dtype))

    def _wanted(self, name: str, value: Any) -> Layout:
        """What of a tensor is to be written into the value."""
        if is_pair(value):
            which: Layout = value[1]
            return which
        try:
            if is_dtensor(value):
                return from_torch(value)
            memory = memory_of(local_of(value))
        except Error as problem:
            raise type(problem)(f"{name!r}: {problem}") from None
        return whole(memory.dtype, memory.shape, [self.rank])

    def _fetch(
        self,
        key: str,
        given: Mapping[str, Any],
        values: Optional[Layout],
        check: Callable[[str], None],
        again: bool,
        want: Want,
        until: Optional[float],
        epoch: Optional[int] = None,
    ) -> Optional[str]:
        """Writes tensors of a version in place; ``again``: they are the caller's, who may come with them again. Returns the text of what is no tensor, if the version has
        one. A version of another epoch than ``epoch`` is refused, before anything is written."""
        arrays = {name: local_of(value) for name, value in given.items()}
        form = {name: (*_form(value), memory_of(arrays[name]).address) for name, value in given.items()}
        form[_VALUES] = () if values is None else values.shape
        known = self._read.get(key) if again else None
        if known is None or known.form != form:
            if known is not None:
                self._read.pop(key).close()
            known = _Read(form)
            which = {name: self._wanted(name, value) for name, value in given.items()}
            if values is not None:
                which = {_VALUES: whole("u8", values.shape, [self.rank]), **which}
                arrays = {_VALUES: np.zeros(values.shape, np.uint8), **arrays}
            known.subscriber = self._bus.subscribe(
                key, which, into=arrays, rank=self.rank, only=True, arrived=known.arrived if values is not None else None
            )
            if again:
                self._read[key] = known
        assert known.subscriber is not None
        known.check = check
        try:
            version = known.subscriber.fetch(want, timeout=_left(until))
            if epoch is not None and version.epoch != epoch:
                raise MismatchError(f"{key!r} is of epoch {version.epoch} now, and was of epoch {epoch}")
            known.subscriber.swap(version, timeout=_left(until))
        finally:
            if not again:
                known.close()
        return known.text

    def _get(self, key: str, given: Optional[Mapping[Any, Any]], strict: bool, want: Want, timeout: Optional[float]) -> Any:
        until = None if timeout is None else time.monotonic() + timeout
        mine, mine_text = flatten(given, is_tensor) if given is not None else ({}, None)
        asked = [*mine, *(tree_values(mine_text) if mine_text else ())]
        with self._lock:
            there: Dict[str, Layout] = {}

            def names(text: Optional[str]) -> List[str]:
                return [*there, *(tree_values(text) if text else ())]

            def check(text: Optional[str]) -> None:
                if given is not None and strict:
                    compare("get_state_dict", repr(key), names(text), asked, 0)

            def attempt(epoch: int) -> Tuple[Dict[str, Any], Optional[str]]:
                values = there.pop(_VALUES, None)
                if values is None:
                    check(None)
                if given is None:
                    into = {name: self._empty(which.dtype, which.shape) for name, which in there.items()}
                else:
                    into = {name: value for name, value in mine.items() if name in there}
                if not into and values is None:
                    return into, None
                return into, self._fetch(key, into, values, check, given is not None, want, until, epoch)

            while True:
                version, there = self._bus._described(key, want, _left(until))
                try:
                    mine, text = attempt(version.epoch)
                    break
                except MismatchError:  # the version that came may be of a later epoch, with other tensors than were described
                    if self._bus._described(key, want, _left(until))[0].epoch == version.epoch:
                        raise
        if given is not None and not strict:
            compare("get_state_dict", repr(key), names(text), asked, 2)
        return mine if text is None else unflatten(text, mine)

    def get_state_dict(
        self,
        key: str,
        user_state_dict: Optional[Mapping[Any, Any]] = None,
        strict: bool = True,
        *,
        version: Want = "latest",
        timeout: Optional[float] = None,
    ) -> Any:
        """A version of a state dict, written into the tensors of ``user_state_dict``: plain ones whole, DTensors and pairs (array, layout) as they are sharded, in the
        dtype that they have. Without one, whole tensors are made.

        ``version`` is as in :meth:`weft.Subscriber.fetch`, and ``newer`` than what the same tensors have; it is waited for until ``timeout``, by default the bus's deadline. The version is staged and checked before
        anything is written. Names that only one side has are a MismatchError that lists them. With ``strict=False`` they are left out, and a
        warning lists them. Each rank gets for itself.
        """
        return self._get(key, user_state_dict, strict, version, timeout)

    def get(
        self,
        key: str,
        inplace_tensor: Any = None,
        tensor_slice_spec: Any = None,
        *,
        version: Want = "latest",
        timeout: Optional[float] = None,
    ) -> Any:
        """What was put by :meth:`put`. ``inplace_tensor`` is written, if it is given, and may be a DTensor.

        ``tensor_slice_spec`` asks for a box of the tensor: a pair (offsets, shape), or anything with ``offsets`` and ``local_shape``.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            there = self._bus.describe(key, version, timeout=_left(until))
            if _ALONE not in there or len(there) > 1:
                if set(there) == {_VALUES} and inplace_tensor is None and tensor_slice_spec is None:
                    return self._get(key, None, True, version, _left(until))
                raise InvalidError(f"get: {key!r} has a state dict of {len(there)} tensors, {some(list(there))}: use get_state_dict")
            which = there[_ALONE]
            value = inplace_tensor
            if tensor_slice_spec is not None:
                value = self._box(which, tensor_slice_spec, inplace_tensor)
            elif value is None:
                value = self._empty(which.dtype, which.shape)
            self._fetch(key, {_ALONE: value}, None, lambda text: None, inplace_tensor is not None, version, until)
        return value[0] if is_pair(value) else value

    def _box(self, which: Layout, spec: Any, array: Any) -> Tuple[Any, Layout]:
        pair = (spec.offsets, spec.local_shape) if hasattr(spec, "offsets") else spec
        at, shape = (tuple(int(n) for n in part) for part in pair)
        if array is None:
            array = self._empty(which.dtype, shape)
        memory = memory_of(local_of(array))
        if memory.shape != shape or not memory.dense:
            raise InvalidError(f"get: the slice has the shape {shape}, and the array {memory.shape}{'' if memory.dense else ', with gaps'}")
        return array, boxes(memory.dtype, which.shape, [self.rank], [at], [shape], gaps=True)

    def versions(self, key: str) -> List[VersionInfo]:
        """The versions of the key that can be read now, in ascending order."""
        return [v for v in self._bus.versions(key) if v.holders == v.ranks]

    def exists(self, key: str) -> bool:
        """Whether a version of the key can be read now."""
        return bool(self.versions(key))

    def close(self) -> None:
        """What this process has put goes."""
        with self._lock:
            for published in self._published.values():
                published.close()
            for read in self._read.values():
                read.close()
            self._published.clear()
            self._read.clear()
            self._bus.close()

    def __repr__(self) -> str:
        return f"weft.store.Store({self._bus.url!r}, rank={self.rank}, ranks={self.ranks})"


def _left(until: Optional[float]) -> Optional[float]:
    return None if until is None else max(0.0, until - time.monotonic())


# ---- coroutines, as torchstore has them ----

_default: List[Store] = []


def _the() -> Store:
    if not _default:
        raise InvalidError("there is no store: await weft.store.initialize(url) first")
    return _default[0]


async def _on_thread(call: Any, *args: Any, **how: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, partial(call, *args, **how))


async def initialize(url: str, **options: Any) -> Store:
    """Opens the store that the other coroutines use, with the options of :class:`Store`."""
    if _default:
        raise InvalidError(f"there is a store already, {_default[0]}: await weft.store.shutdown() first")
    _default.append(await _on_thread(Store, url, **options))
    return _default[0]


async def shutdown() -> None:
    """Closes the store of :func:`initialize`."""
    store = _the()
    _default.clear()
    await _on_thread(store.close)


async def put(key: str, value: Any, **how: Any) -> Version:
    """:meth:`Store.put`"""
    version: Version = await _on_thread(_the().put, key, value, **how)
    return version


async def get(key: str, inplace_tensor: Any = None, tensor_slice_spec: Any = None, **how: Any) -> Any:
    """:meth:`Store.get`"""
    return await _on_thread(_the().get, key, inplace_tensor, tensor_slice_spec, **how)


async def put_state_dict(state_dict: Mapping[Any, Any], key: str, **how: Any) -> Version:
    """:meth:`Store.put_state_dict`"""
    version: Version = await _on_thread(_the().put_state_dict, state_dict, key, **how)
    return version


async def put_folder(path: "Union[str, os.PathLike[str]]", key: str, **how: Any) -> Version:
    """:meth:`Store.put_folder`"""
    version: Version = await _on_thread(_the().put_folder, path, key, **how)
    return version


async def get_state_dict(key: str, user_state_dict: Optional[Mapping[Any, Any]] = None, strict: bool = True, **how: Any) -> Any:
    """:meth:`Store.get_state_dict`"""
    return await _on_thread(_the().get_state_dict, key, user_state_dict, strict, **how)


async def delete(key: str) -> None:
    """:meth:`Store.delete`"""
    await _on_thread(_the().delete, key)


async def exists(key: str) -> bool:
    """:meth:`Store.exists`"""
    return bool(await _on_thread(_the().exists, key))


async def versions(key: str) -> List[VersionInfo]:
    """:meth:`Store.versions`"""
    found: List[VersionInfo] = await _on_thread(_the().versions, key)
    return found
