#!/usr/bin/env bash
# The command line: what each verb prints, where, and with which exit code; files in and out of reshard.
set -u
: "${WEFT_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
count=0

complain() { echo "FAILED: $1"; sed 's/^/    /' "$work/out" "$work/err"; failed=1; }

# run CODE ARGS...: runs weft; its output is in out and err.
run()
{
    local want=$1 code
    shift
    count=$((count + 1))
    what="weft $*"
    "$WEFT_BIN" "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ "$code" -eq "$want" ] || complain "$what: exit code $code, should be $want"
    # Nothing but errors goes to stderr, and errors go nowhere else.
    if [ "$code" -eq 0 ] && [ -s "$work/err" ]; then complain "$what: stderr is not empty"; fi
    if [ "$code" -ne 0 ] && [ ! -s "$work/err" ] && ! grep -q FAILED "$work/out"; then complain "$what: no error on stderr"; fi
}
out() { grep -qF -- "$1" "$work/out" || complain "$what: stdout lacks: $1"; }
err() { grep -qF -- "$1" "$work/err" || complain "$what: stderr lacks: $1"; }
no_out() { [ ! -s "$work/out" ] || complain "$what: stdout is not empty"; }
line() { grep -qxF -- "$1" "$work/out" || complain "$what: stdout lacks the line: $1"; }
same() { cmp -s "$1" "$2" || complain "$what: $1 and $2 differ"; }
absent() { for f; do [ ! -e "$f" ] || complain "$what: $f is there"; done; }

# ---- help and usage ----
run 0 --help; out "usage: weft VERB"
run 0 --version; out "weft 0."
for verb in plan sim check reshard info; do
    run 0 "$verb" --help; out "usage: weft $verb"; out "--json"
    run 2 "$verb" --wrong; err "there is no option '--wrong'; see weft $verb --help"; no_out
done
run 0 help; out "usage: weft VERB"
run 0 help plan; out "usage: weft plan"
run 0 help bench coll; out "usage: weft bench coll"
run 0 check 'f32[64/x] @x2' 'f32[64] @x2' --explain; out "driver onepass: all messages at once"; out "eager: the message is small"
run 0 check 'f32[99999/x] @x2' 'f32[99999] @x2' --staged --explain; out "staged: the comm asks for staging"
run 2 check 'f32[64/x] @x2' 'f32[64] @x2' --explain --json; err "leave out --json"
run 2 help plam; err "there is no verb 'plam'"
run 0 run -n2 -- true
run 2 run -nx -- true; err "not 'x'"
run 2 run -m2 -- true; err "there is no option '-m2'"
run 2; err "a verb is missing; see weft --help"
run 2 plam; err "there is no verb 'plam'; see weft --help"
run 2 --wrong; err "there is no option '--wrong'"
run 2 plan 'f32[4] @x1'; err "two layouts are needed"
run 2 plan a b c; err "'c' is one argument too many"
run 2 plan a b --rank; err "--rank lacks its R"
run 2 plan a b --rank -1; err "a number from 0 to"
run 2 plan a b --rank 1x; err "not '1x'"
run 2 plan a b --bucket 4Q; err "K, M, G or T may follow"
run 2 plan a b --bucket 99999999999T; err "not '99999999999T'"
run 2 plan a b --json=1; err "--json takes no value"
run 2 plan a b --rank 0 --all; err "exclude each other"
run 2 check --cases x y; err "'y' is one argument too many"
run 2 check a b --values some; err "exact or wild, not 'some'"
run 2 check --cases nowhere.txt; err "nowhere.txt: No such file"
run 2 reshard a b --in x; err "--out is missing"
run 2 bench; err "say what to measure"
run 2 bench nothing; err "there is no benchmark 'nothing'"
run 0 bench --help; out "lower"
run 2 info x; err "'x' is one argument too many"
for words in --help --version "plan --help" info; do
    what="weft $words to a full disk"
    # shellcheck disable=SC2086  # a verb and its option
    "$WEFT_BIN" $words >/dev/full 2>err && complain "$what: exit code 0"
    grep -q "the results could not be written" err || complain "$what: it does not say so"
