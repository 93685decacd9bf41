#!/usr/bin/env bash
# The tests of every file of src/ can be found: one has its name, or tests/README.md names them. What the table says is there:
# files, and tests. Names of files are given once in tests/ and in src/.
set -u
: "${WEFT_SOURCE_DIR:?}"
cd "$WEFT_SOURCE_DIR" || exit 1

# check ROOT: prints what is wrong below a root. It reads the names of all files once: a process for each of them takes seconds.
check()
{
    local file folder name pattern
    local -A tests=() # FOLDER/NAME, and NAME of those in any folder
    cd "$1" || return
    while IFS=/ read -r folder name; do
        case $name in
        *_test.c | *_test.sh) tests[$folder/${name%_test.*}]=yes tests[${name%_test.*}]=yes ;;
        *.sh) tests[${name%.sh}]=yes ;;
        *.c) [ "$folder" = fuzz ] && tests[fuzz/${name%.c}]=yes ;;
        esac
    done < <(find tests -mindepth 2 -maxdepth 2 -type f -printf '%P\n')
    local rows patterns named
    rows=$(sed -n 's/^| \(`.*\) | \(.*\) |$/\1 | \2/p' tests/README.md)
    # shellcheck disable=SC2016  # backquotes are text
    mapfile -t patterns < <(cut -d '|' -f 1 <<<"$rows" | grep -o '`[^`]*`' | tr -d '`')
    # shellcheck disable=SC2016
    mapfile -t named < <(cut -d '|' -f 2 <<<"$rows" | grep -o '`[^`]*`' | tr -d '`' | sort -u)
    while read -r file; do
        name=${file##*/}
        [ -n "${tests[${file%%/*}/${name%.c}]-}" ] && continue
        for pattern in "${patterns[@]}"; do
            # shellcheck disable=SC2053  # it is a pattern
            [[ $file == $pattern && ${file//[!\/]/} == "${pattern//[!\/]/}" ]] && continue 2
        done
        echo "src/$file: no test has its name, and tests/README.md does not say which tests it has"
    done < <(find src -name '*.c' -printf '%P\n' | sort)
    for pattern in "${patterns[@]}"; do
        compgen -G "src/$pattern" >/dev/null || echo "tests/README.md: there is no file src/$pattern"
    done
    for name in "${named[@]}"; do
        [ -n "${tests[$name]-}" ] || echo "tests/README.md: there is no test $name"
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
