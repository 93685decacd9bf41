#!/usr/bin/env bash
# The conformance programs on mpi:, conformance_mpi.sh openmpi|mpich PROGRAM...: each is started as 16 ranks by that library's
# launcher, and each of its runs takes as many of them as it needs (tests/support/launched.h). Each library has every other
# program; in make soak it has all of them. `PROGRAM -- TEST...` runs these tests of one program. WEFT_TEST_PRELOAD: a library
# that is loaded into each rank before that of MPI.
set -u
: "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
library=$1
shift
module=$WEFT_BUILD_DIR/tests/launched_$library.so
[ -f "$module" ] || { echo "skip: there is no module for mpi:$library" && exit 77; }
launcher=$(command -v "mpiexec.$library") || { echo "skip: there is no mpiexec.$library" && exit 77; }
work=$(mktemp -d -p /dev/shm) # not by the name of weft: other tests look there for what it has left
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1
export WEFT_TEST_MPI=$module WEFT_TEST_LAUNCHED=$work
limit=300 every=2 number=0
[ "$library" = mpich ] && number=1
[ "${WEFT_TEST_SHARE:-}" = full ] && limit=3000 every=1
failed=0 tests=()
if [ "${2:-}" = -- ]; then
    tests=("${@:3}") every=1
    set -- "$1"
fi

for program; do
    [ $((number++ % every)) -eq 0 ] || continue
    start=$SECONDS
    timeout "$limit" "$launcher" -n 16 sh -c '[ -z "${WEFT_TEST_PRELOAD:-}" ] || export LD_PRELOAD=$WEFT_TEST_PRELOAD; exec "$0" "$@" >"$WEFT_TEST_LAUNCHED/out-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" 2>&1' \
        "$WEFT_BUILD_DIR/tests/${program}_test" "${tests[@]}" >"$work/launcher" 2>&1
    status=$?
    if [ $status -ne 0 ]; then
        failed=1
        echo "FAILED with status $status: $program on mpi:$library"
        tail -n 20 "$work/launcher"
        grep -L ' test(s) run' "$work"/out-* | xargs -r tail -n 20 # those that did not come to the end
    fi
    grep -v '^\[ RUN' "$work/out-0"
    echo "$program on mpi:$library: $((SECONDS - start)) s"
    rm -rf "${work:?}"/*
done
exit $failed
