"""What weft.torch.record learns from loaders like those of inference engines: what weft moves is what load_weights gives."""

import random

import numpy as np
import pytest

import weft
from parts import share
from test_run import threads

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its loaders are not recorded")
import weft.torch  # noqa: E402
from torch.nn import Parameter  # noqa: E402

CASES = share(60, 20000)


def parameter(*shape, dtype=torch.float32):
    return Parameter(torch.full(shape, -1.0, dtype=dtype), requires_grad=False)


class QKV(torch.nn.Module):
    """Query, key and value in one weight; a key or value head is on several ranks if there are more ranks than heads."""

    def __init__(self, rank, size, hidden, heads, kv_heads, head):
        super().__init__()
        self.rank, self.heads, self.head = rank, heads // size, head
        self.kv, self.copies = max(1, kv_heads // size), max(1, size // kv_heads)
        self.weight = parameter((self.heads + 2 * self.kv) * head, hidden)
        self.bias = parameter((self.heads + 2 * self.kv) * head)

    def load(self, param, loaded, shard):
        rows = (self.heads if shard == "q" else self.kv) * self.head
        at = {"q": 0, "k": self.heads, "v": self.heads + self.kv}[shard] * self.head
        place = param.data.narrow(0, at, rows)
        part = loaded.narrow(0, (self.rank if shard == "q" else self.rank // self.copies) * rows, rows)
        assert place.shape == part.shape
        place.copy_(part)


class Merged(torch.nn.Module):
    """gate and up in one weight; they come apart, or as one tensor."""

    def __init__(self, rank, size, hidden, inner):
        super().__init__()
        self.rank, self.rows = rank, inner // size
        self.weight = parameter(2 * self.rows, hidden, dtype=torch.bfloat16)

    def load(self, param, loaded, shard=None):
        if shard is None:
            for i, part in enumerate(loaded.chunk(2, dim=0)):
                self.load(param, part, i)
            return
        param.data[shard * self.rows : (shard + 1) * self.rows] = loaded.tensor_split(loaded.shape[0] // self.rows)[self.rank]


class Row(torch.nn.Module):
    """Columns of a weight."""

    def __init__(self, rank, size, hidden, inner):
        super().__init__()
        self.rank, self.columns = rank, inner // size
        self.weight = parameter(hidden, self.columns)

    def load(self, param, loaded):
        param.data.copy_(loaded[:, self.rank * self.columns : (self.rank + 1) * self.columns])


class Vocabulary(torch.nn.Module):
    """Rows of a vocabulary that is padded to a multiple; the rows of the padding are zeros."""

    def __init__(self, rank, size, words, hidden, multiple):
        super().__init__()
        padded = -(-words // multiple) * multiple
        self.rows = padded // size
        self.first, self.words = rank * self.rows, words
        self.weight = parameter(self.rows, hidden)

    def load(self, param, loaded):
        n = max(0, min(self.rows, self.words - self.first))
        param[:n].data.copy_(loaded.narrow(0, min(self.first, self.words), n))
        param[n:].data.fill_(0)


class Experts(torch.nn.Module):
    """w1 and w3 of all experts in w13, w2 in another; each rank has its part of each expert."""

    def __init__(self, rank, size, experts, hidden, inner):
        super().__init__()
        self.rank, self.part = rank, inner // size
        self.w13 = parameter(experts, 2 * self.part, hidden, dtype=torch.float16)
        self.w2 = parameter(experts, hidden, self.part)

    def load(self, loaded, expert, shard):
        if shard == "w2":
            self.w2.data[expert].copy_(loaded.narrow(1, self.rank * self.part, self.part))
            return
        place = self.w13.data[expert].narrow(0, 0 if shard == "w1" else self.part, self.part)
        place.copy_(loaded.to(torch.float32).narrow(0, self.rank * self.part, self.part))


class Model(torch.nn.Module):
    """All of these; names of the checkpoint are not those of the parameters."""

    HIDDEN, INNER, HEADS, KV, HEAD, WORDS, EXPERTS = 12, 16, 8, 2, 4, 37, 3

    def __init__(self, rank, size, tied):
        super().__init__()
        self.rank, self.size, self.tied = rank, size, tied
        self.embed = Vocabulary(rank, size, self.WORDS, self.HIDDEN, 16)
        self.head = Vocabulary(rank, size, self.WORDS, self.HIDDEN, 16)
        if tied:
            self.head.weight = self.embed.weight
        self.qkv = QKV(rank, size, self.HIDDEN, self.HEADS, self.KV, self.HEAD)
        self.gate_up = Merged(rank, size, self.HIDDEN, self.INNER)
        self.fused = Merged(rank, size, self.HIDDEN, self.INNER)
        self.down = Row(rank, size, self.HIDDEN, self.INNER)
        self.experts = Experts(rank, size, self.EXPERTS, self.HIDDEN, self.INNER)
        self.conv = parameter(24 // size, self.HIDDEN)
        self.norm = parameter(self.HIDDEN)
        self.scale = Parameter(torch.tensor(-1.0), requires_grad=False)

    @classmethod
    def checkpoint(cls):
        h, i, kv = cls.HIDDEN, cls.INNER, cls.KV * cls.HEAD
        shapes = {"q.weight": (cls.HEADS * cls.HEAD, h), "k.weight": (kv, h), "v.weight": (kv, h)}
        shapes.update({"q.bias": (cls.HEADS * cls.HEAD,), "k.bias": (kv,), "v.bias": (kv,)})
        shapes.update({"embed": (cls.WORDS, h), "gate": (i, h), "up": (i, h), "fused": (2 * i, h), "down": (h, i)})
        for e in range(cls.EXPERTS):
            shapes.update({f"{e}.w1": (i, h), f"{e}.w3": (i, h), f"{e}.w2": (h, i)})
        shapes.update({"conv": (h, 24), "norm": (h,), "scale": (), "other": (3, 3)})
        return shapes

    def load_weights(self, weights):
        for name, loaded in weights:
            first, _, last = name.partition(".")
            if first in ("q", "k", "v"):
                self.qkv.load(getattr(self.qkv, last), loaded, first)
            elif name in ("gate", "up"):
                self.gate_up.load(self.gate_up.weight, loaded, ["gate", "up"].index(name))
            elif name == "fused":
                self.fused.load(self.fused.weight, loaded)
            elif name == "down":
                self.down.load(self.down.weight, loaded)
            elif name == "embed":
                self.embed.load(self.embed.weight, loaded)
                if not self.tied:
                    self.head.load(self.head.weight, loaded)
            elif first.isdigit():
                self.experts.load(loaded, int(first), last)
            elif name == "conv":
                self.conv.data.copy_(loaded.t().contiguous().unflatten(0, (self.size, -1))[self.rank])
            elif name in ("norm", "scale"):
                getattr(self, name).data.copy_(loaded)


def moved(name, models, wholes, records):
    """Moves the tensors, which lie on all ranks by rows, to where the records want them."""
    world, layouts = len(models), weft.torch.join(dict(enumerate(records)))
    of = {key: wholes[key.partition(" -> ")[0]] for key in layouts}
    src = {}
    for key, w in of.items():
        dims = [f"{w.shape[0]}/x", *map(str, w.shape[1:])] if w.ndim else []
        src[key] = weft.layout(f"f32[{','.join(dims)}] @x{world}")
    plan = weft.lower({key: (src[key], layouts[key]) for key in layouts})

    def rank_main(comm):
        assert weft.torch.layouts(comm, records[comm.rank]) == layouts
        given = {}
        for key, w in of.items():
            given[key] = np.zeros(src[key].local(comm.rank).shape, np.float32)
            for box in src[key].boxes(comm.rank):
                given[key][...] = w[tuple(slice(a, a + n) for a, n in zip(box.at, box.len))]
        with plan.bind(comm, given, records[comm.rank].arrays(layouts)) as bound:
            bound.run(timeout=20)

    threads(world, rank_main, name)
    return layouts


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_an_engine(size, tied):
    rng = np.random.default_rng(20)
    wholes = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in Model.checkpoint().items()}
    wanted, models, records = [], [], []
    for rank in range(size):
        wanted.append(Model(rank, size, tied))
        wanted[-1].load_weights((name, torch.from_numpy(w)) for name, w in wholes.items())
        models.append(Model(rank, size, tied))
        records.append(weft.torch.record(models[-1].load_weights, {name: (w.shape, torch.float32) for name, w in wholes.items()}))
        assert records[-1].unused[-1] == "other" and not records[-1].refused
        assert (models[-1].norm == -1).all()  # nothing has been copied yet
    layouts = moved(f"engine{size}{tied}", models, wholes, records)
    assert ("embed" in layouts) == tied and ("embed -> head.weight" in layouts) != tied
    for got, want in zip(models, wanted):
        for name, p in want.named_parameters():
            assert torch.equal(p, dict(got.named_parameters())[name]), (name, got.rank)


def test_trainers_and_servers():
    """Two trainers and two servers that know nothing of each other, by bind_state."""
    rng = np.random.default_rng(21)
    wholes = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in Model.checkpoint().items() if name != "other"}
    wanted, models = [Model(r, 2, False) for r in range(2)], [Model(r, 2, False) for r in range(2)]
    records = [weft.torch.record(m.load_weights, {name: torch.from_numpy(w) for name, w in wholes.items()}) for m in models]

    def rank_main(comm):
        record = records[comm.rank - 2] if comm.rank >= 2 else None
        layouts = weft.torch.layouts(comm, record)
        if record is None:
            src = {}
            for key in layouts:
                w = wholes[key.partition(" -> ")[0]]
                src[key] = w, f"f32[{','.join(map(str, w.shape))}] @x2"
            weft.bind_state(comm, src).run(timeout=20)
        else:
            dst = {key: (array, layouts[key]) for key, array in record.arrays(layouts).items()}
            weft.bind_state(comm, dst=dst).run(timeout=20)

    threads(4, rank_main, "servers")
    for got, want in zip(models, wanted):
        want.load_weights((name, torch.from_numpy(w)) for name, w in wholes.items())
        for name, p in want.named_parameters():
            assert torch.equal(p, dict(got.named_parameters())[name]), (name, got.rank)


def test_parameters_without_memory():
    """The boxes are the same for parameters on the device meta."""
    shapes = {name: (shape, "f32") for name, shape in Model.checkpoint().items()}
    real, model = Model(1, 2, False), Model(1, 2, False).to("meta")
    learnt = weft.torch.record(model.load_weights, shapes)
    assert learnt.wants == weft.torch.record(real.load_weights, shapes).wants
    assert {f.into for f in learnt.fixed} == {"embed.weight", "head.weight"} and not any(f.values.any() for f in learnt.fixed)
    assert sum(f.values.numel() for f in learnt.fixed) == 2 * int((real.embed.weight == 0).sum())  # the padding


def view_of(t, rng, depth):
    """A chain of operations that copy elements or name them anew; the same for the same rng."""
    for _ in range(depth):
        kind = rng.randrange(13)
        d = rng.randrange(t.dim()) if t.dim() else 0
        n = t.shape[d] if t.dim() else 1
        if t.dim() == 0 or t.numel() == 0:
            t = t.reshape(-1)
        elif kind == 0:
            a = rng.randrange(n)
            t = t.narrow(d, a, rng.randint(1, n - a))
        elif kind == 1:
            t = t.permute(rng.sample(range(t.dim()), t.dim()))
        elif kind == 2:
            t = t.chunk(rng.randint(1, 3), d)[0]
        elif kind == 3:
            t = t.split(rng.randint(1, n), d)[-1]
        elif kind == 4:
            t = rng.choice(t.unbind(d))
        elif kind == 5:
            t = t.reshape(-1)
        elif kind == 6:
            k = rng.choice([k for k in range(1, n + 1) if n % k == 0])
            t = t.unflatten(d, (k, n // k)) if t.dim() < 5 else t
        elif kind == 7:
            t = t[(slice(None),) * d + (slice(rng.randrange(n), None, rng.randint(1, 3)),)]
        elif kind == 8:
            t = t.contiguous()
        elif kind == 9:
            a = rng.randrange(n)
            t = torch.cat([t.narrow(d, a, n - a), t.narrow(d, 0, a)], d)
        elif kind == 10:
            t = torch.stack([t, t], d) if t.numel() < 100 and t.dim() < 5 else t.unsqueeze(d)
        elif kind == 11:
            other = torch.empty_like(t)
            other.copy_(t)
            other.select(d, 0).copy_(t.select(d, n - 1))
            t = other
        else:
            t = t.to(torch.float64).transpose(0, d).expand(t.transpose(0, d).shape)
    return t


def place_in(p, shape, rng):
    """A view of the shape somewhere in a parameter that is large enough."""
    order = rng.sample(range(len(shape)), len(shape))
    flat = p.view([n + 3 for n in (shape[i] for i in order)] or [1])
    cuts = [(rng.randrange(3), shape[i]) for i in order]
    for d, (a, n) in enumerate(cuts):
        flat = flat.narrow(d, a, n)
    return flat.permute([order.index(i) for i in range(len(shape))]) if shape else flat.reshape(())


def test_random_views(rng):
    """Against PyTorch itself: two tensors by random chains into random places of one parameter, the second over the first."""
    several = 0
    for case in range(CASES):
        seed = rng.random()
        shape = [rng.randint(1, 6) for _ in range(rng.randint(0, 4))]
        data = {name: torch.arange(at, at + int(np.prod(shape)), dtype=torch.float32).reshape(shape) for name, at in (("a", 1), ("b", 5000))}
        first = [tuple(view_of(t, random.Random(f"{seed}{name}"), 5).shape) for name, t in data.items()]
        room = max(int(np.prod([n + 3 for n in s])) for s in first)

        def load(p, weights):
            for name, t in weights:
                view = view_of(t, random.Random(f"{seed}{name}"), 5)
                count = int(np.prod([n + 3 for n in view.shape]))
                place_in(p[:count], tuple(view.shape), random.Random(f"{seed}{name}place")).copy_(view)

        want, got = torch.zeros(room), torch.zeros(room)
        load(want, data.items())
        done = weft.torch.record(lambda weights: load(got, weights), data, into={"p": got})
        assert not done.refused and not got.any()
        times = np.zeros(room, int)
        for w in done.wants:
            several += len(w.at) > 1
            for at, lens, offset, stride in zip(w.at, w.len, w.offset, w.stride):
                slots = offset + sum((i * s for i, s in zip(np.indices(lens), stride)), np.zeros(lens, int))
                there = tuple(slice(x, x + n) for x, n in zip(at, lens))
                got.numpy()[slots] = data[w.name].numpy()[there]
                np.add.at(times, slots, 1)
        assert torch.equal(got, want), (case, seed, shape)
        assert times.max(initial=0) <= 1, (case, seed, shape)
        weft.torch.join({0: done})
    assert several >= CASES // 20


class Odd(torch.nn.Module):
    """What loaders do besides copies."""

    def __init__(self):
        super().__init__()
        self.w, self.n, self.s, self.c = parameter(4, 4), parameter(4), parameter(4), parameter(4)

    def load_weights(self, weights):
        for name, t in weights:
            if name == "plus":
                self.n.data.copy_(t + 1)  # line: plus
            elif name == "later":
                self.s.data.copy_(t)
                self.s.data += 1  # line: later
            elif name == "choice":
                if t[0] > 0:  # line: choice
                    self.c.data.copy_(t)
            elif name == "rows":
                self.w.data.copy_(t[torch.tensor([1, 0, 3, 2])])  # line: rows
            elif name == "bits":
                self.n.data.copy_(t.view(torch.float32))  # line: bits
            elif name == "twice":
                self.n.data.copy_(t.to(torch.bfloat16))  # line: twice
            elif name == "item":
                self.n.data.fill_(t.sum().item())  # line: item
            elif name == "list":
                self.n.data.fill_(t.tolist()[0])  # line: list
            elif name == "numpy":
                self.n.data.copy_(torch.from_numpy(t.numpy()))  # line: numpy
            elif name == "unused":
                t.abs().max()
                self.n.data.copy_(t)
            else:
                self.w.data.copy_(t)


def line_of(name):
    text = open(__file__).read().splitlines()
    return next(i for i, line in enumerate(text, 1) if line.endswith(f"# line: {name}"))


@pytest.mark.parametrize(
    "name,dtype,why",
    [
        ("plus", "f32", "add is no copy"),
        ("later", "f32", "add_ is no copy"),
        ("choice", "f32", "gt is no copy"),
        ("rows", "f32", "index is no copy"),
        ("bits", "i32", "the bits of torch.int32 are read as torch.float32"),
        ("twice", "f32", "a cast of torch.bfloat16, to which torch.float32 was rounded, to torch.float32"),
        ("item", "f32", "sum is no copy"),
        ("list", "f32", "the loader asks for its values"),
        ("numpy", "f32", "the loader asks for its values"),
    ],
)
def test_no_copy_is_named_with_the_line(name, dtype, why):
    shape = (4, 4) if name == "rows" else (4,)
    given = {"plain": ((4, 4), "f32"), name: (shape, dtype)}
    with pytest.raises(weft.UnsupportedError) as caught:
        weft.torch.record(Odd().load_weights, given)
    assert f"  {name}: {__file__}:{line_of(name)} (load_weights): {why}" in str(caught.value).splitlines()
    done = weft.torch.record(Odd().load_weights, given, whole=name[:3] + "*")
    assert [r.name for r in done.refused] == (["plain", "rows"] if name == "rows" else [name])[-1:]
    assert [(w.name, w.into) for w in done.wants if w.name == name] == [(name, "whole")]


def test_arithmetic_that_goes_nowhere_is_no_matter():
    assert not weft.torch.record(Odd().load_weights, {"unused": ((4,), "f32")}).refused


def test_whole_tensors_and_rules():
    wholes = {"plain": np.arange(16, dtype=np.float32).reshape(4, 4), "plus": np.arange(4, dtype=np.float32), "choice": np.full(4, 7, np.float32)}
    models = [Odd(), Odd()]
    records = [weft.torch.record(m.load_weights, {k: (w.shape, "f32") for k, w in wholes.items()}, whole="*") for m in models]
    moved("whole", models, wholes, records)
    for model, done in zip(models, records):
        done.finish()
        assert model.w.tolist() == wholes["plain"].tolist() and model.n.tolist() == [1, 2, 3, 4] and model.c.tolist() == [7] * 4
    model = Odd()
    rules = {"pl*s": lambda t: model.n.data.copy_(t), "choice": lambda t: None}
    done = weft.torch.record(model.load_weights, {k: (w.shape, "f32") for k, w in wholes.items()}, rules=rules)
    assert [(w.name, w.into) for w in done.wants] == [("plain", "w"), ("plus", "n")] and done.unused == ["choice"]


def test_what_comes_over_a_whole_tensor_comes_whole():
    model = Odd()

    def load(weights):
        for name, t in weights:
            if name == "one":
                model.n.data.copy_(t * 2)
            else:
                model.n.data[:2].copy_(t)

    given = {"one": ((4,), "f32"), "two": ((2,), "f32")}
    done = weft.torch.record(load, given, into=model, whole="*")
    assert {w.name: w.into for w in done.wants} == {"one": "whole", "two": "whole"}
    assert done.refused[1].why == "it comes over 'one', which comes whole"


def test_constants_are_written():
    """A padding by torch's pad and by cat with zeros."""
    for load in (
        lambda t: torch.nn.functional.pad(t, (1, 2), value=3),
        lambda t: torch.cat([torch.full((4, 1), 3.0), t, t.new_full((4, 2), 3)], 1),
    ):
        p, want = torch.zeros(4, 4), torch.full((4, 4), 3.0)
        want[:, 1:2] = 0
        done = weft.torch.record(lambda weights: [p.copy_(load(t)) for _, t in weights], {"t": ((4, 1), "f32")}, into={"p": p})
        p[:, 1] = 0  # what is recorded
        assert torch.equal(p, want) and [(w.offset, w.stride) for w in done.wants] == [((1,), ((4, 1),))]


def into_zeros(t):
    out = torch.zeros(4, 4, dtype=torch.float64)
    out[:, 1:2] = t
    return out.to(torch.float32).contiguous().clone()


def into_empty(t):
    out = t.new_empty(4, 4)
    out[:, 1:2] = t
    out[:, :1].zero_()
    out[:, 2:] = 0
    return out


@pytest.mark.parametrize("load", [into_zeros, into_empty])
def test_constants_beside_what_comes(load):
    p = torch.full((4, 4), 5.0)
    done = weft.torch.record(lambda weights: [p.copy_(load(t)) for _, t in weights], {"t": ((4, 1), "f32")}, into={"p": p})
    assert p.tolist() == [[0, 5, 0, 0]] * 4 and [(w.offset, w.stride) for w in done.wants] == [((1,), ((4, 1),))]


def beside(t):
    own = t.clone()
    own[2:] = 1  # a tensor on meta, of which PyTorch 2.13 makes the 1, too
    own[3:] = torch.full((1,), 2.0)
    return own


#: constants that the loader makes itself, with the values that come beside tensor t, which has 4 elements
CONSTANTS = {
    "tensor": (lambda t: torch.tensor([1.0, 2.0, 3.0, 4.0]), [1, 2, 3, 4]),
    "scalar": (lambda t: torch.tensor(2.0), [2, 2, 2, 2]),
    "zeros": (lambda t: torch.zeros(4, device=t.device), [0, 0, 0, 0]),
    "ones": (lambda t: torch.ones(4, device=t.device), [1, 1, 1, 1]),
    "full": (lambda t: torch.full((4,), 7.0, device=t.device), [7, 7, 7, 7]),
    "computed": (lambda t: torch.arange(4.0, device=t.device) * 2, [0, 2, 4, 6]),
    "to": (lambda t: torch.arange(4.0).to(t.device), [0, 1, 2, 3]),
    "cat": (lambda t: torch.cat([t[:2], torch.ones(2, device=t.device)]), [None, None, 1, 1]),
    "clone": (beside, [None, None, 1, 2]),
    "views": (lambda t: beside(t).view(2, 2).t().contiguous().t().reshape(4), [None, None, 1, 2]),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", list(CONSTANTS))
def test_constants_of_the_loader_are_carried(name, device):
    load, want = CONSTANTS[name]
    p = torch.full((4,), 5.0, device=device)
    done = weft.torch.record(lambda weights: [p.copy_(load(t)) for _, t in weights], {"t": ((4,), "f32")}, into={"p": p})
    got = torch.full((4,), 5.0) if p.is_meta else p
    assert bool(done.fixed) == p.is_meta
    for fixed in done.fixed:
        fixed.write(got)
    assert got.tolist() == [5 if x is None else x for x in want]
    assert sum(sum(map(np.prod, w.len)) for w in done.wants) == want.count(None)


def test_a_number_is_filled_in_with_the_precision_of_the_parameter():
    p = torch.zeros(4, dtype=torch.float64, device="meta")
    done = weft.torch.record(lambda weights: [p.fill_(0.1) for _ in weights], {"t": ((4,), "f64")}, into={"p": p})
    got = torch.zeros(4, dtype=torch.float64)
    for fixed in done.fixed:
        fixed.write(got)
    assert got.tolist() == [0.1] * 4


def test_random_constants(rng):
    """Tensors and constants in turns, by way of tensors that the loader makes, into real parameters and such without memory."""
    for case in range(CASES):
        seed = rng.random()

        def load(p, weights):
            for name, t in weights:
                draw = random.Random(f"{seed}{name}")
                own = [p, t.clone(), torch.zeros(6, 6, device=t.device), t.new_full((6, 6), 3)][draw.randrange(4)]
                for _ in range(4):
                    (a, m), (b, n) = ((draw.randrange(3), draw.randint(1, 3)) for _ in range(2))
                    place = own[a : a + m, b : b + n]
                    value = float(draw.randint(-9, -1))
                    what = [value, torch.full((m, n), value), torch.full((n,), value, device=t.device), t[a : a + m, :n], t[:n, b : b + m].t()]
                    place[...] = what[draw.randrange(5)]
                if own is not p:
                    p[: draw.randint(1, 6)].copy_(own[: draw.randint(1, 1)])

        data = {name: torch.arange(at, at + 36, dtype=torch.float32).reshape(6, 6) for name, at in (("a", 1), ("b", 100))}
        want = torch.full((6, 6), 50.0)
        load(want, data.items())
        for device in ("cpu", "meta"):
            p = torch.full((6, 6), 50.0, device=device)
            done = weft.torch.record(lambda weights: load(p, weights), data, into={"p": p})
            got = torch.full((6, 6), 50.0) if p.is_meta else p
            for fixed in done.fixed:
                fixed.write(got)
            for w in done.wants:
                for at, lens, offset, stride in zip(w.at, w.len, w.offset, w.stride):
                    there = data[w.name][tuple(slice(x, x + n) for x, n in zip(at, lens))]
                    got.as_strided(lens, stride, offset).copy_(there)
            assert torch.equal(got, want), (case, seed, device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("of", [lambda t: torch.tensor([1.0] * 4, device=t.device), lambda t: torch.cat([t[:2], t.new_tensor([1.0, 2.0])])])
def test_constants_that_would_be_lost_are_refused(of, device):
    """PyTorch makes these on meta without asking us, so that their values are nowhere."""
    p = torch.zeros(4, device=device)

    def load(weights):
        for _, t in weights:
            p.copy_(of(t))

    with pytest.raises(weft.UnsupportedError, match=r"record: p: .*test_record.py:\d+ \(.*\): values are copied that are nowhere"):
        weft.torch.record(load, {"t": ((4,), "f32")}, into={"p": p})


def test_arithmetic_with_constants_on_meta_is_refused():
    p = torch.zeros(4, device="meta")

    def load(weights):
        p.fill_(2)
        p.mul_(2)

    with pytest.raises(weft.UnsupportedError, match=r"record: p: .*test_record.py:\d+ \(load\): mul_ is no copy"):
        weft.torch.record(load, {"t": ((4,), "f32")}, into={"p": p})


def test_casts_are_those_of_the_parameter():
    p = torch.zeros(4, dtype=torch.float8_e4m3fn)
    done = weft.torch.record(lambda weights: [p.copy_(t.float()) for _, t in weights], {"t": ((4,), torch.bfloat16)}, into={"p": p})
    assert done.wants[0].dtype in ("f8e4m3", "f8e4m3sat")
    assert (done.wants[0].dtype == "f8e4m3sat") == bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isfinite())


def test_errors():
    model = Odd()
    with pytest.raises(weft.InvalidError, match="into is the module"):
        weft.torch.record(lambda weights: None, {})
    with pytest.raises(weft.InvalidError, match="'a' is given twice"):
        weft.torch.record(model.load_weights, [("a", ((4, 4), "f32"))] * 2)
    flat = torch.zeros(8)
    with pytest.raises(weft.UnsupportedError, match="overlaps another parameter"):
        weft.torch.record(model.load_weights, {}, into={"a": flat[:5], "b": flat[3:]})
    with pytest.raises(weft.UnsupportedError, match=r"test_record.py:\d+ .*reaches beyond a parameter"):
        weft.torch.record(lambda weights: [flat.copy_(t) for _, t in weights], {"t": ((8,), "f32")}, into={"a": flat[:5]})
    meta = Odd().to("meta")

    def assign(weights):
        for _, t in weights:
            meta.n.data = t

    with pytest.raises(weft.UnsupportedError, match="gave 'n' other memory"):
        weft.torch.record(assign, {"t": ((4,), "f32")}, into=meta)
    many, more = (torch.zeros(n, device="meta") for n in (20000, 40000))
    with pytest.raises(weft.UnsupportedError, match=r"t: into many: .* more than 16384 boxes"):
        weft.torch.record(lambda weights: [many.copy_(t[::2]) for _, t in weights], {"t": ((40000,), "f32")}, into={"many": many})
    with pytest.raises(weft.UnsupportedError, match=r"t: .*test_record.py:\d+ .* more than 16384 boxes"):
        weft.torch.record(lambda weights: [more[::2].copy_(t) for _, t in weights], {"t": ((20000,), "f32")}, into={"more": more})
    with pytest.raises(ZeroDivisionError):  # a fault of the loader is its own
        weft.torch.record(lambda weights: 1 // 0, {}, into=model)
    done = weft.torch.record(model.load_weights, {"plain": ((4, 4), "f32")})
    with pytest.raises(weft.InvalidError, match="no layout for 'plain -> w'"):
        done.arrays({})


def test_ranks_must_agree():
    of = [weft.torch.record(Odd().load_weights, {"plain": ((4, 4), "f32")}), weft.torch.record(Odd().load_weights, {"plain": ((4,), "f32")})]
    with pytest.raises(weft.MismatchError, match=r"'plain' is f32 \(4, 4\) in 'w' of rank 0, and f32 \(4,\) of rank 1"):
        weft.torch.join(dict(enumerate(of)))
