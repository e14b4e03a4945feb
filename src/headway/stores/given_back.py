"""What an operation sets free, before it is handed on."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


class GivenBack:
    """What became free in an operation: room on keys, and loans that ended.

    At a key that was ``opened`` someone may go on who needs no room.
    """

    __slots__ = ("keys", "loans", "opened")

    def __init__(self, keys: Iterable[str] = (), *, opened: Iterable[str] = ()) -> None:
        self.opened = set(opened)
        self.keys = [*keys, *self.opened]
        self.loans: list[tuple[str, str]] = []

    def __iadd__(self, more: GivenBack) -> Self:
        self.keys += more.keys
        self.loans += more.loans
        self.opened |= more.opened
        return self

    def __add__(self, more: GivenBack) -> GivenBack:
        both = GivenBack()
        both += self
        both += more
        return both
