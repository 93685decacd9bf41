#!/usr/bin/env bash
# weft bus push, pull, doctor and agent: a file, a folder of files and a checkpoint of several ranks become versions and files again, bit by bit;
# what doctor finds; what is refused.
set -u
: "${WEFT_BIN:?}"
if [ -z "${WEFT_PYTHON:-}" ]; then
    echo "skip: there is no Python to write safetensors files with"
    exit 77
fi
work=$(mktemp -d)
pusher='' agent=''
finish() { [ -z "$pusher$agent" ] || kill -9 $pusher $agent 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
cd "$work" || exit 1
unset WEFT_TOKEN WEFT_TOKEN_FILE
failed=0
complain() { echo "$1"; failed=1; }

# run CODE ARGUMENT...: weft bus with these ends with this code; what it says is in out and err.
run()
{
    local want=$1 code
    shift
    timeout 60 "$WEFT_BIN" bus "$@" >out 2>err
    code=$?
    [ "$code" -eq "$want" ] || complain "weft bus $*: ended with $code, not $want: $(cat out err)"
}
says() { grep -qF -- "$1" err || complain "the error does not say '$1': $(cat err)"; }
prints() { grep -qF -- "$1" out || complain "it does not print '$1': $(cat out)"; }

# A file whose second tensor is not aligned to its elements.
cat >files.py <<'END'
import json, struct, sys

def save(path, tensors):
    head, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)

def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    notes = head.pop("__metadata__", {})
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in head.items()}, notes

floats = lambda n: struct.pack(f"<{n}f", *range(n))
small = {"odd": ("U8", [3], b"abc"), "w": ("F32", [4, 6], floats(24)), "s": ("F32", [], floats(1)), "i": ("I64", [2], struct.pack("<2q", 5, -6))}
if sys.argv[1] == "make":
    save("in.safetensors", small)
    save("hf/model-00001-of-00002.safetensors", {"a": ("F32", [2, 2], floats(4))})
    save("hf/model-00002-of-00002.safetensors", {"b": ("F32", [3], floats(3))})
else:
    got, notes = load(sys.argv[2])
    if sys.argv[1] == "bf16":
        want = {k: ("BF16", s, b"".join(r[i + 2 : i + 4] for i in range(0, len(r), 4))) if d == "F32" else (d, s, r) for k, (d, s, r) in small.items()}
    else:
        want = small if sys.argv[1] == "small" else {"a": ("F32", [2, 2], floats(4)), "b": ("F32", [3], floats(3))}
    assert got == want, (got, want)
    assert len(sys.argv) < 4 or notes["weft.version"] == sys.argv[3], notes
END
mkdir hf
"$WEFT_PYTHON" files.py make || exit 1
same() { "$WEFT_PYTHON" files.py "$@" || complain "the file is not the one that was pushed: $*"; }

run 2 push; says "push takes a URL"
run 2 push file:dir policy; says "push takes a URL"
run 2 push file:dir policy none.safetensors; says "no such checkpoint"
run 2 push file:dir policy files.py; says "safetensors"
run 2 push file:dir policy in.safetensors --dtype i8; says "--dtype"
run 2 pull file:nowhere policy out.safetensors; says "no such folder"
run 2 doctor file:nowhere; says "no such folder"
run 2 pull file:nowhere policy out --rules rules; says "--to"
run 2 doctor file:nowhere --force; says "not one of weft bus doctor"

# push ARGUMENT...: serves a version in the background.
push()
{
    : >pushed
    "$WEFT_BIN" bus push file:dir policy "$@" >pushed 2>pushed.err &
    pusher=$!
    for _ in $(seq 600); do
        [ ! -s pushed ] || return
        kill -0 "$pusher" 2>/dev/null || break
        sleep 0.05
    done
    complain "push $* does not serve: $(cat pushed.err)"
}
stop() # SIGNAL
{
    kill "-$1" "$pusher"
    wait "$pusher" 2>/dev/null
    pusher=''
}

push in.safetensors --meta '{"loss": 1}' --step 7
grep -q '^serving policy 1.7: 4 tensors, 119 B$' pushed || complain "push prints: $(cat pushed)"
run 0 pull file:dir policy out.safetensors --json
prints '"step": 7, "tensors": 4, "bytes": 119'
same small out.safetensors 1.7
run 2 pull file:dir policy out.safetensors; says "--force"
run 0 pull file:dir policy out.safetensors --force --dtype bf16 --step 7
same bf16 out.safetensors
run 1 pull file:dir policy other.safetensors --step 8 --timeout 1; says "no version in time"
[ ! -e other.safetensors ] || complain "a pull that failed has left a file"
# A pull that waits for a version ends at once by a signal.
"$WEFT_BIN" bus pull file:dir policy other.safetensors --step 8 --timeout 60 >out 2>err &
sleep 0.3
kill -TERM $!
wait $!
code=$?
[ "$code" -eq 143 ] || complain "a pull that waits ends with $code by TERM: $(cat err)"
run 0 doctor file:dir; prints "nothing is wrong"
stop KILL
run 1 doctor file:dir; prints "wrong  set policy: version 1.7: 1 of its 1 parts have no live holder"
run 1 doctor file:dir --json; prints '"wrong": true'

push hf
run 0 pull file:dir policy hf.safetensors
same hf hf.safetensors 2.0
run 2 pull file:dir policy ranks --to tp2; says "no rules"
printf 'a [/tp, ]\n* [...]\n' >rules
run 0 pull file:dir policy ranks --to tp2 --rules rules
set -- ranks/rank-*.safetensors
[ $# -eq 2 ] || complain "pull --to tp2 wrote $*"
run 2 pull file:dir policy ranks --to tp2 --rules rules; says "exist"
stop TERM
push ranks
run 0 pull file:dir policy joined.safetensors
same hf joined.safetensors 3.0
stop TERM
# A checkpoint of two ranks is put together.
printf 'w [/tp, ]\n* [...]\n' >rules
"$WEFT_BIN" checkpoint in.safetensors two --to tp2 --rules rules >out 2>err || complain "weft checkpoint: $(cat err)"
push two
run 0 pull file:dir policy again.safetensors
same small again.safetensors
stop TERM
run 0 doctor file:dir; prints "note   set policy: epoch 4 has committed nothing that is kept"

# An agent holds what was pushed when the pusher is dead, and ends cleanly.
run 2 agent; says "URL of the directory is missing"
run 2 agent file:dir --json; says "not one of weft bus agent"
run 2 agent file:dir --versions 0; says "--versions"
"$WEFT_BIN" bus agent file:dir --versions 1 --memory 1M >agent 2>agent.err &
agent=$!
for _ in $(seq 600); do
    [ ! -s agent ] || break
    sleep 0.05
done
grep -q '^agent of file:dir$' agent || complain "the agent prints: $(cat agent agent.err)"
run 1 agent file:dir --timeout 1; says "this host has an agent"
push in.safetensors --step 3
stop KILL
run 0 pull file:dir policy kept.safetensors
same small kept.safetensors 5.3
run 0 status file:dir --json; prints '"publishers": 0, "held": 1'
run 0 doctor file:dir; prints "note   set policy: rank 0 of epoch 5 has gone, and agent"
kill -TERM "$agent"
wait "$agent"
code=$?
[ "$code" -eq 0 ] || complain "the agent ends with $code by TERM: $(cat agent.err)"
grep -q "set 'policy', epoch 5: its publisher .* has gone" agent.err || complain "the agent says: $(cat agent.err)"
run 1 pull file:dir policy gone.safetensors --timeout 1; says "no version in time"
exit $failed
