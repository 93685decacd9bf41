#!/usr/bin/env bash
# What an open comm costs a rank does not grow with the number of ranks: its own memory and its files, with 16 and with 64 ranks,
# by sockets on one machine, and on played hosts where this user may play them. Rank 0 may have more: it collects.
set -u
: "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
ranks=$WEFT_BUILD_DIR/tests/crowd_ranks
if grep -q '^WEFT_SANITIZE:[A-Z]*=..*' "$WEFT_BUILD_DIR/CMakeCache.txt"; then
    echo "skip: a sanitizer has memory of its own"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/t" && export TMPDIR=$work/t
failed=0

# most RANKS OPTIONS: sets kb and files to the most that a rank has, without rank 0
most()
{
    local n=$1
    shift
    if ! WEFT_DEADLINE_MS=60000 timeout 150 "$WEFT_BIN" run -n "$n" "$@" -- "$ranks" 0 costs >"$work/out" 2>&1 </dev/null; then
        echo "FAILED: $n ranks $*"
        head -c 2000 "$work/out"
        exit 1
    fi
    read -r kb files < <(awk '$1 == "rank" && $2 != "0:" { if ($3 > k) k = $3; if ($5 > f) f = $5; n++ }
        END { print k, f; if (n < 1) exit 1 }' "$work/out")
}

# compare OPTIONS: 64 ranks may cost each rank 48 kB and 3 files more than 16: the tree of meetings has one level more
compare()
{
    most 16 "$@"
    local few_kb=$kb few_files=$files
    most 64 "$@"
    echo "$*: $few_kb kB and $few_files files with 16 ranks, $kb kB and $files files with 64"
    if [ "$kb" -gt $((few_kb + 48)) ] || [ "$files" -gt $((few_files + 10)) ]; then
        echo "FAILED: $*: an open comm costs more with more ranks"
        failed=1
    fi
}
compare --on tcp:
compare --on tcp: --at "file:$work/t"
if [ "$(id -u)" = 0 ] && "$WEFT_BIN" run -n 2 --hosts 2 -- true >/dev/null 2>&1 </dev/null; then
    compare --hosts 8
fi
exit $failed
