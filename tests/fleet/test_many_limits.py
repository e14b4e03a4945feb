"""Limits of a namespace with many keys, while new ones come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headway.limits import STORE, Line, Terms
from headway.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.away import Away

_MOST_CALLS = 4


class _Counted:
    """A store whose calls are counted, and beside which something happens after each look."""

    def __init__(self, store: RedisStore, after_look: Callable[[], None]) -> None:
        self.calls: list[bytes] = []
        self._look, self._after_look = store._session.look, after_look

    def look(self, name: bytes, *arguments: object, **more: Any) -> Any:
        self.calls.append(name)
        assert len(self.calls) <= _MOST_CALLS, f"it goes on and on: {self.calls}"
        answer = self._look(name, *arguments, **more)
        if name != b"set_terms":
            self._after_look()
        return answer


@pytest.fixture
def new_keys(away: Away) -> Callable[[], None]:
    """Have another process bring a key that nobody has asked for before."""
    count = 0

    def bring() -> None:
        nonlocal count
        count += 1
        away.ask_unseen(f"llm/new{count}", by=1)

    return bring


def _set_beside(away: Away, new_keys: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a limit on each key under llm while new ones come."""
    store = away.store
    assert isinstance(store, RedisStore)
    counted = _Counted(store, new_keys)
    before, after = store.terms(), Terms([Line("llm/*", 1, STORE)])
    monkeypatch.setattr(store._session, "look", counted.look)
    assert store.set_terms(after, expected=before)
    monkeypatch.undo()


def test_a_limit_is_set_in_few_calls_while_new_keys_come(
    away: Away, new_keys: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two calls another key comes; that makes none of them start over."""
    new_keys()

    _set_beside(away, new_keys, monkeypatch)

    caps = {key: state.cap for key, state in away.store.census().states.items()}
    limited = {key: cap for key, cap in caps.items() if "/" in key}
    assert limited == dict.fromkeys([f"llm/new{n}" for n in range(1, 5)], 1)


def test_a_key_that_came_meanwhile_is_closed_until_its_limit_is_known(away: Away) -> None:
    """Whoever set the limit was killed before it could say: the next request does, for all."""
    first, _ = away.ask_unseen("llm/a", by=1)
    store = away.store
    assert isinstance(store, RedisStore)
    store.terms()
    text = '[[["llm/*",1,"store",null]],[]]'
    assert store._session.ask(b"set_terms", store._known.version, text, [])[0]
    waiting, _ = away.ask_unseen("llm/b", by=1)
    assert away.runs(waiting)

    second = away.ask("llm/a", by=2)

    assert away.waits(second)
    away.holders[1].release(first, 1.0)
    assert away.runs(second)


def test_who_waits_is_read_once_for_all_keys_that_change(away: Away) -> None:
    """Not once for each: many keys may get a lower limit at once while many tickets wait."""
    many = 40
    for number in range(many):
        away.ask_unseen(f"llm/{number}", by=0)
    away.limit(k=1)
    for _ in range(3):
        away.ask("k", by=1)
    store = away.store
    before, after = store.terms(), store.terms().with_lines([Line("llm/*", 1, STORE)])
    calls = _line_reads(away)

    assert store.set_terms(after, expected=before)

    assert _line_reads(away) - calls < many


def _line_reads(away: Away) -> int:
    """How often the server has read a sorted set."""
    return int(away._client.info("commandstats")["cmdstat_zrange"]["calls"])
