"""Pictures for notebooks: who holds what, and who sends how much to whom."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Dict, List, Tuple

if TYPE_CHECKING:
    from ._layout import Layout
    from ._plan import Plan

_SIDE = 240  # of a picture
_MOST = 64  # ranks that are drawn
_MOST_BOXES = 2048
_MOST_TITLES = 24  # ranks up to which each square says its bytes
_LEFT, _TOP = 64, 26  # room for labels
_BLUE = "#2a6fbb"


def _color(rank: int, world: int) -> str:
    return f"hsl({360 * rank // max(1, world)},55%,62%)"


def _number(n: int) -> str:
    size, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"


def _svg(wide: float, high: float, parts: List[str]) -> str:
    """A picture with room for labels at its left and at its top."""
    body = f'<g transform="translate({_LEFT},{_TOP})" font-family="sans-serif" font-size="10">{"".join(parts)}</g>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + _LEFT + 8:.0f}" height="{high + _TOP + 8:.0f}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _no_picture(why: str) -> str:
    return f"<small>no picture: {escape(why)}</small>"


def layout_svg(of: "Layout") -> str:
    """The first two dims with their extents, each box in the color of the first rank that holds it, with its number."""
    if of.world > _MOST:
        return _no_picture(f"there are {of.world} ranks, and up to {_MOST} are drawn")
    shape = (of.shape + (1, 1))[:2]
    if len(of.shape) == 1:
        shape = (1, of.shape[0])
    if not all(shape):
        return _no_picture("the tensor has no elements")
    wide, high = _SIDE, max(24, min(_SIDE, _SIDE * shape[0] // max(1, shape[1])))
    first: Dict[Tuple[Tuple[int, ...], Tuple[int, ...]], List[int]] = {}
    for rank in range(of.world):
        for box in of.boxes(rank):
            at, size = (box.at + (0, 0))[:2], (box.len + (1, 1))[:2]
            if len(of.shape) == 1:
                at, size = (0, box.at[0]), (1, box.len[0])
            ranks = first.setdefault((at, size), [])
            if rank not in ranks:
                ranks.append(rank)
        if len(first) > _MOST_BOXES:
            return _no_picture(f"there are more than {_MOST_BOXES} boxes")
    parts: List[str] = []
    for (at, size), ranks in reversed(list(first.items())):
        x, y = at[1] * wide / shape[1], at[0] * high / shape[0]
        w, h = size[1] * wide / shape[1], size[0] * high / shape[0]
        who = ", ".join(map(str, ranks))
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{_color(ranks[0], of.world)}" '
            f'stroke="white"><title>rank{"s" * (len(ranks) > 1)} {who}</title></rect>'
        )
        short = who if 6 * len(who) <= w else f"{ranks[0]}…" if len(ranks) > 1 else who
        if h >= 11 and 6 * len(short) <= w:
            parts.append(_text(x + w / 2, y + h / 2 + 4, short))
    column = len(of.shape) > 1
    parts += [_text(0, -4, "0", "start"), _text(wide, -4, str(shape[1]), "end")]
    parts.append(_text(wide / 2, -4, f"dim {1 if column else 0}"))
    if column:
        parts += [_text(-4, 9, "0", "end"), _text(-4, high, str(shape[0]), "end")]
        if high >= 48:
            parts.append(_text(-4, high / 2 + 4, "dim 0", "end"))
    return _svg(wide, high, parts)


def layout_html(of: "Layout") -> str:
    """The notation and the picture."""
    more = f"<br><small>the first 2 of {len(of.shape)} dims</small>" if len(of.shape) > 2 else ""
    return f"<div><code>{escape(repr(of))}</code><br>{layout_svg(of)}<br><small>numbers are ranks</small>{more}</div>"


def _scale(most: int) -> List[str]:
    """What the shades mean, under the picture."""
    steps = [
        f'<rect x="{i * _SIDE / 8:.0f}" y="{_SIDE + 8}" width="{_SIDE / 8:.0f}" height="8" fill-opacity="{0.15 + 0.85 * (i + 1) / 8:.2f}"/>'
        for i in range(8)
    ]
    return [
        f'<g fill="{_BLUE}">{"".join(steps)}</g>',
        _text(0, _SIDE + 28, "0 B", "start"),
        _text(_SIDE / 2, _SIDE + 28, _number(most // 2)),
        _text(_SIDE, _SIDE + 28, _number(most), "end"),
    ]


def plan_svg(plan: "Plan") -> str:
    """A square for each two ranks, the darker the more one sends to the other, with their numbers and a scale."""
    n = plan.world
    if plan._loaded is not None:
        return _no_picture("a loaded plan has one rank's part alone")
    if n > _MOST:
        return _no_picture(f"there are {n} ranks, and up to {_MOST} are drawn; plan.peers(rank) lists what one sends")
    sent = {(r, p.rank): p.sent for r in range(n) for p in plan.peers(r) if p.sent}
    most, cell = max(sent.values(), default=1), _SIDE / n
    parts = [f'<rect width="{_SIDE}" height="{_SIDE}" fill="#f4f4f4"/>', f'<g fill="{_BLUE}" stroke="white">']
    for (a, b), size in sent.items():
        shade = 0.15 + 0.85 * size / most
        box = f'<rect x="{b * cell:.1f}" y="{a * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill-opacity="{shade:.2f}"'
        parts.append(f"{box}><title>{a} to {b}: {_number(size)}</title></rect>" if n <= _MOST_TITLES else f"{box}/>")
    parts.append("</g>")
    step = next(k for k in (1, 2, 4, 8, 16) if k * cell >= 14)
    for r in range(0, n, step):
        middle = (r + 0.5) * cell
        parts += [_text(middle, -4, str(r)), _text(-4, middle + 4, str(r), "end")]
    parts += [_text(-_LEFT + 2, -_TOP + 10, "from ↓ to →", "start"), *_scale(most)]
    return _svg(_SIDE, _SIDE + 28, parts)


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
    return f"<div><table>{table}</table>{plan_svg(plan)}<br><small>bytes that each rank (row) sends to each rank (column)</small></div>"
