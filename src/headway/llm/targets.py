"""Which provider and model a request is for, and how that is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.governor import default
from headway.llm.calls import Target
from headway.llm.models import in_body, in_path
from headway.llm.naming import key_of, provider_of

if TYPE_CHECKING:
    from headway.governor import Governor
    from headway.llm.options import Options

_CACHE_SIZE = 1024


class Targets:
    """Finds the targets of one transport's requests, and remembers them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._governor = options.governor
        # What a URL tells: the provider, and the model if its path names one.
        self._places: dict[tuple[bytes, str], tuple[str, str | None]] = {}
        self._targets: dict[tuple[str, str | None], Target] = {}

    def find(self, request: Any, path: str) -> Target:
        """The target of a request; its body is looked at only if it is in memory."""
        governor = self._governor
        if governor is None or (governor.closed and self._options.governor is None):
            self._places.clear()
            self._targets.clear()
            governor = self._governor = default()
        url = request.url
        provider, model = self._places.get((url.netloc, path)) or self._place(governor, url, path)
        if model is None:
            body = body_of(request)
            if body is None:
                model = _in_fields(request.stream)
            elif body:
                is_json = body.startswith(b"{")  # then its headers need not be asked
                kind = "" if is_json else request.headers.get("content-type", "")
                model = in_body(body, kind)
        target = self._targets.get((provider, model))
        if target is None or target.governor is not governor:
            if len(self._targets) >= _CACHE_SIZE:
                self._targets.clear()
            target = self._targets[provider, model] = self._new(governor, provider, model)
        return target

    def _place(self, governor: Governor, url: Any, path: str) -> tuple[str, str | None]:
        known = governor.settings.providers
        provider = self._options.provider or provider_of(url.netloc.decode(), path, known)
        if len(self._places) >= _CACHE_SIZE:
            self._places.clear()
        place = self._places[url.netloc, path] = provider, in_path(path)
        return place

    def _new(self, governor: Governor, provider: str, model: str | None) -> Target:
        options, key = self._options, key_of(provider, model)
        slot = governor.slot(
            key,
            task=options.task,
            priority=options.priority,
            timeout=options.timeout_seconds,
            on_wait=options.on_wait,
        )
        return Target(governor, key, key_of(provider, None), slot)


def body_of(request: Any) -> bytes | None:
    """The body, if it is in memory. One that is still to be read is left alone."""
    try:
        body: bytes = request.content
    except RuntimeError:  # RequestNotRead, of either family
        return None
    return body


def _in_fields(stream: Any) -> str | None:
    """The model that a form names; its files are for the provider to read."""
    fields = getattr(stream, "fields", None)
    for field in fields if isinstance(fields, list) else ():
        if getattr(field, "name", None) == "model":
            value = getattr(field, "value", None)  # a file has none
            name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            return name if name and isinstance(name, str) else None
    return None
