"""What docs/python.md and the README show is true: the quick start prints what stands below it, and mistakes raise what is said."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "python.md"
BEGIN, END = "<!-- quick start: the README has it word for word -->\n", "<!-- end of the quick start -->"


def quick_start():
    return GUIDE.read_text().split(BEGIN)[1].split(END)[0]


def mistakes():
    """(title, code, message) of each."""
    section = GUIDE.read_text().split("## Common mistakes")[1].split("\n## ")[0]
    return re.findall(r"\*\*(\d+\. .*?)\*\*.*?```python\n(.*?)```\n```text\n(.*?)\n```", section, flags=re.S)


def test_readme_has_the_quick_start():
    assert quick_start() in (ROOT / "README.md").read_text()


def test_quick_start(tmp_path):
    code, expected = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", quick_start(), flags=re.S).groups()
    script = tmp_path / "quickstart.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


ENGINES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "docs" / "engines.md").read_text(), flags=re.S)


def test_all_programs_are_found():
    assert len(ENGINES) == (ROOT / "docs" / "engines.md").read_text().count("```python\n") == 4


@pytest.mark.parametrize("code, expected", ENGINES, ids=map(str, range(len(ENGINES))))
def test_engines(tmp_path, code, expected):
    """The programs of docs/engines.md."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: the blocks of docs/engines.md are not run")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_all_mistakes_are_found():
    assert [title.partition(".")[0] for title, _, _ in mistakes()] == [str(i + 1) for i in range(14)]


@pytest.mark.parametrize("title,code,message", mistakes(), ids=[m[0] for m in mistakes()])
def test_mistake(title, code, message, monkeypatch):
    for name in ("WEFT_RANK", "WEFT_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(weft.Error) as caught:
        exec(code, {"__name__": "__main__"})  # nothing is there that the block does not import
    assert f"{type(caught.value).__name__}: {caught.value}" == message


def blocks():
    """(line, code) of each block of Python that is no mistake."""
    text = GUIDE.read_text().partition("## Common mistakes")[0]
    return [(text[: m.start()].count("\n") + 2, m[1]) for m in re.finditer(r"```python\n(.*?)```", text, flags=re.S)]


def test_all_blocks_are_found():
    text = GUIDE.read_text()
    assert len(blocks()) + len(mistakes()) == text.count("```python\n") and len(blocks()) >= 12


@pytest.mark.parametrize("line,code", blocks(), ids=[f"line{line}" for line, _ in blocks()])
def test_block_runs_when_pasted(line, code, tmp_path):
    """As a script of its own, in an empty folder; what stands beside a print is what it prints."""
    for name in ("torch", "jax"):
        if f"import {name}\n" in code and importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: the block of line {line} is not run")
    (tmp_path / "pasted.py").write_text(code)
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "pasted.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^ *print\(.*\) +# (.*)$", code, flags=re.M)
    if told:
        assert done.stdout.splitlines() == told


def test_every_example_says_how_to_start_it():
    rows = dict(re.findall(r"^\| \[(.*?)\]\(\1\) \| (.*?) \|", (ROOT / "examples/README.md").read_text(), flags=re.M))
    programs = {p.name for p in (ROOT / "examples").iterdir() if p.suffix in (".c", ".py")} - {"jacobi_mpi.c"}  # beside 11_jacobi.c
    assert programs == set(rows)
    for name, how in rows.items():
        assert re.search(rf"`[^`]*\b({pathlib.Path(name).stem}\b|make demo)[^`]*`", how), f"{name}: {how}"


def test_command_comes_along(tmp_path):
    """weft run starts ranks of Python."""
    command = pathlib.Path(sys.executable).with_name("weft")
    if not command.exists():
        pytest.skip("the package was not installed by pip: there is no command weft beside python")
    script = tmp_path / "rank.py"
    script.write_text("import os, numpy as np, weft\ncomm = weft.open()\nos.write(1, b\"%d\\n\" % comm.allreduce(np.array([comm.rank + 1]))[0])\n")
    done = subprocess.run([str(command), "run", "-n", "3", "--", sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\d+$", done.stdout, flags=re.M) == ["6"] * 3
    done = subprocess.run([str(command), "info", "--json"], capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout)
    assert {name: told[name] for name in weft.info()} == weft.info()  # the modules too: each finds its own


def test_names_are_documented():
    text = GUIDE.read_text()
    for name in ("weft." + n for n in weft.__all__ if n[0].islower() and n not in ("transports", "algorithms")):
        assert name in text, f"docs/python.md does not speak of {name}"
    for name, thing in vars(weft).items():
        if not name.startswith("_") and (isinstance(thing, type) or callable(thing)):
            assert thing.__doc__, f"{name} has no docstring"
            for method, body in vars(thing).items() if isinstance(thing, type) and issubclass(thing, object) else ():
                if not method.startswith("_") and callable(body):
                    assert body.__doc__, f"{name}.{method} has no docstring"
