"""What one process does to another's tickets: taken back, cancelled, and always told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Child, Crew

# Ends other processes' tickets by name.
_OPERATOR = """
governor = headway.Governor()
while True:
    order, ticket = hear().split()
    say("done", getattr(governor, order)(ticket))
"""


def _waiter(crew: Crew, form: str) -> Child:
    """A process with one waiter, a thread or a task, that says its ticket and its end."""
    return crew.start(
        f"""
        governor = headway.Governor()
        mine = []
        def waits(event):
            if event.kind == "queued":
                mine.append(event.ticket_id)
                say("waiting", event.ticket_id)
        def thread():
            with governor.slot("k", on_wait=waits):
                say("granted")
                hear()
            say("left")
        async def task():
            async with governor.slot("k", on_wait=waits):
                say("granted")
                hear()
            say("left")
        try:
            thread() if {form!r} == "thread" else asyncio.run(task())
        except headway.Cancelled:
            say("cancelled", [row.id for row in governor.snapshot().waiting].count(mine[0]))
        hear()
        """
    )


@pytest.mark.parametrize("frozen", [False, True])
def test_a_lease_taken_back_by_another_process_is_told(crew: Crew, frozen: bool) -> None:  # noqa: FBT001
    """Who loses its lease finds out, also one that slept through it; the next one has it."""
    crew.limits(k=1)
    holder = crew.start(
        """
        governor = headway.Governor()
        lost = threading.Event()
        governor.subscribe(lambda event: lost.set() if event.kind == "lost" else None)
        with governor.slot("k") as lease:
            say("holding", lease.id)
            hear()
            lost.wait(20)
            try:
                lease.check()
                say("not told")
            except headway.LeaseLost as error:
                say("told", lease.lost)
            hear()
        say("left", len(governor.snapshot().leases))
        hear()
        """
    )
    lease = holder.expect("holding")
    waiter, operator = crew.waiter("k"), crew.start(_OPERATOR)
    if frozen:
        holder.stop()

    assert operator.ask(f"revoke {lease}", "done") == "True"
    waiter.expect("granted")
    if frozen:
        holder.wake()

    assert holder.ask("look", "told") == "True"
    # Leaving its block takes nothing from the one who has the slot now.
    assert holder.ask("leave", "left") == "1"
    waiter.ask("leave", "left")


@pytest.mark.parametrize("form", ["thread", "task"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_ticket_cancelled_by_another_process_never_starts(
    crew: Crew,
    form: str,
    frozen: bool,  # noqa: FBT001
) -> None:
    """A cancelled waiter returns, though a slot comes free at once, and its neighbour moves up."""
    crew.limits(k=1)
    holder = crew.holding("k")
    cancelled = _waiter(crew, form)
    ticket = cancelled.expect("waiting")
    neighbour = _waiter(crew, form)
    neighbour.expect("waiting")
    operator = crew.start(_OPERATOR)
    if frozen:
        cancelled.stop()

    assert operator.ask(f"cancel {ticket}", "done") == "True"
    holder.ask("leave", "left")
    neighbour.expect("granted")
    if frozen:
        cancelled.wake()

    assert cancelled.expect("cancelled") == "0"
    assert operator.ask(f"cancel {ticket}", "done") == "False"


def test_cancel_and_grant_at_once_end_in_one_way(crew: Crew) -> None:
    """Whichever comes first, a cancel that says yes means that the ticket never started."""
    crew.limits(k=1)
    rounds = 150
    holder = crew.start(
        """
        governor = headway.Governor()
        while True:
            with governor.slot("k"):
                say("holding")
                hear()
            say("left")
            hear()
        """
    )
    holder.expect("holding")
    waiter = crew.start(
        f"""
        from headway import turnstile
        turnstile.NOTICE_SECONDS = 0.001
        governor = headway.Governor()
        def waits(event):
            if event.kind == "queued":
                say("waiting", event.ticket_id)
        for turn in range({rounds}):
            try:
                with governor.slot("k", on_wait=waits):
                    say("granted")
            except headway.Cancelled:
                say("cancelled")
            hear()
        """
    )
    operator = crew.start(_OPERATOR)
    ends = set()
    for turn in range(rounds):
        ticket = waiter.expect("waiting")
        first, second = (holder, operator) if turn % 2 else (operator, holder)
        for child in (first, second):
            child.tell("leave" if child is holder else f"cancel {ticket}")
        answer = operator.expect("done")
        end = waiter.line()
        assert end == ("cancelled" if answer == "True" else "granted")
        ends.add(end)
        holder.expect("left")
        holder.ask("again", "holding")
        if turn < rounds - 1:
            waiter.tell("again")
    assert crew.watcher().ask("audit", "audited") == "fine"
    assert ends
