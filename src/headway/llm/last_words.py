r"""How each dialect says that an answer is over, read from what remains of a stream.

A line break within an answer is written ``\n`` in JSON, so nothing that a model says can
begin a line. Where the beginning of an event is lost, its end is read from a name on: with what
must have stood before that name it is valid JSON, and within a text or deeper down it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOST = b"\x00"  # stands for the middle of a line; no event has it
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([^"\\]+)"')
_ERROR = b"error"
_LAST_RESPONSES = frozenset(
    (
        b"response.completed",
        b"response.incomplete",
        b"response.failed",
        b"response.cancelled",
        _ERROR,
    )
)
_LAST_MESSAGES = frozenset((b"message_stop", _ERROR))
_NO_NEWS = frozenset((b"ping", b"keepalive"))
_ANOTHER = re.compile(rb'"index"\s*:\s*[1-9]')
_NO_REASON = (None, "", "FINISH_REASON_UNSPECIFIED")
# A name may also stand in what a model wants to call a tool with; so often we look further.
_TRIES = 16


@dataclass(frozen=True, slots=True)
class Remains:
    """The last bytes of a stream, and the head of their first line if its middle is lost."""

    head: bytes
    tail: bytes
    is_from_start: bool

    @property
    def text(self) -> bytes:
        return self.head + _LOST + self.tail if self.head else self.tail

    @property
    def is_all(self) -> bool:
        return self.is_from_start and not self.head


Dialect = Callable[[Remains], bool]


class _Says(Enum):
    """What an event says of the end."""

    OVER = "over"
    GOING_ON = "going on"
    NOTHING = "nothing"
    UNKNOWN = "unknown"  # it is too large to have been kept


@dataclass(frozen=True, slots=True)
class _Event:
    name: bytes
    data: bytes
    is_whole: bool  # not without its beginning or its middle
    is_closed: bool  # by a line break
    is_ended: bool  # by an empty line


def chat(remains: Remains) -> bool:
    """OpenAI's chat completions, and all that imitate them: ``[DONE]``, or a finish reason."""
    is_over = _is_over(remains, lambda event: _by_reason(event, *_CHAT))
    return is_over and _is_each_over(remains, "choices", "finish_reason")


def gemini(remains: Remains) -> bool:
    """Gemini's events: a finish reason, or a prompt that is blocked."""
    is_over = _is_over(remains, lambda event: _by_reason(event, *_GEMINI))
    return is_over and _is_each_over(remains, "candidates", "finishReason")


def responses(remains: Remains) -> bool:
    """OpenAI's responses: the event that repeats the whole answer."""
    return _is_over(remains, lambda event: _by_name(event, _LAST_RESPONSES))


def messages(remains: Remains) -> bool:
    """Anthropic's messages: ``message_stop``."""
    return _is_over(remains, lambda event: _by_name(event, _LAST_MESSAGES))


def gemini_list(remains: Remains) -> bool:
    """Gemini's answer as one list, of which each piece is sent when it is there."""
    text = remains.text.strip()
    if remains.is_all:
        return _of_pieces(_parsed(text)) is _Says.OVER
    if not text.endswith(b"]"):
        return False
    for name, before in _IN_LIST:
        pieces = _from_name_on(text, name, before)
        if pieces is not None:
            return _of_pieces(pieces) is _Says.OVER
    return True  # its last piece is too large to have been kept


def _is_over(remains: Remains, says: Callable[[_Event], _Says]) -> bool:
    """What the last event says that says anything."""
    for event in _events_from_the_end(remains):
        said = says(event)
        if said is not _Says.NOTHING:
            return said is not _Says.GOING_ON
    return not remains.is_all


def _is_each_over(remains: Remains, choices: str, reason: str) -> bool:
    """Where several answers come at a time, each has an end of its own: no other one goes on."""
    if not _ANOTHER.search(remains.tail):
        return True
    finished: set[str] = set()
    for event in _events_from_the_end(remains):
        known = _parsed(event.data) if event.is_whole else None
        if event.data.strip() == b"[DONE]" or event.name == _ERROR or _tells_error(known, b""):
            return True
        listed = known.get(choices) if isinstance(known, dict) else None
        for choice in listed if isinstance(listed, list) else ():
            if not isinstance(choice, dict):
                continue
            index = str(choice.get("index") or 0)
            if choice.get(reason) not in _NO_REASON:
                finished.add(index)
            elif index not in finished:
                return False
    return True


