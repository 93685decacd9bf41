"""What users give in state dicts: tensors of whichever library, DTensors, and pairs of an array and a layout."""

from __future__ import annotations

import warnings
from typing import Any, Sequence

import numpy as np

from ._arrays import Bits, is_torch
from ._convert import layout_text, mesh_text
from ._errors import MismatchError
from ._layout import Layout, layout

__all__ = ["compare", "is_dtensor", "is_pair", "is_tensor", "local_of", "some", "whole"]


def is_dtensor(value: Any) -> bool:
    return hasattr(value, "to_local") and hasattr(value, "placements")


def is_pair(value: Any) -> bool:
    """(array, layout). A text is no layout here, since it may be what it is."""
    return type(value) is tuple and len(value) == 2 and isinstance(value[1], Layout)


def is_tensor(value: Any) -> bool:
    return is_pair(value) or is_torch(value) or isinstance(value, (np.ndarray, Bits)) or hasattr(value, "addressable_shards")


def local_of(value: Any) -> Any:
    """The array of this process."""
    if is_pair(value):
        value = value[0]
    if is_dtensor(value):
        value = value.to_local()
    return value.detach() if hasattr(value, "detach") else value


def whole(dtype: str, shape: Sequence[int], ranks: Sequence[int]) -> Layout:
    """All of a tensor on each of the ranks."""
    return layout(layout_text(dtype, [str(n) for n in shape], mesh_text(["x"], [len(ranks)], list(ranks)), []))


def some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:16])) + (f" and {len(names) - 16} more" if len(names) > 16 else "")


def compare(call: str, what: str, there: Sequence[str], asked: Sequence[str], left_out: int) -> None:
    """Names that only one side has are an error. If they may be left out, they are a warning for who called the user's call, ``left_out`` calls above."""
    missing, extra = sorted(set(asked) - set(there)), sorted(set(there) - set(asked))
    parts = [f"{what} has no {some(missing)}"] * bool(missing) + [f"it has {some(extra)}, which was not asked for"] * bool(extra)
    if parts and not left_out:
        raise MismatchError(f"{call}: {'; '.join(parts)}: give the same names, or strict=False to leave these out")
    if parts:
        warnings.warn(f"{call}: left out, since strict=False: {'; '.join(parts)}", stacklevel=left_out + 2)
