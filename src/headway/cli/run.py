"""``headway run``: a command under a slot."""

from __future__ import annotations

import gc
import os
import sys

from headway import background, journal, programs
from headway.cli import NO_SLOT, TIMED_OUT, Failure, guarded
from headway.cli.run_options import Options, parse
from headway.errors import AtCapacity, CoolingDown, DeadlockRefused, QueueTimeout
from headway.governor import Governor
from headway.keys import agent_key
from headway.stores.processes import lack_of_files
from headway.supervisor import Supervisor, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.cli.waiting_line import WaitingLine
    from headway.events import Event
    from headway.slot import Lease

# So many processes are named.
_NAMED = 4


def run(words: list[str]) -> int:
    """Wait for a slot, run the command, and answer with its exit code."""
    options = parse(words)
    program = programs.find(options.command[0])
    agent = programs.agent_of([program, *options.command[1:]])
    options.keys = options.keys or (agent_key(agent),)
    # What others see as the holder's command.
    sys.argv = ["headway", "run", *options.command]
    return supervise(lambda supervisor: guarded(lambda: _queue(options, program, supervisor)))


def _queue(options: Options, program: str, supervisor: Supervisor) -> int:
    background.leaves_at_once = True
    journal.prepare = _hush if options.quiet else _speak
    with Governor() as governor:
        gc.enable()
        waiting = _Waiting(governor)
        slot = governor.slot(
            *options.keys,
            task=options.task,
            weight=options.weight,
            priority=options.priority,
            timeout=options.timeout_seconds,
            wait=options.wait,
            on_wait=None if options.quiet else waiting.show,
        )
        try:
            with slot as lease:
                waiting.end(lease.waited_seconds)
                code = _run(options, program, supervisor, lease)
        except (AtCapacity, QueueTimeout) as refusal:
            waiting.end()
            raise _no_slot(governor, options, refusal) from None
        except DeadlockRefused as refusal:
            raise _never(options, refusal) from None
        finally:
            waiting.end()
        supervisor.report(code)
        return code


def _speak() -> None:
    """What Headway logs stands on the terminal of the command, and must not pass for its own."""
    from headway.cli import opening, output  # noqa: PLC0415 - loaded when there is something

    opening.say_warnings(output.talk)


def _hush() -> None:
    """Of what Headway logs, let only errors through: that the slot was lost is one."""
    import logging  # noqa: PLC0415

    logging.getLogger("headway").setLevel(logging.ERROR)
    _speak()


class _Waiting:
    """Loads what shows a wait when there is one."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._line: WaitingLine | None = None

    def show(self, event: Event) -> None:
        if self._line is None:
            from headway.cli.waiting_line import WaitingLine  # noqa: PLC0415

            self._line = WaitingLine(self._governor)
        self._line.show(event)

    def end(self, waited_seconds: float | None = None) -> None:
        line, self._line = self._line, None  # at once: a signal may strike in there
        if line is not None:
            line.end(waited_seconds)


def _run(options: Options, program: str, supervisor: Supervisor, lease: Lease) -> int:
    try:
        return supervisor.run(
            program,
            options.command,
            {**os.environ, **lease.environ()},
            lifeline=lease.lifeline,
            detach_ok=options.detach_ok,
            left_behind=lambda: None if options.quiet else _tell_of_rest(lease),
        )
    except OSError as error:
        if lack_of_files(error):
            raise
        raise programs.not_started(program, error) from None


def _no_slot(governor: Governor, options: Options, refusal: AtCapacity | QueueTimeout) -> Failure:
    """Says what is full, who holds it and since when; or what else lets nobody in."""
    from headway.cli import output, pacing  # noqa: PLC0415
    from headway.cli.waiting_line import holding  # noqa: PLC0415

    if isinstance(refusal, AtCapacity):
        blocked, code = refusal.capacity.blocked_by, NO_SLOT
    else:
        capacities = [governor.capacity(key) for key in options.keys]
        blocked = next((one.blocked_by for one in capacities if one.blocked_by), None)
        code = TIMED_OUT
    text = output.clean(str(refusal))
    if blocked is None:
        return Failure(text, code)
    key, snapshot = blocked.key, governor.snapshot()
    resume = f"to let people in again: headway resume {key}"
    if blocked.reason == "paused":
        details = [f"{key} is paused; {resume}"]
    elif blocked.reason in ("cooling", "budget"):
        trouble = f"{key} is {pacing.trouble(pacing.find(snapshot.limits, key), blocked)}"
        details = [] if isinstance(refusal, CoolingDown) else [trouble]
        details += [resume] if blocked.reason == "cooling" else []
    else:
        details = [f"held by {one}" for one in holding(snapshot, key)]
    details.append(f"see: headway status {key}")
    return Failure("\n  ".join([text, *details]), code)


def _never(options: Options, refusal: DeadlockRefused) -> Failure:
    """Says why no wait would help, and what would."""
    key = refusal.key
    less = "ask for less (--weight), " if options.weight > 1 else ""
    return Failure(
        f"no slot on {key}, now or later: this command runs inside what holds it"
        f" ({', '.join(refusal.held_by)}) and would wait for its own end\n"
        f"  {less}give {key} more slots (headway limits set {key} N), or start it outside",
        NO_SLOT,
    )


def _tell_of_rest(lease: Lease) -> None:
    """The command ended and left processes that count on."""
    from headway import family  # noqa: PLC0415
    from headway.cli import output  # noqa: PLC0415

    rest = family.members()
    if not rest:
        return  # it has ended just now
    named = ", ".join(f"{process.name()} ({process.pid})" for process in rest[:_NAMED])
    more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
    output.talk(
        f"{' + '.join(lease.keys)} stays in use: the command left {named}{more} running"
        " (--detach-ok would give the slot back)"
    )


def __getattr__(name: str) -> object:
    if name == "command":
        from headway.cli.run_options import as_click  # noqa: PLC0415

        return as_click()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
