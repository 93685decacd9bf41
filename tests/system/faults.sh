#!/usr/bin/env bash
# Faults of the network and of jobs on several hosts, faults.sh WHAT [tcp|ucx], each a test of its own. Hosts are network namespaces on a
# bridge, which are made and removed here; four ranks on two hosts (auto: by that wire), or four on four (tcp: or ucx:).
#
#   down      the link of a host goes down amid runs and does not come back
#   back      it comes back after 2 s: the runs go on, and what arrives is right
#   vanished  a host is taken off the bridge amid runs: no reset, no word
#   idle      the same while nothing is on its way
#   stopped   a rank is stopped amid runs: it is named at the deadline, and not before
#   differs   the plan of one rank is another one
#   names     two jobs of one name, at the same time and in the same place
#   openmpi, mpich   a rank on mpi: is killed, or stopped where the launcher would end the others: it is named at the deadline
#
# In each all others end in time (5 s where the death can be seen, else the deadline), the text names the rank and its host, nothing
# wrong is delivered, and nothing is left behind. Kills on ucx: and auto: are in hosts_death, tokens and floods in
# store_tcp.
set -u
: "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
export WEFT_MODULES=${WEFT_MODULES:-$WEFT_BUILD_DIR}
what=$1
export WEFT_WIRE=${2:-ucx} # of auto:
program=$WEFT_BUILD_DIR/tests/fault_ranks
work=$(mktemp -d) hub=weft-f$$-hub hosts=() ranks=() failed=0
skip() { echo "skip: $1"; exit 77; }
complain() { echo "FAILED: $1"; failed=1; }
clean()
{
    for pid in "${ranks[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    wait
    for name in "${hosts[@]}" "$hub"; do ip netns del "$name" 2>/dev/null; done
    rm -rf "$work"
}
trap clean EXIT
now() { date +%s%3N; }
# until COMMAND...: succeeds, for at most 60 s
until_()
{
    for _ in $(seq 6000); do
        "$@" && return 0
        read -rt 0.01 <> <(:)
    done
    complain "in vain: $*"
    return 1
}

# make_hosts N: weft-fPID-0 and so on, 10.78.0.1 and so on
make_hosts()
{
    command -v ip >/dev/null || skip "no ip command (iproute2)"
    ip netns add "$hub" 2>/dev/null || skip "network namespaces are not permitted here"
    ip -n "$hub" link add br0 type bridge 2>/dev/null && ip -n "$hub" link set br0 up || skip "bridges are not permitted here"
    for i in $(seq 0 $(($1 - 1))); do
        local name=weft-f$$-$i
        ip netns add "$name" && hosts+=("$name") && ip link add eth0 netns "$name" type veth peer name "p$i" netns "$hub" ||
            skip "veth is not permitted here"
        ip -n "$hub" link set "p$i" master br0 && ip -n "$hub" link set "p$i" up && ip -n "$name" link set lo up &&
            ip -n "$name" addr add "10.78.0.$((i + 1))/24" dev eth0 && ip -n "$name" link set eth0 up || exit 1
    done
    for name in "${hosts[@]}"; do until_ is_up "$name"; done # UCX looks at the devices that run when it is opened
}
is_up() { [ "$(ip netns exec "$1" cat /sys/class/net/eth0/operstate)" = up ]; }

