#!/usr/bin/env bash
# Benchmarks: each contender's results are right, what is printed can be read, and nothing is left behind.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $1"; tail -n 5 "$work/out" "$work/err"; failed=1; }
run() { what="weft bench $*"; timeout 300 "$WEFT_BIN" bench "$@" >"$work/out" 2>"$work/err" || complain "$what: exit code $?"; }

# The CSV with bars between its fields, and no commas or quotes inside them.
fields() { awk -F'"' -v OFS='' '{ for (i = 1; i <= NF; i += 2) gsub(",", "|", $i) } 1' "$work/out"; }

# rows WHO N: N lines of the CSV are of that contender, each with a time and nothing wrong.
rows()
{
    local n
    n=$(fields | awk -F'|' -v who="$1" '$5 ~ "^" who && $6 > 0 && $11 == 0' | wc -l)
    [ "$n" -eq "$2" ] || complain "$what: $n right lines of $1, should be $2"
}

# right LEAST: every line has nothing wrong, and there are as many at least.
right()
{
    local n bad
    n=$(fields | tail -n +2 | wc -l)
    bad=$(fields | tail -n +2 | awk -F'|' '$11 != 0 || $6 <= 0' | head -n 3)
    if [ "$n" -lt "$1" ] || [ -n "$bad" ]; then
        complain "$what: $n lines, should be $1 or more; wrong: $bad"
    fi
}

# nothing_left WHAT: all that is new in /dev/shm is somebody's: other tests run beside this one.
nothing_left()
{
    local file
    for file in /dev/shm/*; do
        if [ -e "$file" ] && ! grep -qxF "$file" <<<"$before" && ! grep -qsF "$file" /proc/[0-9]*/maps && [ -e "$file" ]; then
            complain "$1: left $file"
        fi
    done
}

