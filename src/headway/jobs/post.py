"""A post: held by one process of a home at a time, by a kernel lock."""

from __future__ import annotations

import fcntl
import os
import time

from headway.stores import locks

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_MOST_BYTES = 4096


class Post:
    """Something that only one process may do, such as being the worker."""

    def __init__(self, home: str, name: str = "worker") -> None:
        self._path = os.path.join(home, f"{name}.lock")
        self._lock: int | None = None

    def take(self, note: str = "") -> bool:
        """Be the one, and leave a note of one line for who looks; false if there is one."""
        lock = os.open(self._path, _OPEN, 0o600)
        while not locks.taken(lock, fcntl.LOCK_EX):
            if not locks.taken(lock, fcntl.LOCK_SH):
                os.close(lock)
                return False
            # Only people who look who is there, and they leave at once.
            fcntl.flock(lock, fcntl.LOCK_UN)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} {time.time():.3f} {note}\n".encode(), 0)
        self._lock = lock
        return True

    def leave(self) -> None:
        """Make room for another."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def holder(self) -> tuple[int, float] | None:
        """The pid of the one and since when it is that; nothing if there is none."""
        words = self._words()
        if words is None:
            return None
        # Between its lock and its first words it has no pid yet.
        return int(words[0] or 0), float(words[1] or time.time())

    def note(self) -> str:
        """What the one has left for who looks."""
        words = self._words()
        return words[2] if words else ""

    def _words(self) -> tuple[str, str, str] | None:
        try:
            lock = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if locks.taken(lock, fcntl.LOCK_SH):
                return None
            pid, _, rest = os.read(lock, _MOST_BYTES).decode().partition(" ")
            since, _, note = rest.partition(" ")
            return pid, since, note.rstrip("\n")
        finally:
            os.close(lock)

    def wait_until_free(self) -> None:
        """Block until there is none."""
        locks.wait_until_free(self._path)
