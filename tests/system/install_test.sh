#!/usr/bin/env bash
# Installs into an empty prefix and builds a small program against it as a user would: by
# pkg-config and by find_package, with the shared and with the static library.
set -eu
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
command -v pkg-config >/dev/null || { echo "skip: pkg-config is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$WEFT_BUILD_DIR/CMakeCache.txt")
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR

# A program of the user with a name that the library uses inside: they must not meet.
cat >"$work/use.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <weft.h>
int error_set(void);
int error_set(void)
{
    return 7;
}
int main(void)
{
    printf("%u\n", (unsigned)weft_version());
    return weft_version() != WEFT_VERSION || strcmp(weft_strerror(WEFT_OK), "success") || error_set() != 7;
}
END

env -u DESTDIR cmake --install "$WEFT_BUILD_DIR" --prefix "$work/usr" >"$work/log"
libdir=$(dirname "$(find "$work/usr" -name libweft.a)")
export LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig

echo "pkg-config, shared"
# shellcheck disable=SC2046  # flags are words
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/use.c" $(pkg-config --cflags --libs weft) -o "$work/shared"
"$work/shared"
readelf -d "$work/shared" | grep -q 'NEEDED.*libweft\.so\.0'

echo "pkg-config, static"
# shellcheck disable=SC2046
"$cc" -std=c11 "$work/use.c" $(pkg-config --static --cflags --libs weft | sed 's/-lweft/-l:libweft.a/') -o "$work/static"
env -u LD_LIBRARY_PATH "$work/static"

echo "find_package"
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(use LANGUAGES C)
find_package(weft 0.1 REQUIRED)
add_executable(by_shared use.c)
target_link_libraries(by_shared PRIVATE weft::weft)
add_executable(by_static use.c)
target_link_libraries(by_static PRIVATE weft::weft_static)
END
cmake -S "$work" -B "$work/b" -DCMAKE_PREFIX_PATH="$work/usr" -DCMAKE_C_COMPILER="$cc" >"$work/log"
cmake --build "$work/b" >"$work/log"
"$work/b/by_shared"
env -u LD_LIBRARY_PATH "$work/b/by_static"

if command -v c++ >/dev/null; then
    echo "C++"
    printf '#include <weft.h>\nint main() { return weft_version() != WEFT_VERSION; }\n' >"$work/use.cc"
    # shellcheck disable=SC2046
    c++ -Wall -Wextra -Werror "$work/use.cc" $(pkg-config --cflags --libs weft) -o "$work/cxx"
    "$work/cxx"
fi

echo "DESTDIR stands before the prefix and in no file"
DESTDIR=$work/dest cmake --install "$WEFT_BUILD_DIR" --prefix /opt/weft >"$work/log"
test -f "$work/dest/opt/weft/include/weft.h"
grep -qx 'prefix=/opt/weft' "$(find "$work/dest" -name weft.pc)"
if grep -rlI "$work" "$work/dest/opt"; then
    exit 1
fi

echo "a prefix with a space in it, relative to where we are"
(cd "$work" && env -u DESTDIR cmake --install "$WEFT_BUILD_DIR" --prefix "a b" >"$work/log")
spaced=$(find "$work/a b" -name weft.pc)
grep -qx "prefix=$work/a b" "$spaced"
eval "flags=($(PKG_CONFIG_PATH=$(dirname "$spaced") pkg-config --cflags --libs weft))"
"$cc" -std=c11 "$work/use.c" "${flags[@]}" -o "$work/spaced"
"$work/spaced"

echo "uninstalling takes what is weft's, and nothing else"
for where in "|$work/a b" "$work/dest|/opt/weft"; do
    root=${where/|/}
    touch "$root/include/other.h" "$root/bin/other"
    DESTDIR=${where%|*} bash "$WEFT_SOURCE_DIR/cmake/uninstall.sh" "$WEFT_BUILD_DIR" "${where#*|}" >"$work/log"
    left=$(cd "$root" && find . ! -type d | sort | tr '\n' ' ')
    [ "$left" = "./bin/other ./include/other.h " ]
    [ -z "$(find "$root" -mindepth 1 -name 'weft*')" ]
    DESTDIR=${where%|*} bash "$WEFT_SOURCE_DIR/cmake/uninstall.sh" "$WEFT_BUILD_DIR" "${where#*|}" | grep -q '^removed 0 files'
done
if bash "$WEFT_SOURCE_DIR/cmake/uninstall.sh" "$work/none" /opt/weft 2>"$work/log"; then
    exit 1
fi
grep -q 'there is no build' "$work/log"

echo "man pages and the command"
for page in "$WEFT_SOURCE_DIR"/man/*.[13]; do
    [ ! -f "$page" ] || test -f "$work/usr/share/man/man${page##*.}/$(basename "$page")"
done
if [ -x "$WEFT_BUILD_DIR/weft" ]; then
    env -u LD_LIBRARY_PATH "$work/usr/bin/weft" info >"$work/log"
fi
