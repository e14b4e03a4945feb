"""Random histories, played on the memory store and on another one at the same time.

The memory store is the model. Both get the same tickets under the same ids and
the same clock, and after every step they must give the same answers and the
same news and show the same picture; and the oracle must find nothing wrong
with either.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.conftest import FakeClock
from tests.contract import oracle
from tests.contract.diary import Diary
from tests.contract.houses import (
    BOOST_SECONDS,
    MAX_COOLING_SECONDS,
    EagerSqliteHouse,
    RedisHouse,
    SqliteHouse,
)

from headway import keys
from headway.limits import CODE, UNCAPPED, Line
from headway.stores.memory import MemoryStore
from headway.tickets import Granted, Refused, Revoked, Ticket, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headway.stores.base import Store
    from headway.stores.book import KeyState
    from headway.tickets import Answer, Decision

TREE = ("agent", "agent/x", "agent/x/y", "llm", "llm/a", "llm/a/m", "llm/b", "llm/b/m")
PATTERNS = (*TREE, "*", "llm/*", "llm/a/*", "llm/*/m", "*/*/*")
MAX_WAITING = 8
HOLDERS = 3

picks = st.integers(min_value=0, max_value=11)
slots = st.sampled_from([1, 1, 2, 3, UNCAPPED, None])
budgets = st.sampled_from([None, None, None, 1, 2, 3, UNCAPPED])
# Slots and requests a minute; a pattern without either has no line.
lines = st.dictionaries(st.sampled_from(PATTERNS), st.tuples(slots, budgets), max_size=4)
seconds = st.sampled_from([0.4, 5.0, 31.0, 62.0])


Lines = dict[str, tuple[int | None, int | None]]


class Wish(NamedTuple):
    """What somebody asks for, and how."""

    keys: tuple[str, ...]
    weight: int
    priority: int
    wait: bool
    by: int
    later: float


requests = st.builds(
    Wish,
    keys=st.lists(st.sampled_from(TREE), min_size=1, max_size=3, unique=True).map(tuple),
    weight=st.sampled_from([1, 1, 1, 2, 3]),
    priority=st.sampled_from([0, 0, 0, 0, 1, -1]),
    wait=st.sampled_from([True, True, True, True, False]),
    by=picks,
    # Never back: who goes straight in need not draw an arrival, so that after a jump back
    # two stores may place the next one otherwise, and both be right.
    later=st.sampled_from([0, 0, 1, 400, 700]),
)


class Twins:
    """One ticket, as the two stores know it."""

    def __init__(self, make: Callable[[], Ticket], holder: Store) -> None:
        self.model, self.real, self.holder = make(), make(), holder
        self.id = self.model.id


class StoresAgree(RuleBasedStateMachine):
    """Plays on both stores and compares."""

    house_type: type[SqliteHouse | RedisHouse] = SqliteHouse

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.directory = tempfile.TemporaryDirectory(prefix="headway-")
        self.model = MemoryStore(
            boost_seconds=BOOST_SECONDS,
            max_waiting=MAX_WAITING,
            max_cooling_seconds=MAX_COOLING_SECONDS,
            clock=self.clock,
        )
        self.house = self.house_type(self.directory.name, clock=self.clock, max_waiting=MAX_WAITING)
        self.holders: list[Store] = []
        self.twins: dict[str, Twins] = {}
        self.ended: set[str] = set()
        self.diary = Diary(self.clock)

    @initialize(lines=lines)
    def open_the_house(self, lines: Lines) -> None:
        """Let the holders appear, and set some limits."""
        for _ in range(HOLDERS):
            self._open_holder()
        self.before = self._pictures()
        self._set_lines(lines)

    # -- steps ------------------------------------------------------------------------------

    @rule(asked=st.lists(requests, min_size=1, max_size=4))
    def request(self, asked: list[Wish]) -> None:
        """Some ask for slots."""
        for wish in asked:
            self._request(wish)

    @precondition(lambda self: self.before[0].leases)
    @rule(
        wishes=st.lists(requests, min_size=1, max_size=3),
        pick=picks,
        likeness=picks,
        nearer=st.lists(picks, max_size=2),
    )
    def request_as_a_child(
        self, wishes: list[Wish], pick: int, likeness: int, nearer: list[int]
    ) -> None:
        """Children of one lease ask, mostly for what it holds and something besides.

        Between it and them there may have been others, of which some have ended.
        """
        for wish in wishes:
            lease = self._pick(self.before[0].leases, pick)
            if lease is not None:
                wanted = wish.keys if likeness % 4 == 0 else lease.model.keys
                if likeness % 2 == 1:
                    wanted = tuple(dict.fromkeys((*wanted, *wish.keys)))[:3]
                between = [one.id for one in map(self._any, nearer) if one is not None]
                self._request(wish._replace(keys=wanted), parents=(*between, lease.id))

    @precondition(lambda self: self.before[0].leases)
    @rule(
        wishes=st.lists(requests, min_size=1, max_size=3),
        picked=st.lists(picks, min_size=1, max_size=3),
        other=picks,
        how=picks,
    )
    def request_from_within(
        self, wishes: list[Wish], picked: list[int], other: int, how: int
    ) -> None:
        """Some inside of leases ask for the same keys again, or for what others hold."""
        for wish, pick in zip(wishes, picked, strict=False):
            leases = self.before[0].leases
            lease, wanted = self._pick(leases, pick), self._pick(leases, other)
            if lease is None or wanted is None or self._is_waiting_inside(lease):
                continue
            keys = (lease.model.keys, wanted.model.keys, wanted.model.keys, wish.keys)[how % 4]
            parents = (lease.id,) if how % 5 == 0 else ()
            within, timed = (lease.id,), how % 7 == 0
            self._request(wish._replace(keys=keys), parents=parents, within=within, timed=timed)

    def _is_waiting_inside(self, lease: Twins) -> bool:
        """A caller waits for one thing at a time."""
        return any(lease.id in ticket.within for ticket in self.before[0].waiting.values())

    def _request(
        self,
        wish: Wish,
        *,
        parents: tuple[str, ...] = (),
        within: tuple[str, ...] = (),
        timed: bool = False,
    ) -> None:
        # Ten microseconds a request: no two ranks are the same, whatever the priorities.
        self._wait(wish.later + 1e-5)
        holder = self.holders[wish.by % len(self.holders)]
        ticket_id = holder.new_id()

        def make() -> Ticket:
            return Ticket(
                ticket_id,
                wish.keys,
                keys.path(wish.keys),
                weight=wish.weight,
                priority=wish.priority,
                parents=parents,
                within=within,
                timed=timed,
            )

        self.twins[ticket_id] = twins = Twins(make, holder)
        expected = self.model.request(twins.model, wait=wish.wait)
        answer = holder.request(twins.real, wait=wish.wait)
        assert _spelled(answer) == _spelled(expected)
        oracle.check_answer(self.before[0], twins.model, answer, most=MAX_WAITING, wait=wish.wait)
        self._compare(ended={ticket_id} if isinstance(answer, Refused) else set())

    @precondition(lambda self: self.before[0].leases)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3), held_seconds=st.sampled_from([0.0, 60.0]))
    def release(self, chosen: list[int], held_seconds: float) -> None:
        """Leases end."""
        for pick in chosen:
            self._release(self._pick(self.before[0].leases, pick), held_seconds)

    @precondition(lambda self: self.twins)
    @rule(pick=picks, by=picks, how=st.sampled_from(["withdraw", "cancel", "revoke", "release"]))
    def end_something(self, pick: int, by: int, how: str) -> None:
        """A ticket is ended by someone who does not know what became of it."""
        twins = self._pick(self.twins, pick)
        if how == "release":
            self._release(twins, 1.0)
        elif how == "withdraw":
            self._withdraw(twins)
        else:
            self._end_by_hand(twins, by, how)

    @precondition(lambda self: self.before[0].waiting)
    @rule(pick=picks, by=picks, how=st.sampled_from(["withdraw", "cancel"]))
    def leave_the_line(self, pick: int, by: int, how: str) -> None:
        """One who waits gives up, or is made to."""
        twins = self._pick(self.before[0].waiting, pick)
        if how == "withdraw":
            self._withdraw(twins)
        else:
            self._end_by_hand(twins, by, how)

    def _release(self, twins: Twins | None, held_seconds: float) -> None:
        if twins is None or twins.holder not in self.holders:
            return
        if twins.id in self.before[0].leases:
            self.diary.answered(twins.id)
        expected = self.model.release(twins.model, held_seconds)
        assert twins.holder.release(twins.real, held_seconds) == expected
        self._compare(ended={twins.id})

    def _withdraw(self, twins: Twins | None) -> None:
        if twins is None or twins.holder not in self.holders:
            return
        expected = self.model.withdraw(twins.model)
        decision = twins.holder.withdraw(twins.real)
        if twins.id not in self.ended:
            assert _spelled(decision) == _spelled(expected)
        self._compare(ended=set() if isinstance(decision, Granted) else {twins.id})

    def _end_by_hand(self, twins: Twins | None, by: int, how: str) -> None:
        if twins is None:
            return
        other = self.holders[by % len(self.holders)]
        if how == "cancel":
            assert other.cancel(twins.id) == self.model.cancel(twins.id)
        else:
            assert other.revoke(twins.id, "by hand") == self.model.revoke(twins.id, "by hand")
        self._compare()

    @rule(lines=lines, paused=st.sets(st.sampled_from(TREE), max_size=1), both=st.booleans())
    def change_terms(
        self,
        lines: Lines,
        paused: set[str],
        both: bool,  # noqa: FBT001
    ) -> None:
        """Lines are set, lifted and taken away, keys are closed and opened, several at once."""
        if paused and not both:
            lines = {}
        self._set_lines(lines, paused)

    def _set_lines(self, lines: Lines, paused: Iterable[str] = ()) -> None:
        before = self.model.terms()
        terms = before.with_paused(paused)
        for pattern, (count, budget) in lines.items():
            terms = terms.without(pattern)
            if (count, budget) != (None, None):
                terms = terms.with_lines([Line(pattern, count, CODE, budget)])
        assert self.holders[0].terms() == before
        assert self.model.set_terms(terms, expected=before)
        assert self.holders[-1].set_terms(terms, expected=before)
        self._compare()

    @rule(seconds=seconds)
    def pass_time(self, seconds: float) -> None:
        """Nothing happens but that."""
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        self.clock.move(seconds)
        self._compare()

    # Never over at once: that it begins and that it ends are two steps, and in between someone who
    # was called back is rightly overtaken further on.
    @rule(
        key=st.sampled_from(TREE),
        seconds=st.sampled_from([None, 0.001, 5.0, 30.0, 30.0, 100.0, 2000.0]),
        jitter=st.sampled_from([0.0, 0.5, 1.0]),
        by=picks,
    )
    def cool_down(self, key: str, seconds: float | None, jitter: float, by: int) -> None:
        """A provider wants to be left alone."""
        self._wait(1e-5)
        left = self.model.cool_down(key, seconds, "429", jitter=jitter)
        holder = self.holders[by % len(self.holders)]
        assert holder.cool_down(key, seconds, "429", jitter=jitter) == pytest.approx(left)
        assert left >= min(seconds or 0.0, 5.0) - 1e-3
        self.diary.cool(key, self.clock() + left)
        self._compare()

    @rule(key=st.sampled_from(TREE), by=picks)
    def end_cool_down(self, key: str, by: int) -> None:
        """A person knows better."""
        ended = self.model.end_cool_down(key)
        assert self.holders[by % len(self.holders)].end_cool_down(key) == ended
        self.diary.open(key)
        self._compare()

    @precondition(lambda self: self.before[0].leases)
    @rule(pick=picks)
    def answer(self, pick: int) -> None:
        """The provider answers somebody."""
        twins = self._pick(self.before[0].leases, pick)
        if twins is None or twins.holder not in self.holders:
            return
        self.diary.answered(twins.id)
        self.model.prove(twins.model)
        twins.holder.prove(twins.real)
        self._compare()

    @precondition(lambda self: self.before[0].leases)
    @rule(pick=picks)
    def stand_back(self, pick: int) -> None:
        """The provider will not answer somebody."""
        twins = self._pick(self.before[0].leases, pick)
        if twins is None or twins.holder not in self.holders:
            return
        self.diary.stood_back(twins.id)
        self.model.stand_back(twins.model)
        twins.holder.stand_back(twins.real)
        self._compare()

    @precondition(lambda self: self.before[0].tickets())
    @rule(pick=picks, noticed=st.sampled_from(["by a watcher", "by a census", "by a newcomer"]))
    def die(self, pick: int, noticed: str) -> None:
        """Somebody's holder is killed, one of the others notices, and a new one comes."""
        twins = self._pick(self.before[0].tickets(), pick)
        assert twins is not None
        dead = twins.holder
        self.holders.remove(dead)
        name = self.house.kill(dead)
        ended = {twins.id for twins in self.twins.values() if twins.holder is dead}
        if noticed == "by a watcher":
            self.house.notice(self.holders[0], [name])
        elif noticed == "by a census":
            self.holders[0].census()
        self._open_holder()
        _bury(self.model, name)
        self._compare(ended=ended, dead=name)

    # -- comparing --------------------------------------------------------------------------

    def _compare(self, ended: Iterable[str] = (), dead: str = "") -> None:
        # What time has brought: the one store has a thread for it, the other who listens.
        self.model.tend()
        self.holders[0].tend()
        expected = _news([self.model], dead)
        self.house.deliver()
        assert _news(self.holders) == expected
        told = {ticket_id for name, ticket_id, *_ in expected if name != "Granted"}
        model, real = now = self._pictures()
        # Who is ended and why: every ticket runs, waits, or was told or has said its end.
        self.ended |= told | set(ended)
        self.diary.check(self.before[0], model)
        for before, picture in zip(self.before, now, strict=True):
            oracle.check(picture)
            oracle.check_step(before, picture, self.ended)
            assert self.twins.keys() - self.ended == picture.tickets().keys()
        _same(model, real)
        self._compare_what_owners_see(model)
        self.before = now

    def _compare_what_owners_see(self, model: oracle.Picture) -> None:
        places: dict[str, int] = {}
        for holder in self.holders:
            own = [t.real for t in self.twins.values() if t.holder is holder]
            places |= holder.positions(own)
        waiting = [self.twins[ticket_id].model for ticket_id in model.order]
        assert places == self.model.positions(waiting)
        for ticket_id in model.tickets():
            twins = self.twins[ticket_id]
            assert (twins.real.at is None) == (ticket_id in model.leases)
            assert twins.real.verdict is None
        if waiting:
            twins = self.twins[waiting[-1].id]
            expected, outlook = self.model.outlook(twins.model), twins.holder.outlook(twins.real)
            assert expected is not None
            assert outlook is not None
            assert outlook.state.key == expected.state.key
            assert outlook.position == expected.position
            assert _ids(outlook.leases) == _ids(expected.leases)

    def _pictures(self) -> tuple[oracle.Picture, oracle.Picture]:
        return (
            oracle.Picture(self.model.census()),
            oracle.Picture(self.house.glance(self.holders[0])),
        )

    # -- inside -----------------------------------------------------------------------------

    def _open_holder(self) -> None:
        self.holders.append(self.house.open(self.model.terms()))

    def _any(self, pick: int) -> Twins | None:
        """One of all tickets there ever were."""
        return self._pick(self.twins, pick)

    def _pick(self, among: dict[str, Any], pick: int) -> Twins | None:
        """One of these tickets, in the order of their requests."""
        candidates = [twins for ticket_id, twins in self.twins.items() if ticket_id in among]
        return candidates[pick % len(candidates)] if candidates else None

    def teardown(self) -> None:
        self.house.close(self.holders)
        self.directory.cleanup()


