"""Stand-in."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headway.keys import llm_key

if TYPE_CHECKING:
    from collections.abc import Mapping


def provider_of(host: str, path: str, known: Mapping[str, str]) -> str:
    """The provider."""
    del path
    return known.get(host, {"api.openai.com": "openai"}.get(host, host))


def model_of(path: str, content_type: str, body: bytes) -> str | None:
    """The model."""
    found = re.search(r"/models/([^/:]+)", path)
    if found:
        return found[1]
    if "json" not in content_type:
        return None
    try:
        model = json.loads(body)["model"]
    except (ValueError, KeyError, TypeError):
        return None
    return model if isinstance(model, str) else None


def key_of(provider: str, model: str | None) -> str:
    """The key."""
    return llm_key(provider, model)
