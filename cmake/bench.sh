#!/usr/bin/env bash
# Measures weft beside its peers and writes what was found: bench.sh FOLDER gives FOLDER/benchmarks.md and the pictures it
# shows. BENCH_ARGS goes to each benchmark of moves.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-docs}
weft=${BUILD:-build}/weft
mkdir -p "$folder/pictures"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

steal() { awk '/^cpu / { print $9 }' /proc/stat; }
first_line() { "$@" 2>/dev/null | head -n 1; }

# The part of /proc/cpuinfo that says what the cores are.
cpu()
{
    local name
    name=$(lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)
    echo "$(nproc) x ${name:-unknown} ($(uname -m))"
}

# run NAME ARGS...: a table in $work/NAME, and a picture where there is one.
run()
{
    local name=$1
    shift
    echo "bench: $name" >&2
    # shellcheck disable=SC2086  # BENCH_ARGS is a list
    "$weft" bench "$@" ${BENCH_ARGS:-} | tee "$work/$name"
}

stolen=$(steal)
run memory memory
run latency latency --peers
run coll coll --peers --plot "$folder/pictures/coll.svg"
run private coll --peers --private
run reshard reshard --peers --plot "$folder/pictures/reshard.svg"
"$weft" bench lower | tee "$work/lower"
stolen=$(($(steal) - stolen))

table() { printf '```\n'; cat "$work/$1"; printf '```\n'; }

cat >"$folder/benchmarks.md" <<END
# Benchmarks

Written by \`make bench\`; do not edit. All of it was measured in one go on this machine:

| | |
| --- | --- |
| machine | $(cpu), $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo) |
| system | $(. /etc/os-release 2>/dev/null; echo "${PRETTY_NAME:-}"), Linux $(uname -r) |
| weft | $("$weft" --version), $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(first_line "${CC:-cc}" --version) |
| Open MPI | $(first_line mpirun.openmpi --version || true) |
| MPICH | $(mpiexec.hydra --version 2>/dev/null | sed -n 's/^ *Version: *//p' || true) |
| time stolen by others | $stolen ticks |

## How it was measured

- Ranks are processes. weft, the floor and each setting of each MPI library stand ready, asleep, and take turns in rounds on
  the same work; a figure is the median over the rounds. No more ranks than cores: each is bound to a core of its own.
- The *floor* is the same work written by hand on shared mappings, without a library (\`bench/floor.c\`). It waits by spinning
  where there are cores enough, else by yielding, and by yielding and then sleeping: the better one counts.
- *time* is that of calls back to back, slowest rank. Broadcasts overlap when called so; for them it is not less than that
  of a single call. A reshard is a single call, from the first rank's start to the last one's end. *median* is that of single
  calls. A barrier stands before each timed stretch and outside it.
- *best peer* is the fastest of all settings: Open MPI with and without the kernel's cross-memory copy, over UCX, with its
  shared-memory collectives, spinning and yielding; MPICH. A peer's reduce-scatter is never worse than its allreduce, its
  halo is the better of plain and persistent requests, its reshard the better of \`MPI_Alltoallw\` and packing with
  \`MPI_Alltoallv\`. *ratio* is its time over weft's: above 1 weft is faster. A setting that is four times slower than the best
  one at first sight is not measured further.
- *of floor* is the floor's time over weft's; *of memcpy* is half of the bytes read and written over time, against memcpy by
  as many workers as there are cores or ranks, on buffers of the same size.
- Every contender's result is checked once for each line; *wrong* counts weft's wrong elements.
- Sizes are per rank: what each gives (broadcast and allreduce: the buffer; halo: one face; all_to_all: all that it sends).

## Collectives, window memory

$(table coll)

![time by size](pictures/coll.svg)

## Collectives, private memory

The floor copies its inputs into windows first.

$(table private)

## Reshard

$(table reshard)

![speed of each case](pictures/reshard.svg)

## Latency

$(table latency)

## Memory

$(table memory)

## Lowering

$(table lower)
END
echo "bench: wrote $folder/benchmarks.md" >&2
