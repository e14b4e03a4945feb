"""Guards one command: holds its lease, runs it on the caller's terminal, reaps its whole tree.

Two processes stand round the command. The *front* is the one that was started:
it passes signals on and ends with the command's exit code. Its child, the
*supervisor*, waits in the queue, holds the lease and is the parent of the
command and of every orphan that the command leaves (Linux). Then it moves to a
session of its own, where neither Ctrl-C nor a ``kill`` of the group reaches it,
so the command counts until it is gone even if the front is killed. (In the moment
between the command's start and that move, a kill of the whole group takes both.) While it
waits it has a group of its own, and the front passes on whatever the terminal sends: so it
can leave the line when the front is stopped. If the
supervisor is killed, the front has a copy of its lock, inherits the tree, and
the command counts as well.
"""

from __future__ import annotations

import _socket
import _thread
import os
import sys
import time

from headway import background, family, programs
from headway.errors import NotStartable, no_more_processes
from headway.front import (
    COMMAND,
    ENDED,
    FORWARDED,
    LIFELINE,
    MESSAGE_BYTES,
    STOPPED,
    Front,
    have_announced,
    turn_to,
)
from headway.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

# A background process that touches the terminal is stopped. That is for the command to be.
_UNWANTED: set[int] = {signal.SIGTTIN, signal.SIGTTOU}
# Python ignores these for itself.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Not SIGTERM: the caller may have that ignored. This one means nothing to whoever gets it.
_FRONT_IS_GONE = signal.SIGURG
# The children of a command often end a moment after it.
_GRACE_SECONDS = 0.2
_INSIST_SECONDS = 1.0


