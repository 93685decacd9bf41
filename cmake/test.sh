#!/usr/bin/env bash
# Runs test suites and sums them up: test.sh SUITE..., with SUITE one of ordinary, check, soak, asan,
# tsan, fuzz, coverage. Each has its own build tree. The last line is "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/.." || exit 1

build=${BUILD:-build}
jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-8}
passed=0 failed=0 skipped=0
failures=() skips=()
# Ninja, where it is there, takes a third of the time that make takes beside the compilers.
command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}

fail() { failed=$((failed + 1)); failures+=("$1"); }
skip() { skipped=$((skipped + 1)); skips+=("$1"); }

# build_tree TREE TARGET CMAKE-OPTIONS...
build_tree()
{
    local tree=$1 target=$2 log=$1/build.log
    shift 2
    mkdir -p "$tree"
    # No test runs the CUDA kernels, so they are compiled for one architecture.
    # shellcheck disable=SC2086  # CMAKE_ARGS is a list
    if ! { cmake -S . -B "$tree" -DWEFT_DEVELOPER=ON -DWEFT_CUDA_ARCHS=90 ${CMAKE_ARGS:-} "$@" &&
        MAKEFLAGS=--no-print-directory cmake --build "$tree" --target "$target" --parallel "$jobs"; } >"$log" 2>&1; then
        grep -vE '^\[ *[0-9]+(%|/[0-9]+)\]|^-- ' "$log" | head -n 60
        echo "the build failed, see $log"
        return 1
    fi
}

# built SUITE: builds its tree, or waits until build_later has built it.
declare -A builders=()
later=()
built()
{
    if [ -n "${builders[$1]:-}" ]; then wait "${builders[$1]}"; else "build_$1"; fi || { fail "$1: the build failed"; return 1; }
}

# Builds the trees of the later suites in the background while tests run, one tree after the other: with what the tests leave of the
# cores, since it gives way to every other process.
build_later()
{
    local suite before=''
    [ ${#builders[@]} -eq 0 ] || return
    for suite in "${later[@]}"; do
        {
            chrt --idle --pid 0 "$BASHPID" >/dev/null 2>&1 || renice -n 19 "$BASHPID" >/dev/null
            [ -z "$before" ] || tail --pid="$before" -f /dev/null
            "build_$suite"
        } &
        before=$! builders[$suite]=$!
    done
}

# Reads CTest's JUnit file: lines of "status<TAB>name<TAB>reason", one a test and one more for each
# case that cmocka skipped inside a test. The reason of a skip is its line "skip: ...", else the
# last line before it. A test that could not be started is "notrun" like a skip; its message differs.
read_junit()
{
    awk '
        function attr(name,  s) {
            s = $0
            return sub(".*[ \t]" name "=\"", "", s) ? substr(s, 1, index(s, "\"") - 1) : ""
        }
        function tell(status, name, reason) {
            sub(/^skip: /, "", reason)
            gsub(/&lt;/, "<", reason); gsub(/&gt;/, ">", reason); gsub(/&quot;/, "\"", reason)
            gsub(/&apos;/, "\047", reason); gsub(/&amp;/, "\\&", reason)
            printf "%s\t%s\t%s\n", status, name, reason
        }
        /<testcase / { name = attr("name"); status = attr("status"); reason = last = ""; out = 0; split("", seen) }
        /<skipped /  { if (attr("message") ~ /^SKIP_/) status = "skip" }
        /<system-out>/ { sub(/.*<system-out>/, ""); out = 1 }
        out {
            line = $0
            end = sub(/<\/system-out>.*/, "", line)
            if (line ~ /^\[  SKIPPED \] [A-Za-z0-9_]+$/) {
                if (!(line in seen)) tell("skip", name "." substr(line, 14), last)
                seen[line] = 1
            } else if (line ~ /[^ \t]/) {
                last = line
                if (reason !~ /^skip: /) reason = line
            }
            if (end) out = 0
        }
        /<\/testcase>/ { tell(status, name, reason) }
    ' "$1"
}

# run_ctest SUITE TREE EXCLUDE CTEST-OPTIONS...: the tests without a label that matches EXCLUDE (empty: all). Most tests wait now and
# then, so that one more runs than there are cores. Those labelled waits need time and no core: they run last, many at once.
run_ctest()
{
    local suite=$1 tree=$2 exclude=$3
    shift 3
    build_later
    run_pass "$suite" "$tree" $((jobs + 1)) -LE "^(waits${exclude:+|$exclude})\$" "$@"
    run_pass "$suite" "$tree" $((3 * jobs)) -L '^waits$' ${exclude:+-LE "^($exclude)\$"} "$@"
}

# run_pass SUITE TREE JOBS CTEST-OPTIONS...
run_pass()
{
    local suite=$1 tree=$2 at_once=$3 status name reason
    shift 3
    rm -f "$tree/junit.xml"
    ${launcher:-} ctest --test-dir "$tree" --output-on-failure --parallel "$at_once" --no-tests=ignore \
        --no-label-summary --test-output-size-passed 1000000 --output-junit junit.xml "$@"
    if [ ! -f "$tree/junit.xml" ]; then
        fail "$suite: ctest gave no result"
        return
    fi
    while IFS=$'\t' read -r status name reason; do
        case $status in
            run) passed=$((passed + 1)) ;;
            skip) skip "$suite: $name: $reason" ;;
            *) fail "$suite: $name" ;;
        esac
    done < <(read_junit "$tree/junit.xml")
}

