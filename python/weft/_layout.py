"""Layouts: which elements of a global tensor each rank holds, and how copies of one element combine."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._dtypes import CODES, NAMES, OP_NAMES
from ._errors import InvalidError, LayoutError, check, failure, filled, text_of
from ._weft import ffi, lib

_PARTS = {
    "inner": lib.WEFT_HALO_INNER,
    "rim": lib.WEFT_HALO_RIM,
    "ghosts": lib.WEFT_HALO_GHOSTS,
    "edges": lib.WEFT_HALO_EDGES,
}

__all__ = ["Box", "Dim", "Fold", "Layout", "Local", "Scale", "Split", "boxes", "layout"]


class Local(NamedTuple):
    """What one rank's buffer looks like."""

    holds: bool  #: the rank is in the mesh
    shape: Tuple[int, ...]  #: with ghosts; dense, row-major
    interior: Tuple[int, ...]  #: first element of the interior in each dim
    inner: Tuple[int, ...]  #: shape of the interior
    elements: int  #: with ghosts
    bytes: int


class Box(NamedTuple):
    """A box of global elements and where it stands in the local buffer."""

    at: Tuple[int, ...]
    len: Tuple[int, ...]
    local: Tuple[int, ...]


def box_of(box: Any, ndim: int) -> Box:
    """A weft_box of `ndim` dims."""
    return Box(*(tuple(ffi.unpack(part, ndim)) if ndim else () for part in (box.at, box.len, box.local)))


class Split(NamedTuple):
    """One cut of a dim: by which axis; ``block`` 0 for one chunk a coordinate, k for blocks dealt round-robin."""

    axis: str
    block: int


class Dim(NamedTuple):
    """One dim of a layout."""

    extent: int
    splits: Tuple[Split, ...]  #: outermost first
    lo: int  #: ghosts before the piece
    hi: int  #: ghosts after it
    wrap: bool  #: ghosts wrap round


class Fold(NamedTuple):
    """How copies combine: ``op`` over axes (``~`` stands for the ghosts)."""

    op: str
    over: Tuple[str, ...]


class Scale(NamedTuple):
    """The scales of values of f8: their dtype, and the extent of a block in each dim."""

    dtype: str
    block: Tuple[int, ...]


