"""asyncio: many runs awaited at once on one thread, cancellation, failures."""

import asyncio
import os
import signal
import threading
import weakref

import numpy as np
import pytest

import weft


def many(comm, n):
    plan = weft.lower("i64[2/x] @x2", "i64[2] @x2")
    arrays = [(comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)) for _ in range(n)]
    bound = [plan.bind(comm, x, y) for x, y in arrays]

    async def one(i, round_):
        arrays[i][0][:] = 10 * i + round_ + comm.rank
        await bound[i].start()
        assert arrays[i][1].tolist() == [10 * i + round_, 10 * i + round_ + 1]
        return i

    async def main():
        for round_ in range(3):
            order = list(range(n)) if comm.rank == 0 else list(reversed(range(n)))  # ranks start in different orders
            done = await asyncio.gather(*(one(i, round_) for i in order))
            assert sorted(done) == list(range(n))
            assert threading.active_count() == 1
        return True

    return asyncio.run(main())


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_thousand_awaits_without_threads(progress):
    assert weft.spawn(many, 2, 1000, progress=progress) == [True, True]


def test_other_tasks_run_meanwhile():
    def rank_main(comm):
        bound = weft.lower("u8[1] @x1=1", "u8[1] @x1=0").bind(comm, comm.empty("u8[1] @x1=1"), comm.empty("u8[1] @x1=0"))
        window = comm.window({}, signals=1)

        async def main():
            turns = 0

            async def count():
                nonlocal turns
                while True:
                    turns += 1
                    if turns == 6 and comm.rank == 0:
                        window.notify(1, 0)
                    await asyncio.sleep(0.001)

            counter = asyncio.ensure_future(count())
            if comm.rank == 1:
                window.wait(0, ">=", 1, timeout=60)  # rank 0 counts while it waits for this one
            work = bound.start()
            await asyncio.gather(work_of(work), work_of(work))  # twice at once
            await work
            counter.cancel()
            return turns

        async def work_of(work):
            await work

        return asyncio.run(main())

    turns = weft.spawn(rank_main, 2)
    assert turns[0] > 5


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_cancellation_leaves_the_comm_usable(progress):
    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        bound = plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst))
        bound.src[:] = comm.rank
        other = plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst))
        window = comm.window({}, signals=1)

        async def main():
            if comm.rank == 1:
                window.wait(0, ">=", 1)  # the other rank has given up by now
                await bound.start()
                await other.start()
                return
            work = bound.start()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(work_of(work), 0.05)
            task = asyncio.ensure_future(work_of(work))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(weft.BusyError, match="in flight"):
                bound.start()
            window.notify(1, 0)
            await other.start()  # moves the run along that nobody awaits
            await work

        async def work_of(work):
            await work

        asyncio.run(main())
        assert bound.dst.tolist() == [0, 0, 1, 1]
        return comm.allreduce(np.ones(1)).tolist()

    assert weft.spawn(rank_main, 2, progress=progress) == [[2.0], [2.0]]


def test_run_that_outlives_its_loop():
    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        bound = plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst))
        window = comm.window({}, signals=1)

        async def first():
            work = bound.start()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(work_of(work), 0.02)
            return work

        async def work_of(work):
            await work

        if comm.rank == 0:
            work = asyncio.run(first())
            window.notify(1, 0)
            asyncio.run(work_of(work))  # on another loop
        else:
            window.wait(0, ">=", 1)
            bound.run()
        work = bound.start()
        asyncio.run(work_of(work))
        return True

    assert weft.spawn(rank_main, 2) == [True, True]


def test_interrupt_while_a_run_ends(monkeypatch):
    """An interrupt that strikes as weft calls back is raised by the loop, and the run is not forgotten."""

    class Interrupted:
        struck = 0

        @classmethod
        def get_ident(cls):
            cls.struck += 1
            raise KeyboardInterrupt

    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        bound = plan.bind(comm, np.full(2, comm.rank, np.int32), np.zeros(4, np.int32))
        window = comm.window({}, signals=1)
        loop = asyncio.new_event_loop()

        async def wait(work):
            await work

        async def late():
            task = asyncio.ensure_future(wait(bound.start()))
            await asyncio.sleep(0)  # it awaits by now
            monkeypatch.setattr("weft._aio.threading", Interrupted)
            window.notify(1, 0)
            await task

        if comm.rank:
            window.wait(0, ">=", 1)
            bound.run()
            return bound.dst.tolist()
        task = loop.create_task(late())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        loop.run_until_complete(task)
        return bound.dst.tolist(), Interrupted.struck

    assert weft.spawn(rank_main, 2) == [([0, 0, 1, 1], 1), [0, 0, 1, 1]]


def test_close_frees_what_was_given_up():
    """A run that nobody awaits any more is held by its flight alone, and its loop is over."""

    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        window = comm.window({}, signals=1)

        async def give_up():
            bound = plan.bind(comm, np.zeros(2, np.int32), np.zeros(4, np.int32))
            await bound.start()

        async def first():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(give_up(), 0.02)

        if comm.rank == 0:
            asyncio.run(first())
            window.notify(1, 0)
        else:
            bound = plan.bind(comm, np.zeros(2, np.int32), np.zeros(4, np.int32))
            window.wait(0, ">=", 1)
            bound.run()
            bound.close()
        handle = weakref.ref(comm._handle)
        del window
        comm.close()
        return handle() is None

    assert weft.spawn(rank_main, 2) == [True, True]


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_failure_reaches_all_that_await(progress):
    def rank_main(comm):
        plan = weft.lower("i32[4/x] @x2", "i32[4] @x2")
        bound = [plan.bind(comm, comm.empty(plan.moves[0].src), comm.empty(plan.moves[0].dst)) for _ in range(5)]
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

        async def one(b):
            await b.start()  # with a progress thread this can know already

        async def main():
            return await asyncio.gather(*map(one, bound), return_exceptions=True)

        errors = asyncio.run(main())
        return [(type(e).__name__, e.rank) for e in errors]

    with pytest.raises(weft.RankError) as caught:
        weft.spawn(lambda comm: check(rank_main(comm)), 2, progress=progress)
    assert caught.value.rank == 1 and set(caught.value.errors) == {1}, caught.value.errors


def check(errors):
    assert errors == [("PeerError", 1)] * 5
