"""Death between any two lines: victims that kill themselves at the n-th line of an operation.

A driver process forks a survivor, which lives through it all, and for every n a
victim. Each victim prepares itself, then runs one operation under a trace that
counts the lines executed in the store and in what waits on it, and at the n-th
line it is gone by SIGKILL. Nothing in production code knows of this.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
from typing import TYPE_CHECKING

from tests.crash.audit import audit, take_all

import headway
from headway import turnstile
from headway.stores import base

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from tests.crash.scenarios import Scenario

    from headway import Governor, Lease, Slot
    from headway.tickets import Ticket

LIMITS = {"a": 2, "a/x": 1, "b": 1}
_STORES = os.path.dirname(base.__file__)
_ALSO = {os.path.join(os.path.dirname(_STORES), name) for name in ("waiting.py", "turnstile.py")}
_PATIENCE_SECONDS = 40.0


class Hung(Exception):  # noqa: N818 - a word of this module
    """A puppet did not answer."""


class Puppet:
    """A forked process that evaluates what it is told, in the words of ``Play``."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._orders)
            os.close(self._answers)
            _serve(orders, answers)
        os.close(orders)
        os.close(answers)

    def do(self, code: str) -> str | None:
        """Its answer; none if it died of it."""
        os.write(self._orders, code.encode() + b"\n")
        answer = _read_line(self._answers, code)
        if answer is not None and answer.startswith("error"):
            raise AssertionError(f"{code}: {answer}")
        return answer

    def end(self) -> None:
        """Kill it, if need be, and bury it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def _read_line(descriptor: int, what: str) -> str | None:
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([descriptor], [], [], _PATIENCE_SECONDS)[0]:
            raise Hung(f"no answer to {what}")
        more = os.read(descriptor, 4096)
        if not more:
            return None
        line += more
    return line.decode().rstrip("\n")


def _serve(orders: int, answers: int) -> None:
    play = Play(answers)
    words = {name: getattr(play, name) for name in dir(play) if name[0] != "_"}
    try:
        with open(orders, encoding="utf-8") as lines:
            for line in lines:
                try:
                    answer = eval(line, words)  # noqa: S307
                except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it
                    answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
                os.write(answers, f"{answer}\n".encode())
    finally:
        os._exit(0)


class Play:
    """What a puppet can be told to do."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._slots: dict[str, tuple[Slot, Lease]] = {}
        self._outcomes: dict[str, str] = {}
        self._ended: dict[str, threading.Event] = {}
        self._parked: list[Ticket] = []
        self._opened: Governor | None = None
        turnstile.NOTICE_SECONDS = 0.001

    def open(self) -> None:
        self._opened = headway.Governor()

    @property
    def _governor(self) -> Governor:
        assert self._opened is not None
        return self._opened

    def governor(self, method: str, *arguments: object) -> object:
        """Call a method of the governor."""
        return getattr(self._governor, method)(*arguments)

    def hold(self, name: str, *keys: str, **options: Any) -> str:
        """Take slots under a name, in this thread."""
        slot = self._governor.slot(*keys, **options)
        lease = slot.__enter__()
        self._slots[name] = slot, lease
        return lease.id

    def ask(self, *keys: str, **options: Any) -> str:
        """Ask, and take no for an answer."""
        try:
            with self._governor.slot(*keys, **options):
                return "granted"
        except (headway.AtCapacity, headway.QueueTimeout):
            return "refused"

    def drop(self, name: str) -> None:
        """Give back what is held under a name."""
        slot, _ = self._slots.pop(name)
        slot.__exit__(None, None, None)

    def line_up(self, name: str, *keys: str, **options: Any) -> str:
        """Have a thread wait in line; the ticket's id once it does."""
        in_line, tickets = threading.Event(), []
        self._ended[name] = threading.Event()

        def queued(event: Any) -> None:
            tickets.append(event.ticket_id)
            in_line.set()

        def wait() -> None:
            slot = self._governor.slot(*keys, on_wait=queued, **options)
            try:
                self._slots[name] = slot, slot.__enter__()
                self._outcomes[name] = "granted"
            except headway.HeadwayError as error:
                self._outcomes[name] = type(error).__name__
            self._ended[name].set()

        threading.Thread(target=wait, daemon=True).start()
        assert in_line.wait(_PATIENCE_SECONDS)
        return str(tickets[0])

    def outcome(self, name: str) -> str:
        """What became of a thread in line, when it is known; it keeps no slot."""
        if not self._ended[name].wait(_PATIENCE_SECONDS / 2):
            return f"stranded: {audit(self._governor)}"
        if name in self._slots:
            self.drop(name)
        return self._outcomes[name]

    def park(self, *keys: str) -> None:
        """Put a ticket in line with nobody waiting for it."""
        ticket = self._governor._turnstile.new_ticket(self._governor.slot(*keys).request)
        self._governor._store.request(ticket, wait=True)
        self._parked.append(ticket)

    def unpark(self) -> None:
        """Withdraw that ticket."""
        self._governor._store.withdraw(self._parked.pop())

    def spoil(self, how: str) -> None:
        """Do something to the database file."""
        path = os.path.join(os.environ["HEADWAY_HOME"], "slots.db")
        os.unlink(path)
        if how == "garbage":
            with open(path, "wb") as file:
                file.write(os.urandom(4096))

    def check(self) -> str:
        """All capacity is there, the books are right, and nobody is left."""
        if self._opened is None:
            self.open()
        take_all(self._governor, LIMITS)
        found = audit(self._governor)
        seen = self._governor.snapshot()
        if seen.leases or seen.waiting:
            return f"left behind: {seen.leases} {seen.waiting}"
        return found

    def traced(self, deadly: int, action: Callable[[], object]) -> int:
        """Run the action, die at its n-th line; or how many lines it has."""
        count = 0

        def in_frame(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            if event == "line":
                count += 1
                if count == deadly:
                    where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                    os.write(self._answers, f"died at {where}\n".encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return in_frame

        def in_call(frame: FrameType, _event: str, _: object) -> Any:
            file = frame.f_code.co_filename
            return in_frame if file.startswith(_STORES) or file in _ALSO else None

        sys.settrace(in_call)
        try:
            action()
        finally:
            sys.settrace(None)
        return count


class Stage:
    """One scenario, played once for each line of its operation."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._home = os.environ["HEADWAY_HOME"]
        self._survivor: Puppet | None = None
        self._deaths = 0

    @property
    def survivor(self) -> Puppet:
        if self._survivor is None:
            self._survivor = Puppet()
            self._survivor.do("open()")
        return self._survivor

    def play(self, deadly: int) -> str:
        """Let one victim die at a line; where that was, or how many lines there are."""
        if self._scenario.fresh_home:
            shutil.rmtree(self._home, ignore_errors=True)
        else:
            self._open_survivor()
        write_limits(self._home)
        victim = Puppet()
        try:
            self._scenario.prepare(self, victim)
            answer = victim.do(f"traced({deadly}, lambda: {self._scenario.action})")
            assert answer is not None
        finally:
            victim.end()
        try:
            self._scenario.afterwards(self)
            if self._scenario.fresh_home:
                self._check_with_a_new_one()
            else:
                assert (found := self.survivor.do("check()")) == "fine", found
        except (AssertionError, Hung) as error:
            raise AssertionError(f"line {deadly}, {answer}: {error}") from error
        return answer

    def _open_survivor(self) -> None:
        if self._survivor is None:
            write_limits(self._home)
            self._survivor = Puppet()
            self._survivor.do("open()")

    def _check_with_a_new_one(self) -> None:
        checker = Puppet()
        try:
            assert (found := checker.do("check()")) == "fine", found
        finally:
            checker.end()

    def corpse(self, code: str) -> None:
        """Have somebody do something and be killed."""
        dead = Puppet()
        dead.do("open()")
        dead.do(code)
        dead.end()


def write_limits(home: str) -> None:
    """Make the home's file as it was."""
    os.makedirs(home, mode=0o700, exist_ok=True)
    with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as file:
        file.write("[limits]\n" + "".join(f'"{key}" = {n}\n' for key, n in LIMITS.items()))


def drive(name: str, most: int | None, report: Callable[[str], None]) -> str:
    """Play a scenario for all lines, or for at most so many that lie evenly spread."""
    import asyncio  # noqa: F401, PLC0415 - loaded once here, not in every fork
    import logging  # noqa: PLC0415
    import sqlite3  # noqa: F401, PLC0415
    import tomllib  # noqa: F401, PLC0415

    import tomlkit  # noqa: F401, PLC0415
    from tests.crash.scenarios import SCENARIOS  # noqa: PLC0415

    logging.getLogger("headway").addHandler(logging.NullHandler())
    stage = Stage(SCENARIOS[name])
    lines = int(stage.play(0))
    step = 1.0 if most is None else max(1.0, lines / most)
    chosen = sorted({1 + int(step * turn) for turn in range(int(lines / step))} | {lines})
    died = 0
    for deadly in chosen:
        answer = stage.play(deadly)
        report(answer)
        died += answer.startswith("died")
    return f"{died} deaths in {lines} lines"
