"""State dicts of any depth as tensors with names, and a text that says where they were: what is no tensor is in the text, as JSON has it."""

from __future__ import annotations

import json
from collections.abc import Mapping as MappingOf
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ._errors import InvalidError

__all__ = ["flatten", "tree_values", "unflatten"]

# A node of the text is a list: ["a", name] a tensor, ["v", value], ["d", [[key, node], ...]] a dict, ["l", [node, ...]] a list, ["t", ...] a tuple
_MARKS: Dict[type, str] = {list: "l", tuple: "t"}


def _is_value(value: Any) -> bool:
    """Whether JSON has it, and gives it back as it is."""
    return value is None or type(value) in (bool, int, float, str)


def flatten(state: Any, is_tensor: Callable[[Any], bool]) -> Tuple[Dict[str, Any], Optional[str]]:
    """The tensors by name (keys joined by dots), and the text of the rest; None: it is a dict of names to tensors, and nothing else."""
    out: Dict[str, Any] = {}

    def put(name: str, value: Any) -> List[Any]:
        if not name:
            raise InvalidError("a tensor has the empty text as its name")
        if name in out:
            raise InvalidError(f"two tensors have the name {name!r}, with keys joined by dots")
        out[name] = value
        return ["a", name]

    def walk(path: str, value: Any) -> List[Any]:
        if is_tensor(value):
            return put(path, value)
        if isinstance(value, MappingOf):
            pairs: List[Any] = []
            for key, inner in value.items():
                if type(key) not in (str, int):
                    raise InvalidError(f"{path or 'the state dict'!r} has the key {key!r}: keys are texts or ints")
                pairs.append([key, walk(f"{path}.{key}" if path else str(key), inner)])
            return ["d", pairs]
        if isinstance(value, (list, tuple)) and type(value) in _MARKS:
            return [_MARKS[type(value)], [walk(f"{path}.{i}" if path else str(i), inner) for i, inner in enumerate(value)]]
        if _is_value(value):
            return ["v", value]
        raise InvalidError(
            f"{path!r} is of the type {type(value).__name__}, which is no tensor, and JSON does not have it: leave it out, or put numbers, texts, lists and dicts"
        )

    tree = walk("", state)
    flat = tree[0] == "d" and all(type(key) is str and node[0] == "a" for key, node in tree[1])
    return out, None if flat and out else json.dumps(tree)


def _has_tensors(node: Sequence[Any]) -> bool:
    kind, what = node
    inner = [node for _, node in what] if kind == "d" else what if kind in "lt" else ()
    return kind == "a" or any(map(_has_tensors, inner))


def tree_values(text: str) -> List[str]:
    """The names of what is no tensor. A list or tuple without tensors is one value."""
    out: List[str] = []

    def walk(path: str, node: Sequence[Any]) -> None:
        kind, what = node
        if kind == "v" or (kind in "lt" and not _has_tensors(node)):
            out.append(path)
        elif kind != "a":
            for key, inner in what if kind == "d" else enumerate(what):
                walk(f"{path}.{key}" if path else str(key), inner)

    walk("", json.loads(text))
    return out


def unflatten(text: str, tensors: Mapping[str, Any]) -> Any:
    """The state dict again. Tensors that are not there are left out."""
    gone = object()

    def walk(node: Sequence[Any]) -> Any:
        kind, what = node
        if kind == "a":
            return tensors.get(what, gone)
        if kind == "v":
            return what
        if kind == "d":
            pairs = [(key, walk(inner)) for key, inner in what]
            return {key: value for key, value in pairs if value is not gone}
        values = [value for value in map(walk, what) if value is not gone]
        return tuple(values) if kind == "t" else values

    whole = walk(json.loads(text))
    return None if whole is gone else whole
