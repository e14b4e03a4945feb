"""The store of ``HEADWAY=off``: grants every request at once, in memory."""

from __future__ import annotations

from headway.limits import UNLIMITED, Terms, lines_from_code
from headway.stores.memory import MemoryStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class OffStore(MemoryStore):
    """A memory store in which no key has a limit, whatever is set, paused or refused."""

    name = "HEADWAY=off"

    def __init__(self) -> None:
        super().__init__()
        # Every key is unlimited by default but for this one.
        self._start(Terms(lines_from_code({"agent": UNLIMITED})))

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        """Accept new limits and pauses without putting them in force."""
        del terms, expected, also
        return True

    def cool_down(self, key: str, seconds: float | None, reason: str, *, jitter: float) -> float:
        """Accept a cool-down that ends at once: a provider's refusal delays nobody."""
        del key, seconds, reason, jitter
        return 0.0
