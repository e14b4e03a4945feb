"""Headway and its peers behind one face, each used as its own documentation shows.

A contender can be sent to another process; there, ``gate()`` opens it, and
``with gate():`` goes through.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeAlias

import fasteners
import filelock
import portalocker

from headway import Governor

Gate: TypeAlias = Callable[[], AbstractContextManager[Any]]

# Three levels, the limit on the middle one: a usual key.
KEY = "llm/openai/gpt"
LIMITED_KEY = "llm/openai"
FOREVER_SECONDS = 3600.0

# A clean process to fork the children from: none inherits what a figure has open.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bench.contenders", "bench.redis_contenders", "asyncio"])


class Contender:
    """A limit that processes share, in a directory of its own."""

    name: ClassVar[str]
    # How long its waiters sleep between two looks; 0 for those that are woken.
    poll_seconds: ClassVar[float] = 0.0

    def __init__(self, directory: str, limit: int) -> None:
        self.directory, self.limit = os.path.join(directory, self.name), limit
        os.makedirs(self.directory, exist_ok=True)

    def gate(self) -> Gate:
        raise NotImplementedError

    def _file(self) -> str:
        return os.path.join(self.directory, "lock")


class Headway(Contender):
    """The SQLite store of a home."""

    name = "headway"

    def governor(self) -> Governor:
        return Governor(f"sqlite:///{self.directory}", limits={LIMITED_KEY: self.limit})

    def gate(self) -> Gate:
        governor = self.governor()
        return lambda: governor.slot(KEY)


class Multiprocessing(Contender):
    """A semaphore of the C library in shared memory: the floor. Nobody returns it after a crash."""

    name = "multiprocessing"

    def __init__(self, directory: str, limit: int) -> None:
        super().__init__(directory, limit)
        self._semaphore = processes.Semaphore(limit)

    def gate(self) -> Gate:
        return lambda: self._semaphore


class Flock(Contender):
    """One kernel lock on a file, no count."""

    name = "flock"

    def gate(self) -> Gate:
        descriptor = os.open(self._file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

        @contextmanager
        def locked() -> Iterator[None]:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

        return locked


class Portalocker(Contender):
    """A file lock for each slot, tried in turn."""

    name = "portalocker"
    poll_seconds = 0.25

    def gate(self) -> Gate:
        semaphore = portalocker.BoundedSemaphore(
            self.limit, name="bench", directory=self.directory, timeout=FOREVER_SECONDS
        )
        return lambda: semaphore


class Filelock(Contender):
    """One file lock, no count."""

    name = "filelock"
    poll_seconds = 0.05

    def gate(self) -> Gate:
        lock = filelock.FileLock(self._file())
        return lambda: lock


class Fasteners(Contender):
    """One file lock, no count."""

    name = "fasteners"
    poll_seconds = 0.1

    def gate(self) -> Gate:
        lock = fasteners.InterProcessLock(self._file())
        return lambda: lock


# Peers whose lock goes with the process that has it.
FILE_LOCKS = (Flock, Fasteners, Filelock, Portalocker)