# start URL HOW [VARIABLE=VALUE...]: four ranks on the hosts that there are
start()
{
    local url=$1 how=$2 r h
    shift 2
    rm -rf "$work"/{ready,out,again}.* "$work/last" "$work/meet" "$work/flight"
    mkdir "$work/meet" "$work/flight"
    ranks=()
    for r in 0 1 2 3; do
        h=$((r * ${#hosts[@]} / 4))
        env WEFT_RANK=$r WEFT_SIZE=4 WEFT_URL="$url:f$$" WEFT_AT="file:$work/meet" WEFT_HOST="h$h" WEFT_FLIGHT="$work/flight" "$@" \
            ip netns exec "${hosts[$h]}" "$program" "$work" "$how" &
        ranks+=($!)
    done
}
there() { for f in "$@"; do [ -e "$work/$f" ] || return 1; done; }
# ready [RANK...]: they have done their first runs, or another one since their files were removed
ready() { until_ there "${@/#/ready.}"; }
# over RANK...: they have ended
over()
{
    until_ there "${@/#/out.}"
    for r in "$@"; do wait "${ranks[$r]}" || complain "rank $r ended with code $?"; done
}
# named RANK FROM LOW HIGH WORDS: the error of the rank says the words, LOW to HIGH ms after FROM
named()
{
    local code at text
    read -r code at text <"$work/out.$1"
    [ "$code" != 0 ] || complain "rank $1 had no error"
    [[ $text == *"$5"* ]] || complain "rank $1 does not say '$5': $text"
    echo "rank $1 after $((at - $2)) ms: $text"
    [ $((at - $2)) -ge "$3" ] && [ $((at - $2)) -le "$4" ] || complain "rank $1 knew after $((at - $2)) ms, not within $3 to $4"
}
# alone RANK... : they have opened a comm again, without the others, and it works
alone()
{
    for r in "$@"; do
        [ "$(cat "$work/again.$r" 2>/dev/null)" = "right $*" ] || complain "rank $r: again: $(cat "$work/again.$r" 2>&1)"
    done
}
# too_few RANK...: they are not more than half of all ranks, and the others may be alive: they do not go on
too_few()
{
    for r in "$@"; do
        [[ $(cat "$work/again.$r" 2>/dev/null) == *"$# of 4 ranks agree"*"more than half"* ]] ||
            complain "rank $r: again: $(cat "$work/again.$r" 2>&1)"
    done
}
# Nothing of the job is left but what it was asked to write.
tidy()
{
    for r in 0 1 2 3; do kill -0 "${ranks[$r]}" 2>/dev/null && complain "rank $r is still there"; done
    local left
    left=$(find /dev/shm -name "*f$$*" 2>/dev/null; grep -h "f$$" /proc/net/unix)
    for name in "${hosts[@]}"; do left+=$(ip netns exec "$name" grep -h "weft" /proc/net/unix); done
    [ -z "$left" ] || complain "left behind: $left"
    ranks=()
}
# diagnosed PATTERN RANK...: so says weft diagnose of what these ranks have left
diagnosed()
{
    local pattern=$1 files=() r
    shift
    for r in "$@"; do files+=("$work/flight/"*"f$$-$r-"*.json); done
    "$WEFT_BIN" diagnose "${files[@]}" >"$work/diagnosis" 2>&1
    grep -q -- "$pattern" "$work/diagnosis" || complain "the diagnosis lacks '$pattern': $(cat "$work/diagnosis")"
}

# begin JOB DEADLINE RANK...: ranks of one more job of the same name in the same place, which writes into a folder of its own
begin()
{
    local job=$1 deadline=$2 r
    shift 2
    for r in "$@"; do
        env WEFT_RANK=$r WEFT_SIZE=4 WEFT_URL="auto:f$$" WEFT_AT="file:$work/meet" WEFT_HOST=h0 WEFT_DEADLINE_MS="$deadline" \
            ip netns exec "${hosts[0]}" "$program" "$work/$job" brief &
        ranks+=($!)
    done
}
# posted NAME...: files of those that meet
posted() { for f in "$@"; do compgen -G "$work/meet/*.$f" >/dev/null || return 1; done; }
# ended JOB RANK WORDS: the error of the rank says the words; "": it had none, and what came was right
ended()
{
    local code text
    read -r code _ text <"$work/$1/out.$2"
    echo "job $1, rank $2: $code $text"
    if [ -n "$3" ]; then
        [ "$code" != 0 ] && [[ $text == *"$3"* ]] || complain "job $1, rank $2 does not say '$3'"
    else
        [ "$code" = 0 ] || complain "job $1, rank $2 has an error"
    fi
}

# On a machine that is busy with other tests the bounds are looser.
seen=8000
[ "${WEFT_TEST_SHARE:-100}" = full ] && seen=5000

# The runs have gone on: all four ranks make their last one, and nothing was wrong.
all_end_well()
{
    local r code text
    : >"$work/last"
    over 0 1 2 3
    for r in 0 1 2 3; do
        read -r code _ text <"$work/out.$r"
        [ "$code" = 0 ] || complain "rank $r: $code $text"
    done
}

case $what in
*mpi*) ;;
*) [ "$WEFT_WIRE" = tcp ] || [ -f "$WEFT_MODULES/weft_ucx.so" ] || skip "this build has no module for ucx:" ;;
esac
case $what in
down | vanished)
    for url in auto "$WEFT_WIRE"; do
        make_hosts $([ $url = auto ] && echo 2 || echo 4)
        last=$((${#hosts[@]} - 1))
        start $url runs WEFT_DEADLINE_MS=12000 TOGETHER=1
        ready 0 1 2 3
        from=$(now)
        if [ "$what" = down ]; then
            ip -n "${hosts[$last]}" link set eth0 down
        else
            ip -n "$hub" link set "p$last" nomaster
        fi
        over 0 1 2 3
        if [ $url = auto ]; then
            for r in 0 1; do named $r "$from" 0 $seen " on host h1"; done # rank 2 or 3, whoever it waited for
            for r in 2 3; do named $r "$from" 0 $seen " on host h0"; done
            too_few 0 1
            too_few 2 3
            diagnosed "^culprit: rank [23] on host h1 \(has died or \)\?cannot be reached" 0 1
        else
            for r in 0 1 2; do named $r "$from" 0 $seen "rank 3 on host h3"; done
            alone 0 1 2
            diagnosed "^culprit: rank 3 on host h3 \(has died or \)\?cannot be reached" 0 1 2
        fi
        tidy
        clean
        trap clean EXIT
        work=$(mktemp -d) hosts=()
    done
    ;;
idle)
    make_hosts 2
    start auto idles SLEEPS=h1 WEFT_DEADLINE_MS=12000
    ready 0 1 2 3
    read -rt 1.5 <> <(:)
    from=$(now)
    ip -n "$hub" link set p1 nomaster
    over 0 1
    for r in 0 1; do named $r "$from" 0 $seen " on host h1"; done
    too_few 0 1
    for r in 2 3; do kill -KILL "${ranks[$r]}"; wait "${ranks[$r]}"; done 2>/dev/null
    tidy
    ;;
back)
    make_hosts 2
    start auto runs WEFT_DEADLINE_MS=30000
    ready 0 1 2 3
    for way in "${hosts[1]} eth0" "$hub p1"; do # of the host itself, and of the switch
        set -- $way
        ip -n "$1" link set "$2" down
        read -rt 2 <> <(:)
        ip -n "$1" link set "$2" up
        rm -f "$work"/ready.*
        ready 0 1 2 3 # runs go on: otherwise the pause would be as long as both together
    done
    all_end_well
    echo "the runs went on and were right"
    tidy
    ;;
stopped)
    make_hosts 2
    start auto runs WEFT_DEADLINE_MS=7000
    ready 0 1 2 3
    # Between two runs it is not stalled but late, which it may be: then it goes on, and is stopped again.
    for _ in $(seq 8); do
        from=$(now)
        kill -STOP "${ranks[3]}"
        # The deadline of the run, and the one within which survivors wait for a rank that does not ask.
        while ! there out.0 out.1 out.2 && [ $(($(now) - from)) -lt $((14000 + seen)) ]; do read -rt 0.01 <> <(:); done
        there out.0 out.1 out.2 && break
        kill -CONT "${ranks[3]}"
        read -rt 0.1 <> <(:)
    done
    over 0 1 2
    # Whoever waits for it says so at the deadline; a beat of the others earlier, since they were told before it stopped
    for r in 0 1 2; do named $r "$from" 6500 $((7000 + seen)) "rank 3 on host h1 "; done
    alone 0 1 2
    kill -KILL "${ranks[3]}"
    wait "${ranks[3]}" 2>/dev/null
    tidy
    ;;
