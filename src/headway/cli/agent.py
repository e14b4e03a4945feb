"""``headway agent``: one prompt through an agent program, counted in the home."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from headway import config, programs
from headway.cli import (
    CANCELLED,
    NO_SLOT,
    NOT_THERE,
    TIMED_OUT,
    USAGE,
    Failure,
    arguments,
    opening,
    output,
)
from headway.errors import ConfigError
from headway.limits import UNLIMITED
from headway.tickets import MAX_PRIORITY, MAX_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from headway.governor import Governor
    from headway.harness import Harness, Result
    from headway.harness.events import AgentEvent

    F = TypeVar("F", bound=Callable[..., object])

_CODES = {"timed_out": TIMED_OUT, "cancelled": CANCELLED, "refused": NO_SLOT}
_BY_SIGNAL = 128
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _watchdog(name: str, takes: str, help: str) -> Callable[[F], F]:  # noqa: A002
    return click.option(f"--{name}", metavar=takes, callback=_as_setting, help=help)


def _as_setting(_: click.Context, __: click.Parameter, value: str | None) -> object:
    """As a variable would say it."""
    return None if value is None else config.from_text(value)


@click.command("agent", context_settings={"ignore_unknown_options": False})
@click.argument("program", type=click.Choice(programs.AGENTS))
@click.argument("prompt")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]...")
@click.option("-m", "--model", metavar="NAME", help="The model, as the program calls it.")
@click.option("--task", metavar="NAME", help="Your own name for the work, shown to people.")
@click.option("--session", metavar="ID", help="Go on with an earlier session.")
@click.option("--auto-approve", is_flag=True, help="Let it use its tools without asking.")
@click.option(
    "--priority",
    type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY),
    default=0,
    metavar="N",
    help="A head start in the queue, -100 to 100 [0].",
)
@click.option(
    "--weight",
    type=click.IntRange(1, MAX_WEIGHT),
    default=1,
    metavar="N",
    help="How many slots it takes [1].",
)
@click.option(
    "--timeout", metavar="TIME", callback=arguments.duration, help="Wait no longer: exit 124."
)
@click.option("--no-wait", is_flag=True, help="Do not queue: exit 75 if no slot is free.")
@click.option(
    "--retries", type=click.IntRange(0, 100), default=0, metavar="N", help="After failures [0]."
)
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL",
    help="Then try this model; give it again for more.",
)
@_watchdog("max-runtime", "TIME", "End it when it has run for so long, or off.")
@_watchdog("idle-warn", "TIME", "Warn when it neither says nor computes anything for so long.")
@_watchdog("idle-kill", "TIME", "End it when it neither says nor computes anything for so long.")
@_watchdog("max-tool-calls", "N", "End it when it uses more tools than that, or off.")
@_watchdog("max-repeated-calls", "N", "End it when it repeats one call more often, or off.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print events as JSON lines; see docs/json.md."
)
@click.option("-q", "--quiet", is_flag=True, help="Print the answer and nothing else.")
def command(
    program: str,
    prompt: str,
    arguments: tuple[str, ...],
    model: str | None,
    *,
    auto_approve: bool,
    no_wait: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Have opencode, claude, codex or gemini work on PROMPT.

    It waits for a slot on agent/PROGRAM as everything else in the home does, runs the
    program without its terminal, and prints its answer; what happens meanwhile is told on
    stderr. A PROMPT of - is read from the standard input. On a terminal only the text and
    the colours of an answer are printed; a pipe gets all of it. It is a success only if the
    program itself said that it was done. Whatever it started ends with it.

    \b
    Example:
      headway agent claude "fix issue 16" --task issue-16 --max-runtime 2h
      headway agent opencode -m anthropic/claude-opus-4 "why does test_x fail?"
      git diff | headway agent codex - --json
      headway agent claude "go on" --session ID -- --max-turns 20

    \b
    Exit codes:
      0 success          1 or the program's own: failed or truncated
      75 no slot now   124 no slot in time, or ended by a watchdog's clock
      125 cancelled    126, 127 cannot be started     128+n ended by signal n
    """
    sys.argv[0] = "headway"  # what others see as the holder's command
    if prompt == "-":
        if sys.stdin is None:
            raise Failure("there is no standard input to read the prompt from", USAGE)
        prompt = sys.stdin.read()
    with opening.governor(may_be_off=True) as governor:
        harness = _harness(program, governor, model, arguments, auto_approve=auto_approve)
        listener = _listener(as_json=as_json, quiet=quiet)
        ending = _Ending()
        try:
            result = asyncio.run(
                _execute(harness, prompt, listener, ending, wait=not no_wait, **options)
            )
        except ConfigError as error:
            raise Failure(f"{error}\n  see: headway agent --help", USAGE) from None
    if not as_json:
        _show(result, quiet=quiet)
    return _exit_code(result, ending.signum)


def _harness(
    program: str,
    governor: Governor,
    model: str | None,
    arguments: tuple[str, ...],
    *,
    auto_approve: bool,
) -> Harness:
    from headway import harness, watchdogs  # noqa: PLC0415

    kinds = {
        "opencode": harness.OpenCode,
        "claude": harness.ClaudeCode,
        "codex": harness.Codex,
        "gemini": harness.Gemini,
    }
    made = kinds[program](
        model=model,
        governor=governor,
        max_concurrent=UNLIMITED,  # the home's limits count, here and in every other shell
        arguments=arguments,
        auto_approve=auto_approve,
    )
    made.spelled = watchdogs.as_option
    return made


class _Ending:
    """Ends the agent in order when a signal comes, and says so to who is impatient."""

    def __init__(self) -> None:
        from headway.harness import Cancellation  # noqa: PLC0415

        self.cancellation = Cancellation()
        self.signum: signal.Signals | None = None

    def come(self, signum: signal.Signals, grace_seconds: float) -> None:
        if self.signum is None:
            self.signum = signum
            self.cancellation.cancel(f"by {signum.name}")
        else:
            output.talk(f"it is being ended, which takes {output.length(grace_seconds)} at most")


async def _execute(
    harness: Harness,
    prompt: str,
    listener: Callable[[AgentEvent], None],
    ending: _Ending,
    **options: Any,
) -> Result:
    """Until it is over; signals end it in order."""
    loop = asyncio.get_running_loop()
    for signum in _ENDING:
        loop.add_signal_handler(signum, ending.come, signum, harness.grace_seconds)
    return await harness.aexecute(
        prompt, on_event=listener, cancellation=ending.cancellation, **options
    )


def _listener(*, as_json: bool, quiet: bool) -> Callable[[AgentEvent], None]:
    if as_json:
        return lambda event: output.data(output.json_text(event.as_dict()))
    if quiet:
        return lambda _: None
    from headway.cli.agent_view import View  # noqa: PLC0415

    return View().show


def _show(result: Result, *, quiet: bool) -> None:
    """The answer, or what there is of it; and if it is none, why."""
    if result.text:
        output.answer(result.text)
    if quiet and not result.ok:
        output.talk(f"{result.status}: {output.clean(result.reason or 'no reason known')}")


def _exit_code(result: Result, signum: signal.Signals | None) -> int:
    if result.ok:
        return 0
    if result.status == "cancelled" and signum is not None:
        return _BY_SIGNAL + signum  # as a shell has it
    own = None if result.ended_by else result.exit_code
    return _CODES.get(result.status, own or NOT_THERE)
