#!/usr/bin/env bash
# `make site`: installs MkDocs into BUILD/site-tools, and has site.py make the site.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
venv=$build/site-tools
command -v groff >/dev/null || { echo "site: install groff-base: the manual pages need it"; exit 1; }
mkdir -p "$build"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
"$venv/bin/python" -m pip install --disable-pip-version-check -q 'mkdocs>=1.6,<2' >"$build/site.log" 2>&1 ||
    { tail -n 5 "$build/site.log"; exit 1; }
exec "$venv/bin/python" cmake/site.py "$build"
