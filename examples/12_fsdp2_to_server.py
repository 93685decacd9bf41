"""Weights of a model that FSDP2 x TP trains, in one job, go to a fused bf16 model that serves it, in another.

    torchrun --nproc-per-node 4 examples/12_fsdp2_to_server.py train &
    torchrun --nproc-per-node 2 --master-port 29601 examples/12_fsdp2_to_server.py serve

The jobs are started apart, in any order, and know nothing of each other but the name of a comm. The trainer's parameters are DTensors on
a mesh of 2 x 2 ranks; the server has q, k and v in one tensor, and gate and up in another, split in two by heads and columns. Each rank
gives weft.bind_state the tensors that it has. If the server dies, the trainer trains on when another one has been started:

    torchrun --nproc-per-node 2 --master-port 29601 examples/12_fsdp2_to_server.py serve --die-at 2   # dies with version 2
    torchrun --nproc-per-node 2 --master-port 29601 examples/12_fsdp2_to_server.py serve              # goes on with it

It needs PyTorch, and no GPU.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import weft

TRAINERS, SERVERS = 4, 2
VOCAB, HIDDEN, HEADS, INNER, LAYERS, LENGTH = 97, 32, 4, 48, 2, 16  # 97: no axis divides it


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.o(attend(self.q(h), self.k(h), self.v(h)))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def attend(q, k, v):
    """Over the heads that are here."""
    q, k, v = (x.unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def batch():
    """Sequences in which each token follows from the one before: something to learn."""
    first = torch.arange(8)[:, None]
    return (first * 11 + torch.arange(LENGTH + 1) * 5) % VOCAB


def loss_of(logits):
    return F.cross_entropy(logits.flatten(0, 1).float(), batch()[:, 1:].flatten())


def open_comm(name, rank):
    """The comm of both jobs. The first rank that comes waits for the others, also for a server that is started much later."""
    return weft.open(f"shm:{name}", rank=rank, ranks=TRAINERS + SERVERS, deadline=120)


# ---- the trainer ----


def parallel_model():
    torch.manual_seed(0)
    model = Model()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"embed": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    for i in range(LAYERS):
        plan |= {f"layers.{i}.{name}": ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
        plan |= {f"layers.{i}.{name}": RowwiseParallel() for name in ("o", "down")}
    parallelize_module(model, mesh["tp"], plan)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model


def all_well(well):
    """Whether it went well on all trainers: they go on together, or open the comm again together."""
    flag = torch.tensor([int(well)])
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag)


class Publisher:
    """Sends the model's weights, again and again. If the server has died, it waits for another one."""

    def __init__(self, name, model):
        self.name, self.model, self.bound, self.comm = name, model, None, None
        self.version = torch.zeros(2, dtype=torch.int64)  # this one, and the last one that there will be

    def connect(self):
        self.comm = open_comm(self.name, dist.get_rank())
        state = self.model.state_dict()
        if dist.get_rank() == 0:
            state["version"] = (self.version, "i64[2] @x1=0")
        self.bound = weft.bind_state(self.comm, state)

    def send(self, version, last):
        self.version[:] = torch.tensor([version, last])
        while True:
            well = True
            try:
                if self.bound is None:
                    self.connect()
                self.bound.run()
                self.comm.barrier()  # the server has it
            except weft.PeerError as error:
                well = False
                if dist.get_rank() == 0:
                    print(f"trainer: {error}; waiting for another server", flush=True)
            if all_well(well):
                return
            self.close()

    def close(self):
        if self.comm is not None:
            self.comm.close()
        self.comm = self.bound = None


def train(args):
    model = parallel_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    publisher = Publisher(args.name, model)
    for version in range(args.versions):
        for _ in range(args.steps if version else 0):
            optimizer.zero_grad()
            loss = loss_of(model(batch()[:, :-1]))
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(loss_of(model(batch()[:, :-1])))
        if args.record:
            whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.state_dict().items()}
            if dist.get_rank() == 0:
                torch.save(whole, os.path.join(args.record, f"trained-{version}.pt"))
        publisher.send(version, args.versions - 1)
        if dist.get_rank() == 0:
            print(f"trainer: version {version}, loss {loss:.3f}", flush=True)
    publisher.close()


# ---- the server ----


