#!/usr/bin/env bash
# The models of the barriers and of the slots, checked by spin in all orders in which ranks can act: nothing is found in
# them, and what is broken on purpose is found. With WEFT_TEST_SHARE=full larger ones, too.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
command -v spin >/dev/null || { echo "skip: spin is not installed"; exit 77; }
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$WEFT_BUILD_DIR/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$WEFT_SOURCE_DIR"/tests/models/*.pml "$work" && cd "$work" || exit 1
failed=0 optimise=-O2
complain() { echo "$1"; failed=1; }

# search WHAT...: makes and runs the checker of a model with -D options; its words are in ./out.
search()
{
    local model=$1
    shift
    rm -f pan pan.*
    spin "$@" -a "$model.pml" >out 2>&1
    [ -f pan.c ] || { complain "$model $*: spin: $(tail -n 3 out)"; return 1; }
    "$cc" "$optimise" -w -DSAFETY -DCOLLAPSE -DMEMLIM=2000 pan.c -o pan >out 2>&1 ||
        { complain "$model $*: the checker does not compile: $(head -n 3 out)"; return 1; }
    ./pan -m100000 >out 2>&1
}

# right WHAT...: every state was visited, and nothing is wrong.
right()
{
    search "$@" || return
    if ! grep -q 'errors: 0$' out || grep -qE 'Search not completed|max search depth|memory limit' out; then
        complain "$*: $(grep -E '^pan:|errors:|depth too small|memory' out | head -n 3)"
    else
        echo "$*: right in$(sed -n 's/ states, stored.*//p' out) states"
    fi
}

# broken KIND WHAT...: found, as an assertion that fails or a state in which ranks wait for ever.
broken()
{
    local kind=$1
    shift
    search "$@" || return
    grep -q "^pan:1: $kind" out || complain "$*: what is broken was not found: $(grep 'errors:' out)"
}

right barrier
right barrier -DROUNDS=3
right barrier -DPAIRS -DROUNDS=1
right slots
right slots -DDIRECT
right slots -DSTAR -DN=3 -DMESSAGES=1
if [ "${WEFT_TEST_SHARE:-}" = full ]; then
    right barrier -DN=4
    right barrier -DPAIRS
    right slots -DSTAR -DN=3
    right slots -DSTAR -DN=3 -DSLOTS=2 -DLIMIT=1
    right slots -DSTAR -DN=3 -DDIRECT
    right slots -DSLOTS=3 -DMESSAGES=3 -DRUNS=3
fi

optimise=-O0 # found at once
stuck='invalid end state' wrong='assertion violated'
for model in barrier 'barrier -DPAIRS' slots 'slots -DDIRECT'; do
    for fault in NO_LOOK LATE_BELL EARLY_RING; do
        # shellcheck disable=SC2086  # a model and its options
        broken "$stuck" $model -D$fault
    done
done
broken "$stuck" barrier -DNO_GENERATION
broken "$wrong" barrier -DPAIRS -DONE_COUNT
broken "$wrong" slots -DEARLY_DONE
broken "$wrong" slots -DEARLY_READY
broken "$wrong" slots -DDIRECT -DEARLY_DONE
broken "$stuck" slots -DNO_RECEIVE
exit "$failed"
