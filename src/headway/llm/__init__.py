"""LLM calls: one line in a program, and every request to a provider has its slot."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.llm.families import TruncatedStream
    from headway.llm.retrying import Retry
    from headway.llm.transports import AsyncHeadwayTransport, HeadwayTransport

__all__ = ["AsyncHeadwayTransport", "HeadwayTransport", "Retry", "TruncatedStream"]

_HOMES = {
    "AsyncHeadwayTransport": "transports",
    "HeadwayTransport": "transports",
    "Retry": "retrying",
    "TruncatedStream": "families",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: the gateway has no use for a client's package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headway.llm import families  # noqa: PLC0415

    families.require()
    return getattr(import_module(f"headway.llm.{_HOMES[name]}"), name)
