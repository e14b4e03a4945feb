"""The terms of a namespace: they stand on the server, and every process knows them.

The server does not know patterns. Whoever asks for a key that is new to it says what the terms
make of it, and by which version of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.limits import STORE, Terms
from headway.stores.book import changed_keys, new_state
from headway.stores.redis_rows import pairs, state_from, terms_from, terms_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.stores.redis_session import Session

_MANY_PATHS = 4096


class KnownTerms:
    """What one process knows of them."""

    def __init__(self) -> None:
        self.session: Session
        self.version, self._terms, self._is_old = -1, Terms(), True
        self._routes: dict[tuple[str, ...], list[tuple[int, bool, int]]] = {}

    def seen(self, version: int) -> None:
        """The server has this version now."""
        self._is_old = self._is_old or version != self.version

    def read(self) -> Terms:
        """The terms in force."""
        version, blob = self.session.look(b"terms")
        self._know(int(version), terms_from(blob))
        return self._terms

    def _know(self, version: int, terms: Terms) -> None:
        self.version, self._terms, self._is_old = version, terms, False
        self._routes.clear()

    def route(self, path: tuple[str, ...]) -> list[tuple[int, bool, int]]:
        """What the terms say of each key."""
        known = self._routes.get(path)
        if known is None:
            if len(self._routes) >= _MANY_PATHS:
                self._routes.clear()
            states = [new_state(key, self._terms) for key in path]
            known = self._routes[path] = [(s.cap, s.paused, s.budget) for s in states]
        return known

    def brought(self) -> tuple[str | bool, int]:
        """What we know, for a server that knows none."""
        is_any = self._terms.lines or self._terms.paused
        return terms_text(self._terms) if is_any else False, self.version

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
            given = [argument() for argument in arguments]
            known = self.version, self.route(path)
            answer = self.session.ask(name, *known, *given, shortcut=shortcut)
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
            version, known = self.version, pairs(self.session.look(b"keys"))
            states = [state_from(key.decode(), blob) for key, blob in known]
            changes = changed_keys(terms, states)
            if self.session.ask(b"set_terms", version, len(states), terms_text(terms), changes)[0]:
                self._know(version + 1, terms)
                return True

    def forget_offers(self, version: int) -> None:
        """Nobody is alive who has set limits from code, up to this version of the terms."""
        terms = self.read()
        kept = Terms([line for line in terms.lines if line.source == STORE], terms.paused)
        if kept != terms and self.version == version:
            self.replace(kept, terms, None)
