"""The guard of a home: one kernel lock that its processes take turns with.

Whoever finds it taken sleeps in the kernel, not in SQLite's busy loop. It is a
file of its own, because closing any descriptor of ``slots.db`` would drop the
locks that SQLite holds there. Its first bytes are shared memory, written only
under the lock: counters that must never go back, and who is inside.
"""

from __future__ import annotations

import _thread
import fcntl
import mmap
import os
import sys
import time

from headway import background, ownership
from headway.errors import StoreUnavailable
from headway.stores.base import StoreClosed, WouldBlock
from headway.stores.locks import owned_lock, taken
from headway.stores.patience import Patience
from headway.stores.processes import describe, lock_owners

# Longer than an operation takes; after that the one inside was put to sleep, and so
# should we be.
_SPIN_SECONDS = 0.0003
# Who gives something back still holds it while it waits here: no naps for those.
_EAGER_SPIN_SECONDS = 0.003
# The kernel hands a lock to a sleeper, and until that one has been woken nobody works. So
# for a while it is better to nap and try: then only someone who runs ever takes it.
_NAPS_SECONDS = (0.0002, 0.0003, 0.0005, 0.0008, 0.0012, 0.002, 0.003, 0.005, 0.008)
# In a crowd it is best to go in and out for a while with everything at hand, and then to
# let another do so: fewer, longer naps, and a nap also for who was in there all the time.
_NAPS_IN_A_CROWD_SECONDS = (0.012, 0.008)
_CROWD_SECONDS = 0.1
_SHARE, _SHARE_SECONDS = 32, 0.0005
PAGE_BYTES = 4096
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))
_TOKEN, _ARRIVAL, _OWNER_PID, _GENERATION, _LOG, _INDEX = range(6)
NO_FILES = (0, 0)
_FILL_UP_SECONDS = 1.0
# No counter gets there by counting: the page was overwritten.
_ABSURD = 1 << 53