differs)
    for url in auto "$WEFT_WIRE"; do
        make_hosts $([ $url = auto ] && echo 2 || echo 4)
        start $url differs WEFT_DEADLINE_MS=30000
        from=$(now)
        over 0 1 2 3
        for r in 0 1 2 3; do
            named $r "$from" 0 30000 "rank 3 on host h$((${#hosts[@]} - 1)): its plan differs from rank 0's"
        done
        tidy
        clean
        trap clean EXIT
        work=$(mktemp -d) hosts=()
    done
    ;;
names)
    make_hosts 2
    start auto runs WEFT_DEADLINE_MS=30000
    ready 0 1 2 3
    first=("${ranks[@]}")
    # Two more of that name, at the same time as the first one and as each other. Who comes to a place that is taken is told so,
    # who comes when all have met waits in vain for a rank 0; the others are one job, and what it delivers is right. The first
    # one is not disturbed.
    mkdir "$work/0" "$work/1"
    ranks=()
    begin 0 30000 1 2
    until_ posted hello.1 hello.2 # they wait there for their rank 0
    begin 1 30000 1 2
    until_ there 1/out.{1,2}
    begin 0 30000 0
    until_ posted lead # it waits for its rank 3
    begin 1 30000 0
    until_ there 1/out.0
    begin 1 30000 3 # the one that the ranks of the other job get
    until_ there 0/out.{0,1,2} 1/out.3
    from=$(now)
    begin 0 5000 3
    wait "${ranks[@]}"
    [ $(($(now) - from)) -le $((5000 + seen)) ] || complain "the last one took $(($(now) - from)) ms"
    for r in 0 1 2; do
        ended 0 $r ""
        ended 1 $r "rank $r is taken by process"
    done
    ended 1 3 ""
    ended 0 3 "rank 0 did not come in time"
    ranks=("${first[@]}")
    all_end_well
    tidy
    ;;