quick=(--ms 1 --rounds 2)
on=(threads:)
# The floor waits in two ways where there are more ranks than cores.
cores=$(nproc) two=2 three=2
[ "$cores" -lt 2 ] || two=1
[ "$cores" -lt 3 ] || three=1
"$WEFT_BIN" info | grep -q 'shm:' && on+=(shm:)
before=$(ls -d /dev/shm/* 2>/dev/null)
for url in "${on[@]}"; do
    for memory in --window --private; do
        run coll -n 2,3 --sizes 12,100000 --on "$url" "$memory" "${quick[@]}" --csv
        rows weft 26
        rows floor $((13 * (two + three)))
        run halo -n 2,3 --sizes 12,20000 --on "$url" "$memory" "${quick[@]}" --csv; rows weft 20
    done
    run latency --on "$url" "${quick[@]}" --csv; rows weft 2; rows floor $((2 * two))
done
nothing_left "$what"
[ "$cores" -lt 4 ] && four=2 || four=1
[ "$cores" -lt 8 ] && eight=2 || eight=1
[ "$cores" -lt 8 ] && more=0 || more=6 # eight among themselves, too
for memory in --window --private; do
    run reshard --sizes 256K "$memory" "${quick[@]}" --csv
    rows weft $((10 + more)); rows floor $((2 * (2 * two + 6 * four + (2 + more) * eight)))
done
run many -n 2,4 --only 25 "${quick[@]}" --csv; rows weft 6; rows floor $((2 * (two + four)))
nothing_left "$what"
run memory -n 1 --sizes 16K,64K "${quick[@]}" --csv; rows weft 2; rows memory 6

# What is forced, and what cannot be.
run coll -n 2 --sizes 8 --only broadcast,allreduce --algorithm ring "${quick[@]}" --csv; rows weft 1
grep -q 'left out: broadcast' "$work/err" || complain "$what: it does not say what was left out"
"$WEFT_BIN" bench coll -n 2 --sizes 8 --only broadcast --algorithm ring "${quick[@]}" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || complain "a broadcast by ring: not refused"
grep -q 'ring' "$work/err" || complain "a broadcast by ring: not refused in words"

# What would be known only after the measuring is said before it.
# refuse TEXT ARGUMENTS...: exit code 2, and the text.
refuse()
{
    local text=$1 code
    shift
    "$WEFT_BIN" bench "$@" "${quick[@]}" >"$work/out" 2>"$work/err"
    code=$?
    what="weft bench $*"
    [ "$code" -eq 2 ] || complain "$what: exit code $code, should be 2"
    grep -qF -- "$text" "$work/err" || complain "$what: stderr lacks: $text"
    [ ! -s "$work/out" ] || complain "$what: stdout is not empty"
}
refuse "--only takes some of barrier,broadcast,allgather,reduce_scatter,allreduce,all_to_all,halo, not 'foo'" coll --only halo,foo
refuse "not ''" halo --only ''
refuse "not '26'" many --only 26
refuse "not 'foo'" hosts --only move,foo
refuse "there is no option '--only'" memory --only copy
refuse "there is no option '--peers'" memory --peers
refuse "nothing that --only names" reshard -n 2 --only cast --sizes 256K
refuse "--save $work/none/a.json: its folder: No such file" coll -n 2 --sizes 8 --save "$work/none/a.json"
refuse "--plot $work: it is a folder" coll -n 2 --sizes 8 --plot "$work"

# Drivers and ways that are switched off, one at a time, beside weft with all of them.
read -ra ways < <("$WEFT_BIN" info | sed -n 's/^ways *//p')
[ ${#ways[@]} -ge 2 ] || complain "weft info lists ${#ways[@]} drivers and ways"
run coll -n 2 --sizes 8 --only halo,allreduce --without all "${quick[@]}" --csv; rows weft $((2 * (1 + ${#ways[@]}))); rows floor 0
run many -n 2 --only 25 --without "${ways[0]},${ways[1]}" "${quick[@]}" --csv; rows weft 9; rows "weft -${ways[0]}," 3
run halo -n 2 --only 1d --sizes 64 --without "${ways[1]}" "${quick[@]}"
[ "$(grep -c '^ *2  1d .* [0-9.]* *[0-9.]*$' "$work/out")" -eq 1 ] || complain "$what: not one line"
refuse "weft has no driver or way 'foo'" coll --without "${ways[0]},foo"
refuse "--without and --peers exclude each other" coll --without all --peers
refuse "there is no option '--without'" memory --without all
run coll -n 2 --sizes 8 --only halo --explain "${quick[@]}"
grep -q driver "$work/out" || complain "$what: it does not say which driver"
if [ -n "${WEFT_PYTHON:-}" ]; then
    run coll -n 2 --sizes 8 --only halo,barrier --explain "${quick[@]}" --json
    "$WEFT_PYTHON" -c 'import json, sys; r = json.load(open(sys.argv[1]))["rows"]; assert "explain" not in r[0] and "driver" in r[1]["explain"]' \
        "$work/out" || complain "$what: not the JSON that was expected"
fi

# Both tools that compare, with a weft whose figures are known: SLOW names what takes twice as long as it was measured, all else
# takes as long as weft itself.
if [ -n "${WEFT_PYTHON:-}" ]; then
    cat >"$work/slow" <<'END'
#!/usr/bin/env python3
import json, os, subprocess, sys
done = subprocess.run([os.environ["WEFT_BIN"], *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
if sys.argv[1] == "bench" and not done.returncode:
    result = json.loads(done.stdout)
    for row in result["rows"]:
        for figure in row["figures"]:
            who, _, way = figure["who"].partition(", ")
            figure["time_us"] = 20 if os.environ["SLOW"] in (who, row["what"]) else 10
    done.stdout = json.dumps(result)
sys.stdout.write(done.stdout)
sys.exit(done.returncode)
END
    chmod +x "$work/slow"
    cp "$work/slow" "$work/fast"
    sed -i 's/os.environ\["SLOW"\] in (who, row\["what"\])/False/' "$work/fast"
    small=(--ranks 2 --sizes 8 --ms 1 --rounds 2)
    # compared NAME ...: what the comparison writes as JSON fulfils the Python expression.
    compared()
    {
        "$WEFT_PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1])); t = {x["table"]: x for x in d["tables"]}; assert eval(sys.argv[2]), d' \
            "$work/two.json" "$1" 2>>"$work/err" || complain "bench/compare.py: not so: $1"
    }
    compare() { SLOW=$1 "$WEFT_PYTHON" "$WEFT_SOURCE_DIR/bench/compare.py" "$work/fast" "$work/slow" "${@:2}" >"$work/out" 2>"$work/err"; }
    compare halo --tables coll,latency --only halo,allreduce,ping "${small[@]}" --again 2 --json "$work/two.json" --markdown "$work/two.md" ||
        complain "bench/compare.py"
    compared 'len(t["coll"]["cells"]) == 2 and len(t["latency"]["cells"]) == 1 and t["latency"]["geometric_mean"] == 1'
    compared '{c["what"]: (c["speed"], len(c["measured"]), len(c["old"])) for c in t["coll"]["cells"]} == {"halo": (0.5, 3, 6), "allreduce": (1, 1, 2)}'
    compared 'abs(t["coll"]["geometric_mean"] - 0.5 ** 0.5) < 1e-9 and t["coll"]["below"] == 1'
    grep -q '^| 2 | halo | 8 | 10.00 | 20.00 | 0.50 | below 0.90 measured 3 times |' "$work/two.md" || complain "bench/compare.py: no such line"
    cmp -s "$work/two.md" "$work/out" || complain "bench/compare.py prints something else than it writes"
    compare none --tables many --only 25 "${small[@]}" --json "$work/two.json" || complain "bench/compare.py"
    compared 'set(t) == {"coll", "latency", "many"} and len(t["many"]["cells"]) == 3 and t["many"]["geometric_mean"] == 1'
    compare none --tables foo && complain "bench/compare.py --tables foo: not refused"
    compare none --tables coll --only none "${small[@]}" && complain "bench/compare.py measures nothing, and does not say so"
    # Real figures, of every kind of table.
    "$WEFT_PYTHON" "$WEFT_SOURCE_DIR/bench/compare.py" "$WEFT_BIN" "$WEFT_BIN" --tables private,reshard,halo,memory --only halo,square,x \
        --ranks 2 --sizes 256K --ms 1 --rounds 1 --again 0 --json "$work/two.json" >"$work/out" 2>"$work/err" || complain "bench/compare.py"
    compared 'all(c["old_us"] > 0 and c["new_us"] > 0 for x in t.values() for c in x["cells"]) and len(t) == 4'

    mkdir -p "$work/docs"
    ablation()
    {
        SLOW="weft -${ways[0]}" "$WEFT_PYTHON" "$WEFT_SOURCE_DIR/bench/ablation.py" --weft "$work/slow" --root "$work" --ways "${ways[0]},${ways[1]}" \
            "${small[@]}" "$@" >"$work/out" 2>"$work/err" || complain "bench/ablation.py $*"
    }
    ablation --tables coll,many --only halo,25
    grep -q "^| ${ways[0]} | 2.00, 1 of 1 | 2.00, 3 of 3 | yes |" "$work/docs/ways.md" || complain "docs/ways.md: ${ways[0]} is worth something else"
    grep -q "^| ${ways[1]} | 1.00, 0 of 1 | 1.00, 0 of 3 | no |" "$work/docs/ways.md" || complain "docs/ways.md: ${ways[1]} is worth something else"
    grep -q "^| ${ways[0]} | Collectives in windows | 2 | halo | 8 | 2.00 |" "$work/docs/ways.md" || complain "docs/ways.md: no such cell"
    kept=$(cksum "$work"/bench/results/ablation-*.json)
    ablation --tables coll,many --only halo,25
    [ "$(cksum "$work"/bench/results/ablation-*.json)" = "$kept" ] || complain "bench/ablation.py: a second call measures again"
    ablation --tables reshard --only square --sizes 256K
    grep -q "^| ${ways[0]} | 2.00, 1 of 1 | 2.00, 1 of 1 | 2.00, 3 of 3 | yes |" "$work/docs/ways.md" || complain "bench/ablation.py: it does not go on"
fi

run coll -n 2 --sizes 8:64:4,1K --only allreduce "${quick[@]}" --plot "$work/a.svg"
[ "$(grep -c allreduce "$work/out")" -ge 3 ] || complain "$what: lines are missing"
grep -q 'weft / floor .* (geometric mean of 3' "$work/out" || complain "$what: no summary"
grep -q '<polyline' "$work/a.svg" || complain "$what: no curve"

# The document, from saved figures; this machine's picture is shown, others have none.
if [ -n "${WEFT_PYTHON:-}" ]; then
    "$WEFT_PYTHON" -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' "$work/a.svg" || complain "$what: the picture is no XML"
    run coll -n 2 --sizes 8 --only halo,barrier "${quick[@]}" --json
    "$WEFT_PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1])); assert len(d["rows"]) == 2' "$work/out" ||
        complain "$what: not the JSON that was expected"
    document=$WEFT_SOURCE_DIR/cmake/benchmarks.py
    run coll -n 2 --sizes 8 --save "$work/coll.json" "${quick[@]}"
    run reshard -n 2 --sizes 256K --save "$work/reshard.json" "${quick[@]}"
    run many -n 2 --only 25 --save "$work/many.json" "${quick[@]}"
    run halo -n 2 --sizes 64 --save "$work/halo.json" "${quick[@]}"
    run memory -n 1 --sizes 16K --save "$work/memory.json" "${quick[@]}"
    run overlap --rounds 3 --bytes 64K --json
    cp "$work/out" "$work/overlap.json"
    run pairs --pairs 4 --bytes 64K -n 3 --rounds 1 --json
    cp "$work/out" "$work/pairs.json"
    "$WEFT_PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1])); assert len(d["pairs"]) == 4 and len(d["deciles"]) == 11' \
        "$work/pairs.json" || complain "$what: not the JSON that was expected"
    echo '{"title": "one machine", "cpu": "this"}' >"$work/machine.json"
    mkdir -p "$work/docs/pictures"
    cp "$work/a.svg" "$work/docs/pictures/here-coll.svg"
    for name in here there; do
        "$WEFT_PYTHON" "$document" collect "$work/$name.json" machine="$work/machine.json" coll="$work/coll.json" \
            reshard="$work/reshard.json" halo="$work/halo.json" many="$work/many.json" memory="$work/memory.json" overlap="$work/overlap.json" \
            pairs="$work/pairs.json" ||
            complain "$document collect"
    done
    "$WEFT_PYTHON" "$document" document "$work/docs/benchmarks.md" "$work/here.json" "$work/there.json" || complain "$document"
    for lines in '^### 14' '^!\[ 1' '^| 2 | 256x256 2' '^| 2 | 3d x faces 2' '^| thread 2'; do
        [ "$(grep -c -- "${lines% *}" "$work/docs/benchmarks.md")" -eq "${lines##* }" ] ||
            complain "the document has not ${lines##* } lines with ${lines% *}"
    done
fi

# Random pairs: the same numbers give the same pairs, a pair can be run alone, and what is not a pair is refused.
for how in "" "--threads --private"; do
    run pairs --pairs 12 --bytes 64K -n 4 --rounds 1 $how
    grep -q '^The worst, and how to run each again:' "$work/out" || complain "$what: no worst pairs"
    sed -n 's/^ *[0-9.]*  \(.* -> .*\)/\1/p' "$work/out" | head -n 12 >"$work/pairs"
    [ "$(wc -l <"$work/pairs")" -eq 12 ] || complain "$what: not twelve pairs"
    run pairs --pairs 1 --from 0 --bytes 64K -n 4 --rounds 1 $how
    grep -qF -- "$(head -n 1 "$work/pairs")" "$work/out" || complain "$what: the first pair is another one"
    run pairs --pair "$(head -n 1 "$work/pairs")" --rounds 1 $how
done
"$WEFT_BIN" bench pairs --pair 'f32[8] @x2' >"$work/out" 2>"$work/err" && complain "bench pairs: half a pair is taken"
[ -s "$work/err" ] || complain "bench pairs: half a pair is refused without a word"

# The bus: every way of it, what a script of peers prints, and a script that is not there.
printf 'import sys\nassert "--bytes" in sys.argv\nprint("slow", 2.5, sep="\\t")\nprint("gone", "skipped: it is not here", sep="\\t")\n' >"$work/peers.py"
if [ -n "${WEFT_PYTHON:-}" ]; then
    run bus --bytes 64K --tensors 4 --rounds 1 --json --peers "$work/peers.py"
    "$WEFT_PYTHON" -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert [(x["cast_at"], x["digest"]) for x in d["lines"]] == [("put", False), ("put", True), ("fetch", False), ("fetch", True)]
assert all(x["put_ms"] > 0 and x["fetch_of_memcpy"] > 0 for x in d["lines"]) and d["gather_ms"] > 0
assert d["peers"] == [{"peer": "slow", "ms": 2500.0}, {"peer": "gone", "skipped": "skipped: it is not here"}]' "$work/out" ||
        complain "$what: not the JSON that was expected"
fi
"$WEFT_BIN" bench bus --bytes 1M --tensors 3 --rounds 1 --trainer --ms 20 --json >"$work/out" 2>"$work/err" ||
    complain "bench bus --trainer: $(cat "$work/err")"
[ "$(grep -c '"slower"' "$work/out")" = 2 ] || complain "bench bus --trainer: not all ways are there: $(cat "$work/out")"
WEFT_DEVICE=sim "$WEFT_BIN" bench bus --bytes 64K --tensors 3 --rounds 1 --device 0 --json >"$work/out" 2>"$work/err" ||
    complain "bench bus --device: $(cat "$work/err")"
[ "$(grep -c '"put_GBps"' "$work/out")" = 8 ] || complain "bench bus --device: not all ways are there: $(cat "$work/out")"
for other in --trainer --cpu "--peers $work/none.py"; do
    # shellcheck disable=SC2086 # an option and its value
    "$WEFT_BIN" bench bus --device 0 $other >"$work/out" 2>"$work/err" && complain "bench bus: --device $other is taken"
    grep -q -- "leave out ${other%% *};" "$work/err" || complain "bench bus: --device $other: $(cat "$work/err")"
done
for other in --cpu "--peers $work/none.py"; do
    # shellcheck disable=SC2086 # an option and its value
    "$WEFT_BIN" bench bus --trainer $other >"$work/out" 2>"$work/err" && complain "bench bus: --trainer $other is taken"
    grep -q -- "leave out ${other%% *};" "$work/err" || complain "bench bus: --trainer $other: $(cat "$work/err")"
done
"$WEFT_BIN" bench bus --bytes 64K --tensors 4 --rounds 1 --cpu --peers "$work/none.py" >"$work/out" 2>"$work/err" &&
    complain "bench bus: a script that is not there is taken"
grep -q 'no such script' "$work/err" || complain "bench bus: a script that is not there is refused without a word"
grep -q '^put     yes ' "$work/out" || complain "bench bus: the figures of weft are lost with the script"

# The MPI libraries, where they are: what they do is right too, and they leave nothing.
if [ -x "$WEFT_BUILD_DIR/bench/peer_openmpi" ] && command -v mpirun.openmpi >/dev/null; then
    run reshard -n 4 --sizes 256K --peers "${quick[@]}" --csv; right 60
    run coll -n 2 --sizes 4K --only reduce_scatter,halo --peers "${quick[@]}" --csv; right 16
    run many -n 2 --only 25 --peers "${quick[@]}" --csv; right 8
    run halo -n 4 --sizes 4K --peers "${quick[@]}" --csv; right 60
    nothing_left "$what"
fi

# What was measured before an end from outside, or before a rank died or a cell failed, is said and saved, marked as incomplete.
# stopped HOW CODE WHY: once the first row is there the benchmark, or one of its ranks, gets the signal.
stopped()
{
    local pid children code n
    what="bench coll, $1"
    rm -f "$work/part.json"
    : >"$work/out"
    env --default-signal=INT "$WEFT_BIN" bench coll -n 2 --ms 300 --only barrier,allreduce --sizes 8:16M --save "$work/part.json" \
        >"$work/out" 2>"$work/err" &
    pid=$!
    until grep -q barrier "$work/out"; do
        kill -0 "$pid" 2>/dev/null || break
        read -rt 0.01 <> <(:)
    done
    children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    case $1 in
        rank) kill -KILL "${children%% *}" ;;
        *) kill "-$1" "$pid" ;;
    esac
    { wait "$pid"; } 2>/dev/null
    code=$?
    [ "$code" -eq "$2" ] || complain "$what: exit code $code, should be $2"
    n=$(grep -c '^ *2  ' "$work/out")
    if [ "$n" -lt 1 ] || [ "$n" -gt 20 ]; then
        complain "$what: $n rows"
    fi
    grep -qx "incomplete: $3" "$work/out" || complain "$what: not marked as incomplete"
    grep -q "\"incomplete\": \"$3\"" "$work/part.json" || complain "$what: not saved, or not marked"
    [ "$(grep -c '"what"' "$work/part.json")" -eq "$n" ] || complain "$what: other rows are saved than were printed"
}
stopped INT 130 interrupted
stopped TERM 143 interrupted
stopped rank 1 "rank 0 was ended by signal 9 (Killed)"
"$WEFT_BIN" bench coll -n 2 --only allreduce --sizes 8,1024G "${quick[@]}" --csv >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || complain "what needs more memory than there is: not a failure"
grep -q '^coll,2,"allreduce",8,"weft",' "$work/out" || complain "what needs more memory than there is: the row before it is lost"
grep -q '^# incomplete: rank [01]: no memory' "$work/out" || complain "what needs more memory than there is: not marked"
# in_time SIGNAL CODE ARGUMENTS...: gets the signal once its children are there; ends by it.
in_time()
{
    local pid signal=$1 want=$2 code
    shift 2
    env --default-signal=INT "$WEFT_BIN" bench "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    until [ -n "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)" ]; do
        kill -0 "$pid" 2>/dev/null || break
    done
    kill "-$signal" "$pid"
    { wait "$pid"; } 2>/dev/null
    code=$?
    [ "$code" -eq "$want" ] || complain "bench $*, $signal: exit code $code, should be $want"
    grep -q interrupted "$work/err" || complain "bench $*, $signal: it does not say why it ended"
}
in_time INT 130 overlap --rounds 1000 --bytes 256M
in_time TERM 143 lower
if [ -n "${WEFT_PYTHON:-}" ]; then
    "$WEFT_PYTHON" "$WEFT_SOURCE_DIR/cmake/benchmarks.py" collect "$work/none.json" coll="$work/part.json" 2>"$work/err" &&
        complain "the document takes figures that are incomplete"
    grep -q "is incomplete" "$work/err" || complain "the document: it does not say what is incomplete"
fi

# Ended from outside, it ends what it started. Its children are there once it has begun.
"$WEFT_BIN" bench coll -n 2 --peers --ms 60000 --only allreduce >"$work/out" 2>"$work/err" &
pid=$!
until children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) && [ "$(wc -w <<<"$children")" -ge 3 ]; do
    kill -0 "$pid" 2>/dev/null || break
done
kill -TERM "$pid"
wait "$pid" 2>/dev/null
[ $? -eq 143 ] || complain "SIGTERM: it did not end by it"
for child in $children; do
    kill -0 "$child" 2>/dev/null && complain "SIGTERM: process $child is left"
done
nothing_left SIGTERM

for bad in "-n 0" "-n 2,x" "--sizes 0" "--sizes 8:4" "--on tcp:" "--json --csv" "--window --private" "--algorithm none"; do
    # shellcheck disable=SC2086  # words
    "$WEFT_BIN" bench coll $bad >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] || complain "weft bench coll $bad: not refused"
done
"$WEFT_BIN" bench many --sizes 8 >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || complain "weft bench many --sizes: not refused"
"$WEFT_BIN" bench halo --sizes 8M >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || complain "weft bench halo --sizes 8M: not refused"
"$WEFT_BIN" bench reshard --sizes 8 >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || complain "weft bench reshard --sizes 8: not refused"
exit $failed
