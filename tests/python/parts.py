"""A rank's buffer as a layout says, filled from the whole tensor: what other libraries' local arrays are compared with."""

import numpy as np


def part(layout, rank, whole):
    """What the rank holds of a NumPy array."""
    out = np.zeros(layout.local(rank).shape, whole.dtype)
    for box in layout.boxes(rank):
        there = tuple(slice(a, a + n) for a, n in zip(box.at, box.len))
        here = tuple(slice(a, a + n) for a, n in zip(box.local, box.len))
        out[here] = whole[there]
    return out
