"""With a governor: the limits of a home or a fleet, besides the object's own."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.kit import PROGRAM
from tests.harness.kit import Diary, until
from tests.harness.speech import begun, printed, said, spoken

from headway import ConfigError, Governor
from headway.harness import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.kit import Stage

    from headway.events import Event
    from headway.harness import Harness, Result

PATIENT = """
echo "$HEADWAY_LEASE" >> "$HERE/started"
until [ -e "$HERE/go" ]; do sleep 0.02; done
"""


@pytest.fixture(params=["memory", "home"])
def governor(request: pytest.FixtureRequest, home: Path) -> Iterator[Governor]:
    """One of this process, or one of the machine."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{home}"
    with Governor(url) as governor:
        governor.set_limit("agent", 2)
        yield governor


def waits(governor: Governor, count: int) -> bool:
    """Whether so many wait."""
    return governor.capacity("agent").waiting == count


class Calls:
    """Executions in threads, with their results."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.results: list[Result] = []

    def add(self, agent: Harness, **options: Any) -> None:
        """One more."""

        def run() -> None:
            self.results.append(agent.execute("x", **options))

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def end(self) -> list[Result]:
        """All results, in the order of their ends."""
        for thread in self._threads:
            thread.join()
        return self.results


def test_runs_count_on_the_program_and_its_model(stage: Stage, governor: Governor) -> None:
    """Beside everything else that uses the store; and two objects share it."""
    agents = [
        stage.agent("claude", PATIENT + spoken("claude"), governor=governor, model="big")
        for _ in range(2)
    ]
    calls = Calls()
    for agent in agents:
        calls.add(agent, task="t-1", weight=1)
    until(lambda: len(stage.lines("started")) == 2, "two")
    for agent in agents:
        calls.add(agent)
    until(lambda: governor.capacity("agent").waiting == 2, "two more that wait")

    assert [lease.keys for lease in governor.snapshot().leases] == [("agent/claude/big",)] * 2
    assert {lease.task for lease in governor.snapshot().leases} == {"t-1"}
    assert governor.capacity("agent/claude").used == 2
    assert len(stage.processes(named="claude")) == 2

    stage.touch("go")
    assert {result.status for result in calls.end()} == {"succeeded"}
    assert governor.capacity("agent").used == 0


def test_weight_and_priority_count_as_everywhere(stage: Stage, governor: Governor) -> None:
    """A heavy one takes two slots; an urgent one goes first; too heavy is refused."""
    script = 'echo "$WHO" >> "$HERE/order"\n' + PATIENT + spoken("claude")
    agent = stage.agent("claude", script, governor=governor)
    calls = Calls()
    calls.add(agent, weight=2, env={"WHO": "heavy"})
    until(lambda: governor.capacity("agent").used == 2, "the heavy one")
    for place, (who, priority) in enumerate([("usual", 0), ("late", -5), ("urgent", 5)], start=1):
        calls.add(agent, priority=priority, weight=2, env={"WHO": who})
        until(partial(waits, governor, place), who)

    refused = stage.agent("codex", "true", governor=governor).execute("x", weight=3)
    stage.touch("go")
    calls.end()

    assert stage.lines("order") == ["heavy", "urgent", "usual", "late"]
    assert refused.status == "refused"
    assert "weight 3 can never fit on agent" in (refused.reason or "")


@pytest.mark.parametrize(
    "options",
    [
        {"weight": 0},
        {"weight": "2"},
        {"weight": 1.5},
        {"priority": 101},
        {"priority": None},
        {"priority": True},
        {"wait": 1},
        {"timeout": -1},
        {"timeout": float("nan")},
    ],
)
def test_bad_values_are_refused_before_anything(stage: Stage, options: dict[str, Any]) -> None:
    """With and without a governor."""
    diary = Diary()
    with pytest.raises(ConfigError, match=next(iter(options))):
        stage.agent("claude", "true").execute("x", on_event=diary, **options)
    assert diary.events == []


def test_no_wait_and_a_short_one(stage: Stage, governor: Governor) -> None:
    """Refused, and timed out; the guard's slot comes back too."""
    agent = stage.agent("claude", spoken("claude"), governor=governor)
    calls = Calls()
    with governor.slot("agent/other", weight=2):
        calls.add(agent, wait=False)
        calls.add(agent, timeout=0.2)
        ends = {result.status: result.reason for result in calls.end()}
        # In the same thread it would wait for itself.
        inside = agent.execute("x")

    late = "no slot on agent/claude within 0.2 s of queueing; the work was not started"
    assert ends.keys() == {"refused", "timed_out"}
    assert ends["timed_out"] == late
    assert (inside.status, "parent=" in (inside.reason or "")) == ("refused", True)
    assert agent.guard.capacity(agent.key(None)).used == 0
    assert agent.execute("x").ok


