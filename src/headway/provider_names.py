"""The names that people give to servers: which provider answers at a base URL."""

from __future__ import annotations

from headway import base_urls, keys
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def checked(value: object, name: str) -> dict[str, str]:
    """The providers by their base URLs, each spelt in one way; all problems are told together."""
    problems: list[str] = []
    known: dict[str, str] = {}
    for base, provider in _pairs(value, name):
        place, named = base_urls.plain(base), _named(provider)
        if place is None or named is None:
            problem = _problem(base, place, provider)
        elif known.get(place, named) != named:
            problem = f"is the same place as one with another name, {known[place]!r}; keep one"
        else:
            known[place] = named
            continue
        problems.append(f"{name}: {'...' if '@' in base else repr(base)} {problem}")
    if problems:
        raise ConfigError(*problems)
    return known


def _pairs(value: object, name: str) -> Iterable[tuple[str, object]]:
    """Of a table; or of a variable, which has no tables but blanks between ``base=name``."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, str) and value.strip():
        return [(base, named) for base, _, named in (p.rpartition("=") for p in value.split())]
    raise ConfigError(
        f'{name} must be a table: "localhost:8000" = "my-server", got {value!r};'
        " in a variable localhost:8000=my-server"
    )


def _named(provider: object) -> str | None:
    return str(provider) if keys.is_plain(provider) else None


def _problem(base: str, place: str | None, provider: object) -> str:
    if isinstance(provider, dict):
        return f'has dots, so it needs quotes: "{base}.{next(iter(provider), "com")}" = "my-server"'
    if place is None:
        return (
            "is neither a host nor a base URL;"
            ' write it like "localhost:8000" or "https://gateway.example.com/openai"'
        )
    return (
        f"= {provider!r} must be the name of a provider, a text without blanks and slashes;"
        ' write it like "my-server"'
    )
