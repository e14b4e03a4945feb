"""Writes reference.md from the help texts; ``--check`` only says whether it would change."""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from headway.cli.app import COMMANDS, app

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference.md")
COLUMNS = 80
INTRODUCTION = """\
# The command line

<!-- Made by docs/make_reference.py from the help texts; edit those. -->

What was asked for goes to stdout, everything else to stderr. Tables fit into the
terminal, and are not cut when they go to a file or a pipe. Colour appears only on a
terminal, and never with `NO_COLOR` in the environment. Every listing has `--json`; the
shapes are in [json.md](json.md), the settings in [settings.md](settings.md).

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | what was named is not there, or the name fits several |
| 64 | the command line is wrong |
| 69 | the home cannot be used |
| 70 | Headway refused, or has a fault |
| 75 | no slot is free now, or not within `cooldown.max_wait`; or `run` would wait for itself |
| 78 | a setting is wrong |
| 124 | the time in the queue ran out; `agent`: or a watchdog's clock |
| 125 | cancelled while waiting; `agent`: or its slot was taken back |
| 126, 127 | `run`, `agent`: the command is not executable, or not there |
| 128+n | `run`: the command was ended by signal n; `agent`: signal n ended it; 130: Ctrl-C |

`headway run` ends with its command's own code; `headway agent` with its program's if that
failed, and never with 0 then.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *sections()])


def sections() -> Iterator[str]:
    """A section for each command, those within it too."""
    root = click.Context(app, info_name="headway", terminal_width=COLUMNS, **app.context_settings)
    yield section("headway", root)
    for name in COMMANDS:
        yield from command_sections(name, root, "headway")


def command_sections(name: str, parent: click.Context, path: str) -> Iterator[str]:
    """The section of one command and of those within it."""
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent, terminal_width=COLUMNS)
    yield section(f"{path} {name}", context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from command_sections(inner, context, f"{path} {name}")


def section(title: str, context: click.Context) -> str:
    """A heading and the help text below it."""
    return f"## {title}\n\n```text\n{context.command.get_help(context)}\n```\n"


def main() -> int:
    """Write the page, or compare it; 1 if it is not up to date."""
    made = reference()
    if "--check" in sys.argv:
        with open(TARGET, encoding="utf-8") as file:
            return int(file.read() != made)
    with open(TARGET, "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
