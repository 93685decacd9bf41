#!/usr/bin/env bash
# What bash and zsh complete, against what --help says.
set -u
: "${WEFT_SOURCE_DIR:?}" "${WEFT_BIN:?}"
failed=0
complain() { echo "$1"; failed=1; }

# The options that a verb accepts, from its help: what stands in a column of its own.
options() { "$WEFT_BIN" "$@" --help | grep -oE '^  -[a-z-]+' | tr -d ' ' | sort; }
verbs=$("$WEFT_BIN" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
[ "$(wc -w <<<"$verbs")" -ge 8 ] || complain "weft --help names few verbs: $verbs"

# shellcheck source=/dev/null
source "$WEFT_SOURCE_DIR/completion/weft.bash"

# complete WORD...: what is offered for the last word.
complete_words()
{
    COMP_WORDS=("$WEFT_BIN" "$@") COMP_CWORD=$#
    _weft
    printf '%s\n' "${COMPREPLY[@]}" | sort
}
# same WHAT FOUND EXPECTED
same() { [ "$2" = "$3" ] || complain "$1: offered '$(tr '\n' ' ' <<<"$2")', not '$(tr '\n' ' ' <<<"$3")'"; }

same "weft" "$(complete_words '')" "$(printf '%s\n' $verbs help --help --version | sort)"
same "weft ch" "$(complete_words ch)" $'check\ncheckpoint'
same "weft help re" "$(complete_words help re)" reshard
same "weft plan --al" "$(complete_words plan a b --al)" $'--algorithm\n--all'
for verb in $verbs; do
    [ "$verb" = bench ] || same "weft $verb -" "$(complete_words "$verb" -)" "$(options "$verb")"
done
tables=$("$WEFT_BIN" bench --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
same "weft bench" "$(complete_words bench '')" "$(printf '%s\n' $tables --help | sort)"
for table in $tables; do
    same "weft bench $table -" "$(complete_words bench "$table" -)" "$(options bench "$table")"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/rank0.json" "$work/rank1.json"
same "weft diagnose FILE" "$(complete_words diagnose "$work/r")" "$work/rank0.json"$'\n'"$work/rank1.json"
same "weft check --cases FILE" "$(complete_words check --cases "$work/rank0")" "$work/rank0.json"
same "weft run --on" "$(complete_words run --on t)" tcp:
same "weft bus" "$(complete_words bus '')" $'agent\ndoctor\nls\npull\npush\nserve\nstatus\nwatch'
same "weft bus serve --keep FILE" "$(complete_words bus serve --keep "$work/rank0")" "$work/rank0.json"
same "weft run -n" "$(complete_words run -n '')" ""
grep -q "_weft" <<<"$(complete -p weft)" || complain "bash: nothing is registered for weft"

if ! command -v zsh >/dev/null; then
    [ "$failed" -eq 0 ] || exit 1
    echo "skip: zsh is not installed (bash: all right)"
    exit 77
fi
for verb in $verbs; do
    [ "$verb" = bench ] && verb="bench coll"
    # shellcheck disable=SC2086
    found=$(zsh -f -c 'source "$1/completion/_weft"; _weft_words "${@:2}"; for r in $reply; do print -r -- ${r%%:*}; done' zsh \
        "$WEFT_SOURCE_DIR" "$WEFT_BIN" $verb | grep '^-' | sort)
    # shellcheck disable=SC2086
    same "zsh: weft $verb -" "$found" "$(options $verb)"
done
# The whole of it, on a terminal: what Tab makes of a prefix. zpty waits for the text.
tab=$(timeout 20 zsh -f -c '
    zmodload zsh/zpty
    zpty z zsh -f -i
    zpty -w z "PROMPT=; path=(${2:h} \$path); fpath=($1/completion \$fpath); autoload -Uz compinit; compinit -u -D; print READ\${:-Y}"
    zpty -r -m z line "*READY*"
    zpty -n -w z $'"'"'weft reshard a b --buc\t'"'"'
    zpty -r -m z line "*--bucket*"
    print -r -- $line
    zpty -d z' zsh "$WEFT_SOURCE_DIR" "$WEFT_BIN")
grep -q -- '--bucket' <<<"$tab" || complain "zsh: Tab after 'weft reshard a b --buc' gave '$tab'"
exit "$failed"
