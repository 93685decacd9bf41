"""Checkpoints of torch.distributed.checkpoint (DCP), read into any layout and written from any. Imports PyTorch: ``import weft.dcp``.

    weft.dcp.load("step-100", {"model": server.state_dict()})     # each rank for itself, in place
    weft.dcp.save("step-200", {"w": (array, weft.layout("f32[8/x,4] @x2"))}, comm=comm)

DCP's own reader takes the file ``.metadata`` for a pickle that may run any code. The reader here makes objects of DCP's own classes alone.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import pickle
import re
from collections.abc import Mapping as MappingOf
from math import prod
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
import torch.distributed
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
    _MEM_FORMAT_ENCODING,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult

from . import _dtypes, _errors
from ._arrays import Bits, memory_for, memory_of
from ._errors import Error, InvalidError, MismatchError, UnsupportedError
from ._given import compare, is_dtensor, is_pair, is_tensor, local_of, some, whole
from ._layout import Layout, boxes, layout
from ._state import _tell
from ._torch import from_torch
from ._weft import ffi

if TYPE_CHECKING:
    from ._comm import Comm

__all__ = ["Reader", "layouts", "load", "save"]

Path = Union[str, "os.PathLike[str]"]
_METADATA = ".metadata"
_WRITER = re.compile(r"__(\d{1,9})_\d+\.distcp")

# ---- metadata, without running code ----

_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "collections": {"OrderedDict"},
    "pathlib": {"Path", "PosixPath"},
    "pathlib._local": {"Path", "PosixPath"},
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        raise UnsupportedError(f"its {_METADATA} asks for {module}.{name}, which is nothing that metadata of DCP has: it was not read")


_SHARED = (  # what all metadata of the process has in common, and a pickle could change
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata, _StorageInfo,
    _MEM_FORMAT_ENCODING, *_MEM_FORMAT_ENCODING, pathlib.Path, pathlib.PosixPath,
)  # fmt: skip


def _unpickled(f: Any) -> Any:
    """What a pickle makes. If it sets attributes of a class, they are taken back, and it is refused."""
    before = [dict(vars(shared)) for shared in _SHARED]
    changed = False
    try:
        found = _Unpickler(f).load()
    finally:
        for shared, old in zip(_SHARED, before):
            now = dict(vars(shared))
            kind: Any = type if isinstance(shared, type) else object
            for name in {**old, **now}:
                if name == "__slotnames__":  # set by a thread that pickles
                    continue
                if name not in old:
                    kind.__delattr__(shared, name)
                elif name not in now or now[name] is not old[name]:
                    kind.__setattr__(shared, name, old[name])
                else:
                    continue
                changed = True
    if changed:
        raise UnsupportedError(f"its {_METADATA} changes classes of DCP: it was not read")
    return found


def _is_place(numbers: Any, ndim: int) -> bool:
    return isinstance(numbers, (tuple, list)) and len(numbers) == ndim and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)


def _is_inside(chunk: Any, size: Sequence[int]) -> bool:
    places = isinstance(chunk, ChunkStorageMetadata) and _is_place(chunk.offsets, len(size)) and _is_place(chunk.sizes, len(size))
    return places and all(at + n <= end for at, n, end in zip(chunk.offsets, chunk.sizes, size))


def _problem(found: Any) -> Optional[str]:
    """What is wrong with metadata that somebody else has written."""
    if not isinstance(found, Metadata) or not isinstance(found.storage_data, dict) or not isinstance(found.state_dict_metadata, dict):
        return "it is no metadata of DCP"
    for info in found.storage_data.values():
        name = getattr(info, "relative_path", None)
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            return f"it names the file {name!r}, which is not in the folder"
        if not _is_place((info.offset, info.length), 2):
            return f"it is damaged: a part of {name!r} is {info.length} bytes at {info.offset}"
    for name, md in found.state_dict_metadata.items():
        if not isinstance(name, str) or not isinstance(md, (TensorStorageMetadata, BytesStorageMetadata)):
            return f"it is damaged: {name!r} is neither a tensor nor a value"
        if isinstance(md, TensorStorageMetadata):
            if not isinstance(md.properties.dtype, torch.dtype) or not _is_place(md.size, len(md.size)):
                return f"it is damaged: tensor {name!r} has no dtype and size"
            if not isinstance(md.chunks, list) or not all(_is_inside(chunk, md.size) for chunk in md.chunks):
                return f"it is damaged: tensor {name!r} has a chunk that is not in it"
    return None


class Reader(FileSystemReader):  # type: ignore[misc]
    """DCP's reader of folders, with metadata that runs no code. It can be given to ``torch.distributed.checkpoint.load`` as ``storage_reader``."""

    def read_metadata(self, *args: Any, **how: Any) -> Metadata:
        """The metadata, checked: files are in the folder itself, and chunks are in their tensors."""
        path = os.path.join(os.fspath(self.path), _METADATA)
        try:
            with open(path, "rb") as f:
                found = _unpickled(f)
            problem = _problem(found)
        except FileNotFoundError:
            raise InvalidError(f"{self.path}: it is no checkpoint of DCP, or one that was not written to its end: there is no {_METADATA}") from None
        except Error as error:
            raise type(error)(f"{self.path}: {error}") from None
        except Exception as error:
            raise InvalidError(f"{path}: it is damaged: {type(error).__name__}: {error}") from None
        if problem is not None:
            raise InvalidError(f"{path}: {problem}")
        if getattr(found, "storage_meta", None) is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = getattr(self, "load_id", None)
        return found


