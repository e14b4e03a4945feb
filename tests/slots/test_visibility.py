"""Waiting is visible (rule 14): events to hooks, lines in the log, rows in the status."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    auntil,
    ticket_of,
    until,
    waiting_tasks,
)

import headway
from headway import AtCapacity, Cancelled, Governor, QueueTimeout, waiting
from headway import events as kinds

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

    from headway.events import Event


class Hook:
    """Keeps the events it is called with."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event], task: str | None = None) -> list[Any]:
        """Those of one kind, of one task if it is named."""
        found = [event for event in self.events if type(event) is kind]
        return [event for event in found if task is None or event.task == task]


def enter(governor: Governor, task: str, **options: Any) -> str:
    """Take a slot of ``k`` and give it back."""
    with governor.slot("k", task=task, **options) as lease:
        return lease.id


async def aenter(governor: Governor, task: str, **options: Any) -> str:
    """The same in a task."""
    async with governor.slot("k", task=task, **options) as lease:
        return lease.id


@pytest.mark.parametrize("in_task", [False, True], ids=["thread", "task"])
def test_a_wait_is_told_with_place_reason_and_holders(
    govern: Govern, caplog: pytest.LogCaptureFixture, *, in_task: bool
) -> None:
    """Event, callback and log line say where it stands, what blocks, and who holds since when."""
    caplog.set_level(logging.INFO, "headway")
    governor, hook, on_wait = govern({"k": 1}), Hook(), Hook()
    enter(governor, "earlier")
    governor.subscribe(hook)

    def wait() -> str:
        if in_task:
            return asyncio.run(aenter(governor, "it", on_wait=on_wait))
        return enter(governor, "it", on_wait=on_wait)

    with Held(governor, "k", task="holder") as held:
        worker = Worker(wait)
        until(lambda: on_wait.events and hook.of(kinds.Queued))
    ticket = worker.result()

    (event,) = hook.of(kinds.Queued)
    assert on_wait.events == [event]
    assert (event.ticket_id, event.task, event.keys) == (ticket, "it", ("k",))
    assert (event.position, event.blocked_by) == (1, headway.BlockedBy("k", "full"))
    assert event.estimated_wait_seconds is not None
    (holder,) = event.holders
    assert (holder.id, holder.task, holder.holder.pid) == (held.id, "holder", os.getpid())
    (line,) = [record for record in caplog.records if record.message.startswith("queued")]
    assert line.levelno == logging.INFO
    for named in (ticket, "it", "position 1", "k is full", "holder", str(os.getpid())):
        assert named in line.message


def test_a_short_wait_is_nobodys_business(govern: Govern) -> None:
    """What is over before it can be noticed makes no event but the grant."""
    governor, hook, on_wait = govern({"k": 1}), Hook(), Hook()
    governor.subscribe(hook)

    with pytest.raises(QueueTimeout), Held(governor, "k"):
        enter(governor, "it", timeout=0.01, on_wait=on_wait)

    assert on_wait.events == []
    assert hook.of(kinds.Queued) == []


