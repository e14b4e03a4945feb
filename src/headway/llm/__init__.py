"""LLM calls: one line in a program, and every request to a provider has its slot."""

from __future__ import annotations

from headway.llm.families import TruncatedStream, require

require()

from headway.llm.retrying import Retry  # noqa: E402 - say first what is missing
from headway.llm.transports import AsyncHeadwayTransport, HeadwayTransport  # noqa: E402

__all__ = ["AsyncHeadwayTransport", "HeadwayTransport", "Retry", "TruncatedStream"]
