#!/usr/bin/env bash
# Wires of sockets and of UCX between two network namespaces, which this test makes and removes: messages arrive, and their speed
# is shown beside that of ucx_perftest in the same namespaces (as figures; a busy machine shall not fail the test).
set -u
build=${WEFT_BUILD_DIR:-build}
modules=${WEFT_MODULES:-$build}
a=weft-wire-a-$$ b=weft-wire-b-$$
work=$(mktemp -d)

skip() { echo "skip: $1"; exit 77; }
clean()
{
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT

urls=tcp:
[ -f "$modules/weft_ucx.so" ] && urls+=" ucx:"
command -v ip >/dev/null || skip "no ip command (iproute2)"
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || skip "network namespaces are not permitted here"
ip link add wa netns "$a" type veth peer name wb netns "$b" 2>/dev/null || skip "veth is not permitted here"
ip -n "$a" addr add 10.77.0.1/24 dev wa && ip -n "$b" addr add 10.77.0.2/24 dev wb || exit 1
for n in "$a wa" "$b wb"; do
    set -- $n
    ip -n "$1" link set lo up && ip -n "$1" link set "$2" up || exit 1
done

# UCX looks at the devices that run when it is opened.
up()
{
    for _ in $(seq 500); do
        [ "$(ip netns exec "$a" cat /sys/class/net/wa/operstate)$(ip netns exec "$b" cat /sys/class/net/wb/operstate)" = upup ] && break
        sleep 0.01
    done
}
up

speed=$build/tests/wire_speed
size=$((64 << 20)) runs=${WEFT_WIRE_RUNS:-10}
export WEFT_MODULES=$modules
for url in $urls; do
    rm -rf "${work:?}"/*
    ip netns exec "$b" timeout 100 "$speed" $url 1 "$work" "$size" "$runs" &
    other=$!
    ip netns exec "$a" timeout 100 "$speed" $url 0 "$work" "$size" "$runs" >"$work/weft" || { echo "$url rank 0 failed"; exit 1; }
    wait "$other" || { echo "$url rank 1 failed"; exit 1; }
    sed "s/^/$url /" "$work/weft"
    grep -q '^bandwidth_mib [1-9]' "$work/weft" || exit 1
done

# Left to itself ucx_perftest sends memory that was never written: the kernel reads one page of zeros again and again. With
# malloc and MALLOC_PERTURB_ it sends real memory, as weft does.

real="env UCX_TLS=tcp UCX_ALLOC_PRIO=heap MALLOC_PERTURB_=85"

# perftest KIND COLUMN ARGS...: a figure of its final line.
perftest()
{
    local kind=$1 column=$2
    shift 2
    $real ip netns exec "$b" timeout 60 ucx_perftest -t "$kind" "$@" >/dev/null 2>&1 &
    local server=$!
    for _ in $(seq 200); do # until it listens on 13337
        ip netns exec "$b" grep -q ':3419 ' /proc/net/tcp /proc/net/tcp6 2>/dev/null && break
        sleep 0.01
    done
    $real ip netns exec "$a" timeout 60 ucx_perftest 10.77.0.2 -t "$kind" "$@" 2>/dev/null |
        awk -v c="$column" '/^Final/ { print $c }'
    wait "$server"
}
if command -v ucx_perftest >/dev/null; then
    echo "ucx_perftest tag_lat, us: $(perftest tag_lat 5 -s 8 -n $((runs * 100)) -w $((runs * 10)))"
    echo "ucx_perftest tag_bw, MiB/s: $(perftest tag_bw 7 -s "$size" -n "$runs" -w 2)"
fi

# A host that vanishes without a word: its link is down and nothing is reset. Both ends see it by the keepalive of TCP, in
# seconds; on a machine that is busy with other things it may take longer than is worth waiting for, so make soak alone does it.
if [ "${WEFT_TEST_SHARE:-100}" != full ]; then
    echo "left to make soak: a host that vanishes"
    exit 0
fi
for url in $urls; do
    rm -rf "${work:?}"/*
    ip -n "$b" link set wb up
    up
    ip netns exec "$b" timeout 100 "$speed" $url 1 "$work" watch &
    other=$!
    ip netns exec "$a" timeout 100 "$speed" $url 0 "$work" watch >"$work/gone" &
    first=$!
    for _ in $(seq 3000); do
        [ -f "$work/watching" ] && break
        sleep 0.01
    done
    ip -n "$b" link set wb down
    wait "$first" || { echo "$url rank 0 did not see that rank 1 is gone"; exit 1; }
    wait "$other" || { echo "$url rank 1 did not see that rank 0 is gone"; exit 1; }
    sed "s/^/$url /" "$work/gone"
done
exit 0
