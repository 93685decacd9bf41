"""Weight sync, the trainer: a small language model trains on four ranks, and its weights are versions on the bus.

    python examples/09_weight_sync/trainer.py       # in one terminal
    python examples/09_weight_sync/server.py        # in another one, before or after

The ranks hold each weight as FSDP on one axis of the mesh (dp) and tensor parallelism on the other (tp) leave it. Pairs of
layouts say all that moves: shards are gathered for the forward pass, and gradients are averaged into shards. Each of these plans is
bound once. Every few steps the shards are put on the bus in bf16, and committed: from then on servers find that version. The trainer knows
nothing of them. Kill and start it again at any time: what it did not commit is never seen.
"""

import argparse
import os
import signal
import sys

import torch
import torch.nn.functional as F

import weft
from model import CONTEXT, GATHERED, GRADIENTS, PUBLISHED, SET, SHARDED, SONNET, URL, WEIGHTS, WHOLE, arrays, forward


def first_weights():
    torch.manual_seed(1)
    return {name: 0.02 * torch.randn(shape) if len(shape) > 1 else torch.ones(shape) for name, (shape, _) in WEIGHTS.items()}


def batch(step, dp, size=16):
    """Pieces of the text, others on each rank of dp, the same on those of tp."""
    text = torch.tensor(list(SONNET.encode("ascii")))
    random = torch.Generator().manual_seed(2 * step + dp)
    at = torch.randint(len(text) - CONTEXT, (size, 1), generator=random) + torch.arange(CONTEXT + 1)
    return text[at[:, :-1]], text[at[:, 1:]]


def train(comm, options):
    dp, tp = comm.rank // 2, comm.split([2 * (comm.rank // 2), 2 * (comm.rank // 2) + 1])
    shards, gathered, gradients = arrays(comm, SHARDED), arrays(comm, GATHERED), arrays(comm, GATHERED)
    weft.lower(WHOLE, SHARDED).bind(comm, first_weights() if comm.rank == 0 else None, shards).run()
    for name in WEIGHTS:
        shards[name].grad = torch.zeros_like(shards[name])
        gathered[name].requires_grad_().grad = gradients[name]  # the backward pass adds to it
    gather = weft.lower(SHARDED, GATHERED).bind(comm, shards, {n: t.detach() for n, t in gathered.items()})
    scatter = weft.lower(GRADIENTS, SHARDED).bind(comm, gradients, {n: t.grad for n, t in shards.items()})
    whole = {name: torch.empty(shape) for name, (shape, _) in WEIGHTS.items()} if comm.rank == 0 else None
    record = weft.lower(SHARDED, WHOLE).bind(comm, shards, whole) if options.record else None
    optimizer = torch.optim.Adam(shards.values(), lr=3e-3)

    bus = weft.bus(options.url)
    published = {name: (shards[name], PUBLISHED[name]) for name in WEIGHTS}  # arrays of f32, cast to bf16 as they are put
    pub = bus.publish(SET, published, comm=comm, slow="wait")
    for step in range(options.steps + 1):
        gather.run()
        for gradient in gradients.values():
            gradient.zero_()
        tokens, targets = batch(step, dp)
        loss = F.cross_entropy(forward(gathered, tokens, tp).flatten(0, 1), targets.flatten())
        if step % options.every == 0:
            mean = float(comm.allreduce(loss.detach()[None], op="avg")[0])
            if record is not None:
                record.run()
                if comm.rank == 0:
                    torch.save(whole, os.path.join(options.record, f"{pub.epoch}.{step}.pt"))
            pub.put(step, shards)  # training goes on with the shards
            pub.commit(step, {"loss": mean})
            if comm.rank == 0:
                print(f"step {step:4d}  loss {mean:.4f}  version {pub.epoch}.{step}", flush=True)
        loss.backward()
        scatter.run()
        optimizer.step()
    pub.close()
    bus.close()


def rank_main(comm, options):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that has started the ranks, and that ends them
    torch.set_num_threads(1)
    train(comm, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default=URL, help=f"of the bus ({URL})")
    parser.add_argument("--steps", type=int, default=1000, help="of training (1000)")
    parser.add_argument("--every", type=int, default=20, help="steps between two versions (20)")
    parser.add_argument("--record", metavar="DIR", help="save each version there, whole")
    options = parser.parse_args()
    try:
        weft.spawn(rank_main, 4, options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except weft.RankError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
