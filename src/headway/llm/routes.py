"""The transport below, where none was given: httpx's own, through the environment's proxies.

A client that is given a transport leaves the proxies of its environment to it.
"""

from __future__ import annotations

import os
import urllib.request
from typing import TYPE_CHECKING, Any
from weakref import ref

from headway.errors import ConfigError
from headway.llm.families import package_of

if TYPE_CHECKING:
    from headway.llm.families import Family

_PROXIED = ("http", "https")
_known: set[ref[Routes]] = set()


class Routes:
    """Finds the transport for a request, and makes it when it is first needed."""

    def __init__(self, given: Any, *, asynchronous: bool) -> None:
        wanted = "handle_async_request" if asynchronous else "handle_request"
        if given is not None and not callable(getattr(given, wanted, None)):
            raise ConfigError(
                f"transport must have {wanted}(), as httpx's transports for"
                f" {'async' if asynchronous else 'plain'} clients have, got {given!r}"
            )
        self.given, self._asynchronous = given, asynchronous
        self._package = package_of(given)
        self._made: dict[tuple[str, str], Any] = {}
        self._proxies: dict[str, str] | None = None
        _known.add(ref(self, _known.discard))

    def find(self, family: Family, url: Any) -> Any:
        """The transport for this URL."""
        if self.given is not None:
            if self._package not in (None, family.name):
                raise ConfigError(
                    f"transport is one of {self._package}, but the client is one of"
                    f" {family.name}; take both from the same package"
                )
            return self.given
        proxies = self._proxies
        if proxies is None:
            proxies = self._proxies = _environment()
        proxy = _proxy_for(proxies, url) if proxies else ""
        made = self._made.get((family.name, proxy))
        # Two threads may make one at once: then the second is dropped unused.
        return made or self._made.setdefault((family.name, proxy), self._make(family, proxy))

    def all(self) -> list[Any]:
        """Those that are to be closed."""
        return [*self._made.values()] if self.given is None else [self.given]

    def forget_after_fork(self) -> None:
        """What was made has open connections, which stay the parent's: two would mix on them.

        Not closed: another thread may have been inside.
        """
        self._made = {}

    def _make(self, family: Family, proxy: str) -> Any:
        make = family.async_transport if self._asynchronous else family.transport
        through = {"proxy": family.proxy(proxy)} if proxy else {}
        return make(limits=family.connections, **through)


def _environment() -> dict[str, str]:
    found = urllib.request.getproxies()
    return {
        scheme: url if "://" in url else f"http://{url}"
        for scheme in (*_PROXIED, "all")
        if (url := found.get(scheme, ""))
    }


def _proxy_for(proxies: dict[str, str], url: Any) -> str:
    """The proxy for this URL, or nothing where ``NO_PROXY`` excepts its host."""
    proxy = proxies.get(url.scheme) or proxies.get("all", "")
    host = f"{url.host}:{url.port}" if url.port else url.host
    return "" if not proxy or urllib.request.proxy_bypass(host) else proxy


def _forget_after_fork() -> None:
    for known in [*_known]:
        routes = known()
        if routes is not None:
            routes.forget_after_fork()


os.register_at_fork(after_in_child=_forget_after_fork)
