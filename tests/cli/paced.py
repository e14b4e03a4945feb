"""Scenes with cool-downs and budgets of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cli.kit import until

if TYPE_CHECKING:
    from tests.cli.kit import Shell

    from headway import Governor

WHY = "429, retry-after 300 s"
MODEL = "llm/openai/gpt-5"


def spend(governor: Governor, key: str, requests: int, *, of: int) -> None:
    """Give a key a budget and use so many requests of it."""
    governor.set_limit(key, {"requests_per_minute": of})
    for _ in range(requests):
        with governor.slot(key):
            pass


def cool_for_a_moment(shell: Shell, governor: Governor, key: str) -> None:
    """A cool-down that is over when this returns, and nobody has tried the key since."""
    governor.cool_down(key, 0.01, reason="529")
    until(lambda: of(shell, key)["probing"], "the end of a cool-down")


def of(shell: Shell, key: str) -> dict[str, Any]:
    """The row of a key in the status."""
    row: dict[str, Any] = next(x for x in shell.status()["limits"] if x["key"] == key)
    return row


def line(text: str, beginning: str) -> str:
    """The line that begins with a word, with single blanks."""
    found = next(one for one in text.splitlines() if one.split()[:1] == [beginning])
    return " ".join(found.split())
