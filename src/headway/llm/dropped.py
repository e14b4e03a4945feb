"""Streams that somebody stopped reading and never closed.

What was dropped is given back when Python collects it. The clients' streams refer to
themselves, so that takes the cyclic collector, which runs only while a program makes new
objects: in one that sits and waits, a forgotten stream would keep its slot for ever. So a
thread looks at the open streams now and then. For one that nobody has read for two looks it
has everything collected, once; if that did not find it, somebody still has it.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING
from weakref import ref

from headway import background
from headway.llm.calls import IDLE, LOOKED_FOR, SEEN_IDLE

if TYPE_CHECKING:
    from headway.llm.calls import Call

LOOK_SECONDS = 1.0

_open: set[ref[Call]] = set()
_lock = threading.Lock()
_is_watched = False


def look_after(call: Call) -> None:
    """From now on, until its body has ended."""
    _open.add(ref(call, _open.discard))
    if not _is_watched:
        _start()


def _start() -> None:
    global _is_watched  # noqa: PLW0603 - one thread for the process
    with _lock:
        if not _is_watched:
            background.start(_watch)
            _is_watched = True


def _watch() -> None:
    global _is_watched  # noqa: PLW0603
    while True:
        time.sleep(LOOK_SECONDS)
        if _look():
            continue
        _is_watched = False
        with _lock:  # whoever came since then has started another, or is seen here
            if _is_watched or not _open:
                return
            _is_watched = True


def _look() -> bool:
    """Collect if a stream stands still; false if none is open."""
    stands_still = False
    for known in [*_open]:
        call = known()
        if call is None or call.lease.ended:
            _open.discard(known)
        elif call.pulse == IDLE:
            call.pulse = SEEN_IDLE
        elif call.pulse == SEEN_IDLE:
            call.pulse, stands_still = LOOKED_FOR, True
    call = None  # it is not to be found in use here
    if stands_still:
        gc.collect()
    return bool(_open)


def _forget_after_fork() -> None:
    """The parent's streams are its own, and the thread stayed there."""
    global _is_watched, _lock
    _open.clear()
    _lock, _is_watched = threading.Lock(), False


os.register_at_fork(after_in_child=_forget_after_fork)
