#!/usr/bin/env bash
# Many ranks on one machine by sockets, and on several hosts that are played here: one of them computes and all others wait for it. Nobody is taken for dead, though the
# machine has more packets to carry than it can if all of them are probed. And ranks that may have few files open: they get more if
# they may, and otherwise say that they lack files; no other rank is called dead.
set -u
: "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
ranks=$WEFT_BUILD_DIR/tests/crowd_ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/t" && export TMPDIR=$work/t
failed=0
complain() { echo "FAILED: $1"; head -c 2000 "$work/out"; failed=1; }

# alone RANKS [OPTIONS]: rank 0 computes for $length seconds while the others wait; `times` times. With `runs` it does so between sums
sizes=48 hosts="8" on_hosts=48 length=6 times=1 runs=2
[ "${WEFT_TEST_SHARE:-100}" = full ] && sizes="64 128 256 512" hosts="8 16 32" on_hosts=512 length=60 times=10 runs=0
alone()
{
    local n=$1 i
    shift
    for i in $(seq "$times"); do
        WEFT_DEADLINE_MS=200000 timeout 250 "$WEFT_BIN" run -n "$n" "$@" -- "$ranks" "$length" "$runs" >"$work/out" 2>&1 </dev/null ||
            complain "$n ranks, $*, of which one computes for $length s between $runs sums, time $i: exit code $?"
    done
}
for n in $sizes; do
    alone "$n" --on tcp:
done
if "$WEFT_BIN" run -n 2 --hosts 2 -- true >"$work/out" 2>&1; then
    for h in $hosts; do
        alone "$on_hosts" --hosts "$h"
    done
else
    echo "not on several hosts: $(cat "$work/out")"
fi

# Ten times what a campaign from outside has run: 256 ranks that open, bind and run at once, without a wait, and fewer of which one computes.
if [ "${WEFT_TEST_SHARE:-100}" = full ]; then
    runs=5
    length=0 times=50 alone 256 --on tcp:
    for each in 64:20 96:20 128:60 160:20 192:40 224:10; do
        length=10 times=${each#*:} alone "${each%:*}" --on tcp:
    done
    length=20 alone 96 --on tcp:
    times=20
fi

# few LIMIT RANKS URL [OPTIONS]: with that limit of files, which cannot be raised, an error names the limit, and nothing else is said
few()
{
    local limit=$1 n=$2 url=$3
    shift 3
    (ulimit -n "$limit" && WEFT_DEADLINE_MS=20000 timeout 60 "$WEFT_BIN" run -n "$n" --on "$url" "$@" -- "$ranks" 0) >"$work/out" 2>&1 </dev/null &&
        complain "$n ranks on $url with $limit files: no error"
    grep -q "^rank [0-9]*: code -8: .*rank [0-9]* may have $limit files open, and needs [0-9]* for $n ranks" "$work/out" ||
        complain "$n ranks on $url with $limit files: the limit is not named"
    grep "^rank" "$work/out" | grep -qv "may have $limit files open" && complain "$n ranks on $url with $limit files: something else is said"
}
for _ in $(seq "$times"); do
    few 10 4 tcp:
    few 11 4 tcp:
    few 64 80 tcp:
    few 64 80 shm:
done
# The same soft limits, which may be raised.
for url in tcp: shm:; do
    for options in "" --tag-output; do
        (ulimit -Sn 64 && WEFT_DEADLINE_MS=60000 timeout 100 "$WEFT_BIN" run -n 80 --on $url $options -- "$ranks" 0) >"$work/out" 2>&1 </dev/null ||
            complain "80 ranks on $url with a soft limit of 64 files $options: exit code $?"
    done
done
exit $failed
