"""The nursery: forks the supervisors of attempts, and clears up if one is killed.

A process of its own, small and with one thread, so that forking is fast and safe. It
keeps supervisors ready. It is the parent of all of them, and of what one that
was killed leaves behind: that it ends, and until then it keeps a copy of the lock of
the dead, so that its slot is not free too early. When the worker is gone, everything
here ends.
"""

from __future__ import annotations

# Loaded once for all supervisors.
import _ctypes  # noqa: F401
import gc
import os
import select
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

import psutil  # noqa: F401

import headway.settings_file
import headway.stores.sqlite  # noqa: F401
from headway import config, family
from headway.errors import ConfigError
from headway.jobs.attempt import tend
from headway.turnstile import close_all
from headway.wire import Wire, raise_limit_of_files, restore_limit_of_files

if TYPE_CHECKING:
    from typing import NoReturn

# It ends with its worker, and not because somebody pressed Ctrl-C.
_UNHEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_INSIST_SECONDS = 0.02
# So many supervisors are kept ready. Making another takes its time, which those who start now
# shall have: it is put off until nothing happened for a moment.
_SPARES = 2
# After so many jobs a supervisor makes room for a fresh one.
_MANY = 200
_QUIET_MILLISECONDS = 25
_RETRY_SECONDS = 1.0


class Charge:
    """One supervisor, as its nursery knows it."""

    __slots__ = ("job", "lifeline", "pid", "served", "wire")

    def __init__(self, pid: int, wire: Wire) -> None:
        self.pid, self.wire = pid, wire
        self.job: int | None = None
        self.lifeline: int | None = None
        self.served = 0