def _tensors(metadata: Metadata) -> Dict[str, TensorStorageMetadata]:
    return {name: md for name, md in metadata.state_dict_metadata.items() if isinstance(md, TensorStorageMetadata)}


def _boxes(path: Path, name: str, md: TensorStorageMetadata, dtype: str, ranks: Sequence[int]) -> Layout:
    """The chunks of a tensor, which must have each of its elements once."""
    try:
        return boxes(dtype, md.size, ranks, [tuple(c.offsets) for c in md.chunks], [tuple(c.sizes) for c in md.chunks])
    except Error as problem:
        raise InvalidError(f"{path}: tensor {name!r}: its chunks are not the whole tensor once: {problem}") from None


def layouts(path: Path) -> Dict[str, Layout]:
    """The tensors of a checkpoint as layouts of boxes. The rank of a box is the rank that has written it, and a rank's buffer has its boxes one behind the other."""
    metadata = Reader(path).read_metadata()
    files = sorted({info.relative_path for info in metadata.storage_data.values()})
    out: Dict[str, Layout] = {}
    for name, md in _tensors(metadata).items():
        ranks = []
        for chunk in md.chunks:
            info = metadata.storage_data.get(MetadataIndex(name, chunk.offsets))
            if info is None:
                raise InvalidError(f"{path}: tensor {name!r}: no file has its chunk at {tuple(chunk.offsets)}")
            writer = _WRITER.fullmatch(info.relative_path)
            ranks.append(int(writer[1]) if writer else files.index(info.relative_path))
        dtype = _dtypes.of_any(md.properties.dtype)
        out[name] = _boxes(path, name, md, dtype, ranks) if prod(md.size) else whole(dtype, md.size, [min(ranks, default=0)])
    return out


# ---- state dicts, by the names that DCP gives ----


class _Leaf(NamedTuple):
    value: Any
    path: Tuple[Any, ...]  # as DCP writes it: keys of dicts as texts
    of: Any  # the dict or list that has it
    key: Any


def _is_leaf(value: Any) -> bool:
    """Lists without tensors and dicts are one value for DCP, and tuples always."""
    if isinstance(value, MappingOf):
        return False
    if isinstance(value, list):
        return all(not is_tensor(inner) and (not isinstance(inner, (MappingOf, list)) or _is_leaf(inner)) for inner in value)
    return True


