"""What became of each request, in a line: who, what, how long it waited, and how it ended."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.gateway.exchange import Exchange

_TOKENS_IN = re.compile(rb'"(?:input_tokens|prompt_tokens|promptTokenCount)"\s*:\s*(\d+)')
_TOKENS_OUT = re.compile(rb'"(?:output_tokens|completion_tokens|candidatesTokenCount)"\s*:\s*(\d+)')


def entry(exchange: Exchange) -> dict[str, object]:
    """All there is to tell; nothing of what was said, and no credentials."""
    head, began = exchange.request.head, exchange.began_at
    first = exchange.first_byte_at
    return {
        "at": round(time.time(), 3),
        "task": exchange.route.task,
        "key": exchange.key or None,
        "method": head.method.decode("latin-1"),
        "path": head.target.partition(b"?")[0].decode("latin-1"),  # some send keys as a query
        "status": exchange.status or None,
        "waited_ms": round(exchange.waited_seconds * 1000),
        "first_byte_ms": None if first is None else round((first - began) * 1000),
        "total_ms": round((time.monotonic() - began) * 1000),
        "bytes": exchange.sent_bytes,
        "tokens_in": _most(_TOKENS_IN, exchange.glimpses),
        "tokens_out": _most(_TOKENS_OUT, exchange.glimpses),
        "outcome": exchange.outcome,
    }


def as_json(exchange: Exchange) -> str:
    """One JSON object."""
    return json.dumps(entry(exchange))


def as_text(exchange: Exchange) -> str:
    """One line for people."""
    told = entry(exchange)
    tokens = f" {told['tokens_in'] or '?'}+{told['tokens_out'] or '?'} tokens"
    return (
        f"{time.strftime('%H:%M:%S')} {told['status'] or '-'} {told['key'] or '-'}"
        f" {told['task'] or '-'} {told['method']} {told['path']}"
        f" waited {told['waited_ms']} ms, first byte {_shown(told['first_byte_ms'])},"
        f" total {told['total_ms']} ms, {told['bytes']} bytes{tokens if told['tokens_out'] else ''}"
        f" {told['outcome']}"
    )


FORMATS: dict[str, Callable[[Exchange], str]] = {"text": as_text, "json": as_json}


def _most(pattern: re.Pattern[bytes], glimpses: list[bytes]) -> int | None:
    found = [int(number) for piece in glimpses for number in pattern.findall(piece)]
    return max(found, default=None)


def _shown(milliseconds: object) -> str:
    return "-" if milliseconds is None else f"{milliseconds} ms"
