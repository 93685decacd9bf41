"""vLLM's weight transfer on the bus: the engine ``weft`` of both of vLLM's registries. Imports vLLM; docs/engines.md says how to use it.

Here are the entry point and the trainer's side. _vllm_worker.py has the side of the workers.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Tuple

try:
    import torch
    from vllm.distributed.weight_transfer import base, factory

    _needed = base.WeightSource, base.TrainerInitInfo, base.TrainerWeightTransferEngine, factory.WeightTransferTrainerFactory
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"weft.vllm needs PyTorch and vLLM 0.28 or later: {error}. Install it, or leave weft out of VLLM_PLUGINS if this vLLM needs no weights from weft"
    ) from error

from . import _dtypes
from ._bus import Bus, Publisher, Version, bus
from ._convert import layout_text, mesh_text
from ._errors import InvalidError
from ._layout import Layout, layout

__all__ = ["Shards", "Trainer", "TrainerInitInfo", "register"]


def register() -> None:
    """The entry point of group ``vllm.general_plugins``. vLLM calls it in every process, in some of them twice."""
    sides = (
        (factory.WeightTransferEngineFactory, "weft._vllm_worker", "Engine"),
        (factory.WeightTransferTrainerFactory, "weft.vllm", "Trainer"),
    )
    for registry, module, name in sides:
        try:
            registry.register_engine("weft", module, name)
        except ValueError:
            pass  # it is there


class Shards(base.WeightSource):  # type: ignore[misc]
    """The trainer's tensors as they are: a module, or a function that returns a state dict. DTensors are not gathered.

    ``layouts`` has the layouts of all tensors of the checkpoint, if what the function returns does not say them (:class:`weft.megatron.Names`).
    """

    def __init__(self, of: Any, layouts: Optional[Mapping[str, Layout]] = None) -> None:
        self._of, self.layouts = of, layouts

    def local(self) -> Dict[str, Any]:
        """This rank's tensors by the names of the checkpoint."""
        named = self._of.named_parameters() if isinstance(self._of, torch.nn.Module) else self._of().items()
        return {str(name): t.detach() for name, t in named}

    def metadata(self) -> List[Any]:
        if self.layouts is not None:
            return [base.ParamMeta(name, _dtypes.to_torch(which.dtype), which.shape) for name, which in self.layouts.items()]
        return [base.ParamMeta(name, t.dtype, tuple(t.shape)) for name, t in self.local().items()]

    def __iter__(self) -> Iterator[Tuple[str, torch.Tensor]]:
        if self.layouts is not None:
            raise InvalidError("shards with layouts are not gathered: use the engine weft")
        for name, t in self.local().items():
            yield name, base.materialize_full_tensor(t)


@dataclass
class TrainerInitInfo(base.TrainerInitInfo):  # type: ignore[misc]
    """How a trainer publishes: on which bus, under which name of a set, and its ``rank`` of ``ranks``.

    ``run`` is a name that all ranks of this start have in common and no other start has; one rank needs none. ``dtype`` publishes
    floating tensors as that type. ``engine`` has what the workers are told besides: timeout, whole.
    """

    backend: ClassVar[str] = "weft"
    bus: str
    set: str
    ranks: int = 1
    run: Optional[str] = None
    dtype: Optional[str] = None
    keep: int = 2
    step: int = 0  #: of the first version
    listen: Optional[str] = None
    engine: Dict[str, Any] = field(default_factory=dict)


class Trainer(base.TrainerWeightTransferEngine):  # type: ignore[misc]
    """The trainer's side. ``trainer_init`` publishes the first version, so that workers can learn from it what there is."""

    init_info_cls = TrainerInitInfo
    client: Any
    source: Any
    is_sender: bool
    _bus: Optional[Bus]
    _publisher: Optional[Publisher]

    @classmethod
    def trainer_init(cls, init_info: TrainerInitInfo, *, client: Any, source: Any = None, **_: Any) -> "Trainer":
        if source is None:
            raise InvalidError("trainer_init: source is a weft.vllm.Shards, or another WeightSource of vLLM's")
        out = cls.__new__(cls)  # __init__ has other arguments in other versions of vLLM
        out.client, out.source, out.is_sender = client, source, init_info.is_sender
        out._bus, out._publisher = None, None
        try:
            out._begin(init_info)
        except BaseException:
            out.shutdown()
            raise
        return out

    def _begin(self, info: TrainerInitInfo) -> None:
        self._info, self.step = info, info.step
        module = getattr(self.source, "_module", None)
        if not hasattr(self.source, "local") and isinstance(module, torch.nn.Module):
            self.source = Shards(module)
        self._gathers = not hasattr(self.source, "local")  # a source of whole tensors: rank 0 publishes them
        now = self._tensors()
        if not self._gathers or self.is_sender:
            ranks = 1 if self._gathers else info.ranks
            self._bus = bus(info.bus, listen=info.listen)
            self._publisher = self._bus.publish(
                info.set, getattr(self.source, "layouts", None) or {name: self._layout(t, ranks) for name, t in now.items()}, dtype=info.dtype,
                rank=0 if self._gathers else info.rank, ranks=ranks, run=info.run, keep=info.keep, slow="wait",
            )  # fmt: skip
        self._commit(now)
        if self.is_sender:
            self.client.init_weight_transfer_engine({"bus": info.bus, "set": info.set, **info.engine})

    @staticmethod
    def _layout(t: Any, ranks: int) -> Any:
        """A plain tensor is the same on all ranks."""
        if hasattr(t, "placements") or ranks == 1:
            return t
        text = layout_text(_dtypes.of_any(t.dtype), [str(n) for n in t.shape], mesh_text(["x"], [ranks], list(range(ranks))), [])
        return t, layout(text)

    def _tensors(self) -> Dict[str, Any]:
        if not self._gathers:
            return dict(self.source.local())
        out = {}
        for name, t in self.source:  # all ranks go through all of it, since it gathers
            if self.is_sender:
                out[name] = t
        missing = [name for name, t in out.items() if t is None]
        if missing:
            raise InvalidError(f"rank 0 publishes whole tensors, and its source has none for {', '.join(missing[:8])}: use weft.vllm.Shards")
        return {name: t.detach() for name, t in out.items()}

    def _commit(self, tensors: Mapping[str, Any]) -> None:
        if self._publisher is not None:
            self._publisher.put(self.step, tensors)
            self._publisher.commit(self.step)

    @property
    def version(self) -> Version:
        """The version that was committed last, and that ``weight_version`` names as ``EPOCH.STEP``. For the rank that sends."""
        assert self._publisher is not None
        return Version(self._publisher.epoch, self.step)

    def send_weights(self) -> None:
        """Commits the next version, and has the engine take it. Called on every rank; rank 0 speaks with the engine."""
        self.step += 1
        self._commit(self._tensors())
        if not self.is_sender:
            return
        version = self.version
        self.client.start_weight_update()
        self.client.update_weights({"step": version.step, "epoch": version.epoch})
        named = "weight_version" in inspect.signature(self.client.finish_weight_update).parameters
        self.client.finish_weight_update(**({"weight_version": f"{version.epoch}.{version.step}"} if named else {}))

    def shutdown(self) -> None:
        for owner in (self._publisher, self._bus):
            if owner is not None:
                owner.close()
        self._publisher = self._bus = None

