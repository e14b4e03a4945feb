"""The guard: so many at once, no more, and it cannot be forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import Diary, until
from tests.harness.speech import spoken

import headway
from headway.harness import Cancellation, ClaudeCode, Command

if TYPE_CHECKING:
    from typing import Self

    from tests.harness.kit import Stage

    from headway.harness import Harness, Result

# Says that it has begun, and ends when it is told to.
PATIENT = """
echo $$ >> "$HERE/started"
until [ -e "$HERE/go" ]; do sleep 0.02; done
"""


class Sampler:
    """Looks at the process table all the time, and keeps the most that it ever saw."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self._name = stage, name
        self._is_over = False
        self.most = self.looks = 0
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._is_over:
            self.most = max(self.most, len(self._stage.processes(named=self._name)))
            self.looks += 1
            time.sleep(0.002)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()


def in_threads(
    agent: Harness, count: int, **options: Any
) -> tuple[list[threading.Thread], list[Result]]:
    """So many executions at once, each in a thread; the results come as they end."""
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda: results.append(agent.execute("go", **options)))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    return threads, results


def test_a_burst_of_five_is_never_more_than_two_processes(stage: Stage) -> None:
    """By the process table; and all five get through."""
    agent = stage.agent(
        "claude", f'echo >> "$HERE/started"; sleep 0.2; {spoken("claude")}', max_concurrent=2
    )

    async def burst() -> list[Result]:
        return await asyncio.gather(*(agent.aexecute(f"number {i}") for i in range(5)))

    with Sampler(stage, "claude") as sampler:
        results = asyncio.run(burst())

    assert [result.status for result in results] == ["succeeded"] * 5
    assert len(stage.lines("started")) == 5
    assert 1 <= sampler.most <= 2


@pytest.mark.parametrize(("options", "most"), [({"max_concurrent": 2}, 2), ({}, 4)])
def test_the_others_wait_until_one_is_gone(
    stage: Stage, options: dict[str, Any], most: int
) -> None:
    """As many as there are slots have started, the others only then; four if not said."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), **options)
    threads, results = in_threads(agent, most + 3)
    until(lambda: len(stage.lines("started")) == most, "the first")
    until(lambda: agent.guard.capacity(agent.key(None)).waiting == 3, "the others")

    assert len(stage.processes(named="claude")) == most
    assert len(stage.lines("started")) == most

    stage.touch("go")
    for thread in threads:
        thread.join()
    assert [result.status for result in results] == ["succeeded"] * (most + 3)


@pytest.mark.parametrize("most", [0, -1, -(10**9)])
def test_nothing_or_less_means_the_default(most: int, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning, and never no limit."""
    agent = ClaudeCode(max_concurrent=most)

    assert agent.guard.capacity("agent/claude").free == 4
    assert f"max_concurrent = {most} would let nothing run; using the default of 4" in caplog.text


@pytest.mark.parametrize(
    "most", ["2", 1.5, True, False, float("nan"), float("inf"), "4 ", "none", "", [4], b"4"]
)
def test_bad_limits_are_refused(most: Any) -> None:
    """With the value in the error."""
    with pytest.raises(headway.ConfigError, match="max_concurrent"):
        ClaudeCode(max_concurrent=most)


def test_only_the_word_lifts_the_limit(stage: Stage) -> None:
    """And then six run at once."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), max_concurrent=headway.UNLIMITED)
    threads, results = in_threads(agent, 6)

    until(lambda: len(stage.processes(named="claude")) == 6, "all six")

    stage.touch("go")
    for thread in threads:
        thread.join()
    assert {result.status for result in results} == {"succeeded"}


def test_the_environment_does_not_lift_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a home are not those of an object."""
    monkeypatch.setenv("HEADWAY_LIMITS", "agent=100,agent/claude=100")

    assert ClaudeCode(max_concurrent=2).guard.capacity("agent/claude").free == 2
    assert Command("aider").guard.capacity("agent/aider").free == 4


def test_each_object_has_a_guard_of_its_own(stage: Stage) -> None:
    """Two objects of one each: two at once."""
    script = PATIENT + spoken("claude")
    agents = [stage.agent("claude", script, max_concurrent=1) for _ in range(2)]
    threads = [thread for agent in agents for thread in in_threads(agent, 1)[0]]

    until(lambda: len(stage.processes(named="claude")) == 2, "both")

    stage.touch("go")
    for thread in threads:
        thread.join()


