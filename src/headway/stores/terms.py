"""The terms of a home: what its file says and what code offered, in force in its database.

The file is the truth, so file and database change in one order: whoever puts
something in force that stands in the file reads or writes the file under the
guard. What was read before could undo what another process has set meanwhile.
"""

from __future__ import annotations

from headway import config
from headway.errors import ConfigError
from headway.limits import FILE, Terms
from headway.stores.book import changed_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.config import Settings
    from headway.limits import Line
    from headway.stores.home import Home
    from headway.stores.ledger import Ledger
    from headway.stores.reader import Reader
    from headway.stores.sqlbook import SqlBook


class TermsInForce:
    """One process's way to the terms of a home, and what it last saw of them."""

    def __init__(self, home: Home, ledger: Ledger, reader: Reader) -> None:
        self._home, self._ledger, self._reader = home, ledger, reader
        # What was in force when last looked at: limits from code are nowhere else.
        self._known = Terms()

    def read(self) -> Terms:
        self._known = terms = self._reader.terms()
        return terms

    def agree_with(self, settings: Settings) -> bool:
        """Whether the terms in force are those of a file that was read before."""
        terms = self.read()
        return terms == terms.with_file(settings.lines, settings.paused)

    def replace(
        self, book: SqlBook, terms: Terms, expected: Terms, also: Callable[[], None] | None
    ) -> bool:
        """Change the terms if they are still the expected ones, and do ``also`` with it."""
        if book.terms() != expected:
            return False
        self._put_in_force(book, terms)
        if also is not None:
            also()
        return True

    def follow_file(self, book: SqlBook) -> list[Line]:
        """Put in force what the file says now; the lines that this made new or different."""
        settings, before = config.load(self._home.directory), book.terms()
        terms = before.with_file(settings.lines, settings.paused)
        if terms != before:
            self._put_in_force(book, terms)
        return [line for line in settings.lines if before.exact(line.pattern) != line]

    def write_into_new(self, book: SqlBook) -> None:
        """Fill in the terms of a new database, before anything is granted."""
        try:
            settings = config.load(self._home.directory)
            terms = self._known.with_file(settings.lines, settings.paused)
        except ConfigError:
            # Someone is editing the file: what was in force stays so.
            terms = self._known
        book.set_terms(terms)

    @property
    def knows_offers(self) -> bool:
        """Whether there are limits that do not stand in the file."""
        return bool(self._offers())

    def offer_again(self, book: SqlBook) -> None:
        """Set limits from code that were in force where a new database has none."""
        terms, _ = book.terms().with_offered(self._offers())
        if terms != book.terms():
            self._put_in_force(book, terms)

    def forget_offers(self, book: SqlBook) -> None:
        """Take limits from code away: nobody is alive who has set them."""
        terms = book.terms()
        kept = Terms([line for line in terms.lines if line.source == FILE], terms.paused)
        if kept != terms:
            self._change(book, kept)

    def _offers(self) -> list[Line]:
        return [line for line in self._known.lines if line.source != FILE]

    def _put_in_force(self, book: SqlBook, terms: Terms) -> None:
        self._change(book, terms)
        self._known = terms

    def _change(self, book: SqlBook, terms: Terms) -> None:
        book.set_terms(terms)
        states = [book.key(key) for key in book.all_keys()]
        self._ledger.admission(book).change(changed_keys(terms, states))
