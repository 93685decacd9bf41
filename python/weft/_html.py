"""Pictures for notebooks: who holds what, and who sends how much to whom."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from ._layout import Layout
    from ._plan import Plan

_SIDE = 240  # of a picture
_MOST = 64  # ranks that are drawn
_MOST_BOXES = 2048


def _color(rank: int, world: int) -> str:
    return f"hsl({360 * rank // max(1, world)},55%,62%)"


def _number(n: int) -> str:
    size, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"


def layout_svg(of: "Layout") -> str:
    """The first two dims, each box in the color of the first rank that holds it."""
    shape = (of.shape + (1, 1))[:2]
    if len(of.shape) == 1:
        shape = (1, of.shape[0])
    if not all(shape) or of.world > _MOST:
        return ""
    wide, high = _SIDE, max(24, min(_SIDE, _SIDE * shape[0] // max(1, shape[1])))
    parts: List[str] = []
    for rank in reversed(range(of.world)):
        for box in of.boxes(rank):
            at, size = (box.at + (0, 0))[:2], (box.len + (1, 1))[:2]
            if len(of.shape) == 1:
                at, size = (0, box.at[0]), (1, box.len[0])
            x, y = at[1] * wide / shape[1], at[0] * high / shape[0]
            w, h = size[1] * wide / shape[1], size[0] * high / shape[0]
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{_color(rank, of.world)}" '
                f'stroke="white"><title>rank {rank}</title></rect>'
            )
            if len(parts) > _MOST_BOXES:
                return ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}">{"".join(parts)}</svg>'


def layout_html(of: "Layout") -> str:
    """The notation and the picture."""
    return f"<div><code>{escape(repr(of))}</code><br>{layout_svg(of)}</div>"


def plan_svg(plan: "Plan") -> str:
    """A square for each two ranks, the darker the more one sends to the other."""
    n = plan.world
    if n > _MOST or plan._loaded is not None:
        return ""
    sent = {(r, p.rank): p.sent for r in range(n) for p in plan.peers(r) if p.sent}
    most, cell = max(sent.values(), default=1), _SIDE / n
    parts = [f'<rect width="{_SIDE}" height="{_SIDE}" fill="#f4f4f4"/>']
    for (a, b), size in sent.items():
        shade = 0.15 + 0.85 * size / most
        parts.append(
            f'<rect x="{b * cell:.1f}" y="{a * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="#2a6fbb" '
            f'fill-opacity="{shade:.2f}" stroke="white"><title>{a} to {b}: {_number(size)}</title></rect>'
        )
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIDE}" height="{_SIDE}">{"".join(parts)}</svg>'


def plan_html(plan: "Plan") -> str:
    """The layouts, a few numbers and the picture."""
    rows = [(m.name or "tensor", f"{m.src} → {m.dst}") for m in plan.moves[:8]]
    if len(plan.moves) > 8:
        rows.append(("…", f"{len(plan.moves) - 8} more tensors"))
    if plan._loaded is None and plan.world <= _MOST:
        s = plan.stats
        rows += [
            ("recognised as", f"{s.kind}, by {s.algorithm}"),
            ("moved", f"{_number(s.moved)} in {s.messages} messages; at least {_number(s.bound)} must"),
            ("busiest sender", f"rank {s.busiest_sender}, {_number(s.most_sent)}"),
            ("busiest receiver", f"rank {s.busiest_receiver}, {_number(s.most_received)}"),
        ]
    table = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    picture = plan_svg(plan)
    caption = "<small>rows send to columns</small>" if picture else ""
    return f"<div><table>{table}</table>{picture}<br>{caption}</div>"
