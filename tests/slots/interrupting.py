"""Strikes at every point of a call where CPython looks for signals and for garbage."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Self

import headway

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_PACKAGE = os.path.dirname(headway.__file__) + os.sep


class Strike:
    """Does something at the n-th such point inside Headway, in the thread that enters it.

    The points are the start of each function and the return of each call of a
    built-in one. What is raised there appears where an interrupt would.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._left = act, 0
        self.where: str | None = None

    def at(self, n: int) -> Self:
        """Get ready to strike at the n-th point."""
        self._left, self.where = n, None
        return self

    def __enter__(self) -> Self:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(_PACKAGE):
            return
        if code.co_flags & inspect.CO_GENERATOR:  # being closed looks like being called
            return
        self._left -= 1
        if self._left == 0:
            self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}, at its {event}"
            sys.setprofile(None)
            self._act()
