"""``HEADWAY=off``: every request is granted at once, and nothing outside the process is touched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.cli.kit import Shell

import headway
from headway import ConfigError, Governor
from headway.events import Granted, Released
from headway.harness import Command
from headway.llm import HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.events import Event


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch, home: str) -> Path:
    """The home that is not to be touched; its limit would let nobody in twice."""
    monkeypatch.setenv("HEADWAY_LIMITS", "agent=1,llm=1")
    monkeypatch.setenv("HEADWAY", "off")
    return Path(home)


def test_slots_are_granted_and_no_home_is_made(off: Path) -> None:
    """However heavy, nested and impatient; and with the usual attributes."""
    with headway.slot("agent/claude", weight=9, task="t") as lease:
        assert (lease.task, lease.keys, lease.lost) == ("t", ("agent/claude",), False)
        assert lease.waited_seconds < 1
        with headway.slot("agent/claude", wait=False) as inner:
            assert inner.token > lease.token
            assert inner.environ()["HEADWAY_LEASE"].split()[0] == inner.id
    assert lease.ended
    assert not off.exists()


def test_coroutines_and_decorators_too(off: Path) -> None:
    """A decorated function and an asynchronous slot inside of each other."""

    @headway.limited("llm/openai")
    async def ask() -> str:
        async with headway.slot("llm/openai", timeout=0):
            return "answer"

    async def scene() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(50)))

    assert asyncio.run(scene()) == ["answer"] * 50
    assert not off.exists()


def test_events_and_snapshots_are_those_of_the_process(off: Path) -> None:
    """So that tests can assert on them."""
    events: list[Event] = []
    with Governor() as governor:
        governor.subscribe(events.append)
        with governor.slot("llm/openai", task="t"):
            (lease,) = governor.snapshot().leases
            assert (lease.keys, lease.task) == (("llm/openai",), "t")
            assert governor.capacity("agent").limit == headway.UNLIMITED
    assert [event.kind for event in events] == [Granted.kind, Released.kind]
    assert not off.exists()


CHANGES: list[Callable[[Governor], object]] = [
    lambda governor: governor.set_limit("agent", 1),
    lambda governor: governor.set_limit("llm/x", {"requests_per_minute": 1}),
    lambda governor: governor.unset_limit("agent"),
    lambda governor: governor.pause("agent"),
    lambda governor: governor.resume("agent"),
    lambda governor: governor.cool_down("agent/x", 60),
    lambda governor: governor.reload(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_keeps_anyone_out(off: Path, change: Callable[[Governor], object]) -> None:
    """Limits, pauses and cool-downs are accepted, and nothing comes of them."""
    with Governor(limits={"agent/x": 1}) as governor:
        change(governor)
        for _ in range(3):
            outer = governor.slot("agent/x", "llm/x", weight=4, wait=False)
            with outer, governor.slot("agent/x", "llm/x", wait=False):
                pass
    with Governor() as governor, pytest.raises(ConfigError, match="slots"):
        governor.set_limit("agent", 0)
    assert not off.exists()


def test_other_stores_are_not_opened_and_memory_keeps_its_limits(off: Path, tmp_path: Path) -> None:
    """A directory or a server is shared; what is in memory is the test's own."""
    directory = f"sqlite:///{tmp_path}/other"
    with Governor(directory, limits={"agent": 1}) as governor, governor.slot("agent", weight=2):
        pass
    with Governor("redis://no-such-host.invalid") as governor, governor.slot("agent", weight=9):
        pass
    with (
        Governor("memory://", limits={"agent": 1}) as governor,
        governor.slot("agent"),
        pytest.raises(headway.AtCapacity),
        governor.slot("agent", wait=False),
    ):
        pass
    assert not (tmp_path / "other").exists()
    assert not off.exists()


def test_it_can_be_switched_while_the_process_runs(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixtures do so between tests."""
    monkeypatch.setenv("HEADWAY_LIMITS", "agent=1")
    with headway.slot("agent"):
        assert Path(home).exists()
        monkeypatch.setenv("HEADWAY", "off")
        with headway.slot("agent", wait=False):
            pass
        monkeypatch.setenv("HEADWAY", "on")
        with pytest.raises(headway.AtCapacity), headway.slot("agent", wait=False):
            pass


@pytest.mark.parametrize("value", ["0", "false", "OFF", "no"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """With what to write: a limit that is off by a mistake, or on, would be found too late."""
    monkeypatch.setenv("HEADWAY", value)
    with pytest.raises(ConfigError, match=f'HEADWAY = {value!r} is neither "on" nor "off"'):
        headway.slot("agent")
    with pytest.raises(ConfigError, match="HEADWAY"):
        Governor()


def test_the_harness_runs_without_its_guard(off: Path) -> None:
    """Two of one wait for each other, so both must be let in."""
    meet = 'touch "$0.$1"; while ! [ -e "$0.a" ] || ! [ -e "$0.b" ]; do sleep 0.01; done; echo met'
    place = off.parent / "came"
    agent = Command("sh", "-c", meet, str(place), "{prompt}", max_concurrent=1, governor=Governor())

    async def scene() -> list[str]:
        results = await asyncio.gather(agent.aexecute("a"), agent.aexecute("b"))
        return [result.text.strip() for result in results]

    assert asyncio.run(scene()) == ["met", "met"]
    assert not off.exists()


def test_a_refusal_of_a_provider_delays_no_other_request(off: Path) -> None:
    """The transport passes the 429 on, and the next request goes out at once."""
    statuses = iter([429, 200])

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(next(statuses), headers={"Retry-After": "600"}, json={})

    transport = HeadwayTransport(transport=httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client:
        answers = [
            client.post("https://api.openai.com/v1/responses", json={"model": "m"})
            for _ in range(2)
        ]

    assert [answer.status_code for answer in answers] == [429, 200]
    assert not off.exists()


# -- the command line --------------------------------------------------------------------------


def test_run_runs_the_command(off: Path) -> None:
    """With its exit code, also inside of itself."""
    shell = Shell(off, off.parent)
    shell.environ["HEADWAY_LIMITS"] = "agent=1"
    ran = shell.run(
        "run", "--no-wait", "--", "headway", "run", "--no-wait", "--", "sh", "-c", "exit 7"
    )

    assert (ran.returncode, ran.stderr) == (7, "")
    assert shell.run("check", "agent").returncode == 0
    assert not off.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["limits", "set", "agent", "3"],
        ["doctor"],
        ["pause", "agent"],
        ["worker"],
        ["jobs"],
    ],
)
def test_commands_about_a_home_say_that_there_is_none(off: Path, words: list[str]) -> None:
    """An empty list would be taken for the truth."""
    shell = Shell(off, off.parent)
    said = shell.run(*words)

    assert said.returncode == 78
    assert "HEADWAY=off is set" in said.stderr
    assert "env -u HEADWAY" in said.stderr
    assert not off.exists()


def test_jobs_are_refused(off: Path) -> None:
    """They are kept, and there is nothing to keep them in."""
    with Governor() as governor, pytest.raises(ConfigError, match="HEADWAY=off is set"):
        governor.jobs.submit(["true"])
    shell = Shell(off, off.parent)
    said = shell.run("submit", "--", "true")

    assert said.returncode == 78
    assert "jobs are kept in a home" in said.stderr
    assert not off.exists()
