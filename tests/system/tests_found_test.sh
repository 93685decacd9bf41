#!/usr/bin/env bash
# The tests of every file of src/ can be found: one has its name, or tests/README.md names them. What the table says is there:
# files, and tests. Names of files are given once in tests/ and in src/.
set -u
: "${WEFT_SOURCE_DIR:?}"
cd "$WEFT_SOURCE_DIR" || exit 1

# check ROOT: prints what is wrong below a root.
check()
{
    local file folder name pattern found rows
    cd "$1" || return
    rows=$(sed -n 's/^| \(`.*\) | \(.*\) |$/\1 | \2/p' tests/README.md)
    find src -name '*.c' | sort | while read -r file; do
        name=$(basename "$file" .c)
        folder=${file#src/}
        folder=${folder%%/*}
        found=$(find "tests/$folder" \( -name "${name}_test.c" -o -name "${name}_test.sh" \) 2>/dev/null)
        [ -n "$found" ] && continue
        for pattern in $(cut -d '|' -f 1 <<<"$rows" | grep -o '`[^`]*`' | tr -d '`'); do
            # shellcheck disable=SC2053  # it is a pattern
            [[ ${file#src/} == $pattern && ${file//[!\/]/} == "${pattern//[!\/]/}/" ]] && continue 2
        done
        echo "$file: no test has its name, and tests/README.md does not say which tests it has"
    done
    for pattern in $(cut -d '|' -f 1 <<<"$rows" | grep -o '`[^`]*`' | tr -d '`'); do
        compgen -G "src/$pattern" >/dev/null || echo "tests/README.md: there is no file src/$pattern"
    done
    for name in $(cut -d '|' -f 2 <<<"$rows" | grep -o '`[^`]*`' | tr -d '`' | sort -u); do
        case $name in
        fuzz/*) found=$(find "tests/$name.c" 2>/dev/null) ;;
        *) found=$(find tests -name "${name}_test.c" -o -name "${name}_test.sh" -o -name "$name.sh") ;;
        esac
        [ -n "$found" ] || echo "tests/README.md: there is no test $name"
    done
    find src tests -path tests/fuzz -prune -o -name '*.[ch]' -printf '%f\n' | sort | uniq -d | sed 's/$/: two files have this name/'
}

wrong=$(check .)
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }

# It does find what is wrong.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r src tests "$copy"
expect()
{
    local found
    found=$(check "$copy")
    [ "$found" = "$1" ] || { echo "self-check: should say '$1', says '$found'"; exit 1; }
}
echo 'int x;' >"$copy/src/engine/planted.c"
expect "src/engine/planted.c: no test has its name, and tests/README.md does not say which tests it has"
touch "$copy/tests/engine/planted_test.c"
expect ""
touch "$copy/tests/comm/planted.c"
expect "planted.c: two files have this name"
rm "$copy/tests/comm/planted.c"
# shellcheck disable=SC2016  # backquotes are text
printf '| `base/nowhere.c` | `base`, `absent` |\n' >>"$copy/tests/README.md"
expect "tests/README.md: there is no file src/base/nowhere.c
tests/README.md: there is no test absent"
echo "$(find src -name '*.c' | wc -l) files"
