#!/usr/bin/env bash
# Words: glossary.py says what is checked.
set -u
: "${WEFT_SOURCE_DIR:?}"
command -v python3 >/dev/null || { echo "skip: python3 is not installed"; exit 77; }
here=$(dirname "$0")
python3 "$here/glossary.py" "$WEFT_SOURCE_DIR" || exit 1

# A word that is gone is found again in a document, in a comment and in a name; part of another word is not it.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$WEFT_SOURCE_DIR/src" "$WEFT_SOURCE_DIR/docs" "$copy"
word=$(sed -n 's/^gone\t\([a-z]*\).*/\1/p' "$here/replaced.txt" | head -n 1)
failed=0
plant()
{
    printf '%s\n' "$2" >"$copy/src/base/planted.c"
    python3 "$here/glossary.py" "$copy" >"$copy/said"
    [ $? -eq "$1" ] || { echo "self-check: '$2' should give $1"; failed=1; }
    [ "$1" -eq 0 ] || grep -q 'planted.c:1' "$copy/said" || { echo "self-check: '$2' was not named"; failed=1; }
}
plant 1 "/* the $word one */"
plant 1 "static int the_${word}_one;"
plant 1 "/* ${word^} first */"
plant 0 "/* un${word} is another word */"
exit "$failed"