done
run 2 check 'f32[8/x] @x2' 'f32[8] @x2' --on tcp:; err "no place to meet"
mkfifo pipe.bin
run 2 reshard 'f32[2] @x1' 'f32[2] @x1' --in pipe.bin --out out.bin; err "pipe.bin: it is not a regular file"
run 2 diagnose pipe.bin; err "pipe.bin: it is not a regular file"
rm pipe.bin

# ---- layouts that are wrong: the argument, the text, a caret ----
run 2 plan 'f32[8/x,4 @x4' 'f32[8] @x4'; no_out
err "weft plan: SRC: layout: expected "
printf '%s\n' '  f32[8/x,4 @x4' '            ^' >want
sed 1d err >rest
same want rest
run 2 check 'f32[8] @x4' 'f32[8/y] @x4'; err "DST: layout: axis 'y' is not in the mesh"; err '  f32[8/y] @x4'; err '        ^'
run 2 reshard 'f33[8] @x4' 'f32[8] @x4' --in a.%r.npy --out b.%r.npy; err "SRC: layout:"; err '  f33[8] @x4'
run 2 plan 'f32[8] @x4' 'f32[9] @x4'; err "different shapes"
run 2 plan 'f32[8] @x4' 'f32[8] @x4' --algorithm magic; err "magic"

# ---- plan ----
run 0 plan 'f32[64/x,64] @x4' 'bf16[64,64/x] @x4=2..5'
line "moved             7168 B (7.0 KiB), lower bound 7168 B (7.0 KiB), 1.000 times the bound"
line "busiest sender    rank 0, 2048 B (2.0 KiB), 1.143 times the mean of the 4 that hold the source"
line "local copies      1024 B (1.0 KiB)"
line "      0 -> 5                    512          1"
[ "$(grep -c -- '->' out)" -eq 14 ] || complain "$what: 14 pairs of ranks should be listed"
grep -q '^plan of rank' out && complain "$what: no steps were asked for"
run 0 plan 'f32[8] @x4 +sum(x)' 'f32[8/x] @x4' --rank 2; out "recognised as     reduce_scatter, by direct"; out "plan of rank 2 of 4"
[ "$(grep -c '^plan of rank' out)" -eq 1 ] || complain "$what: one rank was asked for"
run 0 plan 'f32[8] @x4' 'f32[8/x] @x4' --all; out "moved             0 B, lower bound 0 B"
[ "$(grep -c '^plan of rank' out)" -eq 4 ] || complain "$what: four ranks were asked for"
run 2 plan 'f32[8] @x4' 'f32[8/x] @x4' --rank 4; err "ranks 0 to 3"
run 0 plan 'f32[64/x,64] @x16' 'f32[64,64/x] @x16' --algorithm direct; line "... 176 more, use --json"
run 0 plan 'f32[64/x,64] @x16' 'f32[64,64/x] @x16' --algorithm direct --json; [ "$(grep -c '"from"' out)" -eq 240 ] || complain "$what: 240 pairs"
run 0 plan 'f32[64/x,64] @x16' 'f32[64,64/x] @x16' --algorithm direct --svg; out '<title>3 to 12: 64 B</title>'
[ "$(grep -c '<title>' out)" -eq 240 ] || complain "$what: 240 squares"
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("out")' || complain "$what: no XML"
out '>15</text>'; out 'from ↓ to →'; out '>64 B</text>'
run 0 plan 'f32[8] @x1' 'f32[8] @x1' --svg; out '</svg>'
run 2 plan 'f32[800/x] @x257' 'f32[800] @x257' --svg; no_out; err "--svg draws up to 256 ranks, and the layouts use 257"
run 2 plan 'f32[8] @x1' 'f32[8] @x1' --svg --json; err "--svg excludes --json, --rank and --all"
run 0 plan 'f32[60/x:2] @x2' 'f32[60/x:3] @x2=2,3'; line "buckets           4 with 8 chunks"
run 0 plan 'f32[60/x:2] @x2' 'f32[60/x:3] @x2=2,3' --bucket 1; line "buckets           8 with 8 chunks"
run 0 plan 'f32[60/x:2] @x2' 'f32[60/x:3] @x2=2,3' --bucket=1T; line "buckets           4 with 8 chunks"

