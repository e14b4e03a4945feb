"""Changing limits while work runs: in the store, and in the home's file with them."""

from __future__ import annotations

import time

from headway import durations, keys, limits, spelling
from headway.errors import ConfigError
from headway.settings_file import SettingsFile
from headway.telling import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from headway.limits import Limit, Line, Terms
    from headway.stores.base import Store
    from headway.turnstile import Turnstile

    T = TypeVar("T")

# Nobody means more than that, and the longest that providers ask for is a week.
MAX_COOLING_SECONDS = 7 * 86400.0
# It is shown in one line, and read whenever somebody asks for the key.
MAX_REASON_LENGTH = 500


class Regulator:
    """Changes the terms of one store."""

    def __init__(self, turnstile: Turnstile, home: str) -> None:
        self._turnstile = turnstile
        self._file = SettingsFile(home) if turnstile.store.source == limits.FILE else None
        self._doubted: set[str] = set()

    def set_limit(self, key: str, limit: Limit) -> None:
        keys.check(key, pattern=True)
        wanted = limits.line(key, limit, source=self._store.source, where=f'"{key}"')
        self.doubt([key], in_force=False)
        self._revise(
            lambda terms: terms.with_lines([wanted.over(terms.exact(key))]),
            lambda file, terms: file.set_limit(key, wanted.over(terms.exact(key)).written()),
        )

    def unset_limit(self, key: str) -> None:
        keys.check(key, pattern=True)
        self._revise(lambda terms: terms.without(key), lambda file, _: file.unset_limit(key))

    def pause(self, key: str) -> None:
        keys.check(key)
        self.doubt([key], in_force=False)
        self._revise(
            lambda terms: terms.with_paused(terms.paused | {key}), lambda file, _: file.pause(key)
        )

    def resume(self, key: str) -> None:
        keys.check(key)
        self._revise(
            lambda terms: terms.with_paused(terms.paused - {key}),
            lambda file, _: file.resume(key),
        )
        self._operate(lambda store: store.end_cool_down(key))

    def cool_down(self, key: str, seconds: float | None, reason: str) -> float:
        keys.check(key)
        if seconds is not None:
            seconds = min(durations.seconds(seconds, name="seconds"), MAX_COOLING_SECONDS)
        reason = _kept(reason)
        import random  # noqa: PLC0415 - rarely needed

        jitter = random.random()  # noqa: S311
        left = self._operate(lambda store: store.cool_down(key, seconds, reason, jitter=jitter))
        self._turnstile.switchboard.keep_time()
        return time.time() + left

    def reload(self) -> None:
        self._operate(lambda store: store.follow_file())
        self.doubt([line.pattern for line in self._store.terms().lines], in_force=True)

    def offer(self, lines: list[Line]) -> list[Line]:
        """Set limits from code where the store has none; where it has others, they stand.

        The answer are those that were set.
        """
        met: list[tuple[Line, Line]] = []
        new: list[Line] = []

        def offered(terms: Terms) -> Terms:
            revised, met[:] = terms.with_offered(lines)
            new[:] = [line for line in lines if revised.exact(line.pattern) is line]
            return revised

        self._revise(offered)
        for line, kept in met:
            warn(
                f"limit {line.written()} for {line.pattern!r} from {line.source} is not"
                f" used: {self._store.name} already has {kept.written()}"
                f" (from {kept.source})"
            )
        return new

    def doubt(self, patterns: list[str], *, in_force: bool) -> None:
        """Warn once of keys that nobody uses but that are nearly others.

        Those of lines in force are not compared with each other: they may be meant so.
        """
        census = self._store.census()
        in_use = {key for key, state in census.states.items() if state.used or state.waiting}
        lines = [line.pattern for line in census.terms.lines if "*" not in line.pattern]
        known, configured = (lines, []) if in_force else ([], lines)
        for doubt in spelling.doubts(patterns, in_use, known=known, configured=configured):
            if doubt not in self._doubted:
                self._doubted.add(doubt)
                warn(doubt)

    def _revise(
        self,
        change: Callable[[Terms], Terms],
        write: Callable[[SettingsFile, Terms], None] | None = None,
    ) -> None:
        """Change the terms, and the file with them, in one step."""
        file = self._file

        def revise(store: Store) -> bool:
            terms = store.terms()
            also = None if file is None or write is None else _bound(write, file, terms)
            return store.set_terms(change(terms), expected=terms, also=also)

        while not self._operate(revise):
            pass
        self._turnstile.switchboard.keep_time()

    def _operate(self, operation: Callable[[Store], T]) -> T:
        return self._turnstile.switchboard.operate(lambda: operation(self._store))

    @property
    def _store(self) -> Store:
        self._turnstile.refuse_if_closed()
        return self._turnstile.store


def _kept(reason: object) -> str:
    """A reason as it is kept; a provider may have said anything, of any length."""
    if not isinstance(reason, str):
        raise ConfigError(f"reason must be text, got {reason!r}")
    return reason[:MAX_REASON_LENGTH].encode(errors="replace").decode()


def _bound(
    write: Callable[[SettingsFile, Terms], None], file: SettingsFile, terms: Terms
) -> Callable[[], None]:
    return lambda: write(file, terms)
