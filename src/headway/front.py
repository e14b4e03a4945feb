"""The front of a guarded command: what the caller started and sees (see ``supervisor.py``)."""

from __future__ import annotations

import _socket
import os
import sys

from headway import family
from headway.lean import signal

# Passed on to the command, unless the terminal has told it already.
FORWARDED: set[int] = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
}
_SENT_BY_KERNEL = 0x80  # by the terminal, or by a clock that the caller has set
_HANGUP: set[int] = {signal.SIGHUP, signal.SIGCONT}
_SENT_TO_GROUP: set[int] = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH}
# Messages of the supervisor: a letter and a number.
LIFELINE, COMMAND, ENDED, STOPPED = b"L", b"C", b"E", b"S"
MESSAGE_BYTES = 5


class Front:
    """What the caller started and sees: passes signals on, stops and ends with the command."""

    def __init__(self, supervisor: _socket.socket, pid: int, nowhere: int) -> None:
        self._supervisor, self._pid, self._nowhere = supervisor, pid, nowhere
        self._signals = FORWARDED | {signal.SIGCHLD, signal.SIGIO}
        self._command = 0
        self._end: int | None = None  # the supervisor's, once it is known
        self._lifeline: int | None = None
        self._unread = b""

    def wait(self) -> int:
        """The exit code, once there is one."""
        while True:
            signum = self._next_signal()
            if signum in {signal.SIGIO, signal.SIGCHLD}:
                code = self._hear()
                if code is not None:
                    return code
                self._note_end()
            elif signum and self._end is None:
                os.kill(self._pid, signum)

    def _next_signal(self) -> int:
        """The next signal that is for us, or that the command has not got as well; else 0."""
        if not hasattr(signal, "sigwaitinfo"):
            signum = signal.sigwait(self._signals)
            return 0 if self._command and signum in _SENT_TO_GROUP else signum
        found = signal.sigwaitinfo(self._signals)
        signum = found.si_signo
        if signum == signal.SIGCONT and found.si_pid == self._pid:
            return 0  # the command goes on already
        if not self._command:
            return signum  # the supervisor is not in our group
        # When a terminal goes away, the leader of its session is told alone.
        to_group = signum in _SENT_TO_GROUP or (signum in _HANGUP and os.getsid(0) != os.getpid())
        return 0 if found.si_code == _SENT_BY_KERNEL and to_group else signum

    def _hear(self) -> int | None:
        """Take the supervisor's messages in; the exit code, if that is among them."""
        while True:
            try:
                received, rights, _, _ = self._supervisor.recvmsg(1024, 1024, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                received, rights = b"", []
            if not received:
                return self._take_over()
            for _, _, descriptor in rights:
                self._lifeline = int.from_bytes(descriptor, sys.byteorder)
            self._unread += received
            while len(self._unread) >= MESSAGE_BYTES:
                letter, number = self._unread[:1], self._unread[1:MESSAGE_BYTES]
                self._unread = self._unread[MESSAGE_BYTES:]
                if letter == ENDED:
                    return int.from_bytes(number, "big")
                if letter == COMMAND:
                    self._make_room_for(int.from_bytes(number, "big"))
                elif letter == STOPPED:
                    self._stop_as_asked()

    def _make_room_for(self, command: int) -> None:
        self._command = command
        turn_to(self._nowhere, 0, 1)

    def _take_over(self) -> int:
        """The supervisor was killed: its orphans are ours, and so is the copy of its lock."""
        status = self._end if self._end is not None else os.waitpid(self._pid, 0)[1]
        if not self._command:  # it may have been killed before it could say what it had started
            self._make_room_for(min(family.children(), default=0))
        from headway.stores.stand_in import StandIn  # noqa: PLC0415 - hardly ever needed

        stand_in = StandIn(self._lifeline)
        code = self._see_out(family.exit_code(status))
        stand_in.leave()
        return code

    def _see_out(self, code: int) -> int:
        """Wait for the end of all that was left to us; the code, the command's if that was here."""
        while True:
            for pid, status in family.news():
                if pid == 0:
                    return code
                if pid == self._command and os.WIFSTOPPED(status):
                    self._stop()
                elif pid == self._command and not os.WIFCONTINUED(status):
                    code, self._command = family.exit_code(status), -1
            signum = self._next_signal()
            if signum not in {0, signal.SIGIO, signal.SIGCHLD} and self._command > 0:
                os.kill(self._command, signum)

    def _stop_as_asked(self) -> None:
        """Stop as Ctrl-Z stops a program: not at all where no shell could let it go on."""
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
        os.kill(self._pid, signal.SIGCONT)

    def _note_end(self) -> None:
        """See whether the supervisor has ended without a word."""
        if not self._command:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._end = status

    @staticmethod
    def _stop() -> None:
        """Stop, so that the shell notices, until it says to go on."""
        os.kill(os.getpid(), signal.SIGSTOP)


def have_announced(near: _socket.socket) -> None:
    """Get SIGIO when there is something to read: then one call waits for all there is."""
    import fcntl  # noqa: PLC0415

    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(near, fcntl.F_SETFL, fcntl.fcntl(near, fcntl.F_GETFL) | os.O_ASYNC)


def turn_to(nowhere: int, *descriptors: int) -> None:
    """Whoever reads from a pipe of the command must not have to wait for us."""
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
