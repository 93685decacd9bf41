#!/usr/bin/env bash
# Metrics of comms: bytes and messages by way and host are what the execs say of their plans, the callback has what the text has, the file is
# OpenMetrics, and weft run --metrics shows those of all ranks while they run.
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD_DIR:?}" "${WEFT_SOURCE_DIR:?}"
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null; wait; rm -rf "$work"' EXIT
program=$WEFT_BUILD_DIR/tests/trace_ranks check=$WEFT_SOURCE_DIR/tests/comm/metrics_check.py
failed=0
complain() { echo "FAILED: $1"; failed=1; }
fresh() { rm -rf "$work/told" "$work/files" && mkdir "$work/told" "$work/files"; }

fresh
WEFT_TEST_METRICS=$work/told "$program" 3 3 || complain "three threads"
python3 "$check" "$work/told" 3 3 no || failed=1
fresh
WEFT_TEST_METRICS=$work/told WEFT_METRICS=$work/files "$WEFT_BIN" run -n 4 "$program" 5 || complain "four processes"
python3 "$check" "$work/told" 4 5 yes || failed=1
for file in "$work"/files/weft-metrics-*.prom; do python3 "$check" --text "$file" 15 || failed=1; done
[ "$(find "$work/files" -type f | wc -l)" = 4 ] || complain "not one file for each rank: $(ls "$work/files")"
fresh
WEFT_TEST_METRICS=$work/told "$WEFT_BIN" run -n 4 --hosts 2 "$program" 2 2>"$work/err"
case $?:$(cat "$work/err") in
    0:*) python3 "$check" "$work/told" 4 2 no 2 || failed=1 ;;
    *"hosts cannot be played here"*) ;;
    *) complain "two hosts: $(cat "$work/err")" ;;
esac

# The port, while the ranks stay.
fresh
WEFT_TEST_METRICS=$work/told WEFT_TEST_STAYS=1 "$WEFT_BIN" run -n 3 --metrics 0 "$program" 4 2>"$work/err" &
job=$!
python3 - "$work" <<'END' || complain "the port of weft run"
import http.client, re, sys, time, urllib.error, urllib.request
work, until, text = sys.argv[1], time.monotonic() + 100, ""


def ask(path):
    """The server gives a client two seconds, which may be too few on a busy machine: then once more."""
    while True:
        try:
            return urllib.request.urlopen(at[0] + path, timeout=20).read().decode()
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


while time.monotonic() < until:
    at = re.search(r"http://127.0.0.1:\d+", open(work + "/err").read())
    if at:
        text = ask("/metrics")
        if sum(float(v) for v in re.findall(r"weft_runs_total\{.*\} (\S+)", text)) == 36:
            break
    time.sleep(0.02)
else:
    sys.exit("FAILED: " + text + open(work + "/err").read())
open(work + "/all", "w").write(text)
try:
    ask("/other")
    sys.exit("FAILED: another path is answered")
except urllib.error.HTTPError as e:
    e.code == 404 or sys.exit(f"FAILED: {e}")
END
touch "$work/told/end"
wait "$job" || complain "weft run --metrics: $(cat "$work/err")"
job=
python3 "$check" --text "$work/all" 36 || failed=1

# What cannot be written is refused by name.
WEFT_METRICS=$work/one.prom "$program" 1 2 >"$work/out" 2>&1 && complain "one file for two ranks"
grep -q "WEFT_METRICS=.*the comm has 2 ranks" "$work/out" || complain "the reason is missing: $(cat "$work/out")"
WEFT_METRICS=$work/one.prom "$WEFT_BIN" run -n 1 "$program" 2 && python3 "$check" --text "$work/one.prom" 6 || complain "one rank and a file"
WEFT_METRICS=$work/none/ "$program" 1 1 >"$work/out" 2>&1 && complain "a folder that is not there"
exit $failed
