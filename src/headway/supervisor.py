"""Guards one command: holds its lease, runs it on the caller's terminal, reaps its whole tree.

Two processes stand round the command. The *front* is the one that was started:
it passes signals on and ends with the command's exit code. Its child, the
*supervisor*, waits in the queue, holds the lease and is the parent of the
command and of every orphan that the command leaves (Linux). Then it moves to a
session of its own, where neither Ctrl-C nor a ``kill`` of the group reaches it,
so the command counts until it is gone even if the front is killed. (In the moment
between the command's start and that move, a kill of the whole group takes both.) If the
supervisor is killed, the front has a copy of its lock, inherits the tree, and
the command counts as well.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from headway import background, family, programs
from headway.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

# Passed on to the command, unless the terminal has told it already.
_FORWARDED: set[int] = {
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
# A background process that touches the terminal is stopped. That is for the command to be.
_UNWANTED: set[int] = {signal.SIGTTIN, signal.SIGTTOU}
# Python ignores these for itself.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SENT_BY_KERNEL = 0x80  # by the terminal, or by a clock that the caller has set
_HANGUP: set[int] = {signal.SIGHUP, signal.SIGCONT}
_SENT_TO_GROUP: set[int] = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH}
# Not SIGTERM: the caller may have that ignored. This one means nothing to whoever gets it.
_FRONT_IS_GONE = signal.SIGURG
# Messages of the supervisor: a letter and a number.
_LIFELINE, _COMMAND, _ENDED = b"L", b"C", b"E"
_MESSAGE_BYTES = 5
# The children of a command often end a moment after it.
_GRACE_SECONDS = 0.2
_INSIST_SECONDS = 1.0


class Interrupted(BaseException):
    """A signal ended the wait for a slot."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def supervise(work: Callable[[Supervisor], int]) -> int:
    """Do the work in a supervisor of its own; the exit code it reports."""
    nowhere = _fill_in_standard_streams()
    near, far = _socket.socketpair()
    # If the caller ignored it, so would we, and learn of no child's end.
    signal.signal(signal.SIGCHLD, _take_note)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, _FORWARDED | _UNWANTED | {signal.SIGCHLD, signal.SIGIO}
    )
    _have_announced(near)
    # Before there is a command: its supervisor may be killed the moment after it was started.
    family.adopt_orphans()
    pid = os.fork()
    if pid == 0:
        near.close()
        _end(Supervisor(far, before, nowhere), work)
    far.close()
    return Front(near, pid, nowhere).wait()


def _end(supervisor: Supervisor, work: Callable[[Supervisor], int]) -> NoReturn:
    code = 70
    try:
        code = supervisor.wait_in_line(work)
    except BaseException:  # noqa: BLE001 - the last one who could show it
        sys.excepthook(*sys.exc_info())
    finally:
        supervisor.report(code)
        os._exit(code)


class Supervisor:
    """Holds the lease of one command; lives until the last of its processes is gone."""

    def __init__(
        self, front: _socket.socket, mask: set[int | signal.Signals], nowhere: int
    ) -> None:
        self._front, self._front_pid, self._mask = front, os.getppid(), mask
        self._nowhere = nowhere
        self._signals = _FORWARDED | {signal.SIGCHLD}
        self._command = 0
        self._heard = self._reported = self._has_stopped_front = False

    def wait_in_line(self, work: Callable[[Supervisor], int]) -> int:
        """Do the work; a signal ends it as long as the command has not been started."""
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._interrupt)
        signal.signal(_FRONT_IS_GONE, self._interrupt)
        background.start(self._watch_front)
        try:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask - {_FRONT_IS_GONE})
                return work(self)
            finally:  # inside: there may come a second one on the way out
                signal.pthread_sigmask(signal.SIG_BLOCK, self._signals | {_FRONT_IS_GONE})
        except Interrupted as interrupted:
            self._heard = True
            return 128 + interrupted.signum

    def _interrupt(self, signum: int, _: object) -> NoReturn:
        background.start(self._insist, signum)
        raise Interrupted(signum)

    def _insist(self, signum: int) -> None:
        """Python drops what is raised inside some callbacks, such as those of an import."""
        time.sleep(_INSIST_SECONDS)
        if not self._heard:
            os.kill(os.getpid(), signum)

    def _watch_front(self) -> None:
        """Without the front nobody waits for the command any more."""
        try:
            self._front.recv(1)
        except OSError:
            pass
        if not self._command:
            os.kill(os.getpid(), _FRONT_IS_GONE)

    def run(
        self,
        program: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        lifeline: int | None,
        detach_ok: bool,
        left_behind: Callable[[], None],
    ) -> int:
        """Run the command until its whole tree is gone; its exit code.

        With ``detach_ok`` only until its first process is. ``left_behind`` is called
        when that one is gone, others are not, and the front is about to leave.
        """
        if not detach_ok:
            family.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals | {_FRONT_IS_GONE})
        if lifeline is not None:
            self._tell(_LIFELINE, 0, lifeline)
        self._command = programs.start(
            program, words, environ, setsigmask=self._mask, setsigdef=_IGNORED_BY_PYTHON
        )
        self._tell(_COMMAND, self._command)
        os.setsid()
        _turn_to(self._nowhere, 0, 1)
        return self._see_it_through(detach_ok=detach_ok, left_behind=left_behind)

    def _see_it_through(self, *, detach_ok: bool, left_behind: Callable[[], None]) -> int:
        code: int | None = None
        while True:
            overdue = code is not None and not self._reported
            signum = _next_signal(self._signals, _GRACE_SECONDS if overdue else None)
            if signum is None:
                assert code is not None
                self._let_front_go(code, left_behind)
            elif signum != signal.SIGCHLD:
                self._pass_on(signum)
                continue
            for pid, status in family.news():
                if pid == 0:
                    assert code is not None
                    return code
                if pid != self._command:
                    continue
                self._take_front_along(is_stopped=os.WIFSTOPPED(status))
                if not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                    code, self._command = family.exit_code(status), -1
                    if detach_ok:
                        return code

    def _let_front_go(self, code: int, left_behind: Callable[[], None]) -> None:
        try:
            left_behind()
        except Exception:  # noqa: BLE001, S110 - it only tells; what was left has to count on
            pass
        self.report(code)
        _turn_to(self._nowhere, 2)

    def _pass_on(self, signum: int) -> None:
        if self._command > 0:
            os.kill(self._command, signum)

    def _take_front_along(self, *, is_stopped: bool) -> None:
        """Have the front stop and go on with the command, so that the shell notices.

        It goes on with the command's end as well: that may be all that is heard of a going on.
        """
        if (is_stopped or self._has_stopped_front) and os.getppid() == self._front_pid:
            os.kill(self._front_pid, signal.SIGSTOP if is_stopped else signal.SIGCONT)
        self._has_stopped_front = is_stopped

    def report(self, code: int) -> None:
        """Let the front end with this code, once."""
        if not self._reported:
            self._reported = True
            self._tell(_ENDED, code)

    def _tell(self, letter: bytes, number: int, descriptor: int | None = None) -> None:
        message = letter + number.to_bytes(_MESSAGE_BYTES - 1, "big")
        rights = [] if descriptor is None else [_rights(descriptor)]
        try:
            self._front.sendmsg([message], rights)
        except OSError:
            pass  # the front is gone; that is what we are for


