"""One thread says what is ours while others ask and give back: all of it stays true."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Worker

from headway.tickets import Granted, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.away import Away

    from headway.stores.redis import RedisStore


def _after(
    store: RedisStore, name: str, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]
) -> None:
    """Have something happen after the next such operation was answered, before that is noted."""
    session: Any = store._session
    ask = session.ask

    def interrupted(operation: bytes, *arguments: object, **options: object) -> object:
        answer = ask(operation, *arguments, **options)
        if operation == name.encode():
            monkeypatch.undo()
            work()
        return answer

    monkeypatch.setattr(session, "ask", interrupted)


def _lose_all(away: Away) -> None:
    """The server forgets everything, and all announce themselves."""
    away.forget_all()
    for holder in reversed(away.holders):
        holder.version()


@pytest.fixture
def store(away: Away) -> RedisStore:
    """A holder to whom nothing is in doubt."""
    store: Any = away.holders[1]
    store.listen(0)
    return store  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_free", [True, False])
def test_what_is_decided_meanwhile(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch, *, is_free: bool
) -> None:
    """It is said as well, as soon as it is known."""
    away.limit(k=2 if is_free else 1)
    running = away.ask("k", by=0)
    _after(store, "request", monkeypatch, lambda: _lose_all(away))
    ticket, answer = away.ask_unseen("k", by=1)
    assert isinstance(answer, Granted if is_free else Waiting)

    store.listen(0)
    away.house._settle()  # type: ignore[attr-defined]

    assert away.used("k") == (2 if is_free else 1)
    away.store.release(running, 1.0)
    store.listen(1)
    assert ticket.token
    assert away.used("k") == 1


def test_whoever_checks_before_it_was_said(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is believed then."""
    away.limit(k=1)
    _after(store, "request", monkeypatch, lambda: _lose_all(away))
    ticket, _ = away.ask_unseen("k", by=1)

    assert not store.is_lost(ticket)
    assert away.used("k") == 1


def test_what_is_given_back_meanwhile(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not come back."""
    away.limit(k=1)
    ticket, _ = away.ask_unseen("k", by=1)
    _after(store, "release", monkeypatch, lambda: _lose_all(away))

    assert store.release(ticket, 1.0)

    assert away.store.census().leases == []


def test_who_leaves_the_line_meanwhile(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not stand there again."""
    away.limit(k=1)
    away.ask("k", by=0)
    ticket, _ = away.ask_unseen("k", by=1)
    _after(store, "withdraw", monkeypatch, lambda: _lose_all(away))

    assert store.withdraw(ticket) is None

    assert away.store.census().waiting == []


def test_two_threads_that_both_have_to_say_it(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one was granted after it stays, though nobody has noted it yet."""
    away.limit(k=1)
    away.lose_sight_of(1)
    session: Any = store._session
    operate, main = session._operate, threading.current_thread()
    has_heard, may_go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any, **options: Any) -> Any:
        answer = operate(*arguments, **options)
        if threading.current_thread() is not main and answer[0] == b"stranger":
            has_heard.set()
            may_go_on.wait()
        return answer

    with monkeypatch.context() as slow:
        slow.setattr(session, "_operate", slowly)
        other = Worker(store.version)
        assert has_heard.wait(60)

        def let_it_go_on() -> None:
            may_go_on.set()
            other.end()

        _after(store, "request", monkeypatch, let_it_go_on)
        ticket, answer = away.ask_unseen("k", by=1)

    assert isinstance(answer, Granted)
    assert isinstance(away.ask_unseen("k", by=2)[1], Waiting)
    assert not store.is_lost(ticket)


def test_a_look_that_meets_a_release(
    away: Away, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is not known because it was given back is no reason to say anything."""
    away.limit(k=1)
    ticket, _ = away.ask_unseen("k", by=1)
    session: Any = store._session
    announced, ask = session.announcements, session.ask

    def after_a_release(operation: bytes, *arguments: object, **options: object) -> object:
        monkeypatch.undo()
        if operation == b"look":
            Worker(lambda: store.release(ticket, 1.0)).result()
        return ask(operation, *arguments, **options)

    session.has_gap = True
    monkeypatch.setattr(session, "ask", after_a_release)
    store.listen(0)

    assert session.announcements == announced
    assert not store.news
