"""How long a wait may still take: by how long slots of a key were held, and are held by now.

What a store keeps of the past is one usual length. For commands that ran under ``headway run`` the
home has each one (``finished.py``), so that a program that takes long is not taken for another, and
one that has run for long is expected to go on as others did that had run for as long.
"""

from __future__ import annotations

import time
from heapq import heapify, heapreplace

from headway.finished import program_of
from headway.limits import UNCAPPED
from headway.stores.book import WINDOW_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from headway import finished
    from headway.stores.base import Holder
    from headway.stores.book import KeyState
    from headway.tickets import Ticket

    # The lengths of past holds of a program on a key; of any program, without one.
    Holds: TypeAlias = Callable[[str], Sequence[float]]

# A key with more slots is estimated by its usual hold alone.
_MANY_SLOTS = 10_000
# With fewer past holds than this a range is told, not a number.
FEW = 8
_VERY_FEW = 3
# Where no other is known to have run for as long: so much more of that is still to come.
_OVERDUE = 0.2


class Forecast:
    """The moments, in seconds from now, at which those who wait at one key may be let in."""

    def __init__(
        self,
        slots: int,
        running: Iterable[tuple[float, int, str]],
        *,
        usual_seconds: float | None,
        holds: Holds,
        quantile: float = 0.5,
    ) -> None:
        """``running`` are those who hold the key: for how long, how many slots, which program."""
        self._usual, self._holds, self._quantile = usual_seconds, holds, quantile
        free = [self._rest(program, age) for age, weight, program in running for _ in range(weight)]
        # Of more than there are slots, the last ones to end make room for nobody.
        self._free_at = sorted(free)[-slots:] + [0.0] * (slots - len(free))
        heapify(self._free_at)

    def next_start(self, program: str) -> float:
        """When the next in line may start; the one after it waits for its end as well."""
        start = self._free_at[0]
        heapreplace(self._free_at, start + self._length(program))
        return start

    def _length(self, program: str) -> float:
        found = self._known(program)
        return _quantile(found, self._quantile) if found else self._usual or 0.0

    def _rest(self, program: str, age: float) -> float:
        found = self._known(program)
        longer = [length - age for length in found if length > age]
        if longer:
            return _quantile(longer, self._quantile)
        usual = _quantile(found, self._quantile) if found else self._usual or 0.0
        return max(usual - age, _OVERDUE * max(age, usual))

    def _known(self, program: str) -> Sequence[float]:
        return self._holds(program) or self._holds("")


class LineForecast:
    """The estimates of those who wait at one key, in their order."""

    def __init__(
        self,
        state: KeyState,
        leases: Iterable[Ticket],
        holders: dict[str, Holder],
        known: finished.Holds | None,
    ) -> None:
        self._state, self._holders, self._place = state, holders, 0
        if known is not None:
            known.refresh()
        self._few = spread(len(known.of(state.key, ""))) if known is not None else None
        now = time.time()
        running = [
            (max(0.0, now - lease.since), lease.weight, self._program(lease))
            for lease in leases
            if state.key in lease.path and state.key not in lease.borrowed
        ]
        parts = (0.5, *(self._few[:2] if self._few else ()))
        self._forecasts = [
            Forecast(
                state.cap,
                running,
                usual_seconds=state.hold_seconds,
                holds=lambda program: known.of(state.key, program) if known else (),
                quantile=part,
            )
            for part in (parts if self._is_by_holds(known) else ())
        ]

    def _is_by_holds(self, known: finished.Holds | None) -> bool:
        """Whether the end of others lets the next in, and how long they take is known."""
        state = self._state
        is_known = state.hold_seconds is not None or (known and known.of(state.key, ""))
        is_timed = state.paused or state.budget_seconds is not None
        return bool(is_known) and not is_timed and state.cap <= _MANY_SLOTS

    def next(self, ticket: Ticket) -> tuple[float | None, tuple[float, float] | None]:
        """How long the next in line has to wait, and between what, if that is not sure."""
        self._place += 1
        if not self._forecasts:
            return estimated_wait(self._state, self._place), None
        state = self._state
        closed = max(state.cooling_seconds or 0.0, state.settling_seconds or 0.0)
        program = self._program(ticket)
        seconds, *ends = [closed + one.next_start(program) for one in self._forecasts]
        if not ends or self._few is None:
            return seconds, None
        factor = self._few[2]
        return seconds, (ends[0] / factor, ends[1] * factor)

    def _program(self, ticket: Ticket) -> str:
        holder = self._holders.get(ticket.holder)
        return "" if holder is None else program_of(holder.command)


def estimated_wait(state: KeyState, position: int) -> float | None:
    """How long a place in this line usually takes; unknown before anything was released."""
    if state.paused:
        return None
    if state.budget_seconds is not None:
        return state.budget_seconds + (position - 1) * WINDOW_SECONDS / state.budget
    closed = max(state.cooling_seconds or 0.0, state.settling_seconds or 0.0)
    if state.hold_seconds is None:
        return closed or None
    return closed + state.hold_seconds * position / min(state.cap, UNCAPPED)


def spread(count: int) -> tuple[float, float, float] | None:
    """The quantiles between which a wait may end if so few holds are known, and a factor for them.

    None if there are enough of them for one number.
    """
    if count >= FEW or count == 0:
        return None
    return (0.5, 0.5, 2.0) if count < _VERY_FEW else (0.1, 0.9, 1.0)


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
