"""Strikes at every point of a call where CPython looks for signals and for garbage."""

from __future__ import annotations

import dis
import os
import sys
from typing import TYPE_CHECKING, Any, Self

import headway

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_PACKAGE = os.path.dirname(headway.__file__) + os.sep


class Strike:
    """Does something at the n-th such point inside Headway, in the thread that enters it.

    CPython looks after a call, at the start of a function and at a jump back.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._left = act, 0
        self._before: dict[FrameType, str] = {}
        self.where: str | None = None

    def at(self, n: int) -> Strike:
        """Get ready to strike at the n-th point."""
        self._left, self.where = n, None
        return self

    def __enter__(self) -> Self:
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._before.clear()

    def _enter_frame(self, frame: FrameType, _: str, __: object) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "return":
            self._before.pop(frame, None)
        if event != "opcode":
            return self._step
        operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        before = self._before.get(frame, "")
        self._before[frame] = operation
        if before.startswith(("CALL", "RESUME")) or operation == "JUMP_BACKWARD":
            self._left -= 1
            if self._left == 0:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                sys.settrace(None)
                self._act()
        return self._step