class RedisAgrees(StoresAgree):
    """The same on a server."""

    house_type = RedisHouse


class EagerStoresAgree(StoresAgree):
    """The same, with every shortcut that can be taken."""

    house_type = EagerSqliteHouse


def _bury(model: MemoryStore, holder: str) -> None:
    """End a holder's tickets in the model, in the order that a burial has.

    The memory store has no deaths. This is written against its inside, for the
    order matters: tickets that wait and have collected nothing leave all at
    once, before anything is handed on.
    """
    book = model._book
    waiting = [ticket for ticket in book.parked() if ticket.holder == holder]
    plain = [ticket for ticket in waiting if not ticket.reserved and not ticket.parents]
    freed = [ticket.at for ticket in plain if ticket.at is not None]
    for ticket in plain:
        book.key(cast("str", ticket.at)).waiting -= 1
        book.strike(ticket)
    others = sorted((t for t in waiting if t not in plain), key=lambda ticket: ticket.id)
    leases = [lease for lease in book.leases.values() if lease.holder == holder]
    ordered = [*others, *sorted(leases, key=lambda lease: lease.id)]
    model._admission.end_all(ordered, freed=freed)


def _same(model: oracle.Picture, real: oracle.Picture) -> None:
    """Whether two stores show the same tickets, lines, loans and counts."""
    assert real.terms == model.terms
    assert _by_token(real) == _by_token(model)
    assert real.order == model.order
    assert real.at == model.at
    assert real.ranks == model.ranks
    assert real.loans == model.loans
    assert real.reserved == model.reserved
    for key in model.states.keys() | real.states.keys():
        expected, state = model.states.get(key), real.states.get(key)
        if expected is None or state is None:
            found = expected or state
            assert found is not None
            assert (found.used, found.reserved, found.waiting, found.spent) == (0, 0, 0, 0)
            assert found.cooldown is None
            continue
        for name in ("cap", "paused", "used", "reserved", "waiting", "budget", "spent", "promised"):
            assert getattr(state, name) == getattr(expected, name), f"{name} of {key}"
        assert _cooling(state) == _cooling(expected), f"cooling of {key}"


