"""What a child process runs: the code it was given, with a few words to talk to its test.

Used as a script: ``python actor.py CODE``. The code finds ``say``, ``hear`` and
the rest of this module as its globals, and opens its governor itself.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import struct
import sys
import threading
import time
from contextlib import contextmanager

import headway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from headway.events import Event

__all__ = ["asyncio", "headway", "signal", "threading", "time"]


def say(*words: object) -> None:
    """Tell the test something: one line, in one write, so that lines never mix."""
    os.write(1, (" ".join(map(str, words)).replace("\n", " ") + "\n").encode())


def hear() -> str:
    """The next line from the test; the process ends when the test does."""
    line = b""
    while not line.endswith(b"\n"):
        # Byte by byte: a buffer would be shared with forked children.
        byte = os.read(0, 1)
        if not byte:
            os._exit(3)
        line += byte
    return line.decode().strip()


def queued(event: Event) -> None:
    """An ``on_wait`` hook that says once that its ticket is in line."""
    if event.kind == "queued":
        say("waiting")


def die() -> NoReturn:
    """End at once, as by the kernel's hand."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Board:
    """Who is inside, independent of Headway: one counter per participant in shared memory.

    A participant adds one when it goes in and one when it comes out, so odd means
    inside. Two equal looks in a row are one true picture of a moment.
    """

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self._size = len(self._cells) // 2

    @staticmethod
    def create(path: str, participants: int) -> Board:
        """Make the file: a counter and a pid for each participant."""
        with open(path, "wb") as file:
            file.write(struct.pack("Q", 0) * 2 * participants)
        return Board(path)

    def enter(self, me: int) -> None:
        """Participant ``me`` of this process is inside from now on."""
        self._cells[self._size + me] = os.getpid()
        self._cells[me] += 1 if self._cells[me] % 2 == 0 else 2

    def leave(self, me: int) -> None:
        """It is outside again."""
        self._cells[me] += 1

    @contextmanager
    def inside(self, me: int, limit: int) -> Iterator[None]:
        """Be inside, and make sure that there are never more than the limit."""
        self.enter(me)
        try:
            self.check(limit)
            yield
            self.check(limit)
        finally:
            self.leave(me)

    def entries(self, me: int) -> int:
        """How often a participant has been inside."""
        return (self._cells[me] + 1) // 2

    def present(self) -> list[int]:
        """The participants that were inside at one moment."""
        seen = self._cells[: self._size].tolist()
        while True:
            again = self._cells[: self._size].tolist()
            if seen == again:
                break
            seen = again
        return [me for me, count in enumerate(seen) if count % 2]

    def check(self, limit: int) -> None:
        """Fail loudly if more are inside than the limit allows."""
        present = self.present()
        if len(present) > limit:
            # A killed one is not inside any more, though nobody wrote that down.
            present = [me for me in present if _lives(self._cells[self._size + me])]
        if len(present) > limit:
            say("OVER", len(present), "inside, limit", limit)


def _lives(pid: int) -> bool:
    """Whether a process has memory; it loses that before it loses its locks."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


if __name__ == "__main__":
    exec(compile(sys.argv[1], "<child>", "exec"), globals())  # noqa: S102
