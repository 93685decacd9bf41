#!/usr/bin/env bash
# weft bus: the server as a service (its URL, tokens, NOTIFY_SOCKET, TERM, --keep), ls and watch as tables and as JSON,
# status, metrics, and what is refused.
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
server='' watcher=''
finish() { [ -z "$server" ] || kill -9 "$server" 2>/dev/null; [ -z "$watcher" ] || kill -9 "$watcher" 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
cd "$work" || exit 1
unset WEFT_TOKEN WEFT_TOKEN_FILE NOTIFY_SOCKET
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

for token in publish read short; do
    head -c 32 /dev/urandom | base64 >$token
    chmod 600 $token
done
echo short >short
cp publish open
chmod 644 open

run 2; says "serve, ls, watch, status, push, pull, doctor or agent"
run 2 sing; says "serve, ls, watch, status, push, pull, doctor or agent"
run 2 ls; says "URL"
run 2 ls nonsense:x; says "tcp:HOST:PORT"
run 2 ls file:nowhere; says "No such file"
[ ! -e nowhere ] || complain "ls has made a folder"
run 2 ls tcp:127.0.0.1:1; says "token"
run 1 ls tcp:127.0.0.1:1 --token-file publish --timeout 1; says "cannot be reached"
run 2 ls tcp:127.0.0.1:1 --token-file publish --keep x; says "not one of weft bus ls"
run 2 serve --listen 127.0.0.1:0; says "needs a token"
run 2 serve --listen 127.0.0.1:0 --token-file open; says "chmod 600"
run 2 serve --listen 127.0.0.1:0 --token-file short; says "letters"
run 2 serve --listen nowhere --token-file publish; says "HOST:PORT"
run 2 serve --listen 127.0.0.1:0 --token-file publish --read-token-file publish; says "the same"
run 1 serve --listen 127.0.0.1:0 --token-file publish --keep /nowhere/state; says "/nowhere/state"
run 2 status tcp:127.0.0.1:1 prefix --token-file publish; says "1 words at most"
run 2 status tcp:127.0.0.1:1 --token-file publish --metrics 0; says "not one of weft bus status"
run 2 serve --listen 127.0.0.1:0 --token-file publish --metrics 70000; says "metrics"
"$WEFT_BIN" bus serve --help | grep -q -- --read-token-file || complain "--help does not name the options"

# start [OPTION]...: starts a server; $url is where.
start()
{
    : >serving
    "$WEFT_BIN" bus serve --token-file publish --read-token-file read --keep state "$@" >serving 2>serving.err &
    server=$!
    for _ in $(seq 600); do
        url=$(sed -n 's/^serving //p' serving)
        [ -z "$url" ] || return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    complain "the server does not start: $(cat serving serving.err)"
}
stop() # SIGNAL
{
    kill "-$1" "$server"
    wait "$server"
    local code=$?
    server=''
    [ "$1" = KILL ] || [ "$code" -eq 0 ] || complain "the server ended with $code on $1: $(cat serving.err)"
}

start --listen 127.0.0.1:0
if grep -q libsodium serving.err; then
    echo "skip: libsodium is not installed"
    exit 77
fi
port=${url##*:}
run 0 ls "$url" --token-file read
[ ! -s out ] || complain "an empty directory is listed as: $(cat out)"
run 0 ls "$url/space" some/prefix --token-file read --json
[ "$(grep -c '"keys": \[\]' out)" -eq 1 ] || complain "ls --json: $(cat out)"
revision=$(sed -nE 's/.*"revision": ([0-9]+).*/\1/p' out)
[ "${revision:-0}" -gt 0 ] || complain "ls --json: no revision: $(cat out)"
run 1 watch "$url" --token-file read --count 1 --timeout 1; says "no change in time"
run 2 ls "$url" --token-file open; says "chmod 600"
head -c 32 /dev/urandom | base64 >other
chmod 600 other
run 1 ls "$url" --token-file other; says "another token"
run 1 serve --listen "127.0.0.1:$port" --token-file publish; says "in use"
run 1 serve --listen 127.0.0.1:0 --token-file publish --keep state; says "another process"
stop TERM
# The state is kept: the revision goes on.
start --listen "127.0.0.1:$port"
run 0 ls "$url" --token-file read --json
[ "$(sed -nE 's/.*"revision": ([0-9]+).*/\1/p' out)" = "$revision" ] || complain "the revision is not kept: $(cat out)"
stop KILL
start --listen "127.0.0.1:$port"
run 0 ls "$url" --token-file read --json
[ "$(sed -nE 's/.*"revision": ([0-9]+).*/\1/p' out)" = "$revision" ] || complain "the revision is not kept: $(cat out)"
stop INT
# A state that is damaged is refused.
printf 'no state at all' >state
run 1 serve --listen 127.0.0.1:0 --token-file publish --keep state; says "not the state of a directory"
rm state

# What is in it, on a server and in a folder.
start --listen 127.0.0.1:0
put=$WEFT_BUILD_DIR/tests/directory_put
for where in "$url/job" "file:$work/folder"; do
    first=$("$put" "$where" "$(cat publish)" set/1 'one value') || complain "$where: put failed"
    "$put" "$where" "$(cat publish)" set/2 'two\0bytes' >/dev/null || complain "$where: put failed"
    second=$("$put" "$where" "$(cat publish)" set/10 'é') || complain "$where: put failed"
    "$WEFT_BIN" bus watch "$where" set/ --token-file publish --after "$((first - 1))" --count 5 --json >watched 2>watched.err &
    watcher=$!
    run 0 ls "$where" set/1 --token-file publish
    [ "$(grep -c "^set/1 *$first *no *one value\$" out)" -eq 1 ] || complain "$where: ls: $(cat out)"
    [ "$(grep -c '^set/' out)" -eq 2 ] || complain "$where: ls: $(cat out)"
    run 0 ls "$where" --token-file publish --json
    grep -q '"key": "set/2", .*"bytes": 9, "hex": "74776f006279746573"' out || complain "$where: ls --json: $(cat out)"
    grep -q "\"key\": \"set/10\", \"revision\": $second, .*\"lease\": 0, \"bytes\": 2, \"value\": \"é\"" out || complain "$where: ls --json: $(cat out)"
    "$put" "$where" "$(cat publish)" other 'not told' >/dev/null
    "$put" "$where" "$(cat publish)" set/2 >/dev/null
    last=$("$put" "$where" "$(cat publish)" set/1 again)
    wait "$watcher" || complain "$where: watch failed: $(cat watched.err)"
    watcher=''
    [ "$(wc -l <watched)" -eq 5 ] || complain "$where: watch: $(cat watched)"
    sed -n 4p watched | grep -q '"key": "set/2", .*"deleted": true' || complain "$where: watch: $(cat watched)"
    sed -n 5p watched | grep -q "\"revision\": $last, .*\"value\": \"again\"" || complain "$where: watch: $(cat watched)"
    run 0 watch "$where" set/ --token-file publish --after "$((first - 1))" --count 5
    sed -n 4p out | grep -qE '^[0-9]+  gone  set/2$' || complain "$where: watch: $(cat out)"
    sed -n 5p out | grep -q "^$last  put   set/1  again\$" || complain "$where: watch: $(cat out)"
done
stop TERM
rm state

# Status and metrics: two sets, of which one has two versions.
start --listen 127.0.0.1:0 --metrics 0 --metrics-file metrics
where=$(sed -n 's/^metrics //p' serving)
v1=0000000001.0000000000000000009 v2=0000000002.0000000000000000005
for directory in "$url/job" "file:$work/status"; do
    for key in policy/epoch policy/slots/0000000002/0000 policy/versions/$v1 policy/versions/$v2 policy/parts/$v1/0000 policy/parts/$v2/0000 policy/parts/$v2/0001 \
        policy/readers/g/0 policy/readers/g/decided value/epoch; do
        "$put" "$directory" "$(cat publish)" "sets/$key" x >/dev/null || complain "$directory: put failed"
    done
    "$put" "$directory" "$(cat publish)" other x >/dev/null
    run 0 status "$directory" --token-file publish
    grep -qE '^keys 11, [0-9]+ B; leases with keys 0; sets 2$' out || complain "$directory: status: $(cat out)"
    grep -qE '^policy  2\.5 +2 +2 +1 +0 +1$' out || complain "$directory: status: $(cat out)"
    grep -qE '^value +none +0 +0 +0 +0 +0$' out || complain "$directory: status: $(cat out)"
    run 0 status "$directory" --token-file publish --json
    grep -qF '{"set": "policy", "epoch": 2, "step": 5, "versions": 2, "parts": 2, "publishers": 1, "held": 0, "readers": 1}' out || complain "$directory: status --json: $(cat out)"
done
if command -v curl >/dev/null; then
    curl -sS --max-time 30 "$where" >out 2>err || complain "metrics: $(cat err)"
    grep -q '^weft_bus_keys 11$' out || complain "metrics: $(cat out)"
    grep -q '^weft_bus_changes_total 11$' out || complain "metrics: $(cat out)"
    grep -q '^weft_bus_commit_seconds_count 11$' out || complain "metrics: $(cat out)"
fi
stop TERM
grep -q '^weft_bus_keys 11$' metrics && [ "$(tail -n 1 metrics)" = '# EOF' ] || complain "the file of metrics: $(cat metrics)"
rm state

# NOTIFY_SOCKET: READY=1 and STOPPING=1 as datagrams.
if [ -n "${WEFT_PYTHON-}" ]; then
    "$WEFT_PYTHON" -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("notify")
s.settimeout(60)
print("bound", flush=True)
print(s.recv(100).decode(), s.recv(100).decode(), flush=True)' >notified 2>&1 &
    watcher=$!
    for _ in $(seq 600); do [ -S notify ] && break; sleep 0.05; done
    export NOTIFY_SOCKET=$work/notify
    start --listen 127.0.0.1:0
    unset NOTIFY_SOCKET
    stop HUP
    wait "$watcher"
    watcher=''
    grep -q '^READY=1 STOPPING=1$' notified || complain "NOTIFY_SOCKET got: $(cat notified)"
fi
exit "$failed"