def test_moving_up_is_told(govern: Govern, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one in front leaves, the next one hears its new place."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.02)
    governor, hook, on_wait = govern({"k": 1}), Hook(), Hook()
    governor.subscribe(hook)

    with Held(governor, "k"):
        first = Worker(lambda: enter(governor, "first"))
        until(lambda: waiting_tasks(governor) == ["first"])
        second = Worker(lambda: enter(governor, "second", on_wait=on_wait))
        until(lambda: hook.of(kinds.Queued, "second"))
        governor.cancel(ticket_of(governor, "first"))
        until(lambda: hook.of(kinds.MovedUp, "second"))
        first.end()
        assert isinstance(first.error, Cancelled)
    second.result()

    (moved,) = hook.of(kinds.MovedUp)
    assert (moved.task, moved.position) == ("second", 1)
    assert [event.kind for event in on_wait.events] == ["queued", "moved up"]


def test_moving_up_is_told_in_tasks_too(govern: Govern, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback of a task runs on its own loop."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.02)
    governor, seen = govern({"k": 1}), []
    home_thread = threading.get_ident()

    def on_wait(event: Event) -> None:
        seen.append((event.kind, threading.get_ident() == home_thread))

    async def main() -> None:
        held = Held(governor, "k")
        first = asyncio.create_task(aenter(governor, "first"))
        await auntil(lambda: waiting_tasks(governor) == ["first"])
        second = asyncio.create_task(aenter(governor, "second", on_wait=on_wait))
        await auntil(lambda: seen)
        first.cancel()
        await auntil(lambda: len(seen) == 2)
        await asyncio.to_thread(held.let_go)
        await second

    asyncio.run(main())
    assert seen == [("queued", True), ("moved up", True)]


def test_every_end_of_a_ticket_is_an_event(govern: Govern) -> None:
    """Granted, released, timed out, refused, cancelled and lost, each with its ticket."""
    governor, hook = govern({"k": 1}), Hook()
    governor.subscribe(hook)

    with governor.slot("k", task="holder") as lease:
        with pytest.raises(AtCapacity):
            enter(governor, "refused", wait=False)
        timed = Worker(lambda: enter(governor, "timed out", timeout=0))
        timed.end()
        cancelled = Worker(lambda: enter(governor, "cancelled"))
        until(lambda: waiting_tasks(governor) == ["cancelled"])
        governor.cancel(ticket_of(governor, "cancelled"))
        cancelled.end()
        governor.revoke(lease.id, "by hand")
        until(lambda: hook.of(kinds.Lost))
    enter(governor, "last")

    assert [(event.kind, event.task) for event in hook.events] == [
        ("granted", "holder"),
        ("refused", "refused"),
        ("timed out", "timed out"),
        ("cancelled", "cancelled"),
        ("lost", "holder"),
        ("granted", "last"),
        ("released", "last"),
    ]
    assert hook.of(kinds.Lost)[0].reason == "by hand"
    assert hook.of(kinds.Lost)[0].ticket_id == lease.id
    assert "k" in hook.of(kinds.Refused)[0].reason
    assert hook.of(kinds.TimedOut)[0].timeout_seconds == 0
    assert hook.of(kinds.Released)[0].held_seconds >= 0


def test_a_task_that_is_cancelled_is_told_as_cancelled(govern: Govern) -> None:
    """Whoever went away by itself is an event like one that was sent away."""
    governor, hook = govern({"k": 1}), Hook()
    governor.subscribe(hook)

    async def main() -> None:
        task = asyncio.create_task(aenter(governor, "it"))
        await auntil(lambda: waiting_tasks(governor) == ["it"])
        task.cancel()
        await asyncio.wait({task})

    with Held(governor, "k"):
        asyncio.run(main())

    assert [event.kind for event in hook.events if event.task == "it"] == ["cancelled"]


_DIE = """
import os, headway
kept = headway.slot("k", task="dead").__enter__()
os.kill(os.getpid(), 9)
"""


def test_what_a_dead_process_left_is_told_as_reclaimed(home: str) -> None:
    """Who takes it back says whose it was."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor:
        hook = Hook()
        governor.subscribe(hook)
        source = os.path.dirname(os.path.dirname(headway.__file__))
        subprocess.run(
            [sys.executable, "-c", _DIE],
            env={**os.environ, "PYTHONPATH": source},
            timeout=30,
            check=False,
        )
        enter(governor, "next")
        until(lambda: hook.of(kinds.Reclaimed))

        (event,) = hook.of(kinds.Reclaimed)
        assert (event.task, event.keys) == ("dead", ("k",))
        assert "pid" in event.holder
        assert_clean(governor)


def test_a_hook_that_raises_harms_nobody(govern: Govern, caplog: pytest.LogCaptureFixture) -> None:
    """The slot is had and given back, other hooks hear, and the log shows what was wrong."""
    governor, hook = govern({"k": 1}), Hook()

    def broken(_: Event) -> None:
        raise ZeroDivisionError("in the hook")

    governor.subscribe(broken)
    governor.subscribe(hook)

    with Held(governor, "k"):
        worker = Worker(lambda: enter(governor, "thread", on_wait=broken))
        tasks = Worker(lambda: asyncio.run(aenter(governor, "task", on_wait=broken)))
        until(lambda: len(hook.of(kinds.Queued)) == 2)
    assert worker.result()
    assert tasks.result()

    assert "in the hook" in caplog.text
    assert len(hook.of(kinds.Granted)) == 3
    assert_clean(governor)


def test_a_hook_that_was_taken_off_hears_no_more(govern: Govern) -> None:
    """And taking it off twice is harmless, also for a second one like it."""
    governor, hook = govern(), Hook()
    take_off = governor.subscribe(hook)
    enter(governor, "one")
    heard = len(hook.events)

    take_off()
    take_off()
    enter(governor, "two")

    assert heard == len(hook.events) == 2


def test_the_log_has_a_line_for_each_event_at_its_level(
    govern: Govern, caplog: pytest.LogCaptureFixture
) -> None:
    """Grants and releases are for debugging; a wait that ended is news."""
    caplog.set_level(logging.DEBUG, "headway")
    governor = govern({"k": 1})

    with Held(governor, "k", task="holder"), pytest.raises(QueueTimeout):
        enter(governor, "it", timeout=0)

    assert [(record.levelname, record.message.split()[0]) for record in caplog.records] == [
        ("DEBUG", "granted"),
        ("INFO", "timed"),
        ("DEBUG", "released"),
    ]


def test_a_waiting_row_is_there_at_once(govern: Govern) -> None:
    """Status does not wait for anybody's notice."""
    governor = govern({"k": 1})

    with Held(governor, "k"):
        worker = Worker(lambda: enter(governor, "it", priority=4))
        until(lambda: waiting_tasks(governor) == ["it"])
        (row,) = governor.snapshot().waiting
    worker.result()

    assert (row.position, row.priority, row.blocked_by.reason) == (1, 4, "full")


_SILENT = """
import sys
before = set(sys.modules)
import headway
governor = headway.Governor({url!r})
with governor.slot("agent/x", task="t", timeout="1m", priority=3):
    with governor.slot("llm/a"):
        pass
heavy = {{"logging", "dataclasses", "typing", "asyncio", "tomllib", "tomlkit", "inspect", "re",
         "concurrent.futures", "headway.events", "headway.views", "headway.aio", "difflib"}}
assert not heavy & before, heavy & before
print(*sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
def test_plain_use_loads_nothing_heavy(url: str) -> None:
    """Neither importing nor an uncontended slot loads what only others need."""
    source = os.path.dirname(os.path.dirname(headway.__file__))
    run = subprocess.run(
        [sys.executable, "-S", "-c", _SILENT.format(url=url)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (run.stdout.split(), run.stderr) == ([], "")
