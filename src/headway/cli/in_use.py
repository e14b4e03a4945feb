"""Which keys are in use, for commands that do not open the home."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_KEYS_IN_USE = "select key from keys where used > 0 or waiting > 0"


def look_up(look: Callable[[str], Iterable[tuple[str]]]) -> set[str]:
    """The keys that somebody holds or waits for."""
    return {key for (key,) in look(_KEYS_IN_USE)}


def peek(home: str) -> set[str]:
    """The same, of a home; none if its database cannot be read as it is."""
    address = f"{(Path(home) / 'slots.db').as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return look_up(connection.execute)
    except sqlite3.Error:
        return set()
