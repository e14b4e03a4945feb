"""Changing limits while work runs: in the store, and in the home's file with them."""

from __future__ import annotations

from headway import keys, limits, spelling
from headway.settings_file import SettingsFile
from headway.telling import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.limits import Line, Terms
    from headway.stores.base import Store
    from headway.turnstile import Turnstile


class Regulator:
    """Changes the terms of one store."""

    def __init__(self, turnstile: Turnstile, home: str) -> None:
        self._turnstile = turnstile
        self._file = SettingsFile(home) if home else None
        self._doubted: set[str] = set()

    def set_limit(self, key: str, limit: int | str) -> None:
        keys.check(key, pattern=True)
        source = limits.FILE if self._file else limits.CODE
        line = limits.Line(key, limits.slots(limit, where=f'"{key}"'), source)
        self.doubt([key], in_force=False)
        self._revise(
            lambda terms: terms.with_lines([line]), lambda file: file.set_limit(key, limit)
        )

    def unset_limit(self, key: str) -> None:
        keys.check(key, pattern=True)
        self._revise(lambda terms: terms.without(key), lambda file: file.unset_limit(key))

    def pause(self, key: str) -> None:
        keys.check(key)
        self._revise(
            lambda terms: terms.with_paused(terms.paused | {key}), lambda file: file.pause(key)
        )

    def resume(self, key: str) -> None:
        keys.check(key)
        self._revise(
            lambda terms: terms.with_paused(terms.paused - {key}), lambda file: file.resume(key)
        )

    def reload(self) -> None:
        self._store.follow_file()
        self._turnstile.switchboard.deliver()
        self.doubt([line.pattern for line in self._store.terms().lines], in_force=True)

    def offer(self, lines: list[Line]) -> list[Line]:
        """Set limits from code where the store has none; where it has others, they stand.

        The answer are those that were set.
        """
        met: list[tuple[Line, Line]] = []
        new: list[Line] = []

        def offered(terms: Terms) -> Terms:
            revised, met[:] = terms.with_offered(lines)
            new[:] = [line for line in lines if terms.exact(line.pattern) is None]
            return revised

        self._revise(offered)
        for line, kept in met:
            warn(
                f"limit {limits.shown(line.slots)} for {line.pattern!r} from {line.source} is not"
                f" used: {self._store.name} already has {limits.shown(kept.slots)}"
                f" (from {kept.source})"
            )
        return new

    def doubt(self, patterns: list[str], *, in_force: bool) -> None:
        """Warn once of limits on keys that nobody uses but that are nearly ones in use."""
        census = self._store.census()
        in_use = {key for key, state in census.states.items() if state.used or state.waiting}
        known = [line.pattern for line in census.terms.lines] if in_force else []
        for doubt in spelling.doubts(patterns, in_use, known=known):
            if doubt not in self._doubted:
                self._doubted.add(doubt)
                warn(doubt)

    def _revise(
        self,
        change: Callable[[Terms], Terms],
        write: Callable[[SettingsFile], None] | None = None,
    ) -> None:
        """Change the terms, and the file with them, in one step."""
        file = self._file
        also = None if file is None or write is None else lambda: write(file)
        while True:
            terms = self._store.terms()
            if self._store.set_terms(change(terms), expected=terms, also=also):
                break
        self._turnstile.switchboard.deliver()

    @property
    def _store(self) -> Store:
        self._turnstile.refuse_if_closed()
        return self._turnstile.store
