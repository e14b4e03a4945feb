"""``fork`` without ``exec``: the child is a holder of its own, and keeps nothing of its parent."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Crew


def test_a_child_that_outlives_its_parent_keeps_no_slot(crew: Crew) -> None:
    """A killed parent's slot returns though its forked child lives on."""
    crew.limits(k=1)
    parent = crew.start(
        """
        governor = headway.Governor()
        with governor.slot("k"):
            if os.fork():
                hear()
            else:
                say("forked")
                hear()  # ends with the test
        """
    )
    parent.expect("forked")
    waiter = crew.waiter("k")

    parent.kill()

    waiter.expect("granted")


def test_so_does_the_child_of_a_governor_that_nobody_names(crew: Crew) -> None:
    """The same holds when only a slot or lease keeps the governor's store alive."""
    crew.limits(k=1)
    parent = crew.start(
        """
        with headway.Governor().slot("k"):
            if os.fork():
                hear()
            else:
                say("forked")
                hear()  # ends with the test
        """
    )
    parent.expect("forked")
    waiter = crew.waiter("k")

    parent.kill()

    waiter.expect("granted")


@pytest.mark.parametrize("way", ["leaves the block", "exits", "raises", "is killed"])
def test_the_end_of_a_child_leaves_its_parents_lease_alone(crew: Crew, way: str) -> None:
    """However a forked child ends, also by leaving the block, its parent goes on holding."""
    crew.limits(k=1)
    parent = crew.start(
        f"""
        way, governor = {way!r}, headway.Governor()
        child = None
        try:
            with governor.slot("k") as lease:
                child = os.fork()
                if not child:
                    if way == "exits":
                        sys.exit(0)
                    if way == "raises":
                        raise ValueError("on purpose")
                    if way == "is killed":
                        die()
                else:
                    os.waitpid(child, 0)
                    say("alone")
                    hear()
                    lease.check()
        except ValueError:
            pass
        if child == 0:
            governor.close()
            sys.exit(0)
        say("left")
        hear()
        """
    )
    parent.expect("alone")

    waiter = crew.waiter("k")

    assert crew.watcher().ask("leases", "leases") == "1"
    parent.ask("leave", "left")
    waiter.expect("granted")


@pytest.mark.parametrize("store", ["None", "'memory://'"])
def test_a_child_takes_its_own_slots(crew: Crew, store: str) -> None:
    """A forked child may use the same governor; it counts for itself."""
    crew.limits(k=2)
    parent = crew.start(
        f"""
        governor = headway.Governor({store}, limits={{"k": 2}})
        with governor.slot("k") as first:
            child = os.fork()
            if child:
                hear()
                os.waitpid(child, 0)
            else:
                with governor.slot("k", wait=False) as second:
                    say("both", first.id != second.id, len(governor.snapshot().leases))
                    hear()
                say("given back")
                os._exit(0)
        say("used", governor.capacity("k").used)
        hear()
        """
    )
    # In memory a child sees nothing of its parent; on disk both see both.
    assert parent.expect("both") == ("True 2" if store == "None" else "True 1")
    parent.tell()
    parent.tell()
    lines = {parent.line(), parent.line()}
    assert lines == {"given back", "used 0"}


def test_a_child_can_wait_for_its_parents_slot(crew: Crew) -> None:
    """A forked child stands in line behind its parent as any other process does."""
    crew.limits(k=1)
    parent = crew.start(
        """
        governor = headway.Governor()
        with governor.slot("k"):
            child = os.fork()
            if not child:
                try:
                    with governor.slot("k", on_wait=lambda event: say("child waits")):
                        say("child granted")
                except headway.HeadwayError as error:
                    say("child failed", error)
                os._exit(0)
            hear()
        os.waitpid(child, 0)
        say("left")
        """
    )
    parent.expect("child waits")
    parent.tell("leave")
    parent.expect("child granted")
    parent.expect("left")


