"""Waiting until a new database is complete.

Who makes ``slots.db`` anew lists in it all live holders that may hold
something. Until each of them has said so, or is dead, it grants nothing, and
what it shows is not the whole truth.
"""

from __future__ import annotations

import time

from headway import journal
from headway.errors import StoreUnavailable
from headway.stores.processes import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from sqlite3 import Connection
    from typing import TypeVar

    from headway.stores.home import Home
    from headway.stores.reader import Reader

    T = TypeVar("T")

_RETRY_SECONDS = 0.005


class Unsettled(Exception):  # noqa: N818 - handled inside the store
    """The database is new, and not everyone alive has said what they hold."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(pids)
        self.pids = pids

    def __str__(self) -> str:
        who = ", ".join(map(describe, self.pids))
        return f"it was made anew, and {who} has not said yet what it holds"


class Settling:
    """Gives the others time to say what they hold; how long, is bounded."""

    def __init__(self, home: Home, reader: Reader, *, timeout_seconds: float) -> None:
        self._home, self._reader, self._timeout_seconds = home, reader, timeout_seconds
        # The database that was looked at though it is not complete.
        self._given_up = -1

    def check(self, connection: Connection) -> None:
        """Raise ``Unsettled`` if nothing may be granted yet; the caller is under the guard."""
        if not self._home.settled:
            awaited = self._home.awaited(connection)
            if awaited:
                raise self._unsettled(awaited)

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Try until it is not ``Unsettled`` any more, or ``StoreUnavailable``."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return attempt()
            except Unsettled as unsettled:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(self._home.database.path, str(unsettled)) from None
            time.sleep(_RETRY_SECONDS)

    def wait_to_look(self) -> None:
        """Before a look: wait for those who would be missing, or say that they are.

        Only once in a database: whoever looks again and again is not held up each time.
        """
        home = self._home
        if home.settled or home.guard.is_mine() or self._given_up == home.guard.generation:
            return
        deadline = time.monotonic() + self._timeout_seconds
        while awaited := self._reader.awaited():
            if time.monotonic() > deadline:
                self._given_up = home.guard.generation
                self._warn(self._unsettled(awaited))
                return
            time.sleep(_RETRY_SECONDS)

    def _unsettled(self, awaited: Iterable[str]) -> Unsettled:
        return Unsettled([self._home.live.describe(holder).pid for holder in awaited])

    def _warn(self, unsettled: Unsettled) -> None:
        journal.log().warning("%s: %s; it is not shown", self._home.database.path, unsettled)