def _cooling(state: KeyState) -> tuple[object, ...] | None:
    cooldown = state.cooldown
    if cooldown is None:
        return None
    return cooldown.since, cooldown.until, cooldown.reason, cooldown.probe, cooldown.over


def _by_token(picture: oracle.Picture) -> list[str]:
    """The leases in the order of their grants; tokens start where a store likes."""
    return sorted(picture.leases, key=lambda lease_id: picture.tokens[lease_id])


def _ids(leases: Iterable[Ticket]) -> list[str]:
    return sorted(lease.id for lease in leases)


def _news(stores: Iterable[Store], dead: str = "-") -> set[tuple[str, ...]]:
    """What was decided since the last step; news for the dead reach nobody."""
    found = set()
    for store in stores:
        if store.shared:
            store.listen(0)
            store.listen(0)
        while store.news:
            decision = store.news.popleft()
            if not decision.ticket_id.startswith(f"{dead}-"):
                spelled = _spelled(decision)
                assert spelled not in found, f"told twice: {spelled}"
                found.add(spelled)
    return found


def _spelled(decision: Answer | Decision | None) -> tuple[str, ...]:
    """A decision as text, but for its token."""
    if decision is None:
        return ("nothing",)
    name = type(decision).__name__
    if isinstance(decision, Refused):
        held_by = sorted(decision.held_by)
        return (name, decision.ticket_id, decision.reason, decision.key, *held_by)
    if isinstance(decision, Revoked):
        return name, decision.ticket_id, decision.reason
    assert isinstance(decision, Granted | Withdrawn) or name == "Waiting"
    return name, decision.ticket_id
