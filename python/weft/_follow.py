"""The bus in one line on each side, for jobs of one rank."""

from __future__ import annotations

import atexit
import threading
from typing import Any, Dict, Mapping, Optional, Tuple

from ._arrays import memory_of
from ._bus import Bus, Publisher, Subscriber, Version, bus
from ._errors import TimeoutError

__all__ = ["follow", "sync"]

_VERIFY = 5.0  # seconds within which the holders of a version that is there say what they have
_Key = Tuple[str, str]
_lock = threading.Lock()
_buses: Dict[str, Bus] = {}
_publishers: Dict[_Key, Publisher] = {}
_subscribers: Dict[_Key, Tuple[Subscriber, Dict[str, int]]] = {}


def _open(url: str) -> Bus:
    if url not in _buses:
        _buses[url] = bus(url)
    return _buses[url]


@atexit.register
def _close() -> None:
    with _lock:
        for publisher in _publishers.values():
            publisher.close()
        for subscriber, _ in _subscribers.values():
            subscriber.close()
        for one in _buses.values():
            one.close()
        for table in (_publishers, _subscribers, _buses):
            table.clear()


def sync(url: str, name: str, arrays: Mapping[str, Any], step: int, *, dtype: Optional[str] = None, meta: Any = None) -> Version:
    """Publishes the arrays as a version of the set: ``weft.sync(url, "policy", arrays, step)`` in each step of a trainer.

    The first call of a process takes the next epoch of the set. The versions stay until the process ends. For several ranks, or other
    options, there is :meth:`Bus.publish`.
    """
    with _lock:
        publisher = _publishers.get((url, name))
        if publisher is None:
            publisher = _publishers[url, name] = _open(url).publish(name, arrays, dtype=dtype)
        publisher.put(step, arrays)
        publisher.commit(step, meta)
        return Version(publisher.epoch, step)


def follow(url: str, name: str, arrays: Mapping[str, Any], timeout: float = 0) -> Optional[Version]:
    """Writes the newest version of the set into the arrays, if it is newer than the one that they have; None: there is none within the timeout.
    It is read within the deadline of the bus.

    The version is staged and checked before the arrays are written. Give the same arrays in each call.
    """
    with _lock:
        known = _subscribers.get((url, name))
        places = {n: memory_of(a.detach() if hasattr(a, "detach") else a).address for n, a in arrays.items()}
        if known is not None and known[1] != places:
            _subscribers.pop((url, name))[0].close()
            known = None
        if known is None:
            known = _subscribers[url, name] = _open(url).subscribe(name, arrays, into=arrays), places
        subscriber = known[0]
        live = subscriber.version
        there = any(v.holders and (live is None or v.version > live) for v in _open(url).versions(name))
        if not there and timeout <= 0:
            return None
        try:
            subscriber.verify("newer", timeout=max(timeout, _VERIFY))
        except TimeoutError:
            return None
        version = subscriber.fetch("newer")
        subscriber.swap(version)
        return version
