#!/usr/bin/env bash
# All C files are as clang-format 14 leaves them (`make format`). Other versions break lines elsewhere, so they do not count.
set -u
: "${WEFT_SOURCE_DIR:?}"
cd "$WEFT_SOURCE_DIR" || exit 1
for format in clang-format-14 clang-format; do
    version=$("$format" --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
    [ "$version" = 14 ] && break
done
[ "$version" = 14 ] || { echo "skip: clang-format 14 is not installed${version:+ (version $version is)}"; exit 77; }
mapfile -t files < <(find include src tests bench examples python -name '*.[ch]')
[ "${#files[@]}" -gt 300 ] || { echo "only ${#files[@]} files were found"; exit 1; }
wrong=$("$format" --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):\([0-9]*\):.*warning: code should be.*/\1:\2/p')
[ -z "$wrong" ] || { echo "make format would change:"; echo "$wrong"; exit 1; }
# It does find what is wrong.
printf 'int  x ;\n' | "$format" --dry-run --Werror --assume-filename=src/x.c >/dev/null 2>&1 &&
    { echo "self-check: a line that is not formatted was not found"; exit 1; }
echo "${#files[@]} files"
