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
    from collections.abc import Callable, Iterable
    from typing import Protocol

    class Survivor(Protocol):
        """What goes on after a fork in the parent, and starts anew in the child."""

        def come_to_rest(self) -> bool:
            """Have nothing under way until ``go_on``; false if that takes long."""

        def go_on(self) -> None:
            """In the parent; also when coming to rest was interrupted, and perhaps twice."""

        def forget_after_fork(self) -> None:
            """In the child: nothing of the parent's is ours."""


# What using a store loads when it is first needed, and what has to be there for that.
_LOADED_LATE = (
    ("headway.events", None),
    ("headway.views", None),
    ("headway.regulating", None),
    ("headway.aio", "asyncio"),
)

# Modules that these load and that hold a lock of theirs during a fork. Python asks who is loaded
# in the midst of the hooks before a fork only to release it.
_LOCKED_BY_HOOKS = (("logging", "_lock"), ("concurrent.futures.thread", "_global_shutdown_lock"))

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


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Run every step, also after one that fails; the first error is raised at the end."""
    failed: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed = failed or error
    if failed is not None:
        raise failed


def _before_fork() -> None:
    if survivors() and _thread._count():  # noqa: SLF001 - there are other threads
        _load_all()
    opening.acquire()
    _held_up.append(opening)
    for survivor in survivors():
        _at_rest.append(survivor)
        if not survivor.come_to_rest():
            _at_rest.pop()


def _load_all() -> None:
    """Load what another thread might be loading at the moment of the fork.

    The child would have it half loaded, and wait for ever for that thread. To wait only for
    a load that has begun is not enough: another one may begin at any time.
    """
    new = [(name, lock) for name, lock in _LOCKED_BY_HOOKS if name not in sys.modules]
    for name, needed in _LOADED_LATE:
        if needed is None or needed in sys.modules:
            try:
                __import__(name)
            except Exception:  # noqa: BLE001, S112 - whoever needs it will see why
                continue
    for name, lock in new:
        if name in sys.modules:
            getattr(sys.modules[name], lock).acquire()


def _after_fork_in_parent() -> None:
    """Go on. Safe to repeat: a signal that came during the fork strikes on the way into this."""
    failed: Exception | None = None
    while _at_rest:
        try:
            _at_rest[-1].go_on()
        except Exception as error:  # noqa: BLE001 - raised below: the others go on
            failed = failed or error
        _at_rest.pop()
    if _held_up:
        opening.release()
        _held_up.clear()
    if failed is not None:
        raise failed


def _after_fork_in_child() -> None:
    global opening  # noqa: PLW0603 - the parent's lock
    opening = _thread.RLock()
    _at_rest.clear()
    _held_up.clear()
    modules = [sys.modules.get(f"headway.{name}") for name in ("aio", "current_leases", "governor")]
    run_all(
        [
            *[module.forget_after_fork for module in modules if module is not None],
            *[survivor.forget_after_fork for survivor in survivors()],
        ]
    )


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
os.register_at_fork(after_in_parent=_after_fork_in_parent)