class Layout:
    """A layout, made by :func:`weft.layout`. It never changes; ``repr`` is the notation."""

    __slots__ = ("_ptr", "_text", "_desc", "_locals", "_scales")

    def __init__(self, ptr: Any) -> None:
        self._ptr = ffi.gc(ptr, lib.weft_layout_free)
        self._text = filled(lambda buf, cap, n: lib.weft_layout_format(ptr, buf, cap, n)).decode()
        desc = ffi.new("weft_layout_desc *")
        desc.size = ffi.sizeof("weft_layout_desc")
        check(lib.weft_layout_describe(ptr, desc))
        self._desc = desc
        self._locals: Dict[int, Local] = {}
        self._scales: Optional[Layout] = None

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return bool(lib.weft_layout_equal(self._ptr, other._ptr))

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        return layout, (self._text,)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the whole tensor."""
        return tuple(self._desc.dims[i].extent for i in range(self._desc.ndim))

    @property
    def dtype(self) -> str:
        """The element type by its name in the notation, such as ``f32``."""
        return NAMES[self._desc.dtype]

    @property
    def dims(self) -> Tuple[Dim, ...]:
        """The dims with their splits and ghosts."""
        out: List[Dim] = []
        for i in range(self._desc.ndim):
            d = self._desc.dims[i]
            splits = tuple(Split(text_of(d.splits[s].axis), d.splits[s].block) for s in range(d.nsplits))
            out.append(Dim(d.extent, splits, d.lo, d.hi, d.wrap))
        return tuple(out)

    @property
    def faces(self) -> bool:
        """Whether its ghosts have no corners (``]+`` in the notation): what is a ghost in two dims is never filled or read."""
        return bool(self._desc.flags & lib.WEFT_LAYOUT_FACES)

    @property
    def mesh(self) -> Dict[str, int]:
        """The axes of the mesh and their sizes, outermost first."""
        return {text_of(self._desc.axes[i].name): self._desc.axes[i].size for i in range(self._desc.naxes)}

    @property
    def ranks(self) -> Tuple[int, ...]:
        """The ranks of the mesh in row-major order; of boxes the ranks that have some, in ascending order."""
        if self._desc.boxes:
            return tuple(sorted(set(ffi.unpack(self._desc.boxes.rank, self._desc.boxes.n))))
        count = 1
        for size in self.mesh.values():
            count *= size
        return tuple(ffi.unpack(self._desc.ranks, count))

    @property
    def folds(self) -> Tuple[Fold, ...]:
        """How copies combine, in the order of the folds; none: they are equal."""
        out: List[Fold] = []
        for i in range(self._desc.nfolds):
            f = self._desc.folds[i]
            out.append(Fold(OP_NAMES[f.op], tuple(text_of(f.over[k]) for k in range(f.nover))))
        return tuple(out)

    @property
    def scale(self) -> Optional[Scale]:
        """The blocks that have scales (``*f32(128,128)`` in the notation); None: the values have none."""
        s = self._desc.scale
        return Scale(NAMES[s.dtype], tuple(ffi.unpack(s.block, self._desc.ndim))) if s else None

    @property
    def scales(self) -> "Layout":
        """The layout of the scales, a tensor of its own: one element for each block, where the values are."""
        if self._scales is None:
            out = ffi.new("weft_layout **")
            check(lib.weft_layout_scales(self._ptr, out))
            self._scales = Layout(out[0])
        return self._scales

    @property
    def world(self) -> int:
        """One more than the largest rank that it uses."""
        return int(lib.weft_layout_ranks(self._ptr))

    def local(self, rank: int) -> Local:
        """What the rank's buffer looks like."""
        known = self._locals.get(rank)
        if known is None:
            out = ffi.new("weft_local *")
            check(lib.weft_layout_local(self._ptr, rank, out))
            n = out.ndim
            known = Local(
                out.holds,
                tuple(ffi.unpack(out.shape, n)) if n else (),
                tuple(ffi.unpack(out.interior, n)) if n else (),
                tuple(ffi.unpack(out.inner, n)) if n else (),
                out.count,
                out.bytes,
            )
            self._locals[rank] = known
        return known

    def boxes(self, rank: int) -> List[Box]:
        """The boxes of global elements that the rank holds, in the order of its buffer; ghosts are left out."""
        return self._boxes(lambda out, cap, n: lib.weft_layout_boxes(self._ptr, rank, out, cap, n))

    def halo(self, rank: int, part: str) -> List[Box]:
        """The boxes of one part of the rank's buffer, for stencils that read as far as the ghosts reach.

        ``inner``: own elements that read no ghost, and may be computed while an exchange is in flight; ``rim``: the other own
        ones; ``ghosts``: what an exchange fills; ``edges``: what an exchange never writes, beyond an end that does not
        wrap round, and the corners of a layout without corners.
        """
        if part not in _PARTS:
            raise InvalidError(f"there is no part {part!r} of a halo: one of {', '.join(map(repr, _PARTS))}")
        return self._boxes(lambda out, cap, n: lib.weft_layout_halo(self._ptr, rank, _PARTS[part], out, cap, n))

    def _boxes(self, fill: Callable[[Any, int, Any], int]) -> List[Box]:
        n = ffi.new("size_t *")
        check(fill(ffi.NULL, 0, n))
        room = max(1, n[0])
        out = ffi.new("weft_box[]", room)
        check(fill(out, room, n))
        d = self._desc.ndim
        return [box_of(out[i], d) for i in range(n[0])]

    def dual(self) -> "Layout":
        """The layout of gradients: "equal" and "sum" change places on free axes and ghosts."""
        out = ffi.new("weft_layout **")
        check(lib.weft_layout_dual(self._ptr, out))
        return Layout(out[0])

    def boxed(self) -> "Layout":
        """The same elements at the same places as boxes. Layouts with folds or ghosts are refused."""
        out = ffi.new("weft_layout **")
        check(lib.weft_layout_boxed(self._ptr, out))
        return Layout(out[0])

    def json(self) -> str:
        """Boxes as JSON, which :func:`weft.layout` reads, too. A mesh is refused."""
        return filled(lambda buf, cap, n: lib.weft_layout_json(self._ptr, buf, cap, n)).decode()

    def permute(self, *order: int) -> "Layout":
        """Boxes of the tensor with its dims in this order, as numpy.transpose has it; the buffers stay as they are."""
        if sorted(order) != list(range(self._desc.ndim)):
            raise InvalidError(f"order must have each of the {self._desc.ndim} dims once, not {order}")
        out = ffi.new("weft_layout **")
        check(lib.weft_layout_permute(self._ptr, ffi.new("int[]", order), out))
        return Layout(out[0])

    def reshape(self, *shape: int) -> "Layout":
        """Boxes of the tensor with dims split or joined, as numpy.reshape has it; the buffers stay as they are."""
        out = ffi.new("weft_layout **")
        check(lib.weft_layout_reshape(self._ptr, len(shape), ffi.new("int64_t[]", shape), out))
        return Layout(out[0])

    def placements(self) -> List[Any]:
        """The same as placements of PyTorch's DTensor, one for each axis of the mesh. Imports PyTorch."""
        from ._torch import placements

        return placements(self)

    def partition_spec(self) -> Any:
        """The same as a PartitionSpec of JAX. Imports JAX."""
        from ._jax import partition_spec

        return partition_spec(self)

    def named_sharding(self, devices: Optional[Sequence[Any]] = None) -> Any:
        """The same as a NamedSharding of JAX over devices[rank] (jax.devices() unless given). Imports JAX."""
        from ._jax import named_sharding

        return named_sharding(self, devices)

    def _repr_html_(self) -> str:
        from ._html import layout_html

        return layout_html(self)


