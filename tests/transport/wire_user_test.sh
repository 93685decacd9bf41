#!/usr/bin/env bash
# Programs that use MPI themselves and give weft a communicator: tests/transport/wire_user.c under both launchers.
set -u
build=${WEFT_BUILD_DIR:-build}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1
ran=0
try()
{
    local program=$build/tests/wire_user_$1
    [ -x "$program" ] && command -v "$2" >/dev/null || return 0
    ran=$((ran + 1))
    timeout 100 "$2" -n 4 "$program" "${WEFT_MODULES:-$build}" || { echo "wire_user with $1 failed"; exit 1; }
}
try openmpi mpirun.openmpi
try mpich mpiexec.hydra
[ "$ran" -gt 0 ] || { echo "skip: no module for an MPI library, or no launcher"; exit 77; }
echo "ran with $ran MPI libraries"
