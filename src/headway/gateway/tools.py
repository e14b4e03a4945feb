"""How each agent is told to go through the gateway: a variable, or a line of its settings."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable


def _claude(base: str) -> str:
    return _export("ANTHROPIC_BASE_URL", f"{base}/anthropic")


def _gemini(base: str) -> str:
    return _export("GOOGLE_GEMINI_BASE_URL", f"{base}/gemini")


def _opencode(base: str) -> str:
    """Its settings can come from a variable, on top of those in its files."""
    providers = {
        "anthropic": {"options": {"baseURL": f"{base}/anthropic/v1"}},
        "google": {"options": {"baseURL": f"{base}/gemini/v1beta"}},
        "openai": {"options": {"baseURL": f"{base}/openai/v1"}},
    }
    return _export("OPENCODE_CONFIG_CONTENT", json.dumps({"provider": providers}))


def _codex(base: str) -> str:
    """It reads no variable."""
    return f'openai_base_url = "{base}/openai/v1"'


def _export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


_TOOLS: dict[str, Callable[[str], str]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
NAMES = tuple(_TOOLS)
# Where a line goes that is not for a shell.
PLACES = {"codex": "at the top of ~/.codex/config.toml, or after codex -c"}


def address(host: str, port: int, token: str | None = None) -> str:
    """The base URL of a gateway, with its token if it wants one."""
    place = f"[{host}]" if ":" in host else host
    return f"http://{place}:{port}" + (f"/k/{quote(token, safe='')}" if token else "")


def line_for(tool: str, base: str, task: str | None = None) -> str:
    """What to tell a tool."""
    return _TOOLS[tool](base if not task else f"{base}/t/{quote(task, safe='')}")