class Guard:
    """A lock between processes and, inside this one, between threads."""

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self._path = path
        self._patience = Patience(path, timeout_seconds)
        self._descriptor = _open(path)
        try:
            self._doorman = Doorman(path)
        except OSError:
            os.close(self._descriptor)
            raise
        if os.fstat(self._descriptor).st_size < PAGE_BYTES:
            _fill_up(self._descriptor, path)
        self._page = memoryview(mmap.mmap(self._descriptor, PAGE_BYTES)).cast("Q")
        self._mutex = owned_lock()
        # Whether the doorman was asked for this turn, and perhaps has the lock.
        self._at_the_door = False
        self._pid = os.getpid()
        self._crowded_until = 0.0
        # How often we went inside since we last met someone, and when that was.
        self._streak, self._streak_began = 0, 0.0

    def acquire(self, *, patient: bool, eager: bool = False) -> None:
        """Go inside, or raise ``WouldBlock`` at once, or ``StoreUnavailable`` in time.

        After ``close`` it is ``StoreClosed``.
        Always followed by ``release``, also when it raised: Ctrl-C may strike in between.
        """
        if not self._mutex.acquire(False):
            self._wait_for_threads(patient=patient)
        try:
            fcntl.flock(self._descriptor, _TRY)
        except BlockingIOError:
            self._wait_for_processes(patient=patient, eager=eager and patient)
        except ValueError:  # it is -1
            raise StoreClosed from None
        self._streak += 1
        self._page[_OWNER_PID] = self._pid

    def release(self) -> None:
        """Leave, if this thread is inside."""
        if self._mutex._is_owned():  # noqa: SLF001 - the one way to know for sure
            if self._at_the_door:  # before anything else: Ctrl-C in there means once more
                self._doorman.leave()
                self._at_the_door = False
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            except ValueError:  # closed, and so unlocked
                pass
            finally:
                self._mutex.release()

    def is_at_its_path(self) -> bool:
        """Whether others who come now use the same file; for who is inside."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._descriptor))

    def is_mine(self) -> bool:
        """Whether this very thread is inside."""
        return self._mutex._is_owned()  # noqa: SLF001

    def _wait_for_threads(self, *, patient: bool) -> None:
        if not patient:
            raise WouldBlock
        if not self._mutex.acquire(True, self._patience.left_seconds()):
            raise self._patience.in_vain(self._who_keeps_our_threads())

    def _wait_for_processes(self, *, patient: bool, eager: bool) -> None:
        now = time.monotonic()
        crowded = now < self._crowded_until or self._had_our_share(now)
        self._streak, self._streak_began = 0, now
        if eager or not (crowded and patient):
            deadline = now + (_EAGER_SPIN_SECONDS if eager else _SPIN_SECONDS)
            while time.monotonic() < deadline:
                _give_way()
                if self._try():
                    return
        if not patient:
            raise WouldBlock
        self._crowded_until = now + _CROWD_SECONDS
        for nap_seconds in _NAPS_IN_A_CROWD_SECONDS if crowded else _NAPS_SECONDS:
            self._nap(nap_seconds)
            if self._try():
                return
        left_seconds = self._patience.left_seconds()
        self._at_the_door = True
        if not self._doorman.wait(left_seconds):
            raise self._patience.in_vain(
                f"{describe(self._pid_inside())} is {self._inside_for_long()}"
            )

    def _nap(self, seconds: float) -> None:
        """Sleep, with the door open for the other threads: one may have something to give back."""
        self._mutex.release()
        time.sleep(seconds)
        if not self._mutex.acquire(False):
            self._wait_for_threads(patient=True)
        if self.closed:
            raise StoreClosed

    def _had_our_share(self, now: float) -> bool:
        """Whether we were inside again and again, at most half a millisecond apart."""
        return now - self._streak_began < self._streak * _SHARE_SECONDS and self._streak > _SHARE

    def _try(self) -> bool:
        return taken(self._descriptor, fcntl.LOCK_EX)

    def _who_keeps_our_threads(self) -> str:
        """One of them has the mutex: it is inside, or it waits for another process itself."""
        pid = self._pid_inside()
        if pid == self._pid:
            return f"another thread of this process, pid {pid}, is {self._inside_for_long()}"
        return f"{describe(pid)} is inside an operation, and another thread waits for that already"

    def _inside_for_long(self) -> str:
        return f"inside an operation and has not left it for {self._patience.seconds:g} s"

    def _pid_inside(self) -> int:
        owners = lock_owners(self._path)
        return owners[0] if owners else self._page[_OWNER_PID]

    # -- counters, inside only ---------------------------------------------------------

    def next_token(self) -> int:
        """A number greater than every one before, also after ``slots.db`` was deleted."""
        token = self._page[_TOKEN] + 1
        if token >= _ABSURD:
            token = _microseconds()
        self._page[_TOKEN] = token
        return token

    def next_arrival(self, now_microseconds: int) -> int:
        """The time, but never before or at an arrival that was given out."""
        arrival = max(now_microseconds, self._page[_ARRIVAL] + 1)
        if arrival >= _ABSURD:
            arrival = now_microseconds
        self._page[_ARRIVAL] = arrival
        return arrival

    def next_generation(self) -> int:
        """A number for a new database, to tell it from every older one."""
        generation = self._page[_GENERATION] + 1
        self._page[_GENERATION] = generation if generation < _ABSURD else _microseconds()
        self.side_files = NO_FILES
        return self.generation

    @property
    def side_files(self) -> tuple[int, int]:
        """The inodes of the log and the index that those use who have the database open.

        Nothing but zeros if nobody has it open, as far as is known.
        """
        return self._page[_LOG], self._page[_INDEX]

    @side_files.setter
    def side_files(self, inodes: tuple[int, int]) -> None:
        self._page[_LOG], self._page[_INDEX] = inodes

    @property
    def generation(self) -> int:
        """The number of the newest database."""
        try:
            return self._page[_GENERATION]
        except ValueError:  # read without being inside, and the page was given back
            raise StoreClosed from None

    def start_afresh(self) -> None:
        """Nobody else is alive: arrivals start over, and tokens pass those lost with power."""
        self._page[_ARRIVAL] = 0
        token = self._page[_TOKEN]
        self._page[_TOKEN] = max(token if token < _ABSURD else 0, _microseconds())

    def come_to_rest(self, seconds: float) -> bool:
        """Keep the other threads of this process out; false if that takes too long."""
        return self._mutex.acquire(True, seconds)

    def go_on(self) -> None:
        """Let them in again; safe to repeat."""
        if self.is_mine():
            self._mutex.release()

    @property
    def closed(self) -> bool:
        """Whether the descriptors were given back."""
        return self._descriptor < 0

    def close(self) -> None:
        """Leave for good: give the descriptors back and refuse whoever comes. Safe to repeat.

        The caller is inside, or keeps the other threads out with ``come_to_rest``: the
        number of a closed descriptor may be another file's in the next moment, and
        whoever reads it here has the mutex.
        """
        if self._at_the_door:
            self._doorman.leave()
            self._at_the_door = False
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                self._page.release()
                self._doorman.dismiss()
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Close what is a parent's, without touching a lock that it may hold."""
        descriptor, self._descriptor = self._descriptor, -1
        self._at_the_door = False
        if descriptor >= 0:
            self._page.release()
            os.close(descriptor)
            os.close(self._doorman.descriptor)


