"""A server that has lost its data gets its limits back from those who know them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from headway import AtCapacity, Governor
from headway.stores.home_record import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fleet.away import Away
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server

    Come = Callable[[str], Governor]


@pytest.fixture
def come(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Governor]]:
    """Governors with homes of their own."""
    made: list[Governor] = []

    def governor(home: str) -> Governor:
        monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / home))
        made.append(Governor(server.url))
        return made[-1]

    yield governor
    for each in made:
        each.close()


def _limits(governor: Governor) -> dict[str, object]:
    return {line.pattern: line.written() for line in governor.lines()}


def _version(governor: Governor) -> int:
    return int(governor._store._known.version)  # type: ignore[attr-defined]


def _beat(governor: Governor) -> None:
    governor._store._session.beat()  # type: ignore[attr-defined]


def _forget(tmp_path: Path, *homes: str) -> None:
    """Let homes lose what they have written down."""
    for home in homes:
        shutil.rmtree(tmp_path / home / DIRECTORY)


def test_a_newcomer_that_offers_a_limit_does_not_make_all_others_forgotten(
    person: Persons, server: Server
) -> None:
    """A process that holds a slot brings the limits back, and the newcomer waits behind it."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "llm", "1")
    ann.holding("llm/x")
    shutil.rmtree(ann.home / DIRECTORY)
    bob.home.mkdir(mode=0o700)
    (bob.home / "config.toml").write_text('[limits]\n"llm/other" = 7\n')

    server.client.flushall()
    newcomer = bob.start("run", "--on", "llm/x", "--timeout", "5s", "--", "true")

    assert newcomer.wait() == 124
    rows = {row["key"]: row["limit"] for row in bob.status()["limits"]}
    assert (rows["llm"], rows["llm/other"]) == (1, 7)


def test_a_limit_that_another_home_has_lowered_stays_so(
    come: Come, server: Server, tmp_path: Path
) -> None:
    """A process learns of it with its next beat, though it asks for nothing."""
    one, other = come("one"), come("other")
    one.set_limit("llm", 5)
    other.set_limit("llm", 1)
    other.pause("agent")
    _beat(one)
    other.close()
    _forget(tmp_path, "one", "other")

    server.client.flushall()

    assert _limits(one) == {"llm": 1}
    assert [limit.key for limit in one.snapshot().limits if limit.paused] == ["agent"]


def test_a_home_brings_the_limits_that_were_set_from_it(come: Come, server: Server) -> None:
    """Nobody else is alive; other homes cannot know them."""
    with come("one") as one:
        one.set_limit("llm", 1)
        one.set_limit("agent", 9)
        one.unset_limit("agent")

    server.client.flushall()

    assert _limits(come("other")) == {}
    assert _limits(come("one")) == {"llm": 1}
    assert _limits(come("other")) == {"llm": 1}


def test_a_limit_that_was_taken_away_is_not_brought_back(come: Come, server: Server) -> None:
    """Also not by a home that has not heard of that, whichever of both comes first."""
    with come("one") as one:
        one.set_limit("llm", 1)
    with come("other") as other:
        other.unset_limit("llm")

    server.client.flushall()

    assert _limits(come("one")) == {"llm": 1}
    assert _limits(come("other")) == {}
    assert _limits(come("one")) == {}


def test_what_is_set_after_the_loss_stands_beside_what_is_brought(
    come: Come, server: Server
) -> None:
    """Each limit has a version of its own: the latest change of each stands."""
    one = come("one")
    one.set_limit("llm", 1)
    one.set_limit("agent", 5)

    server.client.flushall()
    other = come("other")
    other.set_limit("agent", 2)

    assert _limits(one) == {"llm": 1, "agent": 2}


def test_offered_limits_come_back_with_those_who_are_alive(
    come: Come, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not written down anywhere, and end with the processes that offered them."""
    monkeypatch.setenv("HEADWAY_LIMITS", "llm=4")
    one = come("one")
    assert _limits(one) == {"llm": 4}
    monkeypatch.delenv("HEADWAY_LIMITS")

    server.client.flushall()

    assert _limits(come("other")) == {}
    _beat(one)
    assert _limits(come("other")) == {"llm": 4}


def test_limits_outlive_everything_else_in_a_namespace_that_nobody_uses(
    come: Come, server: Server, tmp_path: Path
) -> None:
    """Rows expire after a week; the limits that people set do not, and offered ones are dropped."""
    with come("one") as one:
        one.set_limit("llm", 1)
        with one.slot("llm/x"):
            pass
    _forget(tmp_path, "one")
    for name in server.client.scan_iter():
        if server.client.ttl(name) >= 0:
            server.client.pexpire(name, 0)

    newcomer = come("other")

    assert _limits(newcomer) == {"llm": 1}
    assert newcomer._store.is_settling  # type: ignore[attr-defined]


def test_limits_that_are_offered_again_change_nothing(
    come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process of a home offers its file: the others need not read the limits each time."""
    monkeypatch.setenv("HEADWAY_LIMITS", "llm=4")
    one = come("one")
    _limits(one)
    before = one._store._known.version  # type: ignore[attr-defined]

    come("one")

    _limits(one)
    assert one._store._known.version == before  # type: ignore[attr-defined]


def test_nothing_is_granted_until_limits_that_come_late_are_set(away: Away) -> None:
    """Who announces in the last moment of settling gets the time to set what it knows."""
    away.limit(k=1)
    away.forget_all()
    away.holders[2].version()  # it has never asked for the limits
    away.put("settles_at", away.clock() + 0.1)

    away.holders[0].version()

    assert away.fact("settles_at") >= away.clock() + 1
    assert [line.pattern for line in away.holders[2].terms().lines] == ["k"]


def test_the_limits_of_a_key_that_is_announced_are_those_of_all(come: Come, server: Server) -> None:
    """Not those that its holder knew when it last asked for something."""
    one, other = come("one"), come("other")
    one.set_limit("llm", 5)
    with one.slot("llm/x"):
        other.set_limit("llm", 1)
        server.client.flushall()
        other.lines()  # has brought them
        _beat(one)

        (row,) = [row for row in one.snapshot().limits if row.key == "llm"]
        assert row.limit == 1


def test_a_version_of_the_limits_never_means_others_after_another_loss(
    come: Come, server: Server
) -> None:
    """Who asks for a new key by limits of before the loss does not make it by those."""
    one, other = come("one"), come("other")
    for slots in range(10, 40):  # more than seconds pass
        one.set_limit("llm", slots)
    before, slots = _version(one), 1
    server.client.flushall()
    other.set_limit("llm", slots)
    while _version(other) < before:
        slots = 3 - slots
        other.set_limit("llm", slots)

    with pytest.raises(AtCapacity), one.slot("llm/x", wait=False):
        pass

    assert one._store.census().states["llm"].cap == slots