@pytest.mark.parametrize("store", ["None", "'memory://'"])
def test_a_fork_in_the_midst_of_waiting_threads(crew: Crew, store: str) -> None:
    """Threads that wait stay the parent's; the child starts with nobody in line and works."""
    crew.limits(k=1, other=1)
    parent = crew.start(
        f"""
        governor = headway.Governor({store}, limits={{"k": 1, "other": 1}})
        def wait(name):
            with governor.slot("k", on_wait=queued):
                say("granted", name)
        for turn in range(5):
            with governor.slot("k"):
                threads = [threading.Thread(target=wait, args=(name,)) for name in range(3)]
                for thread in threads:
                    thread.start()
                hear()
                child = os.fork()
                if not child:
                    with governor.slot("other") as lease:
                        say("child holds", lease.keys[0])
                    governor.close()
                    os._exit(0)
                os.waitpid(child, 0)
            for thread in threads:
                thread.join()
            say("turn ended")
        """
    )
    for _ in range(5):
        for _ in range(3):
            parent.expect("waiting")
        parent.ask("fork", "child holds other")
        granted = sorted(parent.expect("granted") for _ in range(3))
        assert granted == ["0", "1", "2"]
        parent.expect("turn ended")


def test_forks_while_other_threads_are_inside(crew: Crew) -> None:
    """Forking while threads use the store leaves neither child nor parent with a stuck lock."""
    crew.limits(k=2)
    parent = crew.start(
        """
        governor, ended = headway.Governor(), threading.Event()
        def churn():
            while not ended.is_set():
                with governor.slot("k"):
                    pass
        threads = [threading.Thread(target=churn) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(40):
            child = os.fork()
            if not child:
                with governor.slot("k", timeout=20):
                    pass
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                say("a child failed")
        ended.set()
        for thread in threads:
            thread.join()
        say("all well", len(governor.snapshot().leases))
        """
    )
    assert parent.expect("all well") == "0"
    assert crew.watcher().ask("take-all k 2", "took") == "all"


def test_a_child_and_a_newcomer_see_each_other_after_the_parent_left(crew: Crew) -> None:
    """A child goes on in the same database as everyone, though its parent closed and ended."""
    crew.limits(k=1)
    parent = crew.start(
        """
        governor = headway.Governor()
        with governor.slot("other"):
            pass
        ready, go = os.pipe(), os.pipe()
        if os.fork():
            os.read(ready[0], 1)
            governor.close()
            os.write(go[1], b"x")
            os._exit(0)
        with governor.slot("k"):
            pass
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        with governor.slot("k"):
            say("child holds")
            hear()
        say("left")
        hear()
        """
    )
    parent.expect("child holds")
    parent.ended()

    waiter = crew.waiter("k")

    parent.ask("leave", "left")
    waiter.expect("granted")
    assert crew.watcher().ask("audit", "audited") == "fine"


@pytest.mark.parametrize("store", ["None", "'memory://'"])
def test_multiprocessing_with_the_fork_method(crew: Crew, store: str) -> None:
    """A pool of forked workers shares a home's limit, and has its own in memory."""
    crew.limits(k=2)
    parent = crew.start(
        f"""
        import multiprocessing
        governor = headway.Governor({store}, limits={{"k": 2}})
        context = multiprocessing.get_context("fork")
        inside, most = context.Value("i", 0), context.Value("i", 0)
        def work(number):
            with governor.slot("k"):
                with inside.get_lock():
                    inside.value += 1
                    most.value = max(most.value, inside.value)
                time.sleep(0.001)
                with inside.get_lock():
                    inside.value -= 1
            return number
        with governor.slot("other"):
            with context.Pool(6) as pool:
                total = sum(pool.map(work, range(120), chunksize=1))
        say("total", total, "most", most.value)
        """
    )
    _, _, most = parent.expect("total").split()
    assert int(most) <= (2 if store == "None" else 6)