openmpi | mpich)
    [ -f "$WEFT_MODULES/weft_mpi_$what.so" ] || skip "this build has no module for mpi:$what"
    command -v "mpiexec.$what" >/dev/null || skip "there is no mpiexec.$what"
    # Open MPI's launcher lets survivors live if it is told to; MPICH's ends the job all the same, so there the rank is stopped.
    live=() signal=STOP
    [ "$what" = openmpi ] && live=(--enable-recovery) signal=KILL
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    WEFT_URL="mpi:$what" WEFT_DEADLINE_MS=4000 "mpiexec.$what" "${live[@]}" -n 4 "$program" "$work" runs >"$work/launcher" 2>&1 &
    launcher=$! ranks=($!)
    ready 0 1 2 3
    from=$(now)
    kill -$signal "$(cat "$work/ready.3")"
    until_ there out.0 out.1 out.2
    for r in 0 1 2; do named $r "$from" 0 $((4000 + seen)) "rank 3 on host $(uname -n)"; done
    grep -q "does not outlive its ranks" "$work"/again.[012] || complain "again: $(cat "$work"/again.*)"
    kill -KILL "$(cat "$work/ready.3")" 2>/dev/null
    wait $launcher
    for r in 0 1 2 3; do kill -0 "$(cat "$work/ready.$r")" 2>/dev/null && complain "rank $r is still there"; done
    ranks=()
    ;;
*)
    echo "usage: faults.sh down|back|vanished|idle|stopped|differs|names|openmpi|mpich [tcp|ucx]" >&2
    exit 2
    ;;
esac
exit $failed
