"""What happens to comms and execs, for Python's logging."""

from __future__ import annotations

import atexit
import logging
from typing import Any, Optional

from ._errors import check
from ._weft import ffi, lib

_LEVELS = {lib.WEFT_LOG_ERROR: logging.ERROR, lib.WEFT_LOG_WARNING: logging.WARNING, lib.WEFT_LOG_INFO: logging.INFO}
_logger: Optional[logging.Logger] = None


@ffi.def_extern()  # type: ignore[untyped-decorator]
def weft_python_log(arg: Any, record: Any) -> None:
    """Called in the thread in which it happened, which may be a thread of the comm's."""
    logger = _logger
    if logger is None:
        return
    comm, event, text = (ffi.string(t).decode("utf-8", "replace") for t in (record.comm, record.event, record.text))
    extra = {"weft_event": event, "weft_comm": comm, "weft_rank": record.rank}
    logger.log(_LEVELS[record.level], "%s, rank %d: %s: %s", comm, record.rank, event, text, extra=extra)


def log_to(logger: Optional[logging.Logger]) -> None:
    """Sends what happens to comms and execs of this process to a logger: comms that are opened, closed or fail, execs that are bound
    and freed, waits that run out of time. None ends it; that is how it begins. Records have weft_event, weft_comm and weft_rank.

    A handler must not use weft. Runs are not logged."""
    global _logger
    level = 0
    if logger is not None:
        _logger = logger
        level = max((ours for ours, theirs in _LEVELS.items() if logger.isEnabledFor(theirs)), default=0)
    check(lib.weft_log(level, lib.weft_python_log if level else ffi.NULL, ffi.NULL))
    if not level:
        _logger = None


atexit.register(log_to, None)  # no record may come when the interpreter has ended