# ---- sim ----
run 0 sim 'u8[1000000] @x1=0' 'u8[1000000] @x1=8'; line "time              82.00 us"; line "lower bound       80.00 us, for which the outgoing NIC 0 of host 0 is busy"
out "rank 8 waits for 1000000 B (976.6 KiB) from rank 0: the outgoing NIC 0 of host 0 is the limit"
run 0 sim 'u8[1000000] @x1=0' 'u8[1000000] @x1=8' --json --what-if; out '"time_ns": 82000'; out '"change": "ranks in turn on the hosts"'
python3 -c 'import json; json.load(open("out"))' || complain "$what: no JSON"
run 0 sim --list; out "machine h100"; out "model   deepseek-v3"
run 0 sim --machine h100 --show; cp out my.machine
run 0 sim 'f32[64/x] @x16' 'f32[64] @x16' --machine my.machine --json; cp out mine
run 0 sim 'f32[64/x] @x16' 'f32[64] @x16' --machine h100 --json; sed -i 's/my.machine/h100/' mine; same out mine
echo 'a: f32[64/x] @x16 -> f32[64] @x16' >some.table
run 0 sim --table some.table --machine h100; line "tensors           1, of which 1 have layouts of their own"
run 0 sim --table - <some.table; out "recognised as     allgather"
run 2 sim --table missing.table; err "missing.table: cannot be opened"
run 2 sim --plan my.machine; err "my.machine: "
run 2 sim --model gpt-9 --from tp1 --to tp1; err "there is no model 'gpt-9'"
run 2 sim --model deepseek-v3 --from tp1; err "--model, --from and --to go together"
run 2 sim 'f32[4] @x1'; err "two layouts are needed, SRC and DST, or one of --table, --plan and --model"
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --table some.table; err "two layouts are needed"
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --machine h999; err "'h999' is neither a machine that weft knows"
run 2 sim 'f32[4] @x1' 'f32[5] @x1'; err "two different shapes"
run 2 sim --list a b; err "--list, --show and --calibrate take no tensors"
run 0 sim --calibrate; cp out here.machine; grep -Eq '^copy +[1-9][0-9.]* GB/s|^copy +0[.][0-9]+ GB/s' here.machine || complain "$what: no rate of copies"
run 0 sim 'f32[64/x] @x4' 'f32[64] @x4' --machine here.machine; out "machine           here.machine: 4 ranks on 1 hosts"
# In a job rank 0 alone prints. Hosts that are played share the cores, which carry what goes between them.
OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2 run 1 sim --calibrate; err "OMPI_COMM_WORLD_RANK=x"
run 0 run -n 2 -- "$WEFT_BIN" sim --calibrate; out "# This machine, measured by weft sim --calibrate."
[ "$(grep -c '^copy ' out)" = 1 ] || complain "$what: not one machine"
if "$WEFT_BIN" run -n 1 --hosts 1 -- true 2>/dev/null; then
    run 0 run -n 4 --hosts 2 -- "$WEFT_BIN" sim --calibrate; out "# A job on 2 hosts that are played on one machine"
    grep -Eq '^ranks_per_host +2$' out && grep -Eq '^hosts_on_cores +2$' out && grep -Eq '^nic +0 GB/s' out || complain "$what: not these hosts"
    grep -Eq '^nic_core +[0-9.]*[1-9][0-9.]* GB/s' out && grep -Eq '^nic_latency +[1-9][0-9.]* ns' out && grep -Eq '^nic_message +[1-9][0-9.]* ns' out ||
        complain "$what: the network was not measured"
    cp out here.machine
    run 0 sim 'f32[64/x] @x4' 'f32[64] @x4' --machine here.machine; out "machine           here.machine: 4 ranks on 2 hosts"
