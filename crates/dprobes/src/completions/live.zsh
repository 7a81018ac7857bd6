# Processes, modules and functions: `dprobes completions zsh -- WORDS` knows them.
_dprobes() {
    local found
    if found=$(dprobes completions zsh -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null); then
        compadd -S '' -- "${(@f)found}"
        return
    fi
    _dprobes_fixed "$@"
}
