"""Weight sync, the whole way: a small language model trains on four ranks, and two others serve it over HTTP meanwhile.

    python examples/09_weight_sync.py                 # trains, asks itself what it has learnt, ends
    python examples/09_weight_sync.py --keep          # serves until Ctrl-C; curl 'http://127.0.0.1:PORT/?prompt=Shall+I'

Ranks 0 to 3 hold each weight as FSDP on one axis of the mesh (dp) and tensor parallelism on the other (tp) leave it, ranks 4
and 5 as tensor parallelism alone does, in bf16. Pairs of layouts say all that moves: shards are gathered for the forward pass,
gradients are averaged into shards, and every few steps the shards become the next version of what is served. Each of these
plans is bound once. Versions never mix: a new one comes into a second set of arrays while the first answers, and rank 4
says with each request which version rank 5 is to answer it with.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import sys
import urllib.parse

import numpy as np
import torch
import torch.nn.functional as F

import weft

SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st;
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st:
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.
"""

LETTERS, CONTEXT, WIDTH, HIDDEN, HEADS = 128, 32, 64, 256, 4
TRAINERS, SERVERS = [0, 1, 2, 3], [4, 5]

# ---- who holds what ----

WEIGHTS = {  # shape, and the dim that tensor parallelism splits
    "embed": ((LETTERS, WIDTH), None),
    "position": ((CONTEXT, WIDTH), None),
    "norm1": ((WIDTH,), None),
    "wq": ((WIDTH, WIDTH), 0),
    "wk": ((WIDTH, WIDTH), 0),
    "wv": ((WIDTH, WIDTH), 0),
    "wo": ((WIDTH, WIDTH), 1),
    "norm2": ((WIDTH,), None),
    "up": ((HIDDEN, WIDTH), 0),
    "down": ((WIDTH, HIDDEN), 1),
    "head": ((LETTERS, WIDTH), None),
}


def layouts(dtype, mesh, fsdp=False, tp=True):
    """Of all weights: a dim is split by tp first, then FSDP splits the first dim of what is there."""

    def one(shape, split):
        dims = [f"{n}{'/tp' if tp and i == split else ''}{'/dp' if fsdp and i == 0 else ''}" for i, n in enumerate(shape)]
        return f"{dtype}[{','.join(dims)}] @{mesh}"

    return {name: one(*what) for name, what in WEIGHTS.items()}


SHARDED = layouts("f32", "dp2.tp2", fsdp=True)  # at rest, and what the optimizer sees
GATHERED = layouts("f32", "dp2.tp2")  # for a step
GRADIENTS = {name: f"{text} +avg(dp)" for name, text in GATHERED.items()}  # each dp rank has seen other examples
SERVED = layouts("bf16", "tp2=4,5")
WHOLE = layouts("f32", "x1=0", tp=False)


def arrays(comm, which):
    return {name: comm.empty(text, torch=True) for name, text in which.items()}


# ---- the model: one block of a transformer, each rank of tp with its heads and its part of the hidden layer ----


class Enter(torch.autograd.Function):
    """Into the part that tp splits: gradients are summed on the way back."""

    @staticmethod
    def forward(ctx, x, tp):
        ctx.tp = tp
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.tp.allreduce(gradient.contiguous()), None


