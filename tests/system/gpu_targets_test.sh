#!/usr/bin/env bash
# `make test-gpu` and `make bench-gpu`: they say why where there is no GPU, their steps pass, fail, hang and are left out as the
# table says, and test-gpu runs on the simulated device.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
cd "$WEFT_SOURCE_DIR" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1"; cat "$work/out"; exit 1; }
has() { grep -qF -- "$1" "$work/out" || fail "should say: $1"; }
unset WEFT_DEVICE ASAN_OPTIONS LSAN_OPTIONS
export BUILD=$work/build

# Without a GPU: the driver is a library that is none.
mkdir "$work/driver"
echo 'int none;' | "${CC:-cc}" -shared -fPIC -x c - -o "$work/driver/libcuda.so.1" || exit 1
for target in test-gpu bench-gpu; do
    LD_LIBRARY_PATH=$work/driver make "$target" >"$work/out" 2>&1 || fail "make $target without a GPU: exit status $?"
    has "skip: no GPU can be used: libcuda.so.1 is not a CUDA driver"
    LD_LIBRARY_PATH=$work/driver bash "cmake/${target/-/_}.sh" >"$work/out" 2>&1
    [ $? -eq 77 ] || fail "$target without a GPU does not end with status 77"
done
[ ! -e "$work/build-gpu" ] || fail "something was built without a GPU"
WEFT_DEVICE=sim bash cmake/bench_gpu.sh >"$work/out" 2>&1
[ $? -eq 77 ] || fail "bench-gpu on the simulated device does not end with status 77"

# Steps.
cat >"$work/steps.sh" <<'S'
. cmake/gpu.sh
mkdir -p "$logs"
step good true
step bad sh -c 'echo because; exit 3'
step absent sh -c 'echo "skip: it is not here"; exit 77'
GPU_SECONDS=1
step slow sh -c 'echo $$ >"$0"; sleep 77 & wait' "$PIDS"
summary
S
GPU_TREE=$work/tree WEFT_DEVICE=sim PIDS=$work/pid bash "$work/steps.sh" >"$work/out" 2>&1 && fail "steps that failed are called right"
has "1 passed, 2 failed, 1 skipped"
has "because"
has "exit status 3, see $work/tree/gpu-logs/bad"
has "it is not here"
has "ended after 1 s; stacks are in $work/tree/gpu-logs/slow"
# One that nobody has reaped yet is not alive.
alive() { ps -o stat= -s "$(cat "$work/pid")" | awk '!/Z/ { n++ } END { exit !n }'; }
for _ in $(seq 100); do alive || break; sleep 0.1; done
! alive || fail "a process of a step that hung is left"
[ "$(grep -c '^== ' "$work/tree/gpu-logs/slow")" -ge 2 ] || fail "the stacks of a step that hung are not in its log"

# The simulated device, by what is built already.
if [ -x "$WEFT_BUILD_DIR/tests/device_test" ]; then
    mkdir "$work/sim"
    for f in "$WEFT_BUILD_DIR"/*.so* "$WEFT_BUILD_DIR/tests"; do ln -s "$f" "$work/sim/"; done
    for pattern in '*threads: all_forms*' 'plain: random cases, 3 *' '*death*'; do
        GPU_TREE=$work/sim GPU_BUILD=no GPU_SHARE=1 WEFT_DEVICE=sim bash cmake/test_gpu.sh "$pattern" >"$work/out" 2>&1 ||
            fail "test-gpu on the simulated device"
        has ", 0 failed, "
    done
fi

# The table.
cat >"$work/figures" <<'F'
{"row": "contiguous", "ranks": 2, "form": "threads", "bytes": 8, "us": 161.20, "copy_us": 129.00, "share": 0.800, "host_us": 6.0, "once_us": 170.0}
{"row": "rows to columns", "ranks": 2, "form": "threads", "bytes": 8, "us": 158.00, "copy_us": 129.00, "share": 0.816, "host_us": 6.0, "once_us": 170.0}
{"row": "contiguous", "ranks": 8, "form": "mps", "bytes": 8, "us": 202.00, "copy_us": 129.00, "share": 0.639, "host_us": 6.0, "once_us": 170.0}
F
bash cmake/bench_gpu.sh --table "$work/figures" >"$work/out" || fail "the table"
diff - "$work/out" <<'T' || fail "the table differs"
| | 2 threads | 8 mps |
| --- | ---: | ---: |
| contiguous | 161 (0.80) | 202 (0.64) |
| rows to columns | 158 (0.82) |  |
T