def layout(text: Union[str, Layout]) -> Layout:
    """The layout that a text in weft's notation stands for, as ``f32[4096/dp/tp,14336] @dp2.tp4``.

    Raises LayoutError with a caret under the place that is wrong.
    """
    if isinstance(text, Layout):
        return text
    if not isinstance(text, str):
        raise LayoutError(f"a layout is a text in weft's notation, not {type(text).__name__}")
    if "\0" in text:
        raise LayoutError("a layout cannot have a zero byte in it")
    out = ffi.new("weft_layout **")
    code = lib.weft_layout_parse(text.encode("utf-8", "replace"), out)
    if code:
        raise failure(code, LayoutError)
    return Layout(out[0])


def boxes(
    dtype: str,
    shape: Sequence[int],
    rank: Any,
    at: Any,
    len: Any,
    offset: Any = None,
    stride: Any = None,
    overlaps: bool = False,
    gaps: bool = False,
) -> Layout:
    """A layout of boxes, from lists or NumPy arrays: box i is the one of rank[i], from at[i] on and len[i] long in each dim.

    ``offset[i]`` is the slot of its first element in the rank's flat buffer (by default behind the rank's boxes before it),
    ``stride[i]`` how many slots apart its elements are along each dim (by default it is dense). ``overlaps`` allows elements
    in several boxes, ``gaps`` elements in none. Needs NumPy.
    """
    import numpy as np

    extents = [int(n) for n in shape]
    ndim, n = np.size(extents), np.size(rank)
    desc, dims, list_ = ffi.new("weft_layout_desc *"), ffi.new("weft_dim[]", max(1, ndim)), ffi.new("weft_boxes *")
    keep: List[Any] = []

    def array(what: str, given: Any, kind: Any, width: int) -> Any:
        v = np.ascontiguousarray(given, dtype=kind)
        if v.size != n * width:
            raise InvalidError(f"{what} has {v.size} numbers, and {n} boxes of {ndim} dims need {n * width}")
        keep.append(v)
        return ffi.cast("int *" if kind is np.intc else "int64_t *", v.ctypes.data)

    if dtype not in CODES:
        raise LayoutError(f"{dtype!r} is not a dtype of weft")
    for i, extent in enumerate(extents):
        dims[i].extent = extent
    list_.n = n
    list_.rank = array("rank", rank, np.intc, 1)
    list_.at = array("at", at, np.int64, ndim)
    list_.len = array("len", len, np.int64, ndim)
    if offset is not None:
        list_.offset = array("offset", offset, np.int64, 1)
    if stride is not None:
        list_.stride = array("stride", stride, np.int64, ndim)
    desc.size = ffi.sizeof("weft_layout_desc")
    desc.dtype = CODES[dtype]
    desc.ndim = ndim
    desc.dims = dims
    desc.boxes = list_
    desc.flags = overlaps * lib.WEFT_LAYOUT_OVERLAPS + gaps * lib.WEFT_LAYOUT_GAPS
    out = ffi.new("weft_layout **")
    code = lib.weft_layout_create(desc, out)
    if code:
        raise failure(code, LayoutError)
    return Layout(out[0])