class Leave(torch.autograd.Function):
    """Out of it: each rank has a summand."""

    @staticmethod
    def forward(ctx, x, tp):
        return tp.allreduce(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def forward(w, tokens, tp):
    """Logits of the letter after each one, from this rank's weights."""
    w = {name: weight.float() for name, weight in w.items()}
    n, length = tokens.shape
    x = w["embed"][tokens] + w["position"][:length]

    y = Enter.apply(F.rms_norm(x, (WIDTH,), w["norm1"]), tp)
    q, k, v = (F.linear(y, w[name]).view(n, length, -1, WIDTH // HEADS).transpose(1, 2) for name in ("wq", "wk", "wv"))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, -1)
    x = x + Leave.apply(F.linear(y, w["wo"]), tp)

    y = Enter.apply(F.rms_norm(x, (WIDTH,), w["norm2"]), tp)
    x = x + Leave.apply(F.linear(F.gelu(F.linear(y, w["up"])), w["down"]), tp)
    return F.linear(x, w["head"])


def complete(w, prompt, letters, tp):
    """The letters that most likely follow, and the logarithm of how likely."""
    tokens, score = [ord(c) if ord(c) < LETTERS else 32 for c in prompt] or [10], 0.0
    begin = len(tokens)
    with torch.no_grad():
        for _ in range(letters):
            logits = forward(w, torch.tensor([tokens[-CONTEXT:]]), tp)[0, -1]
            tokens.append(int(logits.argmax()))
            score += float(logits.log_softmax(0)[tokens[-1]])
    return "".join(map(chr, tokens[begin:])), score


# ---- training ----


def first_weights():
    torch.manual_seed(1)
    return {name: 0.02 * torch.randn(shape) if len(shape) > 1 else torch.ones(shape) for name, (shape, _) in WEIGHTS.items()}


def batch(step, dp, size=16):
    """Pieces of the text, others on each rank of dp, the same on those of tp."""
    text = torch.tensor(list(SONNET.encode("ascii")))
    random = torch.Generator().manual_seed(2 * step + dp)
    at = torch.randint(len(text) - CONTEXT, (size, 1), generator=random) + torch.arange(CONTEXT + 1)
    return text[at[:, :-1]], text[at[:, 1:]]


def train(comm, group, options):
    dp, tp = comm.rank // 2, group.split([2 * (comm.rank // 2), 2 * (comm.rank // 2) + 1])
    shards, gathered, gradients = arrays(group, SHARDED), arrays(group, GATHERED), arrays(group, GATHERED)
    outbox = arrays(comm, SHARDED)  # what is under way, while training goes on with the shards

    begin = weft.lower(WHOLE, SHARDED)
    begin.bind(group, first_weights() if comm.rank == 0 else None, shards).run()
    for name in WEIGHTS:
        shards[name].grad = torch.zeros_like(shards[name])
        gathered[name].requires_grad_().grad = gradients[name]  # the backward pass adds to it
    gather = weft.lower(SHARDED, GATHERED).bind(group, shards, {n: t.detach() for n, t in gathered.items()})
    scatter = weft.lower(GRADIENTS, SHARDED).bind(group, gradients, {n: t.grad for n, t in shards.items()})
    publish = [weft.lower(SHARDED, SERVED).bind(comm, outbox, None) for _ in range(2)]  # into the servers' two sets of arrays
    whole = {name: torch.empty(shape) for name, (shape, _) in WEIGHTS.items()} if comm.rank == 0 else None
    record = weft.lower(SHARDED, WHOLE).bind(group, outbox, whole) if options.record else None
    optimizer = torch.optim.Adam(shards.values(), lr=3e-3)
    under_way = None

    for step in range(options.steps + 1):
        if step % options.every == 0:
            if under_way is not None:
                under_way.wait()
            for name in WEIGHTS:
                outbox[name].copy_(shards[name])
            under_way = publish[step // options.every % 2].start()
            if record is not None:
                record.run()
                if comm.rank == 0:
                    torch.save(whole, os.path.join(options.record, f"{step // options.every}.pt"))
        gather.run()
        for gradient in gradients.values():
            gradient.zero_()
        tokens, targets = batch(step, dp)
        loss = F.cross_entropy(forward(gathered, tokens, tp).flatten(0, 1), targets.flatten())
        loss.backward()
        scatter.run()
        optimizer.step()
        if step % options.every == 0:
            mean = float(group.allreduce(loss.detach()[None], op="avg")[0])
            if comm.rank == 0:
                print(f"step {step:4d}  loss {mean:.4f}  version {step // options.every} is under way", flush=True)
    under_way.wait()


# ---- serving: rank 4 talks HTTP, and both answer ----


class Server:
    """The weights twice: the current version, and room for the next."""

    def __init__(self, comm, group, options):
        self.group, self.options = group, options
        self.sets = [arrays(comm, SERVED) for _ in range(2)]
        self.bound = [weft.lower(SHARDED, SERVED).bind(comm, None, there) for there in self.sets]
        self.orders = group.exchange([0], []) if group.rank else group.exchange([], [1])
        self.version, self.last = -1, options.steps // options.every
        self.coming = self.bound[0].start()

    def turn(self):
        """On to the version that has come. From here on nobody reads the old one, so the one after it may come."""
        self.version += 1
        if self.version < self.last:
            self.coming = self.bound[(self.version + 1) % 2].start()

    def answer(self, prompt, letters):
        """By both ranks together, with the weights that are current on both."""
        text, score = complete(self.sets[self.version % 2], prompt, letters, self.group)
        versions = self.group.allgather(np.array([self.version])).tolist()
        return {"version": self.version, "versions": versions, "text": text, "score": score}

    async def follow(self):
        """Rank 5: what rank 4 orders, in that order."""
        while True:
            order = json.loads((await self.orders.finish())[0].meta)
            if order["version"] > self.version:
                await self.coming  # it has come to rank 4, so it is here, too, or all but
                self.turn()
            if "prompt" in order:
                self.answer(order["prompt"], order["letters"])
            if "end" in order:
                return

    async def order(self, **what):
        self.orders.put(1, meta=json.dumps({"version": self.version, **what}).encode())
        await self.orders.finish()

    async def lead(self):
        """Rank 4: requests in the order in which they come, and new versions between them."""
        requests = asyncio.Queue()
        await self.coming
        self.turn()
        await self.order()
        server = await asyncio.start_server(lambda *both: self.http(requests, *both), "127.0.0.1", self.options.port)
        port = server.sockets[0].getsockname()[1]
        print(f"serving on http://127.0.0.1:{port}/?prompt=Shall+I&letters=32", flush=True)
        coming = asyncio.ensure_future(self.next_version())
        request = asyncio.ensure_future(requests.get())
        visitor = None if self.options.keep else asyncio.ensure_future(self.visit(port))
        while visitor is None or not visitor.done():
            await asyncio.wait({coming, request} | {visitor} - {None}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                coming.result()
                self.turn()
                await self.order()
                coming = asyncio.ensure_future(self.next_version())
            if request.done():
                prompt, letters, answer = request.result()
                await self.order(prompt=prompt, letters=letters)
                answer.set_result(self.answer(prompt, letters))
                request = asyncio.ensure_future(requests.get())
        visitor.result()
        await self.order(end=True)
        server.close()

    async def next_version(self):
        """Until it is here; there is none after the last."""
        if self.version < self.last:
            await self.coming
        else:
            await asyncio.get_running_loop().create_future()

    async def http(self, requests, reader, writer):
        """One connection, one request."""
        try:
            line = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).split(b"\r\n")[0].decode("ascii").split()
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(line[1]).query, keep_blank_values=True))
            prompt, letters = query["prompt"][:1000], min(max(int(query.get("letters", 32)), 1), 200)
            if line[0] != "GET":
                raise ValueError
        except (ValueError, KeyError, IndexError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            status, body = "400 Bad Request", {"error": "GET /?prompt=TEXT&letters=NUMBER"}
        else:
            answer = asyncio.get_running_loop().create_future()
            await requests.put((prompt, letters, answer))
            status, body = "200 OK", await answer
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            await writer.drain()
        except ConnectionError:
            pass  # who asked has gone
        writer.close()

    async def visit(self, port):
        """Asks as anyone would, until the last version has answered."""
        seen = -1
        while seen < self.last:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /?prompt=Shall+I+compare+thee&letters=40 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
            writer.close()
            if answer["version"] > seen:
                likely = math.exp(answer["score"] / 40)
                print(f"    version {answer['version']:3d} says {answer['text']!r}, {likely:.0%} a letter", flush=True)
            seen = answer["version"]
            await asyncio.sleep(0.05)


def serve(comm, group, options):
    server = Server(comm, group, options)
    asyncio.run(server.follow() if group.rank else server.lead())


# ---- the ranks ----


def rank_main(comm, options):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that has started the ranks, and that ends them
    torch.set_num_threads(1)
    trains = comm.rank in TRAINERS
    group = comm.split(TRAINERS if trains else SERVERS)
    (train if trains else serve)(comm, group, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="of training (300)")
    parser.add_argument("--every", type=int, default=20, help="steps between two versions (20)")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (one that is free)")
    parser.add_argument("--keep", action="store_true", help="serve until Ctrl-C")
    parser.add_argument("--record", metavar="DIR", help="save each version there, whole")
    options = parser.parse_args()
    try:
        weft.spawn(rank_main, len(TRAINERS + SERVERS), options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except weft.RankError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
