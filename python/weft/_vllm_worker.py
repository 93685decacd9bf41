"""The worker's side of vLLM's weight transfer on the bus. vLLM imports it where a model is served.

A worker learns from its model's own ``load_weights`` which boxes of which tensors it wants (weft.torch.record), and subscribes to exactly
these. An update is staged beside the model and checked. When all workers of the replica have it, each puts it into the parameters as they are at
load time, layer by layer, and vLLM's own processing makes of them what its kernels read.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch
import torch.distributed
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.weight_transfer import base
from vllm.logger import init_logger
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload import meta as _meta
from vllm.model_executor.model_loader.reload import utils as _utils

from . import _dtypes
from ._bus import Bus, Subscriber, Version, bus
from ._convert import layout_text, mesh_text
from ._errors import InvalidError, MismatchError, PeerError, SystemError
from ._layout import Layout, boxes, layout
from .torch import Fixed, Want, record

__all__ = ["Engine", "InitInfo", "UpdateInfo"]

_log = init_logger("vllm.weft")  # vLLM shows what is logged below its own name
_ALIGN = 64
_TEXT = 1024  # bytes of a worker's error that the others are told


@dataclass
class InitInfo(base.WeightTransferInitInfo):  # type: ignore[misc]
    """What a worker needs to know. The token of a bus is never sent: it is WEFT_TOKEN or WEFT_TOKEN_FILE of the engine's processes."""

    bus: str
    set: str
    timeout: float = 300.0  #: seconds for the first version to be there, and for each update
    whole: List[str] = field(default_factory=list)  #: patterns of tensors that may come whole, since the loader computes with them
    metrics: Optional[str] = None  #: a file for the bus's metrics of each worker; its rank is added: FILE.0


@dataclass
class UpdateInfo(base.WeightTransferUpdateInfo):  # type: ignore[misc]
    """The version to take; the epoch, if it is given, must be the publisher's."""

    step: int
    epoch: Optional[int] = None


# ---- the parameters as they are at load time ----


_Given = List[Tuple[torch.nn.Module, str]]


def _begin(model: torch.nn.Module) -> _Given:
    """All layers are being loaded. Returns parameters that processing has given away (None): vLLM forgets them, and kernels ask for them."""
    given = [(layer, name) for layer in model.modules() for name, p in layer._parameters.items() if p is None]
    layerwise.initialize_layerwise_reload(model)
    return given


def _end(given: _Given) -> None:
    for layer, name in given:
        if not hasattr(layer, name):
            layer.register_parameter(name, None)


def _restore(model: torch.nn.Module) -> None:
    """Gives each layer that is being loaded its kernel tensors back, and forgets that it was."""
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load():
            if info.kernel_tensors is not None:
                layerwise._place_kernel_tensors(layer, info)
            info.reset()
    if hasattr(model, "_original_do_torchao_reload"):
        model._do_torchao_reload = model._original_do_torchao_reload


@contextmanager
def _at_load_time(model: torch.nn.Module) -> Iterator[None]:
    """The parameters have the shapes that loaders know, without memory, and the loaders load at once."""
    given = _begin(model)
    try:
        for layer in model.modules():
            for t in _utils.get_layer_tensors(layer).values():
                loader = getattr(t, "weight_loader", None)
                while getattr(loader, "__name__", "") == "online_process_loader":
                    loader = loader.__wrapped__  # type: ignore[union-attr]
                    t.weight_loader = loader
        yield
    finally:
        _restore(model)
        _end(given)


def _is_attention(layer: torch.nn.Module) -> bool:
    """vLLM loads the scales of these at the very end, by their own loaders."""
    told = getattr(layerwise, "is_deferred_attention_layer", None)
    return bool(told(layer)) if told else isinstance(layer, getattr(layerwise, "_DEFERRED_ATTENTION_TYPES", ()))


def _covered(wants: Sequence[Want]) -> int:
    return sum(prod(n) for want in wants for n in want.len)


class _Place(NamedTuple):
    """A parameter of a layer, and what comes there."""

    name: str
    wants: List[Want]
    fixed: List[Fixed]