class Front:
    """What the caller started and sees: passes signals on, stops and ends with the command."""

    def __init__(self, supervisor: _socket.socket, pid: int, nowhere: int) -> None:
        self._supervisor, self._pid, self._nowhere = supervisor, pid, nowhere
        self._signals = _FORWARDED | {signal.SIGCHLD, signal.SIGIO}
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
                self._stop_if_stopped()
            elif signum and self._end is None:
                os.kill(self._pid, signum)

    def _next_signal(self) -> int:
        """The next signal that is for us, or that the command has not got as well; else 0."""
        if not hasattr(signal, "sigwaitinfo"):
            signum = signal.sigwait(self._signals)
            return 0 if signum in _SENT_TO_GROUP else signum
        found = signal.sigwaitinfo(self._signals)
        signum = found.si_signo
        if signum == signal.SIGCONT and found.si_pid == self._pid:
            return 0  # the command goes on already
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
            while len(self._unread) >= _MESSAGE_BYTES:
                letter, number = self._unread[:1], self._unread[1:_MESSAGE_BYTES]
                self._unread = self._unread[_MESSAGE_BYTES:]
                if letter == _ENDED:
                    return int.from_bytes(number, "big")
                if letter == _COMMAND:
                    self._make_room_for(int.from_bytes(number, "big"))

    def _make_room_for(self, command: int) -> None:
        self._command = command
        _turn_to(self._nowhere, 0, 1)

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

    def _stop_if_stopped(self) -> None:
        """Ctrl-Z while the supervisor waits in line stops both; SIGSTOP stops whom it was sent."""
        if self._command:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        if pid and not os.WIFSTOPPED(status):
            self._end = status
        elif pid and os.WSTOPSIG(status) != signal.SIGSTOP:
            self._stop()

    @staticmethod
    def _stop() -> None:
        """Stop, so that the shell notices, until it says to go on."""
        os.kill(os.getpid(), signal.SIGSTOP)


def _have_announced(near: _socket.socket) -> None:
    """Get SIGIO when there is something to read: then one call waits for all there is."""
    import fcntl  # noqa: PLC0415

    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(near, fcntl.F_SETFL, fcntl.fcntl(near, fcntl.F_GETFL) | os.O_ASYNC)


def _next_signal(signals: set[int], timeout_seconds: float | None) -> int | None:
    if timeout_seconds is None or not hasattr(signal, "sigtimedwait"):
        return signal.sigwait(signals)
    found = signal.sigtimedwait(signals, timeout_seconds)
    return None if found is None else found.si_signo


def _rights(descriptor: int) -> tuple[int, int, bytes]:
    return _socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor.to_bytes(4, sys.byteorder)


def _fill_in_standard_streams() -> int:
    """A closed one would be taken by the next file that is opened; one more that leads nowhere."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004
        os.set_inheritable(descriptor, True)
    return descriptor


def _turn_to(nowhere: int, *descriptors: int) -> None:
    """Whoever reads from a pipe of the command must not have to wait for us."""
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)


def _take_note(_signum: int, _: object) -> None:
    """Nothing to do: those who wait for the signal are told."""
