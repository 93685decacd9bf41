#!/usr/bin/env bash
# What suite.c promises of every test program, shown with one whose tests fail on purpose (suite_fails.c): tests and places
# are chosen by name, unknown ones are an error that lists what there is, and each failure prints the line that runs it
# again, with the element that is wrong first.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$WEFT_SOURCE_DIR" || exit 1
program=$WEFT_BUILD_DIR/tests/suite_fails
name=${program#"$WEFT_SOURCE_DIR/"}
unset WEFT_TEST_SHARE WEFT_TEST_SEED WEFT_TEST_HOSTS WEFT_WIRE
failed=0
complain() { echo "FAILED: $1"; cat "$work/out"; failed=1; }

# run STATUS ARGUMENTS...
run()
{
    local status=$1 got
    shift
    what="suite_fails $*"
    "$program" "$@" >"$work/out" 2>&1
    got=$?
    [ "$got" -eq "$status" ] || complain "$what: exit status $got, not $status"
}
# has PATTERN: a whole line of the output. The others: how many lines are that text, or contain it.
has() { grep -qE "^$1\$" "$work/out" || complain "$what: no line is '$1'"; }
lines() { [ "$(grep -cxF -- "$2" "$work/out")" -eq "$1" ] || complain "$what: not $1 lines are '$2'"; }
contain() { [ "$(grep -cF -- "$2" "$work/out")" -eq "$1" ] || complain "$what: not $1 lines contain '$2'"; }

run 0 --list
lines 1 holds
lines 1 rank_one_fails
contain 1 '    these run --on threads|'

run 2 nothing_of_that_name
contain 1 "there is no test 'nothing_of_that_name'; there are:"
lines 1 seed_seven_fails
run 2 holds --on nowhere
contain 1 "there is no place 'nowhere'; there are:"
run 2 holds --on threads
contain 1 'no test of that name runs at that place; there are:'
run 2 --frobnicate
contain 1 'usage: '
run 2 --on
contain 1 'usage: '

run 0 holds
contain 0 again:
contain 1 'Running 1 test'
run 0 is_skipped
contain 0 again:
has '\[  SKIPPED \] is_skipped'

run 1 assertion_fails
lines 1 "again: $name assertion_fails"
run 1 '*_fails' --on threads
contain 1 again:
lines 1 "again: $name rank_one_fails --on threads"
has '.*rank 1: r->rank != 1 .*'
run 1 crashes
lines 1 "again: $name crashes"
run 1 setup_fails
lines 1 "again: $name setup_fails"
run 1 teardown_fails
lines 1 "again: $name teardown_fails"
run 1 never_begins
lines 1 "again: $name"
run 1 'is it quoted?'
lines 1 "again: $name 'is it quoted?'"

# The seed that fails, and that one alone.
run 1 seed_seven_fails
lines 1 "again: WEFT_TEST_SEED=7 $name seed_seven_fails"
export WEFT_TEST_SEED=6
run 0 seed_seven_fails
WEFT_TEST_SEED=7
run 1 seed_seven_fails
lines 1 "again: WEFT_TEST_SEED=7 $name seed_seven_fails"
unset WEFT_TEST_SEED

# The element that is wrong first, and how many are.
run 1 slots_differ
lines 1 'element 3: expected 13, found -3; 2 are wrong'
run 1 elements_are_wrong --on shm:threads
has '.*: rank 1: job_wrong.*; element 17 \(3, 2\): expected [0-9]+, found 1007; 3 are wrong'
lines 1 "again: $name elements_are_wrong --on shm:threads"

# Variables that steer tests are part of the line; those that say where things are, or that --on stands for, are not.
export WEFT_TEST_SHARE=3 WEFT_PROGRESS='a b'
run 1 assertion_fails
has "again: (WEFT_TEST_SHARE=3 WEFT_PROGRESS='a b'|WEFT_PROGRESS='a b' WEFT_TEST_SHARE=3) $name assertion_fails"
unset WEFT_PROGRESS
if "$program" --list | grep -q 'tcp:processes'; then
    WEFT_TEST_HOSTS=1 WEFT_WIRE=tcp
    export WEFT_TEST_HOSTS WEFT_WIRE
    run 1 rank_one_fails
    lines 1 "again: WEFT_TEST_SHARE=3 $name rank_one_fails --on tcp:processes"
    lines 1 "again: WEFT_TEST_SHARE=3 $name rank_one_fails --on tcp:auto:2hosts"
    contain 3 again:
    contain 0 '--on shm'
    unset WEFT_TEST_HOSTS WEFT_WIRE
fi
unset WEFT_TEST_SHARE

# Each line does run the test again, and it fails again.
run 1
sed -n 's/^again: //p' "$work/out" | sort -u >"$work/again"
[ "$(wc -l <"$work/again")" -ge 10 ] || complain "only $(wc -l <"$work/again") lines to run a test again"
while read -r line; do
    sh -c "$line" >"$work/out" 2>&1 </dev/null && complain "$line: it does not fail"
    grep -qxF "again: $line" "$work/out" || complain "$line: it does not say so again"
done <"$work/again"
exit $failed
