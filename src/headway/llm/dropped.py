"""Streams that somebody stopped reading and never closed.

What was dropped is given back when Python collects it. The clients' streams refer to
themselves, so that takes the cyclic collector, which runs only while a program makes new
objects: in one that sits and waits, a forgotten stream would keep its slot for ever. So a
thread looks at the open streams now and then, and if one is not being read it has everything
collected: after two looks, four, eight and so on, because somebody may still have it, and an
async one takes several rounds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

from headway import background
from headway.errors import DeadlockRefused
from headway.llm.calls import READING

if TYPE_CHECKING:
    from headway.llm.calls import Call
    from headway.slot import Lease, Slot

LOOK_SECONDS = 1.0
# How long what was dropped on a loop may take to be closed there.
_PAUSES_OF_THREADS_SECONDS = (0, 0.01, 0.1)
_PAUSES_SECONDS = (0, 0, 0, 0, 0.01, 0.03, 0.1, 0.3)

_open: set[ref[Call]] = set()
_lock = threading.Lock()
_is_watched = False


def look_after(call: Call) -> None:
    """From now on, until its body has ended."""
    _open.add(ref(call, _open.discard))
    if not _is_watched:
        with suppress(RuntimeError):  # no more threads: an answer is here, and the next one tries
            _start()


def enter(slot: Slot) -> Lease:
    """Take a slot that only the caller's own streams may keep from it: some may be dropped.

    Or handed to a thread that is about to read them.
    """
    for pause_seconds in _PAUSES_OF_THREADS_SECONDS:
        try:
            return slot.__enter__()
        except DeadlockRefused:
            gc.collect()
            time.sleep(pause_seconds)
    return slot.__enter__()


async def aenter(slot: Slot) -> Lease:
    """The same on a loop, which closes async generators one by one, and their connections."""
    for pause_seconds in _PAUSES_SECONDS:
        try:
            return await slot.__aenter__()
        except DeadlockRefused:
            gc.collect()
            await asyncio.sleep(pause_seconds)
    return await slot.__aenter__()


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
    is_time = False
    for known in [*_open]:
        call = known()
        if call is None or call.lease.ended:
            _open.discard(known)
        elif call.pulse != READING:
            call.pulse = looks = call.pulse + 1
            is_time = is_time or (looks > 1 and looks & (looks - 1) == 0)
    call = None  # it is not to be found in use here
    if is_time:
        gc.collect()
    return bool(_open)


def _forget_after_fork() -> None:
    """The parent's streams are its own, and the thread stayed there."""
    global _is_watched, _lock
    _open.clear()
    _lock, _is_watched = threading.Lock(), False


os.register_at_fork(after_in_child=_forget_after_fork)