def test_a_fork_from_a_running_event_loop(crew: Crew) -> None:
    """A child forked by a task uses its own loop on the same governor."""
    crew.limits(k=2)
    parent = crew.start(
        """
        governor = headway.Governor()
        async def child():
            async with governor.slot("k") as lease:
                say("child holds")
        async def main():
            async with governor.slot("k") as lease:
                forked = os.fork()
                if not forked:
                    asyncio._set_running_loop(None)
                    asyncio.new_event_loop().run_until_complete(child())
                    os._exit(0)
                os.waitpid(forked, 0)
                lease.check()
            say("left", governor.capacity("k").used)
        asyncio.run(main())
        """
    )
    parent.expect("child holds")
    assert parent.expect("left") == "0"


# Another thread begins to load a module between the moment when stores are at rest and the fork:
# a hook that was registered before Headway's runs after it, and the load takes its time.
_SLOW_DISK = """
import os, runpy, sys, threading, time
at_rest, loading = threading.Event(), threading.Event()
def before_fork():
    at_rest.set()
    loading.wait(1)
def slow_disk(event, args):
    if event == "import" and args[0] in {slow!r} and at_rest.is_set() and not loading.is_set():
        loading.set()
        time.sleep(0.3)
def load():
    at_rest.wait()
    import {loaded}
os.register_at_fork(before=before_fork)
sys.addaudithook(slow_disk)
threading.Thread(target=load, daemon=True).start()
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_fork_while_another_thread_loads_the_asyncio_half(crew: Crew) -> None:
    """The child starts anew, and the killed parent's slot returns though its child lives on."""
    crew.limits(k=1)
    parent = crew.start(
        """
        import asyncio
        governor = headway.Governor()
        slot = governor.slot("k")
        slot.__enter__()
        if os.fork():
            hear()
        with governor.slot("other", timeout=5):
            say("took", "other")
        hear()  # ends with the test
        """,
        before=_with_slow_disk("headway.aio", slow="concurrent.futures.thread"),
    )
    assert parent.expect("took") == "other"
    waiter = crew.waiter("k")

    parent.kill()

    waiter.expect("granted")


def test_a_fork_while_another_thread_loads_the_events(crew: Crew) -> None:
    """The child can wait visibly, and no longer than it wants to."""
    crew.limits(k=1)
    parent = crew.start(
        """
        governor = headway.Governor()
        slot = governor.slot("k")
        slot.__enter__()
        if os.fork():
            hear()
        try:
            governor.slot("k", timeout=0.3, on_wait=lambda event: None).__enter__()
        except headway.QueueTimeout:
            say("gave", "up")
        hear()
        """,
        before=_with_slow_disk("headway.events", slow="dataclasses"),
    )
    assert parent.expect("gave") == "up"


def _with_slow_disk(loaded: str, *, slow: str) -> list[str]:
    return [sys.executable, "-c", _SLOW_DISK.format(loaded=loaded, slow=(slow,))]


@pytest.mark.parametrize("loaded", ["sys", "asyncio"])
def test_a_first_fork_complains_of_nothing(crew: Crew, loaded: str) -> None:
    """What is loaded for the child takes part in the fork as if it had been there before."""
    crew.limits(k=1)
    script = f"""
import os, {loaded}, headway
with headway.slot("k"):
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
import logging, concurrent.futures.thread
assert not logging._lock._is_owned()
assert not concurrent.futures.thread._global_shutdown_lock.locked()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=crew.environ(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_step_that_fails_in_the_child_skips_no_other(crew: Crew) -> None:
    """Whatever goes wrong with one governor after a fork, the child of another starts anew."""
    crew.limits(k=1)
    parent = crew.start(
        """
        import headway.aio
        def fail():
            raise ValueError("on purpose")
        first, governor = headway.Governor(), headway.Governor()
        with governor.slot("k"):
            headway.aio.forget_after_fork = fail
            first.turnstile.forget_after_fork = fail
            governor.turnstile.teller.forget_after_fork = fail
            if os.fork():
                hear()
            else:
                with governor.slot("other", timeout=5):
                    say("took", "other")
                hear()  # ends with the test
        """
    )
    assert parent.expect("took") == "other"
    waiter = crew.waiter("k")

    parent.kill()

    waiter.expect("granted")
