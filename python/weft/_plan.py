"""Plans: what moves from whom to whom, made from two layouts by arithmetic alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _dtypes
from ._errors import InvalidError, check, filled, text_of
from ._layout import Layout, layout
from ._weft import ffi, lib

if TYPE_CHECKING:
    from ._arrivals import Arrival
    from ._comm import Comm
    from ._exec import Bound

__all__ = ["Machine", "Move", "Peer", "Plan", "RankStats", "Stats", "collective", "load", "lower"]

LayoutLike = Union[str, Layout]


class Move(NamedTuple):
    """One tensor of a plan."""

    name: str
    src: Layout
    dst: Layout


class Machine(NamedTuple):
    """The machine as lowering sees it; zeros are the defaults."""

    ranks_per_host: int = 0  #: ranks r with the same r // ranks_per_host share a host; 0: all on one
    latency_ns: int = 0  #: of one message between hosts
    bytes_per_us: int = 0  #: of one host's link
    inside_latency_ns: int = 0  #: of one message inside a host
    inside_bytes_per_us: int = 0  #: of a rank's port, if a link joins the ranks of a host; 0: they share memory
    copy_bytes_per_us: int = 0  #: what a rank copies or folds
    host_copy_bytes_per_us: int = 0  #: what all ranks of a host copy or fold; 0: as much as each of them can
    core_bytes_per_us: int = 0  #: what a core moves through a link between hosts; 0: the link needs no core
    message_ns: int = 0  #: a rank's own time for a message, at either end
    launch_ns: int = 0  #: a rank's own time for a kernel, if a link joins the ranks of a host
    links: int = 0  #: of a host, which make up bytes_per_us and which its ranks share
    cores: int = 0  #: that the ranks of a host share; 0: each rank has one


class RankStats(NamedTuple):
    """What one rank's plan does. Bytes, but for the counts at the end."""

    rank: int
    world: int
    tensors: int
    kind: str  #: what the pair was recognised as
    algorithm: str
    sent: int
    received: int
    copied: int
    folded: int
    bound: int  #: this rank's share of the fewest bytes that must cross
    stated: int  #: this rank's share of what the algorithm says that it moves
    scratch: int
    memory: int  #: of the plan itself
    largest_send: int
    largest_recv: int
    send_peers: int
    recv_peers: int
    steps: int
    sends: int
    recvs: int
    chunks: int


class Stats(NamedTuple):
    """What the plans of all ranks do together."""

    world: int
    tensors: int
    kind: str
    algorithm: str
    moved: int  #: bytes that cross between ranks
    bound: int  #: the fewest that must
    messages: int
    copied: int  #: bytes inside ranks
    folded: int  #: bytes read by folds
    busiest_sender: int  #: a rank
    most_sent: int
    busiest_receiver: int  #: a rank
    most_received: int


class Peer(NamedTuple):
    """What a rank exchanges with one of its peers."""

    rank: int
    sent: int
    received: int
    sends: int
    recvs: int


