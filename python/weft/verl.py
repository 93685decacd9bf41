"""verl's checkpoint engine ``weft``: the actor's weights come to the rollout workers by the bus. Imports verl; docs/engines.md says how to use it.

``custom_backend_module=weft.verl`` has verl import this module on every worker, which registers the engine. An actor stages what it has in memory of the
host and lends it on the bus. A rollout worker fetches the version of this sync in buckets, checked, and hands whole tensors on, as verl's interface
has it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import ExitStack
from functools import partial
from itertools import product
from math import prod
from typing import Any, AsyncIterator, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

try:
    import torch
    import torch.distributed
    from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
except ImportError as error:
    raise ImportError(f"weft.verl needs PyTorch and verl 0.9 or later: {error}. Install what is missing in the environment of verl's workers") from error

from . import _dtypes
from ._bus import Bus, Publisher, Version, bus
from ._convert import layout_text, mesh_text
from ._errors import Error, InvalidError, MismatchError, PeerError, TimeoutError, UnsupportedError
from ._layout import Layout, boxes, layout

__all__ = ["Engine", "Piece", "pieces_of"]

_PAUSE = 0.01, 0.5  # seconds between two looks for a version: at first, and when it takes long


class Piece(NamedTuple):
    """A box of a tensor of the checkpoint that this rank of the actor has."""

    name: str  #: as on the Hugging Face Hub
    shape: Tuple[int, ...]  #: of the whole tensor
    at: Tuple[int, ...]
    array: Any  #: the elements of the box


def _box(name: str, spec: Any, local: Any) -> Optional[Tuple[Tuple[int, ...], Any]]:
    """Where this rank's shard is in the full tensor, and its elements in that shape; None: another rank has the same."""
    from verl.workers.engine.spec import BlockPlacement, derive_dtensor_placement

    shape = tuple(int(n) for n in spec.full_shape)
    place, contributes = (spec.place, spec.contributes) if spec.place is not None else derive_dtensor_placement(spec)[:2]
    if not contributes:
        return None
    if isinstance(place, BlockPlacement):
        return tuple(int(n) for n in place.global_offset), local.reshape(tuple(int(n) for n in place.local_shape))
    rows = prod(shape[1:])
    if not rows or place % rows or local.numel() % rows:
        raise UnsupportedError(f"{name!r}: its shard begins at the flat offset {place}, and is not whole rows of {shape}: give a BlockPlacement")
    at = (place // rows,) + (0,) * (len(shape) - 1) if shape else ()
    return at, local.reshape((local.numel() // rows, *shape[1:]) if shape else ())


def pieces_of(name: str, local: Any, spec: Any) -> Iterator[Piece]:
    """What a shard of verl's ``get_per_tensor_param_shard`` is in the names and shapes of the checkpoint.

    A fused stack (``hf_slots``) becomes one tensor for each slot: by ``to_hf_chunk``, or otherwise slot e is ``full[e]``.
    """
    found = _box(name, spec, local)
    if found is None or not found[1].numel():
        return
    at, array = found
    shape = tuple(int(n) for n in spec.full_shape)
    if spec.hf_slots is None and spec.to_hf_chunk is None:
        yield Piece(name, shape, at, array)
        return
    if spec.to_hf_chunk is not None:
        if tuple(array.shape[1:]) != shape[1:]:
            raise UnsupportedError(f"{name!r} is converted row by row, and this rank has {tuple(array.shape)} at {at} of {shape}: use the form of whole tensors")
        for hf_name, whole in spec.to_hf_chunk(at[0], array):
            yield Piece(str(hf_name), tuple(whole.shape), (0,) * whole.ndim, whole)
        return
    for row in range(array.shape[0]):
        hf_name, hf_shape = spec.hf_slots[at[0] + row]
        yield Piece(str(hf_name), tuple(int(n) for n in hf_shape), at[1:], array[row])


class _Place(NamedTuple):
    """What of a tensor an array has."""

    shape: Tuple[int, ...]  # of the whole tensor
    at: Tuple[int, ...]
    len: Tuple[int, ...]
    dtype: str


class _Staged:
    """Memory of the host for what this rank publishes. It is taken once, as long as names, shapes and types stay."""

    def __init__(self, dtype: Optional[torch.dtype]) -> None:
        self.dtype = dtype
        self.places: Dict[str, _Place] = {}
        self.arrays: Dict[str, torch.Tensor] = {}
        self._old: Dict[str, torch.Tensor] = {}

    def begin(self) -> None:
        self._old, self.arrays, self.places = self.arrays, {}, {}

    def take(self, piece: Piece) -> None:
        """Copies it into memory of the host, with a cast if there is a dtype for floats."""
        if piece.name in self.arrays:
            raise InvalidError(f"{piece.name!r} comes twice in one sync")
        floats = piece.array.dtype.is_floating_point and piece.array.dtype.itemsize > 1
        dtype = self.dtype if self.dtype is not None and floats else piece.array.dtype
        held = self._old.pop(piece.name, None)
        if held is None or held.shape != piece.array.shape or held.dtype != dtype:
            held = torch.empty(tuple(piece.array.shape), dtype=dtype)
        held.copy_(piece.array)
        self.arrays[piece.name] = held
        self.places[piece.name] = _Place(tuple(piece.shape), tuple(piece.at), tuple(held.shape), _dtypes.of_any(dtype))

    def end(self) -> None:
        self._old = {}


def _grid(held: Sequence[Tuple[int, _Place]]) -> Optional[Layout]:
    """The boxes as a mesh, if they cut each dim into equal pieces, as most trainers do: what a mesh describes can be lent."""
    shape = held[0][1].shape
    starts = [sorted({place.at[d] for _, place in held}) for d in range(len(shape))]
    ranks = {place.at: rank for rank, place in held}
    order = list(product(*starts))
    if len(ranks) != len(held) or sorted(ranks) != order:
        return None
    axes = [f"{'x' * (d + 1)}" for d in range(len(shape))]
    dims = [f"{n}/{axis}" if len(cuts) > 1 else str(n) for n, axis, cuts in zip(shape, axes, starts)]
    mesh = mesh_text(axes, [len(cuts) for cuts in starts], [ranks[at] for at in order]) if shape else mesh_text(["x"], [1], [held[0][0]])
    out = layout(layout_text(held[0][1].dtype, dims, mesh, []))
    fits = all([(box.at, box.len) for box in out.boxes(rank)] == [(place.at, place.len)] for rank, place in held)
    return out if fits else None


def _joined(of: Sequence[Dict[str, _Place]]) -> Dict[str, Layout]:
    """The layouts of what all ranks have."""
    holders: Dict[str, List[Tuple[int, _Place]]] = {}
    for rank, places in enumerate(of):
        for name, place in places.items():
            holders.setdefault(name, []).append((rank, place))
    out: Dict[str, Layout] = {}
    for name, held in holders.items():
        first_rank, first = held[0]
        for rank, place in held:
            if (place.shape, place.dtype) != (first.shape, first.dtype):
                raise MismatchError(
                    f"{name!r} is {first.dtype} {first.shape} on rank {first_rank}, and {place.dtype} {place.shape} on rank {rank} of the actor"
                )
        try:
            out[name] = _grid(held) or boxes(first.dtype, first.shape, [r for r, _ in held], [p.at for _, p in held], [p.len for _, p in held])
        except Error as problem:
            raise InvalidError(f"{name!r}: the shards of the actor's ranks are not the whole tensor once: {problem}") from None
    return out


def _gathered(mine: Any, ranks: int) -> List[Any]:
    """What each rank of the actor has given, by rank."""
    if ranks == 1:
        return [mine]
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() != ranks:
        raise InvalidError(f"the actor has {ranks} ranks, and torch.distributed is not initialised with all of them: shards cannot be put together")
    out: List[Any] = [None] * ranks
    torch.distributed.all_gather_object(out, mine)
    return out


@CheckpointEngineRegistry.register("weft")
class Engine(CheckpointEngine):  # type: ignore[misc]
    """The engine of actors and of rollout workers alike.

    ``bus`` and ``set`` are where versions go, and ``dtype`` is what floating tensors are cast to. ``listen="HOST:PORT"`` lets other hosts pull from an actor.
    The token is WEFT_TOKEN or WEFT_TOKEN_FILE of the workers. A rollout worker waits ``timeout`` seconds for a version, and takes memory of the
    host for two buckets.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        bus: str,
        set: str = "policy",
        dtype: Optional[str] = None,
        listen: Optional[str] = None,
        timeout: float = 300.0,
    ) -> None:
        self.bucket_size, self.is_master = int(bucket_size), is_master
        self.url, self.set, self.listen, self.timeout = bus, set, listen, float(timeout)
        self._staged = _Staged(None if dtype is None else _dtypes.to_torch(_dtypes.of_any(dtype)))
        self._bus: Optional[Bus] = None
        self._publisher: Optional[Publisher] = None
        self._form: Any = None
        self._loan, self._lends = ExitStack(), True
        self._sync = ""
        self.rank, self.ranks, self.step = 0, 1, -1

    # ---- what verl does before and after a sync ----

    def prepare(self) -> Dict[str, Any]:
        """Where this worker looks for weights."""
        return {"bus": self.url, "set": self.set}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: List[Dict[str, Any]]
    ) -> Tuple[Dict[str, List[Any]], Dict[str, List[Any]]]:
        """Each sync has a name, by which rollout workers know its version."""
        for rank, told in enumerate(metadata):
            if told != metadata[0]:
                raise MismatchError(f"worker 0 has {metadata[0]}, and worker {rank} has {told}: engine_kwargs.weft must be the same for all workers")
        sync = uuid.uuid4().hex

        def of(n: int) -> Dict[str, List[Any]]:
            return {"rank": list(range(n)), "ranks": [n] * n, "sync": [sync] * n}

        return of(actor_wg_world_size), of(rollout_world_size)

    def init_process_group(self, rank: int, ranks: int, sync: str) -> None:
        self.rank, self.ranks, self._sync = rank, ranks, sync

    def finalize(self) -> None:
        """The version stays until the next sync: a worker that is late finds it."""

    def close(self) -> None:
        """Gives everything back."""
        self._loan.close()
        for owner in (self._publisher, self._bus):
            if owner is not None:
                owner.close()
        self._publisher = self._bus = None

    def _open(self) -> Bus:
        if self._bus is None:
            self._bus = bus(self.url, listen=self.listen)
        return self._bus

    # ---- the actor ----

    async def _stage(self, weights: Any, shards: bool) -> None:
        """Stages what this rank publishes."""
        self._staged.begin()
        if shards:
            for name, local, spec in weights.get_per_tensor_param_shard()[0]:
                for piece in pieces_of(name, local.detach(), spec):
                    self._staged.take(piece)
        elif hasattr(weights, "__aiter__"):
            async for name, whole in weights:
                self._stage_whole(name, whole)
        else:
            for name, whole in weights:
                self._stage_whole(name, whole)
        self._staged.end()

    def _stage_whole(self, name: str, whole: torch.Tensor) -> None:
        """All ranks go through all tensors, since verl gathers them; the first one publishes."""
        if self.is_master:
            self._staged.take(Piece(name, tuple(whole.shape), (0,) * whole.ndim, whole.detach()))

    def _publish(self, step: int, shards: bool, problem: Optional[Exception]) -> Publisher:
        """The publisher, made anew on all ranks if a tensor has changed on one of them, or if the step is not higher. If one rank has a problem, all raise."""
        ranks = self.ranks if shards else 1
        form = shards, ranks, dict(self._staged.places)
        old = self._publisher is None or self._form != form or step <= self.step
        said = _gathered((old, None if problem is None else f"{type(problem).__name__}: {problem}"), ranks)
        if problem is not None:
            raise problem
        for rank, (_, text) in enumerate(said):
            if text is not None:
                raise PeerError(f"rank {rank} of the actor has failed, so none publishes: {text}")
        if any(old for old, _ in said) or self._publisher is None:
            if self._publisher is not None:
                self._publisher.close()
                self._publisher = None
            which = _joined(_gathered(self._staged.places, ranks))
            self._lends = not any(w._desc.boxes for w in which.values())  # what is boxes cannot be lent, and is copied
            self._publisher = self._open().publish(
                self.set, which, rank=self.rank if shards else 0, ranks=ranks, run=self._sync if ranks > 1 else None,
                lend=self._lends, keep=None if self._lends else 1, slow="wait",
            )  # fmt: skip
            self._form = form
        return self._publisher

    @torch.no_grad()  # type: ignore[untyped-decorator]
    async def send_weights(self, weights: Any, global_steps: Optional[int] = None) -> Dict[str, float]:
        """Publishes a version of this sync. Called on all ranks of the actor.

        ``weights`` is verl's generator of whole tensors, of which the first rank publishes all; or a training engine that has
        ``get_per_tensor_param_shard``, of which each rank publishes its shards, and nobody gathers.
        """
        begin = time.monotonic()
        self._loan.close()  # what is staged is written now
        shards = hasattr(weights, "get_per_tensor_param_shard")
        problem: Optional[Exception] = None
        try:
            await self._stage(weights, shards)
        except Exception as error:
            if not shards:
                raise
            problem = error  # the other ranks wait for this one: they are told
        step = self.step + 1 if global_steps is None else int(global_steps)
        if not shards and not self.is_master:
            self.step = step
            return {}
        publisher = self._publish(step, shards, problem)
        arrays = {name: array.reshape(-1) if publisher.layouts[name]._desc.boxes else array for name, array in self._staged.arrays.items()}
        if self._lends:
            self._loan.enter_context(publisher.lend(step, arrays, {"sync": self._sync}))
        else:
            publisher.put(step, arrays)
            publisher.commit(step, {"sync": self._sync})
        self.step = step
        sent = sum(array.numel() * array.element_size() for array in arrays.values())
        return {"weft/sent_bytes": float(sent), "weft/send_seconds": time.monotonic() - begin} if self.is_master else {}

    # ---- the rollout worker ----

    def _find(self) -> Optional[Version]:
        """The version of this sync, if it is there."""
        for v in self._open().versions(self.set):
            if isinstance(v.meta, dict) and v.meta.get("sync") == self._sync and v.holders == v.ranks:
                return v.version
        return None

    def _buckets(self, version: Version) -> List[Dict[str, Layout]]:
        """The tensors of the version, in groups of at most a bucket's bytes; one that is larger is alone."""
        out: List[Dict[str, Layout]] = []
        size = 0
        for name, which in self._open().describe(self.set, version.step).items():
            n = prod(which.shape) * _dtypes.size_of(which.dtype)
            if not out or size + n > self.bucket_size:
                out.append({})
                size = 0
            dims = [str(d) for d in which.shape]
            out[-1][name] = layout(layout_text(which.dtype, dims, mesh_text(["x"], [1], [0]), []))
            size += n
        return out

    def _fetch(self, version: Version, bucket: Dict[str, Layout]) -> Dict[str, torch.Tensor]:
        """Nobody else has these tensors yet, so they are written directly, and given away when they are whole and checked."""
        arrays = {name: torch.empty(which.shape, dtype=_dtypes.to_torch(which.dtype)) for name, which in bucket.items()}
        with self._open().subscribe(self.set, bucket, only=True, into=arrays, direct=True) as sub:
            got = sub.fetch(version.step, timeout=self.timeout)
            if got != version:
                raise MismatchError(f"set {self.set!r}: step {version.step} is of epoch {got.epoch}, not {version.epoch}: another trainer publishes the set")
            sub.swap(got)
        return arrays

    async def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[Tuple[str, torch.Tensor]]:
        """Whole tensors of this sync's version, bucket by bucket: the next one is fetched while the caller has this one."""
        loop = asyncio.get_running_loop()
        until = time.monotonic() + self.timeout
        pause = _PAUSE[0]
        version = await loop.run_in_executor(None, self._find)
        while version is None:
            if time.monotonic() >= until:
                raise TimeoutError(f"set {self.set!r}: the actor has not published this sync within {self.timeout} s")
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _PAUSE[1])
            version = await loop.run_in_executor(None, self._find)
        if global_steps is not None and version.step != global_steps:
            raise MismatchError(f"set {self.set!r}: the actor has published step {version.step}, and this worker was asked for {global_steps}")
        buckets = await loop.run_in_executor(None, self._buckets, version)
        ahead: List[Any] = []
        try:
            for i in range(len(buckets)):
                if not ahead:
                    ahead.append(loop.run_in_executor(None, partial(self._fetch, version, buckets[i])))
                tensors = await ahead.pop()
                if i + 1 < len(buckets):
                    ahead.append(loop.run_in_executor(None, partial(self._fetch, version, buckets[i + 1])))
                for name, tensor in tensors.items():
                    yield name, tensor
        finally:
            for running in ahead:
                await asyncio.wait([running])
        self.step = version.step
