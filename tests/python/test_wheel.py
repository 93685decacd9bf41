"""`make wheel`: its wheel in a clean virtual environment on a PATH that has no compiler, and one for the other architecture."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.skipif(not os.environ.get("WEFT_TEST_BUILD"), reason="WEFT_TEST_BUILD is not set: no packages are built")
MACHINES = {"x86_64": 62, "aarch64": 183}  # as the header of an ELF file has them
NVCC = shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}.get(platform.machine(), "")


def make_wheel(out, **environment):
    """The wheel of `make wheel`. Its name says for which architecture it is, and all code in it is for that one. Of the modules it has the
    simulated device, and CUDA where nvcc is, here for one architecture of GPUs."""
    env = {**os.environ, "WHEEL_OUT": str(out), "CMAKE_ARGS": "-DWEFT_CUDA_ARCHS=90", **environment}
    done = subprocess.run(["bash", "cmake/wheel.sh"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    arch = environment.get("WHEEL_ARCH", platform.machine())
    assert wheel.name.startswith("libweft-") and "-cp39-abi3-manylinux_" in wheel.name and wheel.name.endswith(f"_{arch}.whl"), wheel.name
    with zipfile.ZipFile(wheel) as files:
        code = {name: int.from_bytes(files.read(name)[18:20], "little") for name in files.namelist() if name.endswith((".so", "scripts/weft"))}
    assert {pathlib.Path(name).name for name in code} == {"_weft.abi3.so", "weft", "weft_sim.so"} | ({"weft_cuda.so"} if NVCC else set())
    assert set(code.values()) == {MACHINES[arch]}, code
    return wheel


@pytest.mark.skipif(not shutil.which(f"{OTHER}-linux-gnu-gcc"), reason="there is no cross compiler for the other architecture")
def test_wheel_for_the_other_architecture(tmp_path):
    make_wheel(tmp_path / "dist", WHEEL_ARCH=OTHER)


def test_an_architecture_without_a_compiler(tmp_path):
    env = {**os.environ, "WHEEL_OUT": str(tmp_path), "WHEEL_ARCH": "s390x_none"}
    done = subprocess.run(["bash", "cmake/wheel.sh"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout.startswith("wheel: no s390x_none-linux-gnu-gcc: install ")


def test_wheel_without_a_compiler(tmp_path):
    wheel = make_wheel(tmp_path / "dist")
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
    assert ("no CUDA module" not in done.stdout) == bool(NVCC), done.stdout
    assert sys.version_info >= (3, 9)
