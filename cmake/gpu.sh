# shellcheck shell=bash
# What test_gpu.sh and bench_gpu.sh share: is there a GPU, a build with the CUDA module, MPS, and steps with a time limit
# and a line in a table. Nothing here needs a network. Read by them with `.`; the current folder is the source's.
#
#   GPU_TREE     the build tree; BUILD-gpu
#   GPU_BUILD    no: the tree is built already
#   GPU_SECONDS  the limit of one step; 300
#   GPU_BUDGET   seconds for all steps together: those for which no time is left are noted as "later"; no limit
#   GPU_RESUME   yes: steps that have passed in an earlier call with the same sources are not run again
tree=${GPU_TREE:-${BUILD:-build}-gpu}
logs=$tree/gpu-logs
jobs=${JOBS:-$(nproc)}
mps_folder=
names=() results=() notes=()
passed=$tree/gpu-passed
began_all=$(date +%s)

leave_out()
{
    echo "skip: $1"
    exit 77
}

# Why no GPU can be used; nothing if one can. A program asks the driver, as the module does.
no_gpu()
{
    local probe
    probe=$(mktemp -d)
    cat >"$probe/probe.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *l = dlopen("libcuda.so.1", RTLD_NOW);
    int n = 0, code;
    if (!l)
        return puts("there is no CUDA driver (libcuda.so.1 is not found)"), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(l, "cuInit");
    int (*count)(int *) = (int (*)(int *))dlsym(l, "cuDeviceGetCount");
    if (!init || !count)
        return puts("libcuda.so.1 is not a CUDA driver"), 1;
    if ((code = init(0)))
        return printf("the CUDA driver does not start: error %d\n", code), 1;
    if (count(&n) || !n)
        return puts("the CUDA driver finds no device"), 1;
    return 0;
}
C
    if ! "${CC:-cc}" -o "$probe/probe" "$probe/probe.c" -ldl 2>"$probe/text"; then
        echo "there is no C compiler: $(head -n 1 "$probe/text")"
    else
        "$probe/probe"
    fi
    rm -rf "$probe"
}

# The architecture of GPU 0 as nvcc names it.
gpu_arch()
{
    local text
    text=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
    echo "${text:-90}"
}

# Leaves out everything, with the reason, where it cannot be run. WEFT_DEVICE=sim: the same on the simulated device, to
# try the scripts.
need_gpu()
{
    local why
    [ "${WEFT_DEVICE:-cuda}" != sim ] || return 0
    why=$(no_gpu)
    [ -z "$why" ] || leave_out "no GPU can be used: $why"
    command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
        leave_out "there is no nvcc, so the CUDA module cannot be built"
    export WEFT_DEVICE=cuda
}

# The sources, so that steps which passed with others are run again.
sources() { find src include tests cmake -type f | LC_ALL=C sort | xargs cat | cksum; }

# Forgets what has passed, unless it is to be gone on with.
begin_steps()
{
    local now
    now=$(sources)
    [ "${GPU_RESUME:-no}" = yes ] && [ "$(head -n 1 "$passed" 2>/dev/null)" = "$now" ] || echo "$now" >"$passed"
}

# build_gpu TARGET...
build_gpu()
{
    local options=(-DWEFT_TESTS=ON -DWEFT_DEVELOPER=ON)
    mkdir -p "$logs"
    rm -f "$logs"/*
    begin_steps
    [ "${GPU_BUILD:-yes}" != no ] || return 0
    [ "$WEFT_DEVICE" = sim ] || options+=(-DWEFT_CUDA=ON "-DWEFT_CUDA_ARCHS=$(gpu_arch)")
    echo "gpu: building $* in $tree"
    # shellcheck disable=SC2086  # CMAKE_ARGS is a list
    if ! { cmake -S . -B "$tree" "${options[@]}" ${CMAKE_ARGS:-} &&
        MAKEFLAGS=--no-print-directory cmake --build "$tree" --parallel "$jobs" --target "$@"; } >"$logs/build" 2>&1; then
        grep -vE '^\[ *[0-9]+%\]|^-- ' "$logs/build" | head -n 40
        echo "gpu: the build failed, see $logs/build"
        exit 1
    fi
}

# ---- MPS ----

mps_there() { [ "$WEFT_DEVICE" = cuda ] && command -v nvidia-cuda-mps-control >/dev/null; }

# A daemon of our own, which no other user's processes see. False: it does not start.
mps_on()
{
    mps_folder=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps_folder/pipe CUDA_MPS_LOG_DIRECTORY=$mps_folder/log
    mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d >"$logs/mps" 2>&1 && return
    mps_off
    return 1
}

mps_off()
{
    [ -n "$mps_folder" ] || return 0
    echo quit -t 5 | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
    cp "$mps_folder"/log/*.log "$logs" 2>/dev/null
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    rm -rf "$mps_folder"
    mps_folder=
}
trap mps_off EXIT

# ---- steps ----

note() { names+=("$1") results+=("$2") notes+=("$3"); }

# The processes of a session, and what their threads do.
stacks()
{
    local pid
    for pid in $(ps -o pid= -s "$1"); do
        echo "== $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        if command -v gdb >/dev/null; then
            timeout 30 gdb -p "$pid" -batch -ex 'thread apply all backtrace 12' 2>/dev/null
        else
            cat /proc/"$pid"/task/*/wchan 2>/dev/null
        fi
    done
}

