"""The options of ``headway run``, said once."""

from __future__ import annotations

from headway import keys
from headway.cli.words import REQUEST, Given, Option
from headway.cli.words import as_click as shown_by_click
from headway.tickets import MAX_PRIORITY, MAX_WEIGHT, check_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

OPTIONS = (
    *REQUEST,
    Option("--timeout", "TIME", "Longest time in the queue (90s, 5m): exit 124."),
    Option("--no-wait", "", "Do not queue: exit 75 if no slot is free now."),
    Option("--detach-ok", "", "Give the slot back when the first process ends."),
    Option("-q --quiet", "", "Wait silently; a lost slot is still told."),
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

    def __init__(self, given: Given) -> None:
        self.command = given.rest
        self.keys = tuple(given.check(key, keys.check) for key in given.texts("on"))
        self.task = given.checked("task", check_task)
        self.priority = given.whole("priority", -MAX_PRIORITY, MAX_PRIORITY) or 0
        self.weight = given.whole("weight", 1, MAX_WEIGHT) or 1
        self.timeout_seconds = given.duration("timeout")
        self.wait, self.quiet = not given.flag("no_wait"), given.flag("quiet")
        self.detach_ok = given.flag("detach_ok")


def parse(words: list[str]) -> Options:
    """Read the options up to ``--`` or the first word that is none; the rest is the command."""
    return Options(Given("run", OPTIONS, words))


def as_click() -> click.Command:
    """The same as a click command, for help, completion and the reference."""
    from headway.cli import completing  # noqa: PLC0415

    completions = {"on": completing.keys, "task": completing.tasks}
    return shown_by_click("run", OPTIONS, HELP, completions)
