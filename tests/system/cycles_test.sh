#!/usr/bin/env bash
# The structure of the library, measured from its object files (cycles.py): no circles between folders, none of more than
# three files inside a folder, names that begin as their file does. Then small trees with one mistake each, in which the
# script must find it.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not installed"; exit 77; }
command -v nm >/dev/null || { echo "skip: nm is not installed"; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)

python3 "$here/cycles.py" "$(dirname "$WEFT_BIN")" --prefixes || exit 1

# expect good|WORDS FILE=CODE...: a tree with these files under src/ is accepted, or refused with these words.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=0
expect()
{
    local words=$1 object status=0 pair
    shift
    rm -rf "${copy:?}"/*
    mkdir -p "$copy/tests/system"
    cp "$here/cycles.py" "$here/layers.txt" "$copy/tests/system/"
    for pair in "$@"; do
        object=$copy/build/CMakeFiles/weft_objects.dir/src/${pair%%=*}.o
        mkdir -p "$(dirname "$object")" "$copy/src/$(dirname "${pair%%=*}")"
        printf '%s\n' "${pair#*=}" >"$copy/src/${pair%%=*}"
        "${CC:-cc}" -c "$copy/src/${pair%%=*}" -o "$object" || exit 1
    done
    python3 "$copy/tests/system/cycles.py" "$copy/build" --prefixes >"$copy/said" 2>&1 || status=1
    if [ "$words" = good ] && [ "$status" -eq 0 ]; then
        return
    fi
    if [ "$words" = good ] || [ "$status" -eq 0 ] || ! grep -q "$words" "$copy/said"; then
        echo "self-check: expected '$words' of $*, and cycles.py says:"
        cat "$copy/said"
        failed=1
    fi
}

expect good base/a.c='void a(void) {}' base/b.c='void a(void); void b(void) { a(); }'
expect good base/a.c='void b(void); void a(void) { b(); }' base/b.c='void a(void); void b(void) { a(); }'
expect '4 files in a circle (too many): base/a base/b base/c base/d' \
    base/a.c='void b(void); void a(void) { b(); }' base/b.c='void c(void); void b(void) { c(); }' \
    base/c.c='void d(void); void c(void) { d(); }' base/d.c='void a(void); void d(void) { a(); }'
expect 'folders in a circle: base layout' \
    base/a.c='void b(void); void a(void) { b(); }' layout/b.c='void a(void); void b(void) { a(); }'
expect 'base/a.c defines other_name' base/a.c='void other_name(void) {}'
expect good base/a.c='/* Prefix of a.c: other_. */ void other_name(void) {} void base_a_name(void) {} void weft_x(void) {}'
expect 'no object files'
exit "$failed"
