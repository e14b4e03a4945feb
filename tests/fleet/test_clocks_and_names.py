"""Machines of a fleet have clocks and names of their own: none of them is taken for another's."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.crash.kit import unshare
from tests.fleet.server import settled
from tests.slots.support import Held, Worker, is_waiting
from tests.slots.support import until as eventually

from headway import Governor
from headway.stores import redis_rows
from headway.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.away import Away
    from tests.fleet.conftest import Persons

_HOUR = 3600.0
_SOON = 60.0


@pytest.fixture(params=[-_HOUR, _HOUR], ids=["behind", "ahead"])
def wrong_clock(request: pytest.FixtureRequest) -> Callable[[pytest.MonkeyPatch], None]:
    """Have this process tell the time of day by a clock that is an hour off."""

    def set_it(monkeypatch: pytest.MonkeyPatch) -> None:
        right, shift = time.time, float(request.param)
        monkeypatch.setattr(time, "time", lambda: right() + shift)

    return set_it


def test_how_long_something_lasts_does_not_depend_on_the_viewers_clock(
    monkeypatch: pytest.MonkeyPatch, wrong_clock: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Since when it is held and waits, and until when it cools down, fit that clock's now."""
    with Governor(settled(monkeypatch), limits={"k": 1}) as governor:
        holder = Held(governor, "k", task="holder")
        waiter = Worker(lambda: governor.slot("k", task="waiter", timeout=_SOON).__enter__())
        eventually(lambda: is_waiting(governor, "waiter"))
        governor.cool_down("c", _HOUR)
        with monkeypatch.context() as patch:
            wrong_clock(patch)
            seen, now = governor.snapshot(), time.time()
        for since in (seen.leases[0].since, seen.waiting[0].since):
            assert abs(now - since) < _SOON
        (cooling,) = [limit.cooling_until for limit in seen.limits if limit.key == "c"]
        assert cooling is not None
        assert abs(cooling - now) == pytest.approx(_HOUR, abs=_HOUR / 2)
        holder.let_go()
        waiter.result()


def test_a_holder_with_a_wrong_clock_is_seen_aright_after_the_server_lost_its_data(
    monkeypatch: pytest.MonkeyPatch, wrong_clock: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """It tells again since when it holds its slot, by the server's clock."""
    with Governor(settled(monkeypatch), limits={"k": 1}) as governor:
        holder = Held(governor, "k")
        with monkeypatch.context() as patch:
            wrong_clock(patch)
            store = governor._store
            assert isinstance(store, RedisStore)
            store.version()
            waiter = Worker(lambda: governor.slot("k", timeout=_SOON).__enter__())
            eventually(lambda: bool(governor.snapshot().waiting))
            holder.let_go()
            lease = waiter.result()
        assert abs(lease.ticket.since - time.time()) < _SOON


def test_machines_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is on this one has the name alone."""
    name, url = os.uname().nodename, settled(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(redis_rows, "machine_name", lambda: "abcdef")
        other = Governor(url)
        held = Held(other, "k", task="there")
    with other, Governor(url) as governor:
        here = Held(governor, "k", task="here")
        hosts = {lease.task: lease.holder.host for lease in governor.snapshot().leases}
        assert hosts == {"here": name, "there": f"{name}#abcdef"}
        here.let_go()
        held.let_go()


def test_a_container_with_the_name_of_this_machine_is_shown_with_its_mark(person: Persons) -> None:
    """Its pids are not this machine's."""
    ann, bob = person("ann"), person("bob")
    command = "run", "--on", "k", "--", "sleep", "60"
    ann.terminal_for(*unshare("--pid", "--fork", "--mount-proc"), "headway", *command)
    until(bob.holds(1), "the slot")
    (lease,) = bob.status()["leases"]
    name, _, mark = lease["holder"]["host"].partition("#")
    assert name == os.uname().nodename
    assert mark
    assert f"{name}#{mark}" in bob.run("status").stdout


def test_jobs_of_another_board_at_the_same_path_are_counted(
    monkeypatch: pytest.MonkeyPatch, away: Away
) -> None:
    """Containers of one image have the same host name and home path, and boards of their own."""
    away.limit(k=1)
    away.ask("k", by=0)
    away.ask("k", by=1, name="job1")
    monkeypatch.setattr(redis_rows, "board_name", lambda _: "another")
    away.holders[2].introduce()

    assert away.holders[0].ahead("k", 2**52) == 0
    assert away.holders[2].ahead("k", 2**52) == 1


def test_a_job_of_another_board_is_not_taken_for_the_own_one_of_its_number(person: Persons) -> None:
    """Neither shown as it, nor cancelled in its place."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "agent", "1")
    ann.start("run", "--", "sleep", "60")
    until(ann.holds(1), "the slot")
    bob.run("submit", "--", "echo", "of-bob")
    until(lambda: len(bob.status()["waiting"]) == 1, "the job in line")
    ann.run("submit", "--no-start", "--", "echo", "of-ann")
    rows = ann.status()["waiting"]
    assert sorted(row["id"].rpartition("-")[2] for row in rows) == ["job1", "job1"]
    assert [row["holder"]["command"] for row in rows if row["id"] == "job1"] == [
        "job 1: echo of-ann"
    ]
    (foreign,) = [row for row in rows if row["id"] != "job1"]
    assert "of-ann" not in foreign["holder"]["command"]
    assert json.loads(ann.run("why", "1", "--json").stdout)["job"]["command"] == ["echo", "of-ann"]

    assert ann.run("cancel", foreign["id"]).returncode == 0

    assert json.loads(ann.run("jobs", "--json").stdout)[0]["state"] == "queued"
    until(
        lambda: json.loads(bob.run("jobs", "--json").stdout)[0]["state"] == "cancelled", "its end"
    )
    bob.run("worker", "stop")
