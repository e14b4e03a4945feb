"""SQLite without what Python's package adds: adapters for dates, which nobody here needs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3 as sqlite3  # noqa: PLC0414 - for others to import from here
else:
    import _sqlite3 as sqlite3  # noqa: F401
