"""Which upstream a request is for, on whose behalf it comes, and what it counts on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from headway.errors import ConfigError
from headway.gateway.compression import decompressed
from headway.gateway.dialects import dialect_of
from headway.gateway.lines import Lines
from headway.keys import agent_llm_key
from headway.llm.calls import Target
from headway.llm.models import in_body, in_path
from headway.llm.naming import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.config import Settings
    from headway.gateway.clients import Request
    from headway.gateway.dialects import Dialect
    from headway.gateway.heads import Headers, RequestHead
    from headway.governor import Governor

UPSTREAMS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_OURS = (b"host", b"x-headway-task", b"x-headway-priority", b"x-headway-token")
_CREDENTIAL_HEADERS = {"anthropic": b"x-api-key", "gemini": b"x-goog-api-key"}
_CACHE_SIZE = 1024


class Route:
    """Where a request goes on to."""

    __slots__ = ("added", "dialect", "left_out", "lines", "name", "path", "target", "task")

    def __init__(self, upstream: Upstream, target: bytes, task: str | None) -> None:
        self.name, self.lines, self.task = upstream.name, upstream.lines, task
        self.target = self.lines.path + target
        self.path = target.decode("latin-1")
        self.dialect: Dialect = dialect_of(upstream.name, self.path)
        self.left_out, self.added = upstream.left_out, upstream.added


class Upstream:
    """A provider's API: where it is, and the credentials that are ours to send."""

    __slots__ = ("added", "left_out", "lines", "name")

    def __init__(self, name: str, lines: Lines, secret: str) -> None:
        self.name, self.lines = name, lines
        self.left_out: tuple[bytes, ...] = _OURS
        self.added: Headers = []
        if secret:
            header = _CREDENTIAL_HEADERS.get(name, b"authorization")
            prefix = "Bearer " if header == b"authorization" else ""
            self.left_out += (b"authorization", b"x-api-key", b"x-goog-api-key")
            self.added = [(header, f"{prefix}{secret}".encode())]


class Routes:
    """The upstreams, and the targets of their models."""

    def __init__(self, governor: Governor, settings: Settings, environ: Mapping[str, str]) -> None:
        self._governor, self._settings = governor, settings
        urls = {**UPSTREAMS, **settings.gateway_upstreams}
        variables = settings.gateway_credentials
        missing = [each for each in variables.values() if not environ.get(each)]
        if missing:
            raise ConfigError(f"gateway.credentials: {', '.join(missing)} is not set")
        for each in variables.values():
            if not environ[each].isprintable():
                raise ConfigError(
                    f"gateway.credentials: the value of {each} contains a line break or another"
                    " control character, which no header may contain; set it without that"
                )
        self._upstreams = {
            name: Upstream(
                name,
                Lines(url, patience_seconds=settings.gateway_upstream_patience_seconds),
                environ.get(variables.get(name, ""), ""),
            )
            for name, url in urls.items()
        }
        self._targets: dict[tuple[object, ...], Target] = {}
        self._exempt = tuple(
            each if each.startswith(":") else f"/{each.strip('/')}"
            for each in settings.gateway_exempt
        )

    @property
    def upstreams(self) -> dict[str, Upstream]:
        """By their names."""
        return self._upstreams

    def find(self, head: RequestHead) -> Route | None:
        """The route of a request; none if its path names no upstream."""
        target = head.target
        task = _text(head.raw(b"x-headway-task")) or None
        if target.startswith(b"/t/"):
            named, _, rest = target[3:].partition(b"/")
            task = task or unquote(named.decode("latin-1")) or None
            target = b"/" + rest
        name, slash, rest = target[1:].partition(b"/")
        upstream = self._upstreams.get(name.decode("latin-1"))
        if upstream is None:
            return None
        return Route(upstream, slash + rest or b"/", task)

    def target(self, request: Request, route: Route) -> Target | None:
        """What the request counts on; nothing if it is one of the cheap ones."""
        path = route.path.partition("?")[0]
        if path.endswith(self._exempt) or not request.body:
            return None
        model = in_path(path) or self._model_in_body(request)
        priority = request.head.get("x-headway-priority")
        asked = (route.name, model, route.task, priority)
        target = self._targets.get(asked)
        if target is None:
            if len(self._targets) >= _CACHE_SIZE:
                self._targets.clear()
            target = self._targets[asked] = self._new(route, model, priority)
        return target

    def _model_in_body(self, request: Request) -> str | None:
        head, limit = request.head, self._settings.gateway_max_body_bytes
        body = decompressed(request.body, head.get("content-encoding"), max_bytes=limit)
        return in_body(body, head.get("content-type"))

    def _new(self, route: Route, model: str | None, priority: str) -> Target:
        key = key_of(route.name, model)
        keys = [key]
        if route.task is not None:
            keys.append(agent_llm_key(route.task))
        slot = self._governor.slot(
            *keys,
            task=route.task,
            priority=_whole_number(priority) if priority else 0,
            timeout=self._settings.gateway_timeout_seconds,
        )
        return Target(self._governor, key, key_of(route.name, None), slot)

    @property
    def lines(self) -> list[Lines]:
        """The connections to all of them."""
        return [upstream.lines for upstream in self._upstreams.values()]

    def close(self) -> None:
        """Close those that are idle."""
        for lines in self.lines:
            lines.close()


def _whole_number(priority: str) -> int:
    try:
        return int(priority)
    except ValueError:
        raise ConfigError(
            f"x-headway-priority must be a whole number from -100 to 100, got {priority[:40]!r}"
        ) from None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
