"""One run of a program: started, listened to and watched by a thread of its own.

The thread depends on nobody's event loop: output is taken in and watchdogs look while
the caller's loop is blocked. The program itself is in the care of a guardian process
(``headway.guardian``), so that it ends with its whole tree even if we are killed.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import select
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headway import background, guardian, leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headway.harness.events import AgentEvent
    from headway.harness.feed import Feed
    from headway.harness.result import Status
    from headway.harness.story import Story
    from headway.harness.watch import Watch
    from headway.watchdogs import Bite
    from headway.wire import Wire

# Bears the id of an attempt, by which its processes are found if the guardian is killed.
MARK = "HEADWAY_ATTEMPT"
_READ_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20  # as many as the system allows to everyone
_LOOK_SECONDS = 1.0
# More than any pipe holds.
_LAST_READS = 64
_TAIL_BYTES = 1 << 14
# Watchdogs that go by the clock; the others count.
_CLOCKS = ("max_runtime", "idle_kill")
_running: set[Attempt] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What is to be run, and how."""

    program: str
    words: list[str]
    environ: Mapping[str, str]
    directory: str
    prompt: bytes | None
    lifeline: int | None
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an attempt is ended, if not by itself."""

    status: Status
    reason: str
    bite: Bite | None = None


@dataclass(slots=True)
class Outcome:
    """How the program ended."""

    exit_code: int | None = None
    trouble: str | None = None
    stop: Stop | None = None
    errors: str = ""
    run_seconds: float = 0.0


class Listener(Protocol):
    """Takes a program's output in."""

    def hear(self, output: bytes) -> None: ...

    def hear_error(self, output: bytes) -> None: ...

    def end(self) -> None: ...


