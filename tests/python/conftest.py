"""What the tests of the Python package share. Skips are shown with their reasons, and notes at the end of the run."""

import multiprocessing
import random

import pytest

# Ranks by method="forkserver" are forked from a process that has imported these, and has no threads: most of the time of a short test
# with PyTorch is its import, in every rank. What is not installed is left out.
multiprocessing.set_forkserver_preload(
    ["numpy", "weft", "torch", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "jax", "verl.checkpoint_engine.base", "verl.workers.engine"]
)

_notes = []


@pytest.fixture
def note():
    """Says something at the end of the run, whether it fails or not."""
    return _notes.append


@pytest.fixture
def rng(request):
    """Seeded by the test's name: the same in each run."""
    return random.Random(request.node.name)


def pytest_collection_modifyitems(items):
    """JAX and PyTorch start threads, and the other tests fork: so these come last."""
    last = {"test_apart": 1, "test_examples": 1, "test_torch": 1, "test_fsdp": 1, "test_state": 1, "test_record": 1, "test_store": 2, "test_dcp": 2, "test_verl": 2, "test_jax": 2}
    items.sort(key=lambda item: last.get(item.module.__name__, 0))


def pytest_terminal_summary(terminalreporter):
    if _notes:
        terminalreporter.section("notes")
        for text in _notes:
            terminalreporter.write_line(text)
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(f"skip: {len(skipped)} tests were SKIPPED, see their reasons above", yellow=True, bold=True)
