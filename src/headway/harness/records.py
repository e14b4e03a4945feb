"""One JSON line of a program, read without trusting its shape."""

from __future__ import annotations

import json
from typing import Any

# Beyond it are no amounts of anything, but what breaks sums: infinities, and worse.
_MOST = 10**15


class Record:
    """A JSON object whose fields may be missing or of another kind than expected."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    @classmethod
    def parse(cls, line: bytes) -> Record | None:
        """The record on this line, if it is one."""
        if not line.lstrip().startswith(b"{"):
            return None
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return cls(fields) if isinstance(fields, dict) else None

    def value(self, *path: str) -> Any:
        """Whatever is there, or nothing."""
        found: Any = self._fields
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def text(self, *path: str) -> str:
        """The text there, or an empty one."""
        found = self.value(*path)
        if not isinstance(found, str):
            return ""
        try:
            found.encode()
        except UnicodeEncodeError:  # half a character: nobody could print it
            return found.encode("utf-8", "replace").decode()
        return found

    def number(self, *path: str) -> float | None:
        """The number there, if it is one."""
        found = self.value(*path)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return found if -_MOST <= found <= _MOST else None

    def count(self, *path: str) -> int:
        """The number there as a whole one, or 0."""
        return int(self.number(*path) or 0)

    def table(self, *path: str) -> Record:
        """The object there, or an empty one."""
        found = self.value(*path)
        return Record(found if isinstance(found, dict) else {})

    def tables(self, *path: str) -> list[Record]:
        """The objects in the list there."""
        found = self.value(*path)
        return (
            [Record(one) for one in found if isinstance(one, dict)]
            if isinstance(found, list)
            else []
        )
