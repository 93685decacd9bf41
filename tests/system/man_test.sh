#!/usr/bin/env bash
# The manual: pages are set without a warning, the commands under EXAMPLES run, the program in weft.h(3) compiles and
# runs, and nothing is left out: every name of the headers is in a page of section 3, every function in exactly one
# SYNOPSIS there, every option of the command in weft(1).
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BUILD_DIR:?}" "${WEFT_BIN:?}"
command -v groff >/dev/null || { echo "skip: groff is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/folder"
ln -s "$WEFT_BIN" "$work/bin/weft"
export PATH=$work/bin:$PATH
failed=0 commands=0
complain() { echo "$1"; failed=1; }

# Plain text, with lines as long as it takes to keep commands whole.
render() { GROFF_NO_SGR=1 groff -man -Tascii -P-cbou -rLL=180n -rHY=0 "$1"; }

for page in "$WEFT_SOURCE_DIR"/man/*.[13]; do
    name=$(basename "$page")
    words=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    [ -z "$words" ] || complain "$name: $words"
    render "$page" >"$work/$name.txt"
    [ "$(wc -l <"$work/$name.txt")" -gt 50 ] || complain "$name: there is nothing in it"
done

# The files that the examples of weft(1) speak of.
cd "$work/folder" || exit 1
head -c 8388608 /dev/zero >w.bin
weft reshard 'f32[4096,512] @x1' 'f32[4096/x,512] @x4' --in w.bin --out 'w.%r.npy' >/dev/null || complain "the set-up failed"
mkdir half
while IFS= read -r command; do
    commands=$((commands + 1))
    bash -c "$command" >"$work/got" 2>&1 || complain "weft.1: $command: $(tail -n 3 "$work/got")"
done < <(sed -n '/^EXAMPLES/,/^SEE ALSO/p' "$work/weft.1.txt" | sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' | sed -n 's/^ *\(weft .*\)/\1/p')
[ "$commands" -ge 3 ] || complain "weft.1: only $commands examples were found"

cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$WEFT_BUILD_DIR/CMakeCache.txt")
sanitize=$(sed -n 's/^WEFT_SANITIZE:[A-Z]*=\(..*\)/-fsanitize=\1/p' "$WEFT_BUILD_DIR/CMakeCache.txt")
sed -n '/^SEE ALSO/,$d; /#include <pthread/,$p' "$work/weft.h.3.txt" >"$work/use.c"
# shellcheck disable=SC2086  # the option may be absent
if ! { "$cc" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror $sanitize -I"$WEFT_SOURCE_DIR/include" "$work/use.c" \
    "$WEFT_BUILD_DIR/libweft.a" -pthread -lm -o "$work/use" && "$work/use"; } >"$work/got" 2>&1; then
    complain "weft.h.3: its program: $(head -n 5 "$work/got")"
fi

# Words of the headers outside comments: functions, types, constants, and the fields of structs.
code=$(awk '{
        while (match($0, /\/\*[^*]*(\*[^\/][^*]*)*\*\//)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
        if (comment) { if (!sub(/.*\*\//, "")) next; comment = 0 }
        if (sub(/\/\*.*/, "")) comment = 1
        print
    }' "$WEFT_SOURCE_DIR"/include/weft.h "$WEFT_SOURCE_DIR"/include/weft/*.h | sed '/^#ifdef __cplusplus/,/^#e/d')
words=$(sed -E '/^#(if|e|include)/d; s/^(#define [A-Za-z_]+).*/\1/' <<<"$code" | grep -oE '[A-Za-z_][A-Za-z0-9_]*' | sort -u |
    grep -vxE 'WEFT_[A-Z]*_?H|define|typedef|struct|enum|extern|C|const|char|int|void|bool|size_t|u?int(8|32|64)_t')
[ "$(wc -w <<<"$words")" -gt 150 ] || complain "the headers were not understood"
cat "$work"/*.3.txt >"$work/section3"
for word in $(comm -23 <(echo "$words") <(grep -oE '[A-Za-z_][A-Za-z0-9_]*' "$work/section3" | sort -u)); do
    complain "section 3: no word of $word"
done
for page in "$work"/*.3.txt; do sed -n '/^SYNOPSIS/,/^[A-RT-Z]/p' "$page"; done >"$work/synopses"
functions=$(grep -oE 'weft_[a-z0-9_]+\(' <<<"$code" | tr -d '(' | sort -u)
for function in $functions; do
    pages=$(grep -c "[ *]$function(" "$work/synopses")
    [ "$pages" = 1 ] || complain "section 3: $function stands in $pages synopses"
done

names() { sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p'; }
sed -n '/^SYNOPSIS/,/^DESCRIPTION/p' "$work/weft.1.txt" >"$work/synopsis"
mapfile -t verbs < <(weft --help | names; weft bench --help | names | sed 's/^/bench /')
[ "${#verbs[@]}" -ge 17 ] || complain "only ${#verbs[@]} verbs were found"
for verb in "${verbs[@]}"; do
    grep "weft ${verb%% *} " "$work/synopsis" | grep -qw -- "${verb##* }" || complain "weft.1: the synopsis lacks weft $verb"
    # shellcheck disable=SC2086  # a verb may be two words
    for option in $(weft $verb --help | grep -oE -- '^  --?[a-z-]+' | sort -u); do
        grep -q -- "$option\b" "$work/weft.1.txt" || complain "weft.1: no word of $option, which weft $verb takes"
    done
done
echo "$commands examples, $(wc -w <<<"$words") names"
exit "$failed"
