"""Leaving a provider alone: cool-downs, which end with one probe, and budgets of requests.

Both follow a clock. Nothing changes by itself: a cool-down is over, and a request no
longer counts, when somebody has tended to the key. Whoever asks for a key does that
first, and so does whoever waits there when the time has come.
"""

from __future__ import annotations

from headway.limits import UNCAPPED
from headway.stores.book import Cooldown
from headway.stores.given_back import GivenBack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.stores.admission import Admission
    from headway.stores.book import Book, KeyState
    from headway.tickets import Ticket

# Where the provider does not say for how long: so long at first, then twice as long for
# each probe that it refuses.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
# A cool-down lasts a little longer than asked for, by up to a tenth, so that programs on
# many machines do not come back at the same moment.
JITTER_SHARE, MAX_JITTER_SECONDS = 0.1, 5.0


class Pacing:
    """The timed operations on a book."""

    def __init__(self, book: Book, admission: Admission) -> None:
        self._book, self._admission = book, admission

    def tend(self, keys: Iterable[str]) -> bool:
        """Do at these keys what the time has come for, and let in whom that lets in."""
        due = [key for key in keys if self._tend(self._book.key(key))]
        if due:
            self._admission.serve(due)
        return bool(due)

    def _tend(self, state: KeyState) -> bool:
        before, cooldown = state.spent, state.cooldown
        if state.budget < UNCAPPED and state.spent:
            self._book.forgive(state)
        if cooldown is None or cooldown.over or not cooldown.has_passed(self._book.now):
            return state.spent < before
        cooldown.over = True
        return True

    def cool_down(self, key: str, seconds: float | None, reason: str, *, jitter: float) -> float:
        """Leave a key alone from now on, for everyone; how many seconds that will last.

        Of two who ask for it the one counts who asks for longer. ``jitter`` is from 0 to 1.
        """
        state, now = self._book.key(key), self._book.now
        self._tend(state)
        present = state.cooldown
        wanted = _usual_seconds(present) if seconds is None else max(0.0, seconds)
        until = now + wanted + jitter * min(wanted * JITTER_SHARE, MAX_JITTER_SECONDS)
        if present is not None and not present.over and (seconds is None or present.until >= until):
            return present.until - now
        state.cooldown = Cooldown(now, until, reason)
        given_back = self._admission.call_back(key, list(self._book.parked()))
        given_back += self._admission.send_hopeless_away(key)
        self._book.stir(key)
        self._admission.hand_on(given_back)
        return until - now

    def prove(self, lease: Ticket) -> None:
        """The provider has answered this lease: if it was the probe of a key, let everyone in."""
        self._admission.prove(lease)

    def stand_back(self, lease: Ticket) -> None:
        """This lease will have no answer: if it was the probe of a key, the next one tries."""
        self._admission.stand_back(lease)

    def end_cool_down(self, key: str) -> bool:
        """Let everyone in again at once; false if the key was not left alone."""
        state = self._book.key(key)
        if state.cooldown is None:
            return False
        state.cooldown = None
        self._admission.hand_on(GivenBack(opened=[key]))
        return True


def _usual_seconds(present: Cooldown | None) -> float:
    if present is None:
        return FIRST_SECONDS
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, 2 * (present.until - present.since)))
