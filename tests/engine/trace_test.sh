#!/usr/bin/env bash
# Traces: the files of ranks on threads, shm:, tcp: and two played hosts are what Perfetto documents, every message has both of its
# ends, rings drop the oldest events and say so, and clocks of hosts that are 1,000 s apart are found to be so.
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD_DIR:?}" "${WEFT_SOURCE_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$WEFT_BUILD_DIR/tests/trace_ranks
failed=0
complain() { echo "FAILED: $1"; failed=1; }
fresh() { rm -rf "$work/files" && mkdir "$work/files"; }
# check RANKS TEXT...: the files are right and the line about them has these texts
check()
{
    local ranks=$1 text
    shift
    python3 "$WEFT_SOURCE_DIR/tests/engine/trace_check.py" --ranks "$ranks" "$work"/files/*.json >"$work/out" 2>&1 || complain "$(cat "$work/out")"
    for text in "$@"; do grep -q -- "$text" "$work/out" || complain "no '$text': $(cat "$work/out")"; done
    [ -z "$(find "$work/files" -type f ! -perm 600)" ] || complain "others can read the files: $(ls -l "$work/files")"
}
# merged RANKS TEXT: the same for the file that weft trace has made
merged()
{
    python3 "$WEFT_SOURCE_DIR/tests/engine/trace_check.py" --merged --ranks "$1" "$work/all.json" >"$work/found" 2>&1 || complain "$(cat "$work/found")"
    grep -q -- "$2" "$work/found" || complain "no '$2': $(cat "$work/found")"
}

fresh
WEFT_TRACE=$work/files "$program" 3 3 || complain "three threads"
check 3 "^3 files, [1-9][0-9]* arrows, 0 signals, dropped 0" "run 27,"

for on in shm: tcp:; do
    fresh
    WEFT_TRACE=$work/files "$WEFT_BIN" run -n 4 --on $on "$program" 4 || complain "four ranks on $on"
    check 4 "^4 files, [1-9][0-9]* arrows, 0 signals, dropped 0" "run 48,"
done
# The merged file, the runs of three plans on four ranks, and what the simulation says of them.
"$WEFT_BIN" trace "$work/files" --out "$work/all.json" --sim --json >"$work/json" || complain "weft trace"
merged 4 "arrows, 0 signals, dropped 0"
python3 - "$work/json" <<'END' || failed=1
import json, sys
r = json.load(open(sys.argv[1]))
waits = [w["ns"] for w in r["waits"]]
ok = r["ranks"] == 4 and len(r["files"]) == 4 and r["messages_with_one_end"] == 0 and waits == sorted(waits, reverse=True) and len(waits) <= 10
ok = ok and all(w["rank"] != w["for"] for w in r["waits"]) and len(r["execs"]) == 3
for x in r["execs"]:
    ok = ok and x["runs"] == 4 and x["median_ns"] > 0 and x["foreseen_ns"] > 0 and [k["rank"] for k in x["ranks"]] == [0, 1, 2, 3]
    ok = ok and all(0 < k["foreseen_ns"] <= x["foreseen_ns"] + 1 and k["waited_ns"] >= 0 for k in x["ranks"])
ok or sys.exit(f"FAILED: {r}")
END
[ "$(find "$work/files" -name 'weft-plan-*.plan' | wc -l)" = 3 ] || complain "the plans of three execs are not there"

# Windows and exchanges: every put, notify, wait, round and message, on threads, processes, and between two played hosts, where each
# operation of a window is a message, too. A wait is ended by one notify, unless two came before the rank looked.
calls() # RANKS TEXT...: the files, and what weft trace counts in them
{
    local ranks=$1
    check "$@"
    "$WEFT_BIN" trace "$work/files" --out "$work/all.json" --json >"$work/json" || complain "weft trace"
    python3 - "$work/json" "$ranks" <<'END' || failed=1
import json, sys
r, n, turns = json.load(open(sys.argv[1])), int(sys.argv[2]), 4
w, x = r["windows"], r["exchanges"]
ok = len(w) == len(x) == 1 and not r["execs"] and r["messages_with_one_end"] == 0
ok = ok and (w[0]["puts"], w[0]["bytes"], w[0]["notifies"], w[0]["waits"], w[0]["barriers"]) == (2 * n * turns, 1040 * n * turns, n * turns, n * turns, n * turns)
ok = ok and (x[0]["rounds"], x[0]["messages"], x[0]["bytes"]) == (turns, 2 * n * (n - 1) * turns, 100024 * n * (n - 1) * turns) and x[0]["median_ns"] > 0
ok = ok and 0 < r["signals"] <= n * turns and r["messages"] == x[0]["messages"] + w[0]["between_hosts"]
ok = ok and all(s.get("for") in (None, *range(n)) and s["for"] != s["rank"] for s in r["waits"] if "window" in s or "exchange" in s)
ok or sys.exit(f"FAILED: {r}")
END
}
fresh
WEFT_TRACE=$work/files "$program" 4 3 calls || complain "windows and exchanges of three threads"
calls 3 "^3 files, 48 arrows, [1-9][0-9]* signals, dropped 0" "barrier 12," "notify 12, put 12, put_add 12, receive 48, round 12, send 48"
merged 3 "arrows, [1-9][0-9]* signals, dropped 0"
fresh
WEFT_TRACE=$work/files "$WEFT_BIN" run -n 4 "$program" 4 0 calls || complain "windows and exchanges of four ranks"
calls 4 "^4 files, 96 arrows, [1-9][0-9]* signals, dropped 0"
fresh
mkdir "$work/calls"
for r in 0 1 2; do
    env WEFT_RANK=$r WEFT_SIZE=3 WEFT_URL="auto:calls-$$" WEFT_WIRE=tcp WEFT_AT="file:$work/calls" WEFT_HOST="h$((r > 0))" \
        WEFT_TRACE="$work/files" "$program" 4 0 calls &
    ranks[r]=$!
done
for r in 0 1 2; do wait "${ranks[r]}" || complain "rank $r of windows and exchanges of two hosts"; done
calls 3 "^3 files, 72 arrows, [1-9][0-9]* signals, dropped 0"

# A rank that comes late is the one that the others wait for. On a busy machine these may come later still: then once more, and longer.
for late in 100 300 1000 3000 9000; do
    fresh
    WEFT_TEST_LATE=$late WEFT_TRACE=$work/files "$WEFT_BIN" run -n 3 "$program" 1 || complain "a late rank"
    "$WEFT_BIN" trace "$work/files" >"$work/out" || complain "weft trace: $(cat "$work/out")"
    found="(ms|s) from .* on: rank [02] waited for rank 1 to (send|take) message 1, .* of tensor 'large', by .*; run 1 of exec"
    grep -qE "$found" "$work/out" && break
done
grep -qE "$found" "$work/out" || complain "nobody waited for the late rank: $(cat "$work/out")"

# The newest events stay; each file is within its ring and says how many are not there.
fresh
WEFT_TRACE=$work/files WEFT_TRACE_EVENTS=32 "$WEFT_BIN" run -n 2 "$program" 20 || complain "a small ring"
check 2 "dropped [1-9]"
"$WEFT_BIN" trace "$work/files" --out "$work/all.json" >"$work/out" || complain "weft trace of a small ring: $(cat "$work/out")"
merged 2 "dropped [1-9]"
grep -q "of which [1-9][0-9]* were dropped" "$work/out" || complain "what was dropped is not said: $(cat "$work/out")"
WEFT_TRACE=$work/one.json "$WEFT_BIN" run -n 1 "$program" 1 || complain "one rank and a file"
python3 "$WEFT_SOURCE_DIR/tests/engine/trace_check.py" "$work/one.json" >"$work/out" || complain "$(cat "$work/out")"

# What cannot be written is refused by name, and nothing is written where nobody asked for it.
WEFT_TRACE=$work/none.json "$program" 1 2 >"$work/out" 2>&1 && complain "one file for two ranks"
grep -q "WEFT_TRACE=.*the comm has 2 ranks" "$work/out" || complain "the reason is missing: $(cat "$work/out")"
WEFT_TRACE=$work/none/ "$program" 1 1 >"$work/out" 2>&1 && complain "a folder that is not there"
WEFT_TRACE=$work/files WEFT_TRACE_EVENTS=x "$program" 1 1 >"$work/out" 2>&1 && complain "WEFT_TRACE_EVENTS=x"
fresh
(cd "$work/files" && "$program" 1 2) && [ -z "$(ls -A "$work/files")" ] || complain "files without WEFT_TRACE"

# Two played hosts, the second in a time namespace whose clock is 1,000 s ahead, where the system permits that.
ahead=(unshare --time --monotonic 1000)
"${ahead[@]}" true 2>/dev/null || ahead=()
fresh
mkdir "$work/meet"
for r in 0 1 2; do
    [ $r = 0 ] && clock=() || clock=("${ahead[@]}")
    env WEFT_RANK=$r WEFT_SIZE=3 WEFT_URL="auto:trace-$$" WEFT_WIRE=tcp WEFT_AT="file:$work/meet" WEFT_HOST="h$((r > 0))" \
        WEFT_TRACE="$work/files" "${clock[@]}" "$program" 3 &
    ranks[r]=$!
done
for r in 0 1 2; do wait "${ranks[r]}" || complain "rank $r of two hosts"; done
python3 - ${#ahead[@]} "$work"/files/*.json <<'END' || failed=1
import json, sys
apart, files = (-10**12 if int(sys.argv[1]) else 0), [json.load(open(p))["otherData"] for p in sys.argv[2:]]
asked = {o["rank"]: o["clocks"] for o in files}  # three binds; one in which rank 0 got no core for a second has no answer
fits = all(c["error_ns"] > 0 and abs(c["offset_ns"] - apart) <= c["error_ns"] for c in asked[1])
if asked[0] or asked[2] or not 1 <= len(asked[1]) <= 3 or not fits or {o["clock_of"] for o in files} != {"h0"}:
    sys.exit(f"FAILED: clocks that are {apart} ns apart: {files}")
END
"$WEFT_BIN" trace "$work/files" --out "$work/all.json" >"$work/out" || complain "weft trace of two hosts: $(cat "$work/out")"
grep -q "^clock: that of h1 is .* that of h0, give or take " "$work/out" || complain "the clock is not said: $(cat "$work/out")"
python3 - "$work/all.json" <<'END' || failed=1
import json, sys
t = json.load(open(sys.argv[1]))
error, begins = t["otherData"]["clocks"][0]["error_ns"] / 1000, {e["id"]: e["ts"] for e in t["traceEvents"] if e["ph"] == "s"}
worst = max([0] + [begins[e["id"]] - e["ts"] for e in t["traceEvents"] if e["ph"] == "f"])
whole = max(e["ts"] for e in t["traceEvents"] if "ts" in e)
if not begins or worst > 2 * error or whole > 500e6:  # half of the 1,000 s
    sys.exit(f"FAILED: arrows go back by {worst} us with an error of {error} us; the trace is {whole} us long")
END

# Numbers that nobody could add are refused, too.
for change in 's/"ts": [0-9.]*/"ts": 2305843009213693950.1/' 's/"tid": 0/"tid": 9223372036854775807/' 's/"recorded": [0-9]*/"recorded": 9223372036854775807/'; do
    sed "$change" "$work/one.json" >"$work/huge.json"
    "$WEFT_BIN" trace "$work/huge.json" --out "$work/all.json" >"$work/out" 2>&1
    [ $? = 2 ] && grep -q "is missing or makes no sense" "$work/out" || complain "$change: $(cat "$work/out")"
done

# What is no trace of one job is refused by name.
refuse() { "$WEFT_BIN" trace "${@:2}" >"$work/out" 2>&1; [ $? = 2 ] && grep -q -- "$1" "$work/out" || complain "weft trace ${*:2}: $(cat "$work/out")"; }
refuse "has no files weft-trace" "$work/meet"
refuse "is not JSON" "$program"
refuse "no trace of one of weft's ranks" "$work/json"
refuse "No such file" "$work/nowhere.json"
refuse "give the files of one job" "$work/one.json" "$work"/files/weft-trace-*-0-*.json
refuse "are both of rank 0" "$work/one.json" "$work/one.json"
refuse "is for --sim" --machine plain "$work/one.json"
exit $failed
