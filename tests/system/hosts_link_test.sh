#!/usr/bin/env bash
# What crosses the link between two hosts that are played here, by the counters of the interfaces (weft bench hosts): a tensor
# for four replicas on one host once, and of an allreduce what two levels must send. And the benchmark itself: its results are
# right, its JSON can be read, nothing is left behind.
set -u
: "${WEFT_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/t" && export TMPDIR=$work/t
failed=0
complain() { echo "FAILED: $1"; cat "$work/out" "$work/err"; failed=1; }

case " $("$WEFT_BIN" info | sed -n 's/^modules *//p') " in
*" ucx: "*) ;;
*) echo "skip: there is no module for ucx:" && exit 77 ;;
esac
if ! "$WEFT_BIN" run -n 2 --hosts 2 -- true 2>"$work/err"; then
    echo "skip: $(cat "$work/err")"
    exit 77
fi

# crossed ONLY LEAST: the one line of that name that counts bytes has a ratio of at least that, and not more than 1.
crossed()
{
    timeout 100 "$WEFT_BIN" bench hosts --only "$1" --size 8M --rounds 1 --ms 1 --json >"$work/out" 2>"$work/err" ||
        complain "weft bench hosts --only $1: exit code $?"
    sed -n 's/.*"what": "crossing:.*"crossed": \([0-9]*\), "must": \([0-9]*\),.*"wrong": 0.*/\1 \2/p' "$work/out" >"$work/line"
    awk 'NF == 2 && $1 >= $2 && $1 <= 1.03 * $2 { n++ } END { exit n != 1 }' "$work/line" ||
        complain "$1: bytes that crossed and must: $(cat "$work/line")"
}
crossed fanout
crossed allreduce

# Messages of long pieces, which travel in lists of them, to and from their places.
while IFS='|' read -r src dst; do
    timeout 100 "$WEFT_BIN" run -n 4 --hosts 2 -- "$WEFT_BIN" check "$src" "$dst" --on auto: >"$work/out" 2>"$work/err" </dev/null ||
        complain "weft check '$src' '$dst'"
done <<'END'
f32[60/x,4096] @x4|f32[60,4096/x] @x4
f32[60,8192/x] @x4|f32[60/x,8192] @x4
f64[37/x:3,5,1000] @x4|f64[37,5,1000/x:300] @x4
f32[30,4096/x] @x2=0,1|f32[30,4096/x:640] @x2=2,3
f32[30,9000] @x4 +sum(x)|f32[30,9000/x] @x4
END

# The others, quickly; ucx_perftest may not be there, which is said.
timeout 200 "$WEFT_BIN" bench hosts --only move,ping,many --size 1M --rounds 1 >"$work/out" 2>"$work/err" ||
    complain "weft bench hosts: exit code $?"
grep -q 'tensors of 64 KiB' "$work/out" || complain "no line for many tensors"
if command -v ucx_perftest >/dev/null; then
    [ "$(grep -c 'ucx_perftest' "$work/out")" -ge 3 ] || complain "lines beside ucx_perftest are missing"
else
    grep -q 'left out: .*ucx_perftest' "$work/out" || complain "it does not say that ucx_perftest is missing"
fi
[ -z "$(ls "$TMPDIR")" ] || complain "left behind: $(ls "$TMPDIR")"
exit $failed