class _Staging:
    """Memory for what this worker wants, with a layout and an array for each want. Boxes lie there one behind the other."""

    def __init__(self, wants: Sequence[Want], pinned: bool) -> None:
        self.layouts: Dict[str, Layout] = {}
        self.aliases: Dict[str, str] = {}
        places: List[Tuple[str, int, int, torch.dtype, Tuple[int, ...]]] = []
        size = 0
        for want in wants:
            key = f"{want.name} -> {want.into}"
            n, dtype = _covered([want]), _dtypes.to_torch(want.dtype)
            if want.into == "whole":
                self.layouts[key] = layout(layout_text(want.dtype, [str(x) for x in want.shape], mesh_text(["x"], [1], [0]), []))
            else:
                self.layouts[key] = boxes(want.dtype, want.shape, [0] * len(want.at), want.at, want.len, overlaps=True, gaps=True)
            self.aliases[key] = want.name
            places.append((key, size, n, dtype, want.shape if want.into == "whole" else (n,)))
            size += -(-n * dtype.itemsize // _ALIGN) * _ALIGN
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self.arrays = {key: self.memory[at : at + n * dt.itemsize].view(dt).view(shape) for key, at, n, dt, shape in places}
        self.bytes = size

    def copy(self, want: Want, parameter: torch.Tensor) -> None:
        """Into the parameter, or into its layer's memory at load time."""
        staged, at, begin = self.arrays[f"{want.name} -> {want.into}"], 0, int(parameter.storage_offset())
        for offset, lens, strides in zip(want.offset, want.len, want.stride):
            n = prod(lens)
            parameter.data.as_strided(lens, strides, begin + offset).copy_(staged[at : at + n].view(lens))
            at += n


class _Target:
    """One model of this worker: what it wants, its subscriber, and how a staged version comes into it."""

    def __init__(self, engine: "Engine", model: torch.nn.Module, info: InitInfo) -> None:
        self.model, self.info = model, info
        self.quantised = engine.vllm_config.quant_config is not None
        published = engine._bus.describe(info.set, timeout=info.timeout)
        given = {name: (which.shape, _dtypes.to_torch(which.dtype)) for name, which in published.items()}
        with set_current_vllm_config(engine.vllm_config), torch.device(engine.device), _at_load_time(model):
            learnt = record(model.load_weights, given, into=model, whole=info.whole)
            self._check(model, learnt.wants, {f.into for f in learnt.fixed}, quantised=self.quantised)
            attention = {name for name, layer in model.named_modules() if _is_attention(layer)}
        for told in learnt.refused:
            _log.warning("weft: %s comes whole: %s: %s", *told)
        self.wants = [_as_whole(w, given[w.name][1]) if w.into.rpartition(".")[0] in attention else w for w in learnt.wants]
        self.staging = _Staging(self.wants, pinned=engine.device.type == "cuda")
        self.layers: Dict[str, Dict[str, _Place]] = {}
        self.kept: Dict[str, List[torch.Tensor]] = {}
        for want in self.wants:
            if want.into != "whole":
                self._place(want.into).wants.append(want)
        for fixed in learnt.fixed:
            if fixed.into.rpartition(".")[0] not in attention:
                self._place(fixed.into).fixed.append(fixed)
        self.again = any(fixed.into.rpartition(".")[0] in attention for fixed in learnt.fixed)  # the loader fills them in
        self.whole = [want for want in self.wants if want.into == "whole"]
        self.subscriber: Subscriber = engine._bus.subscribe(
            info.set, self.staging.layouts, only=True, aliases=self.staging.aliases, into=self.staging.arrays, direct=True
        )
        _log.info(
            "weft: %d tensors of set %r, %d bytes for this worker, of them %d tensors whole; %d are not needed here",
            len({w.name for w in self.wants}), info.set, sum(t.nbytes for t in self.staging.arrays.values()), len(self.whole), len(learnt.unused),
        )  # fmt: skip

    def _place(self, into: str) -> _Place:
        layer, _, name = into.rpartition(".")
        return self.layers.setdefault(layer, {}).setdefault(name, _Place(name, [], []))

    @staticmethod
    def _check(model: torch.nn.Module, wants: Sequence[Want], fixed: Set[str], quantised: bool) -> None:
        """A parameter of which nothing comes would keep what it has. Quantised layers have such parameters."""
        if any(want.into == "whole" for want in wants):
            return  # only the loader knows where those go
        got = {want.into for want in wants} | fixed
        storages = {p.untyped_storage()._cdata for name, p in model.named_parameters() if name in got}
        missing = [n for n, p in model.named_parameters() if p.numel() and n not in got and p.untyped_storage()._cdata not in storages]
        missing = [n for n in missing if not _tied(model, n)]
        if missing and not quantised:
            raise MismatchError(
                f"the set has nothing for {len(missing)} parameters of the model: {', '.join(missing[:8])}: "
                "publish the tensors under the names of the model's checkpoint"
            )
        for name in missing:
            _log.warning("weft: nothing comes into %s", name)

    def fetch(self, want: UpdateInfo) -> Version:
        version = self.subscriber.fetch(want.step, timeout=self.info.timeout)
        if want.epoch is not None and version.epoch != want.epoch:
            raise MismatchError(f"step {want.step} is of epoch {version.epoch}, not {want.epoch}: another trainer has published it")
        return version

    def apply(self, model_config: Any, device: torch.device) -> None:
        """Puts the staged version into the model. Layers have their old tensors or their new ones, one after the other."""
        with torch.no_grad(), torch.device(device):
            given = _begin(self.model)
            try:
                if self.whole or self.again:  # their loaders wait until the layer has the rest
                    arrays = self.staging.arrays
                    self.model.load_weights((w.name, arrays[f"{w.name} -> whole"].to(device)) for w in self.whole)
                for path, places in self.layers.items():
                    self._fill(path, places)
                layerwise.finalize_layerwise_reload(self.model, model_config)
            except BaseException:
                _restore(self.model)
                raise
            finally:
                _end(given)
            self._tied_kernels()

    def _fill(self, path: str, places: Mapping[str, _Place]) -> None:
        layer = self.model.get_submodule(path)
        info = layerwise.get_layerwise_info(layer)
        loading = info.can_load() and not getattr(info, "runtime_bound", False)
        if loading:
            _meta.materialize_layer(layer, info)
        for place in places.values():
            parameter = getattr(layer, place.name)
            if _covered(place.wants) < parameter.numel():
                parameter.data.zero_()  # what the loader leaves as it is
            for fixed in place.fixed:
                fixed.write(parameter)
            for want in place.wants:
                self.staging.copy(want, parameter)
        method = getattr(layer, "quant_method", None)
        if loading and parameter.device.type == "cpu" and getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None  # type: ignore[union-attr]  # otherwise vLLM 0.32 does not pack weights of experts again, and answers nonsense
        if loading:
            made = {place.name: getattr(layer, place.name).data for place in places.values()}
            layerwise._layerwise_process(layer, info)
            if self.quantised and parameter.device.type == "cpu":  # its kernels have the addresses of scales, which vLLM 0.32 frees in a reload
                self.kept[path] = [t for name, t in made.items() if getattr(layer, name, None) is not None]

    def _tied_kernels(self) -> None:
        """A layer that shares its weight with one that was loaded, and made something of it that its kernels read."""
        filled = {id(getattr(self.model.get_submodule(path), name)) for path, places in self.layers.items() for name in places}
        for path, layer in self.model.named_modules():
            weight, method = getattr(layer, "weight", None), getattr(layer, "quant_method", None)
            if path not in self.layers and weight is not None and id(weight) in filled and hasattr(layer, "cpu_linear"):
                method.process_weights_after_loading(layer)  # type: ignore[union-attr]

    def close(self) -> None:
        self.subscriber.close()


def _as_whole(want: Want, dtype: torch.dtype) -> Want:
    strides = torch.empty(want.shape, device="meta").stride()
    at = (0,) * len(want.shape)
    return Want(want.name, "whole", _dtypes.of_any(dtype), want.shape, (at,), (want.shape,), (0,), (tuple(strides),))


def _tied(model: torch.nn.Module, name: str) -> bool:
    """Whether a parameter shares the kernel's memory with another one: at load time each has a tensor of its own."""
    layer, _, leaf = name.rpartition(".")

    def kernel(path: str, which: str) -> Any:
        tensors = layerwise.get_layerwise_info(model.get_submodule(path)).kernel_tensors
        return None if tensors is None else {**tensors[0], **tensors[1]}.get(which)

    mine = kernel(layer, leaf)
    others = (kernel(*other.rpartition(".")[::2]) for other, _ in model.named_parameters() if other != name)
    return mine is not None and any(mine is other for other in others)


# ---- the worker's side ----


def _groups() -> List[Any]:
    """vLLM's groups of which this worker is a member. Together they join all workers of the replica."""
    names = ("get_tp_group", "get_pcp_group", "get_pp_group")  # not every vLLM has all of them
    return [getattr(parallel_state, name)() for name in names if hasattr(parallel_state, name)]


def _is_last() -> bool:
    return all(group.rank_in_group == group.world_size - 1 for group in _groups())


def _told(group: Any, mine: Sequence[int]) -> List[List[int]]:
    """What each rank of a group of vLLM says, as numbers."""
    send = torch.tensor(list(mine), dtype=torch.int64, device="cpu")
    got = [torch.empty_like(send) for _ in range(group.world_size)]
    torch.distributed.all_gather(got, send, group=group.cpu_group)
    return [t.tolist() for t in got]


class Engine(base.WeightTransferEngine):  # type: ignore[misc]
    """The worker's side of the engine ``weft``."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bus: Bus = None  # type: ignore[assignment]
        self._info: Optional[InitInfo] = None
        self._targets: Dict[int, _Target] = {}

    def parse_init_info(self, init_dict: Dict[str, Any]) -> Any:
        """An error is left to init_transfer_engine, since all workers would raise this one."""
        try:
            return super().parse_init_info(init_dict)
        except ValueError as error:
            return error

    def init_transfer_engine(self, init_info: Any) -> None:
        problem: Optional[Exception] = None
        try:
            self.shutdown()
            if isinstance(init_info, Exception):
                raise init_info
            metrics = f"{init_info.metrics}.{parallel_state.get_world_group().rank}" if init_info.metrics else None
            self._bus = bus(init_info.bus, deadline=init_info.timeout, metrics=metrics)
            self._info = init_info
            self._target()
        except Exception as error:
            problem = error
        found = self._agree(problem, Version(0, 0), "so none is ready")
        if found is not None:
            self.shutdown()
            if _is_last():  # as in update_weights
                raise found

    def _target(self) -> _Target:
        """That of the model that is updated now: the model, or a draft model."""
        if self._info is None:
            raise InvalidError("call init_weight_transfer_engine before an update")
        if id(self.model) not in self._targets:
            self._targets[id(self.model)] = _Target(self, self.model, self._info)
        return self._targets[id(self.model)]

    def start_weight_update(self) -> None:
        """An update says what is missing."""

    def update_weights(self, update_info: Dict[str, Any]) -> None:
        """Of an error that the workers agree on, the last of them alone speaks.

        vLLM's executor with processes reads the workers' answers in their order and stops at the first error. Answers that it has not read, it
        takes for those to the next call. When the last worker raises, all the others have been read.
        """
        found = self._update(update_info)
        if found is None:
            return
        worker: Any = sys._getframe(1).f_locals.get("self")
        if _is_last() or not hasattr(worker, "_weight_update_active"):
            raise found
        worker._weight_update_active = False  # as vLLM's worker does after an error
        self.reset_weight_update_target()

    def _update(self, update_info: Dict[str, Any]) -> Optional[Exception]:
        """Nothing is written into the model before the version is staged and checked on all workers. Returns what they agree on."""
        problem: Optional[Exception] = None
        version = Version(0, 0)
        try:
            want = self.parse_update_info(update_info)
            target = self._target()
            version = target.fetch(want)
        except Exception as error:
            problem = error
        found = self._agree(problem, version, "so none takes the version")
        if found is not None:
            return found
        try:
            target.subscriber.swap(version)
            target.apply(self.model_config, self.device)
            if self.device.type != "cpu":
                torch.accelerator.synchronize()
        except Exception as error:
            problem = SystemError(f"the model may have layers of two versions now; update it again: {type(error).__name__}: {error}")
            problem.__cause__ = error
        return self._agree(problem, version, "amid its layers")

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Abstract in vLLM. update_weights of this class does not need it."""
        raise InvalidError("call update_weights")

    def _agree(self, problem: Optional[Exception], version: Version, so: str) -> Optional[Exception]:
        """The same on all workers of the replica: an error if one has a problem, or another version; otherwise None. Plain numbers go between them."""
        text = f"{type(problem).__name__}: {problem}" if problem is not None else ""
        if problem is not None:
            _log.error("weft: %s", text, exc_info=problem)
        said = text.encode()[:_TEXT]
        for group in _groups():
            if group.world_size == 1:
                continue
            heads = _told(group, [len(said), version.epoch, version.step])
            bad = next((rank for rank, head in enumerate(heads) if head[0]), None)
            if bad is not None:
                texts = _told(group, [*said, *[0] * (_TEXT - len(said))])
                said = bytes(texts[bad][: heads[bad][0]])
                text = text or f"rank {bad} of {group.unique_name}: {said.decode(errors='replace')}"
            elif any(head != heads[0] for head in heads):
                text = f"the workers have staged different versions: {sorted({tuple(head[1:]) for head in heads})}"
                said = text.encode()[:_TEXT]
        if problem is None and text:
            return PeerError(f"another worker has failed, {so}: {text}")
        return problem

    def finish_weight_update(self) -> None:
        """The model has the version since the update."""

    def shutdown(self) -> None:
        for target in self._targets.values():
            target.close()
        self._targets.clear()
        if self._bus is not None:
            self._bus.close()
            self._bus = None  # type: ignore[assignment]
        self._info = None
