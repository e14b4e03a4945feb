"""Callers that ask for more while they hold something: nobody hangs, nobody is refused for nothing.

Each history is played on a store. Whenever somebody is refused for a deadlock, the same history is
played once more on a store that never looks for any, and there everyone who can go on does so
and gives everything back: the refused one must still be waiting at the end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.conftest import FakeClock
from tests.contract.houses import BOOST_SECONDS

from headway import keys
from headway.limits import CODE, Terms, line
from headway.stores.circles import Circles
from headway.stores.memory import MemoryStore
from headway.tickets import Granted, Refused, Ticket, Waiting

if TYPE_CHECKING:
    from tests.contract.conftest import RigMaker

    from headway.stores.base import Store

LIMITS = {"a": 1, "b": 2, "c/x": 1, "c": 2, "d": 3}
WISHES = (("a",), ("b",), ("c/x",), ("c/y",), ("d",), ("c/x", "a"), ("c/x", "d"), ("b", "d"))
# What may be asked for twice over: there is room for two.
HEAVY = (("b",), ("d",), ("b", "d"), ("c/y",))
CALLERS = 7
STEPS = 60


class Move(NamedTuple):
    """A caller asks, or, without keys, gives back what it got last."""

    caller: int
    keys: tuple[str, ...] = ()
    priority: int = 0
    weight: int = 1
    timed: bool = False


class Play:
    """A history on one store, shared by callers that wait for one thing at a time."""

    def __init__(self, stores: list[Store], clock: FakeClock) -> None:
        self.stores, self.clock = stores, clock
        self.held: list[list[Ticket]] = [[] for _ in range(CALLERS)]
        self.waiting: list[Ticket | None] = [None] * CALLERS
        self.refused: list[int] = []

    def store_of(self, caller: int) -> Store:
        return self.stores[caller % len(self.stores)]

    def make(self, move: Move) -> None:
        """Let a caller do something, and everyone hear what came of it."""
        self.clock.move(1e-4)
        if move.keys:
            self._ask(move)
        else:
            self.store_of(move.caller).release(self.held[move.caller].pop(), 1.0)
        self._listen()

    def _ask(self, move: Move) -> None:
        store = self.store_of(move.caller)
        ticket = Ticket(
            store.new_id(),
            move.keys,
            keys.path(move.keys),
            priority=move.priority,
            weight=move.weight,
            within=tuple(lease.id for lease in self.held[move.caller]),
            timed=move.timed,
        )
        answer = store.request(ticket, wait=True)
        if isinstance(answer, Waiting):
            self.waiting[move.caller] = ticket
        elif isinstance(answer, Granted):
            self.held[move.caller].append(ticket)
        else:
            self._refuse(move.caller, answer)

    def _refuse(self, caller: int, refusal: Refused) -> None:
        assert refusal.reason == "deadlock"
        self.waiting[caller] = None
        self.refused.append(caller)

    def _listen(self) -> None:
        for store in self.stores:
            if store.shared:
                store.listen(0)
                store.listen(0)
            while store.news:
                decision = store.news.popleft()
                caller = next(
                    (n for n, t in enumerate(self.waiting) if t and t.id == decision.ticket_id), -1
                )
                ticket = self.waiting[caller] if caller >= 0 else None
                if ticket is None:
                    continue
                self.waiting[caller] = None
                if isinstance(decision, Granted):
                    self.held[caller].append(ticket)
                else:
                    assert isinstance(decision, Refused)
                    self._refuse(caller, decision)

    def give_up(self, caller: int) -> None:
        """The time of one who waits is over."""
        ticket = self.waiting[caller]
        assert ticket is not None
        self.waiting[caller] = None
        self.store_of(caller).withdraw(ticket)
        self._listen()

    def runs(self, caller: int) -> bool:
        return self.waiting[caller] is None

    def drain(self, *, but: int) -> None:
        """Everyone gives back all they can, and gives up if they would; all but one."""
        while True:
            able = [n for n in range(CALLERS) if self.runs(n) and self.held[n]]
            timed = [n for n, t in enumerate(self.waiting) if t and t.timed and n != but]
            if able:
                self.make(Move(able[0]))
            elif timed:
                self.give_up(timed[0])
            else:
                return


def terms() -> Terms:
    """What the keys allow."""
    return Terms([line(key, limit, source=CODE, where=key) for key, limit in LIMITS.items()])


def model() -> Play:
    """A new memory store."""
    clock = FakeClock()
    store = MemoryStore(boost_seconds=BOOST_SECONDS, clock=clock)
    assert store.set_terms(terms(), expected=store.terms())
    return Play([store], clock)


def would_wait_for_ever(history: list[Move | int], caller: int) -> bool:
    """Whether the last one to be refused would never be let in if nobody were refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Circles, "refusal", lambda *_: None)
        patch.setattr(Circles, "victim", lambda *_: None)
        play = model()
        for step in history:
            if isinstance(step, int):  # refused there: here it leaves
                if play.waiting[step] is not None:
                    play.give_up(step)
            else:
                play.make(step)
        if play.runs(caller):
            return False
        play.drain(but=caller)
        return not play.runs(caller)


def play_and_check(play: Play, chance: random.Random) -> int:
    """One history; how many were refused in it."""
    history: list[Move | int] = []
    for _ in range(STEPS):
        before, step = len(play.refused), choose(play, chance)
        history.append(step)
        if isinstance(step, int):
            play.give_up(step)
        else:
            play.make(step)
        for refused in play.refused[before:]:
            assert would_wait_for_ever(history, refused), f"{refused} could have gone on"
            history.append(refused)
    return len(play.refused)


def choose(play: Play, chance: random.Random) -> Move | int:
    """What happens next: somebody asks or gives back, or the time of one who waits is over."""
    able = [n for n in range(CALLERS) if play.runs(n)]
    timed = [n for n, t in enumerate(play.waiting) if t and t.timed]
    assert able or timed, "everyone waits, and nobody gives up"
    if not able or (timed and chance.random() < 0.1):
        return chance.choice(timed)
    caller = chance.choice(able)
    if play.held[caller] and chance.random() < 0.35:
        return Move(caller)
    wish, gives_up = chance.choice(WISHES), chance.random() < 0.1
    weight = 2 if wish in HEAVY and chance.random() < 0.2 else 1
    return Move(caller, wish, chance.choice((0, 0, 0, 1)), weight, gives_up)


@pytest.mark.parametrize("seed", range(4))
def test_nested_callers_neither_hang_nor_are_refused_for_nothing(
    make_rig: RigMaker, seed: int
) -> None:
    """Random histories of callers with several leases, keys, priorities and timeouts."""
    rig = make_rig()
    rig.set_terms(terms())
    chance = random.Random(seed)
    assert play_and_check(Play(rig.holders, rig.clock), chance) > 0


def test_many_nested_callers_neither_hang_nor_are_refused_for_nothing() -> None:
    """The same on the model, for many histories."""
    refused = 0
    for seed in range(150):
        refused += play_and_check(model(), random.Random(1000 + seed))
    assert refused > 150