class Nursery:
    """All supervisors of one worker."""

    def __init__(self, home: str, worker: Wire) -> None:
        self._home, self._worker = home, worker
        self._charges: dict[int, Charge] = {}
        # Those that are ready and have no job yet.
        self._spares: list[Charge] = []
        self._is_worker_gone = False
        # What the worker does not take in yet. If we waited for that while it waits for us
        # to take in what it says, both would wait for good.
        self._outbox: deque[tuple[str, dict[str, object]]] = deque()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serve the worker until it is gone and nothing is left."""
        os.setsid()
        self._files = raise_limit_of_files()
        family.adopt_orphans()
        # Not ignored: a job would inherit that.
        for signum in (*_UNHEEDED, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        while not (self._is_worker_gone and not self._charges):
            if not (self._wait() or self._is_worker_gone) or not self._spares:
                self._fork_spare()
            self._bury()

    def _fork_spare(self) -> None:
        if not self._is_worker_gone and len(self._spares) < _SPARES:
            try:
                self._spares.append(self._fork())
            except OSError:
                time.sleep(_RETRY_SECONDS)

    def _fork(self) -> Charge:
        near, far = Wire.pair()
        pid = os.fork()
        if pid == 0:
            near.close()
            self._become_supervisor(far)
        far.close()
        charge = Charge(pid, near)
        self._charges[pid] = charge
        return charge

    def _become_supervisor(self, wire: Wire) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            restore_limit_of_files(self._files)
            os.setsid()
            self._worker.close()
            for charge in self._charges.values():
                charge.wire.close()
                if charge.lifeline is not None:
                    os.close(charge.lifeline)
            os.close(self._wake)
            os.close(self._woken)
            code = tend(self._home, wire)
            close_all()  # else it would be taken for dead
        except BaseException:  # noqa: BLE001 - the last one who could show it
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _wait(self) -> bool:
        """Sleep until something happens, and see to it; false if it is quiet for a moment."""
        poll = select.poll()
        by_descriptor = {charge.wire.fileno(): charge for charge in self._charges.values()}
        for descriptor in (self._wake, *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        wanted = 0 if self._is_worker_gone else select.POLLIN
        wanted |= select.POLLOUT if self._outbox else 0
        if wanted:
            poll.register(self._worker.fileno(), wanted)
        is_short = len(self._spares) < _SPARES and not self._is_worker_gone
        ready = poll.poll(_QUIET_MILLISECONDS if is_short else None)
        for descriptor, events in ready:
            if descriptor == self._wake:
                os.read(self._wake, 4096)
            elif descriptor in by_descriptor:
                self._pass_on(by_descriptor[descriptor])
            elif not self._is_worker_gone and events & ~select.POLLOUT:
                self._obey()
        self._speak()
        return bool(ready)

    def _speak(self) -> None:
        """Tell the worker as much as it takes in."""
        while self._outbox:
            kind, facts = self._outbox[0]
            if not self._worker.offer(kind, **facts):
                return
            self._outbox.popleft()

    def _tell(self, kind: str, **facts: object) -> None:
        self._outbox.append((kind, facts))
        self._speak()

    def _obey(self) -> None:
        """Do what the worker says; if it is gone, end everything."""
        order = self._worker.receive()
        if order is None:
            self._is_worker_gone = True
            for charge in self._charges.values():
                charge.wire.hang_up()
        elif order["kind"] == "start":
            self._start(order["job"], order["lease"])
        else:
            for charge in self._charges.values():
                if charge.job == order["job"]:
                    charge.wire.send(order["kind"], reason=order["reason"])

    def _start(self, job: int, lease: str) -> None:
        try:
            charge = self._spares.pop(0) if self._spares else self._fork()
        except OSError as error:  # no more processes or descriptors
            self._tell("failed", job=job, reason=f"no supervisor can be made: {error.strerror}")
            self._tell("gone", job=job)
            return
        charge.job = job
        charge.wire.send("start", job=job, lease=lease)

    def _pass_on(self, charge: Charge) -> None:
        """Take the copy of a supervisor's lock, and tell the worker the rest."""
        message = charge.wire.receive()
        if message is None:
            return  # it ended, and is buried when its death is heard of
        charge.lifeline = message.pop("lifeline", charge.lifeline)
        kind, job = message.pop("kind"), charge.job
        if kind == "idle":
            self._rest(charge)
            kind = "gone"
        self._tell(kind, **{**message, "job": job})

    def _rest(self, charge: Charge) -> None:
        """A supervisor is done with its job: it may have another, or leave if there are enough."""
        charge.job, charge.served = None, charge.served + 1
        if self._is_worker_gone or len(self._spares) >= _SPARES or charge.served >= _MANY:
            charge.wire.hang_up()
        else:
            self._spares.append(charge)

    def _bury(self) -> None:
        """Clear up after supervisors that ended; their slots are free only when all is gone."""
        died = self._reap()
        if any(status for _, status in died):
            died += self._end_orphans()
        for charge, status in died:
            self._pass_on(charge)
            charge.wire.close()
            if charge.lifeline is not None:
                os.close(charge.lifeline)
            if charge in self._spares:
                self._spares.remove(charge)
                if not (os.WIFSIGNALED(status) or self._is_worker_gone):
                    # It cannot open the home, and that will not be better at once.
                    time.sleep(_RETRY_SECONDS)
            if charge.job is not None:
                self._tell("gone", job=charge.job)

    def _reap(self) -> list[tuple[Charge, int]]:
        died = []
        for pid, status in family.news():
            if pid not in self._charges or os.WIFCONTINUED(status):
                continue
            if os.WIFSTOPPED(status):  # by its own job, perhaps; asleep it could not end that
                os.kill(pid, signal.SIGCONT)
            else:
                died.append((self._charges.pop(pid), status))
        return died

    def _end_orphans(self) -> list[tuple[Charge, int]]:
        """Kill what a supervisor has left that was killed or failed, until nothing is there."""
        died = self._reap()
        while family.tell(signal.SIGKILL, but=frozenset(self._charges)):
            time.sleep(_INSIST_SECONDS)
            died += self._reap()
        return died


def main(words: list[str]) -> None:
    """What the worker starts: the home, and the descriptor that leads to it."""
    home, descriptor = words
    _load_store(home)
    gc.freeze()  # what is loaded now stays shared with the supervisors
    Nursery(home, Wire.inherited(int(descriptor))).run()


def _load_store(home: str) -> None:
    """What a server needs takes longer to load than a supervisor to fork."""
    try:
        if config.load(home).store_url is not None:
            import headway.stores.redis  # noqa: F401, PLC0415
    except (ConfigError, ModuleNotFoundError):
        pass  # whoever opens the store says so
