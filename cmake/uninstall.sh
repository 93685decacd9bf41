#!/usr/bin/env bash
# uninstall.sh BUILD PREFIX, with DESTDIR in the environment: removes the files that installing this build puts there, and the
# folders of weft's own that are empty then. Which ones is learnt by installing into an empty folder.
set -eu
build=$1 prefix=$2 dest=${DESTDIR:-}
[ -f "$build/cmake_install.cmake" ] || { echo "uninstall: there is no build in $build: run make first" >&2; exit 1; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
said=$(DESTDIR=$stage cmake --install "$build" --prefix "$prefix" 2>&1) || { echo "$said" >&2; exit 1; }
removed=0
while read -r file; do
    [ -e "$dest$file" ] || [ -L "$dest$file" ] || continue
    rm -- "$dest$file"
    removed=$((removed + 1))
done < <(cd "$stage" && find . ! -type d | sed 's/^\.//')
while read -r folder; do
    rmdir -- "$dest$folder" 2>/dev/null || true # not there, or of others, too
done < <(cd "$stage" && find . -depth -type d -name weft | sed 's/^\.//')
echo "removed $removed files below $dest$prefix"
