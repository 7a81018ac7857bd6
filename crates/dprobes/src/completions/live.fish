
# Processes, modules and functions: `dprobes completions fish -- WORDS` knows them.
function __dprobes_live
    set -l words (commandline -opc)
    dprobes completions fish -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c dprobes -f -n '__dprobes_live >/dev/null' -a '(__dprobes_live)'
