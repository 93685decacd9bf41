"""weft moves sharded data between ranks by a plan that is made once and run many times.

    import weft

    plan = weft.lower("f32[4096/x,512] @x4", "f32[4096,512/x] @x4")   # rows to columns; no data, no peers
    comm = weft.open()                                                # who takes part
    src, dst = comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)
    bound = plan.bind(comm, src, dst)                                 # collective: all ranks succeed, or all fail
    bound.run()                                                       # as often as needed

docs/python.md is the guide, docs/notation.md has the notation.
"""

from __future__ import annotations

from ._arrays import Bits, bits
from ._arrivals import Arrival, Arrivals
from ._bus import Bus, Fetching, Pin, Publisher, Subscriber, Version, VersionInfo, bus
from ._checkpoint import CheckpointInfo, checkpoint_rules, reshard_checkpoint
from ._comm import DEADLINE, FOREVER, Comm, open
from ._device import DeviceArray
from ._errors import (
    ArrayError,
    BusyError,
    Error,
    InvalidError,
    LayoutError,
    MismatchError,
    OutOfMemoryError,
    PeerError,
    RankError,
    SystemError,
    TimeoutError,
    TransportError,
    UnsupportedError,
)
from ._exchange import Exchange, ExchangeStats, Halo, Message, Round
from ._exec import Bound, ExecStats, Work
from ._follow import follow, sync
from ._info import Info, algorithms, info, transports
from ._info import version as _version
from ._jax import from_jax, jax_array, jax_local
from ._layout import Box, Dim, Fold, Layout, Local, Scale, Split, boxes, layout
from ._log import log_to
from ._plan import Machine, Move, Peer, Plan, RankStats, Stats, collective, load, lower
from ._spawn import spawn
from ._state import bind_state
from ._torch import from_torch
from ._window import Window

__version__ = _version()

__all__ = [
    "DEADLINE",
    "FOREVER",
    "ArrayError",
    "Arrival",
    "Arrivals",
    "Bits",
    "Bound",
    "Box",
    "Bus",
    "BusyError",
    "CheckpointInfo",
    "Comm",
    "DeviceArray",
    "Dim",
    "Error",
    "Exchange",
    "ExchangeStats",
    "ExecStats",
    "Fetching",
    "Fold",
    "Halo",
    "Info",
    "InvalidError",
    "Layout",
    "LayoutError",
    "Local",
    "Machine",
    "Message",
    "MismatchError",
    "Move",
    "OutOfMemoryError",
    "Peer",
    "PeerError",
    "Pin",
    "Plan",
    "Publisher",
    "RankError",
    "RankStats",
    "Round",
    "Scale",
    "Split",
    "Stats",
    "Subscriber",
    "SystemError",
    "TimeoutError",
    "TransportError",
    "UnsupportedError",
    "Version",
    "VersionInfo",
    "Window",
    "Work",
    "algorithms",
    "bind_state",
    "bits",
    "bus",
    "checkpoint_rules",
    "collective",
    "follow",
    "from_jax",
    "from_torch",
    "info",
    "jax_array",
    "jax_local",
    "boxes",
    "layout",
    "load",
    "log_to",
    "lower",
    "open",
    "reshard_checkpoint",
    "spawn",
    "sync",
    "transports",
]
