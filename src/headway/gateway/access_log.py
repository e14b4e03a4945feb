"""What became of each request, in a line: who, what, how long it waited, and how it ended."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.gateway.heads import RequestHead

_TOKENS_IN = re.compile(rb'"(?:input_tokens|prompt_tokens|promptTokenCount)"\s*:\s*(\d{1,15})')
_TOKENS_OUT = re.compile(
    rb'"(?:output_tokens|completion_tokens|candidatesTokenCount)"\s*:\s*(\d{1,15})'
)
_SECONDS_FROM_MS = 10_000


if TYPE_CHECKING:

    class Noted(Protocol):
        """What there is to tell of a request."""

        key: str
        began_at: float
        first_byte_at: float | None
        waited_seconds: float
        status: int
        sent_bytes: int
        outcome: str

        @property
        def head(self) -> RequestHead: ...
        @property
        def task(self) -> str | None: ...
        @property
        def glimpses(self) -> Sequence[bytes]: ...
        @property
        def was_kept_waiting(self) -> bool: ...


class TurnedAway:
    """A request that went no further than the door."""

    key, glimpses, sent_bytes = "", (), 0
    waited_seconds, was_kept_waiting = 0.0, False
    first_byte_at: float | None = None

    def __init__(self, head: RequestHead, task: str | None, status: int, why: str) -> None:
        self.head, self.task, self.status = head, task, status
        self.began_at, self.outcome = time.monotonic(), f"turned away: {why}"


def entry(noted: Noted) -> dict[str, object]:
    """All there is to tell; nothing of what was said, and no credentials."""
    head, began, first = noted.head, noted.began_at, noted.first_byte_at
    return {
        "at": round(time.time(), 3),
        "task": noted.task,
        "key": noted.key or None,
        "method": head.method.decode("latin-1") or None,
        # Some send keys as a query.
        "path": head.target.partition(b"?")[0].decode("latin-1") or None,
        "status": noted.status or None,
        "waited_ms": round(noted.waited_seconds * 1000),
        "kept_waiting": noted.was_kept_waiting,
        "first_byte_ms": None if first is None else round((first - began) * 1000),
        "total_ms": round((time.monotonic() - began) * 1000),
        "bytes": noted.sent_bytes,
        "tokens_in": _most(_TOKENS_IN, noted.glimpses),
        "tokens_out": _most(_TOKENS_OUT, noted.glimpses),
        "outcome": noted.outcome,
    }


def as_json(noted: Noted) -> str:
    """One JSON object."""
    return json.dumps(entry(noted))


# A row has these columns. Those of any length come last.
_COLUMNS = (
    ("TIME", 8),
    ("STATUS", 6),
    ("WAITED", 7),
    ("FIRST BYTE", 10),
    ("TOTAL", 7),
    ("BYTES", 8),
    ("TOKENS", 11),
    ("KEY", 26),
    ("TASK", 12),
    ("REQUEST", 32),
    ("OUTCOME", 7),
)


def _row(values: Sequence[object]) -> str:
    cells = [f"{value!s:{width}}" for (_, width), value in zip(_COLUMNS, values, strict=True)]
    return "  ".join(cells).rstrip()


HEADER = _row([name for name, _ in _COLUMNS])


def as_text(noted: Noted) -> str:
    """One line for people, in the columns of ``HEADER``."""
    told = entry(noted)
    tokens = f"{told['tokens_in'] or '?'}+{told['tokens_out']}" if told["tokens_out"] else "-"
    line = _row(
        (
            time.strftime("%H:%M:%S"),
            told["status"] or "-",
            f"{_shown(told['waited_ms'])}{'*' if told['kept_waiting'] else ''}",
            _shown(told["first_byte_ms"]),
            _shown(told["total_ms"]),
            told["bytes"],
            tokens,
            told["key"] or "-",
            told["task"] or "-",
            f"{told['method'] or '-'} {told['path'] or '-'}",
            told["outcome"],
        )
    )
    return "".join(char if char.isprintable() else "?" for char in line)


FORMATS: dict[str, Callable[[Noted], str]] = {"text": as_text, "json": as_json}


def _most(pattern: re.Pattern[bytes], glimpses: Sequence[bytes]) -> int | None:
    found = [int(number) for piece in glimpses for number in pattern.findall(piece)]
    return max(found, default=None)


def _shown(milliseconds: object) -> str:
    if not isinstance(milliseconds, int):
        return "-"
    if milliseconds < _SECONDS_FROM_MS:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s"
