#!/usr/bin/env bash
# weft checkpoint: what it prints, exit codes, an interrupt; and the benchmark, small: a set of 8 ranks to 4 by 2, every
# array compared with a straight load, split and save.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
complain() { echo "FAILED: $1"; sed 's/^/    /' out err; failed=1; }
run()
{
    local want=$1 code
    shift
    what="weft $*"
    "$WEFT_BIN" "$@" >out 2>err
    code=$?
    [ "$code" -eq "$want" ] || complain "$what: exit code $code, should be $want"
    if [ "$code" -eq 0 ] && [ -s err ]; then complain "$what: stderr is not empty"; fi
}
out() { grep -qF -- "$1" out || complain "$what: stdout lacks: $1"; }
err() { grep -qF -- "$1" err || complain "$what: stderr lacks: $1"; }

# A file of one tensor 'w' of u8: safetensors FILE ROWS COLUMNS, the bytes are those of stdin.
safetensors()
{
    local header
    header=$(printf '{"w":{"dtype":"U8","shape":[%d,%d],"data_offsets":[0,%d]}}' "$2" "$3" $(($2 * $3)))
    # shellcheck disable=SC2059  # the length is an escape
    { printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0"; printf %s "$header"; head -c $(($2 * $3)); } >"$1"
}

printf 'abcdefgh12345678' | safetensors in.safetensors 2 8
echo 'w [, /tp]' >my.rules
run 0 checkpoint --help; out "--rules"
run 2 checkpoint in.safetensors; err "two places are needed"
run 2 checkpoint in.safetensors out.d; err "--to is missing"
run 2 checkpoint in.safetensors out.d --to tp2 --rules my.rules --fuse --separate; err "exclude each other"
run 2 checkpoint in.safetensors out.d --to tp2 --rules my.rules --dtype f17; err "there is no dtype 'f17'"
run 2 checkpoint in.safetensors out.d --to tp2; err "no rules say"
run 2 checkpoint none out.d --to tp1; err "none: No such file"
run 0 checkpoint in.safetensors out.d --to tp2 --rules my.rules
out "1 file, 16 B -> 2 files, 16 B: 1 tensor on tp2"
[ "$(tail -c 8 out.d/rank-00000-of-00002.safetensors)" = abcd1234 ] || complain "rank 0 is wrong"
[ "$(tail -c 8 out.d/rank-00001-of-00002.safetensors)" = efgh5678 ] || complain "rank 1 is wrong"
run 2 checkpoint in.safetensors out.d --to tp2 --rules my.rules; err "out.d: it exists and is not empty"
run 0 checkpoint out.d out.d --to tp8 --rules my.rules --force --json; out '"files_out": 8'
[ "$(ls out.d | wc -l)" -eq 8 ] || complain "the old files are still there"
run 0 checkpoint out.d back.safetensors --to tp1
[ "$(tail -c 16 back.safetensors)" = abcdefgh12345678 ] || complain "it did not come back"
cp out.d/rank-00000-of-00008.safetensors out.d/rank-00000-of-00004.safetensors
run 2 checkpoint out.d sets.d --to tp1; err "out.d: it has the files of several sets of ranks"
mkdir empty.d; ln -s empty.d link.d; mkfifo pipe.safetensors
run 2 checkpoint in.safetensors empty.d/. --to tp1; err "empty.d/.: give the output by its own name"
run 2 checkpoint in.safetensors link.d --to tp1; err "link.d: it exists and is a symbolic link: name the file or folder that it points to"
run 2 checkpoint pipe.safetensors pipe.d --to tp1; err "pipe.safetensors: it is not a regular file"
run 2 checkpoint in.safetensors none/out.d --to tp2 --rules my.rules; err "checkpoint: none: No such file"
run 2 checkpoint in.safetensors in.safetensors/out.d --to tp2 --rules my.rules; err "checkpoint: in.safetensors"
run 2 checkpoint in.safetensors pipe.d --to tp2 --rules pipe.safetensors; err "pipe.safetensors: it is not a regular file"
run 2 checkpoint in.safetensors pipe.d --to tp2 --rules qwen3
err "qwen3: there are no rules of this name (weft has gpt2, gpt_oss, llama, megatron, moe), and there is no such file"
run 0 checkpoint --show-rules llama; out "fuse self_attn.qkv_proj"
run 2 checkpoint --show-rules camel; err "there are no rules 'camel'"

# An interrupt leaves nothing: the input is large enough that it comes in time, or the work is done again.
head -c 200000000 /dev/zero | safetensors large.safetensors 25000000 8
sed -i 's/^/# /' my.rules; echo 'w [, /tp]' >>my.rules
for _ in 1 2 3 4 5; do
    "$WEFT_BIN" checkpoint large.safetensors large.d --to tp8 --rules my.rules --memory 1M --threads 1 >out 2>err &
    child=$!
    until [ -e large.d ] || compgen -G 'large.d.weft-*' >/dev/null || ! kill -0 "$child" 2>/dev/null; do :; done
    kill -TERM "$child" 2>/dev/null
    wait "$child"
    code=$?
    [ "$code" -eq 143 ] && break
    rm -rf large.d
done
what="an interrupt"
[ "$code" -eq 143 ] || complain "$what: exit code $code"
compgen -G 'large.d*' >/dev/null && complain "$what: something is left"
grep -q interrupted err || complain "$what: it does not say so"
rm -f large.safetensors

if [ -n "${WEFT_PYTHON:-}" ]; then
    "$WEFT_PYTHON" "$WEFT_SOURCE_DIR/bench/checkpoint.py" --weft "$WEFT_BIN" --gigabytes 0.004 --rounds 1 --folder "$work" \
        --cached >out 2>err || { what="the benchmark"; complain "$what"; }
    grep -q "arrays equal to a straight load, split and save" out || { what="the benchmark"; complain "$what: no result"; }
else
    echo "skip: numpy is not installed: the benchmark was not run"
fi
exit "$failed"
