#!/usr/bin/env bash
# A profiler that is attached by NVTX_INJECTION64_PATH sees a range for each run, bind, barrier and wait of windows and exchanges; each
# range ends. Without the variable, and with a library that is not there, nothing happens.
set -u
: "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$WEFT_BUILD_DIR/tests/trace_ranks
tool=$WEFT_BUILD_DIR/tests/nvtx_tool.so
failed=0
complain() { echo "FAILED: $1"; failed=1; }

NVTX_TOOL_OUT=$work/runs NVTX_INJECTION64_PATH=$tool "$program" 3 3 || complain "runs"
NVTX_TOOL_OUT=$work/calls NVTX_INJECTION64_PATH=$tool "$program" 3 3 calls || complain "windows and exchanges"
python3 - "$work/runs" "$work/calls" <<'END' || failed=1
import collections, sys
for path in sys.argv[1:]:
    open_, pushed, started, deep = {}, collections.Counter(), collections.Counter(), collections.Counter()
    for line in open(path):
        what, thread, number, text = line.rstrip("\n").split(" ", 3)
        if what == "push":
            pushed[text] += 1
            deep[thread] += 1
        elif what == "pop":
            deep[thread] -= 1
            if deep[thread] < 0:
                sys.exit("FAILED: a pop without its push")
        elif what == "start":
            started[text] += 1
            open_[number] = text
        elif what != "end" or not open_.pop(number, None):
            sys.exit(f"FAILED: {line}")
    if open_ or any(deep.values()):
        sys.exit(f"FAILED: {path}: ranges that do not end: {open_} {deep}")
    if path.endswith("runs"):  # three plans, three runs, three threads
        ok = sum(started.values()) == 27 and all(t.startswith("weft run: ") and " by " in t for t in started)
        ok = ok and pushed["weft_bind"] >= 9 and pushed["weft_comm_barrier"] == 3
    else:
        ok = not started and pushed["weft_window_wait"] == 9 and pushed["weft_window_barrier"] == 9 and pushed["weft_exchange_wait"] == 9
    ok or sys.exit(f"FAILED: {path}: {started} {pushed}")
END
NVTX_TOOL_OUT=$work/none "$program" 1 2 || complain "without the variable"
[ ! -e "$work/none" ] || complain "the profiler was loaded without the variable"
NVTX_INJECTION64_PATH=$work/absent.so "$program" 1 2 || complain "a library that is not there"
NVTX_INJECTION64_PATH=$tool "$program" 1 2 || complain "a profiler that does not attach"
exit $failed
