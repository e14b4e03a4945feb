"""The story of ``headway demo``: eight agents, three slots, and one that is killed.

The agents are real processes under the real ``headway run``, in a home of their
own. Nothing is pretended: what the demo claims at its end is what the agents
themselves reported, and it is checked.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from headway.cli.endings import Cards
from headway.cli.watching import Diary, Look
from headway.governor import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from headway.views import Snapshot

SLOTS = 3
LIMITED, KEY = "agent", "agent/demo"
VICTIM = 1
# What each does, and for how many seconds: the first step lasts until all have arrived.
_SCRIPTS = (
    ("login.py=.6", "session.py=1.3", 1.4, 0.4),
    ("parser.py=.6", "tokens.py=1.5", 60.0, 0.4),
    ("README.md=.6", "docs/setup.md=2.2", 1.4, 0.5),
    ("retry.py=.7", "client.py=1.6", 1.4, 0.5),
    ("schema.sql=.6", "models.py=1.5", 1.3, 0.4),
    ("cache.py=.8", "cache.py=1.7", 1.5, 0.4),
    ("api.py=.6", "routes.py=1.2", 1.2, 0.4),
    ("export.py=.7", "report.py=1.5", 1.3, 0.5),
)
_TESTING = "running the tests"
_KILL_AFTER_SECONDS = 0.9
_AGENT = os.path.join(os.path.dirname(__file__), "scripted_agent.py")
# All of it takes some 13 s. Whoever is not done by then will not be.
_LONGEST_SECONDS = 120.0
_LAST_WORDS_SECONDS = 10.0


@dataclass(slots=True)
class Agent:
    """One agent: what it said of itself and what the home says, on the clock of all processes."""

    task: str
    steps: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    asked_at: float | None = None
    granted_at: float | None = None
    began_at: float | None = None
    ended_at: float | None = None
    killed_at: float | None = None
    doing: str = ""
    doing_since: float = 0.0
    code: int | None = None
    place: int = 0
    may_go_on: bool = False
    complaints: list[str] = field(default_factory=list)
    _heard: bytes = b""

    @property
    def is_running(self) -> bool:
        """Whether it is at work now."""
        return self.began_at is not None and self.over_at is None

    @property
    def over_at(self) -> float | None:
        """When its work ended, in whatever way."""
        return self.ended_at if self.killed_at is None else self.killed_at

    def hear(self, said: bytes) -> None:
        """Take in what it said."""
        *lines, self._heard = (self._heard + said).split(b"\n")
        for line in lines:
            what, _, detail = line.decode(errors="replace").partition(" ")
            if what == "began":
                self.began_at = float(detail)
            elif what == "doing":
                self.doing, self.doing_since = detail, time.monotonic()
            elif what == "ended":
                self.ended_at = float(detail)
            else:
                self.complaints.append(f"{what} {detail}")


class Story:
    """Runs the agents; ``with`` ends all that it started and removes its home."""

    def __init__(self, *, pace: float = 1.0) -> None:
        self._pace = pace
        self.home = tempfile.mkdtemp(prefix="headway-demo-")
        self.agents = [
            Agent(f"issue-{number}", list(_steps(script, pace)))
            for number, script in enumerate(_SCRIPTS, 11)
        ]
        self.began_at = time.monotonic()
        self.expected_seconds = 1.8 + 11.5 * pace
        self._environ = _environ(self.home)
        self._selector = selectors.DefaultSelector()
        self._unread = 0

    def __enter__(self) -> Self:
        # The picture says all that the log would.
        logging.disable(logging.CRITICAL)
        # What is set outside is for other homes.
        for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
            del os.environ[name]
        self._governor = Governor(f"sqlite:///{self.home}")
        self._governor.set_limit(LIMITED, SLOTS)
        self._cards = Cards(os.path.join(self.home, "live"))
        self._diary = Diary(self._cards)
        self.look = self._look()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for agent in self.agents:
                _end(agent)
            self._see_all_off()
            self._selector.close()
            self._cards.close()
            self._governor.close()
        finally:
            logging.disable(logging.NOTSET)
            shutil.rmtree(self.home, ignore_errors=True)

    def _see_all_off(self) -> None:
        """Wait until nobody is in the home: who finds it removed would make another."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < deadline:
            self._governor.snapshot()  # which clears up after the dead
            present = os.listdir(os.path.join(self.home, "live"))
            if sum(name.endswith(".lock") for name in present) <= 1:
                return
            time.sleep(0.01)

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self.began_at

    @property
    def victim(self) -> Agent:
        """The one that is killed."""
        return self.agents[VICTIM]

    @property
    def heir(self) -> Agent | None:
        """The one that got a slot next after the kill."""
        killed_at = self.victim.killed_at
        later = [
            agent
            for agent in self.agents
            if killed_at is not None and (agent.granted_at or 0) > killed_at
        ]
        return min(later, key=lambda agent: agent.granted_at or 0, default=None)

    @property
    def gap_seconds(self) -> float | None:
        """How long the slot of the killed one belonged to nobody."""
        killed_at, heir = self.victim.killed_at, self.heir
        if killed_at is None or heir is None or heir.granted_at is None:
            return None
        return heir.granted_at - killed_at

    @property
    def is_over(self) -> bool:
        """Whether all have ended, or one that should not have, or it takes too long."""
        ended = all(agent.code is not None for agent in self.agents) and not self._unread
        return ended or self.has_failed or self.seconds > _LONGEST_SECONDS

    @property
    def has_failed(self) -> bool:
        """Whether an agent ended that should not have."""
        return any(agent.code and agent.killed_at is None for agent in self.agents)

    def go_on(self, seconds: float) -> None:
        """Let this much time pass, and do what is due."""
        deadline = time.monotonic() + seconds
        while True:
            self._listen(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        self.look = self._look()
        self._start_next()
        self._open_the_gate()
        self._kill_when_due()

    def _listen(self, seconds: float) -> None:
        if not self._unread:
            time.sleep(seconds)
        for key, _ in self._selector.select(seconds) if self._unread else ():
            agent: Agent = key.data
            said = os.read(key.fd, 4096)
            if said:
                agent.hear(said)
            else:
                self._selector.unregister(key.fileobj)
                self._unread -= 1
        for agent in self.agents:
            if agent.process is not None and agent.code is None:
                agent.code = agent.process.poll()

    def _look(self) -> Look:
        snapshot = self._governor.snapshot()
        _note_places(self.agents, snapshot)
        return Look(snapshot, self._diary.read(snapshot))

    def _start_next(self) -> None:
        """One after the other, so that who asked first is known for sure."""
        following = next((agent for agent in self.agents if agent.process is None), None)
        if following is None:
            return
        place = self.agents.index(following)
        if place and self.agents[place - 1].asked_at is None:
            return
        run = [sys.executable, "-m", "headway", "run", "--quiet"]
        following.process = subprocess.Popen(
            [*run, "--on", KEY, "--task", following.task, "--", *_program(), *following.steps],
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert following.process.stdout is not None
        self._selector.register(following.process.stdout, selectors.EVENT_READ, following)
        self._unread += 1

    def _open_the_gate(self) -> None:
        """Let those go on who were seen at work, once all have arrived."""
        if any(agent.asked_at is None for agent in self.agents):
            return
        for agent in self.agents:
            if agent.may_go_on or agent.granted_at is None:
                continue
            agent.may_go_on = True
            assert agent.process is not None
            assert agent.process.stdin is not None
            try:
                agent.process.stdin.write(b"go\n")
                agent.process.stdin.close()
            except BrokenPipeError:
                continue  # it is gone, and is found out as such

    def _kill_when_due(self) -> None:
        victim = self.victim
        busy_seconds = time.monotonic() - victim.doing_since
        if (
            victim.is_running
            and victim.doing == _TESTING
            and busy_seconds >= _KILL_AFTER_SECONDS * self._pace
        ):
            tree = _tree(victim)
            victim.killed_at = time.monotonic()
            _kill(tree)

    def finish(self) -> None:
        """Wait until the last ones have left the home, for a while."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < deadline and not self.has_failed:
            self.look = self._look()
            if not self.look.snapshot.leases and not self.look.snapshot.waiting:
                return
            time.sleep(0.05)


def _steps(script: tuple[str, str, float, float], pace: float) -> Iterator[str]:
    reading, editing, testing_seconds, closing_seconds = script
    for verb, text in (("reading", reading), ("editing", editing)):
        name, _, seconds = text.partition("=")
        yield f"{verb} {name}={float(seconds) * pace}"
    yield f"{_TESTING}={testing_seconds * pace}"
    yield f"opening a pull request={closing_seconds * pace}"


def _program() -> list[str]:
    """Python as bare as it gets: it starts in a moment."""
    return [sys.executable, "-I", "-S", _AGENT]


def _environ(home: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADWAY_")}
    return {**kept, "HEADWAY_HOME": home}


def _note_places(agents: Sequence[Agent], snapshot: Snapshot) -> None:
    now, wall = time.monotonic(), time.time()
    places = {ticket.task: ticket.position for ticket in snapshot.waiting}
    granted = {lease.task: now - (wall - lease.since) for lease in snapshot.leases}
    for agent in agents:
        agent.place = places.get(agent.task, 0)
        if agent.granted_at is None:
            agent.granted_at = granted.get(agent.task)
        if agent.asked_at is None and (agent.task in places or agent.task in granted):
            agent.asked_at = now


def _tree(agent: Agent) -> list[psutil.Process]:
    """The agent's own process last: as long as it lives, someone must count it."""
    assert agent.process is not None
    try:
        front = psutil.Process(agent.process.pid)
        return [front, *front.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def _end(agent: Agent) -> None:
    """End it with everything it started, if it has not ended by itself."""
    if agent.process is None:
        return
    if agent.process.poll() is None:
        tree = _tree(agent)
        _kill(tree)
        psutil.wait_procs(tree, timeout=_LAST_WORDS_SECONDS)
    agent.process.wait()
    for pipe in (agent.process.stdin, agent.process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except BrokenPipeError:  # what it was never told
            continue
