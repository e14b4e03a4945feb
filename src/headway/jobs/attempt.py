"""The supervisor of one attempt: holds its lease, runs it, and leaves nothing behind.

It is the parent of every process that the command starts, also of those that moved
into sessions of their own. It ends all of them when the command has ended, when
somebody cancels the job, when a watchdog bites, and when its worker is gone. Only
then it gives the lease back and writes how the attempt ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headway import config, family, programs
from headway.errors import (
    AtCapacity,
    Cancelled,
    ConfigError,
    HeadwayError,
    LeaseLost,
    NotStartable,
    StoreUnavailable,
)
from headway.farewell import LEAVE_SECONDS, Farewell
from headway.governor import Governor
from headway.jobs import log
from headway.jobs.bell import Bells
from headway.jobs.board import Board
from headway.jobs.states import CANCELLED, FAILED, INTERRUPTED, SUCCEEDED, Ending
from headway.slot import Slot
from headway.stores import url_of
from headway.tickets import Revoked
from headway.watchdogs import Chosen, Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.config import Settings
    from headway.events import Event
    from headway.jobs.rows import Beginning
    from headway.tickets import Ticket
    from headway.wire import Wire

_RETRY_SECONDS = 1.0
_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18


class Attendant:
    """A supervisor that is ready: everything is open before there is a job for it."""

    def __init__(self, home: str, nursery: Wire) -> None:
        self._home, self._nursery = home, nursery
        self._settings = config.load(home)
        self._settings_stamp = config.stamp(home)
        self._governor = Governor(url_of(self._settings))
        self._board = Board(self._settings)
        self._bells = Bells(home)
        self._board.wish(0)  # opens it
        self._governor.turnstile.switchboard.attend()
        # Whether the nursery has a copy of our lock.
        self._is_known = False
        self._has_failed = False

    def serve(self) -> None:
        """See one job through after the other, until the nursery has no more for us."""
        family.adopt_orphans()
        while True:
            order = self._nursery.receive()
            if order is None:
                return
            if order["kind"] == "start":  # else it comes too late for the last one
                self._serve(order)
                if self._has_failed:
                    return
                self._nursery.send("idle")

    def _serve(self, order: dict[str, Any]) -> None:
        job: int = order["job"]
        stamp = config.stamp(self._home)
        if stamp != self._settings_stamp:
            self._settings_stamp = stamp
            try:
                self._settings = config.load(self._home)
            except ConfigError:
                pass  # the worker says so, and until it is mended they stay as they were
            else:
                self._board.heed(self._settings)
        try:
            self._take_over(job, order["lease"])
        except (AtCapacity, Cancelled, LeaseLost) as error:  # the worker's lease is gone, or ours
            self._nursery.send("declined", reason=str(error))

    def _take_over(self, job: int, worker_lease: str) -> None:
        """Go ahead on the worker's slot. It is ours when the worker lets go of it."""
        wish = self._board.wish(job)
        if wish is None:
            self._nursery.send("declined", reason="it is not queued any more")
            return
        sys.argv = ["headway", "job", f"{job}:", *wish.command]
        self._governor.turnstile.store.introduce()
        slot = Slot(self._governor.turnstile, wish.for_supervisor(worker_lease))
        with slot as lease:
            # Asks the store: what was lost by now has not begun, and stays queued.
            marks = lease.environ()
            holder = lease.id.partition("-")[0]
            beginning = self._board.begin(job, holder=holder, lease=lease.id)
            if beginning is None:
                self._nursery.send("declined", reason="it is not queued any more")
                return
            self._nursery.send("took", lifeline=None if self._is_known else lease.lifeline)
            self._is_known = True
            self._bells.ring([job])
            run = Run(
                self._home,
                self._settings,
                beginning,
                ticket=lease.ticket,
                marks=marks,
                nursery=self._nursery,
                board=self._board,
                bells=self._bells,
            )
            forget = self._governor.subscribe(run.hear_event)
            try:
                ending = run.see_through()
            except Exception as error:  # noqa: BLE001 - nothing of it may outlive its lease
                self._has_failed = True
                sys.excepthook(*sys.exc_info())
                family.end()
                reason = f"its supervisor failed: {type(error).__name__}: {error}"
                ending = Ending(INTERRUPTED, reason)
            finally:
                forget()
        run.close()
        self._write_down(job, beginning.number, ending, holder)

    def _write_down(self, job: int, number: int, ending: Ending, holder: str) -> None:
        """Until it works: a full disk must not turn a success into an interruption."""
        while True:
            try:
                self._board.end(job, number, ending, holder=holder)
            except StoreUnavailable:
                time.sleep(_RETRY_SECONDS)
            else:
                self._bells.ring([job])
                return


