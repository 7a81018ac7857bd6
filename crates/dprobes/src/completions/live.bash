
# Processes, modules and functions: `dprobes completions bash -- WORDS` knows them. The words are
# taken from the line, since bash splits what has a colon.
_dprobes_live() {
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:space:]]} found
    local -a words
    read -ra words <<<"${line%"$word"}"
    if found=$(dprobes completions bash -- "${words[@]:1}" "${word#[\"\']}" 2>/dev/null); then
        mapfile -t COMPREPLY <<<"$found"
        [[ -n $found ]] || COMPREPLY=()
        if [[ $word == *:* && $word != [\"\']* && $COMP_WORDBREAKS == *:* ]]; then
            COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
        fi
        [[ $found == *: ]] && compopt -o nospace 2>/dev/null
        return 0
    fi
    _dprobes "$@"
}

complete -F _dprobes_live -o bashdefault -o default dprobes
