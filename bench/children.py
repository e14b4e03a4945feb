"""Processes that a figure starts, talks to through a pipe, and always ends."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from bench.contenders import processes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# No answer takes longer than this, and no child lives longer: a figure may fail, not hang.
ANSWER_SECONDS = 60
LIFE_SECONDS = 240


class Child:
    """One process, running ``work(pipe, *args)``."""

    def __init__(self, work: Callable[..., None], *args: object) -> None:
        self._pipe, theirs = processes.Pipe()
        self._process = processes.Process(target=_live, args=(work, theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, message: object) -> None:
        self._pipe.send(message)

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """What the child says next, within this time."""
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"child {self.pid} has not answered for {seconds} s")
        return self._pipe.recv()

    def ask(self, message: object) -> Any:
        self.tell(message)
        return self.answer()

    def kill(self) -> None:
        """End it as a crash would, and wait until it is gone."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


Crew = Callable[..., Child]


@contextmanager
def crew() -> Iterator[Crew]:
    """A function that starts children; those still alive at the end are killed."""
    children: list[Child] = []

    def start(work: Callable[..., None], *args: object) -> Child:
        children.append(Child(work, *args))
        return children[-1]

    try:
        yield start
    finally:
        for child in children:
            child.kill()


def _live(work: Callable[..., None], pipe: Connection, *args: object) -> None:
    signal.alarm(LIFE_SECONDS)
    logging.getLogger("headway").addHandler(logging.NullHandler())  # we crash holders on purpose
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with suppress(EOFError, BrokenPipeError):
        work(pipe, *args)
