"""What the conversions from other libraries share: text of meshes and dims, and PyTorch's rule for pieces."""

from __future__ import annotations

import itertools
from typing import Iterator, List, Sequence, Tuple

from ._layout import layout

Spans = List[Tuple[int, int]]  # (first, length) of runs of positions


def mesh_text(names: Sequence[str], sizes: Sequence[int], ranks: Sequence[int]) -> str:
    """``@dp2.tp4=0,1,...``; the list of ranks is left out where it says nothing."""
    # A size right behind "_" or a digit would read as part of the name.
    axes = ".".join(f"{n}{' ' if n[-1:] == '_' or n[-1:].isdigit() else ''}{s}" for n, s in zip(names, sizes))
    plain = list(ranks) == list(range(len(ranks)))
    return f"@{axes}" + ("" if plain else "=" + ",".join(map(str, ranks)))


def layout_text(dtype: str, dims: Sequence[str], mesh: str, folds: Sequence[Tuple[str, Sequence[str]]]) -> str:
    """The notation of all its parts."""
    return f"{dtype}[{','.join(dims)}] {mesh}" + "".join(f" +{op}({','.join(over)})" for op, over in folds)


# ---- pieces of one dim, as PyTorch cuts them ----


def _merge(spans: Spans) -> Spans:
    out: Spans = []
    for at, n in spans:
        if n and out and sum(out[-1]) == at:
            out[-1] = (out[-1][0], out[-1][1] + n)
        elif n:
            out.append((at, n))
    return out


def _take(spans: Spans, first: int, count: int) -> Spans:
    """Positions first .. first + count - 1 of those that the spans list."""
    out: Spans = []
    for at, n in spans:
        skip = min(first, n)
        use = min(n - skip, count)
        if use > 0:
            out.append((at + skip, use))
        first, count = first - skip, count - max(use, 0)
    return out


def _chunk(spans: Spans, parts: int, index: int) -> Spans:
    total = sum(n for _, n in spans)
    size = -(-total // parts)
    first = min(index * size, total)
    return _take(spans, first, min(size, total - first))


def torch_piece(extent: int, cuts: Sequence[Tuple[int, int, int]]) -> Spans:
    """What a rank holds of a dim by DTensor's rule; a cut is (size of the mesh dim, split_factor, coordinate), in mesh order.

    Shard is torch.chunk; _StridedShard is chunk by its factor, each chunk by the mesh dim, and those of one coordinate in a row.
    """
    spans: Spans = [(0, extent)]
    for size, factor, at in cuts:
        spans = [s for j in range(factor) for s in _chunk(_chunk(spans, factor, j), size, at)]
    return _merge(spans)


def same_pieces(dim: str, extent: int, axes: Sequence[Tuple[str, int, int]]) -> bool:
    """Whether the notation's dim has the pieces that DTensor's rule gives; axes are (name, size, split_factor) in mesh order.

    True at once where everything is even: then the rules agree.
    """
    whole = 1
    for _, size, factor in axes:
        whole *= size * factor
    if all(factor == 1 for _, _, factor in axes) and ":" not in dim:
        return "/".join([str(extent), *(name for name, _, _ in axes)]) == dim
    if extent % whole == 0 and ":" not in dim:
        return True
    return all(ours == theirs for ours, theirs in _both_pieces(dim, extent, axes))


def same_lengths(dim: str, extent: int, axes: Sequence[Tuple[str, int, int]]) -> bool:
    """Whether those pieces have the same length on every rank."""
    return all(sum(n for _, n in ours) == sum(n for _, n in theirs) for ours, theirs in _both_pieces(dim, extent, axes))


def _both_pieces(dim: str, extent: int, axes: Sequence[Tuple[str, int, int]]) -> Iterator[Tuple[Spans, Spans]]:
    """What each rank holds by the notation, and by DTensor's rule."""
    names, sizes = [a[0] for a in axes], [a[1] for a in axes]
    one = layout(layout_text("u8", [dim], mesh_text(names, sizes, range(product(sizes))), []))
    for rank, place in enumerate(itertools.product(*(range(s) for s in sizes))):
        ours = _merge([(box.at[0], box.len[0]) for box in one.boxes(rank)])
        yield ours, torch_piece(extent, [(a[1], a[2], c) for a, c in zip(axes, place)])


def product(sizes: Sequence[int]) -> int:
    total = 1
    for s in sizes:
        total *= s
    return total


def default_names(n: int) -> List[str]:
    """Names for the axes of a mesh that has none."""
    return [chr(ord("a") + i) for i in range(n)]
