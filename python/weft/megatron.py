"""A trainer of Megatron-LM under the names of Hugging Face's checkpoints, as engines want them. Nothing is gathered, and nothing is copied.

Megatron's ranks have fused tensors: ``linear_qkv`` with the rows of q, k and v group by group, ``linear_fc1`` with gate and up. In each of them, a tensor
of Hugging Face's is boxes at offsets of the rank's flat array, and so each array is published under several names, as it is. Of tensors
that several ranks have, one of them publishes: the one that has the least to do yet.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._errors import InvalidError, MismatchError, UnsupportedError
from ._layout import Layout, boxes

__all__ = ["Names"]

_TYPES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")

Rows = Sequence[Tuple[int, int, int]]  # of a tensor, and of a rank's array: first row there, how many, first row here


class _Tensor(NamedTuple):
    """A tensor of Hugging Face's in one of Megatron's."""

    name: str
    of: Tuple[str, ...]  # Megatron's names, of which a rank has one
    shape: Tuple[int, ...]
    local: Tuple[int, ...]  # shape of Megatron's array
    rows: Callable[[int], Rows]  # of a rank of the tensor parallelism
    columns: bool = False  # these are cut instead of the rows
    same: bool = False  # all ranks of the stage have it whole
    stage: int = 0
    expert: Optional[int] = None  # the rank of the expert parallelism


def _config(given: Any) -> Dict[str, Any]:
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        with open(os.path.join(path, "config.json") if os.path.isdir(path) else path) as f:
            given = json.load(f)
    return dict(given if isinstance(given, Mapping) else given.to_dict())


def _parts(what: str, n: int, parts: int) -> int:
    if parts < 1 or n % parts:
        raise InvalidError(f"megatron: {n} {what} do not fall into {parts} equal parts")
    return n // parts


class Names:
    """What Megatron's ranks publish under the names of Hugging Face.

    ``config`` is the config.json of the model, as a path, a dict or an object of transformers. ``ranks`` is the number of the trainer's ranks, in Megatron's order: tensor parallelism
    fastest, then context and data parallelism, pipeline stages last. ``etp`` is the tensor parallelism of experts (``tp`` by default), ``stages`` the number of layers of each stage (equal by default), and
    ``vocab_multiple`` Megatron's ``make_vocab_size_divisible_by``. ``dtype`` is that of the trainer's tensors.
    """

    def __init__(
        self,
        config: Any,
        ranks: int,
        *,
        tp: int = 1,
        pp: int = 1,
        ep: int = 1,
        etp: Optional[int] = None,
        stages: Optional[Sequence[int]] = None,
        vocab_multiple: int = 128,
        dtype: str = "f32",
    ) -> None:
        self._config = _config(config)
        kind = self._config.get("model_type")
        if kind not in _TYPES:
            raise UnsupportedError(f"megatron: models of the type {kind!r} are not known, only {', '.join(_TYPES)}")
        self._tp, self._ep, self._etp, self._multiple = tp, ep, tp if etp is None else etp, vocab_multiple
        self._inner = _parts("ranks", ranks, pp)  # ranks of a stage
        _parts("ranks of a stage", self._inner, tp)
        _parts("ranks of a stage", self._inner, ep * self._etp)
        layers = self._number("num_hidden_layers")
        self._stages = list(stages) if stages is not None else [_parts("layers", layers, pp)] * pp
        if len(self._stages) != pp or sum(self._stages) != layers:
            raise InvalidError(f"megatron: stages is {self._stages}, and there are {pp} stages and {layers} layers")
        self.layouts: Dict[str, Layout] = {}  #: of each tensor, for :meth:`Bus.publish`; the same on all ranks
        self._held: List[Dict[str, _Tensor]] = [{} for _ in range(ranks)]
        self._known: List[List[_Tensor]] = [[] for _ in range(pp)]
        made: Dict[Any, Layout] = {}
        load = [0] * ranks
        for tensor in self._tensors():
            team = min(self._teams(tensor), key=lambda team: load[team[0]])
            key = tensor.shape, tensor.local, tensor.columns, tuple(team), repr(tensor.rows(0))
            if key not in made:
                made[key] = self._layout(tensor, team, dtype)
            self.layouts[tensor.name] = made[key]
            for rank in made[key].ranks:
                self._held[rank][tensor.name] = tensor
                load[rank] += made[key].local(rank).elements
            self._known[tensor.stage].append(tensor)

    # ---- the model ----

    def _number(self, *keys: str) -> int:
        found = next((self._config[key] for key in keys if self._config.get(key) is not None), None)
        if found is None:
            raise InvalidError(f"megatron: the config has no {' or '.join(keys)}")
        return int(found)

    def _tensors(self) -> Iterator[_Tensor]:
        c, last = self._config, len(self._stages) - 1
        hidden, words = self._number("hidden_size"), self._number("vocab_size")
        padded = -(-words // (self._multiple * self._tp)) * self._multiple

        def vocabulary(t: int) -> Rows:
            return [(min(t * padded, words), max(0, min(padded, words - t * padded)), 0)]

        yield _Tensor("model.embed_tokens.weight", ("embedding.word_embeddings.weight",), (words, hidden), (padded, hidden), vocabulary)
        first = 0
        for stage, count in enumerate(self._stages):
            for i in range(count):
                for tensor in self._layer(first + i):
                    of = tuple(f"decoder.layers.{i}.{name}" for name in tensor.of)
                    yield tensor._replace(name=f"model.layers.{first + i}.{tensor.name}", of=of, stage=stage)
            first += count
        yield self._same("model.norm.weight", ("decoder.final_layernorm.weight",), hidden)._replace(stage=last)
        if not c.get("tie_word_embeddings", False):
            yield _Tensor("lm_head.weight", ("output_layer.weight",), (words, hidden), (padded, hidden), vocabulary, stage=last)

    @staticmethod
    def _same(name: str, of: Tuple[str, ...], *shape: int) -> _Tensor:
        return _Tensor(name, of, shape, shape, lambda t: [(0, shape[0], 0)], same=True)

    def _layer(self, number: int) -> Iterator[_Tensor]:
        """Names are those within the layer."""
        c = self._config
        kind, hidden = c["model_type"], self._number("hidden_size")
        heads = self._number("num_attention_heads")
        groups = int(c.get("num_key_value_heads") or heads)
        size = int(c.get("head_dim") or hidden // heads)
        per = _parts("query heads", heads, groups)
        own = _parts("groups of heads", groups, self._tp)

        def of_groups(n: int, skip: int) -> Callable[[int], Rows]:
            """n heads of each group, behind this many others."""
            return lambda t: [((t * own + g) * n * size, n * size, (g * (per + 2) + skip) * size) for g in range(own)]

        yield self._same("input_layernorm.weight", ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"), hidden)
        for what in ("weight", "bias") if kind == "qwen2" or c.get("attention_bias") else ("weight",):
            more = (hidden,) if what == "weight" else ()
            local = (own * (per + 2) * size, *more)
            for letter, n, skip in (("q", per, 0), ("k", 1, per), ("v", 1, per + 1)):
                of = (f"self_attention.linear_qkv.{what}",)
                yield _Tensor(f"self_attn.{letter}_proj.{what}", of, (groups * n * size, *more), local, of_groups(n, skip))
        if kind.startswith("qwen3"):
            for letter in "qk":
                yield self._same(f"self_attn.{letter}_norm.weight", (f"self_attention.{letter}_layernorm.weight",), size)
        yield self._down("self_attn.o_proj.weight", ("self_attention.linear_proj.weight",), hidden, heads * size, self._tp)
        if c.get("attention_bias") and kind != "qwen2":
            yield self._same("self_attn.o_proj.bias", ("self_attention.linear_proj.bias",), hidden)
        norms = ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")
        yield self._same("post_attention_layernorm.weight", norms, hidden)
        experts = self._experts(number)
        if not experts:
            names = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
            yield from self._mlp(names, ("mlp.linear_fc1.weight",), ("mlp.linear_fc2.weight",), self._number("intermediate_size"), self._tp)
            return
        mixtral = kind == "mixtral"
        at = "block_sparse_moe" if mixtral else "mlp"
        yield self._same(f"{at}.gate.weight", ("mlp.router.weight",), experts, hidden)
        inner, each = self._number("intermediate_size" if mixtral else "moe_intermediate_size"), _parts("experts", experts, self._ep)
        for e in range(experts):
            parts = [f"{at}.experts.{e}.{n}" for n in (("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj"))]
            up, down = ((f"mlp.experts.linear_fc{n}.weight{e % each}", f"mlp.experts.local_experts.{e % each}.linear_fc{n}.weight") for n in (1, 2))
            for tensor in self._mlp(parts, up, down, inner, self._etp):
                yield tensor._replace(expert=e // each)

    def _experts(self, number: int) -> int:
        c = self._config
        if c["model_type"] == "mixtral":
            return self._number("num_local_experts")
        dense = number in (c.get("mlp_only_layers") or ()) or (number + 1) % int(c.get("decoder_sparse_step") or 1)
        return self._number("num_experts", "num_local_experts") if c["model_type"] == "qwen3_moe" and not dense else 0

    @staticmethod
    def _down(name: str, of: Tuple[str, ...], rows: int, columns: int, tp: int) -> _Tensor:
        part = _parts("columns", columns, tp)
        return _Tensor(name, of, (rows, columns), (rows, part), lambda t: [(t * part, part, 0)], columns=True)

    def _mlp(self, names: Sequence[str], up: Tuple[str, ...], down: Tuple[str, ...], inner: int, tp: int) -> Iterator[_Tensor]:
        hidden, part = self._number("hidden_size"), _parts("rows of an MLP", inner, tp)
        yield _Tensor(f"{names[0]}.weight", up, (inner, hidden), (2 * part, hidden), lambda t: [(t * part, part, 0)])
        yield _Tensor(f"{names[1]}.weight", up, (inner, hidden), (2 * part, hidden), lambda t: [(t * part, part, part)])
        yield self._down(f"{names[2]}.weight", down, hidden, inner, tp)

    # ---- the ranks ----

    def _teams(self, tensor: _Tensor) -> List[range]:
        """The ranks that have the whole tensor together, for each replica of it."""
        tp, first = (self._tp, 0) if tensor.expert is None else (self._etp, tensor.expert * self._etp)
        stage = range(tensor.stage * self._inner, (tensor.stage + 1) * self._inner)
        if tensor.same:
            return [range(rank, rank + 1) for rank in stage]
        apart = tp if tensor.expert is None else self._ep * tp
        return [range(base, base + tp) for base in stage[first::apart]]

    @staticmethod
    def _layout(tensor: _Tensor, team: range, dtype: str) -> Layout:
        """The boxes of all ranks."""
        rank, at, lens, offset, stride = [], [], [], [], []
        more = tensor.shape[1:]
        for t, who in enumerate(team):
            for there, n, here in tensor.rows(t):
                if n:
                    rank.append(who)
                    at.append((0, there) if tensor.columns else (there, *(0 for _ in more)))
                    lens.append((tensor.shape[0], n) if tensor.columns else (n, *more))
                    stride.append((tensor.local[1], 1) if more else (1,))
                    offset.append(here * (1 if tensor.columns or not more else tensor.local[1]))
        return boxes(dtype, tensor.shape, rank, at, lens, offset, stride)

    def arrays(self, rank: int, state: Mapping[str, Any]) -> Dict[str, Any]:
        """This rank's tensors for :meth:`Publisher.put`, by the names of Hugging Face; no copies. ``state`` is the rank's own state dict of Megatron, whose
        layers and experts count from 0 on each rank. A tensor that no rule knows is an error."""
        here: Dict[str, Any] = {}
        for name, t in state.items():
            while name.startswith("module."):
                name = name[len("module.") :]
            if not name.endswith("_extra_state") and t is not None:
                here[name] = t.data if hasattr(t, "data") and hasattr(t, "requires_grad") else t
        strange = set(here)
        for tensor in self._known[rank // self._inner]:
            of = tensor.of
            found = [name for name in of if name in here]
            strange -= set(found)
            if tensor.expert is not None and tensor.expert != rank % self._inner // self._etp % self._ep:
                continue
            if len(found) != 1:
                raise MismatchError(f"megatron: rank {rank} has {' and '.join(found) or 'none'} of {' or '.join(of)}, for {tensor.name}")
            shape = tuple(int(n) for n in here[found[0]].shape)
            if shape != tensor.local:
                raise MismatchError(f"megatron: {found[0]} of rank {rank} is {shape}, and {tensor.name} needs {tensor.local}")
        if self._config.get("tie_word_embeddings", False):
            strange.discard("output_layer.weight")  # the last stage has a copy
        if strange:
            raise MismatchError(f"megatron: no tensor of a checkpoint is in {', '.join(sorted(strange)[:8])} of rank {rank}")
        return {name: here[next(of for of in tensor.of if of in here)] for name, tensor in self._held[rank].items()}
