#!/usr/bin/env bash
# wire_late.sh openmpi|mpich: a rank that receives the last message and leaves may be known to have left before its
# sender knows that the send is over (late_sends.c). The sender's run is complete all the same.
set -u
: "${WEFT_BUILD_DIR:?}"
export WEFT_TEST_PRELOAD=$WEFT_BUILD_DIR/tests/late_sends_$1.so
[ -f "$WEFT_TEST_PRELOAD" ] || { echo "skip: there is no module for mpi:$1" && exit 77; }
exec bash "$(dirname "$0")/../system/conformance_mpi.sh" "$1" exec -- moves_of_all_kinds_are_right
