#!/usr/bin/env bash
# The tests on a GPU (`make test-gpu`): kernels against the CPU, execs at each place, random cases on 1 to 8 ranks, deaths, the
# windows, the Python package; as plain processes and under MPS, and a share under compute-sanitizer. Says why it is left out where there is
# no GPU (exit status 77). A process that has used CUDA cannot be forked, so each place has a call of its own.
#
#   test_gpu.sh [PATTERN...]   the steps whose names match one of them; all. "*Python: frameworks" needs "Python: package",
#                              once for a build tree
#
#   GPU_SHARE    random cases of a step, percent of 1,000; 10
#   GPU_KILLS    ranks that are killed in each way of sharing the GPU: idle, in mid-run, awaited in a stream; 9
#   GPU_SANITIZE seconds for random cases under compute-sanitizer; 60
#   GPU_PYTHON   a Python with PyTorch (and CuPy, JAX); python3
#   WEFT_NCCL    the file of an NCCL of version 2.30 or later, for ranks that share the GPU by MPS; otherwise this is left out
#   WEFT_DEVICE  sim: the same on the simulated device, to try the script; and what gpu.sh reads
set -u
cd "$(dirname "$0")/.." || exit 1
. cmake/gpu.sh
only=("$@")
[ $# -gt 0 ] || only=('*')
share=${GPU_SHARE:-10}
lives=${GPU_KILLS:-9}
python=${GPU_PYTHON:-python3}

wanted()
{
    local pattern
    for pattern in "${only[@]}"; do
        # shellcheck disable=SC2053  # it is a pattern
        [[ $1 != $pattern ]] || return 0
    done
    return 1
}

# try NAME COMMAND...: a step, if it is wanted.
try() { ! wanted "$1" || step "$@"; }

# left_out NAME WHY
left_out() { ! wanted "$1" || note "$1" skip "$2"; }

# The names of a program's tests that run at places.
placed() { "$1" --list | sed -n '/these run --on/q; p'; }

kernels()
{
    local bodies=$tree/tests/gpu_bodies
    if [ ! -x "$bodies" ]; then
        left_out "kernels" "the CUDA module is not built"
        return
    fi
    try "kernels: calls" "$bodies" calls
    try "kernels: waits" "$bodies" waits
    try "kernels: random tables" "$bodies" check $((share * 100))
}

# The bus: versions put from and fetched into memory of the device.
versions()
{
    try "bus: versions" "$tree/tests/versions_device_test"
    try "bus: random layouts" env WEFT_TEST_SHARE=$((share * 30)) "$tree/tests/versions_device_test" random_pairs
    try "bus: boxes" "$tree/tests/versions_boxes_test" random_pairs
}

# cases HOW: random cases on 1 to 8 ranks, one number of ranks a step.
cases()
{
    local how=$1 kind ranks
    for kind in threads processes; do
        [ "$how" = plain ] || [ "$kind" = processes ] || continue
        for ranks in 1 2 3 4 5 6 7 8; do
            try "$how: random cases, $ranks $kind" env WEFT_TEST_RANKS=$ranks WEFT_TEST_SHARE="$share" \
                "$tree/tests/property_device_test" "random_cases_run_right_on_$kind"
        done
    done
}

# by_nccl HOW: the driver nccl.
by_nccl()
{
    local how=$1 name
    if [ -z "${WEFT_NCCL:-}" ]; then
        left_out "$how: NCCL" "WEFT_NCCL names no NCCL that takes several ranks on a GPU (2.30)"
        return
    fi
    for name in pairs_give_the_bits_of_host_memory runs_keep_the_order_of_a_stream a_rank_that_cannot_join_decides_for_all \
        an_exec_is_bound_to_other_buffers a_death_is_named_and_releases_streams; do
        try "$how: NCCL: $name" env NCCL_MULTI_RANK_GPU_ENABLE=1 "$tree/tests/nccl_test" "$name"
    done
    # Each case opens communicators, which takes most of a second: a twentieth of the others.
    try "$how: NCCL: random cases" env NCCL_MULTI_RANK_GPU_ENABLE=1 WEFT_TEST_SHARE=$((share / 20 + 1)) \
        "$tree/tests/property_device_test" random_cases_run_right_by_nccl
}

# execs HOW PLACE...: each test of the execs and of the windows at each place.
execs()
{
    local how=$1 place name program
    shift
    for program in device_test window_device_test; do
        for place; do
            for name in $(placed "$tree/tests/$program"); do
                try "$how: $program: $place: $name" "$tree/tests/$program" "$name" --on "$place"
            done
        done
    done
}

# kills HOW: ten ranks a step, so that a call that runs out of time can be gone on with.
kills()
{
    local how=$1 left=$lives n
    while [ "$left" -gt 0 ]; do
        n=$((left < 10 ? left : 10))
        try "$how: kills, the last $left" env WEFT_TEST_LIVES=$n "$tree/tests/device_test" \
            a_death_is_named_and_releases_streams_that_wait
        left=$((left - n))
    done
    try "$how: deaths in windows" "$tree/tests/window_device_test" a_death_ends_waits_and_leaves_nothing
}

# The package for GPU_PYTHON, beside the build: pip needs no network if the Python has scikit-build-core and cffi.
package()
{
    local why
    export PYTHONPATH=$tree/gpu-python${PYTHONPATH:+:$PYTHONPATH}
    why=$("$python" -c 'import numpy, torch' 2>&1 | tail -n 1)
    if [ -n "$why" ]; then
        left_out "Python: package" "$python: $why"
        return 1
    fi
    try "Python: package" "$python" -m pip install -q --no-index --no-deps --no-build-isolation --upgrade \
        --target "$tree/gpu-python" -C "build-dir=$tree/gpu-pip" -C "cmake.define.WEFT_CUDA_ARCHS=$(gpu_arch)" .
}

under_mps()
{
    if ! mps_there; then
        left_out "MPS" "there is no nvidia-cuda-mps-control, or the device is simulated"
    elif ! mps_on; then
        left_out "MPS" "nvidia-cuda-mps-control does not start: $(head -n 1 "$logs/mps")"
    else
        execs MPS shm:processes
        cases MPS
        kills MPS
        by_nccl MPS
        [ -z "$torch" ] || try "MPS: Python: frameworks" "$python" tests/python/gpu_torch.py --quick
        mps_off
    fi
}

# clean_cases PROGRAM SECONDS COMMAND...: runs parts of PROGRAM's random cases by COMMAND, four side by side, until the
# seconds are over. Some cases do not end under the sanitizer: a part that takes longer than 30 s is given up and
# counted. Half of the parts must be clean, and none may have an error.
clean_cases()
{
    local program=$1 end=$(($(date +%s) + $2)) folder k from
    folder=$(mktemp -d)
    shift 2
    for k in 0 1 2 3; do
        for ((from = k * 10000; $(date +%s) < end; from += 32)); do
            timeout -k 5 30 "$@" "$program" "$from" 32 >"$folder/$k" 2>&1
            case $? in
            0) sed -n 's/ cases, 0 laws broken$//p' "$folder/$k" >>"$folder/clean" ;;
            124 | 137) echo "$from" >>"$folder/late" ;;
            *)
                grep -q 'before first instrumented API call' "$folder/$k" && continue # no case had device memory
                mv "$folder/$k" "$folder/$k.failed"
                break
                ;;
            esac
        done &
    done
    wait
    touch "$folder/clean" "$folder/late"
    awk '{ n += $1 } END { print n + 0 " cases in " NR " parts: clean" }' "$folder/clean"
    echo "parts of 32 numbers that did not end within 30 s, from: $(tr '\n' ' ' <"$folder/late")"
    ! tail -n 40 "$folder"/*.failed 2>/dev/null && [ "$(wc -l <"$folder/clean")" -gt "$(wc -l <"$folder/late")" ]
    k=$?
    rm -rf "$folder"
    return $k
}

sanitized()
{
    local check=(compute-sanitizer --error-exitcode 9 --target-processes all)
    if [ "$WEFT_DEVICE" = sim ] || ! command -v compute-sanitizer >/dev/null; then
        left_out "compute-sanitizer" "it is not installed, or the device is simulated"
        return
    fi
    try "compute-sanitizer: kernels" "${check[@]}" "$tree/tests/gpu_bodies" check 100
    try "compute-sanitizer: random cases, 2 threads" env WEFT_TEST_RANKS=2 bash -c "$(declare -f clean_cases); clean_cases \"\$@\"" \
        cases "$tree/tests/property_device_test" "${GPU_SANITIZE:-60}" "${check[@]}"
}

need_gpu
targets=(device_test nccl_test window_device_test property_device_test versions_device_test versions_boxes_test weft_sim)
[ "$WEFT_DEVICE" = sim ] || targets+=(gpu_bodies weft_cuda)
build_gpu "${targets[@]}"
WEFT_MODULES=$(cd "$tree" && pwd)
export WEFT_MODULES
kernels
versions
execs plain threads shm:threads shm:processes
cases plain
kills plain
torch=
if package; then
    torch=yes
    try "Python: frameworks" "$python" tests/python/gpu_torch.py --quick
fi
under_mps
sanitized
summary
