"""`make wheel`, and its wheel in a clean virtual environment on a PATH that has no compiler."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not os.environ.get("WEFT_TEST_BUILD"), reason="WEFT_TEST_BUILD is not set: no packages are built")
def test_wheel_without_a_compiler(tmp_path):
    env = {**os.environ, "WHEEL_OUT": str(tmp_path / "dist")}
    done = subprocess.run(["bash", "cmake/wheel.sh"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith("libweft-") and "-cp39-abi3-manylinux_" in wheel.name, wheel.name
    venv.create(tmp_path / "clean", with_pip=True)
    bin_dir = tmp_path / "bin"  # what a machine without a compiler still has
    bin_dir.mkdir()
    for tool in ("sh", "env", "uname", "ls", "ldconfig"):
        if shutil.which(tool):
            (bin_dir / tool).symlink_to(shutil.which(tool))
    clean = {"PATH": f"{tmp_path}/clean/bin:{bin_dir}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    clean.update({k: v for k, v in os.environ.items() if k.lower().endswith("_proxy") or k.startswith(("PIP_", "SSL_"))})
    for compiler in ("cc", "gcc", "c++", "clang", "cmake", "make"):
        assert shutil.which(compiler, path=clean["PATH"]) is None
    python = str(tmp_path / "clean/bin/python")
    for command in (
        [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", str(wheel)],
        [python, str(ROOT / "tests/python/wheel_check.py")],
    ):
        done = subprocess.run(command, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert ": right" in done.stdout
    assert sys.version_info >= (3, 9)