def _flatten(state: Any) -> Dict[str, _Leaf]:
    out: Dict[str, _Leaf] = {}

    def walk(path: Tuple[Any, ...], of: Any, key: Any, value: Any) -> None:
        if is_tensor(value) or _is_leaf(value):
            name = ".".join(map(str, path))
            if name in out:
                raise InvalidError(f"two values have the name {name!r}, with keys joined by dots")
            out[name] = _Leaf(value, path, of, key)
        elif isinstance(value, MappingOf):
            for inner_key, inner in value.items():
                walk((*path, str(inner_key)), value, inner_key, inner)
        else:
            for i, inner in enumerate(value):
                walk((*path, i), value, i, inner)

    if not isinstance(state, MappingOf):
        raise InvalidError(f"a state dict is a dict, not {type(state).__name__}")
    for key, value in state.items():
        walk((str(key),), state, key, value)
    return out


def _is_plain(value: Any) -> bool:
    """Whether it can be loaded again without running code."""
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


# ---- arrays ----


def _tensor(array: Any) -> torch.Tensor:
    """A tensor with the array's memory."""
    if isinstance(array, torch.Tensor):
        return array
    memory = memory_of(array)
    raw = np.asarray(array.array if isinstance(array, Bits) else array)
    if _dtypes.bits_of(memory.dtype) == memory.dtype and raw.dtype.isbuiltin and not isinstance(array, Bits):
        return torch.from_numpy(raw)
    unsigned: Any = torch.from_numpy(raw.view(f"u{memory.itemsize}"))
    return unsigned.view(_dtypes.to_torch(memory.dtype))


def _fits(array: Any, which: Layout, rank: int, what: str, write: bool) -> None:
    """Raises where an array cannot be the rank's buffer."""
    memory = memory_for(array, which, rank, what, write)
    if memory is not None and which._desc.boxes and not memory.dense:
        raise UnsupportedError(f"{what}: its layout is boxes, whose places are slots of a flat buffer: the array must have no gaps")


def _views(which: Layout, rank: int, tensor: torch.Tensor) -> Iterator[Tuple[Tuple[int, ...], Tuple[int, ...], torch.Tensor]]:
    """The boxes that a rank holds: place and size in the whole tensor, and the part of its array."""
    listed = which._desc.boxes
    if not listed:
        for box in which.boxes(rank):
            yield box.at, box.len, tensor[tuple(slice(a, a + n) for a, n in zip(box.local, box.len))]
        return
    flat, ndim = tensor.view(-1), len(which.shape)

    def numbers(part: Any, i: int) -> Tuple[int, ...]:
        return tuple(ffi.unpack(part + i * ndim, ndim)) if ndim else ()

    for i in range(listed.n):
        if listed.rank[i] == rank:
            size = numbers(listed.len, i)
            yield numbers(listed.at, i), size, flat.as_strided(size, numbers(listed.stride, i), flat.storage_offset() + listed.offset[i])


def _layout_of(name: str, value: Any, ranks: Sequence[int]) -> Layout:
    """A plain tensor is whole on each of these ranks."""
    try:
        if is_pair(value):
            which: Layout = value[1]
        elif is_dtensor(value):
            which = from_torch(value)
        else:
            memory = memory_of(local_of(value))
            which = whole(memory.dtype, memory.shape, ranks)
    except Error as problem:
        raise type(problem)(f"{name!r}: {problem}") from None
    if which.folds or any(d.lo or d.hi for d in which.dims):
        raise UnsupportedError(f"{name!r}: {which} has ghosts, or copies that are to be folded: a checkpoint has neither")
    return which


def _torch_job() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


# ---- reading ----


