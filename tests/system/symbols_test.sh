#!/usr/bin/env bash
# What the libraries show to the linker: both have the functions of the headers and nothing else, the
# shared one has its soname (with the minor version before 1.0), and the compile half (layout, plan, lower) has no mutable globals.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
command -v nm >/dev/null && command -v objdump >/dev/null || { echo "skip: binutils are not installed"; exit 77; }
failed=0
complain() { echo "$1"; failed=1; }

# The names that stand before a parenthesis in the declarations of the headers; comments do not count.
declared=$(awk '{
        while (match($0, /\/\*[^*]*(\*[^\/][^*]*)*\*\//)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
        if (comment) { if (!sub(/.*\*\//, "")) next; comment = 0 }
        if (sub(/\/\*.*/, "")) comment = 1
        print
    }' "$WEFT_SOURCE_DIR"/include/weft.h "$WEFT_SOURCE_DIR"/include/weft/*.h | sed '/^#ifdef __cplusplus/,/^#e/d' | grep -v '^#' | grep -oE 'weft_[a-z0-9_]+\(' | tr -d '(' | sort -u)
[ "$(wc -w <<<"$declared")" -gt 30 ] || complain "the headers were not understood: $declared"

shared=$(nm -D --defined-only "$WEFT_BUILD_DIR/libweft.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
static=$(nm -g --defined-only "$WEFT_BUILD_DIR/libweft.a" | awk 'NF == 3 { print $3 }' | sort -u)
[ "$shared" = "$static" ] || complain "libweft.so and libweft.a differ: $(comm -3 <(echo "$shared") <(echo "$static"))"
extra=$(comm -13 <(echo "$declared") <(echo "$shared"))
[ -z "$extra" ] || complain "exported, but in no header: $extra"
absent=$(comm -23 <(echo "$declared") <(echo "$shared"))
[ -z "$absent" ] || complain "in a header, but not exported: $absent"

number() { sed -n "s/^#define WEFT_VERSION_$1 \([0-9]*\)\$/\1/p" "$WEFT_SOURCE_DIR/include/weft.h"; }
version=$(number MAJOR).$(number MINOR)
[ "${version%%.*}" = 0 ] || version=${version%%.*}
soname=$(objdump -p "$WEFT_BUILD_DIR/libweft.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libweft.so.$version" ] || complain "the soname is $soname, not libweft.so.$version"

objects=$WEFT_BUILD_DIR/CMakeFiles/weft_objects.dir/src
for object in "$objects"/{layout,plan,lower}/*.o; do
    [ -f "$object" ] || continue
    globals=$(objdump -t "$object" | awk '/ O .*\.(data|bss|tdata|tbss)/ && !/ \.data\.rel\.ro/ { print $NF }')
    [ -z "$globals" ] || complain "$(basename "$object"): the compile half has no globals, but: $globals"
done
exit "$failed"
