#!/usr/bin/env bash
# Measures runs on a GPU beside the driver's own copy (`make bench-gpu`): 2, 4 and 8 ranks that are threads, plain processes, and
# processes under MPS. Says why it is left out where there is no GPU (exit status 77). GPU_ARGS goes to each call of bench/gpu.
#
#   bench_gpu.sh                measures; writes one JSON object a line to BUILD-gpu/gpu-bench.json, and prints the table
#   bench_gpu.sh --table FILE   prints the table of such a file
set -u
cd "$(dirname "$0")/.." || exit 1

# Microseconds of a run, and in brackets the share of the driver's copy: a row for each pair of layouts, a column for each
# kind and number of ranks, in the order in which they were measured.
table()
{
    awk '
        function text(name,  s) {
            s = $0
            if (!sub(".*\"" name "\": \"?", "", s)) return ""
            sub(/[",}].*/, "", s)
            return s
        }
        /^\{/ {
            row = $0
            sub(/.*"row": "/, "", row); sub(/".*/, "", row)
            column = text("ranks") " " text("form")
            if (!(row in seen)) { seen[row] = 1; rows[++r] = row }
            if (!(column in met)) { met[column] = 1; columns[++c] = column }
            cell[row, column] = sprintf("%.0f (%.2f)", text("us"), text("share"))
        }
        END {
            line = "| |"; rule = "| --- |"
            for (i = 1; i <= c; i++) { line = line " " columns[i] " |"; rule = rule " ---: |" }
            print line; print rule
            for (k = 1; k <= r; k++) {
                line = "| " rows[k] " |"
                for (i = 1; i <= c; i++) line = line " " cell[rows[k], columns[i]] " |"
                print line
            }
        }
    ' "$1"
}

if [ "${1:-}" = --table ]; then
    table "${2:?a file}"
    exit
fi
. cmake/gpu.sh
[ "${WEFT_DEVICE:-cuda}" != sim ] || leave_out "the simulated device says nothing about speed"
need_gpu
build_gpu bench_gpu weft_cuda
WEFT_MODULES=$(cd "$tree" && pwd)
export WEFT_MODULES
results_file=$tree/gpu-bench.json
: >"$results_file"

# measure FORM RANKS OPTIONS...
measure()
{
    local form=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086  # GPU_ARGS is a list
    step "$form, $ranks ranks" "$tree/bench/gpu" --json --ranks "$ranks" "$@" ${GPU_ARGS:-}
    sed -n "/^{/s/\"form\": \"[a-z]*\"/\"form\": \"$form\"/p" "$logs/$form--$ranks-ranks" >>"$results_file"
}

all() { local ranks; for ranks in 2 4 8; do measure "$1" "$ranks" "${@:2}"; done; }

all threads
all processes --processes
if ! mps_there; then
    note MPS skip "there is no nvidia-cuda-mps-control"
elif ! mps_on; then
    note MPS skip "nvidia-cuda-mps-control does not start: $(head -n 1 "$logs/mps")"
else
    all mps --processes
    mps_off
fi
summary
code=$?
echo
table "$results_file"
echo "the figures are in $results_file"
exit "$code"
