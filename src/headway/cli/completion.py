"""``headway completion``: the script that lets a shell complete headway's words."""

from __future__ import annotations

import click

from headway.cli import output

# The same for everyone who asks click for a completion of `headway`.
_VARIABLE = "_HEADWAY_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, keys, limits, task names and ids. Load it from
    the file that your shell reads when it starts.

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