class Attempt:
    """From the start of a program to the end of its last process."""

    def __init__(
        self,
        errand: Errand,
        *,
        listener: Listener,
        story: Story,
        watch: Watch,
        feed: Feed[AgentEvent | Outcome],
        started: Callable[[int], None],
    ) -> None:
        self._errand, self._listener, self._story = errand, listener, story
        self._watch, self._feed, self._started = watch, feed, started
        self._outcome = Outcome()
        self._errors = bytearray()
        self._written = 0
        self._has_started = self._is_tree_gone = self._is_being_ended = False
        self._lock = threading.Lock()
        self._wake = self._woken = -1
        self._is_last = False
        self._over = threading.Event()

    def start(self) -> None:
        """Begin; the outcome is the last that the feed gets."""
        _running.add(self)
        try:
            with self._lock:
                self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            background.start(self._live)
        except (OSError, RuntimeError) as error:
            self._outcome.trouble = _trouble(error)
            self._leave()

    def stop(self, stop: Stop) -> None:
        """End it for this reason, unless it has ended or is being ended for another."""
        with self._lock:
            if self._outcome.stop is None and self._outcome.exit_code is None:
                self._outcome.stop = stop
        self.wake()

    def wake(self) -> None:
        """Have the thread look up."""
        with self._lock:
            if self._woken >= 0:
                try:
                    os.write(self._woken, b".")
                except BlockingIOError:
                    pass  # it is about to

    def _live(self) -> None:
        began = time.monotonic()
        try:
            if self._outcome.stop is None:
                self._see_through()
        except Exception as error:  # noqa: BLE001 - the caller hears of it, and waits for that
            self._outcome.trouble = _trouble(error)
        finally:
            self._outcome.run_seconds = time.monotonic() - began
            self._outcome.errors = self._errors.decode("utf-8", "replace")
            self._leave()

    def _leave(self) -> None:
        """Nothing of it runs any more."""
        with self._lock:
            for descriptor in (self._wake, self._woken):
                if descriptor >= 0:
                    os.close(descriptor)
            self._wake = self._woken = -1
        _running.discard(self)
        self._over.set()
        if not self._is_last:
            self._feed.put(self._outcome)

    def end_with_program(self) -> None:
        """End it; nobody is to hear of that. A thread that did would find half a program."""
        self._is_last = True
        self.stop(Stop("cancelled", "its caller's program ended"))

    def wait(self) -> None:
        """Block until it is over."""
        self._over.wait()

    def _see_through(self) -> None:
        with ExitStack() as ours:
            with ExitStack() as theirs:
                prompt = theirs.enter_context(_readable(self._errand.prompt))
                output, their_output = _pipe(ours, theirs)
                errors, their_errors = _pipe(ours, theirs)
                pid, wire = self._launch((prompt, their_output, their_errors))
            self._watch.tree = pid
            try:
                self._attend(wire, pid, output, errors)
            finally:
                wire.close()
                _bury(pid)
                self._end_leftovers()

    def _end_leftovers(self) -> None:
        """If the guardian was killed, or we failed: nobody else will."""
        if not self._is_tree_gone:
            leftovers.end(**{MARK: self._errand.environ[MARK]})
            self._is_tree_gone = True

    def _launch(self, streams: tuple[int, int, int]) -> tuple[int, Wire]:
        errand = self._errand
        return guardian.launch(
            errand.program,
            errand.words,
            errand.environ,
            directory=errand.directory,
            streams=streams,
            lifeline=errand.lifeline,
            grace_seconds=errand.grace_seconds,
        )

    def _attend(self, wire: Wire, guardian_pid: int, output: int, errors: int) -> None:
        """Take everything in until the guardian has said its last word."""
        streams = {output, errors}
        while True:
            # Nothing is told before its start, and whoever cannot keep up is not sent more.
            paused = {output} if not self._has_started or self._feed.pauses() else set()
            ready = self._wait({wire.fileno(), *streams} - paused)
            if wire.fileno() in ready and not self._hear(wire):
                break
            for stream in streams & ready:
                if not self._take(stream, is_output=stream == output):
                    streams.discard(stream)
            self._look()
            if self._outcome.stop is not None and not self._is_being_ended:
                self._is_being_ended = True
                if wire.send("end"):
                    os.kill(guardian_pid, signal.SIGCONT)  # an agent may have stopped it
        self._end_leftovers()
        for stream in streams:  # what is in the pipe; nobody is left who could write more
            for _ in range(_LAST_READS):
                if not self._take(stream, is_output=stream == output):
                    break
        self._listener.end()

    def _wait(self, descriptors: set[int]) -> set[int]:
        """Sleep until there is something to read or it is time to look; where there is."""
        poll = select.poll()
        for descriptor in (self._wake, *descriptors):
            poll.register(descriptor, select.POLLIN)
        # Nobody tells us when the caller's loop is closed.
        pace = self._watch.looks_every_seconds or _LOOK_SECONDS
        ready = {descriptor for descriptor, _ in poll.poll(pace * 1000)}
        if self._wake in ready:
            os.read(self._wake, 4096)
        return ready

    def _take(self, stream: int, *, is_output: bool) -> bool:
        """Take in what there is; false if there is nothing."""
        try:
            chunk = os.read(stream, _READ_BYTES)
        except BlockingIOError:
            return False
        if is_output and chunk:
            self._written += len(chunk)
            self._watch.heard()
            self._feed.loads(len(chunk))
            self._listener.hear(chunk)
        elif chunk:
            self._errors = (self._errors + chunk)[-_TAIL_BYTES:]
            self._listener.hear_error(chunk)
        return bool(chunk)

    def _hear(self, wire: Wire) -> bool:
        """What the guardian says; false when there is no more."""
        message = wire.receive()
        if message is None:
            self._outcome.trouble = "the process that guarded it was killed"
            return False
        if message["kind"] == "started":
            self._has_started = True
            self._started(message["pid"])
        elif message["kind"] == "failed":
            self._outcome.trouble, self._outcome.exit_code = message["reason"], message["code"]
            self._is_tree_gone = True
        elif message["kind"] == "ended":
            with self._lock:
                self._outcome.exit_code = message["code"]
        else:
            self._is_tree_gone = True
        # A fork of ours may have the other end as well, so that it never breaks.
        return not self._is_tree_gone

    def _look(self) -> None:
        """Let the watchdogs look, as long as there is something to watch."""
        if self._outcome.exit_code is not None or self._outcome.stop is not None:
            return
        if self._feed.is_closed:
            self.stop(Stop("cancelled", "nobody waits for it any more"))
            return
        warnings, bite = self._watch.look(self._written)
        for warning in warnings:
            self._story.warns(warning)
        if bite is not None:
            status: Status = "timed_out" if bite.mechanism in _CLOCKS else "failed"
            self.stop(Stop(status, bite.reason, bite))


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Both ends, each closed with what it belongs to."""
    here, there = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    os.set_blocking(here, False)
    _widen(there)
    return here, there


def _widen(pipe: int) -> None:
    """Have room for all that a program writes last: some do not wait until it was read."""
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if set_size is not None:
        with suppress(OSError):  # this user has many such pipes already
            fcntl.fcntl(pipe, set_size, _PIPE_BYTES)


@contextmanager
def _readable(prompt: bytes | None) -> Iterator[int]:
    """A descriptor to read the prompt from: any size, no name, gone with its last reader."""
    if prompt is None:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield nothing
        finally:
            os.close(nothing)
        return
    with tempfile.TemporaryFile(prefix="headway-prompt-") as file:
        file.write(prompt)
        file.flush()
        file.seek(0)
        yield file.fileno()


def _trouble(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"it could not be run: {error.strerror}"
    return f"it could not be run: {type(error).__name__}: {error}"


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # the program waits for all its children, or has the system do it


def _end_all() -> None:
    """At the end of the process, before it gives its slots back: nothing may run without one."""
    attempts = list(_running)
    for attempt in attempts:
        attempt.end_with_program()
    for attempt in attempts:
        attempt.wait()


atexit.register(_end_all)
# Those of the parent, which sees to them.
os.register_at_fork(after_in_child=_running.clear)
