"""The options of ``headway submit``, said once."""

from __future__ import annotations

from headway import keys, sizes
from headway.cli.words import REQUEST, Given, Option
from headway.cli.words import as_click as shown_by_click
from headway.jobs.orders import MAX_RETRIES, check_retry_on
from headway.tickets import MAX_PRIORITY, MAX_WEIGHT, check_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from headway.jobs.orders import Options

WHEN_FULL = ("queue", "wait", "reject")
_MAX_DIGITS = 18
OPTIONS = (
    *REQUEST,
    Option("--when-full", "WHAT", "queue [default], wait until it has ended, or reject: exit 75."),
    Option(
        "--after",
        "ID",
        "Run when this job has succeeded: its number or task; repeatable.",
        is_repeated=True,
    ),
    Option("--hold", "", "Keep it until somebody approves it."),
    Option("--expire", "TIME", "Give up if it has not started by then, or never [24h]."),
    Option("--retries", "N", "Retry up to N times after a failure or interruption [0]."),
    Option("--retry-delay", "TIME", "Wait before a retry; doubles up to 10 min [10s]."),
    Option(
        "--retry-on",
        "WHAT",
        "Retry only after this: failed, interrupted or an exit code [any]; repeatable.",
        is_repeated=True,
    ),
    Option("--dedupe", "NAME", "If an unfinished job has this name, answer with that one."),
    Option("--max-runtime", "TIME", "End it when it has run for so long, or off."),
    Option("--idle-warn", "TIME", "Warn when it neither writes nor computes for so long, or off."),
    Option("--idle-kill", "TIME", "End it when it neither writes nor computes so long, or off."),
    Option("--max-output", "SIZE", "End it when it has written so much (100MB), or off."),
    Option("--notify", "URL", "Tell there what becomes of it; more than once.", is_repeated=True),
    Option("--notify-on", "EVENT", "Tell only of this; more than once.", is_repeated=True),
    Option("--no-start", "", "Start no worker, also if none runs."),
    Option("--json", "", "Print JSON for programs; see docs/json.md."),
    Option("-q --quiet", "", "Print the job's id and nothing else."),
)
HELP = """Keep a command and run it when it is its turn.

Returns at once with the job's id and its place in the queue; from then on nothing loses
it. Command, directory, environment and umask are kept as they are now. It runs in the
background, under the same limits and in the same queue as everything else, with its
output in a log. Without --on it counts on agent/PROGRAM.

\b
Example:
  headway submit -- opencode run "fix issue 16"
  headway submit --task issue-16 --max-runtime 2h -- claude -p "fix issue 16"
  headway submit --after issue-16 --notify ntfy://my-topic -- ./deploy.sh

\b
Exit codes:
  64 wrong usage     69 store unavailable   75 no slot now, or too many jobs
  78 bad settings   127 no such program     --when-full wait: the job's own
"""


class Submission:
    """What was asked for, checked."""

    __slots__ = ("after", "as_json", "command", "options", "quiet", "start", "when_full")

    def __init__(self, given: Given) -> None:
        self.command = given.rest
        self.when_full = given.checked("when_full", lambda text: _when_full(given, text)) or "queue"
        self.start, self.quiet = not given.flag("no_start"), given.flag("quiet")
        self.as_json = given.flag("json")
        self.after = [_job(given, text) for text in given.texts("after")]
        self.options: Options = {
            "keys": [given.check(key, keys.check) for key in given.texts("on")],
            "task": given.checked("task", check_task),
            "priority": given.whole("priority", -MAX_PRIORITY, MAX_PRIORITY) or 0,
            "weight": given.whole("weight", 1, MAX_WEIGHT) or 1,
            "hold": True if given.flag("hold") else None,
            "expire": given.duration("expire", "never"),
            "retries": given.whole("retries", 0, MAX_RETRIES),
            "retry_delay": given.duration("retry_delay"),
            "retry_on": [given.check(text, check_retry_on) for text in given.texts("retry_on")],
            "dedupe": given.text("dedupe"),
            "max_runtime": given.duration("max_runtime", "off"),
            "idle_warn": given.duration("idle_warn", "off"),
            "idle_kill": given.duration("idle_kill", "off"),
            "max_output": _size(given),
            "notify": given.texts("notify"),
            "notify_on": given.texts("notify_on") or None,
        }


def parse(words: list[str]) -> Submission:
    """Read the options up to ``--`` or the first word that is none; the rest is the command."""
    return Submission(Given("submit", OPTIONS, words))


def _when_full(given: Given, text: str) -> str:
    if text not in WHEN_FULL:
        raise given.wrong(f"--when-full must be one of {', '.join(WHEN_FULL)}, got {text!r}")
    return text


def _job(given: Given, text: str) -> str:
    if not text or (text.isascii() and text.isdecimal() and not _number(text)):
        raise given.wrong(f"--after takes the number or the task of a job, got {text!r}")
    return text


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


def _size(given: Given) -> int | str | None:
    text = given.text("max_output")
    if text is None or text == "off":
        return text
    number = _number(text)
    value = text if number is None else number
    return given.check(text, lambda _: sizes.size(value, name="--max-output"))


def as_click() -> click.Command:
    """The same as a click command, for help, completion and the reference."""
    from headway.cli import completing  # noqa: PLC0415

    completions = {"on": completing.keys, "task": completing.tasks, "after": completing.jobs}
    return shown_by_click("submit", OPTIONS, HELP, completions)
