#!/usr/bin/env bash
# Sees to it that what a target needs is there: `setup.sh build`, `test`, `python` or `bench`. Missing
# packages are installed with apt-get where that is permitted; otherwise the command to install
# them is printed. Does nothing when all is there.
set -u

have() { command -v "$1" >/dev/null 2>&1; }

has_cmocka()
{
    echo '#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>' | "${CC:-cc}" -E - >/dev/null 2>&1
}

has_ucx()
{
    echo '#include <ucp/api/ucp.h>' | "${CC:-cc}" -E - >/dev/null 2>&1
}

has_fuzzer()
{
    have clang && [ -f "$(clang --print-file-name="libclang_rt.fuzzer-$(uname -m).a")" ]
}

has_numpy()
{
    for p in python3 /usr/bin/python3; do
        "$p" -c 'import numpy' >/dev/null 2>&1 && return 0
    done
    return 1
}

has_sodium()
{
    ldconfig -p 2>/dev/null | grep -q 'libsodium\.so' || /sbin/ldconfig -p 2>/dev/null | grep -q 'libsodium\.so'
}

has_pmix()
{
    local h
    for h in /usr/lib/*/pmix2/include/pmix.h /usr/include/pmix.h /usr/local/include/pmix.h; do
        [ -f "$h" ] && return 0
    done
    return 1
}

# What must be there, and what only costs skipped tests when it is not.
find_missing()
{
    needed=() wanted=()
    have "${CC:-cc}" || needed+=(gcc libc6-dev)
    have cmake || needed+=(cmake)
    [ "$1" != bench ] || have python3 || needed+=(python3)
    if [ "$1" = bench ] || [ "$1" = test ]; then
        have mpicc.openmpi && have mpirun.openmpi || wanted+=(libopenmpi-dev openmpi-bin)
        have mpicc.mpich && have mpiexec.hydra || wanted+=(libmpich-dev mpich)
    fi
    if [ "$1" = python ]; then
        python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || needed+=(python3 python3-venv)
    fi
    [ "$1" = test ] || return 0
    has_ucx || wanted+=(libucx-dev)
    have ucx_perftest || wanted+=(ucx-utils)
    have ip || wanted+=(iproute2)
    has_cmocka || needed+=(libcmocka-dev)
    has_sodium || wanted+=(libsodium23)
    has_pmix || wanted+=(libpmix-dev)
    have pkg-config || wanted+=(pkg-config)
    have spin || wanted+=(spin)
    have valgrind || wanted+=(valgrind)
    have zsh || wanted+=(zsh)
    have groff || wanted+=(groff-base)
    have clang-format || have clang-format-14 || wanted+=(clang-format)
    have clang-tidy || have clang-tidy-14 || wanted+=(clang-tidy)
    has_fuzzer || wanted+=(clang libclang-rt-dev)
    has_numpy || wanted+=(python3 python3-numpy)
}

find_missing "${1:-build}"
missing=("${needed[@]}" "${wanted[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    have sudo && sudo -n true 2>/dev/null && sudo="sudo -n"
fi
if have apt-get && { [ "$(id -u)" -eq 0 ] || [ -n "$sudo" ]; }; then
    echo "setup: installing ${missing[*]}" >&2
    log=$(mktemp)
    # The lists may be missing (a fresh container) or old: try what is there before fetching them.
    if ! { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" ||
        { $sudo apt-get update &&
            $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; }; } \
        >"$log" 2>&1; then
        tail -n 5 "$log" >&2
    fi
    rm -f "$log"
    find_missing "${1:-build}"
    missing=("${needed[@]}" "${wanted[@]}")
    [ ${#missing[@]} -eq 0 ] && exit 0
fi

echo "setup: these Debian packages are missing: ${missing[*]}" >&2
echo "setup: install them with:  sudo apt-get install -y ${missing[*]}" >&2
[ ${#needed[@]} -eq 0 ] || exit 1
echo "setup: going on without them; what needs them is skipped" >&2
