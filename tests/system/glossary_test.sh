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
printf '%s\n' "/* the $word one */" "static int the_${word}_one;" "/* ${word^} first */" "/* un${word} is another word */" \
    >"$copy/src/base/planted.c"
python3 "$here/glossary.py" "$copy" >"$copy/said" && failed=1
for line in 1 2 3; do
    grep -q "planted.c:$line" "$copy/said" || { echo "self-check: line $line was not found"; failed=1; }
done
grep -q 'planted.c:4' "$copy/said" && { echo "self-check: part of another word was found"; failed=1; }
exit "$failed"
