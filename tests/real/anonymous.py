"""Takes what belongs to one machine and one moment out of a recording, and keeps its shape."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, field
from typing import Any

_MOMENT = 1_700_000_000_000
_DAY = r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d([.-]\d+)?(Z|[+-]\d\d:\d\d)?"
_DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT"
_TEXTS = (
    (re.compile(rf"\b{_DAY}"), "2024-01-01T00:00:00Z"),
    (re.compile(rf"\b{_DATE}"), "Mon, 01 Jan 2024 00:00:00 GMT"),
    (re.compile(r"(?<!\d)1\d{12}(?!\d)"), str(_MOMENT)),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:8000"),
    (re.compile(r"Python/[\d.]+ aiohttp/[\d.]+"), "tests"),
)
_IDS = re.compile(
    r"\b(?P<uuid>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\b"
    r"|\b(?P<kind>ses|msg|prt|evt|call|req)_[0-9A-Za-z]{12,}\b"
    r"|\b(?P<hex>[0-9a-f]{12,64})\b"
)


@dataclass
class Anonymous:
    """One recording's replacements: the same thing always becomes the same other thing."""

    places: dict[str, str]  # what to write for paths and the like, longest first
    _ids: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        for place, name in self.places.items():
            text = text.replace(place, name)
        text = text.replace(socket.gethostname(), "host")
        for pattern, name in _TEXTS:
            text = pattern.sub(name, text)
        return _IDS.sub(self._id, text)

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self.text(name): self.value(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, key) for each in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _number(value, key)
        return value

    def line(self, line: str) -> str:
        """A line of output; one that is JSON stays JSON."""
        try:
            value = self.value(json.loads(line))
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            return self.text(line)

    def _id(self, found: re.Match[str]) -> str:
        known = self._ids.get(found[0])
        if known is None:
            number = len(self._ids) + 1
            if found["uuid"]:
                known = f"00000000-0000-4000-8000-{number:012}"
            else:
                known = f"{found['kind']}_{number}" if found["kind"] else f"{number:08}"
            self._ids[found[0]] = known
        return known


def _number(value: float, key: str) -> float:
    if value > _MOMENT // 2:
        return _MOMENT
    took = re.search(r"duration|ttft|[a-z]_ms$|Ms$|latency", key, re.IGNORECASE)
    return 100 if took and "retry" not in key else value
