"""Base URLs of servers, spelt in one way: ``host``, ``host:port``, ``host:port/path``.

The scheme makes no difference to who answers, so it is dropped, and so is its usual port.
"""

from __future__ import annotations

_USUAL_PORTS = ("", "80", "443")
_LAST_PORT = 65_535
_OF_AN_ADDRESS = frozenset("0123456789abcdefABCDEF:.")


def plain(text: str) -> str | None:
    """The one spelling of this host or base URL, or ``None`` if it is neither."""
    scheme, found, rest = text.partition("://")
    if not found:
        rest = text
    elif scheme.lower() not in {"http", "https"}:
        return None
    if not rest.isprintable() or any(char in " ?#@*\\" for char in rest):
        return None
    place, _, path = rest.partition("/")
    host = plain_host(place)
    if host is None:
        return None
    path = path.strip("/")
    return f"{host}/{path}" if path else host


def plain_host(place: str) -> str | None:
    """``host`` or ``host:port`` in lower case, without a usual port; ``None`` if it is neither."""
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        before, colon, port = rest.partition(":")
        is_host = bool(bracket) and not before and set(host[1:]) <= _OF_AN_ADDRESS
        host += bracket
    else:
        host, colon, port = place.partition(":")
        host = host.removesuffix(".")
        is_host = all(part.replace("-", "").replace("_", "").isalnum() for part in host.split("."))
    if not is_host or (colon and not _is_port(port)):
        return None
    return host.lower() if port in _USUAL_PORTS else f"{host.lower()}:{port}"


def without_port(host: str) -> str:
    """The host alone, of what :func:`plain_host` returns."""
    name, _, port = host.rpartition(":")
    is_port = port.isdecimal() and (":" not in name or name.endswith("]"))
    return name if name and is_port else host


def _is_port(port: str) -> bool:
    return port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _LAST_PORT
