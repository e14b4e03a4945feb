"""Whoever waits in the kernel for a stopped process may stop waiting, in whatever way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from headway.errors import StoreUnavailable
from headway.stores.guard import Doorman, Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType


class Struck(BaseException):
    """What the signal raises."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the lock is."""
    return str(tmp_path / "slots.lock")


@contextlib.contextmanager
def strike_after(seconds: float) -> Iterator[None]:
    """Have a signal raise in here."""

    def strike(_: int, __: FrameType | None) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def enter(guard: Guard) -> None:
    """Go inside and leave, as every operation does."""
    try:
        guard.acquire(patient=True)
    finally:
        guard.release()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Do it in another thread."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_thread_of_ours_that_is_inside_is_named(path: str) -> None:
    """With our own pid, and not as another process."""
    guard, inside, leave = Guard(path, timeout_seconds=0.05), threading.Event(), threading.Event()

    def stay() -> None:
        guard.acquire(patient=True)
        inside.set()
        leave.wait()
        guard.release()

    thread = in_thread(stay)
    inside.wait()
    try:
        with pytest.raises(StoreUnavailable, match=f"another thread of this .* {os.getpid()}, is"):
            enter(guard)
    finally:
        leave.set()
        thread.join()
    guard.close()


def test_another_process_that_our_threads_wait_for_is_named(path: str) -> None:
    """It is the one inside, and not the thread of ours that waits for it first."""
    guard = Guard(path, timeout_seconds=60)
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=1); input()"
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        waits = in_thread(lambda: enter(guard))
        while not guard._at_the_door:
            time.sleep(0.001)
        guard._patience.seconds = 0.05
        with pytest.raises(StoreUnavailable) as caught:
            enter(guard)
        other.communicate(b"\n")

    waits.join()
    guard.close()
    assert f"pid {other.pid} " in str(caught.value)
    assert "of this process" not in str(caught.value)


def come_to_an_end(doorman: Doorman) -> None:
    """Wait until it has got the lock that it waited for, and has done with it."""
    while True:
        with doorman._mutex:
            if not doorman._waiting:
                return
        time.sleep(0.001)


def is_free(path: str) -> bool:
    """Whether nobody has the lock."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_ctrl_c_while_waiting_in_the_kernel_leaves_the_guard_free(path: str) -> None:
    """The lock that comes later is given back, and the next turn is a real one."""
    guard, other = Guard(path, timeout_seconds=5), Guard(path, timeout_seconds=5)
    other.acquire(patient=True)
    with pytest.raises(Struck), strike_after(0.2):
        enter(guard)

    other.release()
    come_to_an_end(guard._doorman)

    assert is_free(path)
    for _ in range(3):
        enter(guard)
        assert is_free(path)
    guard.close()
    other.close()


def test_after_ctrl_c_nobody_enters_beside_another(path: str) -> None:
    """Nothing is left over that would look like a lock that was got."""
    guard, other = Guard(path, timeout_seconds=0.3), Guard(path, timeout_seconds=5)
    for _ in range(3):
        other.acquire(patient=True)
        with pytest.raises(Struck), strike_after(0.1):
            enter(guard)
        other.release()
        come_to_an_end(guard._doorman)

        other.acquire(patient=True)
        with pytest.raises(StoreUnavailable):
            enter(guard)
        other.release()
        enter(guard)
    guard.close()
    other.close()


@pytest.mark.linux
def test_the_thread_ends_with_its_guard(path: str) -> None:
    """It does not wait for ever to be asked again."""
    guard, other = Guard(path, timeout_seconds=0.1), Guard(path, timeout_seconds=5)
    before = threads()
    other.acquire(patient=True)
    with pytest.raises(StoreUnavailable):
        enter(guard)
    other.release()
    come_to_an_end(guard._doorman)
    appeared = threads() - before  # others, of tests before this one, may be ending
    assert len(appeared) == 1

    guard.close()

    while threads() & appeared:  # until the test is out of time
        time.sleep(0.001)
    other.close()


def threads() -> set[str]:
    """The threads of this process, as the kernel knows them."""
    return set(os.listdir("/proc/self/task"))


def test_a_lock_that_comes_after_closing_touches_no_other_file(path: str, tmp_path: Path) -> None:
    """The number of the closed descriptor may be another file's by then."""
    guard, other = Guard(path, timeout_seconds=0.1), Guard(path, timeout_seconds=5)
    other.acquire(patient=True)
    with pytest.raises(StoreUnavailable):
        enter(guard)
    guard.close()
    live = tmp_path / "ID.lock"
    descriptors = [os.open(live, os.O_RDWR | os.O_CREAT, 0o600)]
    fcntl.flock(descriptors[0], fcntl.LOCK_EX)
    descriptors += [os.dup(descriptors[0]) for _ in range(20)]

    other.release()
    come_to_an_end(guard._doorman)

    assert not is_free(str(live))
    assert is_free(path)
    for descriptor in descriptors:
        os.close(descriptor)
    other.close()
