"""Guards one command for a caller in another process, and leaves nothing of it behind.

The guardian is a process of its own between the caller and the command. It is the parent
of every process that the command starts, also of those that moved into sessions of
their own, and it has a copy of the lock that keeps the caller's lease. It ends all of
them when the command has ended, when the caller says so, and when the caller is gone,
however that came. Only then it lets go of the lock.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys

from headway import family, interpreter, programs
from headway.farewell import LEAVE_SECONDS, Farewell
from headway.lean import signal
from headway.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_STANDARD = 3
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class Guardian:
    """One command and its family, from its start to the end of its last process.

    It tells the caller: ``started`` with the pid, or ``failed`` with reason and code;
    ``ended`` with the command's exit code; ``gone`` when nothing is left.
    """

    def __init__(self, caller: Wire, caller_pid: int, grace_seconds: float) -> None:
        self._caller, self._caller_pid = caller, caller_pid
        self._is_caller_heard = True
        self._command = 0
        self._farewell = Farewell(grace_seconds)
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A fork of the caller may keep the other end of the wire open.
        self._watch = _open_pidfd(caller_pid)

    def run(self, directory: str, program: str, words: Sequence[str]) -> None:
        """Run the command when the caller says so, until its whole tree is gone."""
        family.adopt_orphans()
        for signum in (*_ENDING, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        start = self._await_start()
        if start is None or not self._start(directory, program, words):
            return
        while not self._is_family_gone():
            self._farewell.strike()
            self._attend()
        self._caller.send("gone")

    def _await_start(self) -> dict[str, Any] | None:
        """What the caller says, with the copy of its lock; nothing if it is gone before."""
        poll = select.poll()
        poll.register(self._caller, select.POLLIN)
        if self._watch is not None:
            poll.register(self._watch, select.POLLIN)
        is_gone = any(descriptor == self._watch for descriptor, _ in poll.poll())
        # Its pid may have been another's when we looked for it.
        if is_gone or os.getppid() != self._caller_pid:
            return None
        return self._caller.receive()

    def _start(self, directory: str, program: str, words: Sequence[str]) -> bool:
        try:
            os.chdir(directory)
        except OSError as error:
            reason = f"{directory}: {error.strerror}"
            self._caller.send("failed", reason=reason, code=programs.DENIED)
            return False
        nowhere = os.open(os.devnull, os.O_RDWR)  # before: there may be no descriptor left then
        try:
            self._command = programs.start(
                program,
                words,
                os.environ,
                setpgroup=0,
                setsigmask=[],
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as error:
            refusal = programs.not_started(program, error)
            self._caller.send("failed", reason=str(refusal), code=refusal.exit_code)
            return False
        # Whoever reads what the command writes must not have to wait for us.
        for stream in range(_STANDARD):
            os.dup2(nowhere, stream)
        self._caller.send("started", pid=self._command)
        return True

    def _attend(self) -> None:
        """Sleep until something happens, and see to it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._is_caller_heard:
            poll.register(self._caller, select.POLLIN)
            if self._watch is not None:
                poll.register(self._watch, select.POLLIN)
        patience = self._farewell.patience_seconds
        for descriptor, _ in poll.poll(None if patience is None else patience * 1000 + 1):
            if descriptor == self._wake:
                if any(signum in _ENDING for signum in os.read(self._wake, 4096)):
                    self._farewell.begin()
            elif self._is_caller_heard:
                self._is_caller_heard = descriptor != self._watch and bool(self._caller.receive())
                self._farewell.begin()

    def _is_family_gone(self) -> bool:
        """Take note of those who ended; whether nobody is left."""
        for pid, status in family.news():
            if pid == 0:
                return True
            if pid == self._command and not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                self._caller.send("ended", code=family.exit_code(status))
                self._farewell.begin(after_seconds=LEAVE_SECONDS)
        return False


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # then the wire alone tells


# -- the caller's half ------------------------------------------------------------------------


def launch(
    program: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    directory: str,
    streams: tuple[int, int, int],
    lifeline: int | None,
    grace_seconds: float,
) -> tuple[int, Wire]:
    """Start a guardian and the command in its care: the guardian's pid, and the wire to it."""
    near, far = Wire.pair()
    # Never one of those that the streams become there, as it may be in a program without them.
    copies: list[int] = []
    try:
        for descriptor in (far.fileno(), *streams):
            copies.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD))  # noqa: PERF401
        wire, *sources = copies
        pid = os.posix_spawn(
            sys.executable,
            [
                *interpreter.words("headway.guardian", str(wire), str(os.getpid())),
                *(str(grace_seconds), directory, program, *words),
            ],
            environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, source, number) for number, source in enumerate(sources)),
                (os.POSIX_SPAWN_DUP2, wire, wire),  # clears close-on-exec
            ],
            setsid=True,
            setsigmask=[],
        )
    except BaseException:
        near.close()
        raise
    finally:
        far.close()
        for copy in copies:
            os.close(copy)
    near.send("start", lifeline=lifeline)
    return pid, near


def main(arguments: list[str]) -> None:
    """The guardian's whole life."""
    descriptor, caller_pid, grace_seconds, directory, program, *words = arguments
    caller = Wire.inherited(int(descriptor))
    Guardian(caller, int(caller_pid), float(grace_seconds)).run(directory, program, words)