class _Reads:
    """What FileSystemReader.read_data asks a planner."""

    def __init__(self) -> None:
        self.views: Dict[str, torch.Tensor] = {}
        self.values: Dict[str, Any] = {}

    def resolve_tensor(self, item: Any) -> torch.Tensor:
        view = self.views[item.dest_index.fqn]
        for d, (at, n) in enumerate(zip(item.dest_offsets, item.lengths)):
            view = view.narrow(d, at, n)
        return view

    def commit_tensor(self, item: Any, tensor: torch.Tensor) -> None:
        """It is in place."""

    def load_bytes(self, item: Any, value: io.BytesIO) -> None:
        name = item.dest_index.fqn
        try:
            self.values[name] = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as problem:
            raise UnsupportedError(f"{name!r} is an object that could run code when it is loaded: leave it out. {str(problem).partition(chr(10))[0]}") from None


def load(path: Path, state: Any, *, rank: Optional[int] = None, strict: bool = True) -> Any:
    """Reads a checkpoint into the tensors of a state dict of any depth, each rank for itself: DTensors, pairs (array, layout), and plain tensors, which get the whole.

    Only chunks that this rank needs are read, and cast to the dtype that the tensor has. Values that are no tensors are replaced in the state dict, which is returned. Names that only one side has are a MismatchError that lists them; with ``strict=False``, a warning. All names and
    shapes are compared before anything is written. ``rank`` is that of the layouts, by default torch.distributed's, or 0.
    """
    here = rank if rank is not None else torch.distributed.get_rank() if _torch_job() else 0
    asked = _flatten(state)
    mine = {name: leaf.value for name, leaf in asked.items() if is_tensor(leaf.value)}
    reader = Reader(path)
    metadata = reader.read_metadata()
    there, tensors = metadata.state_dict_metadata, _tensors(metadata)
    compare("load", f"'{os.fspath(path)}'", list(there), list(asked), 0 if strict else 1)
    wrong = [name for name in asked if name in there and (name in mine) != (name in tensors)]
    if wrong:
        raise MismatchError(f"load: {some(wrong)}: a tensor on one side, and none on the other")
    mine = {name: value for name, value in mine.items() if name in there}
    which = {name: _layout_of(name, value, [here]) for name, value in mine.items()}
    differ = [f"{n!r} is {tuple(tensors[n].size)} there and {w.shape} here" for n, w in which.items() if tuple(tensors[n].size) != w.shape]
    if differ:
        raise MismatchError(f"load: {'; '.join(differ[:16])}")
    reads, items = _Reads(), []
    for name, w in which.items():
        array = local_of(mine[name])
        _fits(array, w, here, f"load {name!r}", True)
        if prod(w.shape):
            _boxes(path, name, tensors[name], "u8", [0] * len(tensors[name].chunks))
        for i, (at, size, view) in enumerate(_views(w, here, _tensor(array)) if w.local(here).elements else ()):
            key = f"{name} {i}"
            reads.views[key] = view
            found = create_read_items_for_chunk_list(name, tensors[name], [ChunkStorageMetadata(torch.Size(at), torch.Size(size))])
            items += [dataclasses.replace(item, dest_index=MetadataIndex(key)) for item in found]
    for name in asked:
        if isinstance(there.get(name), BytesStorageMetadata):
            index, nothing = MetadataIndex(name), torch.Size([0])
            items.append(ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing))
    lost = sorted({item.storage_index.fqn for item in items if item.storage_index not in metadata.storage_data})
    if lost:
        raise InvalidError(f"{path}: no file has all of {some(lost)}")
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    try:
        with torch.no_grad():
            reader.read_data(LoadPlan(items), reads).wait()
    except (Error, OSError):
        raise
    except Exception as problem:
        raise InvalidError(f"{path}: a file is damaged: {type(problem).__name__}: {problem}") from problem
    for name, value in reads.values.items():
        asked[name].of[asked[name].key] = value
    return state


# ---- writing ----


class _Group(NamedTuple):
    """Who writes a checkpoint together."""

    rank: int
    ranks: int
    tell: Callable[[str], List[str]]  # what each has told, by rank


