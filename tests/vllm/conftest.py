"""What the tests with vLLM share. Notes are shown at the end of the run, and skips with their reasons."""

import os

import pytest

os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

_notes = []


@pytest.fixture
def note():
    """Says something at the end of the run, whether it fails or not."""
    return _notes.append


def pytest_terminal_summary(terminalreporter):
    if _notes:
        terminalreporter.section("notes")
        for text in _notes:
            terminalreporter.write_line(text)
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(f"skip: {len(skipped)} tests were SKIPPED, see their reasons above", yellow=True, bold=True)
