"""Layouts and plans: the notation as repr, what ranks hold, laws of plans."""

import json
import pickle
import re
import xml.dom.minidom

import numpy as np
import pytest

import weft
from parts import part

TEXTS = [
    "f32[] @x1",
    "f32[4096/dp/tp,14336] @dp2.tp4",
    "bf16[10/x~1:2o] @x3",
    "u8[7/x:2,5] @x2.y2=3,1,0,2 +sum(y)",
    "f64[12/x~1] @x4 +sum(~)",
    "i16[9] @x3 +max(x)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_repr_is_the_notation(text):
    a = weft.layout(text)
    assert repr(a) == text and weft.layout(repr(a)) == a and hash(weft.layout(repr(a))) == hash(a)
    assert pickle.loads(pickle.dumps(a)) == a
    assert weft.layout(a) is a
    assert a != weft.layout("f32[3] @x1") and a != text


def test_equal_layouts_have_one_hash():
    for one, other in (("f32[8/x] @x4=0..3", "f32[8/x] @x4"), ("f32[8/x~1:1]@x4", "f32[8/x~1] @x4")):
        assert weft.layout(one) == weft.layout(other)
        assert len({weft.layout(one), weft.layout(other)}) == 1


def test_parts():
    a = weft.layout("u16[10/x:2,6/y~1o] @x2.y3=5,4,3,2,1,0 +sum(~)")
    assert a.shape == (10, 6) and a.dtype == "u16" and a.world == 6
    assert a.mesh == {"x": 2, "y": 3} and a.ranks == (5, 4, 3, 2, 1, 0)
    assert a.dims[0] == (10, (("x", 2),), 0, 0, False) and a.dims[1] == (6, (("y", 0),), 1, 1, True)
    assert a.folds == (("sum", ("~",)),)
    local = a.local(5)
    assert local.holds and local.shape == (6, 4) and local.interior == (0, 1) and local.inner == (6, 2)
    assert local.elements == 24 and local.bytes == 48
    assert not a.local(6).holds and a.local(6).bytes == 0
    assert repr(weft.layout("f32[4] @x2").dual()) == "f32[4] @x2 +sum(x)"


def test_boxes_cover_the_tensor():
    for text in ("f32[7/x/y,5] @x2.y2", "f32[7/x:2,5/y:1] @x2.y2", "f32[3/x] @x4"):
        a = weft.layout(text)
        seen = np.zeros(a.shape, int)
        for rank in range(a.world):
            boxes = a.boxes(rank)
            for box in boxes:
                seen[tuple(slice(s, s + n) for s, n in zip(box.at, box.len))] += 1
            assert sum(int(np.prod(b.len)) for b in boxes) == a.local(rank).elements
        assert (seen == 1).all()


def test_halo_parts_cover_the_buffer():
    for text in ("f32[12/x~1,9/y~2:1o] @x2.y2", "f32[12/x~1,9/y~2:1o]+ @x2.y2", "f32[10/x~3] @x4", "f32[5] @x1"):
        a = weft.layout(text)
        for rank in range(a.world):
            seen = np.zeros(a.local(rank).shape, int)
            for part_ in ("inner", "rim", "ghosts", "edges"):
                for box in a.halo(rank, part_):
                    seen[tuple(slice(s, s + n) for s, n in zip(box.local, box.len))] += 1
            assert (seen == 1).all(), (text, rank)
    with pytest.raises(weft.InvalidError, match="no part 'core'"):
        weft.layout("f32[5] @x1").halo(0, "core")


def test_halo_without_corners():
    a = weft.layout("f32[8/y~1,8/x~1]+ @y2.x2")
    assert a.faces and not weft.layout("f32[8/y~1,8/x~1] @y2.x2").faces
    assert repr(a) == "f32[8/y~1,8/x~1]+ @y2.x2" and a.local(0).shape == (6, 6)
    assert sorted((b.at, b.len) for b in a.halo(0, "ghosts")) == [((0, 4), (4, 1)), ((4, 0), (1, 4))]
    assert not weft.layout("f32[8/y~1,8/x]+ @y2.x2").faces  # one dim with ghosts: there are no corners
    assert a.dual().faces


def test_layout_errors_show_the_place():
    with pytest.raises(weft.LayoutError) as caught:
        weft.layout("f32[4096/y,512] @x4")
    assert str(caught.value).splitlines()[1:] == ["  f32[4096/y,512] @x4", "           ^"]
    assert caught.value.code == -1 and isinstance(caught.value, ValueError)
    for bad in (None, 3, "f32[1] @x1\0", ""):
        with pytest.raises(weft.LayoutError):
            weft.layout(bad)
    with pytest.raises(weft.InvalidError, match="only sum"):
        weft.layout("f32[4] @x2 +max(x)").dual()
    with pytest.raises(weft.InvalidError):
        weft.layout("f32[4] @x2").local(-1)


# ---- plans ----


def test_plan():
    plan = weft.lower("f32[4096] @x8 +sum(x)", "bf16[4096/x] @x8")
    plan.verify()
    s = plan.stats
    assert (s.kind, s.algorithm, s.world, s.tensors) == ("reduce_scatter", "direct", 8, 1)
    assert s.moved == s.bound == 114688 and s.messages == 56
    assert sum(plan.rank_stats(r).sent for r in range(8)) == s.moved
    assert [p.rank for p in plan.peers(3)] == [0, 1, 2, 4, 5, 6, 7]
    assert "reduce_scatter by direct" in plan.explain(3) and json.loads(plan.explain(3, json=True))
    assert plan.digest == weft.lower("f32[4096] @x8 +sum(x)", "bf16[4096/x] @x8").digest
    assert plan.digest != weft.lower("f32[4096] @x8 +sum(x)", "f32[4096/x] @x8").digest
    ring = weft.lower("f32[4096] @x8 +sum(x)", "f32[4096] @x8", algorithm="ring")
    ring.verify()
    assert ring.stats.algorithm == "ring" and "ring" in weft.algorithms()
    assert pickle.loads(pickle.dumps(ring)) == ring


def test_the_machine_decides_which_algorithm_is_taken():
    pair = "f32[1024] @x8 +sum(x)", "f32[1024] @x8"
    few, little = weft.Machine(message_ns=1_000_000), weft.Machine(copy_bytes_per_us=1)  # few messages; little work
    assert weft.lower(*pair, machine=few).stats.algorithm == "doubling"
    assert weft.lower(*pair, machine=little).stats.algorithm == "direct"
    with pytest.raises(weft.InvalidError):
        weft.lower(*pair, machine=weft.Machine(links=-1)).stats


def test_saved_plans():
    plan = weft.lower("f32[8/x] @x4", "f32[8] @x4")
    data = plan.save(2)
    again = weft.load(data)
    assert again.digest == plan.digest and again.moves == plan.moves and again.explain() == plan.explain(2)
    assert pickle.loads(pickle.dumps(again)) == again
    with pytest.raises(weft.InvalidError, match="rank 2's part alone, not rank 1's"):
        again.explain(1)
    for cut in (0, 10, len(data) - 1):
        with pytest.raises(weft.InvalidError):
            weft.load(data[:cut])
    with pytest.raises(weft.InvalidError):
        weft.load(data[:40] + bytes([data[40] ^ 1]) + data[41:])


def test_many_tensors():
    pairs = {f"layer.{i}": (f"f32[{8 + i}/x] @x2", f"f32[{8 + i}] @x1=2") for i in range(10)}
    plan = weft.lower(pairs)
    plan.verify()
    assert plan.stats.tensors == 10 and plan.stats.messages == 2  # small ones travel together
    both = weft.lower({k: v[0] for k, v in pairs.items()}, {k: v[1] for k, v in pairs.items()})
    assert both == plan and hash(both) == hash(plan)
    with pytest.raises(weft.InvalidError, match="no destination layout for 'b'"):
        weft.lower({"a": "f32[1] @x1", "b": "f32[1] @x1"}, {"a": "f32[1] @x1"})
    with pytest.raises(weft.InvalidError, match="no source layout for 'b', 'c'"):
        weft.lower({"a": "f32[1] @x1"}, {"a": "f32[1] @x1", "b": "f32[1] @x1", "c": "f32[1] @x1"})
    with pytest.raises(weft.InvalidError, match="'w'.*different shapes"):
        weft.lower({"w": ("f32[8] @x1", "f32[9] @x1")})
    for wrong in ({"a": "f32[1] @x1"}, {"a": ("f32[1] @x1",)}):
        with pytest.raises(weft.InvalidError, match="pair of layouts"):
            weft.lower(wrong)
    assert weft.lower({}).stats.moved == 0


def test_pictures():
    plan = weft.lower("f32[8/x,8] @x4", "f32[8,8/x] @x4", name="a<b")
    html = plan._repr_html_()
    assert html.count("<svg") == 1 and "0 to 1: 16 B" in html and "a&lt;b" in html
    assert "rank 3" in weft.layout("f32[8/x,8] @x4")._repr_html_()
    assert "<svg" in weft.layout("f32[8/x:1] @x4")._repr_html_()
    assert "<svg" not in weft.layout("f32[800/x] @x100")._repr_html_()
    assert weft.load(plan.save(1))._repr_html_()


def test_collectives_as_plans():
    for kind, src, dst in (
        ("allreduce", "f32[8] @x4 +sum(x)", "f32[8] @x4"),
        ("allgather", "f32[4/x,8] @x4", "f32[4,8] @x4"),
        ("broadcast", "f32[8] @x1=1", "f32[8] @x4"),
    ):
        plan = weft.collective(kind, "f32", 8, 4, root=1)
        assert plan == weft.lower(src, dst) and plan.stats.kind == kind
    with pytest.raises(weft.InvalidError, match="no op 'plus'"):
        weft.collective("allreduce", "f32", 8, 4, op="plus")
    with pytest.raises(weft.InvalidError):
        weft.collective("all", "f32", 8, 4)
    with pytest.raises(weft.InvalidError, match=r"there is no 'all_reduce': do you mean allreduce\?"):
        weft.collective("all_reduce", "f32", 8, 4)


def test_oracle_of_these_tests():
    whole = np.arange(10)
    assert part(weft.layout("i64[10/x:2] @x2"), 1, whole).tolist() == [2, 3, 6, 7]


def texts(html):
    return re.findall(r"<text[^>]*>([^<]*)</text>", html)


def test_pictures_have_labels_and_a_scale():
    """Ranks, extents and what the shades mean can be read without a pointer on them; what is not drawn says why."""
    plan = weft.lower("f32[1024/x,64] @x4", "f32[1024,64/x] @x4")
    said = texts(plan._repr_html_())
    assert said.count("0") == said.count("3") == 2 and "from ↓ to →" in said and "0 B" in said and "16.0 KiB" in said
    said = texts(weft.layout("f32[100/x,80] @x4.y2")._repr_html_())
    assert {"0, 1", "2, 3", "4, 5", "6, 7", "dim 0", "dim 1", "100", "80"} <= set(said)
    said = texts(weft.layout("f32[96/x] @x4")._repr_html_())
    assert {"0", "1", "2", "3", "dim 0", "96"} <= set(said)
    assert "no picture: there are 100 ranks, and up to 64 are drawn" in weft.layout("f32[800/x] @x100")._repr_html_()
    assert "no picture: there are 100 ranks" in weft.lower("f32[800/x] @x100", "f32[800] @x100")._repr_html_()
    large = weft.lower("f32[4096/x,64] @x64", "f32[4096,64/x] @x64")._repr_html_()
    assert len(large) < 450_000 and {"0", "60"} <= set(texts(large))
    for html in (plan._repr_html_(), large, weft.layout("f32[8/x:1,3,2] @x4")._repr_html_()):
        for svg in re.findall(r"<svg.*?</svg>", html, flags=re.S):
            xml.dom.minidom.parseString(svg)


def test_a_tensor_without_a_name_is_called_by_its_number():
    with pytest.raises(weft.InvalidError, match=r"^lower: tensor 0 has two different shapes: f32\[8/x\] @x2 -> f32\[7\] @x2 "):
        weft.lower("f32[8/x] @x2", "f32[7] @x2")
