"""Ranks that are processes of this script: for programs on one machine, notebooks and tests."""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._comm import FOREVER, nanoseconds
from ._comm import open as open_comm
from ._errors import InvalidError, PeerError, RankError, TimeoutError

__all__ = ["spawn"]


class _Remote(Exception):
    """The traceback of an exception in another process, as text: the cause of that exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _portable(error: BaseException) -> BaseException:
    """The exception, or one that says the same, if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


_PR_SET_PDEATHSIG = 1


def _end_with(parent: int) -> None:
    """This process ends when its parent does, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


_at_import = _threads()  # those of NumPy, which forks well


def _warn_of_threads() -> None:
    """A forked child has none of the parent's threads, and whatever they hold is held for ever."""
    more = _threads() - _at_import
    if more > 0:
        warnings.warn(
            f"weft.spawn forks, and {more} thread{'s have' if more > 1 else ' has'} started since weft was imported, which the ranks "
            "will not have: a rank that needs them hangs. method='spawn' starts new processes; timeout= ends those that hang. "
            "PyTorch uses one thread in the ranks.",
            RuntimeWarning,
            stacklevel=3,
        )


def _without_threads() -> None:
    """PyTorch's pool of threads is not there after a fork, and its first parallel operation would wait for it for ever."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def _rank_main(fn: Callable[..., Any], url: str, rank: int, n: int, options: Any, pipe: Any, parent: int, args: Any) -> None:
    answer: Tuple[Any, ...]
    if parent:
        _end_with(parent)
    try:
        _without_threads()
        with open_comm(url, rank=rank, ranks=n, **options) as comm:
            answer = (True, pickle.dumps(fn(comm, *args)), "")
    except BaseException as error:
        answer = (False, pickle.dumps(_portable(error)), traceback.format_exc())
    pipe.send(answer)
    pipe.close()


def _ended(process: Any) -> BaseException:
    code = process.exitcode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return RuntimeError(f"the process {how} and gave no result")


def _first(errors: Dict[int, BaseException]) -> int:
    """The rank to blame: one that failed by itself, not because another had."""
    return min(errors, key=lambda r: (isinstance(errors[r], PeerError), r))


def spawn(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    method: str = "fork",
    timeout: Optional[float] = None,
    **options: Any,
) -> List[Any]:
    """Runs ``fn(comm, *args)`` in n processes, the ranks of a comm, and returns what each returned, by rank.

    If ranks fail, raises RankError with the number of the one to blame as ``rank`` and its exception as the cause; no process
    is left, not even if this one is killed. After ``timeout`` seconds ranks that have not ended are killed, and TimeoutError
    names them. ``method`` is one of multiprocessing: ``fork`` takes any function; ``spawn`` needs one that can be imported, and
    is the one to use where threads run, as they do once JAX has been used. A RuntimeWarning says so. PyTorch uses one thread
    in a rank, unless the function sets more. Other ``options`` are those of :func:`weft.open`.
    """
    if n < 1:
        raise InvalidError(f"spawn: there must be one rank at least, not {n}")
    if method == "fork":
        _warn_of_threads()
    end = None if timeout is None or timeout == FOREVER else time.monotonic() + nanoseconds(timeout) / 1e9
    context: Any = multiprocessing.get_context(method)
    parent = 0 if method == "forkserver" else os.getpid()  # ranks are children of that server
    url = f"shm:spawn-{os.getpid()}-{os.urandom(6).hex()}"
    processes, pipes = [], []
    results: Dict[int, Any] = {}
    errors: Dict[int, BaseException] = {}
    try:
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(fn, url, rank, n, options, theirs, parent, args), daemon=True)
            try:
                process.start()
            except (AttributeError, TypeError, pickle.PicklingError) as problem:
                raise InvalidError(
                    f"spawn: with method={method!r} the function and its arguments must be ones that can be pickled, a function "
                    f"by its name in a module: {problem}"
                ) from problem
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        left = dict(zip(pipes, range(n)))
        while left:
            ready: Any = multiprocessing.connection.wait(list(left), None if end is None else max(0.0, end - time.monotonic()))
            if not ready:
                late = sorted(left.values())
                for rank in late:
                    processes[rank].kill()
                which = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
                raise TimeoutError(f"spawn: {which} of {n} had not ended after {timeout:g} s, and {'were' if len(late) > 1 else 'was'} killed")
            for pipe in ready:
                rank = left.pop(pipe)
                try:
                    well, data, trace = pipe.recv()
                except EOFError:
                    processes[rank].join()
                    errors[rank] = _ended(processes[rank])
                    continue
                value = pickle.loads(data)
                if well:
                    results[rank] = value
                else:
                    value.__cause__ = _Remote(trace)
                    errors[rank] = value
    finally:
        for process in processes:
            if len(results) + len(errors) < n:
                process.terminate()
            process.join()
        for pipe in pipes:
            pipe.close()
    if errors:
        rank = _first(errors)
        raise RankError(f"rank {rank} of {n}: {type(errors[rank]).__name__}: {errors[rank]}", rank, errors) from errors[rank]
    return [results[rank] for rank in range(n)]
