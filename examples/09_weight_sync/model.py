"""What trainer.py and server.py have in common: who holds what, and the model."""

import os
import tempfile

import torch
import torch.nn.functional as F

URL = f"file:{tempfile.gettempdir()}/weft-weight-sync-{os.getuid()}"  # where they find each other, unless --url says otherwise
SET = "weights"

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
PUBLISHED = layouts("bf16", "dp2.tp2", fsdp=True)  # what the trainer puts on the bus
SERVED = layouts("bf16", "tp2")
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
