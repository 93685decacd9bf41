#!/usr/bin/env bash
# The CUDA module and its kernels, by random tasks. Where there is no GPU the driver is tests/device/fake_cuda.c, which runs
# the kernels' bodies on the host.
set -u
bodies=$WEFT_BUILD_DIR/tests/gpu_bodies
[ -x "$bodies" ] || { echo "skip: the CUDA module is not built"; exit 77; }
if "$bodies" check 1 2>&1 | grep -q 'is not possible: '; then
    echo "no GPU: the driver is a fake"
    export LD_LIBRARY_PATH=$WEFT_BUILD_DIR/tests/fake
fi
"$bodies" calls && "$bodies" check 300
