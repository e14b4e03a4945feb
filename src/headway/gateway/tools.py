"""How each agent is told to go through the gateway: variables, or lines of its settings."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable


def _claude(base: str) -> list[str]:
    return _export("ANTHROPIC_BASE_URL", f"{base}/anthropic")


def _gemini(base: str) -> list[str]:
    return _export("GOOGLE_GEMINI_BASE_URL", f"{base}/gemini")


def _opencode(base: str) -> list[str]:
    """Its settings can come from a variable, on top of those in its files."""
    providers = {
        "anthropic": {"options": {"baseURL": f"{base}/anthropic/v1"}},
        "google": {"options": {"baseURL": f"{base}/gemini/v1beta"}},
        "openai": {"options": {"baseURL": f"{base}/openai/v1"}},
    }
    return _export("OPENCODE_CONFIG_CONTENT", json.dumps({"provider": providers}))


def _codex(base: str) -> list[str]:
    """It reads no variable, and would try websockets with a provider that it knows by name."""
    return [
        'model_provider = "headway"',
        "[model_providers.headway]",
        'name = "OpenAI, through Headway"',
        f'base_url = "{base}/openai/v1"',
        'wire_api = "responses"',
        'env_key = "OPENAI_API_KEY"',
    ]


def _export(name: str, value: str) -> list[str]:
    return [f"export {name}={shlex.quote(value)}"]


_TOOLS: dict[str, Callable[[str], list[str]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
NAMES = tuple(_TOOLS)
# Lines for a file, not for a shell.
FILES = {"codex": "~/.codex/config.toml"}


def lines_for(tool: str, base: str, task: str | None = None) -> list[str]:
    """What to tell a tool, line by line."""
    return _TOOLS[tool](base if task is None else f"{base}/t/{quote(task, safe='')}")
