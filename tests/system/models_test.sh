#!/usr/bin/env bash
# The models of wake-ups, barriers, channels, eager messages, assisted pulls, shared work, the progress lock, replays of graphs, survivors, and the bus, checked by spin
# in all orders in which ranks can act: nothing is found in them, and what is broken on purpose is found. With WEFT_TEST_SHARE=full larger ones, too, and with another share
# a third of the small ones, a quarter of the large ones and an eighth of what is broken. Which ones these are changes with the text of the models.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
command -v spin >/dev/null || { echo "skip: spin is not installed"; exit 77; }
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$WEFT_BUILD_DIR/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$WEFT_SOURCE_DIR"/tests/models/*.pml "$work" && cd "$work" || exit 1
failed=0 optimise=-O0
full=$([ "${WEFT_TEST_SHARE:-full}" = full ] && echo yes) chosen=$(cat ./*.pml | cksum | cut -d ' ' -f 1)
complain() { echo "$1"; failed=1; }

# search WHAT...: makes and runs the checker of a model with -D options; its words are in ./out.
search()
{
    local model=$1
    shift
    rm -f pan pan.*
    spin "$@" -a "$model.pml" >out 2>&1
    [ -f pan.c ] || { complain "$model $*: spin: $(tail -n 3 out)"; return 1; }
    "$cc" "$optimise" -w -DSAFETY ${full:+-DCOLLAPSE} -DMEMLIM=2000 pan.c -o pan >out 2>&1 ||
        { complain "$model $*: the checker does not compile: $(head -n 3 out)"; return 1; }
    ./pan -m100000 -w20 >out 2>&1
}

# takes NUMBER N: is the case with this number one of the Nth part that is run?
takes() { [ -n "$full" ] || [ $((($1 + chosen) % $2)) = 0 ]; }

# right WHAT...: every state was visited, and nothing is wrong.
rights=0
right()
{
    rights=$((rights + 1))
    takes "$rights" 3 || return
    visited "$@"
}

visited()
{
    search "$@" || return
    if ! grep -q 'errors: 0$' out || grep -qE 'Search not completed|max search depth|memory limit' out; then
        complain "$*: $(grep -E '^pan:|errors:|depth too small|memory' out | head -n 3)"
    else
        echo "$*: right in$(sed -n 's/ states, stored.*//p' out) states"
    fi
}

# large WHAT...: the same for models with many states.
larges=0
large()
{
    larges=$((larges + 1))
    takes "$larges" 4 || return
    visited "$@"
}

# broken KIND WHAT...: found, as an assertion that fails or a state in which ranks wait for ever.
faults=0
broken()
{
    local kind=$1
    shift
    faults=$((faults + 1))
    takes "$faults" 8 || return
    search "$@" || return
    grep -q "^pan:1: $kind" out || complain "$*: what is broken was not found: $(grep 'errors:' out)"
}

