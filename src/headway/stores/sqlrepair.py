"""Recomputing the counts of a home's database from its tickets, in one transaction."""

from __future__ import annotations

from headway.stores.repair import Correction, is_sound_loan, miscounts
from headway.stores.sqlrows import read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from sqlite3 import Connection
    from typing import Any

    from headway.stores.admission import Admission
    from headway.stores.base import Census
    from headway.stores.ledger import Ledger
    from headway.stores.sqlbook import SqlBook

    Execute = Callable[..., Iterable[Any]]


def repair(connection: Connection, ledger: Ledger) -> list[Correction]:
    """Make the counts of the database agree with its tickets; the caller is under the guard."""
    # The dead first: their leases explain counts that are right.
    ledger.transact(connection, lambda book: _reclaim_dead(book, ledger))
    return ledger.transact(
        connection, lambda book: _recount(connection.execute, book, ledger.admission(book))
    )


def examine(connection: Connection) -> list[Correction]:
    """The counts of the database that do not agree with its tickets, at one instant."""
    execute = connection.execute
    execute("begin")
    try:
        return _wrong_counts(read_all(execute), _spent(execute))
    finally:
        execute("rollback")


def _reclaim_dead(book: SqlBook, ledger: Ledger) -> None:
    """Give back what dead holders left, also those whose lock file is gone."""
    ledger.reclaim(book, sorted({ticket.holder for ticket in (*book.parked(), *book.leases())}))


def _recount(execute: Execute, book: SqlBook, admission: Admission) -> list[Correction]:
    """Make the counts agree with the tickets; the book has read no ticket yet.

    Waiting tickets keep their ranks and collect their keys again from the first one: what they
    had reserved was reserved on counts that were wrong.
    """
    census, spent = read_all(execute), _spent(execute)
    corrections = _wrong_counts(census, spent)
    if not corrections:
        return []
    _mend_loans(execute, census)
    leases, parked = book.leases(), book.parked()
    for key in {key for ticket in (*leases, *parked) for key in ticket.path} | census.states.keys():
        state = book.key(key)
        state.used = state.reserved = state.waiting = state.promised = 0
        state.spent = spent.get(key, 0)
        if state.cooldown is not None and book.lease(state.cooldown.probe or "") is None:
            state.cooldown.probe = None
    for lease in leases:
        for key in lease.path:
            if key not in lease.borrowed:
                book.key(key).used += lease.weight
    for ticket in parked:
        admission.restart(ticket)
    book.flush()
    admission.serve_everyone(book.all_keys())
    return corrections


def _spent(execute: Execute) -> dict[str, int]:
    return dict(execute("select key, sum(count) from admitted group by key"))


def _wrong_counts(census: Census, spent: dict[str, int]) -> list[Correction]:
    return miscounts(census) + [
        Correction(key, "spent", found=state.spent, expected=spent.get(key, 0))
        for key, state in census.states.items()
        if state.spent != spent.get(key, 0)
    ]


def _mend_loans(execute: Execute, census: Census) -> None:
    """Keep the loans between leases; a waiting ticket borrows again on its way."""
    leases = {lease.id: lease for lease in census.leases}
    for lender, key, borrower in census.loans:
        if not is_sound_loan(leases.get(lender), key, leases.get(borrower)):
            execute("delete from loans where lender = ? and key = ?", (lender, key))
    execute(
        # A lease that is wrongly taken for a parent only ends by the longer way.
        "update leases set has_children = 1,"
        " lent = (select count(*) from loans where lender = leases.id)"
    )
