"""Fork safety: a forked child is a holder of its own and shares nothing with its parent.

Python copies everything into the child: locks that another thread held, open
files, and what SQLite believes about its own locks. So before a fork every store
and every board comes to rest, and in the child everything starts anew.
"""

from __future__ import annotations

import _thread
import os
import sys
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Survivor(Protocol):
        """What goes on after a fork in the parent, and starts anew in the child."""

        def come_to_rest(self) -> bool:
            """Have nothing under way until ``go_on``; false if that takes long."""

        def go_on(self) -> None:
            """In the parent; also when coming to rest was interrupted, and perhaps twice."""

        def forget_after_fork(self) -> None:
            """In the child: nothing of the parent's is ours."""


_LOADED_LATE = (
    "threading",
    "logging",
    "headway.events",
    "headway.views",
    "headway.aio",
    "headway.regulating",
)

# Held while a store is being opened, so that no fork falls into the middle of it.
opening = _thread.RLock()
# Those that hold kernel locks are known until they are closed, whoever else forgot them.
_kept: set[Survivor] = set()
# A WeakSet in two lines: its module takes longer to load than a home to open.
_others: set[ref[Survivor]] = set()
_at_rest: list[Survivor] = []
_held_up: list[_thread.RLock] = []


def register(survivor: Survivor, *, kept: bool) -> None:
    """Have it survive forks: until ``unregister`` if kept, else as long as somebody knows it."""
    if kept:
        _kept.add(survivor)
    else:
        _others.add(ref(survivor, _others.discard))


def unregister(survivor: Survivor) -> None:
    """It is closed."""
    _kept.discard(survivor)
    _others.discard(ref(survivor))


def survivors() -> list[Survivor]:
    """All that are registered."""
    found = [known() for known in [*_others]]
    return [*_kept, *(survivor for survivor in found if survivor is not None)]


def _before_fork() -> None:
    for name in _LOADED_LATE:
        if name in sys.modules:
            # Wait for another thread that is loading it: the child would wait for ever.
            __import__(name)
    opening.acquire()
    _held_up.append(opening)
    for survivor in survivors():
        _at_rest.append(survivor)
        if not survivor.come_to_rest():
            _at_rest.pop()


def _after_fork_in_parent() -> None:
    """Go on. Safe to repeat: a signal that came during the fork strikes on the way into this."""
    while _at_rest:
        _at_rest[-1].go_on()
        _at_rest.pop()
    if _held_up:
        opening.release()
        _held_up.clear()


def _after_fork_in_child() -> None:
    global opening  # noqa: PLW0603 - the parent's lock
    opening = _thread.RLock()
    _at_rest.clear()
    _held_up.clear()
    for name in ("headway.aio", "headway.slot", "headway.governor"):
        module = sys.modules.get(name)
        if module is not None:
            module.forget_after_fork()
    for survivor in survivors():
        survivor.forget_after_fork()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
os.register_at_fork(after_in_parent=_after_fork_in_parent)
