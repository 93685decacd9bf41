"""Messages of unknown size and 1-D halos: waited for and awaited, with votes, and with a progress thread."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft


def neighbours(comm):
    others = sorted({(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size} - {comm.rank})
    return others


def rounds(comm):
    me = comm.rank
    with comm.exchange(neighbours(comm), neighbours(comm), vote=True) as x:
        for r in range(6):
            expected = {}
            for to in neighbours(comm):
                for i in range((me + r) % 3):
                    size = [0, 10, 100_000][(me + to + i + r) % 3]
                    x.put(to, np.full(size, me, np.uint8), meta=b"%d.%d" % (r, i))
            round_ = x.finish(done=r == 5)
            got = round_.wait(timeout=30)
            assert round_.done() and round_.wait() is got
            for source in neighbours(comm):
                expected[source] = [
                    (b"%d.%d" % (r, i), [0, 10, 100_000][(source + me + i + r) % 3]) for i in range((source + r) % 3)
                ]
                mine = [m for m in got if m.source == source]
                assert [(m.meta, m.payload.size) for m in mine] == expected[source]
                assert all((m.payload == source).all() and m.round == r for m in mine)
            assert len(got) == sum(map(len, expected.values()))
            assert x.over == (r == 5)
        assert x.stats.rounds == 6
    with pytest.raises(weft.InvalidError, match="closed"):
        x.put(0, b"")
    return True


@pytest.mark.parametrize("progress", ["caller", "thread"])
@pytest.mark.parametrize("n", [2, 3])
def test_rounds(n, progress):
    assert weft.spawn(rounds, n, progress=progress) == [True] * n


def halos(comm, periodic):
    n, me = comm.size, comm.rank
    left, right = me - 1, me + 1
    exists = lambda r: periodic or 0 <= r < n  # noqa: E731
    with comm.halo(periodic, vote=True) as h:
        for r in range(3):
            row = np.arange(4, dtype=np.float32) + 10 * me + 100 * r
            from_left, from_right = h.start(row, row[:2], meta=(b"to left", b"to right"), done=r == 2).wait(30)
            assert (from_left is not None) == exists(left) and (from_right is not None) == exists(right)
            if from_left is not None:
                assert from_left.meta == b"to right"
                assert from_left.payload.view(np.float32).tolist() == [10 * (left % n) + 100 * r + i for i in range(2)]
            if from_right is not None:
                assert from_right.meta == b"to left" and from_right.payload.view(np.float32).size == 4
        assert h.over
        empty = h.exchange()
        assert all(m is None or m.payload.size == 0 for m in empty)
    return True


@pytest.mark.parametrize("periodic", [False, True])
def test_halos(periodic):
    assert weft.spawn(halos, 3, periodic) == [True] * 3


def awaited(comm):
    async def main():
        many = [comm.halo(periodic=True) for _ in range(20)]

        async def one(i):
            for r in range(5):
                left, right = await many[i].start(b"%d" % (i + r), b"%d" % (comm.rank + r))
                assert bytes(left.payload) == b"%d" % ((comm.rank - 1) % comm.size + r)
                assert bytes(right.payload) == b"%d" % (i + r)

        await asyncio.gather(*map(one, range(20)))
        with comm.exchange(neighbours(comm), neighbours(comm)) as x:
            for to in neighbours(comm):
                x.put(to, b"hello", meta=b"%d" % comm.rank)
            got = await x.finish()
            assert sorted(int(m.meta) for m in got) == neighbours(comm)
            assert await x.finish() == []
        return threading.active_count()

    return asyncio.run(main())


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_awaited(progress):
    assert weft.spawn(awaited, 3, progress=progress) == [1, 1, 1]


def test_cancelled():
    def rank_main(comm):
        window = comm.window({}, signals=1)

        async def main():
            with comm.halo() as h:
                if comm.rank == 1:
                    window.wait(0, ">=", 1)
                round_ = h.start(b"l", b"r")
                if comm.rank == 0:
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(wait(round_), 0.05)
                    window.notify(1, 0)
                left, right = await round_
                return bytes((left or right).payload)

        async def wait(round_):
            await round_

        return asyncio.run(main())

    assert weft.spawn(rank_main, 2) == [b"l", b"r"]


def test_mistakes():
    def rank_main(comm):
        with pytest.raises(weft.Error, match="rank"):
            comm.exchange([comm.rank], [comm.rank])
        other = 1 - comm.rank
        with comm.exchange([other], [other]) as x:
            with pytest.raises(weft.InvalidError):
                x.put(comm.rank, b"x")
            with pytest.raises(weft.ArrayError, match="strided"):
                x.put(other, np.zeros((4, 4))[:, 0])
            first = x.finish()
            assert first.wait(30) == []
            x.finish().wait(30)
        with pytest.raises(weft.InvalidError, match="'never'"):
            weft.open("self:", progress="never")
        return True

    assert weft.spawn(rank_main, 2) == [True, True]


def test_messages_outlive_their_exchange():
    def rank_main(comm):
        with comm.halo() as h:
            left, right = h.exchange(np.full(50_000, 1), np.full(50_000, 2))
        comm.close()
        message = left or right
        return int(message.payload.view(np.int64).sum())

    assert weft.spawn(rank_main, 2) == [50_000, 100_000]


def test_payloads_of_the_next_round():
    """They stay, though what the last round has brought is taken only after they were put."""

    def rank_main(comm):
        other = 1 - comm.rank
        with comm.exchange([other], [other]) as x:
            x.put(other, b"first")
            round_ = x.finish()
            while not round_.done():
                pass
            for value in (1, 2):
                x.put(other, np.full(300_000, value, np.uint8))
            assert [bytes(m.payload) for m in round_.wait()] == [b"first"]
            other_things = [np.full(300_000, 9, np.uint8) for _ in range(4)]
            got = [np.unique(m.payload).tolist() for m in x.finish().wait()]
            return got, len(other_things)

    assert weft.spawn(rank_main, 2) == [([[1], [2]], 4)] * 2


# ---- memory of the caller's ----


def hooked(comm):
    """Payloads in arrays of this rank's, of which there are few: senders wait until one is free again."""
    other = 1 - comm.rank
    free = [np.zeros(50_000, np.float32) for _ in range(2)]
    mine, asked = {x.ctypes.data: x for x in free}, []

    def buffer(source, meta, size):
        asked.append((source, meta, size))
        return free.pop() if free else None

    with comm.exchange([other], [other], buffer=buffer) as x:
        for i in range(6):
            x.put(other, np.full(10 if i % 2 else 40_000, 10 * comm.rank + i, np.float32), meta=b"%d" % i)
        x.put(other, meta=b"empty")
        round_, got = x.finish(), []
        while not (round_.done() and len(got) == 7):
            message = x.take()
            if message is None:
                continue
            if message.payload.size:
                array = mine[message.payload.ctypes.data]  # in the very array
                assert (array[: message.payload.size // 4] == 10 * other + int(message.meta)).all()
                free.append(array)
            got.append((message.source, message.meta, message.payload.size))
    expected = [(other, b"%d" % i, 40 if i % 2 else 160_000) for i in range(6)]
    assert got == expected + [(other, b"empty", 0)]
    assert list(dict.fromkeys(asked)) == expected and len(asked) >= 6
    return True


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_buffers(progress):
    assert weft.spawn(hooked, 2, progress=progress) == [True, True]


def test_messages_in_buffers_are_read_before_they_are_freed():
    def rank_main(comm):
        ctypes.CDLL(None).mallopt(-6, 165)  # M_PERTURB: what is freed is overwritten
        other = 1 - comm.rank
        # The pool of so small a budget keeps two of these messages: the others go back to the system.
        with comm.exchange([other], [other], budget=65536, buffer=lambda source, meta, size: bytearray(size)) as x:
            for _ in range(8):
                x.put(other, bytes(9000), meta=bytes(20_000))
            return [(m.source, m.round, len(m.meta), m.payload.size) for m in x.finish().wait()]

    assert weft.spawn(rank_main, 2) == [[(1 - rank, 0, 20_000, 9000)] * 8 for rank in range(2)]


def test_interrupt_while_a_buffer_is_asked_for():
    """What a signal's handler raises ends the wait, wherever it strikes; nothing is lost."""

    class Interrupt(Exception):
        pass

    def interrupt(*_):
        raise Interrupt

    def rank_main(comm):
        signal.signal(signal.SIGUSR1, interrupt)
        window = comm.window({"pid": ("i64", 1)}, signals=2)
        if comm.rank == 0:
            window.put("pid", 1, np.array([os.getpid()]))
        window.barrier()
        caught = 0
        with comm.exchange([1 - comm.rank], [1 - comm.rank], buffer=lambda source, meta, size: bytearray(size)) as x:
            for i in range(10):
                if comm.rank:  # strikes when the other one waits, and then sends at once
                    window.wait(0, ">=", i + 1)
                    os.kill(int(window.array("pid")[0]), signal.SIGUSR1)
                x.put(1 - comm.rank, b"payload" * 3000)
                round_ = x.finish()
                while True:
                    try:
                        if comm.rank == 0 and window.signal(1) == i:
                            window.notify(0, 1)
                            window.notify(1, 0)
                        got = round_.wait()
                        for _ in range(1000 * (comm.rank == 0 and caught <= i)):
                            time.sleep(0.001)  # it is on its way, or lost
                        break
                    except Interrupt:
                        caught += 1
                assert [bytes(m.payload) for m in got] == [b"payload" * 3000]
        return caught

    assert weft.spawn(rank_main, 2)[0] == 10


EXIT = """
import sys, time, weft
rank = int(sys.argv[1])
comm = weft.open(sys.argv[2], rank=rank, ranks=2, progress="thread")
x = comm.exchange([1 - rank], [1 - rank], buffer=lambda source, meta, size: bytearray(size))
x.put(1 - rank, bytes(100_000))
if rank:
    time.sleep(0.1)  # the other one is ending meanwhile
round_ = x.finish()
print(len(round_.wait()) if rank else "end")
"""


def test_exit_while_the_progress_thread_asks():
    name = f"shm:exit-{os.getpid()}"
    ranks = [subprocess.Popen([sys.executable, "-c", EXIT, str(r), name], stdout=subprocess.PIPE, text=True) for r in range(2)]
    try:
        assert [(p.communicate(timeout=120)[0], p.returncode) for p in ranks] == [("end\n", 0), ("1\n", 0)]
    finally:
        for p in ranks:
            p.kill()


def test_buffers_of_a_halo():
    def rank_main(comm):
        room = {comm.rank: bytearray(100)}
        with comm.halo(periodic=True, buffer=lambda source, meta, size: room.setdefault(source, bytearray(size))) as h:
            left, right = h.exchange(b"l%d" % comm.rank, b"right")
            assert bytes(left.payload) == b"right" and bytes(right.payload) == b"l%d" % ((comm.rank + 1) % 3)
        assert bytes(room[(comm.rank - 1) % 3]) == b"right"
        return True

    assert weft.spawn(rank_main, 3) == [True] * 3


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_buffers_that_do_not_fit(progress):
    """The next call raises, and the exchange goes on."""

    def broken(source, meta, size):
        raise KeyError(meta)

    same = np.zeros(100, np.uint8)
    frozen = np.zeros(100, np.uint8)
    frozen.flags.writeable = False
    cases = [
        (broken, KeyError, "x"),
        (lambda *_: np.zeros(3, np.uint8), weft.ArrayError, "of 100 bytes at least"),
        (lambda *_: np.zeros(200, np.uint8)[::2], weft.ArrayError, "a dense one"),
        (lambda *_: frozen, weft.ArrayError, "may be written"),
        (lambda *_: "text", weft.ArrayError, "str is no array"),
        (lambda *_: same, weft.ArrayError, "not taken yet"),
    ]

    def rank_main(comm):
        if comm.rank == 0:
            for _ in cases:
                with comm.exchange([], [1]) as x:
                    for _ in range(2):
                        x.put(1, bytes([7] * 100), meta=b"x")
                    x.finish().wait()
                    x.put(1, b"", meta=b"again")
                    x.finish().wait()
            return True
        for buffer, kind, words in cases:
            with comm.exchange([0], [], buffer=buffer) as x:
                said = []

                def insist(call):
                    """With a progress thread any call may be the next one."""
                    while True:
                        try:
                            return call()
                        except kind as error:
                            said.append(str(error))

                round_ = insist(x.finish)
                got = insist(round_.wait)
                assert [(m.meta, m.payload.tolist()) for m in got] == [(b"x", [7] * 100)] * 2  # nothing is lost
                assert said and all(words in text for text in said)
                assert [m.meta for m in x.finish().wait()] == [b"again"]
        return True

    assert weft.spawn(rank_main, 2, progress=progress) == [True, True]