# Lines of the source are enough for the reports: with all of -g gcc takes a fifth longer.
sanitized="-O1 -g1"

build_ordinary() { build_tree "$build" all -DWEFT_TESTS=ON -DWEFT_SOAK=OFF -DWEFT_TIMEOUT_SCALE=1; }

suite_ordinary()
{
    built ordinary || return
    WEFT_TEST_SHARE=${WEFT_TEST_SHARE:-10} run_ctest ordinary "$build" ""
}

# A quick share of the ordinary tests: those that are not labelled long, with small counts.
build_check() { build_ordinary; }

suite_check()
{
    built check || return
    WEFT_TEST_SHARE=${WEFT_CHECK_SHARE:-2} run_ctest check "$build" long
}

build_soak() { build_tree "$build" all -DWEFT_TESTS=ON -DWEFT_SOAK=ON -DWEFT_TIMEOUT_SCALE=60; }
build_soak_asan()
{
    build_tree "$build-asan" all -DWEFT_TESTS=ON -DWEFT_SOAK=ON -DWEFT_SANITIZE=address,undefined -DWEFT_TIMEOUT_SCALE=60 \
        -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="$sanitized"
}

suite_soak()
{
    built soak || return
    WEFT_TEST_SHARE=full run_ctest soak "$build" ""
    # Attacks with all their frames where a byte beyond a buffer is seen, and kernels with all checks.
    built soak_asan || return
    WEFT_TEST_SHARE=full run_ctest soak "$build-asan" "" -R '^(wire_attack|store_tcp|forged|memory.*|kernel_bits|sum|pick)$'
}

# The ordinary tests with small counts, in a tree that counts which lines are run. Without vector loops by the compiler's
# own choice, and with counters that threads share.
build_coverage()
{
    build_tree "$build-coverage" all -DWEFT_TESTS=ON -DWEFT_TIMEOUT_SCALE=3 -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG="-O1 -g --coverage -fprofile-update=atomic"
}

suite_coverage()
{
    built coverage || return
    find "$build-coverage" -name '*.gcda' -delete
    WEFT_TEST_SHARE=${WEFT_COVERAGE_SHARE:-2} run_ctest coverage "$build-coverage" "" -E '^(instructions|lower_speed|tidy|format)$'
    python3 cmake/coverage.py . "$build-coverage" || fail "coverage: no figures"
}

