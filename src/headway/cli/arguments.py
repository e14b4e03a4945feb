"""What several commands take: keys, limits, and the wish for JSON."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from headway import durations, keys
from headway.cli import completing
from headway.errors import ConfigError
from headway.limits import MAX_SLOTS, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., object])

_MAX_DIGITS = len(str(MAX_SLOTS))


def key(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A key; a wrong one is bad usage."""
    return _checked(value, pattern=False)


def pattern(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A key or a pattern; a wrong one is bad usage."""
    return _checked(value, pattern=True)


def _checked(value: str | None, *, pattern: bool) -> str | None:
    try:
        return None if value is None else keys.check(value, pattern=pattern)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def slots(context: click.Context, _: click.Parameter, value: str | None) -> int | str | None:
    """A number of slots, or the word for no limit."""
    if value is not None and value.startswith("--"):
        raise click.NoSuchOption(value, possibilities=["--requests-per-minute"], ctx=context)
    try:
        return _amount(value, "is not a limit; give a whole number of slots")
    except click.BadParameter as error:
        if value == "0":  # what people write who want nothing to start
            key = shlex.quote(str(context.params.get("key")))
            raise click.BadParameter(
                f"{error.message}. To stop admission: headway pause {key}"
            ) from None
        raise


def budget(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    """A number of requests a minute, or the word for no limit."""
    return _amount(value, "is not a budget; give a whole number of requests a minute")


def _amount(value: str | None, problem: str) -> int | str | None:
    if value is None or value == UNLIMITED:
        return value
    if value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS:
        amount = int(value)
        if 1 <= amount <= MAX_SLOTS:
            return amount
    raise click.BadParameter(
        f'{value!r} {problem} from 1 to {MAX_SLOTS}, or the word "{UNLIMITED}"'
    )


def duration(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A length of time in seconds; a bare number is seconds."""
    if value is None:
        return None
    try:
        return durations.from_text(value, name=parameter.opts[-1])
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def jobs(command: F) -> F:
    """Let a command take one or more jobs: their numbers, or the names of their tasks."""
    argument = click.argument(
        "names", metavar="ID...", nargs=-1, required=True, shell_complete=completing.jobs
    )
    return argument(command)


def job(command: F) -> F:
    """Let a command take one job: its number, or the name of its task."""
    return click.argument("name", metavar="ID", shell_complete=completing.jobs)(command)


def json_option(command: F) -> F:
    """Give a listing its ``--json``."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON for programs; see docs/json.md."
    )
    return option(command)