# -- cancelled while waiting, and before ---------------------------------------------------------


def test_a_task_that_is_cancelled_while_it_waits_starts_nothing(stage: Stage) -> None:
    """It leaves before the one that it waits for, and its place is lost to nobody."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), max_concurrent=1)

    async def main() -> tuple[Result, Result]:
        first = asyncio.create_task(agent.aexecute("first"))
        await asyncio.to_thread(until, lambda: stage.lines("started"))
        second = asyncio.create_task(agent.aexecute("second"))
        third = asyncio.create_task(agent.aexecute("third"))
        await asyncio.to_thread(until, lambda: agent.guard.capacity(agent.key(None)).waiting == 2)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done()
        assert agent.guard.capacity(agent.key(None)).waiting == 1
        assert len(stage.lines("started")) == 1
        stage.touch("go")
        return await first, await third

    results = asyncio.run(main())

    assert [result.status for result in results] == ["succeeded", "succeeded"]
    assert len(stage.lines("started")) == 2
    assert agent.guard.capacity(agent.key(None)).used == 0


def test_a_handle_frees_who_waits(stage: Stage) -> None:
    """Its result says why, and that no program was run."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), max_concurrent=1)
    first, _ = in_threads(agent, 1)
    until(lambda: stage.lines("started"), "the first")
    handle = Cancellation()
    second, results = in_threads(agent, 1, cancellation=handle)
    until(lambda: agent.guard.capacity(agent.key(None)).waiting == 1, "the second")

    handle.cancel("not needed any more")
    second[0].join()

    (result,) = results
    assert (result.status, result.reason) == ("cancelled", "not needed any more")
    assert (result.text, result.exit_code) == ("", None)
    assert first[0].is_alive()
    assert len(stage.lines("started")) == 1
    assert agent.guard.capacity(agent.key(None)).waiting == 0
    stage.touch("go")
    first[0].join()
    assert len(stage.lines("started")) == 1


def test_who_was_cancelled_before_never_starts(stage: Stage) -> None:
    """Even if a slot is free."""
    agent = stage.agent("claude", f'echo >> "$HERE/started"; {spoken("claude")}')
    handle, diary = Cancellation(), Diary()
    handle.cancel()
    handle.cancel("too late to say why")

    result = agent.execute("x", cancellation=handle, on_event=diary)

    assert (result.status, result.reason) == ("cancelled", "cancelled by its caller")
    assert diary.kinds == ["finished"]

    async def main() -> None:
        task = asyncio.create_task(agent.aexecute("x"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def cancelled_inside() -> None:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await agent.aexecute("x")

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(cancelled_inside())

    asyncio.run(main())
    assert not stage.lines("started")
    assert not stage.processes()


def test_one_handle_ends_all_that_it_was_given_to(stage: Stage) -> None:
    """Those that run and those that wait."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), max_concurrent=2)
    handle = Cancellation()
    threads, results = in_threads(agent, 5, cancellation=handle)
    until(lambda: agent.guard.capacity(agent.key(None)).waiting == 3, "three that wait")
    until(lambda: len(stage.lines("started")) == 2, "two that run")

    handle.cancel("enough")
    for thread in threads:
        thread.join()

    assert [(r.status, r.reason) for r in results] == [("cancelled", "enough")] * 5
    assert len(stage.lines("started")) == 2
    assert not stage.processes()


def test_waiting_has_a_time_and_can_be_left_out(stage: Stage) -> None:
    """``timeout`` is time in the queue; ``wait=False`` refuses."""
    agent = stage.agent("claude", PATIENT + spoken("claude"), max_concurrent=1)
    threads, _ = in_threads(agent, 1, timeout=0.2)
    until(lambda: stage.lines("started"), "the first")

    late = agent.execute("x", timeout=0.2)
    refused = agent.execute("x", wait=False)

    assert (late.status, late.exit_code) == ("timed_out", None)
    assert "0.2" in (late.reason or "")
    assert (refused.status, refused.exit_code) == ("refused", None)
    assert "1 of 1 in use" in (refused.reason or "")
    # The first has run longer than its timeout, which was none for running.
    assert threads[0].is_alive()
    stage.touch("go")
    threads[0].join()
    assert len(stage.lines("started")) == 1
