"""The upstreams of the gateway as people write them: a name and a base URL, or a variable."""

from __future__ import annotations

from headway import base_urls, keys
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Paths of the gateway's own.
_TAKEN = ("t", "k", "healthz")


def checked_upstreams(value: object, name: str) -> dict[str, str]:
    """The base URLs by their names; all problems are told together."""
    return _checked(value, name, _base_url, 'mine = "http://localhost:8000"')


def checked_credentials(value: object, name: str) -> dict[str, str]:
    """The variables that keep a secret, by the names of the upstreams."""
    return _checked(value, name, _variable, 'anthropic = "ANTHROPIC_API_KEY"')


def _checked(
    value: object, name: str, check: Callable[[object], str | None], example: str
) -> dict[str, str]:
    if isinstance(value, str):  # a variable has no tables, but blanks between ``name=value``
        value = {each: text for each, _, text in (p.partition("=") for p in value.split())}
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{name} must be a table: {example}")
    problems, found = [], {}
    for upstream, text in value.items():
        checked = check(text)
        if upstream in _TAKEN or not keys.is_plain(upstream):
            problems.append(f"{name}: {upstream!r} must be a name without blanks and slashes")
        elif checked is None:
            # Not shown: people mistype secrets as well.
            problems.append(f"{name}: {upstream} is wrong; write it like {example}")
        else:
            found[upstream] = checked
    if problems:
        raise ConfigError(*problems)
    return found


def _base_url(text: object) -> str | None:
    if not isinstance(text, str) or "://" not in text or base_urls.plain(text) is None:
        return None
    return text.rstrip("/")


def _variable(text: object) -> str | None:
    return text if isinstance(text, str) and text.isidentifier() else None
