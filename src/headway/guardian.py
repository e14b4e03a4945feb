"""Guards one command for a caller in another process, and leaves nothing of it behind.

The guardian is a process of its own between the caller and the command. It is the parent
of every process that the command starts, also of those that moved into sessions of
their own, and it has a copy of the lock that keeps the caller's lease. It ends all of
them when the command has ended, when the caller says so, and when the caller is gone,
however that came. Only then it lets go of the lock.
"""

from __future__ import annotations

import os
import select
import sys

from headway import family, programs
from headway.farewell import Farewell
from headway.lean import signal
from headway.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The children of a command often end a moment after it.
_LEAVE_SECONDS = 0.2
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class Guardian:
    """One command and its family, from its start to the end of its last process.

    It tells the caller: ``started`` with the pid, or ``failed`` with reason and code;
    ``ended`` with the command's exit code; ``gone`` when nothing is left.
    """

    def __init__(self, caller: Wire, caller_pid: int, grace_seconds: float) -> None:
        self._caller = caller
        self._is_caller_heard = True
        self._command = 0
        self._farewell = Farewell(grace_seconds)
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A fork of the caller may keep the other end of the wire open.
        self._watch = _open_pidfd(caller_pid)
        if os.getppid() != caller_pid:
            self._farewell.begin()

    def run(self, program: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
        """Run the command when the caller says so, until its whole tree is gone."""
        family.adopt_orphans()
        for signum in (*_ENDING, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        start = self._caller.receive()
        if start is None or not self._start(program, words, environ):
            return
        while not self._is_family_gone():
            self._farewell.strike()
            self._attend()
        self._caller.send("gone")

    def _start(self, program: str, words: Sequence[str], environ: Mapping[str, str]) -> bool:
        try:
            self._command = programs.start(
                program,
                words,
                environ,
                setpgroup=0,
                setsigmask=[],
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as error:
            refusal = programs.not_started(program, error)
            self._caller.send("failed", reason=str(refusal), code=refusal.exit_code)
            return False
        # Whoever reads what the command writes must not have to wait for us.
        _turn_to_nowhere(0, 1, 2)
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
                self._farewell.begin(after_seconds=_LEAVE_SECONDS)
        return False


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # then the wire alone tells


def _turn_to_nowhere(*descriptors: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


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
    try:
        pid = os.posix_spawn(
            sys.executable,
            [
                *python_words("headway.guardian", str(far.fileno()), str(os.getpid())),
                *(str(grace_seconds), directory, program, *words),
            ],
            environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)),
                (os.POSIX_SPAWN_DUP2, far.fileno(), far.fileno()),  # clears close-on-exec
            ],
            setsid=True,
            setsigmask=[],
        )
    except BaseException:
        near.close()
        raise
    finally:
        far.close()
    near.send("start", lifeline=lifeline)
    return pid, near


def python_words(module: str, *arguments: str) -> list[str]:
    """The words that have a new interpreter call ``main`` of a module of Headway.

    It finds modules where this one does, whatever the variables that it is started with,
    and never in the directory that it is in: that may be an agent's.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [here, *(place for place in sys.path if os.path.isabs(place))]
    code = f"import sys; sys.path[:] = {path!r}; from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def main(arguments: list[str]) -> None:
    """The guardian's whole life."""
    descriptor, caller_pid, grace_seconds, directory, program, *words = arguments
    caller = Wire.inherited(int(descriptor))
    try:
        os.chdir(directory)
    except OSError as error:
        reason = f"{directory}: {error.strerror}"
        caller.send("failed", reason=reason, code=programs.DENIED)
        return
    Guardian(caller, int(caller_pid), float(grace_seconds)).run(program, words, os.environ)
