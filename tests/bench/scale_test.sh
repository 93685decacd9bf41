#!/usr/bin/env bash
# bench/scale.py: its ranks get right results on every transport, and what a rank sends and has does not grow with the ranks.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
on=(shm: tcp:)
if "$WEFT_BIN" run -n 2 --hosts 2 -- true >"$work/out" 2>&1; then
    on+=(auto:)
else
    echo "not on several hosts: $(cat "$work/out")"
fi
python3 "$WEFT_SOURCE_DIR/tests/bench/scale_test.py" "${on[@]}" || exit 1
# The tables can be printed.
timeout 100 python3 "$WEFT_SOURCE_DIR/bench/scale.py" --build "$WEFT_BUILD_DIR" --ranks 4,8 --on threads:,shm: >"$work/out" || exit 1
for title in "CPU time, ms a rank" "Messages a rank" "What a rank has"; do
    grep -q "shm:\`: $title" "$work/out" || { echo "FAILED: no table: $title"; exit 1; }
done
