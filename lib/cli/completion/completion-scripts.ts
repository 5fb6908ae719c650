/**
 * Completion scripts for shells. Each calls `cnapi __complete`, which knows the command table and
 * the fleet. It prints only words that need no quoting, and nothing where a file name is expected.
 */
export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

const BASH = `# bash completion of cnapi: source <(cnapi completion bash)
_cnapi() {
  local IFS=$'\\n'
  COMPREPLY=($(cnapi __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _cnapi cnapi
`;

const ZSH = `#compdef cnapi
# zsh completion of cnapi: source <(cnapi completion zsh), after compinit
_cnapi() {
  local -a found
  found=("\${(@f)$(cnapi __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[*]}" ]]; then compadd -a found; else _files; fi
}
compdef _cnapi cnapi
`;

const FISH = `# fish completion of cnapi: cnapi completion fish | source
function __cnapi_complete
    set -l before (commandline -opc)
    cnapi __complete -- $before[2..-1] (commandline -ct) 2>/dev/null
end
complete -c cnapi -f -a '(__cnapi_complete)'
complete -c cnapi -n 'contains -- -- (commandline -opc)' -F
`;

export const completionScripts: Readonly<Record<Shell, string>> = { bash: BASH, zsh: ZSH, fish: FISH };
