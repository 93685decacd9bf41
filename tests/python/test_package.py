"""The package itself: types, one wheel for all Pythons, nothing imported that was not asked for, a source package that builds."""

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "python").rglob("*.py"))


def run(*command, **how):
    return subprocess.run(command, capture_output=True, text=True, timeout=900, **how)


def test_types():
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: the types are not checked")
    done = run(sys.executable, "-m", "mypy", cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert (pathlib.Path(weft.__file__).parent / "py.typed").exists()


def test_python_3_9_can_read_it():
    for source in SOURCES:
        ast.parse(source.read_text(), str(source), feature_version=(3, 9))


def test_limited_api():
    module = importlib.util.find_spec("weft._weft").origin
    assert module.endswith(".abi3.so")
    if sys.platform == "linux":
        needed = run("readelf", "-d", module)
        if needed.returncode == 0:
            libraries = set(re.findall(r"NEEDED.*\[(.*?)\]", needed.stdout))
            assert all(re.match(r"lib(c|m|pthread|gcc_s|dl)\.so|ld-linux", name) for name in libraries), libraries
        exported = run("nm", "-D", "--defined-only", module)
        if exported.returncode == 0:
            assert set(re.findall(r" [A-Z] (\w+)", exported.stdout)) <= {"PyInit__weft", "_cffi_pypyinit__weft"}


def test_limited_api_is_that_of_3_9():
    """Of all that the module asks the interpreter for, nothing is newer."""
    if importlib.util.find_spec("abi3audit") is None:
        pytest.skip("abi3audit is not installed: what the module needs of Python is not checked")
    module = importlib.util.find_spec("weft._weft").origin
    done = run(sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.9", module)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_else_is_imported():
    code = "import sys, weft; weft.open('self:'); print([m for m in ('torch', 'jax', 'ml_dtypes', 'mpi4py') if m in sys.modules])"
    done = run(sys.executable, "-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_version():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{weft.__version__}"' in text


def test_the_distribution_is_not_another_project():
    """`weft` on PyPI is another project: whoever installs by that name gets that one, and the README says so."""
    name = importlib.metadata.packages_distributions()["weft"] if sys.version_info >= (3, 10) else ["libweft"]
    assert name == ["libweft"] and importlib.metadata.version("libweft") == weft.__version__
    assert "`weft` on PyPI is another project" in (ROOT / "README.md").read_text().replace("\n", " ")


def test_all_is_all():
    for name in weft.__all__:
        assert hasattr(weft, name)
    public = {n for n, t in vars(weft).items()
              if not n.startswith("_") and (n.isupper() or getattr(t, "__module__", "").startswith("weft."))}
    assert public == set(weft.__all__)


def test_bench():
    done = run(sys.executable, "-m", "weft.bench", "--small", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = __import__("json").loads(done.stdout[done.stdout.index("{") :])
    assert result["ranks"] == 2 and result["overhead"]["c_us"] > 0 and result["rate"]["python_gbs"] > 0
    assert {row["who"] for row in result["beside"]} >= {"weft, bound", "weft, by name"}


@pytest.mark.skipif(not os.environ.get("WEFT_TEST_BUILD"), reason="WEFT_TEST_BUILD is not set: no packages are built")
def test_packages(tmp_path):
    """python -m build: a wheel for all Pythons from 3.9 on, and a source package from which it was built."""
    done = run(sys.executable, "-m", "build", "--outdir", str(tmp_path), cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert "-cp39-abi3-linux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"weft/__init__.py", "weft/py.typed", "weft/_weft.pyi", "weft/_weft.abi3.so"} <= set(names)
    for module in weft.info()["modules"]:  # what this package has, that one has, too
        file = "weft_" + module.rstrip(":").replace(":", "_") + ".so"
        assert f"weft/{file}" in names and any(n.endswith(f".data/data/lib/weft/{file}") for n in names)
    assert any(n.endswith("scripts/weft") for n in names) and not any(n.endswith((".c", ".h")) for n in names)
    with tarfile.open(source) as tar:
        members = {n.split("/", 1)[1] for n in tar.getnames() if "/" in n}
    assert {"include/weft.h", "src/base/error.c", "python/build_ffi.py", "CMakeLists.txt", "LICENSE"} <= members
    assert not any(n.startswith(("tests/", "build", ".git/")) for n in members)