fi
run 0 plan 'f32[4194304] @x16 +sum(x)' 'f32[4194304] @x16' --machine h100; out "allreduce, by two_level"
run 2 plan 'f32[8] @x1' 'f32[8] @x1' --machine h100 --per-host 2; err "--machine and --per-host exclude each other"
python=${WEFT_PYTHON:-python3}
run 0 sim 'f32[64/y,64/x] @y2.x2' 'f32[64/y,64] @y4=4..7' --html page.html --what-if --json
"$python" "$WEFT_SOURCE_DIR/tests/cli/page_numbers.py" page.html out 9 || complain "$what: the page"
run 0 plan 'f32[64/y,64/x] @y2.x2' 'f32[64/y,64] @y4=4..7' --html page.html --json
"$python" "$WEFT_SOURCE_DIR/tests/cli/page_numbers.py" page.html out 2 || complain "$what: the page"
grep -q '\[0..15, 0..63\]: rank 4<' page.html || complain "$what: the page does not show who holds what"
run 0 plan 'f32[8,4] @{0: [0:4,:]; 2: [4:6,:] [6:8,:]}' 'f32[8/x,4] @x2' --html page.html
grep -q '\[6..7, 0..3\]: rank 2<' page.html || complain "$what: the page does not show who holds which boxes"
run 0 sim 'f32[8] @{0: [0:4]; 1: [4:8]}' 'f32[8/x] @x2=2,3' --what-if; out 'what if'
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --html missing/page.html; err "missing/page.html: cannot be written"; no_out
run 0 sim 'f32[64/x] @x4' 'f32[64] @x4' --svg; out '>rank 3</text>'; out 'copies or folds</text>'
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("out")' || complain "$what: no XML"
run 0 sim 'f32[4096/x,512] @x4' 'f32[4096,512/x] @x4' --machine h100 --bus 3; line "peers give        16777216 B (16.0 MiB)"; out "publisher gives   8388608 B (8.0 MiB), 1.00 times the set"
run 0 sim 'f32[4096/x,512] @x4' 'f32[4096,512/x] @x4' --machine h100 --bus 3 --no-peers --json; out '"from_publisher": 25165824'; out '"from_peers": 0'; out '"link": "the incoming NIC 0 of host 3"'
run 0 sim 'f32[4096/x,512] @x4' 'f32[4096,512/x] @x4' --machine h100 --bus 3 --delta 1.5; out "% of the bytes"
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --bus 3 --delta 101; err "--delta needs the percentage"
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --no-peers; err "--delta and --no-peers are for --bus"
run 2 sim 'f32[4] @x1' 'f32[4] @x1' --bus 3 --what-if; err "--bus excludes"
run 2 sim 'f32[4] @x2 +sum(x)' 'f32[4] @x1' --bus 3; err "SRC: "
run 2 sim 'f32[64/x] @x4' 'f32[64] @x4' --svg --json; err "--json and --svg exclude each other"

# ---- check ----
run 0 check 'f32[8/x,4] @x4' 'bf16[8,4/x] @x4=2..5' --repeat 3; out "ok: reshard by direct on 6 ranks"; out "3 runs of 32 elements right"
run 0 check 'f32[8] @x1' 'f64[8] @x1' --on self:; out "ok: "
run 0 check 'f32[8/x] @x2' 'f32[8] @x2' --on threads:5/some; out "on 5 ranks"
run 0 check 'f32[] @x1=2' 'f32[] @x3' --seed 4; out "of 1 elements right"
run 0 check 'i64[0,3/x] @x2' 'i64[0/x,3] @x2' --seed 4; out "of 0 elements right"
for options in --staged "--bucket 1" "--values wild" "--values exact" "--repeat 4 --seed 10"; do
    # shellcheck disable=SC2086  # options are words
    run 0 check 'f16[9/y~1o,7/x~2:1] @y2.x3 +sum(~)' 'f32[9/x,7/y:2] @y2.x3=5,4,3,2,1,0' $options
done
for pair in 'f32[64] @x4 +sum(x)|f32[64] @x4' 'f32[64/x] @x4|f32[64] @x4' 'f32[64] @x4 +sum(x)|f32[64/x] @x4' \
    'f32[16/y,18/x] @y2.x2|f32[16/y~1o,18/x~2:1] @y2.x2' 'i8[16/x~2o] @x3|i8[16/x~2o] @x3'; do
    run 0 check "${pair%|*}" "${pair#*|}" --in-place --repeat 3
