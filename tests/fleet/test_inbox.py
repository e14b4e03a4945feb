"""What a process hears from the server reaches whoever waits for it, whoever reads it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ConnectionError as HangUp
from tests.fleet.server import settled
from tests.slots.support import Worker, is_waiting, until

from headway import Governor
from headway.lean import deque
from headway.stores.own_tickets import OwnTickets
from headway.stores.redis_inbox import Inbox
from headway.stores.redis_link import Link
from headway.tickets import Granted, Ticket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fleet.server import Server

    from headway.tickets import Decision


class SlowLink(Link):
    """A way to a server on which nobody arrives before another one has set out, if one does."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "slow", timeout_seconds=5.0)
        self.connections = 0
        self._second = threading.Event()

    def new_connection(self) -> Any:
        self.connections += 1
        if self.connections == 1:
            self._second.wait(0.5)
        else:
            self._second.set()
        return super().new_connection()


def test_who_listens_and_who_dozes_share_one_connection(server: Server) -> None:
    """Both may be the first."""
    link = SlowLink(server.url)
    inbox = Inbox(link, "me", 5.0)
    dozing = threading.Thread(target=inbox.is_ringing, args=(0.0,))
    dozing.start()
    inbox.receive(0.0)
    dozing.join()
    assert link.connections == 1
    inbox.close()


def test_messages_that_the_read_of_a_broken_connection_took(server: Server) -> None:
    """The server may not know that it broke: when that read is over, they are looked for once."""
    inbox = Inbox(Link(server.url, "any", timeout_seconds=5.0), "me", 0.2)
    inbox.receive(0.0)
    inbox._hang_up()
    inbox.receive(0.0)
    inbox.has_gap = False  # whoever listens has caught up
    while not inbox.has_gap:
        inbox.receive(0.1)
    inbox.close()


def test_a_grant_that_is_heard_before_the_answer_is_not_lost() -> None:
    """Another thread may read the message first."""
    news: deque[Decision] = deque()
    own = OwnTickets(news)
    ticket = own["me-1"] = Ticket("me-1", ("k",), ("k",))
    grant = Granted(ticket.id, 7)
    own.decided(grant)
    assert not news
    own.parked(ticket, "k")
    assert list(news) == [grant]
    assert (ticket.at, ticket.token) == (None, 7)


def test_a_grant_of_a_ticket_that_came_to_nothing_is_forgotten() -> None:
    """Whoever comes later under that name waits for a grant of its own."""
    news: deque[Decision] = deque()
    own = OwnTickets(news)
    ticket = own["me-1"] = Ticket("me-1", ("k",), ("k",))
    own.decided(Granted(ticket.id, 7))
    own.forget(ticket.id)
    own[ticket.id] = ticket
    own.parked(ticket, "k")
    assert (list(news), ticket.at) == ([], "k")


@pytest.mark.parametrize("error", [HangUp, KeyboardInterrupt])
def test_what_stood_in_an_answer_that_was_lost_is_found_out(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A release lets another thread of the same process in, and only its answer says so."""
    run, trouble = Link.run, [error]

    def lose_an_answer(link: Link, connection: Any, words: Sequence[bytes], read: Any) -> Any:
        answer = run(link, connection, words, read)
        if words[0] == b"release" and trouble:
            raise trouble.pop()
        return answer

    with Governor(settled(monkeypatch), limits={"k": 1}) as governor:
        store: Any = governor._store
        slot = governor.slot("k")
        slot.__enter__()
        worker = Worker(lambda: governor.slot("k", task="next").__enter__())
        until(lambda: is_waiting(governor, "next") and not store._listening.inbox.has_gap)
        monkeypatch.setattr(Link, "run", lose_an_answer)
        with suppress(KeyboardInterrupt):
            slot.__exit__(None, None, None)
        worker.result()
