"""Limits: how many slots a key has and how many requests a minute, and which line says so."""

from __future__ import annotations

from headway import keys
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Protocol, TypeAlias

    # What a person writes for a key: slots, or a table of parts.
    Limit: TypeAlias = int | str | Mapping[str, int | str]
    Written: TypeAlias = int | str | dict[str, int | str]

    class Reader(Protocol):
        """Reads one part of a limit."""

        def __call__(self, value: object, *, where: str) -> int: ...


UNLIMITED = "unlimited"
# Larger than any sum of weights, so that "has room" is one comparison for every key.
UNCAPPED = 1 << 62
MAX_SLOTS = 1_000_000_000
_MANY_BITS = 128
# Where a line was written; shown to people as the source of a limit.
FILE, CODE, ENVIRONMENT, STORE = "file", "code", "environment", "store"


class Line:
    """One line of the settings: a key or pattern, what it says of it, and where it was written.

    A part that the line does not mention is None: the next less specific line decides it.
    """

    __slots__ = ("pattern", "requests_per_minute", "slots", "source")

    def __init__(
        self,
        pattern: str,
        slots: int | None,
        source: str,
        requests_per_minute: int | None = None,
    ) -> None:
        self.pattern, self.slots, self.source = pattern, slots, source
        self.requests_per_minute = requests_per_minute

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Line({self.pattern!r}, {self.written()!r}, {self.source!r})"

    def parts(self) -> dict[str, int | str]:
        """What the line mentions, as people read it."""
        found = {name: getattr(self, name) for name in PARTS}
        return {name: shown(value) for name, value in found.items() if value is not None}

    def written(self) -> Written:
        """What stands in the settings: a plain number where there is nothing but slots."""
        parts = self.parts()
        return parts["slots"] if list(parts) == ["slots"] else parts

    def over(self, present: Line | None) -> Line:
        """This line, with the parts that it does not mention as they are at present."""
        if present is None:
            return self
        return Line(
            self.pattern,
            present.slots if self.slots is None else self.slots,
            self.source,
            present.requests_per_minute
            if self.requests_per_minute is None
            else self.requests_per_minute,
        )

    def _all(self) -> tuple[object, ...]:
        return self.pattern, self.slots, self.source, self.requests_per_minute


# The parts that a line may have, in the order in which they are written.
PARTS = ("slots", "requests_per_minute")
DEFAULT = Line("agent", 3, "default")
_NO_LINE = Line("", UNCAPPED, "none", UNCAPPED)


class Terms:
    """The lines in force in one store and the keys that are paused; never changed, but replaced."""

    __slots__ = ("_by_pattern", "_shapes", "paused")

    def __init__(self, lines: Iterable[Line] = (), paused: Iterable[str] = ()) -> None:
        self._by_pattern = {line.pattern: line for line in lines}
        self.paused = frozenset(paused)
        # The shapes that patterns have, by their depth; worked out when a key is first looked up.
        self._shapes: dict[int, list[tuple[bool, ...]]] | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Terms)
            and self._by_pattern == other._by_pattern
            and self.paused == other.paused
        )

    def __hash__(self) -> int:
        return hash((frozenset(self._by_pattern.values()), self.paused))

    @property
    def lines(self) -> list[Line]:
        """All lines, in the order of their patterns."""
        return sorted(self._by_pattern.values(), key=lambda line: line.pattern)

    def exact(self, pattern: str) -> Line | None:
        """The line written for just this key or pattern."""
        return self._by_pattern.get(pattern)

    def line_for(self, key: str) -> Line:
        """The line that decides the slots of this key; the built-in default yields to any other."""
        found = self._deciding(key, "slots")
        return found or (DEFAULT if key == DEFAULT.pattern else _NO_LINE)

    def cap(self, key: str) -> int:
        """How many slots the key has."""
        slots = self.line_for(key).slots
        return UNCAPPED if slots is None else slots

    def budget_line_for(self, key: str) -> Line:
        """The line that decides how many requests a minute this key may have."""
        return self._deciding(key, "requests_per_minute") or _NO_LINE

    def budget(self, key: str) -> int:
        """How many requests a minute this key may have."""
        requests = self.budget_line_for(key).requests_per_minute
        return UNCAPPED if requests is None else requests

    def _deciding(self, key: str, part: str) -> Line | None:
        """The most specific line that mentions this part of the key's limit.

        One lookup for the key itself and one for each shape of pattern of its depth
        (``llm/*``, ``*/*``), however many lines there are.
        """
        exact = self._by_pattern.get(key)
        if exact is not None and getattr(exact, part) is not None:
            return exact
        for pattern in self._patterns_for(key):
            line = self._by_pattern.get(pattern)
            if line is not None and getattr(line, part) is not None:
                return line
        return None

    def _patterns_for(self, key: str) -> Iterator[str]:
        """The patterns that may speak of a key, the most specific first."""
        if self._shapes is None:
            found = {keys.specificity(name) for name in self._by_pattern if "*" in name}
            self._shapes = {}
            for shape in sorted(found, reverse=True):
                self._shapes.setdefault(len(shape), []).append(shape)
        segments = key.split("/")
        for shape in self._shapes.get(len(segments), ()):
            yield "/".join(
                name if exact else "*" for name, exact in zip(segments, shape, strict=True)
            )

    def with_lines(self, lines: Iterable[Line]) -> Terms:
        """These lines on top of the present ones."""
        return Terms([*self._by_pattern.values(), *lines], self.paused)

    def without(self, pattern: str) -> Terms:
        """The present lines but for one."""
        kept = [line for line in self._by_pattern.values() if line.pattern != pattern]
        return Terms(kept, self.paused)

    def with_paused(self, paused: Iterable[str]) -> Terms:
        """The present lines and just these keys paused."""
        return Terms(self._by_pattern.values(), paused)

    def with_file(self, lines: Iterable[Line], paused: Iterable[str]) -> Terms:
        """What a home's file says now, and what was offered by code where the file is silent."""
        offered = [line for line in self._by_pattern.values() if line.source != FILE]
        return Terms([*offered, *lines], paused)

    def with_offered(self, lines: Iterable[Line]) -> tuple[Terms, list[tuple[Line, Line]]]:
        """Lines from code, set where there are none; and each that met another (offered, kept).

        Of two lines for one pattern the first is set: a home's file is offered before
        ``HEADWAY_LIMITS``, and that before the limits of a governor.
        """
        missing: dict[str, Line] = {}
        met = []
        for line in lines:
            present = self._by_pattern.get(line.pattern) or missing.setdefault(line.pattern, line)
            if present.parts() != line.parts():
                met.append((line, present))
        return (self.with_lines(missing.values()) if missing else self), met


