# bash completion of the command weft. What can be completed is what `weft --help` and `weft VERB --help` say, so that it is
# true of the weft that is installed.

# The words that begin the indented lines of a help: verbs of `weft --help`, options of a verb, tables of `weft bench --help`.
_weft_words()
{
    "$1" "${@:2}" --help 2>/dev/null | sed -nE 's/^  (-?-?[a-z][a-z-]*)( .*|$)/\1/p'
}

# What the help of a verb calls the value of an option; empty if the option has none.
_weft_value()
{
    "$1" "$2" ${4:+"$4"} --help 2>/dev/null | sed -nE "s/^  $3 ([A-Z][A-Z=,.]*N?[.]*)( .*|$)/\1/p"
}

_weft()
{
    local weft=${COMP_WORDS[0]} verb=${COMP_WORDS[1]-} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} table=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ] || { [ "$verb" = help ] && [ "$COMP_CWORD" -eq 2 ]; }; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weft_words "$weft") help --help --version" -- "$cur")
        return
    fi
    [ "$verb" != bench ] || [ "$COMP_CWORD" -eq 2 ] || table=${COMP_WORDS[2]}
    case $prev in
    -*)
        case $(_weft_value "$weft" "$verb" "$prev" "$table") in
        '') ;;
        FILE | NAME | RULES | PLACE | OUT)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        URL)
            mapfile -t COMPREPLY < <(compgen -W 'shm: tcp: ucx: auto:' -- "$cur")
            return
            ;;
        *) return ;; # a number, a mesh
        esac
        ;;
    esac
    case $cur in
    -*)
        # shellcheck disable=SC2086 # the table is a word, or nothing
        mapfile -t COMPREPLY < <(compgen -W "$(_weft_words "$weft" "$verb" $table)" -- "$cur")
        return
        ;;
    esac
    case $verb in
    bench) [ "$COMP_CWORD" -ne 2 ] || mapfile -t COMPREPLY < <(compgen -W "$(_weft_words "$weft" bench) --help" -- "$cur") ;;
    bus) [ "$COMP_CWORD" -ne 2 ] || mapfile -t COMPREPLY < <(compgen -W 'serve ls watch status push pull doctor agent' -- "$cur") ;;
    run) mapfile -t COMPREPLY < <(compgen -c -f -- "$cur") ;;
    checkpoint | diagnose | trace) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -o filenames -F _weft weft
