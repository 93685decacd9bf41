#!/usr/bin/env bash
# Installs the Python package as a user would, into a virtual environment below the build tree, with PyTorch and JAX
# (their builds for the CPU), mpi4py and abi3audit beside it, and runs the package's tests. What cannot be installed is said, and skipped.
# FRAMEWORKS=no: the package alone. VERL=yes: verl, too. PYTEST_ARGS: for pytest.
set -u
cd "$(dirname "$0")/.." || exit 1

build=${BUILD:-build}
venv=$build/python
python=$venv/bin/python
mkdir -p "$build"
[ -x "$python" ] || python3 -m venv "$venv" || exit 1

# install WHAT...: quietly; the log is shown where it fails.
install()
{
    "$python" -m pip install --disable-pip-version-check -q "$@" >"$build/pip.log" 2>&1 && return
    tail -n 5 "$build/pip.log"
    return 1
}

echo "python: installing the package into $venv"
# Without an environment for the build alone, whose path is new each time: with one, everything is compiled anew. (The tests build a wheel
# with one, as a user's pip does. No test runs the CUDA kernels, so they are compiled for one architecture.)
install 'scikit-build-core>=0.10' 'cffi>=1.15' pytest mypy build || exit 1
install --no-build-isolation -C "build-dir=$build/pip" -C cmake.define.WEFT_CUDA_ARCHS=90 . || exit 1
frameworks()
{
    # The plain wheel of PyTorch brings a GPU's libraries, of several GB.
    "$python" -c 'import torch' 2>/dev/null || install --index-url https://download.pytorch.org/whl/cpu torch || install torch ||
        echo "skip: PyTorch cannot be installed; what compares with it is skipped"
    "$python" -c 'import safetensors' 2>/dev/null || install safetensors ||
        echo "skip: safetensors cannot be installed; what compares checkpoints with it is skipped"
    "$python" -c 'import mpi4py' 2>/dev/null || install mpi4py || echo "skip: mpi4py cannot be installed; its communicators are not tried"
    "$python" -c 'import abi3audit' 2>/dev/null || install abi3audit || echo "skip: abi3audit cannot be installed; the limited API is checked less"
    # Packages that it imports and does not ask for come with it.
    [ "${VERL:-no}" = no ] || "$python" -c 'import verl.workers.engine' 2>/dev/null || install verl fastapi uvicorn pillow torchvision pyzmq ||
        echo "skip: verl cannot be installed; weft.verl is not tried with it"
    "$python" -c 'import jax' 2>/dev/null || install jax || echo "skip: JAX cannot be installed; what compares with it is skipped"
}
[ "${FRAMEWORKS:-yes}" = no ] || frameworks

# shellcheck disable=SC2086  # PYTEST_ARGS is a list
WEFT_TEST_BUILD=1 exec "$python" -m pytest ${PYTEST_ARGS:-} "$@"
