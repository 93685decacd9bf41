#!/usr/bin/env bash
# What an 8-byte move between two processes costs each side in instructions: those of weft_exec_start and of the
# weft_exec_test that finds it complete, counted by callgrind, which writes down the sum after each call.
set -u
: "${WEFT_BUILD_DIR:?}"
limit=400 # for each side of a move in window memory
command -v valgrind >/dev/null || { echo "skip: valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$WEFT_BUILD_DIR/tests/move_calls
mkdir "$work/words"
"$program" "$work/words"
case $? in
    0) rm -f "$work"/words/* ;;
    77) echo "skip: valgrind's headers were not there when the program was built"; exit 77 ;;
    *) echo "FAILED: the program does not work"; exit 1 ;;
esac
options=(--tool=callgrind --collect-atstart=no --callgrind-out-file="$work/out.%p")
if ! valgrind "${options[@]}" "$program" "$work/words" 2>"$work/err"; then
    grep -q "valgrind: \|unhandled instruction\|Fatal error" "$work/err" &&
        { echo "skip: valgrind does not run this program: $(grep -m 1 'valgrind: \|unhandled\|Fatal' "$work/err")"; exit 77; }
    echo "FAILED: $(tail -n 5 "$work/err")"
    exit 1
fi

# The n-th line of words is about the n-th file. What is counted when nothing is called is taken off.
failed=0
for words in "$work"/words/*; do
    rank=$(basename "$words" | cut -d. -f1) pid=${words##*.} n=0 nothing=
    while read -r name call counts; do
        n=$((n + 1))
        [ "$counts" = counts ] || continue
        cost=$(sed -n 's/^summary: *//p' "$work/out.$pid.$n" | head -n 1)
        [ -n "$cost" ] || { echo "FAILED: callgrind has not counted call $n of rank $rank" >&2; exit 1; }
        nothing=${nothing:-$cost}
        echo "$name $rank $call $((cost - nothing))"
    done <"$words"
done >"$work/costs"
for name in move private-move swap; do
    for rank in 0 1; do
        start=$(awk -v n="$name" -v r=$rank '$1 == n && $2 == r && $3 == "start" { print $4 }' "$work/costs" | sort -n | tail -n 1)
        test=$(awk -v n="$name" -v r=$rank '$1 == n && $2 == r && $3 == "complete" { print $4 }' "$work/costs" | sort -n | tail -n 1)
        [ "${start:-0}" -gt 0 ] && [ "${test:-0}" -gt 0 ] || { echo "FAILED: $name, rank $rank: start $start, test $test"; failed=1; continue; }
        echo "$name of 8 bytes, rank $rank: start $start, test that finds it complete $test: $((start + test)) instructions"
        if [ $name = move ] && [ $((start + test)) -gt $limit ]; then
            echo "FAILED: more than $limit"
            failed=1
        fi
    done
done
exit $failed