done
run 2 check 'f32[16/x] @x4' 'f32[16/x] @x4=4..7' --in-place; err "on no rank does one side stand inside the other"
run 2 check 'f32[8] @x4' 'f32[8] @x4' --on self:; err "has 1 of the 4 ranks"
run 2 check 'f32[8] @x4' 'f32[8] @x4' --on threads:3; err "has 3 of the 4 ranks"
run 2 check 'f32[8] @x4' 'f32[8] @x4' --on threads:x; err "expected threads:N/NAME"
run 2 check 'f32[8] @x4' 'f32[8] @x4' --on threads:99999999; err "at most 65536 ranks can be run, and these are 99999999"
run 2 check 'f32[8] @x100000' 'f32[8] @x100000'; err "at most 65536 ranks can be run, and these are 100000"
run 2 check 'f32[8] @x100000' 'f32[8] @x100000' --on shm:; err "at most 65536 ranks"
run 2 check 'f32[8] @x4' 'f32[8] @x4' --on pigeon:; err "pigeon:: no such transport"
# A ring folds in another order than the oracle, and with wild data that shows: a failure as a user would see it.
run 1 check 'f32[512] @x4 +sum(x)' 'f32[512] @x4' --algorithm ring --values wild --seed 6
no_out
grep -qE '^weft check: rank [0-9]+, element \[[0-9]+\], at [0-9]+ of its buffer: expected .*, got ' err || complain "$what: the first difference"
again=$(sed -n 's/^reproduce: weft //p' err)
[ "$again" = "check 'f32[512] @x4 +sum(x)' 'f32[512] @x4' --on 'threads:' --seed 6 --algorithm 'ring' --values wild" ] ||
    complain "$what: the line that reproduces it"
cp err first
eval "run 1 $again"
same first err

# ---- files of cases ----
printf '%s\n' '# a comment' '' 'one: f32[8/x] @x4 -> f32[8] @x4  # and one here' \
    '  two :  f32[8~0:1/x] @x4 -> f32[8] @x4' 'three: f32[8] @x4' 'four: f16[8] @x4+max(x)->f16[8/x]@x4' >cases.txt
run 2 check --cases cases.txt
out "one: ok: allgather"; out "two: FAILED: SRC: layout:"; out "line 5: FAILED: cases.txt:5: expected 'name: SRC -> DST', got 'three: f32[8] @x4'"
out "four: ok: "; line "2 passed, 2 failed"
[ "$(tail -n 1 out)" = "2 passed, 2 failed" ] || complain "$what: the last line"
echo 'ring: f32[512] @x4 +sum(x) -> f32[512] @x4' >cases.txt
run 1 check --cases cases.txt --algorithm ring --values wild; out "ring: FAILED: rank"
out "  reproduce: weft check 'f32[512] @x4 +sum(x)' 'f32[512] @x4' --on 'threads:' --seed 1 --algorithm 'ring' --values wild"
line "0 passed, 1 failed"
: >cases.txt
run 2 check --cases cases.txt; err "there are no cases in it"