class Plan:
    """The move of one tensor or of many, made by :func:`weft.lower`. It never changes.

    Each rank has its own part, lowered when it is asked for: by :meth:`bind`, for the comm's rank, or by the methods that
    take a rank.
    """

    def __init__(self, moves: Sequence[Move], options: Mapping[str, Any], many: bool, loaded: Any = None) -> None:
        self._moves = tuple(moves)
        self._options = dict(options)
        self._many = many
        self._loaded = loaded
        self._parts: Dict[Tuple[int, int], Any] = {}
        least = max([1, *(max(m.src.world, m.dst.world) for m in self._moves)])
        self._world: int = lib.weft_plan_world(loaded) if loaded is not None else max(least, self._options.get("world") or 0)
        if loaded is None:
            self._part(0)  # what is wrong with the pair is said now

    # ---- parts ----

    def _lower(self, rank: int, world: int) -> Any:
        names = [ffi.new("char[]", m.name.encode()) for m in self._moves]
        moves = ffi.new("weft_move[]", max(1, len(self._moves)))
        for i, m in enumerate(self._moves):
            moves[i].name, moves[i].src, moves[i].dst = names[i], m.src._ptr, m.dst._ptr
        opts = ffi.new("weft_lower_opts *")
        opts.size = ffi.sizeof("weft_lower_opts")
        o = self._options
        algorithm = ffi.new("char[]", o["algorithm"].encode()) if o.get("algorithm") else ffi.NULL
        opts.bucket, opts.algorithm = o.get("bucket") or 0, algorithm
        opts.in_place, opts.world = bool(o.get("in_place")), world
        machine = o.get("machine")
        if machine is not None:
            where = ffi.new("weft_machine *")
            where.size = ffi.sizeof("weft_machine")
            for name, value in Machine(*machine)._asdict().items():
                setattr(where, name, value)
            opts.machine = where
        out = ffi.new("weft_plan **")
        check(lib.weft_lower(moves, len(self._moves), rank, opts, out))
        return ffi.gc(out[0], lib.weft_plan_free)

    def _part(self, rank: int, world: int = 0) -> Any:
        world = max(world, self._world)
        part = self._parts.get((rank, world))
        if part is None:
            if self._loaded is not None:
                have = lib.weft_plan_rank(self._loaded)
                if rank != have:
                    raise InvalidError(f"this plan was loaded, and has rank {have}'s part alone, not rank {rank}'s")
                part = self._loaded
            else:
                part = self._lower(rank, world)
            self._parts[rank, world] = part
        return part

    def _first(self) -> Any:
        return self._loaded if self._loaded is not None else self._part(0)

    def _tensors(self) -> List[Move]:
        """The tensors of the parts: a move with scales has two, of values and of scales, which are on the sides that have some."""
        out: List[Move] = []
        for m in self._moves:
            out.append(m)
            if m.src.scale or m.dst.scale:
                src, dst = (side.scales if side.scale else side for side in (m.src, m.dst))
                out.append(Move(m.name + "." * bool(m.name) + "scale", src, dst))
        return out

    # ---- what it is ----

    @property
    def moves(self) -> Tuple[Move, ...]:
        """The tensors with their layouts."""
        return self._moves

    @property
    def world(self) -> int:
        """How many ranks there are, those that do nothing included."""
        return self._world

    @property
    def digest(self) -> int:
        """A number that stands for the whole problem: the same on every rank."""
        return int(lib.weft_plan_digest(self._first()))

    @property
    def stats(self) -> Stats:
        """What all ranks do together. Lowers for all of them."""
        all_ranks = [self.rank_stats(r) for r in range(self._world)]
        sender = max(all_ranks, key=lambda s: s.sent)
        receiver = max(all_ranks, key=lambda s: s.received)
        return Stats(
            self._world,
            len(self._moves),
            sender.kind,
            sender.algorithm,
            sum(s.sent for s in all_ranks),
            sum(s.bound for s in all_ranks),
            sum(s.sends for s in all_ranks),
            sum(s.copied for s in all_ranks),
            sum(s.folded for s in all_ranks),
            sender.rank,
            sender.sent,
            receiver.rank,
            receiver.received,
        )

    def rank_stats(self, rank: int) -> RankStats:
        """What one rank does."""
        out = ffi.new("weft_stats *")
        out.size = ffi.sizeof("weft_stats")
        check(lib.weft_plan_stats(self._part(rank), out))
        fields = {f: getattr(out, f) for f in RankStats._fields if f not in ("kind", "algorithm")}
        return RankStats(kind=text_of(out.kind), algorithm=text_of(out.algorithm), **fields)

    def peers(self, rank: int) -> List[Peer]:
        """What the rank exchanges with each of its peers, by rank."""
        part, n = self._part(rank), ffi.new("size_t *")
        check(lib.weft_plan_peers(part, ffi.NULL, 0, n))
        out = ffi.new("weft_peer[]", max(1, n[0]))
        check(lib.weft_plan_peers(part, out, n[0], n))
        return [Peer(*(getattr(out[i], f) for f in Peer._fields)) for i in range(n[0])]

    def explain(self, rank: Optional[int] = None, json: bool = False) -> str:
        """The rank's part step by step, as text or as JSON. Rank 0's, or that of a loaded plan, unless told."""
        part = self._first() if rank is None else self._part(rank)
        return filled(lambda buf, cap, n: lib.weft_plan_explain(part, json, buf, cap, n)).decode()

    def verify(self) -> None:
        """Proves the plans of all ranks right without data, or raises what is wrong and where."""
        parts = [self._part(r) for r in range(self._world)]
        check(lib.weft_plan_verify(ffi.new("weft_plan *[]", parts), len(parts)))

    def save(self, rank: Optional[int] = None) -> bytes:
        """The rank's part as bytes, for :func:`weft.load`."""
        part = self._first() if rank is None else self._part(rank)
        return filled(lambda buf, cap, n: lib.weft_plan_save(part, buf, cap, n))

    def arrivals(self, rank: int) -> List["Arrival"]:
        """The boxes in which the rank's destination comes, in the plan's own order: disjoint, and all that a run writes."""
        from ._arrivals import boxes_of

        return boxes_of(self._part(rank), self._tensors())

    def bind(
        self,
        comm: "Comm",
        src: Any = None,
        dst: Any = None,
        deadline: Optional[float] = None,
        arrivals: bool = False,
        check: Optional[bool] = None,
    ) -> "Bound":
        """Joins the plan, arrays and the ranks of the comm. Collective, in the same order on all ranks.

        ``src`` and ``dst`` are arrays, or for a plan of many tensors dicts of arrays by name; None where the rank
        holds nothing. Where a layout has scales, a pair takes the place of an array: values and scales. It succeeds on all ranks, or raises on all. With ``arrivals`` its runs tell which pieces have come
        (:meth:`Work.arrivals`). With ``check`` every message is proved by sums at both ends; None: as WEFT_CHECK says.
        It is the same on all ranks.
        """
        from ._exec import Bound

        return Bound(self, comm, src, dst, deadline, arrivals, check)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        if self._loaded is not None or other._loaded is not None:
            return bool(lib.weft_plan_equal(self._first(), other._first()))
        return self.digest == other.digest and self._moves == other._moves

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> Any:
        if self._loaded is not None:
            return load, (self.save(),)
        return Plan, (self._moves, self._options, self._many)

    def __repr__(self) -> str:
        if len(self._moves) == 1:
            what = f"{self._moves[0].src} -> {self._moves[0].dst}"
        else:
            what = f"{len(self._moves)} tensors"
        return f"<weft.Plan {what}, on {self._world} rank{'s' * (self._world != 1)}>"

    def _repr_html_(self) -> str:
        from ._html import plan_html

        return plan_html(self)


