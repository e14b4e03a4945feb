"""The terms of a namespace: they stand on the server, and every process knows them.

The server does not know patterns. Whoever asks for a key that is new to it says what the terms
make of it, and by which version of them.

A server that has lost its data gets them back from those who know them. What people set is
known to each process and written down in its home; what was offered, to those who are alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.limits import STORE, Terms
from headway.stores.book import new_state, wanted_changes
from headway.stores.hand_set import HandSet
from headway.stores.redis_rows import terms_and_versions, terms_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.limits import Line
    from headway.stores.home_record import HomeRecord
    from headway.stores.redis_session import Session

    Route = list[tuple[int, bool, int]]

_MANY_PATHS = 4096


class _Version:
    """The terms of one version. In one piece: another thread must not meet parts of two."""

    __slots__ = ("epoch", "number", "routes", "terms")

    def __init__(self, epoch: str, number: int, terms: Terms) -> None:
        self.epoch, self.number, self.terms = epoch, number, terms
        self.routes: dict[tuple[str, ...], Route] = {}

    def route(self, path: tuple[str, ...]) -> Route:
        known = self.routes.get(path)
        if known is None:
            if len(self.routes) >= _MANY_PATHS:
                self.routes.clear()
            states = [new_state(key, self.terms) for key in path]
            known = self.routes[path] = [(s.cap, s.paused, s.budget) for s in states]
        return known


class KnownTerms:
    """What one process knows of them."""

    def __init__(self, record: HomeRecord) -> None:
        self.session: Session
        self._record = record
        self._known, self._is_old = _Version("", -1, Terms()), True
        # All that this process has ever heard of what people set.
        self._hand_set = HandSet({})
        # What was offered to the server before it lost its data.
        self._lost_offers: list[Line] = []
        # Whether the server lacks something of what we know.
        self.has_more = False

    @property
    def version(self) -> int:
        return self._known.number

    @property
    def epoch(self) -> str:
        """The state of the server's knowledge that the version belongs to."""
        return self._known.epoch

    def seen(self, version: int) -> None:
        """The server has this version now."""
        self._is_old = self._is_old or version != self.version

    def doubt(self, epoch: str) -> None:
        """Versions of another epoch than this one say nothing."""
        self._is_old = self._is_old or epoch != self.epoch

    def read(self) -> Terms:
        """The terms in force."""
        while True:
            version, blob = self.session.look(b"terms")
            self.learn(self.session.epoch, int(version), blob)
            if not self.has_more or self._put(self._known.terms, self._hand_set):
                return self._known.terms

    def keep_up(self) -> None:
        """Read the terms if others have changed them: we may be the last to know them.

        A process that has never asked for anything has no need to know them.
        """
        if self._is_old and self.version >= 0:
            self.read()

    def learn(self, epoch: str, version: int, blob: bytes | str) -> None:
        """The server has these terms, to which we may have something to add."""
        if epoch != self._known.epoch:
            self._lost_offers = [x for x in self._known.terms.lines if x.source != STORE]
        terms, versions = terms_and_versions(blob)
        there = HandSet.of(terms, versions)
        self._hand_set = there.merged(self._hand_set).merged(self._record.hand_set)
        wanted, _ = self._hand_set.terms(terms).with_offered(self._lost_offers)
        self.has_more = self._hand_set != there or wanted != terms
        self._known, self._is_old = _Version(epoch, version, wanted), self.has_more
        if not self.has_more:
            self._lost_offers = []
        self._record.keep(self._hand_set)

    def bring(self) -> None:
        """Give a server that has lost its data what we know of the terms."""
        if self.has_more:
            self.read()

    @property
    def knows_any(self) -> bool:
        """Whether we may have something to bring."""
        return bool(self._hand_set or self._known.terms.lines or self._record.hand_set)

    def route(self, path: tuple[str, ...]) -> Route:
        """What the terms say of each key."""
        return self._known.route(path)

    def ask(
        self,
        name: bytes,
        path: tuple[str, ...],
        *arguments: Callable[[], object],
        shortcut: Sequence[bytes] = (),
    ) -> Any:
        """Ask for something that may bring new keys."""
        while True:
            if self._is_old:
                self.read()
            given, known = [argument() for argument in arguments], self._known
            answer = self.session.ask(
                name, known.number, known.route(path), *given, shortcut=shortcut
            )
            if answer[0] != "terms":
                return answer
            self._is_old = True

    def replace(self, terms: Terms, expected: Terms, also: Callable[[], None] | None) -> bool:
        """Change the terms if they are still the expected ones, after ``also``."""
        while True:
            if self.read() != expected:
                return False
            if also is not None:
                also()
                also = None
            if terms == expected:
                return True  # others need not read them again
            version = max(int(self.session.now * 1e6), self._hand_set.newest + 1)
            hand_set = self._hand_set.changed(expected, terms, version=version)
            if self._put(terms, hand_set):
                self._record.keep(hand_set, is_own=True)
                return True

    def _put(self, terms: Terms, hand_set: HandSet) -> bool:
        """Replace the version that we know, unless somebody else did."""
        present, text = self._known, terms_text(terms, hand_set.versions)
        known = [name.decode() for name in self.session.look(b"key_names")]
        wanted = wanted_changes(terms, known)
        is_set, new = self.session.ask(b"set_terms", present.number, text, wanted)
        if not is_set:
            return False
        self._hand_set, self._lost_offers, self.has_more = hand_set, [], False
        self._known = _Version(present.epoch, present.number + 1, terms)
        self._is_old = False
        if new:
            # Keys that came after the look: closed until they have their limit, which
            # any request for them brings as well.
            self.session.ask(b"fill_in", self.version, wanted_changes(terms, new))
        return True

    def forget_offers(self, version: int) -> None:
        """Nobody is alive who has set limits from code, up to this version of the terms."""
        terms = self.read()
        kept = Terms([line for line in terms.lines if line.source == STORE], terms.paused)
        if kept != terms and self.version == version:
            self.replace(kept, terms, None)
