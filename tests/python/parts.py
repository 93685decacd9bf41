"""A rank's buffer as a layout says, filled from the whole tensor: what other libraries' local arrays are compared with."""

import os
import socket

import numpy as np


def part(layout, rank, whole):
    """What the rank holds of a NumPy array."""
    out = np.zeros(layout.local(rank).shape, whole.dtype)
    for box in layout.boxes(rank):
        there = tuple(slice(a, a + n) for a, n in zip(box.at, box.len))
        here = tuple(slice(a, a + n) for a, n in zip(box.local, box.len))
        out[here] = whole[there]
    return out


def share(ordinary, full):
    """How many cases of a campaign to run: WEFT_TEST_SHARE percent of the ordinary count, or the full one."""
    told = os.environ.get("WEFT_TEST_SHARE", "100")
    return full if told == "full" else max(1, ordinary * int(told) // 100)


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
