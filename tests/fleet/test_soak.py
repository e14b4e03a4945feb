"""A minute of chaos: holders, waiters, workers and the server end at random, and rule 1 holds.

The counter knows nothing of Headway but the tokens: who was told that its lease is lost would be
refused by whatever honours them, and does not count.
"""

from __future__ import annotations

import os
import random
import re
import time
from typing import TYPE_CHECKING

import pytest
from tests.fleet.conftest import LEASE_SECONDS
from tests.fleet.shop import Shop

if TYPE_CHECKING:
    from tests.crash.kit import Child
    from tests.fleet.conftest import Fleet
    from tests.fleet.server import Server

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
_LIMIT = 2
_USERS = 5
_SHOPS = 2
_USER = """
import random
governor = headway.Governor()
say("ready")
while True:
    try:
        with governor.slot("k", timeout=random.choice([0.05, 5.0, None])) as lease:
            token = lease.token
            say("in", token, time.time())
            time.sleep(random.uniform(0, 0.05))
            say("out", token, time.time(), int(lease.lost))
    except headway.QueueTimeout:
        say("late")
    except headway.StoreUnavailable:
        say("away")
    except headway.LeaseLost:
        say("lost")
"""
_LINE = re.compile(r"(in|out) (\d+) ([\d.]+) ?(1?)")


class Guarded:
    """What the slots guard: it knows who used it from when to when, by the tokens."""

    def __init__(self) -> None:
        self.stays: dict[int, list[float]] = {}
        self.used = self.refused = 0

    def hear(self, line: str) -> None:
        """Take note of what a user says."""
        found = _LINE.match(line)
        if not found:
            return
        kind, token, at, is_lost = found.groups()
        if is_lost:
            del self.stays[int(token)]
            self.refused += 1
        elif kind == "in":
            assert int(token) not in self.stays, "a token came twice"
            self.stays[int(token)] = [float(at), float("inf")]
            self.used += 1
        else:
            self.stays[int(token)][1] = float(at)

    def ended(self, token: int) -> None:
        """Who held this is dead, and uses nothing from now on."""
        self.stays[token][1] = min(self.stays[token][1], time.time())

    def read(self, shop: Shop) -> None:
        """Take note of what the jobs of a shop have said, now that they have ended."""
        lost, told = shop.lost(), [line.rpartition(" ") for line in shop.journal()]
        for line, _, attempt in told:
            is_lost = line.startswith("out") and attempt in lost
            self.hear(f"{line} 1" if is_lost else line)
        assert len(told) == 2 * len({attempt for _, _, attempt in told}), "one did not leave"

    def most(self) -> int:
        """How many were inside at once."""
        steps = [(since, 1) for since, _ in self.stays.values()]
        steps += [(until, -1) for _, until in self.stays.values()]
        inside = most = 0
        for _, step in sorted(steps):
            inside += step
            most = max(most, inside)
        return most


class User:
    """A process that takes a slot again and again."""

    def __init__(self, fleet: Fleet, guarded: Guarded) -> None:
        self._guarded = guarded
        self.child: Child = fleet.start(_USER, HEADWAY_LIMITS=f"k={_LIMIT}")
        self.child.expect("ready")
        self.inside: list[int] = []
        self.lines = 0

    def listen(self) -> None:
        """Hear all that it has said by now."""
        while (line := self.child.line_within(0)) is not None:
            self._note(line)

    def _note(self, line: str) -> None:
        self.lines += 1
        self._guarded.hear(line)
        if line.startswith("in "):
            self.inside = [int(line.split()[1])]
        elif line.startswith("out "):
            self.inside = []

    def kill(self) -> None:
        """Let it end; whatever it held is used no more."""
        self.child.kill()
        for line in self.child.unread().splitlines():
            self._note(line)
        for token in self.inside:
            self._guarded.ended(token)

    def goes_on(self) -> None:
        """It is served: wait until it has said something new."""
        before = self.lines
        while self.lines == before:
            self._note(self.child.line())


class Chaos:
    """Ends one thing after the other, and lets the next one come."""

    def __init__(self, fleet: Fleet, server: Server, guarded: Guarded, seed: int) -> None:
        self._fleet, self._server, self._guarded = fleet, server, guarded
        self._chance = random.Random(seed)
        self.users = [User(fleet, guarded) for _ in range(_USERS)]
        self.shops = [
            Shop(fleet.scratch / f"shop-{number}", server.url, jobs=int(3 * SECONDS))
            for number in range(_SHOPS)
        ]
        self.deeds = {"user": 0, "worker": 0, "server": 0}

    def step(self) -> None:
        time.sleep(self._chance.uniform(0, 0.2))
        for user in self.users:
            user.listen()
        for shop in self.shops:
            shop.go_on()
        if self._chance.random() < 0.1:
            self._end_user()
        if self._chance.random() < 0.03:
            self._chance.choice(self.shops).kill()
            self.deeds["worker"] += 1
        if self._chance.random() < 0.03:
            self._end_server()

    def _end_user(self) -> None:
        self.users.pop(self._chance.randrange(_USERS)).kill()
        self.users.append(User(self._fleet, self._guarded))
        self.deeds["user"] += 1

    def _end_server(self) -> None:
        self._server.kill()
        time.sleep(self._chance.choice([0, 0.5, 1.5 * LEASE_SECONDS]))
        self._server.start()
        self.deeds["server"] += 1

    def come_to_an_end(self) -> None:
        for user in self.users:
            user.goes_on()
        for shop in self.shops:
            shop.finish()
        for user in self.users:
            user.kill()
        for shop in self.shops:
            shop.close()
            self._guarded.read(shop)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize(
    "server", [(), ("--appendonly", "yes")], indirect=True, ids=["not", "kept"]
)
def test_a_minute_of_chaos(fleet: Fleet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never over the limit, every ticket and every job ends, and nothing is left."""
    monkeypatch.setenv("HEADWAY_LIMITS", f"k={_LIMIT}")
    guarded = Guarded()
    chaos = Chaos(fleet, server, guarded, int(os.environ.get("SOAK_SEED", "8")))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        chaos.step()
    watcher = fleet.watcher()
    chaos.come_to_an_end()

    watcher.ask(f"take-all k {_LIMIT}", "took all")
    assert watcher.ask("audit", "audited") == "fine"
    assert (watcher.ask("leases", "leases"), watcher.ask("waiting", "waiting")) == ("0", "0")
    assert guarded.most() <= _LIMIT
    print(f"{guarded.used} stays, {guarded.refused} of them lost, {chaos.deeds}")
    assert min(guarded.used, *chaos.deeds.values()) > 0
    assert guarded.refused <= _LIMIT * sum(chaos.deeds.values())