def _group(comm: "Optional[Comm]") -> _Group:
    if comm is not None:
        c = comm
        return _Group(c.rank, c.size, lambda text: [raw.decode() for raw in _tell(c, text.encode())])
    if not _torch_job():
        return _Group(0, 1, lambda text: [text])
    ranks = torch.distributed.get_world_size()

    def tell(text: str) -> List[str]:
        out: List[Any] = [None] * ranks
        torch.distributed.all_gather_object(out, text)
        return out

    return _Group(torch.distributed.get_rank(), ranks, tell)


def _together(group: _Group, work: Callable[[], Any]) -> List[Any]:
    """What the work gives on each rank. If it fails on one, all raise."""
    problem: Optional[Exception] = None
    told: Any = None
    try:
        told = [work()]
    except Exception as error:
        problem, told = error, {"kind": type(error).__name__, "text": str(error)}
    said = [json.loads(text) for text in group.tell(json.dumps(told))]
    if problem is not None:
        raise problem
    for rank, one in enumerate(said):
        if isinstance(one, dict):
            kind = getattr(_errors, one["kind"], _errors.SystemError)
            raise kind(f"rank {rank}: {one['text']}")
    return [one[0] for one in said]


class _Box(NamedTuple):
    at: Tuple[int, ...]
    len: Tuple[int, ...]
    owner: int  # the rank that writes it


def _owners(name: str, text: str, givers: Sequence[int], turn: int) -> List[_Box]:
    """The boxes of a tensor, each with one rank that has it and writes it; copies take turns."""
    which = layout(text)
    if not prod(which.shape):
        return [_Box((0,) * len(which.shape), which.shape, givers[0])]
    holders: Dict[Tuple[Tuple[int, ...], Tuple[int, ...]], List[int]] = {}
    for rank in which.ranks:
        for box in which.boxes(rank):
            holders.setdefault((box.at, box.len), []).append(rank)
    out: List[_Box] = []
    for i, ((at, size), ranks) in enumerate(holders.items()):
        able = [r for r in ranks if r in givers]
        if not able:
            raise InvalidError(f"{name!r}: {which}: rank {ranks[0]} has given no array for {size} at {at}")
        out.append(_Box(at, size, able[(i + turn) % len(able)]))
    try:
        boxes(which.dtype, which.shape, [b.owner for b in out], [b.at for b in out], [b.len for b in out])
    except Error as problem:
        raise UnsupportedError(f"{name!r}: the boxes of its layout are not the whole tensor once, which DCP needs: {problem}") from None
    return out


class _Writes:
    """What FileSystemWriter.write_data asks a planner."""

    def __init__(self) -> None:
        self.views: Dict[Tuple[str, Tuple[int, ...]], torch.Tensor] = {}
        self.values: Dict[str, Any] = {}

    def resolve_data(self, item: WriteItem) -> Union[torch.Tensor, io.BytesIO]:
        if item.type == WriteItemType.BYTE_IO:
            out = io.BytesIO()
            torch.save(self.values[item.index.fqn], out)
            return out
        assert item.index.offset is not None
        return self.views[item.index.fqn, tuple(item.index.offset)].contiguous()


