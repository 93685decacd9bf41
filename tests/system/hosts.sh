#!/usr/bin/env bash
# Comms on several hosts, hosts.sh WHAT: random pairs, windows, and on 16 ranks all cases. tcp and ucx: by these alone; auto
# (by UCX) and auto_tcp: over 2 and 3 hosts of 1 to 3 ranks each and more (network namespaces, which weft run makes and removes);
# openmpi, mpich: on mpi:, and on auto: as if the ranks were on two machines; torchrun: auto: in such an environment.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}"
dir=$(dirname "$WEFT_BIN")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
share=${WEFT_TEST_SHARE:-100}
pairs=2000
limit=3000
[ "$share" != full ] && pairs=$((2 * share)) limit=300
[ "$pairs" -lt 20 ] && pairs=20
failed=0
grep -hv '^bench' "$WEFT_SOURCE_DIR"/tests/cases/*.txt >"$work/cases.txt"

# check_file FILE URL LAUNCHER...: all that is in the file
check_file()
{
    local file=$1 url=$2 count status
    shift 2
    count=$(grep -c '^[^#]*->' "$file")
    timeout "$limit" "$@" "$WEFT_BIN" check --cases "$file" --on "$url" >"$work/out" 2>"$work/err"
    status=$?
    if [ $status -ne 0 ] || [ "$(tail -n 1 "$work/out")" != "$count passed, 0 failed" ]; then
        echo "FAILED with status $status: $* weft check --cases $(basename "$file") --on $url"
        grep -A 1 FAILED "$work/out" | head
        tail -n 3 "$work/out"
        head "$work/err"
        failed=1
    fi
    echo "$url, $* : $count of $(basename "$file")"
}

# check RANKS URL LAUNCHER...: pairs of that many ranks, and the cases where these are enough for all of them
check()
{
    local ranks=$1
    shift
    "$dir/tests/random_pairs" "$pairs" "$ranks" "$ranks" >"$work/pairs.txt"
    check_file "$work/pairs.txt" "$@"
    [ "$ranks" -lt 16 ] || check_file "$work/cases.txt" "$@"
}

# says TEXT COMMAND...: the command ends well, and says so
says()
{
    local text=$1
    shift
    if ! timeout 300 "$@" >"$work/out" 2>"$work/err" || ! grep -qF -- "$text" "$work/out"; then
        echo "FAILED: $*"
        head "$work/out" "$work/err"
        failed=1
    fi
}

# windows RANKS LAUNCHER...: what ranks do with windows, and the examples of that
windows()
{
    local ranks=$1 program
    shift
    for program in tests/window_ranks examples/04_window_allgather examples/05_window_reduce_scatter; do
        says "on $ranks ranks" "$@" "$dir/$program"
    done
    echo "windows of $ranks ranks: $*"
}

# groups RANKS LAUNCHER...: splits and exchanges, and the examples that exchange
groups()
{
    local ranks=$1 seeds=3
    shift
    [ "$share" = full ] && seeds=30
    says "$ranks ranks: right" "$@" "$dir/tests/hosts_groups" "$seeds"
    says "rolling mean of 20000 samples on $ranks ranks" "$@" "$dir/examples/07_rolling_mean"
    says "on $ranks ranks: equal to the serial ones" "$@" "$dir/examples/08_moe_dispatch"
    echo "groups of $ranks ranks: $*"
}

# need MODULE: leaves the test out where it is not built
need()
{
    case " $("$WEFT_BIN" info | sed -n 's/^modules *//p') " in
    *" $1 "*) ;;
    *) echo "skip: there is no module for $1" && exit 77 ;;
    esac
}

# Ranks that believe to be on two machines, by the variables of MPI's launchers.
apart='r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; export WEFT_HOST=h$((r / 2)) OMPI_COMM_WORLD_LOCAL_SIZE=2 MPI_LOCALNRANKS=2; exec "$@"'

case $1 in
tcp | ucx)
    [ "$1" = tcp ] || need ucx:
    check 5 "$1:" "$WEFT_BIN" run -n 5 --on "$1:" --
    check 16 "$1:" "$WEFT_BIN" run -n 16 --on "$1:" --
    windows 3 "$WEFT_BIN" run -n 3 --on "$1:" --
    groups 4 "$WEFT_BIN" run -n 4 --on "$1:" --
    ;;
auto | auto_tcp)
    export WEFT_WIRE=ucx
    [ "$1" = auto ] || WEFT_WIRE=tcp
    [ "$1" = auto_tcp ] || need ucx:
    if ! "$WEFT_BIN" run -n 2 --hosts 2 -- true 2>"$work/err"; then
        echo "skip: $(cat "$work/err")"
        exit 77
    fi
    for ranks in 2 4 6; do check $ranks auto: "$WEFT_BIN" run -n $ranks --hosts 2 --; done
    for ranks in 3 6 9; do check $ranks auto: "$WEFT_BIN" run -n $ranks --hosts 3 --; done
    check 5 auto: "$WEFT_BIN" run -n 5 --hosts 3 --
    check 16 auto: "$WEFT_BIN" run -n 16 --hosts 3 --
    windows 4 "$WEFT_BIN" run -n 4 --on auto: --hosts 2 --
    windows 6 "$WEFT_BIN" run -n 6 --on auto: --hosts 3 --
    groups 4 "$WEFT_BIN" run -n 4 --on auto: --hosts 2 --
    groups 5 "$WEFT_BIN" run -n 5 --on auto: --hosts 3 --
    ;;
openmpi | mpich)
    need "mpi:$1"
    launcher=$(command -v "mpiexec.$1") || { echo "skip: there is no mpiexec.$1" && exit 77; }
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    check 4 "mpi:$1" "$launcher" -n 4
    check_file "$work/cases.txt" "mpi:$1" "$launcher" -n 16
    check 4 auto: "$launcher" -n 4 sh -c "$apart" sh
    WEFT_URL="mpi:$1" windows 3 "$launcher" -n 3
    windows 4 "$launcher" -n 4 sh -c "$apart" sh
    groups 3 env WEFT_URL="mpi:$1" "$launcher" -n 3
    groups 4 env WEFT_URL=auto: "$launcher" -n 4 sh -c "$apart" sh
    ;;
torchrun)
    need ucx:
    check 4 auto: bash "$0" as-torchrun
    ;;
as-torchrun) # COMMAND...: four ranks on two machines as torchrun starts them; the port may be lost to somebody else: then another
    shift
    export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none
    WEFT_TOKEN=$(od -An -N 16 -tx1 /dev/urandom | tr -d ' \n')
    export WEFT_TOKEN
    for _ in 1 2 3 4 5; do
        export WEFT_PORT=$((20000 + RANDOM % 10000)) # none that the system gives away
        (: <"/dev/tcp/127.0.0.1/$WEFT_PORT") 2>/dev/null && continue
        failed=0
        for r in 0 1 2 3; do
            RANK=$r WEFT_HOST=h$((r / 2)) "$@" >"$work/out$r" 2>"$work/err$r" &
            pids[r]=$!
        done
        for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
        grep -qE "no store|another token|not prove" "$work"/err? || break
    done
    cat "$work"/out?
    cat "$work"/err? >&2
    ;;
*)
    echo "usage: hosts.sh tcp|ucx|auto|auto_tcp|openmpi|mpich|torchrun" >&2
    exit 2
    ;;
esac
exit $failed
