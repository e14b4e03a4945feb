"""The options of ``headway run``, said once: parsed here by hand, and shown by click."""

from __future__ import annotations

from headway import durations, keys
from headway.cli import USAGE, Failure
from headway.errors import ConfigError
from headway.tickets import MAX_PRIORITY, MAX_WEIGHT, check_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    import click

    T = TypeVar("T")


class Option:
    """One option: how it is written, what it takes, and what it is for."""

    __slots__ = ("help", "name", "takes", "words")

    def __init__(self, name: str, words: tuple[str, ...], takes: str, help: str) -> None:  # noqa: A002
        self.name, self.words, self.takes, self.help = name, words, takes, help


OPTIONS = (
    Option("on", ("--on",), "KEY", "What it counts on [agent/PROGRAM]; give it again for more."),
    Option("task", ("--task",), "NAME", "Your own name for the work, shown to people."),
    Option("priority", ("--priority",), "N", "A head start in the queue, -100 to 100 [0]."),
    Option("weight", ("--weight",), "N", "How many slots it takes [1]."),
    Option("timeout", ("--timeout",), "TIME", "Longest time in the queue (90s, 5m): exit 124."),
    Option("no_wait", ("--no-wait",), "", "Do not queue: exit 75 if no slot is free now."),
    Option("detach_ok", ("--detach-ok",), "", "Give the slot back when the first process ends."),
    Option("quiet", ("-q", "--quiet"), "", "Wait silently; a lost slot is still told."),
)
HELP = """Run a command under a slot, as soon as there is one.

Waits visibly for its turn, then runs the command on this terminal: Ctrl-C, Ctrl-Z and the
size of the window work, signals are passed on, and the exit code is the command's (128+n if
signal n ended it). The slot is held until the last process that the command started is gone,
and comes back however that happens. Without --on the command counts on agent/PROGRAM.

Nested: a command that runs inside another slot goes ahead on that one instead of waiting for it.

\b
Example:
  headway run -- opencode run "fix issue 16"
  headway run --task issue-16 --timeout 5m -- opencode run "fix issue 16"
  headway run --on llm/anthropic --no-wait -- ./nightly.sh || echo "later"

\b
Exit codes besides the command's own:
  64 wrong usage           69 store unavailable     75 no slot now, or ever
  78 bad settings         124 --timeout ran out    125 cancelled by someone
  126 cannot be executed  127 no such program
"""


class Options:
    """What was asked for, checked."""

    __slots__ = (
        "command",
        "detach_ok",
        "keys",
        "priority",
        "quiet",
        "task",
        "timeout_seconds",
        "wait",
        "weight",
    )

    def __init__(self, given: dict[str, list[str]], command: list[str]) -> None:
        self.command = command
        self.keys = tuple(_checked(keys.check, key) for key in given["on"])
        self.task = _checked(check_task, given["task"][-1]) if given["task"] else None
        self.priority = _whole(given, "priority", 0, -MAX_PRIORITY, MAX_PRIORITY)
        self.weight = _whole(given, "weight", 1, 1, MAX_WEIGHT)
        self.timeout_seconds = _timeout(given)
        self.wait, self.quiet = not given["no_wait"], bool(given["quiet"])
        self.detach_ok = bool(given["detach_ok"])


def parse(words: list[str]) -> Options:
    """Read the options up to ``--`` or the first word that is none; the rest is the command."""
    known = {word: option for option in OPTIONS for word in option.words}
    given: dict[str, list[str]] = {option.name: [] for option in OPTIONS}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word, equals, value = rest.pop(0).partition("=")
        option = known.get(word)
        if option is None:
            raise _wrong(f"there is no option {word}")
        if option.takes and not equals:
            if not rest or rest[0] == "--":
                raise _wrong(f"{word} needs a value: {word} {option.takes}")
            value = rest.pop(0)
        elif equals and not option.takes:
            raise _wrong(f"{word} takes no value")
        given[option.name].append(value)
    if rest[:1] == ["--"]:
        rest.pop(0)
    if not rest or not rest[0]:
        raise _wrong("what shall be run? headway run [OPTIONS] -- COMMAND [ARGUMENTS]")
    return Options(given, rest)


def _checked(check: Callable[[str], T], value: str) -> T:
    try:
        return check(value)
    except ConfigError as error:
        raise _wrong(str(error)) from None


def _whole(given: dict[str, list[str]], name: str, default: int, least: int, greatest: int) -> int:
    if not given[name]:
        return default
    text = given[name][-1]
    try:
        number = int(text)
    except ValueError:
        number = greatest + 1
    if not least <= number <= greatest:
        raise _wrong(f"--{name} must be a whole number from {least} to {greatest}, got {text!r}")
    return number


def _timeout(given: dict[str, list[str]]) -> float | None:
    if not given["timeout"]:
        return None
    text = given["timeout"][-1]
    number = text.replace(".", "", 1).isdecimal()
    return _checked(
        lambda _: durations.seconds(float(text) if number else text, name="--timeout"), text
    )


def _wrong(problem: str) -> Failure:
    return Failure(f"{problem}\n  see: headway run --help", USAGE)


def as_click() -> click.Command:
    """The same as a click command, for help, completion and the reference."""
    import click  # noqa: PLC0415

    from headway.cli import completing  # noqa: PLC0415

    completions = {"on": completing.keys, "task": completing.tasks}
    parameters: list[click.Parameter] = [
        click.Option(
            [*option.words, option.name],
            help=option.help,
            metavar=option.takes or None,
            is_flag=not option.takes,
            multiple=option.name == "on",
            shell_complete=completions.get(option.name),
        )
        for option in OPTIONS
    ]
    parameters.append(click.Argument(["command"], nargs=-1, metavar="-- COMMAND [ARGUMENTS]..."))
    return click.Command("run", params=parameters, help=HELP, no_args_is_help=True)