def save(path: Path, state: Mapping[Any, Any], *, comm: "Optional[Comm]" = None, overwrite: bool = False) -> None:
    """Writes a checkpoint that ``torch.distributed.checkpoint.load`` and :func:`load` read. Collective over the ranks of ``comm``, or of torch.distributed.

    ``state`` is a dict of any depth: DTensors, pairs (array, layout), plain tensors, which are the same on all ranks, and numbers, texts and lists of them, of which those of
    rank 0 count. A rank may lack tensors that others have. Each element is written once, by one of the ranks that have it. If a rank fails, all raise,
    and there is no checkpoint. An existing one is replaced with ``overwrite``, when all ranks' states have been found to fit together.
    """
    group = _group(comm)
    known = os.path.join(os.fspath(path), _METADATA)
    arrays: Dict[str, Any] = {}
    which: Dict[str, Layout] = {}
    values: Dict[str, Any] = {}

    def begin() -> Any:
        nonlocal arrays, values
        leaves = _flatten(state)
        arrays = {name: leaf.value for name, leaf in leaves.items() if is_tensor(leaf.value)}
        values = {name: leaf.value for name, leaf in leaves.items() if name not in arrays}
        objects = [name for name, value in values.items() if not _is_plain(value)]
        if objects:
            raise InvalidError(f"save: {some(objects)}: neither tensors nor numbers, texts and lists of them: leave them out")
        for name, value in arrays.items():
            which[name] = _layout_of(name, value, range(group.ranks))
            _fits(local_of(value), which[name], group.rank, f"save {name!r}", False)
        if group.rank == 0 and os.path.exists(known) and not overwrite:
            raise InvalidError(f"{path}: there is a checkpoint already: give overwrite=True to replace it")
        return {"tensors": {name: repr(w) for name, w in which.items()}, "paths": {name: leaf.path for name, leaf in leaves.items()}}

    said = _together(group, begin)
    texts: Dict[str, str] = {}
    givers: Dict[str, List[int]] = {}
    paths: Dict[str, Tuple[Any, ...]] = {}
    for rank, one in enumerate(said):
        for name, text in one["tensors"].items():
            if texts.setdefault(name, text) != text:
                raise MismatchError(f"{name!r}: rank {givers[name][0]} has {texts[name]}, and rank {rank} has {text}")
            givers.setdefault(name, []).append(rank)
        paths.update({n: tuple(p) for n, p in one["paths"].items() if n in one["tensors"] or rank == 0})
    parts = {name: _owners(name, text, givers[name], i) for i, (name, text) in enumerate(texts.items())}
    properties = {name: TensorProperties(dtype=_dtypes.to_torch(layout(text).dtype)) for name, text in texts.items()}
    writer = FileSystemWriter(path, thread_count=1)

    def clear() -> Any:
        if group.rank == 0 and os.path.exists(known):
            os.remove(known)  # what is half written is no checkpoint
        return None

    _together(group, clear)

    def write() -> Any:
        writes, items = _Writes(), []
        for name, of in parts.items():
            mine = [(i, b) for i, b in enumerate(of) if b.owner == group.rank]
            if not mine:
                continue
            tensor, size = _tensor(local_of(arrays[name])), torch.Size(which[name].shape)
            views = {(at, n): view for at, n, view in _views(which[name], group.rank, tensor)} if prod(size) else {}
            for i, b in mine:
                writes.views[name, b.at] = views[b.at, b.len] if views else tensor
                chunk = ChunkStorageMetadata(torch.Size(b.at), torch.Size(b.len))
                data = TensorWriteData(chunk, properties[name], size)
                items.append(WriteItem(MetadataIndex(name, b.at, i), WriteItemType.SHARD, tensor_data=data))
        if group.rank == 0:
            writes.values = values
            items += [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO) for name in values]
        writer.set_up_storage_writer(group.rank == 0)
        plan = writer.prepare_local_plan(SavePlan(items))
        plan = writer.prepare_global_plan([SavePlan([])] * group.rank + [plan])[group.rank]
        done = writer.write_data(plan, writes)
        return [
            [r.index.fqn, r.index.offset, r.index.index, r.size_in_bytes, r.storage_data.relative_path, r.storage_data.offset, r.storage_data.length]
            for r in done.wait()
        ]

    results = _together(group, write)

    def finish() -> Any:
        if group.rank:
            return None
        of: Dict[str, Any] = {name: BytesStorageMetadata() for name in values}
        for name, found in parts.items():
            chunks = [ChunkStorageMetadata(torch.Size(b.at), torch.Size(b.len)) for b in found]
            of[name] = TensorStorageMetadata(properties[name], torch.Size(layout(texts[name]).shape), chunks)
        written = [
            [WriteResult(MetadataIndex(fqn, at, i), n, _StorageInfo(file, offset, length)) for fqn, at, i, n, file, offset, length in one]
            for one in results
        ]
        writer.finish(Metadata(of, planner_data=paths), written)
        return None

    _together(group, finish)
