"""Stores: where tickets and leases live."""

from __future__ import annotations

import os
import sys

from headway import config
from headway.errors import ConfigError, HeadwayError
from headway.setting_table import SETTINGS, STORE_SCHEMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.config import Settings
    from headway.stores.base import Store


# Who replaces blocking calls of the standard library, and how to ask whether it did.
_PATCHERS = (
    ("gevent", "monkey", "is_module_patched"),
    ("eventlet", "patcher", "is_monkey_patched"),
)


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
    if config.is_off():
        from headway.stores.off import OffStore  # noqa: PLC0415

        return OffStore(), config.defaults()
    _refuse_patched_process()
    settings = config.load(None if url is None or _is_server(url) else _directory(url))
    server = _server(url, settings)
    if server is not None:
        return _on_server(server, settings), settings
    from headway.stores.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(settings), settings


def _refuse_patched_process() -> None:
    """Raise what to do where blocking calls were replaced: locks would exclude nobody."""
    for name, patcher, is_patched in _PATCHERS:
        module = sys.modules.get(f"{name}.{patcher}")
        if module is not None and any(map(getattr(module, is_patched), ("select", "thread"))):
            raise HeadwayError(
                f"{name} has patched this process, and a store that others share needs real"
                f" threads and sockets; do not monkey-patch the process that uses it (with"
                f" gunicorn: worker class gthread), send LLM calls through `headway gateway`,"
                f' or limit this process alone with headway.Governor("memory://")'
            )


def _is_server(url: object) -> bool:
    return isinstance(url, str) and url.startswith(STORE_SCHEMES)


def _server(url: str | None, settings: Settings) -> str | None:
    """The server that is used, if it is one."""
    if url is None:
        return settings.store_url
    return url if _is_server(url) else None


def environ_for(url: str | None, settings: Settings) -> dict[str, str]:
    """What leads a child to the same store; in memory there is no way to it."""
    if not settings.home:
        return {}
    server = _server(url, settings)
    found = {} if server == settings.store_url else {"HEADWAY_STORE_URL": server or "home"}
    return {"HEADWAY_HOME": settings.home, **found}


def url_of(settings: Settings) -> str:
    """The address of the store that a home uses: a server, or the home itself."""
    return settings.store_url or f"sqlite:///{settings.home}"


def server_of(settings: Settings) -> str | None:
    """The server that a home uses, for people; nothing if it uses none."""
    return shown(settings.store_url, settings.namespace) if settings.store_url else None


def shown(url: str, namespace: str) -> str:
    """A server and which part of it, without any secret."""
    scheme, _, rest = url.partition("://")
    place = f"{scheme}://{rest.rpartition('@')[2]}".partition("?")[0]
    is_usual = namespace == SETTINGS["store.namespace"].default
    return place if is_usual else f"{place} ({namespace})"


def place_of(settings: Settings) -> str:
    """Where a home's slots are, as briefly as that can be said."""
    return server_of(settings) or settings.home


def _on_server(url: str, settings: Settings) -> Store:
    try:
        from headway.stores.redis import RedisStore  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a store on a server needs {error.name}; install it with: pip install 'headway[redis]'"
        ) from None
    return RedisStore(settings, RedisStore.link(url, settings))


def _directory(url: object) -> str:
    scheme, separator, rest = url.partition(":///") if isinstance(url, str) else ("", "", "")
    if scheme == "sqlite" and separator and rest:
        return os.path.expanduser(rest)
    raise ConfigError(
        f"store {url!r} is not known; use memory://, sqlite:///directory,"
        " sqlite:////absolute/directory or redis://host, or nothing for the home"
    )
