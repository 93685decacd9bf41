#!/usr/bin/env bash
# Runs every program of examples/ and looks at what it says. Each checks its own result.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
out=$(mktemp)
trap 'rm -rf "$out" "$out".*' EXIT
failed=0
complain() { echo "$1"; failed=1; }

# expect STATUS TEXT COMMAND...: the command ends so, says so, and is silent on standard error when all is well.
expect()
{
    local status=$1 text=$2 got
    shift 2
    if [ "$status" -eq 0 ]; then
        "$@" >"$out" 2>"$out.err"
        got=$?
        [ ! -s "$out.err" ] || complain "$*: wrote to standard error: $(head -n 3 "$out.err")"
        rm -f "$out.err"
    else
        "$@" >"$out" 2>&1
        got=$?
    fi
    [ "$got" -eq "$status" ] || complain "$*: exit status $got, not $status"
    grep -qF -- "$text" "$out" || complain "$*: does not say '$text' but: $(tail -n 3 "$out")"
}

# ThreadSanitizer sees one process at a time, and makes the steps of heat slow.
heat="1 2 3 4 6"
grep -q '^WEFT_SANITIZE:[A-Z]*=.*thread' "$WEFT_BUILD_DIR/CMakeCache.txt" && heat="1 3"

bin=$WEFT_BUILD_DIR/examples
expect 0 "rows to columns on 4 ranks: right" "$bin/01_reshard"
expect 0 "allreduce of 1000 floats on 8 ranks, 10 times: right" "$bin/02_allreduce"
for n in $heat; do
    expect 0 "1000 steps of heat on $n ranks: the same bits as on one" "$WEFT_BIN" run -n "$n" "$bin/03_heat" "$out.$n.ppm"
    cmp "$out.1.ppm" "$out.$n.ppm" || complain "03_heat on $n ranks: another picture"
done
[ "$(head -c 15 "$out.1.ppm" | tr '\n' ' ')" = "P6 211 150 255 " ] || complain "03_heat: no picture"
expect 1 "start it by: weft run" "$bin/03_heat"
for n in 1 4; do # on several hosts: hosts.sh
    expect 0 "allgather of ${n}000 floats on $n ranks by puts and signals, 100 times: right" \
        "$WEFT_BIN" run -n "$n" "$bin/04_window_allgather"
    expect 0 "reduce-scatter of ${n}000 floats on $n ranks through pointers and puts, 100 times: right" \
        "$WEFT_BIN" run -n "$n" "$bin/05_window_reduce_scatter"
done
if [ -f "$WEFT_BUILD_DIR/weft_ucx.so" ]; then # the modules are beside the folder of the examples
    expect 0 "on 2 ranks by puts and signals, 100 times: right" \
        env -u WEFT_MODULES "$WEFT_BIN" run -n 2 --on ucx: "$bin/04_window_allgather"
fi
expect 0 "4 pieces of a ring allgather fed a product of 64 x 1024 by 1024 x 128 on 4 ranks, 7 times: right" "$bin/06_ring_matmul"
grep -qE '^exchange .* product .* both .*: (100|[0-9]{1,2})% of the exchange hidden$' "$out" || complain "06_ring_matmul: does not say what is hidden"
for ranks in 1 2 5; do
    expect 0 "rolling mean of 20000 samples on $ranks ranks" "$WEFT_BIN" run -n "$ranks" "$bin/07_rolling_mean"
    expect 0 "on $ranks ranks: equal to the serial ones" "$WEFT_BIN" run -n "$ranks" "$bin/08_moe_dispatch"
done
for name in 04_window_allgather 05_window_reduce_scatter 07_rolling_mean 08_moe_dispatch 10_survivors; do
    expect 1 "start it by: weft run" "$bin/$name"