def test_a_ticket_that_a_person_cancels(stage: Stage, home: Path) -> None:
    """``headway cancel`` ends the wait, with a result."""
    import subprocess  # noqa: PLC0415

    with Governor(f"sqlite:///{home}") as governor:
        governor.set_limit("agent", 1)
        agent = stage.agent("claude", PATIENT + spoken("claude"), governor=governor)
        calls = Calls()
        with governor.slot("agent/other"):
            calls.add(agent)
            until(lambda: governor.snapshot().waiting, "its wait")
            (ticket,) = governor.snapshot().waiting
            subprocess.run([PROGRAM, "cancel", ticket.id], check=True, capture_output=True)
            (result,) = calls.end()

        assert result.status == "cancelled"
        assert ticket.id in (result.reason or "")
        assert not stage.lines("started")
        assert agent.guard.capacity(agent.key(None)).used == 0


def test_a_slot_that_is_taken_back_ends_the_agent(stage: Stage, governor: Governor) -> None:
    """It may be another's by now."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), governor=governor)
    calls = Calls()
    calls.add(agent)
    until(lambda: stage.lines("started"), "its start")
    (lease,) = governor.snapshot().leases

    assert governor.revoke(lease.id, "somebody needs it")

    (result,) = calls.end()
    assert (result.status, result.reason) == (
        "cancelled",
        "its slot was lost: somebody needs it",
    )
    assert not stage.processes()


def test_the_agent_is_told_of_its_lease(stage: Stage, home: Path) -> None:
    """What it starts itself may go ahead on its slot; a store in memory has none to lend."""
    script = (
        f'echo "$HEADWAY_LEASE|$HEADWAY_TASK|$HEADWAY_HOME" >> "$HERE/started"\n{spoken("claude")}'
    )
    with Governor(f"sqlite:///{home}") as governor:
        stage.agent("claude", script, governor=governor).execute("x", task="t-1")
    with Governor("memory://") as governor:
        stage.agent("claude", script, governor=governor).execute("x", task="t-1")

    (shared, private) = stage.lines("started")
    lease, task, where = shared.split("|")
    assert lease
    assert (task, where) == ("t-1", str(home))
    assert private.startswith("|")


def test_an_agent_inside_an_agent_borrows(stage: Stage, home: Path) -> None:
    """With one slot in the home, the inner one goes ahead on the outer one's."""
    with Governor(f"sqlite:///{home}") as governor:
        governor.set_limit("agent", 1)
        stage.script("inner", "echo inner")
        stage.script(
            "inside.py",
            "import os, sys\nimport headway\nfrom headway.harness import Command\n"
            "agent = Command(os.environ['HERE'] + '/bin/inner', governor=headway.Governor())\n"
            "print(agent.execute('x', timeout='30s').text, end='')",
            first=f"#!{__import__('sys').executable}",
        )
        agent = stage.agent("outer", '"$HERE/bin/inside.py"', governor=governor)

        assert agent.execute("x").text == "inner\n"


# -- retries and fallbacks ---------------------------------------------------------------------

FAILING = """
echo "$*" >> "$HERE/started"
case "$*" in *small*) ;; *) exit 1;; esac
"""


def test_a_fallback_queues_under_its_own_limit(stage: Stage, governor: Governor) -> None:
    """It does not start while its model is full, and holds nothing of the first meanwhile."""
    governor.set_limit("agent/claude/small", 1)
    agent = stage.agent("claude", FAILING + spoken("claude"), governor=governor, model="big")
    calls = Calls()
    diary = Diary()
    with governor.slot("agent/claude/small"):
        calls.add(agent, fallbacks=["small"], on_event=diary)
        until(lambda: governor.snapshot().waiting, "its wait")
        (waiting,) = governor.snapshot().waiting
        assert waiting.keys == ("agent/claude/small",)
        assert waiting.blocked_by.key == "agent/claude/small"
        assert len(stage.lines("started")) == 1
        assert not stage.processes()
        assert governor.capacity("agent/claude/big").used == 0

    (result,) = calls.end()
    assert (result.status, result.model, result.attempts) == ("succeeded", "small", 2)
    assert [("big" in line, "small" in line) for line in stage.lines("started")] == [
        (True, False),
        (False, True),
    ]
    assert diary.kinds.count("started") == 2
    retrying = next(event for event in diary.events if event.kind == "retrying")
    assert (retrying.by, retrying.model) == ("headway", "small")  # type: ignore[attr-defined]


