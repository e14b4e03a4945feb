"""Closing in a process of its own: by a signal, at its end, and beside a fork."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Crew


@pytest.mark.parametrize("store", ["None", "'memory://'"])
@pytest.mark.parametrize("way", ["thread", "task"])
def test_a_signal_closes_what_the_main_thread_waits_for(crew: Crew, store: str, way: str) -> None:
    """The handler closes; the wait ends at once, and the program goes on."""
    crew.limits(k=1)
    child = crew.start(
        f"""
        governor = headway.Governor({store}, limits={{"k": 1}})
        signal.signal(signal.SIGTERM, lambda *_: governor.close())
        held = governor.slot("k")
        holder = threading.Thread(target=held.__enter__)  # not the one that waits
        holder.start()
        holder.join()

        async def wait():
            async with governor.slot("k", on_wait=queued):
                say("let in")

        try:
            if {way!r} == "task":
                asyncio.run(wait())
            else:
                with governor.slot("k", on_wait=queued):
                    say("let in")
        except headway.Cancelled:
            say("cancelled")
        """
    )
    child.expect("waiting")

    child.signal(signal.SIGTERM)

    child.expect("cancelled")
    assert child.ended() == 0
    assert crew.watcher().ask("leases", "leases") == "0"


def test_a_signal_at_any_time_of_a_busy_program(crew: Crew) -> None:
    """Wherever it strikes: no traceback, no slot that stays, and each time the same end."""
    crew.limits(k=2)
    child = crew.start(
        """
        import random
        seen, governor = set(), None
        signal.signal(signal.SIGALRM, lambda *_: governor.close())
        until = time.monotonic() + 3
        while time.monotonic() < until:
            governor = headway.Governor()
            signal.setitimer(signal.ITIMER_REAL, random.random() * 0.01)
            try:
                while True:
                    with governor.slot("k"):
                        governor.snapshot()
            except (headway.Cancelled, headway.HeadwayError) as error:
                seen.add("closed" if "is closed" in str(error) else type(error).__name__)
            signal.setitimer(signal.ITIMER_REAL, 0)
            governor.close()
        say("seen", *sorted(seen))
        hear()
        """
    )
    assert set(child.expect("seen").split()) <= {"closed", "Cancelled"}
    watcher = crew.watcher()
    assert watcher.ask("leases", "leases") == "0"
    assert not child.logged()


@pytest.mark.parametrize("work", ["asks", "waits", "looks"])
def test_the_end_of_a_program_whose_threads_are_busy(crew: Crew, work: str) -> None:
    """It ends at once and in silence; nothing of it is left."""
    crew.limits(k=1, full=1)
    holder = crew.holding("full")
    child = crew.start(
        f"""
        governor, busy = headway.Governor(), threading.Event()

        def work():
            busy.set()
            try:
                while True:
                    if {work!r} == "looks":
                        governor.snapshot()
                    elif {work!r} == "waits":
                        governor.slot("full").__enter__()
                    else:
                        with governor.slot("k"):
                            pass
            except headway.HeadwayError:
                pass

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        busy.wait()
        time.sleep(0.05)
        say("ends")
        """
    )
    child.expect("ends")

    assert child.ended() == 0

    assert not child.logged()
    assert crew.watcher().ask("leases", "leases") == "1"
    holder.ask("leave", "left")


def test_a_fork_in_the_middle_of_closing(crew: Crew) -> None:
    """The child keeps no lock of it; the parent's slot is free when it has closed."""
    crew.limits(k=1)
    parent = crew.start(
        """
        governor = headway.Governor()
        held = governor.slot("k")
        held.__enter__()
        closing = governor._turnstile.store._closing
        give_back = closing._give_everything_back
        inside, go_on = threading.Event(), threading.Event()

        def give_back_later(connection):
            inside.set()
            go_on.wait()
            give_back(connection)

        def locks():
            found = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
            names = [os.readlink(name) for name in found if os.path.lexists(name)]
            return [os.path.basename(name) for name in names if name.endswith(".lock")]

        closing._give_everything_back = give_back_later
        say("holding")
        hear()
        closer = threading.Thread(target=governor.close)
        closer.start()
        inside.wait()
        if not os.fork():
            try:
                governor.slot("k").__enter__()
            except headway.HeadwayError as error:
                say("child:", error, locks())
            os._exit(0)
        say("forked")
        hear()
        go_on.set()
        closer.join()
        say("closed")
        hear()
        """
    )
    parent.expect("holding")
    waiter = crew.waiter("k")
    parent.tell("fork")
    said = {parent.line(), parent.line()}
    parent.tell("close")
    waiter.expect("granted")
    assert "child: this governor is closed; make a new one []" in said, said
