"""One call of a model: what it counts on, what its answer teaches, and how its body ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headway.llm.advice import REFUSALS, advice_of
from headway.llm.endings import watch
from headway.slot import Slot
from headway.telling import warn

if TYPE_CHECKING:
    from headway.governor import Governor
    from headway.llm.advice import Advice
    from headway.llm.endings import Ending
    from headway.llm.families import TruncatedStream
    from headway.slot import Lease

# What a body is doing: somebody waits for its next piece, or nobody does. Those that are idle
# may have been dropped; how often that was seen is counted on from here (``dropped.py``).
READING, IDLE = -1, 0

_GOOD = range(200, 300)


class Target:
    """A model of a provider, as one governor counts it; what every call of it asks for."""

    __slots__ = ("governor", "key", "provider_key", "slot")

    def __init__(self, governor: Governor, key: str, provider_key: str, slot: Slot) -> None:
        self.governor, self.key, self.provider_key = governor, key, provider_key
        self.slot = slot


class Call(Slot):
    """The slot of one request, from the queue to the end of its answer."""

    __slots__ = (
        "__weakref__",
        "_target",
        "_truncated_error",
        "advice",
        "ending",
        "is_refused",
        "lease",
        "pulse",
    )

    lease: Lease

    def __init__(
        self, target: Target, *, truncated_error: type[TruncatedStream] | None = None
    ) -> None:
        """If there is an error for it, that is raised when the answer turns out to be cut."""
        super().__init__(target.slot.turnstile, target.slot.request)
        self._target, self._truncated_error = target, truncated_error
        self.ending: Ending | None = None
        self.advice: Advice | None = None
        self.is_refused = False
        self.pulse = IDLE

    # -- the answer's headers ---------------------------------------------------------

    def learn(self, response: Any, path: str) -> None:
        """Take note of an answer; ``pass_on`` tells the others."""
        status, headers = response.status_code, response.headers
        try:
            if status in _GOOD:
                kind = headers.get("content-type", "")
                if "json" not in kind or "stream" in path:  # any other JSON is no stream
                    self.ending = watch(path, kind, headers.get("content-encoding", ""))
            elif status in REFUSALS:
                self.is_refused = True
                self.advice = advice_of(status, headers, time.time())
        except Exception as error:  # noqa: BLE001 - the answer is worth more
            self._say("could not take note of the answer", error)

    @property
    def takes_time_to_pass_on(self) -> bool:
        """Whether the store has to be asked; it may be busy."""
        return self.advice is not None or bool(self.lease.ticket.arrival)

    def pass_on(self) -> None:
        """Have everyone wait or go on, while this call still has its slot."""
        if self.advice is not None:
            self._cool_down(self.advice)
        elif self.is_refused:
            self.stand_back()
        else:
            try:
                self.turnstile.prove(self.lease.ticket)
            except Exception as error:  # noqa: BLE001 - the answer is worth more
                self._say("could not tell that it was answered", error)

    @property
    def may_be_first(self) -> bool:
        """Whether it has its slot and the others may wait for what it is answered."""
        return hasattr(self, "lease") and bool(self.lease.ticket.arrival)

    def stand_back(self) -> None:
        """Nothing was answered that the others could go by: let the next one try."""
        try:
            self.turnstile.stand_back(self.lease.ticket)
        except Exception as error:  # noqa: BLE001 - the answer, or the lack of one, is worth more
            self._say("could not let the next one try", error)

    def _cool_down(self, advice: Advice) -> None:
        target = self._target
        key = target.provider_key if advice.whole_provider else target.key
        try:
            target.governor.cool_down(key, advice.seconds, reason=advice.reason)
            self.turnstile.teller.rate_limited(self.lease.ticket, key, advice.seconds)
        except Exception as error:  # noqa: BLE001 - the answer is worth more
            self._say(f"could not pause {key} ({advice.reason})", error)

    # -- the answer's end ---------------------------------------------------------------

    def judge(self) -> None:
        """The body came to its end: was it the whole answer?"""
        if self.ending is None or self.ending.complete:
            return
        reason = "its stream ended without its last event"
        self._truncated(reason)
        if self._truncated_error is not None:
            raise self._truncated_error(self.lease.keys, self.lease.id, reason)

    def broke_off(self, error: BaseException) -> None:
        """The body failed; who cancelled it or pressed Ctrl-C knows that."""
        if isinstance(error, Exception) and not (self.ending and self.ending.complete):
            self._truncated(f"{type(error).__name__}: {error}".removesuffix(": "))

    def _truncated(self, reason: str) -> None:
        try:
            self.turnstile.teller.truncated(self.lease.ticket, reason)
        except Exception as error:  # noqa: BLE001 - the answer is worth more
            self._say(f"could not tell that it was cut ({reason})", error)

    def _say(self, what: str, error: Exception) -> None:
        warn(f"{self.lease.id} on {self._target.key}: {what}: {error}")
