"""Limits and pauses that people set on a server, each with the version of its last change.

After a loss of data every process brings the ones it knows. Of each, the latest change
stands; a limit that was taken away has a version too, so that nobody brings it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.limits import STORE, Line, Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    # What was set: a line, True for a pause; None if it was taken away.
    Value = Line | bool | None

# So many that were taken away are remembered, the latest of them.
_MOST_REMOVED = 1000
_LIMIT, _PAUSE = "limit ", "pause "


class HandSet:
    """What one process or home knows of them; never changed, but replaced."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, tuple[int, Value]]) -> None:
        removed = sorted(version for version, value in entries.values() if value is None)
        oldest = removed[-_MOST_REMOVED] if len(removed) > _MOST_REMOVED else 0
        self._entries = {
            name: (version, value)
            for name, (version, value) in entries.items()
            if value is not None or version >= oldest
        }

    @classmethod
    def of(cls, terms: Terms, versions: Mapping[str, int]) -> HandSet:
        """Those in these terms, and those that were taken away: they have nothing but a version."""
        present = _present(terms)
        names = {*present, *versions}
        return cls({name: (versions.get(name, 0), present.get(name)) for name in names})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandSet) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def versions(self) -> dict[str, int]:
        """When each was last changed, also those that were taken away."""
        return {name: version for name, (version, _) in sorted(self._entries.items())}

    @property
    def newest(self) -> int:
        """The version of the latest change."""
        return max((version for version, _ in self._entries.values()), default=0)

    def changed(self, before: Terms, after: Terms, *, version: int) -> HandSet:
        """These, and whatever differs between two terms as a change of this version."""
        old, new = _present(before), _present(after)
        names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        return HandSet(self._entries | {name: (version, new.get(name)) for name in names})

    def merged(self, other: HandSet) -> HandSet:
        """Of each the latest change that either of both knows."""
        entries = dict(self._entries)
        for name, entry in other._entries.items():
            if name not in entries or entry[0] > entries[name][0]:
                entries[name] = entry
        return self if entries == self._entries else HandSet(entries)

    def terms(self, offered: Terms) -> Terms:
        """The terms that these make, with what was offered where they have no line."""
        values = [value for _, value in self._entries.values()]
        lines = [line for line in offered.lines if line.source != STORE]
        paused = [
            name.removeprefix(_PAUSE) for name, (_, value) in self._entries.items() if value is True
        ]
        return Terms([*lines, *[value for value in values if isinstance(value, Line)]], paused)


def _present(terms: Terms) -> dict[str, Value]:
    limits = {_LIMIT + line.pattern: line for line in terms.lines if line.source == STORE}
    return {**limits, **{_PAUSE + key: True for key in terms.paused}}
