"""Many threads, real signals, and forks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    holding_tasks,
    is_waiting,
    ticket_of,
    until,
    waiting_tasks,
)

import headway
from headway import AtCapacity, Cancelled, Governor, QueueTimeout, turnstile, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.slots.conftest import Govern

_SOURCE = os.path.dirname(os.path.dirname(headway.__file__))


def test_threads_with_all_kinds_of_requests_never_pass_the_limits(govern: Govern) -> None:
    """Weights, several keys, timeouts and no waiting, all at once: the counts always hold."""
    limits = {"k": 4, "k/a": 2, "x": 3}
    governor = govern(limits)
    lock, used, broken = threading.Lock(), dict.fromkeys(limits, 0), []

    def change(keys: tuple[str, ...], by: int) -> None:
        with lock:
            for limited, limit in limits.items():
                if any(key == limited or key.startswith(f"{limited}/") for key in keys):
                    used[limited] += by
                    if used[limited] > limit:
                        broken.append((limited, used[limited]))

    def work(seed: int) -> int:
        choose, done = random.Random(seed), 0
        for _ in range(30):
            keys = choose.choice([("k",), ("k/a",), ("k/b", "x"), ("x",), ("k/a", "x")])
            weight = choose.choice([1, 1, 2])
            timeout = choose.choice([None, None, 0, 0.001])
            try:
                with governor.slot(
                    *keys, weight=weight, timeout=timeout, wait=choose.random() < 0.9
                ):
                    change(keys, weight)
                    done += 1
                    change(keys, -weight)
            except (AtCapacity, QueueTimeout):
                pass
        return done

    workers = [Worker(partial(work, seed)) for seed in range(8)]
    done = [worker.result() for worker in workers]

    assert broken == []
    assert min(done) > 0
    assert_clean(governor)


def test_every_waiting_thread_is_served_in_order(govern: Govern) -> None:
    """Twenty in line are served first come first served."""
    governor = govern({"k": 1})
    order: list[int] = []

    def enter(number: int) -> None:
        with governor.slot("k", task=f"{number}"):
            order.append(number)

    workers = []
    with Held(governor, "k"):
        for number in range(20):
            workers.append(Worker(partial(enter, number)))
            until(partial(is_waiting, governor, f"{number}"))
    for worker in workers:
        worker.result()

    assert order == list(range(20))
    assert_clean(governor)


def let_go(_: Governor, held: Held) -> None:
    """The holder leaves."""
    held.let_go()


def cancel(governor: Governor, _: Held) -> None:
    """Somebody ends the ticket."""
    assert governor.cancel(ticket_of(governor, "it"))


def raise_the_limit(governor: Governor, _: Held) -> None:
    """There is room for both."""
    governor.set_limit("k", 2)


def revoke(governor: Governor, held: Held) -> None:
    """The holder's lease is taken back."""
    assert governor.revoke(held.id)


def end_a_wait(
    ours: Governor,
    theirs: Governor,
    act: Callable[[Governor, Held], None],
    monkeypatch: pytest.MonkeyPatch,
) -> BaseException | None:
    """Wait here with an hour between two looks, act there, and see how the wait ends."""
    monkeypatch.setattr(waiting, "_LISTEN_SECONDS", 3600.0)
    monkeypatch.setattr(turnstile, "NOTICE_SECONDS", 3600.0)
    held, listening, store = Held(theirs, "k"), threading.Event(), ours._turnstile.store
    listen = store.listen

    def tell_and_listen(seconds: float) -> None:
        listening.set()
        listen(seconds)

    def enter() -> None:
        with ours.slot("k", task="it"):
            pass

    if store.shared:
        monkeypatch.setattr(store, "listen", tell_and_listen)
    else:
        listening.set()
    worker = Worker(enter)
    until(partial(is_waiting, theirs, "it"))
    assert listening.wait(10)
    threading.Event().wait(0.02)  # it is on its way to sleep
    act(theirs, held)
    worker.end()
    held.let_go()
    return worker.error


@pytest.mark.parametrize("act", [let_go, cancel, raise_the_limit, revoke])
def test_a_waiter_is_woken_and_does_not_find_out_by_looking(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, act: Callable[[Governor, Held], None]
) -> None:
    """With an hour between two looks, everything that ends a wait still ends it (rule 5)."""
    governor = govern({"k": 1})

    error = end_a_wait(governor, governor, act, monkeypatch)

    assert isinstance(error, Cancelled) == (act is cancel)
    assert_clean(governor)


