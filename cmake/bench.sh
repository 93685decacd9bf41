#!/usr/bin/env bash
# Measures weft beside its peers and writes what was found.
#   bench.sh              measures; bench/results/MACHINE.json, docs/pictures/MACHINE-*.svg, then the document
#   bench.sh --document   docs/benchmarks.md alone, of the results that are there: this machine's first
# MACHINE is the architecture and the number of cores, so that results of several machines stand side by side: copy the
# other's JSON and pictures here. BENCH_ARGS goes to each benchmark of moves; BENCH_ROOT is where bench/ and docs/ are written.
set -eu
cd "$(dirname "$0")/.."
weft=${BUILD:-build}/weft
root=${BENCH_ROOT:-.}
cores=$(nproc)
machine=$(uname -m)-$cores
results=$root/bench/results
pictures=$root/docs/pictures
mkdir -p "$results" "$pictures"

first_line() { "$@" 2>/dev/null | head -n 1; }
steal() { awk '/^cpu / { print $9 }' /proc/stat; }

document()
{
    local others=() f
    for f in "$results"/*.json; do
        [[ $f != "$results"/ablation-* ]] || continue # bench/ablation.py
        [ "$f" = "$results/$machine.json" ] || [ ! -f "$f" ] || others+=("$f")
    done
    [ ! -f "$results/$machine.json" ] || others=("$results/$machine.json" "${others[@]}")
    [ ${#others[@]} -gt 0 ] || { echo "bench: there are no results yet" >&2; exit 1; }
    python3 cmake/benchmarks.py document "$root/docs/benchmarks.md" "${others[@]}"
    echo "bench: wrote $root/docs/benchmarks.md" >&2
}

if [ "${1:-}" = --document ]; then
    document
    exit
fi
work=$(mktemp -d)
complete=
trap '[ -n "$complete" ] && rm -rf "$work" || echo "bench: not complete: results and document are as they were; figures so far are in $work" >&2' EXIT
list=()

# run NAME ARGS...: shows the table, keeps the figures.
run()
{
    local name=$1
    shift
    echo "bench: $name" >&2
    # shellcheck disable=SC2086  # BENCH_ARGS is a list
    "$weft" bench "$@" --save "$work/$name.json" ${BENCH_ARGS:-}
    list+=("$name=$work/$name.json")
}

# The ranks that are measured: up to four on a core, or up to one on each.
ranks=2,4,8 reshards=2,4,8
[ "$cores" -lt 16 ] || ranks=2,8,16 reshards=2,4,8,16
stolen=$(steal)
began=$(date +%s)
run coll coll --peers -n "$ranks" --plot "$pictures/$machine-coll.svg"
run private coll --peers --private -n "$ranks"
run reshard reshard --peers -n "$reshards" --plot "$pictures/$machine-reshard.svg"
run halo halo --peers -n "$ranks" --plot "$pictures/$machine-halo.svg"
run many many --peers -n "$ranks"
run latency latency --peers
run memory memory
echo "bench: overlap" >&2
"$weft" bench overlap --json >"$work/overlap.json"
list+=("overlap=$work/overlap.json")
echo "bench: pairs" >&2
"$weft" bench pairs --pairs 60 --json >"$work/pairs.json"
"$weft" bench pairs --pairs 60 --threads --private --json >"$work/pairs_threads.json"
list+=("pairs=$work/pairs.json" "pairs_threads=$work/pairs_threads.json")
if "$weft" run -n 2 --hosts 2 -- true 2>/dev/null; then
    echo "bench: hosts" >&2
    "$weft" bench hosts --peers --save "$work/hosts.json"
    list+=("hosts=$work/hosts.json")
fi
echo "bench: lower" >&2
"$weft" bench lower --json >"$work/lower.json"
list+=("lower=$work/lower.json")

# shellcheck source=/dev/null
system=$(. /etc/os-release 2>/dev/null; echo "${PRETTY_NAME:-}")
kernel="Linux $(uname -r | sed 's/[-+].*//')"
cpu=$(lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)
python3 - "$work/machine.json" "$(uname -m)" "$cores" "${cpu:-unknown}" \
    "$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)" \
    "$system, $kernel" \
    "$("$weft" --version), $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
    "$(first_line "$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "${BUILD:-build}/CMakeCache.txt")" --version)" \
    "$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --version 2>/dev/null |
        sed -n 's/^mpirun[^)]*) *//p')" \
    "$(mpiexec.hydra --version 2>/dev/null | sed -n 's/^ *Version: *//p')" \
    "$(($(date +%s) - began)) s" "$(($(steal) - stolen)) ticks" <<'END'
import json, sys
names = ["arch", "cores", "cpu", "memory", "system", "weft", "compiler", "Open MPI", "MPICH", "measured in", "time stolen meanwhile"]
v = dict(zip(names, sys.argv[2:]))
title = {"aarch64": "AArch64", "x86_64": "x86-64"}.get(v["arch"], v["arch"]) + f", {v.pop('cores')} cores"
json.dump({"title": title} | v, open(sys.argv[1], "w"))
END
python3 cmake/benchmarks.py collect "$results/$machine.json" "machine=$work/machine.json" "${list[@]}"
document
complete=yes