build_asan()
{
    build_tree "$build-asan" all -DWEFT_TESTS=ON -DWEFT_SOAK=OFF -DWEFT_SANITIZE=address,undefined -DWEFT_TIMEOUT_SCALE=3 \
        -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="$sanitized"
}

suite_asan()
{
    built asan || return
    WEFT_TEST_SHARE=${WEFT_ASAN_SHARE:-2} run_ctest asan "$build-asan" ""
}

build_tsan()
{
    build_tree "$build-tsan" tests_threads -DWEFT_TESTS=ON -DWEFT_SANITIZE=thread -DWEFT_TIMEOUT_SCALE=3 \
        -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="$sanitized"
}

suite_tsan()
{
    built tsan || return
    # Some kernels place mappings where TSan keeps its shadow; without randomised addresses they do not.
    local launcher=
    echo 'int main(void) { return 0; }' >"$build-tsan/probe.c"
    "${CC:-cc}" -fsanitize=thread "$build-tsan/probe.c" -o "$build-tsan/probe"
    if ! "$build-tsan/probe" >/dev/null 2>&1; then
        launcher="setarch $(uname -m) -R"
        if ! $launcher "$build-tsan/probe" >/dev/null 2>&1; then
            skip "tsan: ThreadSanitizer does not run on this kernel"
            return
        fi
    fi
    WEFT_TEST_SHARE=${WEFT_TSAN_SHARE:-2} run_ctest tsan "$build-tsan" "" -L threads
}

# The kept corpus is read, what is found goes to the build tree.
run_fuzzer()
{
    local name=$1 tree=$2 kept=tests/fuzz/corpus/$1 options=()
    mkdir -p "$tree/corpus/$name"
    [ -d "$kept" ] || kept=
    [ -f "tests/fuzz/$name.dict" ] && options+=("-dict=tests/fuzz/$name.dict")
    "$tree/fuzz/$name" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$tree/$name-" "${options[@]}" "$tree/corpus/$name" ${kept:+"$kept"} >"$tree/$name.log" 2>&1
}

# Without libFuzzer there is nothing to build, and suite_fuzz says so.
can_fuzz()
{
    echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null 2>/dev/null
}

build_fuzz()
{
    can_fuzz || return 0
    build_tree "$build-fuzz" fuzzers -DCMAKE_C_COMPILER=clang -DWEFT_FUZZ=ON \
        -DWEFT_SANITIZE=fuzzer-no-link,address,undefined -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG="$sanitized"
}

suite_fuzz()
{
    local tree=$build-fuzz names=() pids=() i
    built fuzz || return
    for source in tests/fuzz/*.c; do
        [ -f "$source" ] && names+=("$(basename "$source" .c)")
    done
    [ ${#names[@]} -eq 0 ] && return
    if ! can_fuzz; then
        skip "fuzz: clang with libFuzzer is not installed (${#names[@]} fuzzers)"
        return
    fi
    echo "fuzz: ${names[*]}, $fuzz_seconds s each"
    for name in "${names[@]}"; do
        run_fuzzer "$name" "$tree" &
        pids+=($!)
    done
    for i in "${!names[@]}"; do
        if wait "${pids[i]}"; then
            passed=$((passed + 1))
            echo "fuzz: ${names[i]}: $(tail -n 1 "$tree/${names[i]}.log")"
        else
            tail -n 40 "$tree/${names[i]}.log"
            fail "fuzz: ${names[i]}: see $tree/${names[i]}.log and $tree/${names[i]}-*"
        fi
    done
}

while [ $# -gt 0 ]; do
    suite=$1
    shift
    later=("$@")
    echo "== $suite"
    SECONDS=0
    "suite_$suite"
    echo "== $suite took $SECONDS s"
done

echo
[ ${#skips[@]} -eq 0 ] || printf 'skipped: %s\n' "${skips[@]}"
[ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