def _pair(name: str, pair: Any) -> Move:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidError(f"tensor {name!r}: expected a pair of layouts (src, dst), not {pair!r}")
    return Move(name, layout(pair[0]), layout(pair[1]))


def _both(src: Mapping[str, LayoutLike], dst: Mapping[str, LayoutLike]) -> List[Move]:
    for side, names, others in (("destination", src, dst), ("source", dst, src)):
        missing = [name for name in names if name not in others]
        if missing:
            raise InvalidError(
                f"lower: there is no {side} layout for {', '.join(map(repr, missing))}: give one, or leave the tensor out"
            )
    return [Move(name, layout(src[name]), layout(dst[name])) for name in src]


def lower(
    src: Union[LayoutLike, Mapping[str, Any]],
    dst: Union[LayoutLike, Mapping[str, LayoutLike], None] = None,
    *,
    algorithm: Optional[str] = None,
    bucket: Optional[int] = None,
    in_place: bool = False,
    world: Optional[int] = None,
    machine: Optional[Machine] = None,
    name: str = "",
) -> Plan:
    """The plan that makes dst's value equal to src's, element by element.

    One pair of layouts, or many tensors in one plan: a dict of names to pairs, or two dicts of names to layouts.
    ``algorithm`` forces one of :func:`weft.algorithms`, ``bucket`` is the bytes of a message, ``in_place`` lets folds
    be bound with source and destination at one address, ``world`` is how many ranks there are at least.
    """
    if isinstance(src, Mapping):
        if dst is None:
            moves = [_pair(key, pair) for key, pair in src.items()]
        elif isinstance(dst, Mapping):
            moves = _both(src, dst)
        else:
            raise InvalidError("a dict of layouts needs a dict of layouts on the other side")
        many = True
    elif dst is None or isinstance(dst, Mapping):
        raise InvalidError("lower needs two layouts, two dicts of layouts, or a dict of pairs")
    else:
        moves, many = [Move(name, layout(src), layout(dst))], False
    options = {"algorithm": algorithm, "bucket": bucket, "in_place": in_place, "world": world, "machine": machine}
    return Plan(moves, options, many)


