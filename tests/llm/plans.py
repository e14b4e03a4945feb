"""Plans: what the server does to a request, by tags in its prompt or by order of the test."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tests.llm.asks import Ask

_TAG = re.compile(r"\[([a-z-]+): ?(.*?)\](?=\s|\[|\"|$)", re.DOTALL)
_SAY = re.compile(r"\bsay: ?(.*)")
_TROUBLE = (
    "status",
    "headers",
    "retry_after",
    "retry_delay",
    "cut",
    "cut_at",
    "drop",
    "garbage",
    "empty",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer's plan; the defaults answer with an echo, at once and whole.

    Every field is also a tag, ``[chunk-delay: 0.1]`` for ``chunk_delay``; of headers there is one
    for each, ``[header: X-Name=value]``. ``times`` bounds the trouble only (error, headers, cut,
    drop, garbage, empty): after it, the rest of the plan is kept.
    """

    say: str | None = None  # this text exactly
    words: int = 0  # or so many words
    huge: int = 0  # or at least so many bytes
    empty: bool = False  # or nothing, successfully
    tools: tuple[str, ...] = ()  # shell commands to ask for first, one after another
    forever: bool = False  # ask for the last command again and again
    header_delay: float = 0.0  # seconds
    chunk_delay: float = 0.0  # seconds
    hold: Literal["", "before", "opened", "middle"] = ""  # of headers, of text, in the text
    trickle: int = 0  # bytes at a time
    encoding: Literal["", "gzip", "deflate"] = ""  # of the body; in a stream, event by event
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)  # of any answer, added to the usual
    retry_after: str = ""  # the header, of any answer
    retry_delay: str = ""  # Gemini's RetryInfo, in the body
    # Half way: a reset, a closed connection, or an end as HTTP wants it. After all was said: an
    # end without the events that tell it, or with one that tells an error.
    cut: Literal["", "reset", "close", "clean", "untold", "error"] = ""
    cut_at: int = -1  # not half way, but after so many bytes of the body
    drop: bool = False  # reset before headers
    garbage: bool = False  # bytes that are no answer at all
    cap: int = 0  # with more of the model in flight than this: 429
    times: int = 0  # how often to make trouble; 0 is for ever

    @property
    def makes_trouble(self) -> bool:
        return self != self.without_trouble()

    def without_trouble(self) -> Plan:
        """The same, kindly."""
        kind = Plan()
        return replace(self, **{name: getattr(kind, name) for name in _TROUBLE})


_TYPES = {spec.name: type(getattr(Plan(), spec.name)) for spec in fields(Plan)}


def tags(prompt: str) -> dict[str, Any]:
    """The fields of a plan that a prompt asks for.

    ``say: TEXT`` needs no brackets and then takes the rest of its line; ``[tool: COMMAND]`` may
    stand several times.
    """
    found: dict[str, Any] = {}
    for name, value in _TAG.findall(prompt):
        name = name.replace("-", "_")  # noqa: PLW2901 - the same, as Python spells it
        if name == "tool":
            found["tools"] = (*found.get("tools", ()), value)
        elif name == "header":
            header, _, told = value.partition("=")
            found["headers"] = {**found.get("headers", {}), header: told}
        elif name == "say":
            found["say"] = value
        elif name in _TYPES:
            kind = _TYPES[name]
            found[name] = value != "no" if kind is bool else kind(value)
    bare = _SAY.search(_TAG.sub("", prompt))
    if "say" not in found and bare:
        found["say"] = bare[1].strip()
    return found


@dataclass
class _Order:
    """A plan given by the test, and to which requests it applies."""

    model: str | None
    match: str
    wanted: dict[str, Any]

    def applies_to(self, ask: Ask) -> bool:
        return self.model in (None, ask.model) and self.match in f"{ask.path}\n{ask.prompt}"


@dataclass
class Orders:
    """The plans in force; the newest that applies wins, and tags go before it, field by field."""

    _orders: list[_Order] = field(default_factory=list)
    _troubles: dict[object, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, model: str | None, match: str, wanted: dict[str, Any]) -> None:
        Plan(**wanted)  # an unknown field is the test's mistake, told at once
        with self._lock:
            self._orders.insert(0, _Order(model, match, wanted))

    def clear(self) -> None:
        with self._lock:
            self._orders.clear()

    def choose(self, ask: Ask) -> Plan:
        """The plan for this request; counts the trouble made."""
        with self._lock:
            order = next((each for each in self._orders if each.applies_to(ask)), None)
            ordered = order.wanted if order else {}
            tagged = {} if ask.is_title else tags(ask.prompt)
            plan = Plan(**{**ordered, **tagged})
            if not plan.times or not plan.makes_trouble:
                return plan
            counted = (ask.path, ask.model, ask.prompt) if "times" in tagged else id(order)
            made = self._troubles.get(counted, 0)
            if made >= plan.times:
                return plan.without_trouble()
            self._troubles[counted] = made + 1
            return plan
