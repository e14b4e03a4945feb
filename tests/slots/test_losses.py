"""A lease that was taken back: its holder is told by a message, and can ask for certain.

Here the look that the attendant takes every second never comes, so that only
messages and questions can tell.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    auntil,
    is_waiting,
    unrelated_task,
    until,
)

from headway import Governor, LeaseLost, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[Governor, Governor]
_PATH = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(waiting.__file__))!r})\n"


@pytest.fixture
def pair(home: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two holders of one home with one slot: we, and they."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 1000.0)
    with (
        Governor(f"sqlite:///{home}", limits={"k": 1}) as ours,
        Governor(f"sqlite:///{home}") as theirs,
    ):
        yield ours, theirs


def lose_messages_of(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that this governor sends arrive."""
    store: Any = governor._turnstile.store
    monkeypatch.setattr(store._home.presence, "send", lambda *_: True)


def test_who_only_works_is_told_of_a_loss_by_message(pair: Pair) -> None:
    """Nobody here waits, and still the message is heard."""
    ours, theirs = pair

    with ours.slot("k") as lease:
        assert theirs.revoke(lease.id)
        until(lambda: lease.lost)

    assert_clean(ours)


def test_each_loss_is_told(pair: Pair) -> None:
    """Not only the first one; and each once."""
    ours, theirs = pair
    lost: list[str] = []
    ours.subscribe(lambda event: lost.append(event.ticket_id) if event.kind == "lost" else None)
    leases = []

    for _ in range(5):
        with ours.slot("k") as lease:
            leases.append(lease.id)
            assert theirs.revoke(lease.id)
            until(lambda: lost == leases)


_BARE = """
import sys, headway
with headway.slot("k") as lease:
    print(lease.id, flush=True)
    while not lease.lost or "threading" not in sys.modules:
        pass
import threading
print(threading.current_thread() is threading.main_thread())
"""


def test_a_program_that_was_told_of_a_loss_ends_as_any_other(home: str) -> None:
    """Though a thread of ours was the first to log something, it is not the main one."""
    program = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PATH + _BARE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdout
    with Governor(f"sqlite:///{home}") as governor:
        assert governor.revoke(program.stdout.readline().strip())
    try:
        out, _ = program.communicate(timeout=30)
    finally:
        program.kill()

    assert (out, program.returncode) == ("True\n", 0)


def test_a_task_is_told_while_its_loop_is_blocked(pair: Pair) -> None:
    """Telling depends on nothing that the program does."""
    ours, theirs = pair

    async def work() -> None:
        async with ours.slot("k") as lease:
            assert theirs.revoke(lease.id)
            until(lambda: lease.lost)

    asyncio.run(work())


def test_a_thread_that_listens_for_itself_hears_for_all(pair: Pair) -> None:
    """A loss is told by the thread that waits for something else."""
    ours, theirs = pair
    with ours.slot("other") as lease, Held(theirs, "k") as held:
        waiter = Worker(lambda: ours.slot("k", task="next").__enter__().id)
        until(lambda: is_waiting(ours, "next"))

        assert theirs.revoke(lease.id)
        until(lambda: lease.lost)

        held.let_go()
        assert waiter.result()


def test_the_attendant_wakes_up_for_a_task_that_waits(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had nothing to do; now it looks four times a second for what no message told."""
    ours, theirs = pair
    lose_messages_of(theirs, monkeypatch)
    with ours.slot("k"):
        pass

    async def wait() -> None:
        async with ours.slot("k", task="next"):
            pass

    with Held(theirs, "k") as held:
        waiter = Worker(lambda: asyncio.run(wait()))
        until(lambda: is_waiting(theirs, "next"))
        held.let_go()
        waiter.result()


def test_a_task_that_came_while_a_thread_listened_is_looked_after(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the thread has got what it waited for, the attendant takes over."""
    ours, theirs = pair
    lose_messages_of(theirs, monkeypatch)

    async def both() -> None:
        held = Held(theirs, "k")
        thread = Worker(lambda: ours.slot("k", task="thread").__enter__())
        await auntil(lambda: is_waiting(theirs, "thread"))
        task = unrelated_task(enter())
        await auntil(lambda: is_waiting(theirs, "task"))
        held.let_go()
        lease = thread.result()
        theirs.revoke(lease.id)
        await task

    async def enter() -> None:
        async with ours.slot("k", task="task"):
            pass

    asyncio.run(both())


def test_check_and_token_know_what_no_message_told(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask the store; and who asked first is told of the event too, once."""
    ours, theirs = pair
    lost: list[str] = []
    ours.subscribe(lambda event: lost.append(event.ticket_id) if event.kind == "lost" else None)
    lose_messages_of(theirs, monkeypatch)

    for use in ("check", "token", "environ"):
        with ours.slot("k") as lease:
            assert lease.token > 0
            lease.check()
            assert theirs.revoke(lease.id, "by ada")
            with pytest.raises(LeaseLost, match="by ada"):
                getattr(lease, use)()
            assert lost == [lease.id]
            lost.clear()
    assert_clean(ours)


def test_a_holder_that_was_taken_for_dead_learns_of_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a daemon that has closed all its files: others gave back for it, and left no word."""
    ours, theirs = pair
    store: Any = theirs._turnstile.store
    with ours.slot("k") as lease:
        with monkeypatch.context() as patch:
            patch.setattr(store._home.live, "is_alive", lambda _: False)
            store.reclaim([lease.ticket.holder])
        with pytest.raises(LeaseLost, match="taken for dead"):
            lease.check()
        assert lease.lost


def test_a_lease_that_has_ended_is_not_looked_for(pair: Pair) -> None:
    """Left as it should be, it is not lost."""
    ours, _ = pair
    with ours.slot("k") as lease:
        token = lease.token
    lease.check()
    assert lease.token == token
    ours.close()
    lease.check()
