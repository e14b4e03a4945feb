"""Access control: programs of this machine, or those that have the token; no web page.

A page in a browser can send requests to addresses of this machine, and by a name that first
leads elsewhere and then here it can even read the answers. But it cannot choose the headers Host,
Origin and Sec-Fetch-Site that the browser sends with them.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from headway import base_urls

if TYPE_CHECKING:
    from headway.gateway.heads import RequestHead

_TOKEN_PATH = b"/k/"
_BAD_REQUEST, _FORBIDDEN, _METHOD_NOT_ALLOWED = 400, 403, 405
_REFUSED_METHODS = (b"CONNECT", b"TRACE")


class Door:
    """Looks at every request before it is answered."""

    def __init__(self, host: str, token: str | None) -> None:
        self._token = None if token is None else token.encode()
        self._own_host = host.lower()

    def refusal(self, head: RequestHead) -> tuple[int, str] | None:
        """A status and the reason, if the request is refused. Takes a token out of its path."""
        if head.method in _REFUSED_METHODS:
            return _METHOD_NOT_ALLOWED, f"{head.method.decode()} is not allowed here"
        self.take_token(head)
        why = self._misplaced_token(head) or self._stranger(head) or self._web_page(head)
        if why:
            return _FORBIDDEN, why
        path = unquote_to_bytes(head.target.partition(b"?")[0])
        if b".." in path.replace(b"\\", b"/").split(b"/"):
            return _BAD_REQUEST, "the path must not contain '..'"
        return None

    def _misplaced_token(self, head: RequestHead) -> str:
        """Refuse a token elsewhere in the path; the log and the provider must not see it."""
        if self._token is None or self._token not in unquote_to_bytes(head.target):
            return ""
        head.target = unquote_to_bytes(head.target).replace(self._token, b"TOKEN")
        return "the token is in the wrong place; put /k/TOKEN in front of the path"

    def _stranger(self, head: RequestHead) -> str:
        is_known = self._is_known(head)
        if self._token is not None and not is_known:
            if _given(head):
                return "the token is wrong; that of the gateway is its gateway.token"
            if not head.asks_for_health:
                return "a token is needed: x-headway-token, or /k/TOKEN in front of the path"
        if not is_known and not self._is_ours(head.get("host")):
            return f"Host is {head.get('host')!r}, which is not this machine"
        return ""

    def _web_page(self, head: RequestHead) -> str:
        origin = head.get("origin")
        if origin:
            if self._is_ours(origin.partition("://")[2].partition("/")[0]):
                return ""
            return f"a web page of {origin!r} may not use this"
        if head.raw(b"sec-fetch-site").lower() == b"cross-site":  # an <img>, which has no Origin
            return "a web page of another site may not use this"
        return ""

    @staticmethod
    def take_token(head: RequestHead) -> None:
        """Out of its path, right or wrong, however often it stands there: the log shows paths."""
        while head.target.startswith(_TOKEN_PATH):
            head.token_in_path, _, rest = head.target[len(_TOKEN_PATH) :].partition(b"/")
            head.target = b"/" + rest

    def may_know(self, head: RequestHead) -> bool:
        """Whether it is for its eyes what goes on here."""
        return self._token is None or self._is_known(head)

    def _is_known(self, head: RequestHead) -> bool:
        return self._token is not None and hmac.compare_digest(_given(head), self._token)

    def _is_ours(self, place: str) -> bool:
        host = _host_of(place)
        return host == self._own_host or is_loopback(host)


def _given(head: RequestHead) -> bytes:
    """The token that it has, right or wrong."""
    in_path = head.token_in_path
    return head.raw(b"x-headway-token") if in_path is None else in_path


@functools.lru_cache(maxsize=256)
def _host_of(place: str) -> str:
    """The host alone; empty if it is none."""
    return base_urls.without_port(base_urls.plain_host(place) or "").strip("[]")


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
