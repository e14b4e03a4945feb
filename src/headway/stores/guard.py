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
import time

from headway.errors import StoreUnavailable
from headway.stores.base import WouldBlock
from headway.stores.processes import describe, pid_namespace

# Giving way this often takes about 0.3 ms, longer than an operation; after that the
# one inside was put to sleep, and so should we be.
_YIELDS = 100
_PAGE_BYTES = 4096
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))
_TOKEN, _ARRIVAL, _OWNER_PID, _OWNER_NAMESPACE = range(4)


class Guard:
    """A lock between processes and, inside this one, between threads."""

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self._path, self._timeout_seconds = path, timeout_seconds
        self._descriptor = _open(path)
        self._doorman = Doorman(path)
        self._page = memoryview(mmap.mmap(self._descriptor, _PAGE_BYTES)).cast("Q")
        self._mutex = _thread.allocate_lock()
        self._locked = self._descriptor
        self._namespace = pid_namespace()
        self.owner_thread = 0

    def acquire(self, *, patient: bool) -> None:
        """Go inside, or raise ``WouldBlock`` at once, or ``StoreUnavailable`` in time."""
        deadline = time.monotonic() + self._timeout_seconds
        if not self._mutex.acquire(False):
            if not patient:
                raise WouldBlock
            if not self._mutex.acquire(True, self._timeout_seconds):
                raise StoreUnavailable(
                    self._path, f"another thread of this process, {self._who()}, is inside"
                )
        try:
            self._lock(deadline, patient=patient)
            self.owner_thread = _thread.get_ident()
            self._page[_OWNER_PID] = os.getpid()
            self._page[_OWNER_NAMESPACE] = self._namespace
        except BaseException:
            self._unlock()
            raise

    def release(self) -> None:
        """Leave."""
        self.owner_thread = 0
        self._unlock()

    def _unlock(self) -> None:
        fcntl.flock(self._locked, fcntl.LOCK_UN)
        self._locked = self._descriptor
        self._mutex.release()

    def _lock(self, deadline: float, *, patient: bool) -> None:
        descriptor, wanted = self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB
        for _ in range(_YIELDS):
            try:
                fcntl.flock(descriptor, wanted)
            except BlockingIOError:
                _give_way()
            else:
                return
        if not patient:
            raise WouldBlock
        if not self._doorman.wait(max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable(
                self._path,
                f"{self._who()} is inside an operation and has not left it"
                f" for {self._timeout_seconds:g} s",
            )
        self._locked = self._doorman.descriptor

    def _who(self) -> str:
        pid, namespace = self._page[_OWNER_PID], self._page[_OWNER_NAMESPACE]
        if namespace != self._namespace:
            return f"pid {pid} of another container"
        return describe(pid)

    # -- counters, inside only ---------------------------------------------------------

    def next_token(self) -> int:
        """A number greater than every one before, also after ``slots.db`` was deleted."""
        token = self._page[_TOKEN] + 1
        self._page[_TOKEN] = token
        return token

    def next_arrival(self, now_microseconds: int) -> int:
        """The time, but never before or at an arrival that was given out."""
        arrival = max(now_microseconds, self._page[_ARRIVAL] + 1)
        self._page[_ARRIVAL] = arrival
        return arrival

    def start_afresh(self) -> None:
        """Nobody else is alive: arrivals start over, and tokens pass those lost with power."""
        self._page[_ARRIVAL] = 0
        self._page[_TOKEN] = max(self._page[_TOKEN], time.time_ns() // 1000)

    def close(self) -> None:
        """Give the descriptors back, without touching a lock that a parent may hold."""
        self._page.release()
        os.close(self._descriptor)
        self._doorman.close()


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
        self._running = self._waiting = self._wanted = False

    def wait(self, seconds: float) -> bool:
        """Wait for the lock on our descriptor; only one caller at a time."""
        with self._mutex:
            self._wanted = True
            if not self._running:
                self._running = True
                _thread.start_new_thread(self._work, ())
            if not self._waiting:
                self._waiting = True
                self._asked.release()
        if self._got.acquire(True, seconds):
            return True
        with self._mutex:
            self._wanted = False
            # It may have come in just this moment.
            return self._got.acquire(False)

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            except OSError:  # closed
                return
            with self._mutex:
                self._waiting = False
                if self._wanted:
                    self._got.release()
                else:
                    fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self.descriptor)


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_size < _PAGE_BYTES:
        # New: nobody can be inside yet. Real zeros, not a hole: touching a hole in
        # shared memory on a full disk would kill the process.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_size < _PAGE_BYTES:
            os.pwrite(descriptor, bytes(_PAGE_BYTES), 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return descriptor
