#!/usr/bin/env bash
# shellcheck disable=SC2016  # what stands between backquotes is text
# What the documents show is true: every command in a ```console block of README.md and docs/ prints what stands below
# it and ends with 0 (or with what a following `echo $?` shows), every ```c block compiles without warnings, links
# and runs, every pair of layouts in a table lowers, links between documents lead somewhere, the numbers in
# docs/limits.md are those of the sources, every document is a page of the site, and the README is short.
#
# In a console block a line "$ COMMAND" is run, the lines up to the next one are its whole output, and a line "..."
# stands for any lines. The commands of one file share one empty folder.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/blocks"
ln -s "$WEFT_BIN" "$work/bin/weft"
export PATH=$work/bin:$PATH
failed=0 commands=0 programs=0 pairs=0
complain() { echo "$1"; failed=1; }

# blocks FILE LANGUAGE: each such block goes to blocks/LINE, LINE being that of its first line.
blocks()
{
    rm -f "$work"/blocks/*
    awk -v want="$2" -v dir="$work/blocks" '
        /^```/ && !inside { inside = 1; out = $0 == "```" want ? sprintf("%s/%06d", dir, NR + 1) : ""; next }
        /^```/ { inside = 0; if (out) close(out); next }
        inside && out { print > out }
        ' "$1"
}

# same WANT GOT: equal, line by line, with "..." in WANT for any lines.
same()
{
    awk -v want="$1" '
        BEGIN { n = 0; while ((getline line < want) > 0) w[++n] = line }
        { g[NR] = $0 }
        END {
            # can[i]: the first i lines of want match what has been read so far
            can[0] = 1
            for (i = 1; i <= n; i++) can[i] = can[i - 1] && w[i] == "..."
            for (k = 1; k <= NR; k++) {
                for (i = n; i >= 1; i--) can[i] = w[i] == "..." ? can[i] : can[i - 1] && w[i] == g[k]
                can[0] = 0
                for (i = 1; i <= n; i++) if (w[i] == "...") can[i] = can[i] || can[i - 1]
            }
            exit !can[n]
        }' "$2"
}

# run_block FILE BLOCK: a shell runs the commands; "$?" is that of the command before.
run_block()
{
    local file=$1 block=$2 command='' status=0 line wanted=0
    run_command()
    {
        [ -n "$command" ] || return 0
        commands=$((commands + 1))
        if [[ "$command" == 'echo $?' ]]; then
            echo "$status" >"$work/got"
            status=0
        else
            # A failure that nobody looks at is a failure of the document.
            [ "$status" -eq 0 ] || complain "$file: exit status $status of the command before: $command"
            (cd "$work/folder" && exec bash -c "$command") >"$work/got" 2>&1 </dev/null
            status=$?
        fi
        if ! same "$work/want" "$work/got"; then
            complain "$file: $command"
            diff "$work/want" "$work/got" | sed 's/^/    /'
        fi
    }
    : >"$work/want"
    while IFS= read -r line || [ -n "$line" ]; do
        if [ "${line:0:2}" = '$ ' ]; then
            run_command
            command=${line:2}
            : >"$work/want"
        elif [ -z "$command" ]; then
            complain "$file: a console block starts with a command, not with: $line"
        else
            printf '%s\n' "$line" >>"$work/want"
        fi
        wanted=1
    done <"$block"
    run_command
    [ "$status" -eq 0 ] || complain "$file: exit status $status: $command"
    [ "$wanted" -eq 1 ] || complain "$file: an empty console block"
}

cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$WEFT_BUILD_DIR/CMakeCache.txt")
sanitize=$(sed -n 's/^WEFT_SANITIZE:[A-Z]*=\(..*\)/-fsanitize=\1/p' "$WEFT_BUILD_DIR/CMakeCache.txt")

build_program()
{
    programs=$((programs + 1))
    # shellcheck disable=SC2086  # the option may be absent
    if ! { "$cc" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror $sanitize -I"$WEFT_SOURCE_DIR/include" -x c "$2" -x none \
        "$WEFT_BUILD_DIR/libweft.a" -pthread -lm -o "$work/program" && "$work/program"; } >"$work/got" 2>&1; then
        complain "$1: the program at line $((10#$(basename "$2"))): $(head -n 5 "$work/got")"
    fi
}

# A command line that stands in another kind of block would go unchecked.
stray_commands()
{
    awk '/^```/ { inside = !inside; skip = $0 == "```console"; next }
         (inside && !skip || /^    /) && /^[ ]*(\$ )?weft (plan|check|reshard|bench|info|run)( |$)/ { print FILENAME ": " FNR ": " $0 }' "$1"
}

check_links()
{
    local file=$1 target dir
    dir=$(dirname "$file")
    while IFS= read -r target; do
        case $target in
            http*) ;;
            *) [ -e "$dir/${target%%#*}" ] || complain "$file: the link to $target leads nowhere" ;;
        esac
    done < <(grep -oE '\]\([^)]+\)' "$file" | sed 's/^](\(.*\))$/\1/')
}

lower_pairs()
{
    local src dst
    while IFS=$'\t' read -r src dst; do
        pairs=$((pairs + 1))
        weft plan "$src" "$dst" >"$work/got" 2>&1 || complain "$1: $src -> $dst: $(head -n 3 "$work/got")"
    done < <(sed -n 's/^|.*| `\([^`]*@[^`]*\)` | `\([^`]*@[^`]*\)` |$/\1\t\2/p' "$2")
}

for file in "$WEFT_SOURCE_DIR"/*.md "$WEFT_SOURCE_DIR"/docs/*.md; do
    name=${file#"$WEFT_SOURCE_DIR"/}
    mkdir "$work/folder"
    blocks "$file" console
    for block in "$work"/blocks/*; do
        [ -f "$block" ] && run_block "$name" "$block"
    done
    blocks "$file" c
    for block in "$work"/blocks/*; do
        [ -f "$block" ] && build_program "$name" "$block"
    done
    rm -rf "$work/folder"
    stray=$(stray_commands "$file")
    [ -z "$stray" ] || complain "these commands belong into a console block: $stray"
    check_links "$file"
    lower_pairs "$name" "$file"
done
if [ "$commands" -lt 9 ] || [ "$programs" -lt 1 ] || [ "$pairs" -lt 7 ]; then
    complain "only $commands commands, $programs programs and $pairs pairs were found"
fi

# limit FILE SOURCE-LINE WORDS [DOCUMENT]: the source still has this line, and docs/limits.md (or DOCUMENT) says so. The
# name of a file of src/ is enough: no two have the same one.
limit()
{
    local file document=${4:-docs/limits.md}
    file=$WEFT_SOURCE_DIR/$1
    [ -f "$file" ] || file=$(find "$WEFT_SOURCE_DIR/src" -name "$(basename "$1")")
    # A formatter may put a backslash and a new line where a blank was.
    sed -z 's/\\\n */ /g; s/  */ /g' "$file" | grep -qF -- "$2" || complain "$document: $1 no longer has '$2'"
    grep -qF -- "$3" "$WEFT_SOURCE_DIR/$document" || complain "$document does not say '$3'"
}
limit include/weft.h '#define WEFT_MAX_DIMS 8' '0 to 8 (`WEFT_MAX_DIMS`)'
limit include/weft.h '#define WEFT_MAX_AXES 8' '1 to 8 (`WEFT_MAX_AXES`)'
limit include/weft.h '#define WEFT_MAX_NAME 31' '31 characters (`WEFT_MAX_NAME`)'
limit src/layout/build.c '#define MAX_WRAPS 1024' '1024 times the extent'
limit src/layout/build.c '#define MAX_BYTES ((int64_t)1 << 62)' '2^62 bytes'
limit python/weft/_pieces.py 'LIMIT = 1 << 14 ' '16,384 boxes of one copy'
limit src/layout/runs.h '#define RUNS_MOST (1 << 22)' '2^22 different ways to meet'
limit src/layout/blocks.c '#define MOST ((size_t)1 << 22)' '2^22 boxes, of values and of maxima'
limit src/engine/overlap.c '#define MAX_SLOTS ((size_t)1 << 22)' '2^22 blocks along a dim'
limit src/comm/environment.c '"WEFT_INFLIGHT_BYTES", 1, INT64_MAX / 4, INT64_C(64) << 20' '`inflight_bytes` (64 MiB)'
limit src/comm/environment.c '"WEFT_INFLIGHT_BUCKETS", 1, 1 << 20, 256' '`inflight_buckets` (256)'
limit src/comm/environment.c '30 * SECOND' '`deadline_ns` (30 s)'
limit src/engine/ways/eager.c '#define EAGER_LIMIT (512 << 10)' 'at most 512 KiB'
limit src/engine/ways/eager.c 'x->comm->staging.limit / 4' 'a quarter of `inflight_bytes`'
limit src/engine/outline.c '#define CHOICE_POOL 4' 'no more than a quarter of it is taken'
limit src/engine/outline.c '#define CHOICE_MESSAGE 64' 'up to a 64th of it'
limit src/base/sized.h '#define SIZED_MOST 4096' '4,096 bytes; bytes that the library does not know must be zero'
limit src/engine/device/symbol.h '#define SYMBOL_OBJECT_BITS 14' '16,384, of up to 256 GiB each'
limit src/engine/device/symbol.h '#define SYMBOL_OFFSET_BITS 38' '16,384, of up to 256 GiB each'
limit src/device/cuda/cuda.c 'CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / 4' '7 on one GPU, in all comms'
limit src/device/cuda/kernels.cu '__launch_bounds__(DEVICE_THREADS, 2)' '7 on one GPU, in all comms'
limit src/device/device_table.h '#define MEET_BLOCKS 32' 'of up to 32 blocks' docs/gpu.md
limit src/device/device_table.h '#define MEET_WORK 128 ' 'at most 128 blocks' docs/gpu.md
limit src/engine/device/symbol.h '#define SYMBOL_RANKS 4095' '| 4,095 | carried |'
limit src/base/defaults.h '#define DEFAULTS_EAGER 4096' 'messages of up to 4,096 bytes'
limit src/engine/ways/eager.h '#define EAGER_SLOTS 16' '16 runs ahead'
limit src/comm/wait.c '#define PATIENCE_NS 1000000' 'after 1 ms' docs/running.md
limit src/comm/flight.h '#define FLIGHT_EVENTS 256' 'the last 256'
limit src/comm/trace.h '#define TRACE_EVENTS 65536' 'the last 65,536'
limit src/comm/trace.h '#define TRACE_CLOCKS 64' 'the last 63'
limit src/comm/trace.h '#define TRACE_NAME 255' '255 letters'
limit src/cli/trace/trace_files.c '#define MOST (INT64_C(1) << 58)' 'below 2^58 ns'
limit src/cli/trace/trace_files.c '#define HOPS 8' 'that of the first one | 8 |'
limit src/comm/flight.h '#define FLIGHT_DIR 512' '511 letters'
limit src/cli/diagnose/flight_files.h '#define FLIGHT_FILES_RANKS 65536' '65,536 ranks'
limit src/tool/whole_file.c '#define LARGEST (INT64_C(1) << 28)' '256 MiB'
limit src/exchange/exchange.c '#define BUDGET (INT64_C(16) << 20)' '`budget` (16 MiB)'
limit src/exchange/pipe.h '#define PIPE_LEAST ((size_t)32 << 10)' 'pipes of 32 to 256 KiB'
limit src/exchange/pipe.h '#define PIPE_MOST ((size_t)256 << 10)' 'pipes of 32 to 256 KiB'
limit include/weft.h '#define WEFT_EXCHANGE_SMALL 8192' '`WEFT_EXCHANGE_SMALL` (8,192 bytes)'
limit src/window/window.h '#define WINDOW_PAGE 4096' 'a power of two up to 4096'
limit src/window/window.c '#define MOST ((uint64_t)1 << 62)' '| 2^62 | refused; so is'
limit src/transport/threads/threads.c '#define MAX_RANKS 65536' 'N up to 65,536'
limit src/rendezvous/store.h '#define STORE_KEY_MAX 200 ' '| keys | 200 letters'
limit src/rendezvous/store.h '#define STORE_VALUE_MAX 65536 ' '| values | 64 KiB |'
limit src/rendezvous/store.h '#define STORE_RANKS_MAX 65536' '| ranks | 65,536 |'
limit src/rendezvous/store.h '#define STORE_ENTRIES_MAX 262144 ' '262,144 keys'
limit src/rendezvous/store.h '#define STORE_BYTES_MAX ((size_t)256 << 20)' '256 MiB'
limit src/rendezvous/server.h '#define SERVER_TOKEN_MIN 16 ' '16 to 1,024 letters'
limit src/rendezvous/frame.h '#define FRAME_KEY_FRAMES (UINT64_C(1) << 20)' '1,048,576 frames of at most 128 KiB'
limit src/rendezvous/server.h '#define SERVER_STRANGERS 256' '256 at once, 73 bytes and 5 s each'
limit src/rendezvous/server.h '#define SERVER_PROVE_NS INT64_C(5000000000)' '256 at once, 73 bytes and 5 s each'
limit src/rendezvous/server.h '#define SERVER_STAY_NS INT64_C(250000000)' 'from a quarter of a second on'
limit src/rendezvous/server.h '#define SERVER_FRAME_NS INT64_C(10000000000)' 'once begun | 10 s |'
limit src/rendezvous/store_tcp.c '#define GRACE_NS INT64_C(10000000000)' '10 s beyond the timeout'
limit src/rendezvous/store_pmix.c '#define PLACES 16 ' '16, IPv4'
limit src/layout/build.c 'ghosts need contiguous pieces' 'ghosts with blocks'
limit src/layout/parse.c 'runs backwards' '`3..0` is refused'
limit src/layout/layout.c 'only sum has an adjoint' 'layouts whose folds are all `sum`'
limit src/lower/lower.c 'a destination cannot have +avg' '`avg` in a destination'
limit src/lower/lower.c 'has two different shapes' 'the same shape'
limit src/lower/lower.c 'there is no cast from %s to %s' 'there is no cast from complex to real'
limit src/lower/draft.c 'the plan needs more than 2^32' '2^32 each'
limit src/lower/rows/rows.c "the group's size is not a power of two" 'a power of two'
limit src/lower/rows/rows.c '{"one_phase", "allreduce", 0,' '`one_phase` on an allreduce | not with `in_place`'
limit src/lower/rows/rows.c 'it takes one fold, and the source has several' 'a source with one fold at most'
limit src/engine/overlap.c "a fold in place needs weft_lower's in_place option" 'a fold needs `in_place` when lowering'
limit src/checkpoint/safetensors.h '#define SAFETENSORS_HEADER_MAX 100000000 ' '| 100,000,000 bytes |'
limit src/checkpoint/checkpoint.h '#define CHECKPOINT_CONFIG_MOST ((size_t)16 << 20)' '| 16 MiB | refused |'
limit src/checkpoint/checkpoint.h '#define CHECKPOINT_RANKS 65536 ' '65,536, each with a file that is open'
limit src/checkpoint/rules.h '#define RULES_PARTS 8 ' '| parts of a fused tensor | 8,'
limit src/checkpoint/rules.h '#define RULES_NUMBER_MAX 999999999 ' 'up to 999,999,999'
limit src/checkpoint/move.c '#define THREADS_MOST 64' '| threads | 1 to 64 |'
limit src/checkpoint/move.c '#define MEMORY_LEAST (INT64_C(1) << 20)' '1 MiB at least'
limit src/cli/files/npy.h '#define NPY_HEADER_MAX (1 << 20)' '| `.npy` header | 1 MiB |'
limit src/cli/cmd_plan.c '#define SHOWN 64' 'the text lists 64 pairs'
for algorithm in $("$WEFT_BIN" info | sed -n 's/^algorithms *//p'); do
    grep -q "^| .*\`$algorithm\`" "$WEFT_SOURCE_DIR/docs/limits.md" || complain "docs/limits.md: no row for $algorithm"
