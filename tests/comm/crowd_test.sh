#!/usr/bin/env bash
# Many ranks on one machine by sockets: one of them computes and all others wait for it. Nobody is taken for dead, though the
# machine has more packets to carry than it can if all of them are probed.
set -u
: "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
ranks=$WEFT_BUILD_DIR/tests/crowd_ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/t" && export TMPDIR=$work/t
failed=0
complain() { echo "FAILED: $1"; head -c 2000 "$work/out"; failed=1; }

sizes=48 length=6
[ "${WEFT_TEST_SHARE:-100}" = full ] && sizes="64 128 256 512" length=60
for n in $sizes; do
    WEFT_DEADLINE_MS=200000 timeout 250 "$WEFT_BIN" run -n "$n" --on tcp: -- "$ranks" "$length" >"$work/out" 2>&1 </dev/null ||
        complain "$n ranks, of which one computes for $length s: exit code $?"
done
exit $failed
