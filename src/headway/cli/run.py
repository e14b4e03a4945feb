"""``headway run``: a command under a slot."""

from __future__ import annotations

import _thread
import gc
import os
import sys
import time

from headway import background, clocks, finished, journal, programs
from headway.cli import NO_SLOT, TIMED_OUT, Failure, guarded
from headway.cli.run_options import Options, parse
from headway.errors import (
    AtCapacity,
    CoolingDown,
    DeadlockRefused,
    HeadwayError,
    QueueTimeout,
)
from headway.finished import Finished
from headway.governor import Governor
from headway.keys import agent_key
from headway.lean import deque
from headway.stores import stopped
from headway.stores.processes import lack_of_files, own_command
from headway.supervisor import Stopped, Supervisor, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.cli.waiting_line import WaitingLine
    from headway.events import Event
    from headway.slot import Lease
    from headway.stores.base import Store
    from headway.tickets import Ticket

# So many processes are named.
_NAMED = 4
# So many messages are kept while a command has the terminal; the latest ones.
_MOST_MESSAGES = 100


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
        waiting = _Waiting(governor, supervisor, is_quiet=options.quiet)
        slot = governor.slot(
            *options.keys,
            task=options.task,
            weight=options.weight,
            priority=options.priority,
            timeout=options.timeout_seconds,
            wait=options.wait,
            on_wait=waiting.show,
        )
        code, told = None, _StopTeller(governor)
        while code is None:
            try:
                supervisor.allow_stop()
                with slot as lease:
                    waiting.end(lease.waited_seconds)
                    code = _run(options, program, supervisor, lease, stopped=told.tell)
                    _record(governor, lease, code)
            except Stopped:
                waiting.end()
                slot.request.former = waiting.step_aside()
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
    from headway.cli import opening  # noqa: PLC0415 - loaded when there is something

    opening.say_warnings(_kept_back.say)


class _KeptBack:
    """Keeps messages until the command has ended, if they would stand in the middle of its screen.

    What a command draws on a terminal is its own: a line of ours would move or tear it.
    """

    def __init__(self) -> None:
        self._is_drawn_on = False
        self._messages: deque[str] = deque(maxlen=_MOST_MESSAGES)

    def begin(self) -> None:
        """The command has the terminal from now on, if there is one."""
        self._is_drawn_on = os.isatty(2)

    def say(self, text: str) -> None:
        """Say it now, or with its time of day when the command is over."""
        from headway.cli import output  # noqa: PLC0415

        if self._is_drawn_on:
            self._messages.append(f"{clocks.time_of_day(time.time())} {text}")
        else:
            output.talk(text)

    def end(self) -> None:
        """The terminal is ours again: say what was kept."""
        self._is_drawn_on = False
        while self._messages:
            self.say(self._messages.popleft())


_kept_back = _KeptBack()


def _hush() -> None:
    """Of what Headway logs, let only errors through: that the slot was lost is one."""
    import logging  # noqa: PLC0415

    logging.getLogger("headway").setLevel(logging.ERROR)
    _speak()


class _Waiting:
    """Loads what shows a wait when there is one."""

    def __init__(self, governor: Governor, supervisor: Supervisor, *, is_quiet: bool) -> None:
        self._governor, self._supervisor, self._is_quiet = governor, supervisor, is_quiet
        self._line: WaitingLine | None = None
        # The ticket that waits, and where.
        self._ticket: Ticket | None = None
        self._key = ""

    def step_aside(self) -> Ticket | None:
        """Be stopped out of line, where nothing is granted; the ticket whose place is kept.

        There is none if that has not waited for long enough to matter.
        """
        self._supervisor.stop_front()
        store, ticket = self._governor.turnstile.store, self._ticket
        if ticket is not None:
            _introduce(store, stopped.waiter(ticket, self._key))
        self._supervisor.wait_for_front()
        _introduce(store, "")
        return ticket

    def show(self, event: Event) -> None:
        """Show it, unless that is not wanted."""
        blocked_by = getattr(event, "blocked_by", None)
        if blocked_by is not None:
            self._key = blocked_by.key
            self._ticket = self._governor.turnstile.store.own_ticket(event.ticket_id)
        if self._is_quiet:
            return
        if self._line is None:
            from headway.cli.waiting_line import WaitingLine  # noqa: PLC0415

            self._line = WaitingLine(self._governor, self._supervisor.is_in_foreground)
        self._line.show(event)

    def end(self, waited_seconds: float | None = None) -> None:
        line, self._line = self._line, None  # at once: a signal may strike in there
        if line is not None:
            line.end(waited_seconds)
            _speak()  # in its place


def _run(
    options: Options,
    program: str,
    supervisor: Supervisor,
    lease: Lease,
    *,
    stopped: Callable[[bool], None],
) -> int:
    environ = {**os.environ, **lease.environ()}
    _kept_back.begin()
    try:
        return supervisor.run(
            program,
            options.command,
            environ,
            lifeline=lease.lifeline,
            detach_ok=options.detach_ok,
            left_behind=lambda: _tell_of_rest(options, lease, stopped),
            stopped=stopped,
        )
    except OSError as error:
        if lack_of_files(error):
            raise
        raise programs.not_started(program, error) from None
    finally:
        _kept_back.end()


def _record(governor: Governor, lease: Lease, code: int) -> None:
    """Keep how long it took and how it ended, for estimates and for whoever asks later."""
    held, command = lease.held_seconds, own_command()
    since = time.time() - held
    over = Finished(lease.id, since, held, code, lease.keys, lease.task, command)
    try:
        finished.record(governor.settings.home, over)
    except OSError:
        pass  # the command has ended all the same


class _StopTeller:
    """Lets others see whether the command is stopped; a slow store keeps nobody waiting."""

    def __init__(self, governor: Governor) -> None:
        self._store, self._is_stopped = governor.turnstile.store, False
        self._mutex = _thread.allocate_lock()

    def tell(self, is_stopped: bool) -> None:  # noqa: FBT001 - a callback
        self._is_stopped = is_stopped
        background.start(self._tell)

    def _tell(self) -> None:
        with self._mutex:  # what is told last is what is so now
            _introduce(self._store, stopped.COMMAND if self._is_stopped else "")


def _introduce(store: Store, text: str) -> None:
    """Let others see whether this is stopped, if they can be told."""
    try:
        store.introduce(text)
    except (HeadwayError, OSError):
        pass  # it is for people only


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


def _tell_of_rest(options: Options, lease: Lease, introduce: Callable[[bool], None]) -> None:
    """The command ended and left processes that count on: name them here and to others."""
    _kept_back.end()
    from headway import family  # noqa: PLC0415
    from headway.cli import output  # noqa: PLC0415

    rest = family.members()
    if not rest:
        return  # it has ended just now
    named = ", ".join(f"{process.name()} ({process.pid})" for process in rest[:_NAMED])
    more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
    sys.argv = ["headway", "run", f"(left over: {named}{more})", *options.command]
    introduce(False)
    if options.quiet:
        return
    output.talk(
        f"{' + '.join(lease.keys)} stays in use: the command left {named}{more} running"
        " (--detach-ok would give the slot back)"
    )


def __getattr__(name: str) -> object:
    if name == "command":
        from headway.cli.run_options import as_click  # noqa: PLC0415

        return as_click()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
