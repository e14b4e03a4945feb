"""A post: held by one process of a home at a time, by a kernel lock."""

from __future__ import annotations

import fcntl
import os
import time

from headway import ownership
from headway.stores import locks

_MOST_BYTES = 4096
_LOOK_SECONDS = 0.001


class Post:
    """Something that only one process may do, such as being the worker."""

    def __init__(self, home: str, name: str = "worker") -> None:
        self._path = os.path.join(home, f"{name}.lock")
        self._lock: int | None = None

    def take(self, note: str = "") -> bool:
        """Be the one, and leave a note of one line for who looks; false if there is one."""
        while True:
            lock = ownership.create(self._path, os.O_RDWR)
            while not locks.taken(lock, fcntl.LOCK_EX):
                if not locks.taken(lock, fcntl.LOCK_SH):
                    os.close(lock)
                    return False
                # Only people who look who is there, and they leave at once.
                fcntl.flock(lock, fcntl.LOCK_UN)
            self._lock = lock
            if self.is_held():
                break
            self.leave()  # the file was deleted meanwhile, and this lock keeps nobody out
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} {time.time():.3f} {note}\n".encode(), 0)
        return True

    def is_held(self) -> bool:
        """Whether this process is the one: its lock is still the file at this path."""
        if self._lock is None:
            return False
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._lock))

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
        return int(words[0]), float(words[1])

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
            while not locks.taken(lock, fcntl.LOCK_SH):
                text = os.pread(lock, _MOST_BYTES, 0).decode()
                if text.endswith("\n"):
                    pid, since, note = text.rstrip("\n").split(" ", 2)
                    return pid, since, note
                # It has its lock and not yet a pid. To answer 0 would not do: whoever signals
                # that process signals all of its own group.
                time.sleep(_LOOK_SECONDS)
            return None
        finally:
            os.close(lock)

    def wait_until_free(self) -> None:
        """Block until there is none."""
        locks.wait_until_free(self._path)
