"""Where jobs stand in line, also while no worker has asked for their slots yet.

The board knows all jobs that wait, and the store everyone else: both together make
the line of a key.
"""

from __future__ import annotations

import time

from headway import clocks
from headway.errors import AtCapacity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from headway.governor import Governor
    from headway.jobs.board import Board
    from headway.jobs.orders import Order
    from headway.stores.base import Store
    from headway.stores.book import KeyState

# SQLite has no idea how few of the jobs come before another.
_IN_LINE = "from jobs indexed by jobs_in_line where state = 'queued' and unmet = 0"
_AHEAD = f"select count(*) {_IN_LINE} and rank <= ? and (rank < ? or id < ?) and instr(path, ?) > 0"
_WEIGHT = f"select coalesce(sum(weight), 0) {_IN_LINE} and instr(path, ?) > 0"


class Standing:
    """A job's place at the key that blocks it, and how long that may take."""

    __slots__ = ("estimated_wait_seconds", "key", "position", "reason")

    def __init__(
        self, key: str | None, reason: str, position: int, estimated_wait_seconds: float | None
    ) -> None:
        # No key: there is room, and it starts at once if a worker runs.
        self.key, self.reason, self.position = key, reason, position
        self.estimated_wait_seconds = estimated_wait_seconds


def standing(store: Store, board: Board, job: int) -> Standing | None:
    """Where a job stands; nothing if it does not wait for its slots."""

    def read(connection: sqlite3.Connection) -> Standing | None:
        row = connection.execute(
            "select rank, path, weight from jobs where id = ? and state = 'queued' and unmet = 0",
            (job,),
        ).fetchone()
        if row is None:
            return None
        rank, path, weight = row
        return _standing(
            store.survey(_keys(path)),
            weight,
            lambda key: _jobs_ahead(connection, key, rank, job) + store.ahead(key, rank),
        )

    return board.database.read(read)


def standings(store: Store, board: Board) -> dict[int, Standing]:
    """Where all jobs stand that wait for their slots, in one walk along the line."""
    ready = board.database.read(
        lambda connection: connection.execute(
            f"select id, rank, path, weight {_IN_LINE} order by rank, id"
        ).fetchall()
    )
    states = {state.key: state for state in store.survey(_all_keys(row[2] for row in ready))}
    others, ahead = _Others(store), dict.fromkeys(states, 0)
    found = {}
    for job, rank, path, weight in ready:
        keys = _keys(path)
        found[job] = _standing(
            [states[key] for key in keys],
            weight,
            lambda key, rank=rank: ahead[key] + others.ahead(key, rank),  # type: ignore[misc]
        )
        for key in keys:
            ahead[key] += 1
    return found


def is_full(
    connection: sqlite3.Connection, store: Store, path: Sequence[str], weight: int
) -> KeyState | None:
    """The key on which a new job would have to wait; nothing if there is room for it now."""
    for state in store.survey(path):
        if state.is_open:
            continue
        (jobs,) = connection.execute(_WEIGHT, (f"\n{state.key}\n",)).fetchone()
        if state.waiting or not state.admits(weight + jobs):
            return state
    return None


def refuse_if_full(connection: sqlite3.Connection, governor: Governor, order: Order) -> None:
    """Raise ``AtCapacity`` if a new job would have to wait."""
    full = is_full(connection, governor.turnstile.store, order.path, order.weight)
    if full is not None:
        from headway.views import BlockedBy  # noqa: PLC0415 - loaded when something is shown

        capacity = governor.capacity(full.key)
        blocked = BlockedBy(full.key, full.obstacle())
        state = blocked.in_words
        if blocked.reason == "full":
            state = f"{capacity.used} of {capacity.limit} in use"
        elif full.cooling_seconds is not None:
            state += f" until {clocks.time_of_day(time.time() + full.cooling_seconds)}"
        raise AtCapacity(capacity, f"no slot now on {full.key} ({state}); nothing was queued")


def _standing(states: Sequence[KeyState], weight: int, ahead_at: Callable[[str], int]) -> Standing:
    from headway import forecasts  # noqa: PLC0415 - loaded when something is shown

    for state in states:
        if state.is_open:
            continue
        ahead = ahead_at(state.key)
        if ahead or not state.admits(weight):
            wait = forecasts.estimated_wait(state, ahead + 1)
            return Standing(state.key, state.obstacle(), ahead + 1, wait)
    return Standing(None, "", 1, 0.0)


class _Others:
    """Those who wait and are no jobs."""

    def __init__(self, store: Store) -> None:
        self._ranks: dict[str, list[int]] = {}
        for key, rank in store.bystanders():
            self._ranks.setdefault(key, []).append(rank)
        for ranks in self._ranks.values():
            ranks.sort()

    def ahead(self, key: str, rank: int) -> int:
        from bisect import bisect_left  # noqa: PLC0415

        return bisect_left(self._ranks.get(key, []), rank)


def _jobs_ahead(connection: sqlite3.Connection, key: str, rank: int, job: int) -> int:
    return int(connection.execute(_AHEAD, (rank, rank, job, f"\n{key}\n")).fetchone()[0])


def _keys(path: str) -> list[str]:
    return path.strip("\n").split("\n")


def _all_keys(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(key for path in set(paths) for key in _keys(path)))
