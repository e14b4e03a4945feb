"""The commands, each loaded from the file that bears its name when it is called."""

from __future__ import annotations

import gc
import importlib
import io
from difflib import get_close_matches

import click

from headway import __version__, plain_text
from headway.cli import USAGE, output
from headway.errors import shortened

# In the order of `headway --help`.
GROUPS = {
    "Run": ("run", "agent", "submit", "check", "gateway"),
    "Look": ("status", "queue", "why", "top"),
    "Jobs": (
        "jobs",
        "show",
        "logs",
        "wait",
        "retry",
        "approve",
        "move",
        "prune",
        "notify",
        "worker",
    ),
    "Control": ("limits", "pause", "resume", "cancel", "release"),
    "Set up": ("config", "doctor", "demo", "completion"),
}
# Blanks before a name and after the longest one.
_AROUND_NAME = 6
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


class Commands(click.Group):
    """A group whose commands are modules: ``status`` is ``headway.cli.status.command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, all descriptions in one column."""
        room = formatter.width - max(map(len, COMMANDS)) - _AROUND_NAME
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (f"{name:<{max(map(len, COMMANDS))}}", self._short_help(ctx, name, room))
                        for name in names
                    ]
                )

    def _short_help(self, ctx: click.Context, name: str, room: int) -> str:
        return self.get_command(ctx, name).get_short_help_str(room)

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
    epilog="Docs: README.md and docs/ in the source: jobs, llm, agents, gateway, fleet,"
    " settings, json.",
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


def _show(error: click.ClickException) -> None:
    """Print it; what was typed or pasted is repeated as text, but not without end."""
    told = io.StringIO()
    error.show(told)
    output.draw(plain_text.lines(shortened(told.getvalue())))


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
        _show(error)
        return USAGE
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    return code if isinstance(code, int) else 0
