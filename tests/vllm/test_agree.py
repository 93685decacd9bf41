"""Updates that fail on some workers, with vLLM's own executor and worker: the calls after them get their own answers. Workers are threads here,
and no model is made."""

import collections
import queue
import threading
import types

import pytest
import torch
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, WorkerProc
from vllm.v1.worker.gpu_worker import Worker
from weft import TimeoutError, Version, _vllm_worker


class Mail:
    """A queue with the methods of vLLM's MessageQueue."""

    def __init__(self):
        self.items = queue.Queue()

    def enqueue(self, item):
        self.items.put(item)

    def dequeue(self, timeout=None, indefinite=False):
        return self.items.get(timeout=None if indefinite else 60)


class Replica:
    """vLLM's executor, and a thread for each worker. ``bad`` has what fails: ("fetch", rank) and ("apply", rank)."""

    def __init__(self, ranks, monkeypatch):
        self.bad, self.applied = set(), [0] * ranks
        self.here, self.barrier, self.said = threading.local(), threading.Barrier(ranks, timeout=60), [None] * ranks
        monkeypatch.setattr(_vllm_worker, "_groups", lambda: [self.here.group])
        monkeypatch.setattr(_vllm_worker, "_told", self.told)
        self.asked, self.answers = [Mail() for _ in range(ranks)], [Mail() for _ in range(ranks)]
        everyone = types.SimpleNamespace(enqueue=lambda request: [mail.enqueue(request) for mail in self.asked])
        self.executor = types.SimpleNamespace(
            is_failed=False, rpc_broadcast_mq=everyone, response_mqs=self.answers, futures_queue=collections.deque()
        )
        for rank in range(ranks):
            threading.Thread(target=self.work, args=(rank, ranks), daemon=True).start()

    def told(self, group, mine):
        self.said[group.rank_in_group] = list(mine)
        self.barrier.wait()
        found = [list(said) for said in self.said]
        self.barrier.wait()
        return found

    def work(self, rank, ranks):
        self.here.group = types.SimpleNamespace(rank_in_group=rank, world_size=ranks, unique_name="tp:0")
        engine = object.__new__(_vllm_worker.Engine)
        engine._bus, engine._info, engine._targets = None, "given", {}
        engine.model = engine._default_model = engine.model_config = engine._default_model_config = None
        engine.device = torch.device("cpu")
        target = types.SimpleNamespace(
            fetch=lambda want: self.do("fetch", rank) or Version(1, want.step),
            apply=lambda config, device: self.do("apply", rank),
            subscriber=types.SimpleNamespace(swap=lambda version: None),
            close=lambda: None,
        )
        engine._targets[id(None)] = target
        worker = object.__new__(Worker)
        worker.weight_transfer_engine, worker.vllm_config, worker.rank = engine, None, rank
        worker._weight_update_active = worker._weight_update_is_draft = False
        worker.model_runner = types.SimpleNamespace(reset_lora_state=lambda: None)
        process = object.__new__(WorkerProc)
        process.worker, process.rank, process.use_async_scheduling = worker, rank, False
        process.rpc_broadcast_mq, process.worker_response_mq = self.asked[rank], self.answers[rank]
        process.worker_busy_loop()

    def do(self, what, rank):
        if (what, rank) in self.bad:
            raise TimeoutError(f"{what} of {rank}")
        if what == "apply":
            self.applied[rank] += 1

    def call(self, method, *args):
        return MultiprocExecutor.collective_rpc(self.executor, method, args=args)

    def update(self, step):
        self.call("start_weight_update")
        self.call("update_weights", {"step": step})
        self.call("finish_weight_update")


RANKS = [1, 2, 3]


@pytest.mark.parametrize("what", ["fetch", "apply"])
@pytest.mark.parametrize("ranks", RANKS)
def test_calls_after_a_failed_update_get_their_own_answers(ranks, what, monkeypatch):
    replica = Replica(ranks, monkeypatch)
    for step, bad in enumerate([{0}, {ranks - 1}, set(range(ranks))]):
        before = list(replica.applied)
        replica.bad = {(what, rank) for rank in bad}
        with pytest.raises(RuntimeError, match=rf"{what} of \d"):
            replica.update(step)
        if what == "fetch":
            assert replica.applied == before  # no worker has written anything
        replica.bad = set()
        before = list(replica.applied)
        replica.update(step)
        assert replica.applied == [n + 1 for n in before]
        assert all(mail.items.empty() for mail in replica.answers)


@pytest.mark.parametrize("ranks", RANKS)
def test_wrong_arguments_are_told_once(ranks, monkeypatch):
    replica = Replica(ranks, monkeypatch)
    replica.call("start_weight_update")
    with pytest.raises(RuntimeError, match="Invalid update_info"):
        replica.call("update_weights", {"stop": 1})
    replica.update(1)
    with pytest.raises(RuntimeError, match="Invalid init_info"):
        replica.call("init_weight_transfer_engine", {"set": "policy"})
    for _ in range(2):
        replica.call("start_weight_update")
        with pytest.raises(RuntimeError, match="call init_weight_transfer_engine before an update"):
            replica.call("update_weights", {"step": 1})
    assert all(mail.items.empty() for mail in replica.answers)