done
expect 0 "100 numbers from rank to rank on 3 ranks, signalled by the host: right" env WEFT_DEVICE=sim "$WEFT_BIN" run -n 3 "$bin/15_gpu_window"
# Two programs that share a URL; the publisher ends when its input does.
mkfifo "$out.fifo"
"$bin/16_bus_publisher" "file:$out.bus" 20 <"$out.fifo" >"$out.pub" 2>&1 &
publisher=$!
exec 9>"$out.fifo"
timeout 100 "$bin/16_bus_subscriber" "file:$out.bus" 20 >"$out" 2>"$out.err" || complain "16_bus_subscriber: $(cat "$out.err")"
grep -qF "step 20 is live, all versions right" "$out" || complain "16_bus_subscriber: says $(cat "$out")"
exec 9>&-
wait "$publisher" || complain "16_bus_publisher: $(cat "$out.pub")"
grep -qF "published 20 steps in epoch 1" "$out.pub" || complain "16_bus_publisher: says $(cat "$out.pub")"
rm -rf "$out".*
expect 0 "4 ranks were 3 in the end, and the sums right" "$WEFT_BIN" run -n 4 "$bin/10_survivors"
# The same points on any number of ranks, by weft and by MPI; weft's has fewer lines of code.
alone=$(awk -v n=61 -v steps=200 'BEGIN {
    for (x = 0; x <= n + 1; x++) a[0, 0, x] = a[1, 0, x] = 1
    for (s = 0; s < steps; s++) {
        old = s % 2; new = 1 - old; change = 0
        for (y = 1; y <= n; y++)
            for (x = 1; x <= n; x++) {
                v = 0.25 * ((a[old, y - 1, x] + a[old, y + 1, x]) + (a[old, y, x - 1] + a[old, y, x + 1]))
                by = v - a[old, y, x]; by = by < 0 ? -by : by
                change = by > change ? by : change
                a[new, y, x] = v
            }
    }
    for (y = 1; y <= n; y++) for (x = 1; x <= n; x++) sum += a[new, y, x]
    printf "200 steps, change %.6e, sum %.9e", change, sum
}')
for n in 1 2 4 6; do
    expect 0 "jacobi 61 x 61 on $n ranks by weft: $alone" \
        "$WEFT_BIN" run -n "$n" "$bin/11_jacobi" 61 200
done
expect 1 "start it by: weft run" "$bin/11_jacobi"
for mpi in openmpi:mpirun.openmpi:--oversubscribe mpich:mpiexec.hydra:; do
    IFS=: read -r library launcher option <<<"$mpi"
    program=$bin/jacobi_$library
    { [ -x "$program" ] && command -v "$launcher" >/dev/null; } || { echo "no $library for examples/jacobi_mpi.c"; continue; }
    expect 0 "jacobi 61 x 61 on 4 ranks by MPI: $alone" \
        env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$launcher" ${option:+"$option"} -n 4 "$program" 61 200
done
code_lines() { grep -cvE '^[[:space:]]*(/?\*.*)?$' "$1"; }
ours=$(code_lines "$WEFT_SOURCE_DIR/examples/11_jacobi.c") theirs=$(code_lines "$WEFT_SOURCE_DIR/examples/jacobi_mpi.c")
[ "$ours" -lt "$theirs" ] || complain "11_jacobi.c has $ours lines of code, jacobi_mpi.c $theirs"
for source in "$WEFT_SOURCE_DIR"/examples/[0-9]*.c; do
    name=$(basename "$source" .c)
    grep -q "/$name\"" "$0" || complain "examples/$name.c is not run here"
    grep -qF "($name.c)" "$WEFT_SOURCE_DIR/examples/README.md" || complain "examples/README.md: no word of $name.c"
done

python=$WEFT_BUILD_DIR/python/bin/python # of make test-python
if "$python" -c 'import torch, weft.store' 2>/dev/null; then
    expect 0 "the served answers changed from wrong to right" "$python" "$WEFT_SOURCE_DIR/examples/17_served_answers.py"
else
    echo "skip: $WEFT_BUILD_DIR/python has no PyTorch and weft, which make test-python installs: 17_served_answers.py is not run"
fi

demo=$bin/weft-demo
expect 0 "3 with new weights; every byte on ranks 4 to 7 was right in each" "$demo" --hidden 64 --layers 2 --rounds 3
moved=$(sed -n 's/^ *\([0-9]*\) B a round in .*: \([0-9]*\)$/\1 \2/p' "$out")
# 8 + 8 + 2 * 16 units of 64 * 64 weights and 5 norms in two bytes each; the norms go to four ranks.
[ "$moved" = "395776 395776" ] || complain "$demo: moved '$moved' bytes, not 395776 with the same bound"
expect 0 "usage: weft-demo" "$demo" --help
expect 2 "a number from 1 to 1000" "$demo" --rounds 0
expect 2 "a number from 1 to 1000" "$demo" --layers
expect 2 "a multiple of 4" "$demo" --hidden 6
expect 2 "no option '--what'" "$demo" --what
exit "$failed"
