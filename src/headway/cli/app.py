"""The commands, each loaded from the file that bears its name when it is called."""

from __future__ import annotations

import gc
import importlib
from difflib import get_close_matches

import click

from headway import __version__
from headway.cli import USAGE

# In the order of `headway --help`.
COMMANDS = (
    "run",
    "agent",
    "status",
    "queue",
    "why",
    "top",
    "check",
    "submit",
    "jobs",
    "show",
    "logs",
    "wait",
    "retry",
    "approve",
    "move",
    "prune",
    "worker",
    "gateway",
    "limits",
    "pause",
    "resume",
    "cancel",
    "release",
    "config",
    "doctor",
    "demo",
    "completion",
)


class Commands(click.Group):
    """A group whose commands are modules: ``status`` is ``headway.cli.status.command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in COMMANDS:
            close = get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"There is no command {cmd_name!r}.{hint}", ctx)
        module = importlib.import_module(f"headway.cli.{cmd_name}")
        command: click.Command = module.command
        return command


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
)
@click.version_option(__version__, prog_name="headway", message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> int | None:
    """Let many coding agents and LLM calls share one set of limits.

    Put it in front of what you run: the command waits for its turn, visibly and
    fairly, and its slot comes back however it ends. Without a command, shows the
    status.

    \b
    Example:
      headway limits set agent 3
      headway run --task issue-16 -- opencode run "fix issue 16"
      headway
    """
    if context.invoked_subcommand is None:
        code: int | None = context.invoke(app.get_command(context, "status"))
        return code
    return None


def start(words: list[str]) -> int:
    """Run one command; its exit code."""
    gc.enable()
    try:
        code = app.main(words, prog_name="headway", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0