done
for transport in $("$WEFT_BIN" info | sed -n 's/^transports *//p'); do
    grep -qF "\`$transport\`" "$WEFT_SOURCE_DIR/docs/limits.md" || complain "docs/limits.md: no word of $transport"
done

# drawn BEGIN END FILE COMMAND...: what stands between the two marks is what the command prints, as an indented block.
drawn()
{
    local begin=$1 end=$2 file=$3
    shift 3
    awk -v begin="<!-- $begin" -v end="<!-- $end" 'index($0, end) == 1 { on = 0 } on; index($0, begin) == 1 { on = 1 }' \
        "$WEFT_SOURCE_DIR/$file" >"$work/want"
    "$@" | sed 's/^/    /' >"$work/got"
    [ -s "$work/got" ] || complain "$file: $* prints nothing"
    diff "$work/want" "$work/got" || complain "$file: between '$begin' and '$end' should be what '$*' prints (include_direction.sh --write)"
}
layers=$(find "$WEFT_SOURCE_DIR/tests" -name include_direction.sh)
drawn 'layers:' 'end of layers' docs/architecture.md bash "$layers" --draw

# The README is read in one go, and so is a row of a table of limits.
lines=$(wc -l <"$WEFT_SOURCE_DIR/README.md")
[ "$lines" -le 160 ] || complain "README.md has $lines lines, at most 160 are wanted"
long=$(awk -F '|' '/^\|/ { for (i = 2; i < NF; i++) if (split($i, w, " ") > 35) print FILENAME ":" FNR ":" $i }' \
    "$WEFT_SOURCE_DIR/docs/limits.md")
[ -z "$long" ] || complain "cells of more than 35 words: $long"

# Every document is a page of the site, and in the list of all documents.
for document in "$WEFT_SOURCE_DIR"/docs/*.md; do
    name=$(basename "$document")
    [ "$name" = README.md ] && continue
    grep -qE "docs/$name( |\$)" "$WEFT_SOURCE_DIR/cmake/site.py" || complain "docs/$name is in no section of cmake/site.py"
    grep -qF "($name)" "$WEFT_SOURCE_DIR/docs/README.md" || complain "docs/README.md does not list $name"
done

echo "$commands commands, $programs programs and $pairs pairs in the documents"
exit "$failed"
