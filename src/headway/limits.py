"""Limits: how many slots a key has, and which line of the settings says so."""

from __future__ import annotations

from headway import keys
from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNLIMITED = "unlimited"
# Larger than any sum of weights, so that "has room" is one comparison for every key.
UNCAPPED = 1 << 62
MAX_SLOTS = 1_000_000_000
_MANY_BITS = 128
# Where a line was written; shown to people as the source of a limit.
FILE, CODE, ENVIRONMENT = "file", "code", "environment"


class Line:
    """One line of the settings: a key or pattern, its slots, and where it was written."""

    __slots__ = ("pattern", "slots", "source")

    def __init__(self, pattern: str, slots: int, source: str) -> None:
        self.pattern, self.slots, self.source = pattern, slots, source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"Line({self.pattern!r}, {shown(self.slots)!r}, {self.source!r})"

    def _parts(self) -> tuple[str, int, str]:
        return self.pattern, self.slots, self.source


DEFAULT = Line("agent", 3, "default")
_NO_LINE = Line("", UNCAPPED, "none")


class Terms:
    """The lines in force in one store and the keys that are paused; never changed, but replaced."""

    __slots__ = ("_by_pattern", "paused")

    def __init__(self, lines: Iterable[Line] = (), paused: Iterable[str] = ()) -> None:
        self._by_pattern = {line.pattern: line for line in lines}
        self.paused = frozenset(paused)

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
        """The line that decides this key; the built-in default yields to any other."""
        exact = self._by_pattern.get(key)
        if exact:
            return exact
        matching = [line for line in self._by_pattern.values() if keys.matches(line.pattern, key)]
        if matching:
            return max(matching, key=lambda line: keys.specificity(line.pattern))
        return DEFAULT if key == DEFAULT.pattern else _NO_LINE

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
        """Lines from code, set where there are none; and each that met another (offered, kept)."""
        missing, met = [], []
        for line in lines:
            present = self._by_pattern.get(line.pattern)
            if present is None:
                missing.append(line)
            elif present.slots != line.slots:
                met.append((line, present))
        return (self.with_lines(missing) if missing else self), met


def lines_from_code(table: Mapping[str, int | str]) -> list[Line]:
    """The limits that a governor was made with."""
    if not hasattr(table, "items"):
        example = '{"llm/openai": 2}'
        raise ConfigError(f"limits must be keys with their slots, like {example}, got {table!r}")
    return parse_lines(table, source=CODE, where="limits")


def slots(value: object, *, where: str) -> int:
    """The cap that a limit's value stands for; everything but a limit is refused."""
    if value == UNLIMITED and isinstance(value, str):
        return UNCAPPED
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SLOTS:
        return value
    # Python does not write out numbers of more than some thousand digits.
    endless = isinstance(value, int) and value.bit_length() > _MANY_BITS
    given = "a number without end" if endless else repr(value)
    raise ConfigError(
        f"{where} = {given} is not a limit; write a whole number of slots from 1 to {MAX_SLOTS},"
        f' without quotes, or "{UNLIMITED}"'
    )


def shown(cap: int) -> int | str:
    """A cap as people read it."""
    return UNLIMITED if cap >= UNCAPPED else cap


def parse_lines(values: Mapping[str, object], *, source: str, where: str) -> list[Line]:
    """Turn ``{"llm/openai": 2}`` into lines; all problems are reported together."""
    lines, problems = [], []
    for pattern, value in values.items():
        try:
            keys.check(pattern, pattern=True)
            lines.append(Line(pattern, slots(value, where=f'{where}: "{pattern}"'), source))
        except ConfigError as error:
            text = str(error)
            problems.append(text if text.startswith(where) else f"{where}: {text}")
    if problems:
        raise ConfigError(*problems)
    return lines
