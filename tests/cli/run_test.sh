#!/usr/bin/env bash
# weft run: what ranks are given, how they end, and that nothing is left of them. Where a launcher waits for something to
# happen it is told so through a pipe.
set -u
: "${WEFT_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $1"; failed=1; }

# run CODE ARGUMENTS...: weft run ends with the code.
run()
{
    local want=$1 got
    shift
    "$WEFT_BIN" run "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || complain "weft run $*: exit code $got, not $want: $(cat "$work/err")"
}
out() { [ "$(sort "$work/out")" = "$1" ] || complain "output: $(sort "$work/out"), not $1"; }
err() { grep -qF -- "$1" "$work/err" || complain "stderr lacks '$1': $(cat "$work/err")"; }
# alive PID: it is there and no zombie.
alive() { [ -d "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }
gone() { for _ in $(seq 500); do alive "$1" || return 0; read -rt 0.01 <> <(:); done; complain "process $1 is still there"; }

# ---- usage ----
run 2; err "-n is missing"
run 2 -n 2; err "there is no program to run"
run 2 -n 0 true; err "-n takes a number from 1 to 4096"
run 2 -n 2 --on threads: true; err "--on takes shm:"
run 2 --what -n 2 true; err "there is no option '--what'"
run 127 -n 1 -; err "weft run: -: No such file"
run 0 --help
grep -q -- "--tag-output" "$work/out" || complain "the help lacks --tag-output"

# ---- what a rank is given ----
run 0 -n 3 -- sh -c 'echo "$WEFT_RANK of $WEFT_SIZE"'; out "$(printf '0 of 3\n1 of 3\n2 of 3')"
run 0 -n 2 sh -c 'echo "$WEFT_URL"'
[ "$(sort -u "$work/out" | wc -l)" = 1 ] && grep -q '^shm:weft-' "$work/out" || complain "URLs: $(cat "$work/out")"
first=$(head -n 1 "$work/out")
run 0 -n 1 sh -c 'echo "$WEFT_URL"'
[ "$(cat "$work/out")" != "$first" ] || complain "two jobs have one name"
run 0 -n 1 --on shm:mine-$$ sh -c 'echo "$WEFT_URL"'; out "shm:mine-$$"
run 0 -n 2 --tag-output -- sh -c 'echo out; echo err >&2; printf rest'
out "$(printf '[0] out\n[0] rest\n[1] out\n[1] rest')"
err "[1] err"
echo hello | "$WEFT_BIN" run -n 2 -- sh -c 'read -r x; echo "$WEFT_RANK:$x"' >"$work/out"
out "$(printf '0:hello\n1:')"
run 0 -n 2 --bind -- sh -c 'grep Cpus_allowed_list /proc/self/status'
grep -qE '[,-]' <(cut -f 2 "$work/out") && complain "--bind: $(cat "$work/out")"
[ "$(sort -u "$work/out" | wc -l)" = $(($(nproc) > 1 ? 2 : 1)) ] || complain "--bind: not one core each: $(cat "$work/out")"

# ---- how it ends ----
run 7 -n 3 -- sh -c 'test "$WEFT_RANK" = 1 && exit 7; exec tail -f /dev/null'; err "rank 1 ended with code 7; ending the others"
run 137 -n 3 -- sh -c 'test "$WEFT_RANK" = 2 && kill -9 $$; exec tail -f /dev/null'; err "rank 2 was ended by signal 9"
run 127 -n 2 -- /no/such/program; err "/no/such/program: No such file or directory"
run 126 -n 1 -- /etc/passwd
# A rank that does not hear TERM, and what it has started.
mkfifo "$work/fifo"
run 5 -n 2 -- sh -c 'trap "" TERM; test "$WEFT_RANK" = 1 && { read -r x <"$0"; exit 5; }; tail -f /dev/null & echo $! >"$0"; wait' \
    "$work/fifo"
pgrep -f "$work/fifo" >/dev/null && complain "a rank that ignores TERM is left"

# A rank that ends well before it has opened the comm: the others are told at once, however they meet, and not at their deadline.
hows=("--on shm:" "--on tcp:" "--on tcp: --at tcp:" "--hosts 2")
[ ! -e "$WEFT_BUILD_DIR/weft_ucx.so" ] || hows+=("--on ucx:")
times=1
[ "${WEFT_TEST_SHARE:-100}" = full ] && times=10
for ((i = 0; i < times * ${#hows[@]}; i++)); do
    how=${hows[i % ${#hows[@]}]}
    [ "$how" != "--hosts 2" ] || "$WEFT_BIN" run -n 1 --hosts 1 -- true 2>/dev/null || continue
    scheme=${how#--on } scheme=${scheme%% *}
    [ "$how" != "--hosts 2" ] || scheme=auto:
    # shellcheck disable=SC2086  # options
    WEFT_DEADLINE_MS=200000 timeout 60 "$WEFT_BIN" run -n 3 $how -- sh -c 'test "$WEFT_RANK" = 1 && exit 0
        exec "$0" check --on "$1" "f32[64/x] @x3" "f32[64] @x3"' "$WEFT_BIN" "$scheme" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ $code = 1 ] || complain "$how: a rank that ends before it opens the comm: exit code $code: $(cat "$work/err")"
    grep -q "rank 1 ended with code 0 before all ranks had opened the" "$work/err" || grep -q libsodium "$work/err" ||
        complain "$how: a rank that ends before it opens the comm: $(cat "$work/err")"
done

# start ARGUMENTS...: a job whose ranks write their numbers to a file and wait; sets launcher and pids.
start()
{
    : >"$work/started"
    env --default-signal=INT "$WEFT_BIN" run -n 3 "$@" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    for _ in $(seq 2000); do
        [ "$(wc -l <"$work/started")" = 3 ] && break
        read -rt 0.01 <> <(:)
    done
    pids=$(cat "$work/started")
    [ "$(wc -w <<<"$pids")" = 3 ] || complain "the ranks did not start"
}
body='echo $$ >>"'$work'/started"; exec tail -f /dev/null'
for signal in TERM HUP USR2 INT; do # what a script starts in the background ignores INT: `start` undoes that
    start sh -c "$body"
    kill -$signal $launcher
    wait $launcher
    code=$?
    [ $code = $((128 + $(kill -l $signal))) ] || complain "$signal: exit code $code"
    for pid in $pids; do alive "$pid" && complain "$signal: rank $pid is left"; done
done
start sh -c "trap 'exit 9' USR1; echo \$\$ >>$work/started; tail -f /dev/null & wait"
kill -USR1 $launcher
wait $launcher
[ $? = 9 ] || complain "USR1 was not passed on"
# Ranks that a signal does not end: after the grace they are killed, by a second signal at once. They note what comes.
deaf='trap "echo heard >>'$work'/heard" TERM INT HUP; echo $$ >>"'$work'/started"; while :; do read -rt 1 <> <(:); done'
signals="TERM HUP INT"
[ "${WEFT_TEST_SHARE:-100}" = full ] && signals=$(yes "$signals" | head -n 10)
for signal in $signals; do
    start --grace 1 -- bash -c "$deaf"
    kill -$signal $launcher
    wait $launcher
    code=$?
    [ $code = 137 ] || complain "$signal and a grace of 1 s: exit code $code: $(cat "$work/err")"
    err "weft run: 3 of 3 ranks still run 1 s after signal $(kill -l $signal)"
    for pid in $pids; do alive "$pid" && complain "$signal and a grace: rank $pid is left"; done
done
: >"$work/heard"
start --grace 1000 -- bash -c "$deaf"
kill -TERM $launcher
for _ in $(seq 2000); do [ "$(wc -l <"$work/heard")" = 3 ] && break; read -rt 0.01 <> <(:); done
for pid in $pids; do alive "$pid" || complain "the first signal has ended rank $pid"; done
kill -INT $launcher
wait $launcher
code=$?
[ $code = 137 ] || complain "a second signal: exit code $code: $(cat "$work/err")"
for pid in $pids; do alive "$pid" && complain "a second signal: rank $pid is left"; done
# Ranks that take their time within the grace are not killed, also when another has ended already.
slow='trap "[ \$WEFT_RANK = 0 ] && exit 3; while [ ! -e '$work'/now ]; do read -rt 0.05 <> <(:); done; exit 0" TERM
    echo $$ >>"'$work'/started"; while :; do read -rt 1 <> <(:); done'
rm -f "$work/now"
start --grace 1000 -- bash -c "$slow"
first=$(for pid in $pids; do grep -qz '^WEFT_RANK=0$' "/proc/$pid/environ" && echo "$pid"; done)
kill -TERM $launcher
gone "$first"
: >"$work/now"
wait $launcher
code=$?
[ $code = 3 ] || complain "ranks that end by themselves after TERM: exit code $code: $(cat "$work/err")"
run 2 -n 1 --grace 86401 true; err "--grace takes a number from 0 to 86400"
start sh -c "$body"
{ kill -9 $launcher; wait $launcher; } 2>/dev/null
for pid in $pids; do gone "$pid"; done

# A launcher that is killed: what its ranks have started ends, too, and the folder that they met in is gone. If its guard is killed with
# it the folder stays, until the next one comes, which does not touch those of jobs that run.
mkdir "$work/tmp"
empty() { for _ in $(seq 500); do [ -n "$(ls "$work/tmp")" ] || return 0; read -rt 0.01 <> <(:); done; complain "$1: a folder is left"; }
family='tail -f /dev/null & echo $! >>"'$work'/started"; wait'
TMPDIR=$work/tmp start --on tcp: -- sh -c "$family"
[ -n "$(ls "$work/tmp")" ] || complain "there is no folder to meet in"
{ kill -9 $launcher; wait $launcher; } 2>/dev/null
for pid in $pids; do gone "$pid"; done
empty "kill -9"
TMPDIR=$work/tmp start --on tcp: -- sh -c "$body"
other=$launcher others=$pids
TMPDIR=$work/tmp start --on tcp: -- sh -c "$body"
for child in $(cat "/proc/$launcher/task/$launcher/children"); do
    [ "$(cat "/proc/$child/comm")" != weft-watchdog ] || kill -9 "$child"
done
{ kill -9 $launcher; wait $launcher; } 2>/dev/null
for pid in $pids; do gone "$pid"; done
[ "$(ls "$work/tmp" | wc -l)" = 2 ] || complain "without a guard: folders: $(ls "$work/tmp")"
TMPDIR=$work/tmp run 0 -n 1 --on tcp: -- sh -c 'ls "${WEFT_AT#file:}" >/dev/null'
[ "$(ls "$work/tmp" | wc -l)" = 1 ] || complain "after the next one: folders: $(ls "$work/tmp")"
for pid in $others; do alive "$pid" || complain "the next one ended a rank of another job"; done
kill -TERM $other
wait $other
rmdir "$work/tmp" || complain "folders are left"

# Nobody reads the output any more, as of `| head`: the ranks end, and the folder that they met in is gone.
mkdir "$work/tmp"
TMPDIR=$work/tmp timeout 100 "$WEFT_BIN" run -n 2 --on tcp: --tag-output -- yes 2>"$work/err" | head -n 1 >"$work/out"
code=${PIPESTATUS[0]}
[ "$code" = 141 ] || complain "no reader: exit code $code: $(cat "$work/err")"
rmdir "$work/tmp" || complain "no reader: a folder is left"
# What a rank leaves behind may go on writing.
timeout 100 "$WEFT_BIN" run -n 1 --tag-output -- sh -c 'yes & echo $! >"$0"' "$work/left" >/dev/null ||
    complain "the output of what a rank has left behind: exit code $?"
{ kill "$(cat "$work/left")"; } 2>/dev/null
# Ends are seen even where those of children were ignored.
(trap '' CHLD; exec timeout -s KILL 100 "$WEFT_BIN" run -n 1 -- sh -c 'exit 4' 2>"$work/err")
code=$?
[ "$code" = 4 ] || complain "with SIGCHLD ignored: exit code $code"

# A signal that comes while hosts are being made waits for the ranks, and leaves neither folder nor namespace.
if "$WEFT_BIN" run -n 1 --hosts 1 -- true 2>/dev/null; then
    mkdir "$work/tmp"
    TMPDIR=$work/tmp env --default-signal=INT "$WEFT_BIN" run -n 8 --hosts 8 -- tail -f /dev/null 2>"$work/err" &
    launcher=$!
    for _ in $(seq 2000); do
        compgen -G "/run/netns/weft-$launcher-*" >/dev/null && break
        read -rt 0.01 <> <(:)
    done
    kill -INT $launcher
    wait $launcher
    code=$?
    [ "$code" = 130 ] || complain "INT while hosts are made: exit code $code: $(cat "$work/err")"
    compgen -G "/run/netns/weft-$launcher-*" && complain "INT while hosts are made: namespaces are left"
    rmdir "$work/tmp" || complain "INT while hosts are made: a folder is left"
    mkdir "$work/tmp"
    TMPDIR=$work/tmp start --hosts 3 -- sh -c "$family"
    { kill -9 $launcher; wait $launcher; } 2>/dev/null
    for pid in $pids; do gone "$pid"; done
    empty "kill -9 with hosts"
    compgen -G "/run/netns/weft-$launcher-*" && complain "kill -9 with hosts: namespaces are left"
    rmdir "$work/tmp"
else
    echo "without hosts: they cannot be played here"
fi

# The first that fails counts, not those that are ended for it nor a later one.
mkfifo "$work/second"
run 3 -n 3 -- sh -c 'case $WEFT_RANK in 0) trap "exit 8" TERM; echo >"$0"; tail -f /dev/null & wait ;;
    1) read -r x <"$0"; exit 3 ;; *) exec tail -f /dev/null ;; esac' "$work/second"
err "rank 1 ended with code 3"

# ---- other launchers ----
# A program finds its place by what they leave in the environment; here two ranks of each.
check=(check --on shm: 'f32[64/x,6] @x2' 'f32[64,6/x] @x2')
right="ok: all_to_all by direct on 2 ranks, 768 B moved, bound 768 B, 1 run of 384 elements right"
# by NAME VARIABLE=VALUE...: @ stands for the rank.
by()
{
    local name=$1 r pids=()
    shift
    for r in 0 1; do
        env "${@//@/$r}" "$WEFT_BIN" "${check[@]}" >"$work/by.$r" 2>&1 &
        pids+=($!)
    done
    for r in 0 1; do
        wait "${pids[r]}" || complain "$name: rank $r: exit code $?: $(cat "$work/by.$r")"
    done
    [ "$(cat "$work/by.0" "$work/by.1")" = "$right" ] || complain "$name: $(cat "$work/by.0" "$work/by.1")"
}
by torchrun RANK=@ WORLD_SIZE=2 LOCAL_RANK=@ LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$$ TORCHELASTIC_RUN_ID=none
# In a job of Slurm or MPI all ranks of torchrun have the variables of the one task that started it.
by "torchrun inside others" RANK=@ WORLD_SIZE=2 LOCAL_RANK=@ LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$$ \
    TORCHELASTIC_RUN_ID=none SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=$$ SLURM_STEP_ID=0 OMPI_COMM_WORLD_RANK=0 \
    OMPI_COMM_WORLD_SIZE=1 PMIX_NAMESPACE=job-$$ PMIX_RANK=0
by srun SLURM_PROCID=@ SLURM_NTASKS=2 SLURM_JOB_ID=$$ SLURM_STEP_ID=0
by mpirun OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=job-$$
by mpiexec PMI_RANK=@ PMI_SIZE=2 PMI_JOBID=$$
for launcher in "mpirun.openmpi --allow-run-as-root --oversubscribe" mpiexec.hydra; do
    # shellcheck disable=SC2086  # a command and its options
    command -v ${launcher%% *} >/dev/null || { echo "without ${launcher%% *}: it is not installed"; continue; }
    # shellcheck disable=SC2086
    $launcher -n 2 "$WEFT_BIN" "${check[@]}" >"$work/out" 2>"$work/err" </dev/null ||
        complain "$launcher: exit code $?: $(cat "$work/err")"
    out "$right"
done

# ---- jobs ----
# A rank that is told nonsense does not take itself for a job of its own.
WEFT_RANK=5 WEFT_SIZE=2 WEFT_URL=shm:none-$$ "$WEFT_BIN" "${check[@]}" >"$work/out" 2>"$work/err"
[ $? = 2 ] || complain "rank 5 of 2: not refused: $(cat "$work/out")"
err "WEFT_RANK=5"
run 0 -n 4 -- "$WEFT_BIN" check --on shm: 'f32[64/x,6] @x4' 'f32[64,6/x] @x4' --repeat 5
out "ok: all_to_all by direct on 4 ranks, 1152 B (1.1 KiB) moved, bound 1152 B, 5 runs of 384 elements right"
run 2 -n 3 -- "$WEFT_BIN" check --on shm: 'f32[64/x] @x4' 'f32[64] @x4'; err "the job has 3"
"$WEFT_BIN" check --on shm: 'f32[64/x,6] @x4' 'f32[64,6/x] @x4' --repeat 5 >"$work/out" || complain "check on shm:"
"$WEFT_BIN" check --on "shm:name-$$" --private 'f32[64] @x4 +sum(x)' 'f32[64/x] @x4' >"$work/out" || complain "check on shm:name"
compgen -G '/dev/shm/*weft*' && complain "files are left in /dev/shm"
exit $failed
