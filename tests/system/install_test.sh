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
    for (size_t i = 0; weft_module_name(i); i++)
        printf("module %s\n", weft_module_name(i));
    return weft_version() != WEFT_VERSION || strcmp(weft_version_string(), VERSION) || strcmp(weft_strerror(WEFT_OK), "success") || error_set() != 7;
}
END

env -u DESTDIR cmake --install "$WEFT_BUILD_DIR" --prefix "$work/usr" >"$work/log"
libdir=$(dirname "$(find "$work/usr" -name libweft.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
unset LD_LIBRARY_PATH WEFT_MODULES # a user sets neither
# Those of wires; weft_module does not list those of devices, which are loaded when a view first names such memory.
modules=$(find "$libdir/weft" -name '*.so' ! -name weft_cuda.so ! -name weft_sim.so 2>/dev/null | wc -l)
# finds PROGRAM...: it runs, and finds all modules that are installed.
finds()
{
    "$@" >"$work/said"
    [ "$(grep -c '^module' "$work/said")" -eq "$modules" ] || { echo "$*: $modules modules are installed"; cat "$work/said"; false; }
}
sed -i "s/VERSION)/\"$(pkg-config --modversion weft)\")/" "$work/use.c" # what the package says is what the library says

test -f "$work/usr/share/bash-completion/completions/weft"
test -f "$work/usr/share/zsh/site-functions/_weft"

echo "each header stands alone"
while read -r header; do
    printf '#include <%s>\nint main(void) { return 0; }\n' "$header" >"$work/alone.c"
    # shellcheck disable=SC2046
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror "$work/alone.c" $(pkg-config --cflags weft) -o "$work/alone"
done < <(cd "$work/usr/include" && find . -name '*.h' | sed 's|^\./||')

echo "pkg-config, shared"
# shellcheck disable=SC2046  # flags are words
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/use.c" $(pkg-config --cflags --libs weft) -o "$work/shared"
finds "$work/shared"
readelf -d "$work/shared" | grep -q 'NEEDED.*\[libweft\.so\.0\.1\]'

echo "pkg-config, static"
# shellcheck disable=SC2046
"$cc" -std=c11 "$work/use.c" $(pkg-config --static --cflags --libs weft | sed 's/-lweft/-l:libweft.a/') -o "$work/static"
finds "$work/static"

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
finds "$work/b/by_shared"
finds "$work/b/by_static"

if command -v c++ >/dev/null; then
    echo "C++"
    cat >"$work/use.cc" <<'END'
#include <weft/bus.h>
#include <weft/checkpoint.h>
#include <weft/collective.h>
#include <weft/halo.h>
#include <weft/log.h>
#include <weft/store.h>
int main()
{
    char memory[8];
    weft_comm_opts comm = WEFT_COMM_OPTS_INIT;
    weft_checkpoint_opts checkpoint = WEFT_CHECKPOINT_OPTS_INIT;
    weft_view view = WEFT_VIEW(memory, sizeof memory), none = WEFT_VIEW_INIT;
    weft_buffer buffer = WEFT_BUFFER("b", WEFT_F32, 2), empty = WEFT_BUFFER_INIT;
    comm.rank = 1;
    weft_bus_close(nullptr);
    weft_halo_close(nullptr);
    weft_store_close(nullptr);
    return weft_version() != WEFT_VERSION || comm.size != sizeof comm || checkpoint.size != sizeof checkpoint ||
           view.bytes != 8 || view.reserved[1] || none.data || buffer.count != 2 || empty.name ||
           weft_checkpoint_rules("none");
}
END
    # shellcheck disable=SC2046
    c++ -std=c++11 -Wall -Wextra -Wpedantic -Wconversion -Werror "$work/use.cc" $(pkg-config --cflags --libs weft) -o "$work/cxx"
    "$work/cxx"
fi

echo "DESTDIR stands before the prefix and in no file"
DESTDIR=$work/dest cmake --install "$WEFT_BUILD_DIR" --prefix /opt/weft >"$work/log"
test -f "$work/dest/opt/weft/include/weft.h"
test -f "$work/dest/opt/weft/include/weft/checkpoint.h"
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
finds "$work/spaced"

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
pages=$work/usr/share/man
for page in "$WEFT_SOURCE_DIR"/man/*.3; do
    [ ! -e "$WEFT_BUILD_DIR/man3/$(basename "$page")" ] # a link would be installed in place of the page
done
for function in $(nm -D --defined-only "$libdir/libweft.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }'); do
    link=$(sed -n 's/^\.so //p' "$pages/man3/$function.3")
    grep -q "$function(" "$pages/${link:-man3/$function.3}" # a page may have the name of its only function
done
if command -v man >/dev/null; then
    man -M "$pages" weft_bind | grep -q weft_exec_rebind
fi
for page in "$WEFT_SOURCE_DIR"/man/*.[13]; do
    [ ! -f "$page" ] || test -f "$work/usr/share/man/man${page##*.}/$(basename "$page")"
done
if [ -x "$WEFT_BUILD_DIR/weft" ]; then
    env -u LD_LIBRARY_PATH "$work/usr/bin/weft" info >"$work/log"
fi
