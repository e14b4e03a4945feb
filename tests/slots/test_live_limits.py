"""Limits and pauses change while work runs, and a home's file keeps them (rule 12)."""

from __future__ import annotations

import os
import threading
import tomllib
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import Held, Worker, assert_clean, is_waiting, until, waiting_tasks

from headway import AtCapacity, ConfigError, Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slots.conftest import Govern

_WRITTEN_BY_A_PERSON = """\
# our machine has little memory
[queue]
boost = "5m"  # calm

[limits]
# two, says Ada
"agent" = 2   # not more
"llm/openai" = 1
"""


@pytest.fixture
def path(home: str) -> str:
    """Where the home's settings are."""
    os.makedirs(home)
    return os.path.join(home, "config.toml")


@pytest.fixture
def pair(home: str, path: str) -> Iterator[tuple[Governor, Governor]]:
    """Two governors of one home, whose file a person wrote."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(_WRITTEN_BY_A_PERSON)
    with Governor(f"sqlite:///{home}") as one, Governor(f"sqlite:///{home}") as other:
        yield one, other


def text_of(path: str) -> str:
    """The whole file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_raising_a_limit_admits_who_waits(govern: Govern) -> None:
    """Two more slots are two more at once, first come first served."""
    governor = govern({"k": 1})
    done: list[str] = []
    gate = threading.Event()

    def enter(name: str) -> None:
        with governor.slot("k", task=name):
            done.append(name)
            gate.wait(10)

    with Held(governor, "k"):
        workers = []
        for name in ("one", "two", "three"):
            workers.append(Worker(partial(enter, name)))
            until(partial(is_waiting, governor, name))
        governor.set_limit("k", 3)
        until(lambda: sorted(done) == ["one", "two"])
        assert waiting_tasks(governor) == ["three"]
        gate.set()
    for worker in workers:
        worker.result()
    assert_clean(governor)


def test_lowering_a_limit_drains_and_grants_nothing_meanwhile(govern: Govern) -> None:
    """Nobody is stopped; nobody gets in before there is room under the new limit."""
    governor = govern({"k": 3})
    held = [Held(governor, "k") for _ in range(3)]

    governor.set_limit("k", 1)

    assert governor.capacity("k").used == 3
    for count, one in enumerate(held[:2]):
        one.let_go()
        assert governor.capacity("k").used == 2 - count
        with pytest.raises(AtCapacity):
            governor.slot("k", wait=False).__enter__()
    held[2].let_go()
    with governor.slot("k", wait=False):
        pass


def test_a_waiter_that_became_too_heavy_is_refused(govern: Govern) -> None:
    """Lowering the limit below its weight tells it so, instead of letting it wait for ever."""
    governor = govern({"k": 3})

    def enter() -> None:
        with governor.slot("k", weight=3, task="heavy"):
            pass

    with Held(governor, "k"):
        worker = Worker(enter)
        until(lambda: waiting_tasks(governor) == ["heavy"])
        governor.set_limit("k", 2)
        with pytest.raises(AtCapacity, match="weight 3 can never fit on k"):
            worker.result()
    assert_clean(governor)


def test_a_limit_set_later_counts_what_is_held_already(govern: Govern) -> None:
    """Ancestors without a limit were counted all along."""
    governor = govern()

    with Held(governor, "llm/a/x"), Held(governor, "llm/b"):
        governor.set_limit("llm", 2)
        assert governor.capacity("llm/c").free == 0
        governor.set_limit("llm/*", 1)
        assert governor.capacity("llm/a").limit == 1
        assert governor.capacity("llm/c").limit == 1


def test_unsetting_a_limit_lets_the_next_less_specific_line_count(govern: Govern) -> None:
    """Exact line, then pattern, then none; and ``agent`` falls back to its default."""
    governor = govern()
    governor.set_limit("llm/*", 5)
    governor.set_limit("llm/a", 2)
    governor.set_limit("agent", 9)

    seen = [governor.capacity("llm/a").limit]
    governor.unset_limit("llm/a")
    seen.append(governor.capacity("llm/a").limit)
    governor.unset_limit("llm/*")
    seen.append(governor.capacity("llm/a").limit)
    governor.unset_limit("agent")
    governor.unset_limit("never/set")

    assert seen == [2, 5, "unlimited"]
    assert governor.capacity("agent").limit == 3


