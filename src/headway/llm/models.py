r"""The model that a request names, without parsing a body of many megabytes as a whole.

Within JSON a quote inside a text is written ``\"``. So the bytes ``"model"``, not after a
backslash, are always that very word and never a part of a longer text. Whether it is a name
at the top level is seen from either side of it: what stands before it is an object once ``}``
is added, and what follows is one once ``{`` is put in front. The shorter side is parsed, which
is nearly always a few kilobytes. Of a body that is no JSON only that much is known to be wrong.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATHS = (
    # Gemini and Vertex; the verb is asked for, because other models have colons in their names.
    re.compile(r"/(?:models|tunedModels)/([^/]+):\w*(?:[Gg]enerat|[Pp]redict|[Ee]mbed|Tokens)\w*$"),
    re.compile(r"/deployments/([^/]+)/"),  # Azure
    # Bedrock; an inference profile has slashes in its name.
    re.compile(
        r"/model/(.+)/"
        r"(?:invoke|invoke-with-response-stream|converse|converse-stream|count-tokens)$"
    ),
)
_NAME = b'"model"'
_NAMED = re.compile(rb'"model"\s*:\s*"')  # by a text; anything else names none
_VALUE = re.compile(rb'[^"\\\x00-\x1f]{0,4096}"')
# As most programs write it: the very first, or with nothing but plain values behind it. Then
# what is closed at the end of the body is the object that has it.
_FIRST = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\\x00-\x1f]{1,4096})"')
_AMONG_THE_LAST = re.compile(
    rb'"model"\s*:\s*"([^"\\\x00-\x1f]{1,4096})"'
    rb'(?:\s*,\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[-+.\w]+))*\s*\}\s*\Z'
)
_SPELT_ODDLY = re.compile(
    rb'"(?:m|\\u006[dD])(?:o|\\u006[fF])(?:d|\\u0064)(?:e|\\u0065)(?:l|\\u006[cC])"\s*:'
)
_JSON_SPACE = b" \t\r\n"
_FRONT = 4096
_BOUNDARY = re.compile(r'boundary="?([^";,\s]+)"?', re.IGNORECASE)
_FIELD = re.compile(
    rb'^content-disposition:\s*form-data\s*;(?!.*\bfilename)(?:.*;)?\s*name="?model"?\s*(?:;|$)',
    re.IGNORECASE | re.MULTILINE,
)
_PART_HEADERS_AT_MOST = 4096
_MODEL_AT_MOST = 4096


@lru_cache(maxsize=1024)
def in_path(path: str) -> str | None:
    """The model that a path names, if it does."""
    path = path.partition("?")[0]
    for pattern in _PATHS:
        found = pattern.search(path)
        if found:
            return unquote(found[1]) if "%" in found[1] else found[1]
    return None


def in_body(body: bytes | bytearray, content_type: str) -> str | None:
    """The model that a body names; ``None`` if it names none. Never raises."""
    usual = _FIRST.match(body) or _AMONG_THE_LAST.match(body, max(0, body.rfind(_NAME)))
    try:
        if usual and body[usual.start() - 1 : usual.start()] != b"\\":
            return usual[1].decode()
        if "multipart/" in content_type.lower():
            return _in_form(content_type, body)
        return _in_json(body)
    except (ValueError, RecursionError):
        return None


def _in_json(body: bytes | bytearray) -> str | None:
    if not body[:_FRONT].lstrip(_JSON_SPACE).startswith(b"{") or b"\x00" in body[:4]:
        return _parsed(body) if _may_be_json(body) else None
    to_spend = max(_FRONT, len(body))  # then it is cheaper to parse all of it, once
    for named in _names(body):
        to_spend -= min(named.start(), len(body) - named.start())
        if to_spend < 0:
            return _parsed(body)
        if _is_at_top(body, named.start()):
            value = _VALUE.match(body, named.end())
            return _text(value[0][:-1].decode()) if value else _parsed(body)
    return _parsed(body) if b"\\u00" in body and _SPELT_ODDLY.search(body) else None


def _may_be_json(body: bytes | bytearray) -> bool:
    """Whether it is an object after a byte order mark, many blanks, or in two bytes a letter."""
    return body[:4096].lstrip(_JSON_SPACE + b"\xef\xbb\xbf\xff\xfe\x00").startswith(b"{")


def _names(body: bytes | bytearray) -> Iterator[re.Match[bytes]]:
    """Where a text may be named ``"model"``: at the front, and then from the end on.

    Most programs write it in front of the messages or behind them.
    """
    first = body.find(_NAME, 0, _FRONT)
    named = _named(body, first)
    if named:
        yield named
    end = len(body)
    while (at := body.rfind(_NAME, 0, end)) > first:
        end = at
        named = _named(body, at)
        if named:
            yield named


def _named(body: bytes | bytearray, at: int) -> re.Match[bytes] | None:
    return _NAMED.match(body, at) if at > 0 and body[at - 1 : at] != b"\\" else None


def _is_at_top(body: bytes | bytearray, at: int) -> bool:
    if at <= len(body) - at:
        before = body[:at].rstrip(_JSON_SPACE)
        if before.endswith(b","):
            before = before[:-1]
        elif before.lstrip(_JSON_SPACE) != b"{":
            return False
        piece = before + b"}"
    else:
        piece = b"{" + body[at:]
    try:
        return isinstance(json.loads(piece), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(body: bytes | bytearray) -> str | None:
    document = json.loads(body)
    return _text(document.get("model")) if isinstance(document, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _in_form(content_type: str, body: bytes | bytearray) -> str | None:
    boundary = _BOUNDARY.search(content_type)
    if not boundary:
        return None
    line = b"--" + boundary[1].encode("utf-8", "replace")
    at = 0 if body.startswith(line) else body.find(b"\r\n" + line)
    while at >= 0:
        head = body.find(b"\r\n", at + 2) + 2  # past the line of the boundary
        if head < at:
            return None
        end = body.find(b"\r\n" + line, head)
        value = body.find(b"\r\n\r\n", head, head + _PART_HEADERS_AT_MOST)
        if head < value < end and _FIELD.search(bytes(body[head:value]).replace(b"\r", b"")):
            return _text(bytes(body[value + 4 : end][:_MODEL_AT_MOST]).decode("utf-8", "replace"))
        at = end
    return None
