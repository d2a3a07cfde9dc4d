# SPDX-License-Identifier: MIT
# Completion of the headrow command for fish; what it offers is read from the command's own help.

function __headrow_commands
    headrow --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1\t\2/p'
end
function __headrow_options
    set -l words (commandline -opc)
    headrow $words[2] --help 2>/dev/null | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z0-9-]*\) *\(.*\)/\2\t\3/p' | sort -u
end
complete -c headrow -f -n 'test (count (commandline -opc)) -eq 1' -a '(__headrow_commands)'
complete -c headrow -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -f -a '(__headrow_options)'
complete -c headrow -n 'test (count (commandline -opc)) -gt 1' -F
