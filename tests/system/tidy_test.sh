#!/usr/bin/env bash
# clang-tidy 14 finds nothing in src/: .clang-tidy says which checks, and why others are off. Other versions have other checks.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}"
for tidy in clang-tidy-14 clang-tidy; do
    version=$("$tidy" --version 2>/dev/null | sed -n 's/.*LLVM version \([0-9]*\)\..*/\1/p')
    [ "$version" = 14 ] && break
done
[ "$version" = 14 ] || { echo "skip: clang-tidy 14 is not installed${version:+ (version $version is)}"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The files that this build compiles; options that clang does not know are of no interest.
sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$WEFT_BUILD_DIR/compile_commands.json" |
    grep "^$WEFT_SOURCE_DIR/src/" | sort -u >"$work/files"
files=$(wc -l <"$work/files")
[ "$files" -gt 150 ] || { echo "only $files files were found"; exit 1; }
xargs -P 2 -n 8 "$tidy" -p "$WEFT_BUILD_DIR" --quiet --extra-arg=-Wno-unknown-warning-option <"$work/files" >"$work/found" 2>"$work/errors"
status=$?
grep -E -A 3 ' (error|warning): ' "$work/found"
[ "$status" -eq 0 ] || { grep -vE '^[0-9]+ warnings? ' "$work/errors" | tail -n 20; exit 1; }

# It does find what is wrong.
cp "$WEFT_SOURCE_DIR/.clang-tidy" "$work"
printf '#include <string.h>\nint f(char *s);\nint f(char *s)\n{\n    return strcmp(s, "a") == -1;\n}\n' >"$work/planted.c"
"$tidy" --quiet "$work/planted.c" -- >"$work/found" 2>/dev/null
grep -q 'bugprone-' "$work/found" || { echo "self-check: a comparison that is never true was not found"; exit 1; }
echo "$files files"
