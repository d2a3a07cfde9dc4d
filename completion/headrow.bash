# SPDX-License-Identifier: MIT
# Completion of the headrow command for bash. Commands, options and the words an
# option takes are read from its own help, so they are never older than it.

_headrow() {
  local command=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} before= help words
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 1 ]; then before=${COMP_WORDS[COMP_CWORD-1]}; fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="$("$command" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p') --help --version"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
  help=$("$command" "${COMP_WORDS[1]}" --help 2>/dev/null) || return
  case $current in
    -*)
      words=$(printf '%s\n' "$help" | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' | sort -u)
      COMPREPLY=($(compgen -W "$words" -- "$current"))
      return ;;
  esac
  # "--cache f16|f32": one of the words in small letters
  words=
  case $before in
    --*) words=$(printf '%s\n' "$help" |
      sed -n "s/^ *\(-., \)\{0,1\}$before \([^ ]*|[^ ]*\).*/\2/p" | head -n 1 | tr '|' '\n' | grep -v '[A-Z]') ;;
  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
    case builtin in "$current"*) [ "$COMP_CWORD" -eq 2 ] && COMPREPLY+=(builtin) ;; esac
  fi
}
complete -F _headrow headrow