class Run:
    """One command and its family, from its start to the end of its last process."""

    def __init__(
        self,
        home: str,
        settings: Settings,
        beginning: Beginning,
        *,
        ticket: Ticket,
        marks: dict[str, str],
        nursery: Wire,
        board: Board,
        bells: Bells,
    ) -> None:
        self._beginning, self._ticket, self._marks = beginning, ticket, marks
        self._nursery, self._board, self._bells = nursery, board, bells
        path = log.path_of(home, beginning.job, beginning.number)
        self._log = log.LogWriter(path, settings.max_log_bytes)
        self._watchdog = Watchdog(Chosen(settings, beginning.options))
        self._wake = self._output = self._command = -1
        self._is_output_closed = self._is_nursery_gone = False
        self._exit_code: int | None = None
        self._is_loss_told, self._silence = False, ""
        # Why it is being ended, if not by itself.
        self._ending: Ending | None = None
        self._farewell = Farewell(settings.grace_seconds)

    def see_through(self) -> Ending:
        """Run it; how it ended, when nothing of it is left."""
        with _woken_by_children() as self._wake:
            try:
                self._start()
            except NotStartable as error:
                self._log.note(str(error))
                return Ending(FAILED, str(error), exit_code=error.exit_code)
            while not self._is_family_gone():
                self._tell_of_loss()
                self._watch()
                self._farewell.strike()
                self._attend()
            while self._take_output():
                pass
            os.close(self._output)
        ending = self._verdict()
        ending.output_bytes, ending.at = self._log.written, time.time()
        return ending

    def close(self) -> None:
        """Complete the log; nobody has to wait for that, so the slot may be free already."""
        self._log.close()

    def _attend(self) -> None:
        """Sleep until something happens, and see to it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if not self._is_output_closed:
            poll.register(self._output, select.POLLIN)
        if not self._is_nursery_gone:
            poll.register(self._nursery, select.POLLIN)
        for descriptor, _ in poll.poll(self._patience_milliseconds()):
            if descriptor == self._wake:
                _empty(self._wake)
            elif descriptor == self._output:
                self._take_output()
            else:
                self._hear()

    # -- starting ---------------------------------------------------------------------------

    def _start(self) -> None:
        beginning = self._beginning
        try:
            os.chdir(beginning.directory)
        except OSError as error:
            reason = f"{beginning.directory}: {error.strerror}"
            raise NotStartable(reason, programs.DENIED) from None
        environ = {
            **beginning.environ,
            **self._marks,
            "HEADWAY_JOB": f"{beginning.job}.{beginning.number}",
        }
        program = programs.find(beginning.command[0], beginning.environ, beginning.directory)
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        _widen(self._output)
        os.set_blocking(self._output, False)
        before = os.umask(beginning.umask)
        try:
            self._command = _spawn(program, beginning.command, environ, theirs)
        except OSError as error:
            raise programs.not_started(program, error) from None
        finally:
            os.umask(before)
            os.close(theirs)
            os.chdir("/")

    # -- what happens meanwhile ---------------------------------------------------------------

    def _take_output(self) -> bool:
        """Move what there is to the log; false if there is nothing."""
        try:
            output = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if not output:
            self._is_output_closed = True
            return False
        self._log.write(output)
        self._watchdog.heard()
        return True

    def _hear(self) -> None:
        """Do what the nursery says; when it is gone, so is the worker."""
        order = self._nursery.receive()
        if order is None:
            self._is_nursery_gone = True
            self._end_with(Ending(INTERRUPTED, "its worker ended", is_of_worker=True))
        elif order["kind"] == "cancel":
            self._end_with(Ending(CANCELLED, order["reason"]))
        else:
            self._end_with(Ending(INTERRUPTED, order["reason"], is_of_worker=True))

    def _is_family_gone(self) -> bool:
        """Take note of those who ended; whether nobody is left."""
        for pid, status in family.news():
            if pid == 0:
                return True
            if pid == self._command and not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                self._exit_code = family.exit_code(status)
                self._farewell.begin(after_seconds=LEAVE_SECONDS)
        return False

    def _watch(self) -> None:
        if self._ending is not None or self._exit_code is not None:
            return
        warnings, bite = self._watchdog.look(self._log.written)
        for warning in warnings:
            self._warn(warning)
        if bite is not None:
            self._log.note(bite.reason)
            self._end_with(Ending(FAILED, bite.reason, ended_by=bite._asdict(), event="killed"))

    def hear_event(self, event: Event) -> None:
        """In whichever thread it happens: the slot may be lost."""
        if event.kind == "unheard":
            self._silence = str(event)
        if event.kind in {"lost", "unheard"}:
            os.kill(os.getpid(), signal.SIGCHLD)  # wakes who attends to the command

    def _tell_of_loss(self) -> None:
        """It goes on: nothing is ended that nobody wants to have ended."""
        silence, self._silence = self._silence, ""
        if silence:
            self._warn(silence)
        verdict = self._ticket.verdict
        if isinstance(verdict, Revoked) and not self._is_loss_told:
            self._is_loss_told = True
            self._warn(f"its slot was lost, {verdict.reason}; it goes on, beside its successor")

    def _warn(self, warning: str) -> None:
        self._log.note(f"warning: {warning}")
        try:
            self._board.warn(self._beginning.job, warning)
        except StoreUnavailable:
            return  # it stands in the log
        self._bells.ring([self._beginning.job])  # the worker has it sent

    # -- ending -------------------------------------------------------------------------------

    def _end_with(self, ending: Ending) -> None:
        """End everything, for this reason, unless it is being ended for another."""
        if self._ending is None and self._exit_code is None:
            self._ending = ending
            self._farewell.begin()

    def _patience_milliseconds(self) -> float | None:
        patience = self._farewell.patience_seconds
        if patience is None:
            patience = self._watchdog.looks_every_seconds
        return None if patience is None else patience * 1000 + 1

    def _verdict(self) -> Ending:
        code = self._exit_code
        trouble = (
            f"; its output could not be kept: {self._log.trouble}" if self._log.trouble else ""
        )
        if self._ending is not None:
            ending = self._ending
            ending.exit_code, ending.reason = code, f"{ending.reason}{trouble}"
            return ending
        if code == 0:
            return Ending(SUCCEEDED, trouble.removeprefix("; ") or None, exit_code=0)
        return Ending(FAILED, f"{family.how_it_ended(code)}{trouble}", exit_code=code)


@contextmanager
def _woken_by_children() -> Iterator[int]:
    """A descriptor that becomes readable when a child has ended."""
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(-1)
        os.close(wake)
        os.close(woken)


def _spawn(program: str, words: list[str], environ: dict[str, str], output: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    return programs.start(
        program,
        words,
        environ,
        file_actions=actions,
        setpgroup=0,
        setsigmask=[],
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _widen(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (AttributeError, OSError):
        pass  # a narrow one does as well


def _empty(pipe: int) -> None:
    try:
        os.read(pipe, 4096)
    except BlockingIOError:
        pass


def tend(home: str, nursery: Wire) -> int:
    """A supervisor's whole life; its exit code."""
    try:
        Attendant(home, nursery).serve()
    except HeadwayError as error:
        nursery.send("failed", reason=str(error))
        return 1
    return 0
