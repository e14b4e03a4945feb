"""Threads of Headway's own, which never take a signal that is meant for the program."""

from __future__ import annotations

import _thread

from headway.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def start(work: Callable[..., None], *args: object) -> None:
    """Run the work in a thread that does not keep the process from ending."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # a handler that raises may run in there, when all is blocked already
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _thread.start_new_thread(work, args)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
