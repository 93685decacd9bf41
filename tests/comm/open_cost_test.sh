#!/usr/bin/env bash
# What an open comm, and one that was split from it, cost a rank does not grow with the number of ranks: its own memory and its files,
# with 16 and with 64 ranks, by sockets on one machine, and on played hosts where this user may play them. Rank 0 may have more: it
# collects. What grows a little: a group that was split off has the addresses of its ranks in memory of its own, 0.4 kB each.
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

# run RANKS OPTIONS
run()
{
    local n=$1
    shift
    WEFT_DEADLINE_MS=60000 timeout 150 "$WEFT_BIN" run -n "$n" "$@" -- "$ranks" 0 costs >"$work/out.$n" 2>&1 </dev/null && return
    echo "FAILED: $n ranks $*"
    head -c 2000 "$work/out.$n"
    exit 1
}

# most RANKS WHAT: sets kb and files to the most that a rank has, without rank 0
most()
{
    read -r kb files < <(awk -v what="$2" '$1 == "rank" && $2 != "0:" && $7 == what { if ($3 > k) k = $3; if ($5 > f) f = $5; n++ }
        END { print k, f; if (n < 1) exit 1 }' "$work/out.$1")
}

# compare WHAT KB: 64 ranks may cost each rank that many kB more than 16, and 10 files: the tree of hosts has more branches
compare()
{
    most 16 "$1"
    local few_kb=$kb few_files=$files
    most 64 "$1"
    echo "$1: $few_kb kB and $few_files files with 16 ranks, $kb kB and $files files with 64"
    if [ "$kb" -gt $((few_kb + $2)) ] || [ "$files" -gt $((few_files + 10)) ]; then
        echo "FAILED: $1: it costs more with more ranks"
        failed=1
    fi
}

both()
{
    echo "$*"
    run 16 "$@"
    run 64 "$@"
    compare open 48
    compare split 96
}
both --on tcp:
both --on tcp: --at "file:$work/t"
if [ "$(id -u)" = 0 ] && "$WEFT_BIN" run -n 2 --hosts 2 -- true >/dev/null 2>&1 </dev/null; then
    both --hosts 8
fi
exit $failed
