"""httpx and httpx2: two packages of one interface, and a client of one takes nothing of the other.

The official clients are divided over them. A transport learns from its first request which
one it serves, and loads neither before.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, HeadwayError
from headway.llm.bodies import AsyncLeasedBody, LeasedBody

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("httpx", "httpx2")


class TruncatedStream(HeadwayError):  # noqa: N818 - the public names are a promise
    """A stream ended without the event that says that it is complete.

    What is raised is a ``RemoteProtocolError`` of the client's own package as well.
    """

    _request: object = None  # httpx puts the request here

    def __init__(self, keys: Sequence[str], lease_id: str, reason: str) -> None:
        # Not httpx's, which wants one text.
        Exception.__init__(self, keys, lease_id, reason)
        self.keys, self.lease_id, self.reason = keys, lease_id, reason

    def __str__(self) -> str:
        return f"the answer to {self.lease_id} on {' + '.join(self.keys)} is cut: {self.reason}"

    def __reduce__(self) -> tuple[type[TruncatedStream], tuple[object, ...]]:
        return TruncatedStream, self.args  # without the request, which cannot travel


class Family:
    """What differs between the two: the classes that their clients insist on."""

    __slots__ = (
        "async_body",
        "async_transport",
        "body",
        "connection_errors",
        "connections",
        "name",
        "proxy",
        "stored",
        "transport",
        "truncated",
    )

    def __init__(self, name: str) -> None:
        module: Any = importlib.import_module(name)
        self.name = name
        self.body: type[LeasedBody] = type("Body", (LeasedBody, module.SyncByteStream), {})
        self.async_body: type[AsyncLeasedBody] = type(
            "AsyncBody", (AsyncLeasedBody, module.AsyncByteStream), {}
        )
        self.truncated: type[TruncatedStream] = type(
            "TruncatedStream", (TruncatedStream, module.RemoteProtocolError), {}
        )
        self.transport, self.async_transport = module.HTTPTransport, module.AsyncHTTPTransport
        # How many connections there are is for the slots to say: whoever waited for one here
        # would do it with a slot in hand.
        self.connections = module.Limits(max_connections=None, max_keepalive_connections=100)
        self.proxy, self.stored = module.Proxy, module.ByteStream
        self.connection_errors: tuple[type[Exception], ...] = (
            module.NetworkError,
            module.ConnectTimeout,
            module.RemoteProtocolError,
        )


_families: dict[str, Family] = {}
_by_class: dict[type, Family] = {}


def family_of(request: object) -> Family:
    """The family of a request that came from a client."""
    family = _by_class.get(request.__class__)
    if family is None:
        name = package_of(request)
        if name is None:
            raise ConfigError(f"a request must come from httpx or httpx2, got {request!r}")
        # Two threads may make it at once; the classes of either will do.
        family = _families.get(name) or _families.setdefault(name, Family(name))
        _by_class[request.__class__] = family
    return family


def package_of(thing: object) -> str | None:
    """The package whose class this is, or is derived from; none if from neither."""
    for cls in type(thing).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in NAMES:
            return package
    return None


def require() -> None:
    """Say what to install if neither package is there."""
    if not any(importlib.util.find_spec(name) for name in NAMES):
        raise ImportError(
            "headway.llm is for clients on httpx or httpx2, and neither is installed;"
            " install one with: pip install 'headway[llm]'"
        )