@pytest.mark.parametrize("act", [let_go, cancel, raise_the_limit, revoke])
def test_a_waiter_is_woken_by_another_governor(
    home: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[Governor, Held], None]
) -> None:
    """The same when what ends the wait happens elsewhere."""
    url = f"sqlite:///{home}"

    with Governor(url, limits={"k": 1}) as ours, Governor(url) as theirs:
        error = end_a_wait(ours, theirs, act, monkeypatch)

        assert isinstance(error, Cancelled) == (act is cancel)
        assert_clean(ours)


_INTERRUPTED = """
import sys, headway
governor = headway.Governor({url!r}, limits={{"k": 1}})
if {other!r}:
    blocker = headway.Governor({other!r})
else:
    blocker = governor
import threading
held = threading.Event()
def hold():
    with blocker.slot("k", task="other"):
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
print("waiting", flush=True)
try:
    with governor.slot("k", task="it"):
        print("granted", flush=True)
except KeyboardInterrupt:
    seen = governor.snapshot()
    print("interrupted", len(seen.waiting), [lease.task for lease in seen.leases], flush=True)
"""


def test_ctrl_c_ends_a_waiting_main_thread_at_once(url: str) -> None:
    """A real signal: the wait ends, and nobody stands in line any more."""
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", _INTERRUPTED.format(url=url, other="")],
        env={**os.environ, "PYTHONPATH": _SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        if url.startswith("sqlite"):
            with Governor(url) as governor:
                until(lambda: waiting_tasks(governor) == ["it"])
        else:
            threading.Event().wait(0.3)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted 0 ['other']\n"
    finally:
        child.kill()
        child.communicate()


_WORKING = """
import gc, signal, headway
governor = headway.Governor({url!r}, limits={{"k": 1}})
struck = False
def strike(*_):
    global struck
    struck = True
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, strike)
for _ in range({times}):
    struck = False
    try:
        print("ready", flush=True)
        while not struck:
            with governor.slot("k/a", timeout=5):
                pass
    except KeyboardInterrupt:
        pass
gc.collect()
with governor.slot("k", timeout=5):
    seen = governor.snapshot()
    print([(row.key, row.used) for row in seen.limits if row.used], len(seen.leases), flush=True)
"""


def test_a_hail_of_ctrl_c_leaks_nothing(url: str) -> None:
    """Many real signals at random moments of a busy loop: the slot can still be had."""
    times, choose = 100, random.Random(5)
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", _WORKING.format(url=url, times=times)],
        env={**os.environ, "PYTHONPATH": _SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        for _ in range(times):
            assert child.stdout.readline() == "ready\n"
            threading.Event().wait(choose.random() * 0.002)
            child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.communicate()
    assert out == "[('k', 1)] 1\n", err


def test_a_waiting_thread_can_be_cancelled_from_outside(govern: Govern) -> None:
    """And the thread that holds goes on."""
    governor = govern({"k": 1})

    def enter() -> None:
        with governor.slot("k", task="it"):
            pass

    with Held(governor, "k", task="holder"):
        worker = Worker(enter)
        until(lambda: waiting_tasks(governor) == ["it"])
        governor.cancel(governor.snapshot().waiting[0].id)
        worker.end()
        assert isinstance(worker.error, Cancelled)
        assert holding_tasks(governor) == ["holder"]
    assert_clean(governor)


_FORKING = """
import os, headway
governor = headway.Governor({url!r}, limits={{"k": 1}})
with governor.slot("k", task="parent"):
    pid = os.fork()
    if not pid:
        try:
            with governor.slot("k", wait=False):
                os._exit(1)
        except headway.AtCapacity:
            os._exit(2)
        except BaseException:
            os._exit(3)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(code, governor.capacity("k").used)
print(governor.capacity("k").used)
"""


def test_a_forked_child_is_a_holder_of_its_own(url: str) -> None:
    """On a shared store it finds its parent's slot taken; in memory it starts empty."""
    run = subprocess.run(
        [sys.executable, "-c", _FORKING.format(url=url)],
        env={**os.environ, "PYTHONPATH": _SOURCE},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert run.stdout.split() == ["1" if url.startswith("memory") else "2", "1", "0"], run.stderr


def test_threads_that_end_without_leaving_keep_nothing(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that dies of its error inside the block has left it."""
    governor = govern({"k": 1})
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def die() -> None:
        with governor.slot("k"):
            raise SystemExit

    for _ in range(3):
        thread = threading.Thread(target=die)
        thread.start()
        thread.join(10)

    assert_clean(governor)
