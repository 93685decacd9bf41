#!/usr/bin/env bash
# The long walk on a GPU (`make walk-gpu`): what test_gpu.sh does, with 5,000 random pairs of layouts and 100 killed ranks in each way of
# sharing the GPU (threads, plain processes, processes under MPS; ranks that are threads are not killed), and a share under
# compute-sanitizer. It ends within SECONDS, notes what it has not come to, and the next call goes on there.
#
#   walk_gpu.sh [SECONDS]   540
#
# What test_gpu.sh reads from the environment holds, too. A step has 630 pairs on one number of ranks, or ten killed ranks.
set -u
cd "$(dirname "$0")/.." || exit 1
export GPU_BUDGET=${1:-540} GPU_RESUME=yes GPU_SHARE=${GPU_SHARE:-63} GPU_KILLS=${GPU_KILLS:-100}
exec bash cmake/test_gpu.sh
