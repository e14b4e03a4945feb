"""Who runs the present line: a task of an event loop, or a thread."""

from __future__ import annotations

import _thread
import sys
from _weakref import ref

from headway.lean import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Caller: TypeAlias = int | ref[Task[Any]]

# The threads, each with its event loop, that are blocked until what runs in this context is done.
_blocked: ContextVar[tuple[tuple[int, AbstractEventLoop], ...]] = ContextVar(
    "headway_blocked", default=()
)


# Two functions of asyncio, once it is loaded: this is asked for every ticket.
_running_loop: Callable[[], AbstractEventLoop | None] | None = None
_current_task: Callable[[AbstractEventLoop], Task[Any] | None]


def present() -> Caller:
    """The task or thread that runs this very line, to be compared with another one."""
    find = _running_loop or _find_asyncio()
    loop = None if find is None else find()
    task = None if loop is None else _current_task(loop)
    return _thread.get_ident() if task is None else ref(task)


def running_loop() -> AbstractEventLoop | None:
    """The event loop that this thread is inside of, in a program that uses asyncio at all."""
    find = _running_loop or _find_asyncio()
    return None if find is None else find()


def _find_asyncio() -> Callable[[], AbstractEventLoop | None] | None:
    global _running_loop, _current_task  # noqa: PLW0603 - a cache, written once
    asyncio = sys.modules.get("asyncio")
    # Another thread may be in the middle of loading it: then nothing runs on a loop yet.
    if hasattr(asyncio, "_get_running_loop") and hasattr(asyncio, "current_task"):
        _current_task = asyncio.current_task  # type: ignore[union-attr]
        _running_loop = asyncio._get_running_loop  # type: ignore[union-attr]  # noqa: SLF001
    return _running_loop


def runs_on(caller: Caller | None, loop: AbstractEventLoop, thread: int | None = None) -> bool:
    """Whether a caller gets no further while a thread, which runs the loop, waits.

    Without a thread that is the present one.
    """
    if not isinstance(caller, ref):
        return caller == (_thread.get_ident() if thread is None else thread)
    task = caller()
    return task is not None and task.get_loop() is loop


def block_for_this_context(loop: AbstractEventLoop) -> None:
    """The present thread, which runs the loop, is going to wait for what this context does."""
    _blocked.set((*_blocked.get(), (_thread.get_ident(), loop)))


def waits_for_present(caller: Caller | None) -> bool:
    """Whether a caller gets no further until the present line's context is done."""
    return any(runs_on(caller, loop, thread) for thread, loop in _blocked.get())
