"""Processes that are frozen: alive, but doing nothing for as long as it pleases them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.kit import Child, Crew

# Freezes itself inside an operation, with the guard in hand: before its first statement.
_FREEZES_INSIDE = """
governor = headway.Governor()
def freeze(frame, event, called):
    if event == "c_call" and called.__name__ == "execute":
        directory, name = os.path.split(frame.f_code.co_filename)
        if directory.endswith("stores") and name not in ("reader.py", "database.py", "home.py"):
            sys.setprofile(None)
            say("inside")
            os.kill(os.getpid(), signal.SIGSTOP)
sys.setprofile(freeze)
with governor.slot("k"):
    sys.setprofile(None)
    say("holding")
    hear()
say("left")
hear()
"""


def _frozen_inside(crew: Crew) -> Child:
    frozen = crew.start(_FREEZES_INSIDE)
    frozen.expect("inside")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
    return frozen


def test_a_frozen_holder_keeps_its_lease(crew: Crew) -> None:
    """A holder that is stopped for longer than every timer is alive, and its lease its own."""
    crew.limits(k=1)
    holder = crew.holding("k", HEADWAY_STORE_TIMEOUT="50ms")
    waiter = crew.waiter("k", HEADWAY_STORE_TIMEOUT="50ms")
    watcher = crew.watcher()

    holder.stop()
    others = crew.start(
        """
        governor = headway.Governor()
        for turn in range(3):
            try:
                with governor.slot("k", timeout=0.5):
                    say("granted")
            except headway.QueueTimeout:
                say("in vain")
        hear()
        """,
        HEADWAY_STORE_TIMEOUT="50ms",
    )
    for _ in range(3):
        others.expect("in vain")
    assert watcher.ask("leases", "leases") == "1"
    holder.wake()

    holder.ask("leave", "left")
    waiter.expect("granted")


def test_a_process_frozen_inside_an_operation_is_named(crew: Crew) -> None:
    """Who cannot get at the store is told by whom it is blocked, and gets in when that goes on."""
    crew.limits(k=2)
    frozen = _frozen_inside(crew)

    other = crew.start(
        """
        while True:
            try:
                with headway.Governor().slot("k"):
                    say("granted")
            except headway.StoreUnavailable as error:
                say("unavailable", error)
            hear()
        """,
        HEADWAY_STORE_TIMEOUT="200ms",
    )
    complaint = other.expect("unavailable")
    frozen.wake()
    frozen.expect("holding")

    assert f"pid {frozen.pid} " in complaint
    assert "stopped" in complaint
    other.ask("again", "granted")


def test_a_release_blocked_by_a_frozen_process_is_made_up_for(crew: Crew) -> None:
    """A release that cannot reach the store hides no result, and is repeated until it can."""
    crew.limits(k=2)
    holder = crew.start(
        """
        governor = headway.Governor()
        def work():
            with governor.slot("k", "other"):
                say("holding")
                hear()
                return "the answer"
        say("result", work())
        hear()
        """,
        HEADWAY_STORE_TIMEOUT="200ms",
    )
    holder.expect("holding")
    frozen = _frozen_inside(crew)

    assert holder.ask("leave", "result") == "the answer"
    assert "will be repeated" in holder.logged()
    frozen.wake()
    frozen.expect("holding")

    assert crew.watcher().ask("take-all other 1", "took") == "all"
    taker = crew.holding("k")
    frozen.ask("leave", "left")
    taker.ask("leave", "left")


def test_waiters_get_over_a_process_frozen_inside(crew: Crew) -> None:
    """Waiters that could not read or clear up for a while are served when the store is back."""
    crew.limits(k=1)
    holder = crew.holding("k")
    waiting = [crew.waiter("k", HEADWAY_STORE_TIMEOUT="100ms") for _ in range(2)]
    many = crew.start(
        """
        governor = headway.Governor()
        def wait(name):
            with governor.slot("k", on_wait=queued):
                say("granted", name)
        for name in "xyz":
            threading.Thread(target=wait, args=name).start()
        """,
        HEADWAY_STORE_TIMEOUT="100ms",
    )
    for _ in range(3):
        many.expect("waiting")
    frozen = crew.start(_FREEZES_INSIDE.replace('slot("k")', 'slot("other")'))
    frozen.expect("inside")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)

    holder.kill()
    # Somebody tries to take the slot over and cannot, more than once.
    crew.start(
        """
        try:
            headway.Governor()
        except headway.StoreUnavailable:
            say("unavailable")
        """,
        HEADWAY_STORE_TIMEOUT="1s",
    ).expect("unavailable")
    frozen.wake()

    for waiter in waiting:
        waiter.expect("granted")
        waiter.ask("leave", "left")
    for _ in range(3):
        many.expect("granted")