# ---- reshard: raw files ----
# bytes N...: the numbers as bytes
bytes() { local n; for n; do printf '%b' "$(printf '\\%03o' "$n")"; done; }
bytes 0 1 2 3 4 5 >s.0.bin
bytes 6 7 8 9 10 11 >s.1.bin
: >s.2.bin
run 0 reshard 'u8[4/x,3] @x3' 'u8[4,3/x~1] @x2' --in 's.%r.bin' --out 'o.%r.bin'; out "3 files, 12 B -> 2 files, 28 B:"
bytes 0 0 1 2 0 3 4 5 0 6 7 8 0 9 10 11 >want
same want o.0.bin
bytes 1 2 0 4 5 0 7 8 0 10 11 0 >want
same want o.1.bin
# and back, over the inputs
run 0 reshard 'u8[4,3/x~1] @x2' 'u8[4/x,3] @x3' --in 'o.%r.bin' --out 'o.%r.bin' --bucket 1 --json; out '"files_out": 3'
for r in 0 1 2; do same s.$r.bin o.$r.bin; done
rm -f o.*
# any dtype, one file, a % in the name
run 0 reshard 'u8[4/x,3] @x3' 'bf16[4,3] @x1=5' --in 's.%r.bin' --out '100%%.bin'
[ "$(wc -c <'100%.bin')" -eq 24 ] || complain "$what: 24 bytes"
run 2 reshard 'u8[4/x,3] @x3' 'u8[4,3] @x2' --in 's.%r.bin' --out 'o.bin'; err "--out o.bin: the mesh has 2 ranks, so the name needs a %r"
run 2 reshard 'u8[4/x,3] @x3' 'u8[4,3] @x1' --in 's.%r.bin' --out 'o.raw'; err "must end in .npy or .bin"
run 2 reshard 'u8[4/x,3] @x3' 'bf16[4,3] @x1' --in 's.%r.bin' --out 'o.npy'; err "--out o.npy: .npy has no bf16; use .bin"
run 2 reshard 'u8[4/x,4] @x3' 'u8[4,4] @x1' --in 's.%r.bin' --out 'o.npy'
err "s.0.bin: it has 6 bytes; rank 0 of the layout has (2, 4) of u8, 8 bytes"
run 2 reshard 'u8[4/x,3] @x4' 'u8[4,3] @x1' --in 's.%r.bin' --out 'o.npy'; err "s.0.bin: it has 6 bytes"
run 2 reshard 'u8[4/x,3] @x3' 'u8[4,3] @x1' --in 's.%r.bin' --out 'nowhere/o.npy'; err "nowhere/o.npy: its folder: No such file"
mkdir o.1.bin
run 2 reshard 'u8[4/x,3] @x3' 'u8[4,3] @x2' --in 's.%r.bin' --out 'o.%r.bin'; err "o.1.bin: it exists and is not a regular file"
absent o.0.bin o.npy ./*.weft-*
rmdir o.1.bin
# A disk that is full: nothing appears, nothing stays behind. (A limit on the size of files stands for it.)
(trap '' XFSZ; ulimit -f 1 && "$WEFT_BIN" reshard 'u8[4/x,3] @x3' 'f64[4,3~5000] @x1' --in 's.%r.bin' --out 'big.bin' >out 2>err)
code=$?
what="weft reshard beyond the limit"
[ $code -eq 1 ] || complain "$what: exit code $code"
err "big.bin: File too large"
absent big.bin ./*.weft-*

# ---- reshard: .npy ----
# npy FILE VERSION DICT DATA-FILE
npy()
{
    local dict=$3 prelude=10 n
    [ "$2" -eq 1 ] || prelude=12
    while [ $(((prelude + ${#dict} + 1) % 64)) -ne 0 ]; do dict+=' '; done
    n=$((${#dict} + 1))
    { printf '\223NUMPY'; bytes "$2" 0 $((n % 256)) $((n / 256)); [ "$2" -eq 1 ] || bytes 0 0; printf '%s\n' "$dict"; cat "$4"; } >"$1"
}
dict() { echo "{'descr': '$1', 'fortran_order': $2, 'shape': $3, }"; }
npy a.0.npy 1 "$(dict '|u1' False '(2, 3)')" s.0.bin
npy a.1.npy 2 "$(dict '|u1' False '(2, 3)')" s.1.bin
npy a.2.npy 3 "$(dict '|u1' False '(0, 3)')" s.2.bin
run 0 reshard 'u8[4/x,3] @x3' 'u8[4,3/x] @x2' --in 'a.%r.npy' --out 'b.%r.npy'
bytes 0 1 3 4 6 7 9 10 >data; npy want 1 "$(dict '|u1' False '(4, 2)')" data; same want b.0.npy
bytes 2 5 8 11 >data; npy want 1 "$(dict '|u1' False '(4, 1)')" data; same want b.1.npy
bad() { run 2 reshard 'u8[4/x,3] @x3' 'u8[4,3/x] @x2' --in 'a.%r.npy' --out 'c.%r.npy'; err "$1"; absent c.*; }
npy a.1.npy 1 "$(dict '|u1' True '(2, 3)')" s.1.bin; bad "a.1.npy: it is in Fortran order; save np.ascontiguousarray(a)"
npy a.1.npy 1 "$(dict '>i2' False '(2, 3)')" s.1.bin; bad "a.1.npy: its elements are big-endian"
npy a.1.npy 1 "$(dict '|i1' False '(2, 3)')" s.1.bin; bad "a.1.npy: it has shape (2, 3) of i8; rank 1 of the layout has (2, 3) of u8"
npy a.1.npy 1 "$(dict '|u1' False '(3, 2)')" s.1.bin; bad "a.1.npy: it has shape (3, 2) of u8; rank 1 of the layout has (2, 3) of u8"
npy a.1.npy 1 "$(dict '|u1' False '(2, 3)')" s.2.bin; bad "a.1.npy: 0 bytes follow its header, and shape (2, 3) of u8 has 6: it is cut short"
cat s.0.bin s.1.bin >data; npy a.1.npy 1 "$(dict '|u1' False '(2, 3)')" data; bad "a.1.npy: 12 bytes follow its header"
printf '\223NUMPY\1\0\377\377{' >a.1.npy; bad "a.1.npy: it has 11 bytes, and its header alone should have 65545"
npy a.1.npy 1 "garbage" s.1.bin; bad "a.1.npy: its header is not a dict"
cp s.1.bin a.1.npy; bad "a.1.npy: it is not a .npy file"
rm a.1.npy; bad "a.1.npy: No such file"

# ---- reshard between files of numpy ----
if [ -n "${WEFT_PYTHON:-}" ]; then
    "$WEFT_PYTHON" - <<'END' || complain "numpy could not write its files"
import numpy as np
for name in 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64'.split():
    a = (np.arange(35).reshape(5, 7) % 128).astype(name)
    for r in range(3):
        np.save(f'n.{name}.{r}.npy', a[2 * r:2 * r + 2])
END
    for type in bool:bool uint8:u8 int8:i8 uint16:u16 int16:i16 uint32:u32 int32:i32 uint64:u64 int64:i64 \
        float16:f16 float32:f32 float64:f64; do
        run 0 reshard "${type#*:}[5/x,7] @x3" "${type#*:}[5,7/x] @x2" --in "n.${type%:*}.%r.npy" --out "m.${type%:*}.%r.npy"
    done
    "$WEFT_PYTHON" - <<'END' || complain "numpy does not read the same"
import numpy as np
for name in 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64'.split():
    a = (np.arange(35).reshape(5, 7) % 128).astype(name)
    for r in range(2):
        b = np.load(f'm.{name}.{r}.npy')
        assert b.dtype == a.dtype and np.array_equal(b, a[:, 4 * r:4 * r + 4]), name
END
else
    echo "without numpy: its files were not compared"
fi

# ---- info ----
run 0 info; out "version     0."; out "bf16"; out "avg"; out "threads:N/NAME"; out "direct"; out "8 dims, 8 axes"
run 0 info --json; out '"cores":'
mkdir -p modules && touch modules/weft_ucx.so modules/weft_mpi_mpich.so # looks for files alone
WEFT_MODULES=$PWD/modules run 0 info; out "modules     ucx: mpi:"; out "mpi:mpich"
# Devices: the simulation says that it is one, and what is wrong is said.
WEFT_DEVICE=sim WEFT_SIM_DEVICES=2 WEFT_MODULES=$WEFT_BUILD_DIR run 0 info
out "devices     sim: a simulation on the host, not a GPU (WEFT_DEVICE=sim)"; out "device 1: simulated device 1, a queue for each stream"
out "memory shared by descriptors; no MPS"; out "engines: launcher ("; out "nccl (none: the simulated device has groups only with WEFT_SIM_NCCL=1)"
WEFT_DEVICE=sim WEFT_SIM_DEVICES=2 WEFT_MODULES=$WEFT_BUILD_DIR run 0 info --json
out '"devices": {"kind": "sim", "simulated": true, "why": null, "devices": [{"number": 0, "name": "simulated device 0,'
out '"memory": 0, "mps": false, "sharing": ["descriptors"]}], "engines": ["launcher", "mirrors"], "nccl_why": "the simulated device has groups only with WEFT_SIM_NCCL=1"},'
WEFT_DEVICE=sim WEFT_SIM_DEVICES=x WEFT_MODULES=$WEFT_BUILD_DIR run 0 info; out "devices     none: memory of a CUDA device is not possible: WEFT_SIM_DEVICES=x"
WEFT_DEVICE=rocm run 0 info; out "devices     none: WEFT_DEVICE=rocm: expected cuda or sim"
WEFT_DEVICE=rocm run 0 info --json; out '"devices": {"kind": null, "simulated": false, "why": "WEFT_DEVICE=rocm: expected cuda or sim", "devices": [], "engines": []},'
# Modules are where the program is, wherever that was found, and never in the folder in which somebody works.
"$WEFT_BIN" info | grep ^modules >there
(cd modules && PATH=$(dirname "$WEFT_BIN"):$PATH && "$(basename "$WEFT_BIN")" info) | grep ^modules >here
what="weft info by PATH"; same there here

# Results that cannot be written are an error.
if [ -w /dev/full ]; then
    "$WEFT_BIN" info >/dev/full 2>err
    [ $? -eq 1 ] || complain "weft info >/dev/full: exit code"
fi

echo "$count runs"
exit $failed