def lines_from_code(table: Mapping[str, Limit]) -> list[Line]:
    """The limits that a governor was made with."""
    if not hasattr(table, "items"):
        example = '{"llm/openai": 2}'
        raise ConfigError(f"limits must be keys with their slots, like {example}, got {table!r}")
    return parse_lines(table, source=CODE, where="limits")


def line(pattern: str, value: object, *, source: str, where: str) -> Line:
    """What a key's limit says: a number of slots, or a table of parts."""
    if not hasattr(value, "items"):
        return Line(pattern, slots(value, where=where), source)
    table: dict[object, object] = dict(value.items())
    problems: list[str] = []
    parts: dict[str, int] = {}
    for name, part in table.items():
        try:
            read = _reader(name, where)
            parts[str(name)] = read(part, where=f"{where}.{name}")
        except ConfigError as error:
            problems += error.problems
    if not table:
        problems.append(
            f"{where} = {{}} says nothing; write a whole number of slots, or a table with {_NAMES}"
        )
    if "requests_per_minute" in parts and pattern.split("/", maxsplit=1)[0] != "llm":
        problems.append(
            f"{where}: requests_per_minute is for keys of LLM requests, under llm; {pattern!r} is"
            " none of them"
        )
    if problems:
        raise ConfigError(*problems)
    return Line(pattern, parts.get("slots"), source, parts.get("requests_per_minute"))


def _reader(name: object, where: str) -> Reader:
    if isinstance(name, str) and name in _READERS:
        return _READERS[name]
    raise ConfigError(
        f"{where}: {name!r} is not a part of a limit; known are {_NAMES}."
        ' A key with slashes is written in quotes: "llm/openai" = 4'
    )


def slots(value: object, *, where: str) -> int:
    """The cap that a limit's value stands for; everything but a limit is refused."""
    return _whole(value, "is not a limit; write a whole number of slots", where)


def requests_per_minute(value: object, *, where: str) -> int:
    """The budget that a value stands for."""
    return _whole(value, "is not a budget; write a whole number of requests a minute", where)


def _whole(value: object, problem: str, where: str) -> int:
    if value == UNLIMITED and isinstance(value, str):
        return UNCAPPED
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SLOTS:
        return value
    # Python does not write out numbers of more than some thousand digits.
    endless = isinstance(value, int) and value.bit_length() > _MANY_BITS
    given = "a number without end" if endless else repr(value)
    raise ConfigError(
        f'{where} = {given} {problem} from 1 to {MAX_SLOTS}, without quotes, or "{UNLIMITED}"'
    )


_READERS: dict[str, Reader] = {"slots": slots, "requests_per_minute": requests_per_minute}
_NAMES = " and ".join(PARTS)


def shown(cap: int) -> int | str:
    """A cap as people read it."""
    return UNLIMITED if cap >= UNCAPPED else cap


def parse_lines(values: Mapping[str, object], *, source: str, where: str) -> list[Line]:
    """Turn ``{"llm/openai": 2}`` into lines; all problems are reported together."""
    lines: list[Line] = []
    problems: list[str] = []
    for pattern, value in values.items():
        try:
            keys.check(pattern, pattern=True)
            lines.append(line(pattern, value, source=source, where=f'{where}: "{pattern}"'))
        except ConfigError as error:
            problems += [
                text if text.startswith(where) else f"{where}: {text}" for text in error.problems
            ]
    if problems:
        raise ConfigError(*problems)
    return lines
