#!/usr/bin/env bash
# All the cases of tests/cases, run on threads and on processes, with messages of one chunk, of 4 KiB and of the default
# size; and staged and in private memory, but for the large ones. A share below 100 (WEFT_TEST_SHARE) leaves out the large
# ones everywhere. And rows of all lengths.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
share=${WEFT_TEST_SHARE:-100}
failed=0

# check FILE OPTIONS...
check()
{
    local file=$1 count code
    shift
    count=$(grep -c '^[^#]*->' "$file")
    "$WEFT_BIN" check --cases "$file" "$@" >"$work/out" 2>"$work/err"
    code=$?
    if [ $code -ne 0 ] || [ "$(tail -n 1 "$work/out")" != "$count passed, 0 failed" ] || [ -s "$work/err" ]; then
        echo "$(basename "$file") $*: exit code $code"
        grep -A 1 FAILED "$work/out"
        cat "$work/err"
        failed=1
    fi
    echo "$(basename "$file") $*: $count cases"
}

for file in "$WEFT_SOURCE_DIR"/tests/cases/*.txt; do
    small=$work/$(basename "$file")
    grep -v '^bench' "$file" >"$small"
    all=$file
    if [ "$share" != full ] && [ "$share" -lt 100 ]; then all=$small; fi
    check "$all" --seed 1
    check "$all" --seed 2 --bucket 1
    check "$all" --seed 3 --bucket 4096
    check "$small" --seed 4 --staged
    check "$all" --seed 5 --on shm:
    check "$small" --seed 6 --on shm: --private
    check "$small" --seed 7 --on shm: --staged --bucket 4096
done
windows=$WEFT_SOURCE_DIR/tests/cases/windows.txt
repeat=100
[ "$share" = full ] && repeat=1000
check "$windows" --on shm: --repeat $repeat
check "$windows" --on shm: --private --repeat $repeat

# Rows of all lengths up to a cache line, which receivers pull from several ranks in turn and senders push to several.
for n in $(seq 1 65) 128; do
    echo "pull-$n: u8[600,$((3 * n))/a] @a3 -> u8[600/x,$((3 * n))] @x3"
    echo "push-$n: u8[600/a,$((3 * n))] @a3 -> u8[600,$((3 * n))/x] @x3"
done >"$work/rows.txt"
WEFT_WAYS=-lists,-eager check "$work/rows.txt"
exit $failed
