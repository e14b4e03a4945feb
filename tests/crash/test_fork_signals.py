"""Signals that raise in a process that forks: its stores go on afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.kit import Crew

# Raises on a signal, forks, and uses the store after that in this and in another thread.
_FORK = """
class Struck(BaseException):
    pass
def strike(number, frame):
    raise Struck
signal.signal(signal.SIGUSR1, strike)
sys.unraisablehook = lambda _: None
governor = headway.Governor()
with governor.slot("k"):
    pass
{before}
child = os.fork()
if child == 0:
    os._exit(0)
{after}
def use():
    with governor.slot("k", timeout=5):
        say("took", len(governor.snapshot().leases))
use()
thread = threading.Thread(target=use)
thread.start()
thread.join()
hear()
"""
# Registered before Headway's, so it runs after that. It is no Python code: like a signal that
# the kernel delivers while the process is being copied, it strikes when Python goes on; and
# that is in Headway, if nothing else was loaded that minds forks.
_SIGNAL_DURING_FORK = """
import ctypes, functools, os, signal, sys
kill = ctypes.CDLL(None).kill
os.register_at_fork(before=functools.partial(kill, os.getpid(), int(signal.SIGUSR1)))
import headway
assert "logging" not in sys.modules
import threading
def say(*words):
    print(*words, flush=True)
def hear():
    sys.stdin.readline()
exec(sys.argv[4])
"""
_KEEP_INSIDE = """
inside, leave = threading.Event(), threading.Event()
def stay(connection):
    inside.set()
    leave.wait(5)
busy = threading.Thread(target=governor._turnstile.store._home.operate, args=(stay,))
busy.start()
inside.wait(5)
alarm = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
alarm.start()
"""


def test_a_signal_that_raises_during_a_fork(crew: Crew) -> None:
    """It strikes on the way back to work; nothing stays locked."""
    crew.limits(k=1)
    parent = crew.start(
        _FORK.format(before="", after=""), before=[sys.executable, "-c", _SIGNAL_DURING_FORK]
    )
    assert parent.expect("took") == "1"
    assert parent.expect("took") == "1"


def test_a_signal_that_raises_while_a_store_comes_to_rest(crew: Crew) -> None:
    """Some other thread is inside for long; the one that forks gives up with nothing locked."""
    crew.limits(k=1)
    parent = crew.start(_FORK.format(before=_KEEP_INSIDE, after="leave.set(); busy.join()"))
    assert parent.expect("took") == "1"
    assert parent.expect("took") == "1"