class Interrupted(BaseException):
    """A signal ended the wait for a slot."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Stopped(BaseException):
    """Ctrl-Z came while the work could be put off."""


def supervise(work: Callable[[Supervisor], int]) -> int:
    """Do the work in a supervisor of its own; the exit code it reports."""
    nowhere = _fill_in_standard_streams()
    near, far = _socket.socketpair()
    # If the caller ignored it, so would we, and learn of no child's end.
    signal.signal(signal.SIGCHLD, _take_note)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, FORWARDED | _UNWANTED | {signal.SIGCHLD, signal.SIGIO}
    )
    have_announced(near)
    # Before there is a command: its supervisor may be killed the moment after it was started.
    family.adopt_orphans()
    try:
        pid = os.fork()
    except OSError as error:
        raise no_more_processes(error) from error
    if pid == 0:
        near.close()
        _end(Supervisor(far, before, nowhere), work)
    far.close()
    return Front(near, pid, nowhere).wait()


def _end(supervisor: Supervisor, work: Callable[[Supervisor], int]) -> NoReturn:
    code = 70
    try:
        code = supervisor.wait_in_line(work)
    except NotStartable as error:
        sys.stderr.write(f"headway: {error}\n")
        code = error.exit_code
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
        self._signals = FORWARDED | {signal.SIGCHLD}
        self._command = 0
        self._heard = self._reported = self._has_stopped_front = False
        self._group = os.getpgrp()
        # Whether the work is in a state that it can leave and come back to.
        self._may_stop = self._is_to_stop = False
        self._going_on = _thread.allocate_lock()

    def wait_in_line(self, work: Callable[[Supervisor], int]) -> int:
        """Do the work; a signal ends it as long as the command has not been started."""
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._interrupt)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, self._stop)
            signal.signal(signal.SIGCONT, self._go_on)
        os.setpgid(0, 0)
        signal.signal(_FRONT_IS_GONE, self._interrupt)
        background.start(self._watch_front)
        try:
            try:
                # Not in the foreground, it would be stopped for what it writes.
                blocked = (self._mask | _UNWANTED) - {_FRONT_IS_GONE}
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
                return work(self)
            finally:  # inside: there may come a second one on the way out
                signal.pthread_sigmask(signal.SIG_BLOCK, self._signals | {_FRONT_IS_GONE})
        except Interrupted as interrupted:
            self._heard = True
            if self._is_to_stop and os.getppid() == self._front_pid:
                os.kill(self._front_pid, signal.SIGCONT)  # stopped, it could not end with us
            return 128 + interrupted.signum

    def _interrupt(self, signum: int, _: object) -> NoReturn:
        background.start(self._insist, signum)
        raise Interrupted(signum)

    def allow_stop(self) -> None:
        """From now on Ctrl-Z raises ``Stopped``, until the front stops or a command is started."""
        self._may_stop = True
        if self._is_to_stop:
            raise Stopped

    def stop_front(self) -> None:
        """Have the front stop, so that the shell notices."""
        self._may_stop = False
        self._going_on.acquire(False)
        self._tell(STOPPED, 0)

    def wait_for_front(self) -> None:
        """Wait until the front goes on."""
        self._going_on.acquire()
        self._is_to_stop = False

    def is_in_foreground(self) -> bool:
        """Whether the terminal on stderr is the front's at present, and not another job's."""
        try:
            return os.tcgetpgrp(2) == self._group
        except OSError:  # it is no terminal of ours
            return False

    def _stop(self, _signum: int, _: object) -> None:
        self._is_to_stop = True
        if self._may_stop:
            raise Stopped

    def _go_on(self, _signum: int, _: object) -> None:
        if self._going_on.locked():
            self._going_on.release()

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
        stopped: Callable[[bool], None],
    ) -> int:
        """Run the command until its whole tree is gone; its exit code.

        With ``detach_ok`` only until its first process is. ``left_behind`` is called
        when that one is gone, others are not, and the front is about to leave; ``stopped``
        when that one was stopped or goes on.
        """
        if not detach_ok:
            family.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals | {_FRONT_IS_GONE})
        if lifeline is not None:
            self._tell(LIFELINE, 0, lifeline)
        self._may_stop = False
        self._join(self._group)  # the command is to be one of it
        self._command = programs.start(
            program, words, environ, setsigmask=self._mask, setsigdef=_IGNORED_BY_PYTHON
        )
        self._tell(COMMAND, self._command)
        if os.getpgrp() != os.getpid():
            os.setsid()
        turn_to(self._nowhere, 0, 1)
        self._tell_of_stop = stopped
        if self._is_to_stop:  # Ctrl-Z came too late for us
            self._pass_on(signal.SIGTSTP)
        return self._see_it_through(detach_ok=detach_ok, left_behind=left_behind)

    @staticmethod
    def _join(group: int) -> None:
        try:
            os.setpgid(0, group)
        except OSError:
            pass  # nobody is left in it

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
        turn_to(self._nowhere, 2)

    def _pass_on(self, signum: int) -> None:
        if self._command > 0:
            os.kill(self._command, signum)

    def _take_front_along(self, *, is_stopped: bool) -> None:
        """Have the front stop and go on with the command, so that the shell notices.

        It goes on with the command's end as well: that may be all that is heard of a going on.
        """
        if (is_stopped or self._has_stopped_front) and os.getppid() == self._front_pid:
            os.kill(self._front_pid, signal.SIGSTOP if is_stopped else signal.SIGCONT)
        if is_stopped != self._has_stopped_front:
            self._tell_of_stop(is_stopped)
        self._has_stopped_front = is_stopped

    def report(self, code: int) -> None:
        """Let the front end with this code, once."""
        if not self._reported:
            self._reported = True
            self._tell(ENDED, code)

    def _tell(self, letter: bytes, number: int, descriptor: int | None = None) -> None:
        message = letter + number.to_bytes(MESSAGE_BYTES - 1, "big")
        rights = [] if descriptor is None else [_rights(descriptor)]
        try:
            self._front.sendmsg([message], rights)
        except OSError:
            pass  # the front is gone; that is what we are for


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


def _take_note(_signum: int, _: object) -> None:
    """Nothing to do: those who wait for the signal are told."""
