#!/usr/bin/env bash
# The sources compile for the other processor, too: x86-64 on AArch64, and the other way round. Vector code differs between them, and what is
# changed on one does not show there that it fails on the other. Needs a cross compiler of Debian.
set -u
cd "$(dirname "$0")/../.." || exit 1
case $(uname -m) in
aarch64) cc=x86_64-linux-gnu-gcc package=gcc-x86-64-linux-gnu ;;
x86_64) cc=aarch64-linux-gnu-gcc package=gcc-aarch64-linux-gnu ;;
*) echo "skipped: there is no other processor for $(uname -m)"; exit 77 ;;
esac
command -v "$cc" >/dev/null || { echo "skipped: no $cc (install $package)"; exit 77; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
compiles()
{
    "$cc" -std=c11 -Wall -Wextra -Werror -Isrc -Iinclude -I. -fsyntax-only "$1" >"$log" 2>&1
}

# What is planted must be found.
planted=$(mktemp --suffix=.c)
echo 'typedef char v __attribute__((vector_size(16))); typedef int w __attribute__((vector_size(32))); w f(v x); w f(v x) { return (w)x; }' >"$planted"
! compiles "$planted" || { echo "a cast between vectors of different sizes was not noticed"; exit 1; }
rm -f "$planted"

n=0 bad=0
for file in src/memory/*.c src/base/*.c src/device/*.c src/transport/core/*.c src/bus/delta.c; do
    n=$((n + 1))
    compiles "$file" || { echo "$file does not compile for the other processor:"; grep -m 3 -E 'error|warning' "$log"; bad=1; }
done
echo "$n files by $cc"
[ "$n" -gt 30 ] && [ "$bad" = 0 ]
