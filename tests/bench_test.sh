#!/usr/bin/env bash
# Benchmarks: each contender's results are right, what is printed can be read, and nothing is left behind.
set -u
: "${WEFT_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $1"; tail -n 5 "$work/out" "$work/err"; failed=1; }
run() { what="weft bench $*"; timeout 100 "$WEFT_BIN" bench "$@" >"$work/out" 2>"$work/err" || complain "$what: exit code $?"; }

# rows WHO N: so many lines of the CSV are of that contender, each with a time and nothing wrong.
rows()
{
    local n
    n=$(tr -d '"' <"$work/out" | awk -F, -v who="$1" '$5 ~ "^" who && $6 > 0 && $11 == 0' | wc -l)
    [ "$n" -eq "$2" ] || complain "$what: $n right lines of $1, should be $2"
}

quick=(--ms 1 --rounds 2)
on=(threads:)
# The floor waits in two ways where there are more ranks than cores.
cores=$(nproc) two=2 three=2
[ "$cores" -lt 2 ] || two=1
[ "$cores" -lt 3 ] || three=1
"$WEFT_BIN" info | grep -q 'shm:' && on+=(shm:)
before=$(ls /dev/shm 2>/dev/null)
for url in "${on[@]}"; do
    for memory in --window --private; do
        run coll -n 2,3 --sizes 8,12,4K,100000 --on "$url" "$memory" "${quick[@]}" --csv
        rows weft 50
        rows floor $((25 * (two + three)))
    done
    run latency --on "$url" "${quick[@]}" --csv; rows weft 2; rows floor $((2 * two))
done
[ "$(ls /dev/shm 2>/dev/null)" = "$before" ] || complain "$what: left something in /dev/shm"
run memory -n 1 --sizes 16K,64K "${quick[@]}" --csv; rows weft 2; rows memory 6
run coll -n 2 --sizes 8:64:4,1K --only allreduce "${quick[@]}" --plot "$work/a.svg"
[ "$(grep -c allreduce "$work/out")" -ge 3 ] || complain "$what: lines are missing"
grep -q '<polyline' "$work/a.svg" || complain "$what: no curve"
if [ -n "${WEFT_PYTHON:-}" ]; then
    "$WEFT_PYTHON" -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' "$work/a.svg" || complain "$what: the picture is no XML"
    run coll -n 2 --sizes 8 --only halo,barrier "${quick[@]}" --json
    "$WEFT_PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1])); assert len(d["rows"]) == 2' "$work/out" ||
        complain "$what: not the JSON that was expected"
fi
for bad in "-n 0" "-n 2,x" "--sizes 0" "--sizes 8:4" "--on tcp:" "--json --csv" "--window --private"; do
    # shellcheck disable=SC2086  # words
    "$WEFT_BIN" bench coll $bad >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] || complain "weft bench coll $bad: not refused"
done
exit $failed
