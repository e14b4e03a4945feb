"""Stores: where tickets and leases live."""

from __future__ import annotations

import os

from headway import config
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.config import Settings
    from headway.stores.base import Store


def open_store(url: str | None) -> tuple[Store, Settings]:
    """The store that a URL names and the settings that go with it; without one, the home's."""
    if url == "memory://":
        from headway.stores.memory import MemoryStore  # noqa: PLC0415 - one store is enough

        settings = config.defaults()
        return MemoryStore(
            boost_seconds=settings.boost_seconds,
            max_waiting=settings.max_waiting,
            max_cooling_seconds=settings.max_cooling_seconds,
        ), settings
    settings = config.load(None if url is None else _directory(url))
    from headway.stores.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(settings), settings


def _directory(url: object) -> str:
    scheme, separator, rest = url.partition(":///") if isinstance(url, str) else ("", "", "")
    if scheme == "sqlite" and separator and rest:
        return os.path.expanduser(rest)
    raise ConfigError(
        f"store {url!r} is not known; use memory://, sqlite:///directory or"
        " sqlite:////absolute/directory, or nothing for the home"
    )