def load(data: Any) -> Plan:
    """The plan that :meth:`Plan.save` has written: one rank's part. Nothing in the data is trusted."""
    raw = ffi.from_buffer(data)
    out = ffi.new("weft_plan **")
    check(lib.weft_plan_load(raw, len(raw), out))
    loaded = ffi.gc(out[0], lib.weft_plan_free)
    moves, move = [], ffi.new("weft_move *")
    of_scales = False
    for i in range(lib.weft_plan_tensors(loaded)):
        if of_scales:  # of the move before
            of_scales = False
            continue
        check(lib.weft_plan_tensor(loaded, i, move))
        sides = [filled(lambda b, cap, n, l=l: lib.weft_layout_format(l, b, cap, n)).decode() for l in (move.src, move.dst)]
        name = text_of(move.name) if move.name != ffi.NULL else ""
        moves.append(Move(name, layout(sides[0]), layout(sides[1])))
        of_scales = moves[-1].src.scale is not None or moves[-1].dst.scale is not None
    return Plan(moves, {}, len(moves) != 1 or moves[0].name != "", loaded)


def collective(
    kind: str,
    dtype: Any,
    count: int,
    ranks: Union[int, Sequence[int]],
    *,
    op: str = "sum",
    root: int = 0,
    to: Optional[Sequence[int]] = None,
    **options: Any,
) -> Plan:
    """The plan of a collective by its name, over ``ranks`` (how many, or which).

    ``kind`` is broadcast, scatter, gather, reduce, allgather, reduce_scatter, allreduce, all_to_all, send or permute.
    ``count`` is the elements of the whole for broadcast, reduce, allreduce and send, else of one rank's part.
    ``options`` are those of :func:`weft.lower`.
    """
    group = list(range(ranks)) if isinstance(ranks, int) else list(ranks)
    if op not in _dtypes.OPS:
        raise InvalidError(f"there is no op {op!r}: one of {', '.join(_dtypes.OPS)}")
    c = ffi.new("weft_collective *")
    name, members = ffi.new("char[]", kind.encode()), ffi.new("int[]", group)
    targets = ffi.NULL if to is None else ffi.new("int[]", list(to))
    if to is not None and len(to) != len(group):
        raise InvalidError(f"to has {len(to)} ranks, the group {len(group)}")
    c.size, c.kind, c.dtype = ffi.sizeof("weft_collective"), name, _dtypes.CODES[_dtypes.of_any(dtype)]
    c.op, c.count, c.ranks, c.n, c.root, c.to = _dtypes.OPS[op], count, members, len(group), root, targets
    src, dst = ffi.new("weft_layout **"), ffi.new("weft_layout **")
    check(lib.weft_collective_layouts(c, src, dst))
    return lower(Layout(src[0]), Layout(dst[0]), **options)
