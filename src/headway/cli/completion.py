"""``headway completion``: the script that lets a shell complete headway's words."""

from __future__ import annotations

import click

from headway.cli import output, run_options, submit_options

# The same for everyone who asks click for a completion of `headway`.
_VARIABLE = "_HEADWAY_COMPLETE"
# click's script completes our own words. The command of `run` and `submit` has a completion of
# its own, found by bash-completion if that is loaded, as it does for sudo. Bash 4.3 to 5.0 loses
# an array that is made local from itself; hence `words`.
_BASH = """
_headway_command_at() {
    local at=2
    [[ ${COMP_WORDS[1]} == run || ${COMP_WORDS[1]} == submit ]] || return
    while (( at < COMP_CWORD )); do
        case ${COMP_WORDS[at]} in
            --) echo $(( at + 1 )); return ;;
            OPTIONS)
                (( at += 1 ))
                [[ ${COMP_WORDS[at]} == = ]] && (( at += 1 ))
                (( at += 1 )) ;;
            [=:]) (( at += 2 )) ;;
            -*) (( at += 1 )) ;;
            *) echo $at; return ;;
        esac
    done
    [[ $at -eq $COMP_CWORD && ${COMP_WORDS[at]} != [-=:]* ]] && echo $at
}

_headway_command() {
    local at=$1 word spec
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $at
        return
    elif declare -F _command_offset >/dev/null; then
        _command_offset $at
        return
    elif (( at == COMP_CWORD )); then
        COMPREPLY=($(compgen -c -- "${COMP_WORDS[at]}"))
        compopt -o default 2>/dev/null
        return
    fi
    spec=$(complete -p -- "${COMP_WORDS[at]##*/}" 2>/dev/null)
    [[ $spec =~ ' -F '([^ ]+) ]] || { compopt -o bashdefault -o default 2>/dev/null; return; }
    local function=${BASH_REMATCH[1]} line=$COMP_LINE
    for word in "${COMP_WORDS[@]:0:at}"; do
        line=${line#*"$word"}
    done
    while [[ $line == ' '* ]]; do
        line=${line# }
    done
    local COMP_POINT=$(( COMP_POINT - ${#COMP_LINE} + ${#line} ))
    local COMP_LINE=$line COMP_CWORD=$(( COMP_CWORD - at ))
    local -a words=("${COMP_WORDS[@]:at}")
    local -a COMP_WORDS=("${words[@]}")
    $function "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
}

_headway() {
    local at
    COMPREPLY=()
    at=$(_headway_command_at)
    if [[ $at ]]; then
        _headway_command $at
    else
        _headway_completion "$@"
    fi
}

complete -o nosort -F _headway headway
"""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, keys, limits, task names and ids; in bash also the
    command of `run` and `submit`, as that completes its own words. Load it from the file
    that your shell reads when it starts.

    \b
    Example:
      echo 'eval "$(headway completion bash)"' >> ~/.bashrc
      echo 'eval "$(headway completion zsh)"' >> ~/.zshrc
      headway completion fish > ~/.config/fish/completions/headway.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    scripts = get_completion_class(shell)
    assert scripts is not None
    output.data(scripts(context.find_root().command, {}, "headway", _VARIABLE).source())
    if shell == "bash":
        options = (*run_options.OPTIONS, *submit_options.OPTIONS)
        words = dict.fromkeys(word for o in options if o.takes for word in o.words)
        output.data(_BASH.replace("OPTIONS", "|".join(words)))