def test_unlimited_is_a_limit_too(govern: Govern) -> None:
    """The word takes a bound away, even the default one, and admits who waits."""
    governor = govern({"k": 1})
    with Held(governor, "k"):
        worker = Worker(lambda: governor.slot("k").__enter__().id)
        until(lambda: len(waiting_tasks(governor)) == 1)
        governor.set_limit("k", "unlimited")
        assert worker.result()
    governor.set_limit("agent", "unlimited")
    assert governor.capacity("agent").free == "unlimited"


def test_without_settings_agent_has_three_slots(govern: Govern) -> None:
    """The default is shown as what it is, and everything else is unlimited."""
    governor = govern()

    (row,) = governor.snapshot().limits

    assert (row.key, row.limit, row.source) == ("agent", 3, "default")
    assert governor.capacity("agent/x").free == 3
    assert governor.capacity("llm/openai").free == "unlimited"


def test_a_pause_stops_admission_below_and_not_work(govern: Govern) -> None:
    """Running work goes on, new work waits and says why, and resuming admits it."""
    governor = govern({"llm/a": 2})

    with governor.slot("llm/a/x"):
        governor.pause("llm")
        governor.pause("llm")
        capacity = governor.capacity("llm/a")
        assert capacity.blocked_by is not None
        assert (capacity.blocked_by.key, capacity.blocked_by.reason) == ("llm", "paused")
        assert capacity.free == 0
        worker = Worker(lambda: governor.slot("llm/a/y", task="new").__enter__().id)
        until(lambda: waiting_tasks(governor) == ["new"])
        assert governor.snapshot().waiting[0].blocked_by.reason == "paused"
        with governor.slot("other", wait=False):
            pass
    assert governor.capacity("llm").used == 0

    governor.resume("llm")
    governor.resume("llm")

    assert worker.result()
    assert governor.capacity("llm").blocked_by is None
    assert_clean(governor)


def test_limits_are_written_to_the_file_and_comments_survive(
    pair: tuple[Governor, Governor], path: str
) -> None:
    """Only the lines that changed differ from what the person wrote."""
    one, _ = pair
    os.chmod(path, 0o640)

    one.set_limit("llm/openai", 4)
    one.set_limit("llm/*", "unlimited")
    one.set_limit("agent", 5)
    one.pause("llm/openai")

    written = text_of(path)
    for comment in ("# our machine has little memory", "# calm", "# two, says Ada", "# not more"):
        assert comment in written
    document = tomllib.loads(written)
    assert document["limits"] == {"agent": 5, "llm/openai": 4, "llm/*": "unlimited"}
    assert document["paused"] == ["llm/openai"]
    assert document["queue"] == {"boost": "5m"}
    assert os.stat(path).st_mode & 0o777 == 0o640

    one.unset_limit("llm/openai")
    one.unset_limit("llm/*")
    one.resume("llm/openai")
    one.set_limit("agent", 2)

    assert tomllib.loads(text_of(path)) == {
        "queue": {"boost": "5m"},
        "limits": {"agent": 2},
        "paused": [],
    }
    assert "# two, says Ada" in text_of(path)
    assert [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".new")] == []


def test_a_change_is_seen_by_another_governor_at_once(pair: tuple[Governor, Governor]) -> None:
    """There is one truth, whoever looks."""
    one, other = pair

    one.set_limit("k", 7)
    one.pause("agent")

    assert other.capacity("k").limit == 7
    assert {row.key: (row.limit, row.source, row.paused) for row in other.snapshot().limits} == {
        "agent": (2, "file", True),
        "k": (7, "file", False),
        "llm/openai": (1, "file", False),
    }
    other.resume("agent")
    other.unset_limit("k")
    assert one.capacity("agent").blocked_by is None
    assert one.capacity("k").limit == "unlimited"


def test_a_change_admits_who_waits_in_another_governor(pair: tuple[Governor, Governor]) -> None:
    """Raising a limit here wakes a waiter there."""
    one, other = pair

    with Held(one, "llm/openai"):
        worker = Worker(lambda: other.slot("llm/openai").__enter__().id)
        until(lambda: len(waiting_tasks(one)) == 1)
        one.set_limit("llm/openai", 2)
        assert worker.result()