def _events_from_the_end(remains: Remains) -> Iterator[_Event]:
    text = remains.text.removeprefix(_BYTE_ORDER_MARK)
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    last, end = len(lines) - 1, len(lines)
    while end > 0:
        start = end
        while start > 0 and lines[start - 1]:
            start -= 1
        names, data = _fields(lines[start:end])
        if data:
            if start == 0 and not remains.is_from_start:
                data.insert(0, _LOST)
            yield _Event(
                name=names[-1] if names else b"",
                data=b"\n".join(data),
                is_whole=not any(_LOST in line for line in data),
                is_closed=end <= last,
                is_ended=end < last,
            )
        end = start - 1


def _fields(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The names and the data of one event; anything else is for other readers."""
    parts = [line.partition(b":") for line in lines]
    names = [value.strip() for field, _, value in parts if field == b"event"]
    return names, [value.removeprefix(b" ") for field, _, value in parts if field == b"data"]


def _by_name(event: _Event, last: frozenset[bytes]) -> _Says:
    if event.data.strip() == b"[DONE]":
        return _Says.OVER
    known = _parsed(event.data) if event.is_whole else None
    if known is None and not (event.is_ended if event.is_whole else event.is_closed):
        return _broken_off(event)
    begins = _TYPE.match(event.data)
    name = event.name or (begins[1] if begins else _type_of(known))
    if name in last or _tells_error(known, name):
        return _Says.OVER
    if name in _NO_NEWS:
        return _Says.NOTHING
    if name:
        return _Says.GOING_ON
    return _Says.NOTHING if event.is_whole else _Says.UNKNOWN


def _by_reason(event: _Event, name: bytes, before: bytes, says: Callable[[object], _Says]) -> _Says:
    if event.data.strip() == b"[DONE]":
        return _Says.OVER
    known = _parsed(event.data) if event.is_whole else _from_name_on(event.data, name, before)
    if known is not None:
        return _Says.OVER if event.name == _ERROR else says(known)
    if not (event.is_ended if event.is_whole else event.is_closed):
        return _broken_off(event)
    if event.name == _ERROR:
        return _Says.OVER
    return _Says.NOTHING if event.is_whole else _Says.UNKNOWN


def _broken_off(event: _Event) -> _Says:
    """Of a short one, the event before decides: the answer may have been over already."""
    return _Says.NOTHING if event.is_whole else _Says.GOING_ON


def _tells_error(known: object, name: bytes) -> bool:
    return not name and isinstance(known, dict) and bool(known.get("error"))


def _type_of(known: object) -> bytes:
    kind = known.get("type") if isinstance(known, dict) else None
    return kind.encode("utf-8", "replace") if isinstance(kind, str) else b""


def _of_chat(known: object) -> _Says:
    return _of_choices(known, "choices", "finish_reason")


def _of_gemini(known: object) -> _Says:
    says = _of_choices(known, "candidates", "finishReason")
    feedback = known.get("promptFeedback") if isinstance(known, dict) else None
    is_blocked = isinstance(feedback, dict) and bool(feedback.get("blockReason"))
    return _Says.OVER if says is _Says.NOTHING and is_blocked else says


def _of_choices(known: object, choices: str, reason: str) -> _Says:
    if not isinstance(known, dict):
        return _Says.NOTHING
    if known.get("error"):
        return _Says.OVER
    listed = known.get(choices)
    if not isinstance(listed, list) or not listed:
        return _Says.NOTHING
    reasons = [choice.get(reason) for choice in listed if isinstance(choice, dict)]
    return _Says.GOING_ON if any(each in _NO_REASON for each in reasons) else _Says.OVER


def _of_pieces(known: object) -> _Says:
    """What the last piece of a list says that says anything; an error may come without a list."""
    pieces = known if isinstance(known, list) else [known]
    said = [_of_gemini(piece) for piece in reversed(pieces)]
    return next((each for each in said if each is not _Says.NOTHING), _Says.GOING_ON)


def _from_name_on(text: bytes, name: bytes, before: bytes) -> Any:
    """What the end says from this name on, if what stood before it was open as given."""
    at = len(text)
    for _ in range(_TRIES):
        at = text.rfind(name, 0, at)
        if at < 0:
            return None
        found = _parsed(before + text[at:])
        if found is not None:
            return found
    return None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_CHAT = b'"finish_reason"', b'{"choices":[{', _of_chat
_GEMINI = b'"finishReason"', b'{"candidates":[{', _of_gemini
_IN_LIST = (
    (b'"candidates"', b"[{"),
    (b'"finishReason"', b'[{"candidates":[{'),
    (b'"blockReason"', b'[{"promptFeedback":{'),
    (b'"error"', b"[{"),
)