right wake -DLATE_DISARM
right wake -DCHAIN -DPATIENCE
right barrier
right barrier -DVOTES -DN=2 -DROUNDS=4
right slots -DSTAR -DN=3 -DMESSAGES=1 -DRUNS=1
right slots -DSTAR -DN=3 -DAWAKE
right slots -DSTAR -DN=3 -DAWAKE -DSHARE
right eager
right eager -DTINY
right eager -DMUTUAL
right eager -DTINY -DMUTUAL
right eager -DMIXED -DSLOTS=2 -DRUNS=4
right eager -DMUTUAL -DANSWERED -DRUNS=4
right eager -DTINY -DMUTUAL -DANSWERED -DRUNS=4
right assist
right assist -DPIECES=1
right jobs
right jobs -DN=2 -DRUNS=3
right jobs -DDIES=1 -DRUNS=1
right jobs_pairs -DSHARES=1
right jobs_pairs -DN=2 -DRUNS=3
right jobs_pairs -DDIES=1 -DRUNS=1
right replay
right replay -DN=2 -DRUNS=9
right survive
right survive -DDEATHS=0 -DLEAVERS=1
right survive -DRELAYED -DDEATHS=0
right tree -DAWAKE
right tree -DAWAKE -DHOSTS
right bus_snapshot
right bus_snapshot -DKEEP=1
right bus_swap -DROUNDS=1
optimise=-O1 # for more states, worth the time to compile
large barrier -DPAIRS -DAPART -DROUNDS=1
large barrier -DVOTES -DROUNDS=1
large slots
large slots -DPUSH
large eager -DN=3 -DSLOTS=1 -DTELLS=1 -DRUNS=2
large progress_lock -DRUNS=1
large tree -DAWAKE -DROUNDS=3
large tree -DAWAKE -DN=4 -DROUNDS=1
large tree -DSTRONG
large tree -DSTRONG -DHOSTS
large bus_commit -DDEATHS=0
large bus_swap
large bus_relay
large relay
large relay -DFAN
large relay -DAT=0 -DFAULTS=0 -DROUNDS=4
if [ "${WEFT_TEST_SHARE:-}" = full ]; then
    right wake -DN=4 -DLATE_DISARM
    right jobs_pairs
    right barrier -DROUNDS=3
    right barrier -DN=4
    right barrier -DPAIRS -DROUNDS=1
    right barrier -DVOTES
    right slots -DSTAR -DN=3 -DMESSAGES=1
    right slots -DSTAR -DN=3 -DAWAKE -DSHARE -DSLOTS=2 -DLIMIT=1
    right slots -DSTAR -DN=3 -DAWAKE -DSHARE -DSLOTS=2 -DMESSAGES=3 -DRUNS=3
    right slots -DSLOTS=3 -DMESSAGES=3
    right eager -DN=3 -DSLOTS=2 -DRUNS=3
    right eager -DN=3 -DTINY -DMUTUAL -DANSWERED -DRUNS=2
    right slots -DPULL
    right progress_lock
    right progress_lock -DRUNS=3
    right tree # 9 million states
    right tree -DHOSTS
    right tree -DSTRONG -DROUNDS=3
    right tree -DAWAKE -DN=4
    right tree -DAWAKE -DSTRONG -DN=4 -DROUNDS=3
    right tree -DAWAKE -DSTRONG -DN=5
    right bus_commit
    right bus_commit -DSTOPS=0
    right bus_commit -DREADER -DDEATHS=0 -DSTOPS=0 -DSTEPS=2
    right bus_snapshot -DREADERS=2 -DVERSIONS=3
    right bus_snapshot -DKEEP=3 -DVERSIONS=6
    right bus_swap -DDEATHS=2
    right bus_swap -DROUNDS=3
    right relay -DAT=0
    right relay -DROUNDS=3
    for shape in -DAT=1 -DAT=0 -DFAN; do
        right relay -DFAULTS=2 -DROUNDS=1 $shape
    done
    right survive -DRELAYED
    right survive -DRELAYED -DDEATHS=0 -DLEAVERS=1
    right survive -DDEATHS=2
    right survive -DLEAVERS=1
    right survive -DDEATHS=2 -DLEAVERS=1
    right survive -DN=4
    right survive -DBALLOTS=3 -DDEATHS=0 # with a death it is right, too, but takes 2.4 GB and minutes
fi

optimise=-O0
stuck='invalid end state' wrong='assertion violated'
for fault in COUNT_FIRST LATE_BELL NO_CHECK SET_COUNT EARLY_LOOK; do
    broken "$stuck" wake -D$fault
    broken "$stuck" barrier -DVOTES -D$fault
done
for model in barrier 'barrier -DPAIRS -DAPART' slots 'slots -DPULL' 'slots -DPUSH'; do
    for fault in COUNT_FIRST EARLY_LOOK; do
        # shellcheck disable=SC2086  # a model and its options
        broken "$stuck" $model -D$fault
    done
done
broken "$stuck" wake -DCHAIN
broken "$wrong" replay -DGONE_FIRST
broken "$stuck" replay -DCOUNT_EARLY
broken "$wrong" replay -DDONE_ALONE
broken "$wrong" replay -DNO_HOLD
broken "$wrong" replay -DDONE_FIRST
for fault in 'NO_FENCE -DDEATHS=0' 'BLIND_EPOCH -DDEATHS=0 -DSTOPS=0' 'ONE_KEY -DSTOPS=0' 'NO_LEASE -DSTOPS=0' 'UNCOMPARED -DSTOPS=0' 'HALF -DDEATHS=0 -DSTOPS=0' \
    'STEP_ORDER -DREADER -DSTEPS=2 -DDEATHS=0 -DSTOPS=0'; do
    # shellcheck disable=SC2086  # a fault and options
    broken "$wrong" bus_commit -D$fault
done
broken "$stuck" bus_commit -DLOOK_FIRST -DDEATHS=0 -DSTOPS=0
for fault in LATE_GENERATION EARLY_CHECK NO_CHECK SMALL_NUMBER LOOK_ONCE BLIND_LEASE EARLY_RECORD TAKES_NEWEST; do
    broken "$wrong" bus_snapshot -D$fault
done
for fault in NO_BUSY OLD_ROUND EARLY_PRESENT KEEPS_PRESENT LATE_GENERATION NO_CHECK; do
    broken "$wrong" bus_relay -D$fault
done
for fault in SERVES_ON EARLY OVERWRITES GUESSES OLD_VOTES SWAPS_FIRST; do
    broken "$wrong" bus_swap -D$fault