# Seconds that a step may take: its own limit, and what is left of the budget.
limit()
{
    local most=${GPU_SECONDS:-300} left
    left=$((${GPU_BUDGET:-1000000} - $(date +%s) + began_all))
    echo $((left < most ? left : most))
}

# wait_for PID LOG SECONDS: its exit status; 124 when it took longer: its stacks are in the log then.
wait_for()
{
    local left=$(($3 * 5))
    while kill -0 "$1" 2>/dev/null; do
        if [ $((left--)) -le 0 ]; then
            stacks "$1" >>"$2" 2>&1
            kill -KILL -- "-$1" 2>/dev/null
            wait "$1" 2>/dev/null
            return 124
        fi
        sleep 0.2
    done
    wait "$1"
}

# step NAME COMMAND...: runs it in a session of its own, so that all its processes are ended with it.
step()
{
    local name=$1 log=$logs/${1//[^A-Za-z0-9]/-} code began seconds
    shift
    if grep -qsxF -- "$name" "$passed"; then
        note "$name" ok "in an earlier call"
        return 0
    fi
    seconds=$(limit)
    if [ "$seconds" -lt 5 ] && [ "$seconds" -lt "${GPU_SECONDS:-300}" ]; then
        note "$name" later "no time is left"
        return 1
    fi
    began=$(date +%s%N)
    echo "+ $*" >"$log"
    setsid "$@" >>"$log" 2>&1 &
    wait_for $! "$log" "$seconds"
    code=$?
    began=$((($(date +%s%N) - began) / 100000000))
    case $code in
    0)
        note "$name" ok "$((began / 10)).$((began % 10)) s"
        echo "$name" >>"$passed"
        ;;
    77) note "$name" skip "$(sed -n 's/^skip: //p' "$log" | head -n 1)" ;;
    124)
        if [ "$seconds" -lt "${GPU_SECONDS:-300}" ]; then
            note "$name" later "the time ran out after $seconds s"
            code=77
        else
            note "$name" HUNG "ended after $seconds s; stacks are in $log"
        fi
        ;;
    *) note "$name" FAILED "exit status $code, see $log" ;;
    esac
    [ "$code" -eq 0 ] || [ "$code" -eq 77 ] || tail -n 15 "$log"
    printf '%-62s %-6s %s\n' "$name" "${results[-1]}" "${notes[-1]}"
    return "$code"
}

# How many steps of each kind have passed: a kind is a name without its number of ranks, or up to its last ": " or ", ".
kinds()
{
    local i
    for i in "${!names[@]}"; do
        printf '%s\t%s\n' "${results[i]}" "${names[i]}"
    done | awk -F '\t' '
        { kind = $2; if (!sub(/, [0-9]+ /, ", ", kind)) sub(/(: |, )[^:,]*$/, "", kind) }
        !(kind in all) { order[++n] = kind }
        { all[kind]++; cell[kind, $1]++ }
        END {
            print "| steps | passed | failed | later | skipped |"; print "| --- | ---: | ---: | ---: | ---: |"
            for (i = 1; i <= n; i++) {
                k = order[i]
                printf "| %s | %d of %d | %d | %d | %d |\n", k, cell[k, "ok"], all[k], cell[k, "FAILED"] + cell[k, "HUNG"], cell[k, "later"], cell[k, "skip"]
            }
        }'
}

# The table of all steps; false if one has failed or is left for later, or if none has run.
summary()
{
    local i ok=0 failed=0 skipped=0 later=0
    echo
    for i in "${!names[@]}"; do
        printf '%-62s %-6s %s\n' "${names[i]}" "${results[i]}" "${notes[i]}"
        case ${results[i]} in
        ok) ok=$((ok + 1)) ;;
        skip) skipped=$((skipped + 1)) ;;
        later) later=$((later + 1)) ;;
        *) failed=$((failed + 1)) ;;
        esac
    done
    echo
    kinds
    echo "$ok passed, $failed failed, $skipped skipped, $later left for a later call"
    [ "$failed" -eq 0 ] && [ "$later" -eq 0 ] && [ "$ok" -gt 0 ]
}
