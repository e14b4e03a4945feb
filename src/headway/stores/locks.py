"""Locks: the kernel's on a file, and one between threads that knows its owner."""

from __future__ import annotations

import _thread
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol, cast

    class OwnedLock(Protocol):
        """What Python's re-entrant lock offers; we never take it twice.

        Its ``with`` leaves no moment in which Ctrl-C finds it taken and not yet
        guarded, and its owner is known without a variable that could be wrong.
        """

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...  # noqa: FBT001, FBT002
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def __enter__(self) -> bool: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

else:

    def cast(_, value):  # noqa: ANN001, ANN201, D103 - typing.cast without loading typing
        return value


def taken(descriptor: int, kind: int) -> bool:
    """Take a lock on an open file, exclusive or shared, unless another is in the way."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_until_free(path: str) -> None:
    """Block as long as somebody has the file locked for itself."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    wait_and_close(descriptor)


def wait_and_close(descriptor: int) -> None:
    """Block as long as somebody has this open file locked for itself, and close it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def owned_lock() -> OwnedLock:
    """A new one."""
    return cast("OwnedLock", _thread.RLock())
