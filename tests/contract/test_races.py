"""Rules 1 and 7 under threads: never over, and one end for each ticket, whatever races."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from headway import keys
from headway.tickets import Granted, Refused, Ticket, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.contract.rig import Rig

    from headway.stores.base import Store

THREADS = 6


def test_threads_together_never_go_over_the_limit(rig: Rig) -> None:
    """However many threads of several holders come and go, the leases stay within the limit."""
    rig.limits({"llm": 3, "llm/a": 2})
    door = threading.Lock()
    weights = {"llm": 0, "llm/a": 0}
    peaks = dict(weights)

    def come_and_go(number: int) -> int:
        store, dice, entered = rig.holders[number % 3], random.Random(number), 0
        for _ in range(60):
            ticket = _ticket(store, dice.choice(["llm/a", "llm/b"]), weight=dice.choice([1, 2]))
            if isinstance(store.request(ticket, wait=False), Refused):
                continue
            entered += 1
            with door:
                for key in weights.keys() & set(ticket.path):
                    weights[key] += ticket.weight
                    peaks[key] = max(peaks[key], weights[key])
            with door:
                for key in weights.keys() & set(ticket.path):
                    weights[key] -= ticket.weight
            store.release(ticket, 0.0)
        return entered

    entered = _together([partial(come_and_go, number) for number in range(THREADS)])
    assert sum(entered) > 0
    assert peaks["llm"] <= 3
    assert peaks["llm/a"] <= 2
    rig.look()
    assert rig.state("llm").used == 0


def test_a_cancel_and_a_withdrawal_agree_on_one_end(rig: Rig) -> None:
    """When a cancel and a time-out meet, exactly one of them ends the ticket."""
    rig.limit(llm=1)
    rig.ask("llm", by=0)
    for _ in range(25):
        ticket = rig.ask("llm", by=1)
        cancelled, verdict = _together(
            [lambda: rig.holders[2].cancel(ticket.id), lambda: rig.holders[1].withdraw(ticket)]  # noqa: B023
        )
        assert isinstance(verdict, Withdrawn) if cancelled else verdict is None
        rig.look(ended={ticket.id})
        assert rig.gone(ticket)
    rig.news()


def test_a_grant_and_a_withdrawal_agree_on_one_end(rig: Rig) -> None:
    """When a grant and a time-out meet, the ticket either runs or is gone, and its owner knows."""
    rig.limit(llm=1)
    for _ in range(25):
        running, ticket = rig.ask("llm", by=0), rig.ask("llm", by=1)
        released, verdict = _together(
            [lambda: rig.holders[0].release(running, 0.0), lambda: rig.holders[1].withdraw(ticket)]  # noqa: B023
        )
        assert released
        assert isinstance(verdict, Granted) or verdict is None
        rig.look(ended={running.id} if verdict else {running.id, ticket.id})
        assert rig.runs(ticket) == isinstance(verdict, Granted)
        assert rig.release(ticket) == isinstance(verdict, Granted)
    rig.news()


def test_a_grant_and_a_cancel_agree_on_one_end(rig: Rig) -> None:
    """Who was cancelled before the grant never starts; who started was not cancelled."""
    rig.limit(llm=1)
    for _ in range(25):
        running, ticket = rig.ask("llm", by=0), rig.ask("llm", by=1)
        _, cancelled = _together(
            [lambda: rig.holders[0].release(running, 0.0), lambda: rig.holders[2].cancel(ticket.id)]  # noqa: B023
        )
        rig.look(ended={running.id, ticket.id} if cancelled else {running.id})
        assert rig.runs(ticket) != cancelled
        assert rig.news() == {("withdrawn" if cancelled else "granted", ticket.id)}
        assert rig.release(ticket) != cancelled


def test_many_releases_of_one_lease_free_it_once(rig: Rig) -> None:
    """Of several threads that give the same lease back, one does."""
    rig.limit(llm=2)
    other = rig.ask("llm", by=1)
    for _ in range(15):
        ticket = rig.ask("llm", by=0)
        freed = _together([lambda: rig.holders[0].release(ticket, 0.0)] * 4)  # noqa: B023
        assert sorted(freed) == [False, False, False, True]
        rig.look(ended={ticket.id})
        assert rig.state("llm").used == 1
    assert rig.runs(other)


def _ticket(store: Store, key: str, *, weight: int) -> Ticket:
    return Ticket(store.new_id(), (key,), keys.path((key,)), weight=weight)


def _together(deeds: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do all of these at the same time, in a thread each; their answers in order."""
    start = threading.Barrier(len(deeds))

    def do(deed: Callable[[], Any]) -> Any:
        start.wait()
        return deed()

    with ThreadPoolExecutor(len(deeds)) as pool:
        return list(pool.map(do, deeds))
