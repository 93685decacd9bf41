#!/usr/bin/env bash
# The flight recorder: ranks of jobs that hang or fail leave files, and weft diagnose names the rank that is to blame; nothing
# is written where nobody asked for it, and files that are no such files are refused by name.
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
ranks=()
finish()
{
    for pid in "${ranks[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    wait
    rm -rf "$work"
}
trap finish EXIT
program=$WEFT_BUILD_DIR/tests/flight_ranks
failed=0
complain() { echo "FAILED: $1"; failed=1; }
job=0
mkfifo "$work/end"

# begin WHAT [VARIABLE=VALUE...]: four ranks, which are in ranks[]; rank 2 holds up the others.
begin()
{
    local what=$1
    shift
    job=$((job + 1)) ranks=()
    rm -rf "$work/files"
    mkdir "$work/files"
    exec {hold}<>"$work/end"
    for r in 0 1 2 3; do
        env WEFT_RANK=$r WEFT_SIZE=4 WEFT_URL="shm:flight-$$-$job" WEFT_FLIGHT="$work/files" "$@" \
            "$program" "$what" 2>"$work/err.$r" 3<"$work/end" {hold}<&- &
        ranks+=($!)
    done
}
# end [RANK...]: when a call of each of these has failed all are told to end, and rank 2 is ended if it does not hear.
end()
{
    local told
    for _ in $(seq 3000); do
        told=0
        for r in "$@"; do [ -s "$work/err.$r" ] && told=$((told + 1)); done
        [ $told = $# ] && break
        read -rt 0.01 <> <(:)
    done
    [ $told = $# ] || complain "only $told of $# ranks have got an error"
    exec {hold}<&-
    { wait "${ranks[0]}" "${ranks[1]}" "${ranks[3]}"; } 2>/dev/null
    kill -KILL "${ranks[2]}" 2>/dev/null
    { wait "${ranks[2]}"; } 2>/dev/null
    ranks=()
}
# What the files say of the job is for its owner alone.
private() { [ -z "$(find "$work/files" -type f ! -perm 600)" ] || complain "others can read the files: $(ls -l "$work/files")"; }
files() { find "$work/files" -type f | wc -l; }
# diagnose CODE TEXT...: the files' diagnosis has these texts.
diagnose()
{
    local want=$1 got
    shift
    "$WEFT_BIN" diagnose "$work"/files/*.json >"$work/out" 2>&1
    got=$?
    [ "$got" = "$want" ] || complain "diagnose: exit code $got, not $want: $(cat "$work/out")"
    for text in "$@"; do
        grep -qF -- "$text" "$work/out" || complain "the diagnosis lacks '$text': $(cat "$work/out")"
    done
    "$WEFT_BIN" diagnose --json "$work"/files/*.json >"$work/json"
    if [ -n "${WEFT_PYTHON:-}" ]; then
        for file in "$work/json" "$work"/files/*.json; do
            "$WEFT_PYTHON" -m json.tool "$file" >/dev/null || complain "$file is not JSON: $(cat "$file")"
        done
    fi
}

# ---- rank 2 does not start its second run: the others run out of time ----
begin idles; end 0 1 3
private
[ "$(files)" = 3 ] || complain "idles: $(ls -A "$work/files")"
diagnose 1 "4 ranks, 3 files" "missing: rank 2 has no file" "timeout: rank 0: " \
    "rank 0 waits for rank 2, which has not started the run, to send message 1 of 1, 1024 B (1.0 KiB) of tensor 'weights'; run 2 of exec 0" \
    "culprit: rank 2 has no file and has not come to what the others are in" "; ranks 0, 1, 3 wait for it"
grep -q '"culprits": \[' "$work/json" && grep -qF '{"rank": 2, ' "$work/json" && grep -qF '"waiting": [0, 1, 3]' "$work/json" ||
    complain "JSON: $(cat "$work/json")"
cp "$work/files"/*"-$job-0-"*.json "$work/zero.json"
cp "$work/files"/*"-$job-1-"*.json "$work/one.json"

# ---- it stops in the middle, and so for the deadline; it dies ----
begin stops; end 0 1 3
diagnose 1 "missing: rank 2 has no file" "culprit: rank 2 has no file"
begin dies WEFT_TEST_MS=20000; end 0 1 3
[ "$(files)" = 3 ] || complain "dies: $(ls -A "$work/files")"
diagnose 1 "failure: rank 2 has died" "culprit: rank 2 has died"

# ---- it is in another call, so that they wait for each other ----
begin wanders; end 0 1 2 3
diagnose 1 "circle: ranks 0-3 wait for each other" "rank 2 waits for ranks 0, 1, 3 in weft_comm_barrier"

# ---- a signal ----
for name in USR2 USR1; do
    begin signal WEFT_FLIGHT_SIGNAL=$name WEFT_DEADLINE_MS=60000
    for _ in $(seq 2000); do # until each of the others is in its second run: it ignores no signal before it has opened its comm
        ready=0
        for r in 0 1 3; do
            caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/${ranks[$r]}/status" 2>/dev/null)
            number=$([ $name = USR1 ] && echo 10 || echo 12)
            [ -n "$caught" ] && [ $((0x${caught:8} >> (number - 1) & 1)) = 1 ] && ready=$((ready + 1))
        done
        [ $ready = 3 ] && break
        read -rt 0.01 <> <(:)
    done
    for _ in $(seq 500); do # a signal that comes while a rank binds shows that: the last one counts
        kill -$name "${ranks[0]}" "${ranks[1]}" "${ranks[3]}"
        read -rt 0.05 <> <(:)
        [ "$(grep -ls '"state": "in flight"' "$work"/files/*.json 2>/dev/null | wc -l)" = 3 ] && break
    done
    diagnose 1 "culprit: rank 2 has no file"
    readable=$(find "$work/files" -name '*.json' -perm /077)
    [ -z "$readable" ] || complain "other users may read $readable"
    kill -KILL "${ranks[2]}" # and so the others fail
    end 0 1 3
    diagnose 1 "failure: rank 2 has died"
done

# ---- nothing, where nothing is wrong or nobody asked ----
begin nothing; end
[ "$(files)" = 0 ] || complain "nothing: $(ls -A "$work/files")"
begin idles WEFT_FLIGHT=; end 0 1 3
found=$(find "$work" . -maxdepth 2 -name "*weft-flight*")
[ -z "$found" ] || complain "without WEFT_FLIGHT: $found"
begin nothing WEFT_FLIGHT=/no/such/folder; end
grep -q "WEFT_FLIGHT=/no/such/folder: expected a folder that can be written" "$work/err.0" || complain "$(cat "$work/err.0")"
begin nothing WEFT_FLIGHT_SIGNAL=KILL; end
grep -q "WEFT_FLIGHT_SIGNAL=KILL: expected USR1, USR2 or none" "$work/err.0" || complain "$(cat "$work/err.0")"

# ---- files that cannot be used ----
# refuse TEXT FILE...
refuse()
{
    local text=$1 got
    shift
    "$WEFT_BIN" diagnose "$@" >"$work/out" 2>&1
    got=$?
    [ $got = 2 ] && grep -qF -- "$text" "$work/out" || complain "diagnose $*: exit code $got, $(cat "$work/out")"
}
bad=$work/bad.json
# bad SED: the file of rank 0 changed.
bad() { sed "$1" "$work/zero.json" >"$bad"; cmp -s "$bad" "$work/zero.json" && complain "sed $1 changes nothing"; }
refuse "there is no file"
refuse "$work/none.json: No such file" "$work/none.json"
refuse "$work: it is not a regular file" "$work"
: >"$bad"; refuse "$bad: it is not JSON: byte 0" "$bad"
echo '{"a": 1}' >"$bad"; refuse "it is not of weft's flight recorder" "$bad"
head -c 300 "$work/zero.json" >"$bad"; refuse "it is not JSON" "$bad"
{ cat "$work/zero.json"; echo '1'; } >"$bad"; refuse "something follows the value" "$bad"
printf '%.0s[' $(seq 100000) >"$bad"; refuse "it is nested too deeply" "$bad"
printf '{"weft_flight": "\xff"}' >"$bad"; refuse "bytes that are not UTF-8" "$bad"
printf '{"weft_flight": "\\ud800"}' >"$bad"; refuse "half of a pair of surrogates" "$bad"
printf '{"weft_flight": "\\u0000"}' >"$bad"; refuse "a zero byte in a string" "$bad"
printf '{"weft_flight": 01}' >"$bad"; refuse "no JSON value" "$bad"
printf '{"weft_flight": 1,}' >"$bad"; refuse "an object whose member has no name" "$bad"
bad 's/"weft_flight": 1/"weft_flight": 2/'; refuse 'there is no "weft_flight" from 1 to 1' "$bad"
bad 's/"rank": 0/"rank": 4/'; refuse 'there is no "rank" from 0 to 3' "$bad"
bad 's/"ranks": 4/"ranks": 2000000000/'; refuse 'there is no "ranks" from 1 to 65536' "$bad"
bad 's/"from": 2/"from": 0/'; refuse "rank 0 waits for itself" "$bad"
bad 's/"from": 2/"from": -1/'; refuse 'there is no "from" from 0 to 3' "$bad"
bad 's/"name": "weights"/"name": 7/'; refuse 'there is no text "name"' "$bad"
bad 's/"channels": \[/"channel": [/'; refuse 'there is no array "channels"' "$bad"
bad 's/"job": "shm:/"job": "other:/'; refuse "give the files of one job" "$work/one.json" "$bad"
refuse "are both of rank 0" "$work/zero.json" "$work/zero.json"
bad 's/"name": "weights"/"name": "\\u001b[31m\\u009b"/'
"$WEFT_BIN" diagnose "$bad" | grep -q $'\x1b\|\xc2\x9b' && complain "a terminal would obey the file"
[ $failed = 0 ] && echo "all diagnoses are right"
exit $failed
