#!/usr/bin/env bash
# Comms on several hosts: all cases and random pairs on ucx:, on auto: over 2 and 3 hosts of 1 to 3 ranks each (network
# namespaces, which weft run makes and removes), and on mpi: under Open MPI and MPICH. What is not there or not permitted is
# said and left out.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}"
dir=$(dirname "$WEFT_BIN")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
share=${WEFT_TEST_SHARE:-100}
pairs=2000
[ "$share" != full ] && pairs=$((2 * share))
[ "$pairs" -lt 20 ] && pairs=20
failed=0
grep -hv '^bench' "$WEFT_SOURCE_DIR"/tests/cases/*.txt >"$work/cases.txt"

# check RANKS URL LAUNCHER...: cases where there are ranks enough for all of them, and pairs of that many ranks
check()
{
    local ranks=$1 url=$2 file files=("$work/pairs.txt") count
    shift 2
    "$dir/tests/random_pairs" "$pairs" "$ranks" "$ranks" >"$work/pairs.txt"
    [ "$ranks" -ge 16 ] && files+=("$work/cases.txt")
    for file in "${files[@]}"; do
        count=$(grep -c '^[^#]*->' "$file")
        if ! timeout 300 "$@" "$WEFT_BIN" check --cases "$file" --on "$url" >"$work/out" 2>"$work/err" ||
            [ "$(tail -n 1 "$work/out")" != "$count passed, 0 failed" ]; then
            echo "FAILED: $* weft check --cases $(basename "$file") --on $url"
            grep -A 1 FAILED "$work/out" | head
            head "$work/err"
            failed=1
        fi
        echo "$url, $* : $count of $(basename "$file")"
    done
}

modules=$("$WEFT_BIN" info | sed -n 's/^modules *//p')
echo "modules: $modules"
case " $modules " in
*" ucx: "*)
    check 5 ucx: "$WEFT_BIN" run -n 5 --on ucx: --
    check 16 ucx: "$WEFT_BIN" run -n 16 --on ucx: --
    if "$WEFT_BIN" run -n 2 --hosts 2 -- true 2>"$work/err"; then
        for ranks in 2 4 6; do check $ranks auto: "$WEFT_BIN" run -n $ranks --hosts 2 --; done
        for ranks in 3 6 9; do check $ranks auto: "$WEFT_BIN" run -n $ranks --hosts 3 --; done
        check 5 auto: "$WEFT_BIN" run -n 5 --hosts 3 --
        check 16 auto: "$WEFT_BIN" run -n 16 --hosts 3 --
    else
        echo "SKIPPED: hosts cannot be played here: $(cat "$work/err")"
    fi
    ;;
*) echo "SKIPPED: there is no module for UCX" ;;
esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for mpi in openmpi mpich; do
    launcher=$(command -v mpiexec.$mpi)
    case " $modules " in
    *" mpi:$mpi "*)
        if [ -n "$launcher" ]; then
            check 4 mpi:$mpi "$launcher" -n 4
        else
            echo "SKIPPED: there is no mpiexec.$mpi"
        fi
        ;;
    *) echo "SKIPPED: there is no module for $mpi" ;;
    esac
done
exit $failed
