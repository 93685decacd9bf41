"""Copies between strided views as boxes. Arithmetic alone: slots are numbers of elements, and no array is needed.

A buffer is a row-major box of slots with a content: entries, each of them a dense box of the buffer whose elements stand in a
tagged space (a tensor of a checkpoint, say) at an offset and strides. A copy reads the entries of one buffer through a view and
writes entries of another one.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

LIMIT = 1 << 14  #: pieces into which one copy may fall


class TooMany(Exception):
    """A copy falls into more than LIMIT pieces."""


class Step(NamedTuple):
    """One dim of a view: its length, and its strides on the near and on the far side."""

    len: int
    near: int
    far: int


class Run(NamedTuple):
    """A copy of a box of elements between two spaces of slots."""

    steps: Tuple[Step, ...]
    near: int
    far: int

    def turned(self) -> "Run":
        """The same with the sides exchanged."""
        return Run(tuple(Step(s.len, s.far, s.near) for s in self.steps), self.far, self.near)


class Digit(NamedTuple):
    """A step that stays within one dim of a box."""

    len: int
    dim: int
    step: int
    far: int


class Entry(NamedTuple):
    """A dense box of a buffer, and where its elements are in the space of the tag."""

    lo: Tuple[int, ...]
    hi: Tuple[int, ...]
    tag: Any
    offset: int
    strides: Tuple[int, ...]


def dense_strides(shape: Sequence[int]) -> List[int]:
    """Row-major."""
    out, n = [], 1
    for extent in reversed(shape):
        out.append(n)
        n *= max(1, extent)
    return out[::-1]


Cut = Tuple[Tuple[int, ...], List[Digit], int]  # first element, digits, far slot of the first element


def cut(shape: Sequence[int], run: Run) -> Iterator[Cut]:
    """The run in pieces, each of which is an arithmetic box of the near side, a row-major array of this shape."""
    if any(s.len == 0 for s in run.steps):
        return
    strides = dense_strides(shape)
    left = [LIMIT]

    def one_by_one(k: int, near: int, step: Step, rest: List[Step], far: int, at: Tuple[int, ...], digits: List[Digit]) -> Iterator[Cut]:
        left[0] -= step.len
        if left[0] < 0:
            raise TooMany
        for i in range(step.len):
            yield from go(k, near + i * step.near, rest, far + i * step.far, at, digits)

    def go(k: int, near: int, steps: List[Step], far: int, at: Tuple[int, ...], digits: List[Digit]) -> Iterator[Cut]:
        if k == len(strides):
            yield at, digits, far
            return
        size = strides[k]
        place, rest = divmod(near, size)
        own = [s for s in steps if s.near % size == 0]
        lower = sorted((s for s in steps if s.near % size), key=lambda s: -s.near)
        if rest + sum((s.len - 1) * s.near for s in lower) < size:  # nothing is carried into this dim
            yield from go(k + 1, rest, lower, far, (*at, place), digits + [Digit(s.len, k, s.near // size, s.far) for s in own])
            return
        first, others = lower[0], own + lower[1:]
        n, stride, beyond = first
        inner = rest % stride + sum((s.len - 1) * s.near for s in lower[1:])
        if size % stride or inner >= stride:
            yield from one_by_one(k, near, first, others, far, at, digits)
            return
        round_ = size // stride  # the step goes round this often within one place of the dim
        head = min(n, -(rest // stride) % round_)
        full, tail = divmod(n - head, round_)
        for begin, count in ((0, head), (head + full * round_, tail)):
            if count:
                yield from go(k, near + begin * stride, [Step(count, stride, beyond), *others], far + begin * beyond, at, digits)
        if full:
            both = [Step(full, size, beyond * round_), Step(round_, stride, beyond)]
            yield from go(k, near + head * stride, both + others, far + head * beyond, at, digits)

    def spread(steps: List[Step], still: List[Step], far: int) -> Iterator[Cut]:  # steps of stride 0 meet one place again and again
        if not still:
            yield from go(0, run.near, steps, far, (), [])
            return
        left[0] -= still[0].len
        if left[0] < 0:
            raise TooMany
        for i in range(still[0].len):
            yield from spread(steps, still[1:], far + i * still[0].far)

    moving = [s for s in run.steps if s.len > 1]
    yield from spread([s for s in moving if s.near], [s for s in moving if not s.near], run.far)


class Dense(NamedTuple):
    """A dense box of the near side; ``far`` is the slot of its first element on the far side, and ``strides`` those there."""

    lo: Tuple[int, ...]
    hi: Tuple[int, ...]
    far: int
    strides: Tuple[int, ...]


def _joined(digits: List[Digit]) -> List[Digit]:
    """The digits of one dim, the largest step first; those that go on where another ends are one."""
    out: List[Digit] = []
    for d in sorted(digits, key=lambda d: -d.step):
        if out and out[-1].step == d.len * d.step and out[-1].far == d.len * d.far:
            out[-1] = Digit(out[-1].len * d.len, d.dim, d.step, d.far)
        else:
            out.append(d)
    return out


def dense(piece: Cut, left: List[int]) -> Iterator[Dense]:
    """The piece as dense boxes."""
    at, digits, far = piece
    by_dim = [_joined([d for d in digits if d.dim == k]) for k in range(len(at))]
    for k, own in enumerate(by_dim):
        if len(own) > 1 or (own and own[0].step != 1):
            left[0] -= own[0].len
            if left[0] < 0:
                raise TooMany
            others = [d for j, some in enumerate(by_dim) for d in (some[1:] if j == k else some)]
            for i in range(own[0].len):
                there = (*at[:k], at[k] + i * own[0].step, *at[k + 1 :])
                yield from dense((there, others, far + i * own[0].far), left)
            return
    hi = tuple(a + (own[0].len if own else 1) for a, own in zip(at, by_dim))
    yield Dense(at, hi, far, tuple(own[0].far if own else 0 for own in by_dim))


def boxes(shape: Sequence[int], run: Run) -> List[Dense]:
    """The run as dense boxes of its near side."""
    left = [LIMIT]
    return [box for piece in cut(shape, run) for box in dense(piece, left)]


def _meets(lo: Sequence[int], hi: Sequence[int], entry: Entry) -> bool:
    return all(a < d and c < b for a, b, c, d in zip(lo, hi, entry.lo, entry.hi))


def _part(entry: Entry, lo: Tuple[int, ...], hi: Tuple[int, ...]) -> Entry:
    return entry._replace(lo=lo, hi=hi, offset=entry.offset + sum((a - b) * s for a, b, s in zip(lo, entry.lo, entry.strides)))


def _without(entry: Entry, lo: Sequence[int], hi: Sequence[int]) -> Iterator[Entry]:
    """What is left of the entry outside the box, which it meets."""
    begin, end = list(entry.lo), list(entry.hi)
    for k in range(len(begin)):
        if begin[k] < lo[k]:
            yield _part(entry, tuple(begin), (*end[:k], lo[k], *end[k + 1 :]))
            begin[k] = lo[k]
        if hi[k] < end[k]:
            yield _part(entry, (*begin[:k], hi[k], *begin[k + 1 :]), tuple(end))
            end[k] = hi[k]


class Content:
    """What a buffer of this shape, of at least one dim, holds: no slot is in two entries."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.entries: List[Entry] = []

    def read(self, run: Run) -> List[Tuple[Any, Run]]:
        """What is read through the run's near side: tags, and runs from their spaces to the run's far side."""
        out: List[Tuple[Any, Run]] = []
        if not self.entries:
            return out
        left = [LIMIT]
        for piece in cut(self.shape, run):
            at, digits, far = piece
            top = list(at)
            for d in digits:
                top[d.dim] += (d.len - 1) * d.step
            hi = [a + 1 for a in top]
            met = [e for e in self.entries if _meets(at, hi, e)]
            if len(met) == 1 and all(a <= b and c <= d for a, b, c, d in zip(met[0].lo, at, hi, met[0].hi)):
                e = met[0]
                near = e.offset + sum((a - b) * s for a, b, s in zip(at, e.lo, e.strides))
                out.append((e.tag, Run(tuple(Step(d.len, d.step * e.strides[d.dim], d.far) for d in digits), near, far)))
                continue
            for box in dense(piece, left) if met else ():
                for e in met:
                    if not _meets(box.lo, box.hi, e):
                        continue
                    lo = tuple(map(max, box.lo, e.lo))
                    lens = [min(a, b) - c for a, b, c in zip(box.hi, e.hi, lo)]
                    near = e.offset + sum((a - b) * s for a, b, s in zip(lo, e.lo, e.strides))
                    beyond = box.far + sum((a - b) * s for a, b, s in zip(lo, box.lo, box.strides))
                    out.append((e.tag, Run(tuple(map(Step, lens, e.strides, box.strides)), near, beyond)))
                    left[0] -= 1
                    if left[0] < 0:
                        raise TooMany
        return out

    def erase(self, run: Run) -> List[Any]:
        """Nothing is known any more of what the run's near side reaches. Returns the tags that were there."""
        tags: List[Any] = []
        for box in boxes(self.shape, run) if self.entries else ():
            first, end = box.lo[0], box.hi[0]
            met = [e for e in self.entries if e.lo[0] < end and first < e.hi[0] and _meets(box.lo, box.hi, e)]
            if met:
                gone = set(map(id, met))
                self.entries = [e for e in self.entries if id(e) not in gone] + [part for e in met for part in _without(e, box.lo, box.hi)]
                tags += [e.tag for e in met]
        return tags

    def write(self, tag: Any, run: Run) -> None:
        """The run's near side is where elements of the tag's space come to, which is its far side. Erase it first."""
        self.entries += [Entry(b.lo, b.hi, tag, b.far, b.strides) for b in boxes(self.shape, run)]