class Doorman:
    """A thread that waits in the kernel for the lock, so that its caller may stop waiting."""

    def __init__(self, path: str) -> None:
        # Its own open file: a lock that it gets late must not be mistaken for ours.
        self.descriptor = _open(path)
        self._mutex = _thread.allocate_lock()
        self._asked = _thread.allocate_lock()
        self._asked.acquire()
        self._got = _thread.allocate_lock()
        self._got.acquire()
        self._running = self._waiting = self._wanted = self._dismissed = False

    def wait(self, seconds: float) -> bool:
        """Wait for the lock on our descriptor; only one caller at a time.

        Always followed by ``leave``, also when it raised: Ctrl-C may strike at any moment.
        """
        with self._mutex:
            self._wanted = True
            if not self._running:
                background.start(self._work)
                self._running = True
            if not self._waiting:
                self._waiting = True
                self._asked.release()
        return self._got.acquire(True, seconds)

    def leave(self) -> None:
        """Give the lock back; if it comes later, it is not wanted any more."""
        with self._mutex:
            self._wanted = False
            self._got.acquire(False)
            if not self._waiting:
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            if not self._waiting:  # dismissed
                return
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            with self._mutex:
                self._waiting = False
                if self._dismissed:
                    os.close(self.descriptor)
                    return
                if self._wanted:
                    self._got.release()
                else:
                    fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def dismiss(self) -> None:
        """Close the descriptor, or leave that to the thread if it still waits with it."""
        with self._mutex:
            self._dismissed = True
            if self._waiting:
                return
            os.close(self.descriptor)
            if self._running:
                self._asked.release()


def _microseconds() -> int:
    return time.time_ns() // 1000


def _fill_up(descriptor: int, path: str) -> None:
    """Make a file whole that was cut short, as a power cut may leave it.

    Its counters start from the time: past every number that was given out, so that a database
    of before is not taken for the newest.
    """
    deadline = time.monotonic() + _FILL_UP_SECONDS
    while not taken(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise StoreUnavailable(path, "it was cut short; delete it when nothing runs")
        time.sleep(_NAPS_SECONDS[-1])
    try:
        if os.fstat(descriptor).st_size < PAGE_BYTES:
            now = _microseconds()
            page = b"".join(count.to_bytes(8, sys.byteorder) for count in (now, 0, 0, now))
            os.pwrite(descriptor, page.ljust(PAGE_BYTES, b"\0"), 0)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _open(path: str) -> int:
    """Open the file, made whole if need be."""
    while True:
        try:
            # Not through a link: our counters would be written into the file it leads to.
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            _make(path)


def _make(path: str) -> None:
    draft = f"{path}.{os.getpid()}.{_thread.get_ident()}.new"
    descriptor = ownership.create(draft, os.O_RDWR | os.O_EXCL)
    try:
        # Real zeros, not a hole: touching a hole in shared memory on a full disk would
        # kill the process.
        os.write(descriptor, bytes(PAGE_BYTES))
        os.link(draft, path)
    except (FileExistsError, FileNotFoundError):
        pass  # someone else was first, and may have cleared the draft away as one of the dead
    finally:
        os.close(descriptor)
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass
