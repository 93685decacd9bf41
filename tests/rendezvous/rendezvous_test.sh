#!/usr/bin/env bash
# Ranks of every launcher find the store that their environment names: weft run --at, mpirun by PMIx, torchrun and srun by
# their variables, and ranks started by hand. Ports are the system's choice.
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD_DIR:?}"
rank=$WEFT_BUILD_DIR/tests/store_ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $1"; failed=1; }
unset WEFT_AT WEFT_TOKEN WEFT_TOKEN_FILE WEFT_RANK WEFT_SIZE WEFT_URL WEFT_NAME
expect() { [ "$(sort "$work/out")" = "$1" ] || complain "$2: $(cat "$work/out" "$work/err")"; }
err() { grep -qF -- "$1" "$work/err" || complain "$2: stderr lacks '$1': $(cat "$work/err")"; }
three() { printf '0 of 3 by %s: 30\n1 of 3 by %s: 30\n2 of 3 by %s: 30' "$1" "$1" "$1"; }

# ---- a folder ----
"$WEFT_BIN" run -n 3 --at "file:$work/folder" "$rank" >"$work/out" 2>"$work/err" || complain "file: exit code $?"
expect "$(three file)" "file:"
[ -z "$(ls -A "$work/folder")" ] || complain "left in the folder: $(ls -A "$work/folder")"
[ "$(stat -c %a "$work/folder")" = 700 ] || complain "the folder's mode is $(stat -c %a "$work/folder")"

# ---- usage ----
for at in what: file: pmix:; do
    "$WEFT_BIN" run -n 1 --at "$at" true 2>"$work/err"
    [ $? = 2 ] || complain "--at $at is not refused"
    err "--at takes file:DIR or tcp:HOST:PORT" "--at $at"
done
WEFT_RANK=0 WEFT_SIZE=1 WEFT_NAME=x "$rank" >"$work/out" 2>"$work/err" && complain "there was no place to meet"
err "set WEFT_AT to file:DIR" "no place"

# Without libsodium tcp: is refused with a word about it, and the rest is skipped.
if ! "$WEFT_BIN" run -n 3 --at tcp: "$rank" >"$work/out" 2>"$work/err"; then
    err "libsodium" "weft run --at tcp:"
    [ "$failed" = 0 ] && { echo "skip: libsodium is not installed"; exit 77; }
fi

# ---- weft run serves ----
expect "$(three tcp)" "tcp:"
"$WEFT_BIN" run -n 2 --at tcp:localhost:0 sh -c 'echo "$WEFT_AT $WEFT_TOKEN"' >"$work/out"
[ "$(sort -u "$work/out" | wc -l)" = 1 ] || complain "ranks were told different things: $(cat "$work/out")"
grep -qE '^tcp:localhost:[1-9][0-9]* [0-9a-f]{64}$' "$work/out" || complain "the place or the token: $(cat "$work/out")"
"$WEFT_BIN" run -n 1 --at tcp:127.0.0.1:1:2 true 2>"$work/err"
[ $? = 2 ] || complain "a place that is none is not refused"
export WEFT_TOKEN=a-token-from-the-environment
"$WEFT_BIN" run -n 1 --at tcp: sh -c 'echo "$WEFT_TOKEN"' >"$work/out"
[ "$(cat "$work/out")" = $WEFT_TOKEN ] || complain "the token: $(cat "$work/out")"
unset WEFT_TOKEN

# The server has a file for each rank: it takes as many as it may have, and if these are too few all ranks are told so at once.
(ulimit -Sn 24; exec "$WEFT_BIN" run -n 32 --at tcp: "$rank") >"$work/out" 2>"$work/err" || complain "a soft limit: $(cat "$work/err")"
[ "$(grep -c ' of 32 by tcp: 4960$' "$work/out")" = 32 ] || complain "a soft limit: $(cat "$work/out" "$work/err")"
(ulimit -n 24; WEFT_DEADLINE_MS=200000 exec timeout 60 "$WEFT_BIN" run -n 32 --at tcp: "$rank") >"$work/out" 2>"$work/err"
[ $? = 1 ] || complain "a hard limit: exit code: $(cat "$work/err")"
err "the process that serves the store may have 24 files open, and needs " "a hard limit"
grep -q "did not come" "$work/err" && complain "a hard limit: others are blamed: $(cat "$work/err")"

# ---- rank 0 serves; all have a token file ----
# free: a port that nobody listens at. It is lost to somebody else now and then: then another.
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
command -v python3 >/dev/null || { echo "skip: python3 is not installed, which finds free ports"; exit 77; }
head -c 32 /dev/urandom | base64 >"$work/token"
chmod 644 "$work/token"
export WEFT_TOKEN_FILE=$work/token
RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free) "$rank" >"$work/out" 2>"$work/err" &&
    complain "others may read the token's file"
err "chmod 600" "a token file that others may read"
chmod 600 "$work/token"

# by_hand RANK-VARIABLE SIZE-VARIABLE SETTINGS...: three ranks.
by_hand()
{
    local rank_is=$1 size_is=$2 pids=() r
    shift 2
    for r in 2 1 0; do
        env "$@" "$rank_is=$r" "$size_is=3" "$rank" >>"$work/out" 2>>"$work/err" &
        pids+=($!)
    done
    for r in "${pids[@]}"; do
        wait "$r" || return 1
    done
}
# try NAME RANK-VARIABLE SIZE-VARIABLE SETTINGS...: with a free port for @; a few times, since a port may be lost.
try()
{
    local name=$1 _ port
    shift
    for _ in 1 2 3; do
        : >"$work/out"
        : >"$work/err"
        port=$(free)
        by_hand "${@//@/$port}" && break
    done
    expect "$(three tcp)" "$name"
}
try srun SLURM_PROCID SLURM_NTASKS SLURM_JOB_ID=7 SLURM_STEP_ID=0 WEFT_AT=tcp:127.0.0.1:@
try torchrun RANK WORLD_SIZE LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WEFT_PORT=@
try "torchrun, the next port" RANK WORLD_SIZE LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=@
unset WEFT_TOKEN_FILE
RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free) "$rank" >"$work/out" 2>"$work/err" && complain "there was no token"
err "make one by 'head -c 32 /dev/urandom" "no token"

# ---- PMIx ----
if command -v mpirun.openmpi >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpi() { timeout 100 mpirun.openmpi --oversubscribe --mca btl self,vader --mca oob_tcp_if_include lo "$@" 2>"$work/err" </dev/null; }
    if mpi -n 3 "$rank" 3 >"$work/out"; then
        expect "$(printf '%s of 3 by pmix: %s\n' 0 30 0 33 0 36 1 30 1 33 1 36 2 30 2 33 2 36)" "mpirun"
    elif grep -q "built without PMIx" "$work/err"; then
        echo "mpirun: this build has no PMIx"
    else
        complain "mpirun: $(cat "$work/err")"
    fi
fi
exit "$failed"