class Server:
    """The model in bf16, split over two ranks, with q, k and v in one tensor, and gate and up in another."""

    def __init__(self):
        n, mesh = SERVERS, f"@tp{SERVERS}={TRAINERS}..{TRAINERS + SERVERS - 1}"
        bf16 = {"dtype": torch.bfloat16}
        self.rank = dist.get_rank()
        self.state = {}  # names of the trainer: (view, layout)
        self.fused = []
        self.version = torch.zeros(2, dtype=torch.int64)
        rows = -(-VOCAB // n)
        mine = min(rows, VOCAB - rows * self.rank)
        self.embed, self.head = torch.zeros(mine, HIDDEN, **bf16), torch.zeros(mine, HIDDEN, **bf16)
        self.norm = torch.zeros(HIDDEN, **bf16)
        self.state["embed.weight"] = (self.embed, f"bf16[{VOCAB}/tp,{HIDDEN}] {mesh}")
        self.state["head.weight"] = (self.head, f"bf16[{VOCAB}/tp,{HIDDEN}] {mesh}")
        self.state["norm.weight"] = (self.norm, f"bf16[{HIDDEN}] {mesh}")
        self.state["version"] = (self.version, f"i64[2] {mesh}")
        for i in range(LAYERS):
            part, inner = HIDDEN // n, INNER // n
            layer = {"qkv": torch.zeros(3 * part, HIDDEN, **bf16), "gate_up": torch.zeros(2 * inner, HIDDEN, **bf16)}
            layer |= {"o": torch.zeros(HIDDEN, part, **bf16), "down": torch.zeros(HIDDEN, inner, **bf16)}
            layer |= {"norm1": torch.zeros(HIDDEN, **bf16), "norm2": torch.zeros(HIDDEN, **bf16)}
            views = {name: layer["qkv"][j * part : (j + 1) * part] for j, name in enumerate("qkv")}
            views |= {name: layer["gate_up"][j * inner : (j + 1) * inner] for j, name in enumerate(("gate", "up"))}
            views |= {name: layer[name] for name in ("o", "down", "norm1", "norm2")}
            dims = dict.fromkeys("qkv", f"{HIDDEN}/tp,{HIDDEN}") | dict.fromkeys(("gate", "up"), f"{INNER}/tp,{HIDDEN}")
            dims |= {"o": f"{HIDDEN},{HIDDEN}/tp", "down": f"{HIDDEN},{INNER}/tp"} | dict.fromkeys(("norm1", "norm2"), str(HIDDEN))
            for name, view in views.items():
                self.state[f"layers.{i}.{name}.weight"] = (view, f"bf16[{dims[name]}] {mesh}")
            self.fused.append(layer)

    def loss(self):
        """Of the trainer's batch, by the split model."""
        tokens, rows = batch()[:, :-1], -(-VOCAB // SERVERS)
        here = (tokens >= rows * self.rank) & (tokens < rows * self.rank + len(self.embed))
        x = self.embed[(tokens - rows * self.rank) * here] * here[..., None]
        dist.all_reduce(x)
        norm = lambda x, weight: F.rms_norm(x, (HIDDEN,), weight)  # noqa: E731
        for layer in self.fused:
            for inner, first, out in ((self.attention, "norm1", "o"), (self.mlp, "norm2", "down")):
                add = inner(layer, norm(x, layer[first])) @ layer[out].T
                dist.all_reduce(add)
                x = x + add
        logits = torch.zeros(SERVERS, *tokens.shape, rows)
        logits[self.rank, ..., : len(self.head)] = (norm(x, self.norm) @ self.head.T).float()
        dist.all_reduce(logits)
        return float(loss_of(torch.cat(list(logits), -1)[..., :VOCAB]))

    @staticmethod
    def attention(layer, h):
        return attend(*(h @ layer["qkv"].T).chunk(3, -1))

    @staticmethod
    def mlp(layer, h):
        gate, up = (h @ layer["gate_up"].T).chunk(2, -1)
        return F.silu(gate) * up


def serve(args):
    server = Server()
    with open_comm(args.name, TRAINERS + dist.get_rank()) as comm:
        bound = weft.bind_state(comm, dst=server.state)
        while True:
            bound.run()
            version, last = server.version.tolist()
            if version == args.die_at:
                os._exit(9)
            comm.barrier()
            loss = server.loss()
            if args.record:
                views = {name: view.clone() for name, (view, _) in server.state.items()}
                torch.save(views, os.path.join(args.record, f"served-{version}-{dist.get_rank()}.pt"))
            if dist.get_rank() == 0:
                print(f"server: version {version}, loss {loss:.3f}", flush=True)
            if version == last:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("job", choices=["train", "serve"])
    parser.add_argument("--name", default="weft-example-12", help="of the comm in which both jobs meet")
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="between two versions")
    parser.add_argument("--record", metavar="DIR", help="keep the weights of every version there")
    parser.add_argument("--die-at", type=int, default=-1, metavar="VERSION", help="the server dies when this version has come")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    (train if args.job == "train" else serve)(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