def test_a_hand_edit_counts_from_reload_or_the_next_opening(
    pair: tuple[Governor, Governor], home: str, path: str
) -> None:
    """Not before, and lines that were taken out are gone."""
    one, other = pair
    edited = '[limits]\n"llm/openai" = 6\n'
    with open(path, "w", encoding="utf-8") as file:
        file.write("paused = ['k']\n" + edited)
    assert one.capacity("llm/openai").limit == 1

    one.reload()

    assert other.capacity("llm/openai").limit == 6
    assert other.capacity("agent").limit == 3
    assert other.capacity("k").blocked_by is not None

    with open(path, "w", encoding="utf-8") as file:
        file.write(edited.replace("6", "8"))
    assert one.capacity("llm/openai").limit == 6
    with Governor(f"sqlite:///{home}"):
        assert one.capacity("llm/openai").limit == 8
        assert one.capacity("k").blocked_by is None


def test_a_bad_hand_edit_changes_nothing(pair: tuple[Governor, Governor], path: str) -> None:
    """Reloading it raises, naming file, key and value; what was in force stays in force."""
    one, other = pair
    with open(path, "w", encoding="utf-8") as file:
        file.write('[limits]\n"agent" = "7"\n')

    with pytest.raises(ConfigError) as caught:
        one.reload()

    for named in (path, "agent", "'7'"):
        assert named in str(caught.value)
    assert other.capacity("agent").limit == 2


@pytest.mark.parametrize(
    "broken", ["limits = 3\n", "[limits\n", 'paused = "abc"\n', "paused = 3\n"]
)
def test_a_file_that_cannot_be_changed_leaves_the_store_alone(
    pair: tuple[Governor, Governor], path: str, broken: str
) -> None:
    """File and store change together or not at all."""
    one, other = pair
    with open(path, "w", encoding="utf-8") as file:
        file.write(broken)

    change = one.pause if "paused" in broken else partial(one.set_limit, limit=9)
    with pytest.raises(ConfigError, match=os.path.basename(path)):
        change("agent")

    assert text_of(path) == broken
    assert other.capacity("agent").limit == 2
    assert other.capacity("agent").blocked_by is None


def test_limits_from_code_fill_in_what_a_home_does_not_say(
    pair: tuple[Governor, Governor], home: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the home says something else, that stands, and a warning says so."""
    one, _ = pair
    before = text_of(path)

    with Governor(f"sqlite:///{home}", limits={"agent": 9, "new": 2, "llm/openai": 1}):
        assert one.capacity("agent").limit == 2
        assert one.capacity("new").limit == 2

    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    for named in ("9", "'agent'", "2", "file"):
        assert named in warning
    assert text_of(path) == before


def test_two_programs_with_other_limits_in_code_share_the_first(
    home: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The second one is warned, and both see the same number."""
    with Governor(f"sqlite:///{home}", limits={"k": 2}) as one:
        assert caplog.records == []
        with Governor(f"sqlite:///{home}", limits={"k": 3}) as other:
            assert [one.capacity("k").limit, other.capacity("k").limit] == [2, 2]
    assert "'k'" in caplog.text
    assert not os.path.exists(os.path.join(home, "config.toml"))


def test_limits_from_the_environment_fill_in_too(
    home: str, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``HEADWAY_LIMITS`` offers, the file decides."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("[limits]\nagent = 2\n")
    monkeypatch.setenv("HEADWAY_LIMITS", "agent=4, llm/*=unlimited,k = 5,")

    with Governor(f"sqlite:///{home}") as governor:
        assert governor.capacity("agent").limit == 2
        assert governor.capacity("k").limit == 5
        (row,) = [row for row in governor.snapshot().limits if row.key == "k"]
        assert row.source == "environment"
    assert "agent" in caplog.text


def test_code_does_not_replace_limits_from_the_environment(
    home: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``HEADWAY_LIMITS`` is offered first; the other number is named in a warning."""
    monkeypatch.setenv("HEADWAY_LIMITS", "k=5")

    with Governor(f"sqlite:///{home}", limits={"k": 3}) as governor:
        assert governor.capacity("k").limit == 5
    assert "limit 3 for 'k' from code is not used" in caplog.text
