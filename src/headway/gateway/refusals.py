"""Refusals of the gateway's own, which nobody is to mistake for the provider's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway.errors import AtCapacity, Cancelled, CoolingDown, QueueTimeout

if TYPE_CHECKING:
    from headway.errors import HeadwayError

UPSTREAM_FAILED = "headway_upstream_failed"
# Whoever is refused comes back after so long, if nothing else is known.
_RETRY_SECONDS = 5.0
_TOO_MANY, _UNAVAILABLE = 429, 503


class Refusal:
    """A status, what kind of refusal it is, and what to tell people."""

    __slots__ = ("key", "kind", "message", "retry_seconds", "status")

    def __init__(
        self, status: int, kind: str, message: str, key: str, retry_seconds: float | None = None
    ) -> None:
        self.status, self.kind, self.message = status, kind, message
        self.key, self.retry_seconds = key, retry_seconds

    @classmethod
    def of(cls, error: HeadwayError, key: str) -> Refusal:
        """What a failed wait means to a client."""
        status, kind, retry_seconds = _TOO_MANY, "headway_at_capacity", _RETRY_SECONDS
        if isinstance(error, QueueTimeout):
            kind = "headway_queue_timeout"
        elif isinstance(error, CoolingDown):
            kind, retry_seconds = "headway_cooling_down", max(1.0, error.until - time.time())
        elif isinstance(error, Cancelled):
            kind = "headway_cancelled"
        elif not isinstance(error, AtCapacity):
            status, kind = _UNAVAILABLE, "headway_unavailable"
        if isinstance(error, AtCapacity) and error.capacity.blocked_by is not None:
            key = error.capacity.blocked_by.key
        return cls(status, kind, f"headway: {error}", key, retry_seconds)

    def headers(self) -> dict[str, str]:
        """What tells programs."""
        told = {"content-type": "application/json", "x-headway-error": self.kind}
        if self.key:
            told["x-headway-key"] = self.key
        if self.retry_seconds is not None:
            told["retry-after"] = str(max(1, round(self.retry_seconds)))
        return told
