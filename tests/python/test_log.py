"""What weft tells Python's logging, and the metrics of a comm."""

import logging

import numpy as np

import weft


def _use(name):
    with weft.open("self:") as comm:
        src, dst = comm.empty("f32[8] @x1"), comm.empty("f32[8] @x1")
        src[...] = np.arange(8)
        with weft.lower("f32[8] @x1", "f32[8] @x1", name=name).bind(comm, src, dst) as bound:
            bound.run()
            bound.run()
        return comm.metrics()


def test_logging_gets_what_happens_to_a_comm_while_it_asks(caplog):
    logger = logging.getLogger("weft.test")
    with caplog.at_level(logging.INFO, "weft.test"):
        weft.log_to(logger)
        _use("w")
        weft.log_to(None)
        _use("w")
    assert [r.weft_event for r in caplog.records] == ["opened", "bound", "freed", "closed"]
    assert all(r.weft_rank == 0 and r.levelno == logging.INFO for r in caplog.records)


def test_a_logger_that_wants_no_infos_gets_none(caplog):
    logger = logging.getLogger("weft.quiet")
    with caplog.at_level(logging.WARNING, "weft.quiet"):
        weft.log_to(logger)
        _use("w")
        weft.log_to(None)
    assert not caplog.records


def test_metrics_count_the_runs():
    text = _use("w")
    assert text.endswith("# EOF\n")
    (runs,) = [line for line in text.splitlines() if line.startswith("weft_runs_total{")]
    assert runs.endswith(" 2")