done
broken "$stuck" bus_swap -DONE_LEADER
broken "$stuck" barrier -DNO_GENERATION
broken "$wrong" barrier -DPAIRS -DAPART -DONE_COUNT
broken "$wrong" barrier -DVOTES -DONE_VOTE
broken "$wrong" barrier -DVOTES -DEARLY_ENTER
broken "$wrong" slots -DEARLY_DONE
broken "$wrong" slots -DEARLY_READY
broken "$wrong" slots -DPULL -DEARLY_DONE
broken "$wrong" slots -DPUSH -DEARLY_READY
broken "$wrong" slots -DPUSH -DEARLY_OPEN
broken "$wrong" slots -DPUSH -DNOT_ASKED
broken "$stuck" slots -DNO_RECEIVE
broken "$wrong" slots -DSTAR -DN=3 -DAWAKE -DSHARE -DFIRST_FREES
for layout in LARGE TINY; do
    broken "$stuck" eager -D$layout -DNO_FENCE
    broken "$wrong" eager -D$layout -DNO_ACQUIRE
    broken "$wrong" eager -D$layout -DSHORT_NUMBER
    broken "$wrong" eager -D$layout -DAHEAD=5
done
broken "$stuck" eager -DMUTUAL -DANSWERED -DSLOTS=1 -DRUNS=4
broken "$wrong" eager -DTINY -DMUTUAL -DANSWERED -DLATE_READ -DRUNS=4
broken "$wrong" eager -DANSWERED -DRUNS=4
broken "$stuck" eager -DCOUNT_FIRST
broken "$stuck" eager -DTELLS=5
broken "$wrong" eager -DEARLY_DONE
broken "$stuck" eager -DMUTUAL -DNO_FENCE
broken "$wrong" eager -DMIXED -DSLOTS=1 -DTELLS=1
broken "$wrong" eager -DNO_RELEASE
broken "$wrong" eager -DTINY -DONE_NUMBER
broken "$wrong" eager -DN=3 -DSLOTS=1 -DTELLS=1 -DRUNS=2 -DONE_ASKED
for fault in SENDER_FIRST TWO_STEPS EARLY_DONE; do
    broken "$wrong" assist -D$fault
done
broken "$stuck" assist -DNO_RUN
for fault in TWO_STEPS TOO_EARLY EARLY_OVER; do
    broken "$wrong" jobs -D$fault
    broken "$wrong" jobs_pairs -D$fault
done
broken "$stuck" jobs -DDIES=1 -DDONE_FIRST -DRUNS=1
broken "$stuck" jobs_pairs -DDIES=1 -DDONE_FIRST -DRUNS=1
for fault in NO_RECHECK PARK_BLIND NO_CALL NO_DISTURB LATE_ASLEEP DISARM_AWAY COUNT_FIRST WANT_LATE; do
    broken "$stuck" progress_lock -D$fault
done
broken "$wrong" progress_lock -DTWO_STEPS
for fault in NO_PROMISE FORGETS NO_MAJORITY COUNT_LIST EARLY GUESSES; do
    broken "$wrong" survive -D$fault
done
for fault in RELAY_FORGETS RELAY_OLD RELAY_MIXES NO_PROMISE NO_MAJORITY GUESSES; do
    broken "$wrong" survive -DRELAYED -D$fault
done
broken "$wrong" survive -DQUITS_ALWAYS -DLEAVERS=1
broken "$wrong" survive -DGOES_ON_LATE -DLEAVERS=1
broken "$wrong" survive -DLOWEST -DBALLOTS=3
broken "$wrong" survive -DUNHEARD -DBALLOTS=3
for fault in NO_RELEASE NO_ACQUIRE NO_RELEASE_MET NO_ACQUIRE_MET LATE_TALLY ONE_VOTE NOT_LAST FIRSTS_ONLY; do
    broken "$wrong" tree -DAWAKE -D$fault
done
broken "$wrong" tree -DAWAKE -DLATE_READ -DROUNDS=3
for fault in RESETS TWO_STEPS; do
    broken "$stuck" tree -DAWAKE -D$fault
done
for fault in COUNT_FIRST LATE_BELL NO_CHECK SET_COUNT EARLY_LOOK TOP_ONLY; do
    broken "$stuck" tree -DSTRONG -D$fault
done
for fault in COUNT_FIRST EARLY_LOOK; do
    broken "$stuck" tree -DSTRONG -DHOSTS -D$fault
done
broken "$wrong" tree -DAWAKE -DHOSTS -DNO_RELEASE_MET
for shape in -DAT=1 -DFAN; do
    for fault in NOT_ALL OLD_BALLOT OWN_RESULT FAREWELL LATE_DOWN; do
        broken "$wrong" relay $shape -D$fault
    done
    for fault in SILENT NO_FORWARD TELLS_UP BLIND_ABOVE BLIND_LEFT NO_RELAY; do
        broken "$stuck" relay $shape -D$fault
    done
done
exit "$failed"