def test_a_retry_queues_again(stage: Stage, governor: Governor) -> None:
    """Behind who came meanwhile, without its slot."""
    governor.set_limit("agent/claude", 1)
    script = 'echo x >> "$HERE/tries"; [ $(wc -l < "$HERE/tries") -ge 2 ] || exit 1\n'
    agent = stage.agent("claude", script + spoken("claude"), governor=governor)
    paused = threading.Event()
    calls = Calls()
    calls.add(agent, retries=1, on_event=lambda e: paused.set() if e.kind == "retrying" else None)
    assert paused.wait(60)
    with governor.slot("agent/claude", timeout=60):
        until(lambda: governor.capacity("agent/claude").waiting == 1, "its second try")
        assert len(stage.lines("tries")) == 1

    (result,) = calls.end()
    assert (result.status, result.attempts) == ("succeeded", 2)


def test_what_was_cancelled_is_not_tried_again(stage: Stage) -> None:
    """Neither in the pause, nor in the moment of its end."""
    handle = Cancellation()
    agent = stage.agent("claude", 'echo >> "$HERE/started"; exit 1')
    pausing = agent.execute(
        "x",
        retries=5,
        cancellation=handle,
        on_event=lambda e: handle.cancel() if e.kind == "retrying" else None,
    )
    assert (pausing.status, len(stage.lines("started"))) == ("cancelled", 1)

    handle = Cancellation()
    lingering = f"{printed(*begun('claude'), *said('claude', 'x'))}\n(setsid sleep 600 &)\nexit 1"
    agent = stage.agent("claude", f'echo >> "$HERE/second"; {lingering}', grace="10s")

    def end_at_its_end() -> None:
        until(lambda: stage.lines("second") and not stage.processes(named="claude"), "its end")
        handle.cancel()

    thread = threading.Thread(target=end_at_its_end)
    thread.start()
    result = agent.execute("x", retries=5, cancellation=handle)
    thread.join()
    assert (result.status, len(stage.lines("second"))) == ("cancelled", 1)


def test_a_rate_limit_is_told_to_the_engine(stage: Stage, governor: Governor) -> None:
    """With the key of the model's provider, and when to try again."""
    heard: list[Event] = []
    governor.subscribe(heard.append)
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "error": "rate_limit",
        "error_status": 429,
        "retry_delay_ms": 1500,
    }
    script = printed(*begun("claude"), retry) + "\n" + spoken("claude")

    result = stage.agent("claude", script, governor=governor, model="big").execute("x", task="t")

    assert result.ok
    assert result.is_rate_limited
    (event,) = (event for event in heard if event.kind == "rate limited")
    assert (event.keys, event.task) == (("llm/anthropic/big",), "t")
    assert event.retry_after_seconds == 1.5  # type: ignore[attr-defined]


def test_several_programs_share_the_limits_of_a_home(stage: Stage, home: Path) -> None:
    """Two processes with three runs each, and two slots: never more than two agents."""
    with Governor(f"sqlite:///{home}") as governor:
        governor.set_limit("agent", 2)
        stage.script("claude", PATIENT + spoken("claude"))
        code = """
agent = ClaudeCode(executable=stage.directory / "bin/claude", env=stage.environ,
                   governor=headway.Governor())
async def main():
    return await asyncio.gather(*(agent.aexecute("x") for _ in range(3)))
print({result.status for result in asyncio.run(main())})
"""
        programs = [stage.caller(code) for _ in range(2)]
        until(lambda: governor.capacity("agent").waiting == 4, "four that wait")
        until(lambda: len(stage.lines("started")) == 2, "two that run")
        assert len(stage.processes(named="claude")) == len(stage.lines("started")) == 2
        stage.touch("go")

        for program in programs:
            assert program.communicate(timeout=60) == ("{'succeeded'}\n", "")
        assert len(stage.lines("started")) == 6
        assert governor.capacity("agent").used == 0
