"""Sending a request again, for those who do not leave that to their client.

Done through stamina: what it waits for can be told by the answer (Retry-After), and whoever
uses it has its metrics and its switches for tests already.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway import durations
from headway.errors import ConfigError
from headway.tickets import check_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headway.llm.advice import Advice
    from headway.llm.families import Family

_MOST_ATTEMPTS = 100
_FIRST_WAIT_SECONDS = 0.5
# Those who were turned away together do not come back together.
_JITTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How many times to try, the first included, and how long to wait at most in between.

    A provider that asks for a longer wait is not asked again: the caller gets its answer.
    """

    attempts: int = 3
    max_wait: float | str = 60.0
    max_wait_seconds: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole("retry attempts", self.attempts, 1, _MOST_ATTEMPTS)
        longest = durations.positive_seconds(self.max_wait, name="retry max_wait")
        object.__setattr__(self, "max_wait_seconds", longest)

    @classmethod
    def of(cls, retry: object) -> Retry:
        """What ``retry=`` means: a number of attempts, or a ``Retry``."""
        if not isinstance(retry, Retry):
            retry = Retry(attempts=check_whole("retry", retry, 1, _MOST_ATTEMPTS))
        try:
            import stamina  # noqa: F401, PLC0415 - needed only by those who retry
        except ImportError:
            raise ConfigError(
                "retry= needs stamina; install it with: pip install 'headway[llm]'"
            ) from None
        return retry


class TurnedAway(Exception):  # noqa: N818 - it is what happened, not what went wrong
    """The provider asks to come later. The response was taken in, so that its slot is free."""

    def __init__(self, response: Any, advice: Advice | None) -> None:
        super().__init__(f"answered {response.status_code}")
        self.response = response
        self.seconds = None if advice is None else advice.seconds


def take_in(response: Any, family: Family) -> None:
    """Free the slot of a refusal that may be the last: its caller reads it as if it just came."""
    if response.is_closed:
        return
    body = response.stream
    try:
        raw = b"".join(body)
    finally:
        body.close()
    response.stream = family.stored(raw)


async def atake_in(response: Any, family: Family) -> None:
    """Like ``take_in``, on a loop."""
    if response.is_closed:
        return
    body = response.stream
    try:
        raw = b"".join([piece async for piece in body])
    finally:
        await body.aclose()
    response.stream = family.stored(raw)


def send(retry: Retry, family: Family, attempt: Callable[[], Any]) -> Any:
    """Call ``attempt`` until it succeeds; the last answer if it is always turned away."""
    import stamina  # noqa: PLC0415

    caller = stamina.RetryingCaller(**_pace(retry))
    try:
        return caller(_deciding(retry, family), attempt)
    except TurnedAway as last:
        return last.response


async def asend(retry: Retry, family: Family, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Like ``send``, for a coroutine function."""
    import stamina  # noqa: PLC0415

    caller = stamina.AsyncRetryingCaller(**_pace(retry))
    try:
        return await caller(_deciding(retry, family), attempt)
    except TurnedAway as last:
        return last.response


def _pace(retry: Retry) -> dict[str, Any]:
    return {
        "attempts": retry.attempts,
        "timeout": None,
        "wait_initial": _FIRST_WAIT_SECONDS,
        "wait_max": retry.max_wait_seconds,
        "wait_jitter": _JITTER_SECONDS,
    }


def _deciding(retry: Retry, family: Family) -> Callable[[Exception], bool | float]:
    def again(error: Exception) -> bool | float:
        """Whether to try again, or after how many seconds."""
        if not isinstance(error, TurnedAway):
            return isinstance(error, family.connection_errors)
        if error.seconds is None:
            return True
        if error.seconds > retry.max_wait_seconds:
            return False
        return error.seconds + random.uniform(0, _JITTER_SECONDS)  # noqa: S311 - no secret

    return again
