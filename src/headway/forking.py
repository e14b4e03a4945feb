"""Fork safety: a forked child is a holder of its own and shares nothing with its parent.

Python copies everything into the child: locks that another thread held, open
files, and what SQLite believes about its own locks. So before a fork every store
comes to rest, and in the child everything starts anew.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableSet

    from headway.turnstile import Turnstile

_LOADED_LATE = ("threading", "logging", "headway.events", "headway.views", "headway.aio")

# Held while a store is being opened, so that no fork falls into the middle of it.
opening = _thread.RLock()
# Those that hold kernel locks are known until they are closed, whoever else forgot them.
_shared: set[Turnstile] = set()
_private: MutableSet[Turnstile] = set()
_at_rest: list[Turnstile] = []
_held_up: list[_thread.RLock] = []


def register(turnstile: Turnstile) -> None:
    """Have a turnstile survive forks, until ``unregister``."""
    if turnstile.store.shared:
        _shared.add(turnstile)
    else:
        _weakly_known().add(turnstile)


def _weakly_known() -> MutableSet[Turnstile]:
    global _private  # noqa: PLW0603 - made with the first one
    if _private.__class__ is set:
        from weakref import WeakSet  # noqa: PLC0415 - takes longer to load than a home to open

        _private = WeakSet()
    return _private


def unregister(turnstile: Turnstile) -> None:
    """The turnstile is closed."""
    _shared.discard(turnstile)
    _private.discard(turnstile)


def close_all() -> None:
    """Give everything back at the end of the process."""
    for turnstile in _all():
        try:
            turnstile.close()
        except Exception as error:  # noqa: BLE001 - the others have to be closed as well
            turnstile.teller.close_failed(error)


def _all() -> list[Turnstile]:
    return [*_shared, *_private]


def _before_fork() -> None:
    for name in _LOADED_LATE:
        if name in sys.modules:
            # Wait for another thread that is loading it: the child would wait for ever.
            __import__(name)
    opening.acquire()
    _held_up.append(opening)
    for turnstile in _all():
        _at_rest.append(turnstile)
        if not turnstile.store.come_to_rest():
            _at_rest.pop()


def _after_fork_in_parent() -> None:
    """Go on. Safe to repeat: a signal that came during the fork strikes on the way into this."""
    while _at_rest:
        _at_rest[-1].store.go_on()
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
    for turnstile in _all():
        turnstile.forget_after_fork()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
os.register_at_fork(after_in_parent=_after_fork_in_parent)
