#!/usr/bin/env bash
# bench/foreseen.py, without measuring: the seed and the number of cores say which cases there are, all of them are pairs that weft lowers for as many ranks
# as they name, and the machine of a case has its hosts and its links.
set -u
: "${WEFT_BIN:?}" "${WEFT_SOURCE_DIR:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$WEFT_SOURCE_DIR/tests/bench/foreseen_test.py" "$work"
