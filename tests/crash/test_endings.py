"""Ends of processes, blocked event loops, and what stays on disk."""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Crew

ENDS = {
    "falls off its end": "pass",
    "exits": "sys.exit(0)",
    "fails": "raise ValueError('on purpose')",
    "exits at once": "os._exit(1)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
    "is interrupted": "os.kill(os.getpid(), signal.SIGINT)",
    "is aborted": "os.abort()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_without_closing_gives_back(crew: Crew, end: str) -> None:
    """Whichever way a process ends, its slots and its places in line are free."""
    crew.limits(k=2, full=1)
    full = crew.holding("full")
    ending = crew.start(
        f"""
        governor = headway.Governor()
        slots = [governor.slot("k") for _ in range(2)]
        leases = [slot.__enter__() for slot in slots]
        def wait():
            with governor.slot("full", on_wait=queued):
                pass
        threading.Thread(target=wait, daemon=True).start()
        hear()
        {ENDS[end]}
        """
    )
    ending.expect("waiting")
    waiter, behind = crew.waiter("k"), crew.waiter("full")

    ending.tell("end")
    waiter.expect("granted")
    full.ask("leave", "left")
    behind.expect("granted")

    ending.ended()
    for child in (waiter, behind):
        child.ask("leave", "left")
    watcher = crew.watcher()
    assert watcher.ask("take-all k 2", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


def test_a_blocked_loop_keeps_its_lease_and_delays_nobody(crew: Crew) -> None:
    """While a task blocks its loop, others take and give slots, and its lease stays its own."""
    crew.limits(k=2)
    blocked = crew.start(
        """
        governor = headway.Governor()
        async def main():
            async with governor.slot("k") as lease:
                async def other():
                    async with governor.slot("k", "z"):
                        pass
                waiting = asyncio.create_task(other())
                say("blocking")
                hear()
                lease.check()
                await waiting
            say("left")
        asyncio.run(main())
        hear()
        """
    )
    blocked.expect("blocking")
    other = crew.start(
        """
        governor = headway.Governor()
        for turn in range(200):
            with governor.slot("k"):
                pass
        say("went through")
        hear()
        """
    )
    other.expect("went through")
    assert crew.watcher().ask("leases", "leases") == "1"
    blocked.ask("leave", "left")


def test_a_grant_reaches_a_blocked_loop_and_can_be_taken_from_it(crew: Crew) -> None:
    """A waiter on a blocked loop holds its slot once granted; its death gives it back."""
    crew.limits(k=1)
    holder = crew.holding("k")
    blocked = crew.start(
        """
        governor = headway.Governor()
        async def main():
            async def wait():
                async with governor.slot("k", on_wait=queued):
                    say("granted")
            waiting = asyncio.create_task(wait())
            await asyncio.get_running_loop().run_in_executor(None, hear)
            say("blocking")
            hear()
        asyncio.run(main())
        """
    )
    blocked.expect("waiting")
    blocked.ask("block", "blocking")
    behind = crew.waiter("k")

    holder.ask("leave", "left")
    assert crew.watcher().ask("waiting", "waiting") == "1"
    blocked.kill()

    behind.expect("granted")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_for_their_owner_only(crew: Crew, umask: int) -> None:
    """Whatever the umask, the home is 0700 and every file in it 0600."""
    child = crew.start(
        f"""
        os.umask({umask})
        governor = headway.Governor(limits={{"k": 1}})
        governor.set_limit("k", 1)
        with governor.slot("k"):
            def wait():
                with governor.slot("k", on_wait=queued):
                    pass
            thread = threading.Thread(target=wait)
            thread.start()
            hear()
        thread.join()
        say("done")
        hear()
        """
    )
    child.expect("waiting")
    found = {}
    for directory, directories, files in os.walk(crew.home):
        for name in [*directories, *files]:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, crew.home)] = stat.S_IMODE(os.lstat(path).st_mode)
    assert stat.S_IMODE(crew.home.stat().st_mode) == 0o700
    assert {"slots.db", "slots.db-wal", "slots.lock", "live", "config.toml"} <= set(found)
    assert {name for name in found if name.startswith("live/")}
    wrong = {
        name: oct(mode)
        for name, mode in found.items()
        if mode != (0o700 if name == "live" else 0o600)
    }
    assert not wrong
    child.ask("leave", "done")


def test_nothing_is_left_in_the_home_by_processes_that_left(crew: Crew) -> None:
    """Lock files and sockets of the departed and of the killed do not pile up."""
    crew.limits(k=1)
    for turn in range(3):
        child = crew.holding("k")
        if turn == 1:
            child.kill()
        elif turn == 2:
            child.signal(signal.SIGTERM)
            child.ended()
        else:
            child.ask("leave", "left")
            child.tell()
            child.ended()
    watcher = crew.watcher()
    assert watcher.ask("take-all k 1", "took") == "all"
    assert len({name.partition(".")[0] for name in os.listdir(crew.home / "live")}) == 1
    assert not [name for name in os.listdir(crew.home) if name.endswith(".new")]
