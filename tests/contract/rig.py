"""A store on the test bench: some holders, and shorthand for what they do.

After every operation the oracle looks at the whole store, so each test checks
the general rules besides what it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract import oracle
from tests.contract.diary import Diary

from headway import keys
from headway.limits import CODE, UNLIMITED, Terms, line
from headway.stores.repair import miscounts
from headway.tickets import Granted, Refused, Revoked, Ticket, Waiting, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import FakeClock
    from tests.contract.houses import House

    from headway.limits import Limit
    from headway.stores.base import Store
    from headway.stores.book import KeyState
    from headway.tickets import Answer, Decision

HOLDERS = 3


class Rig:
    """Holders of one house. Requests go to them in turn unless a test names one."""

    def __init__(self, house: House, clock: FakeClock) -> None:
        self.house, self.clock = house, clock
        self._diary = Diary(clock)
        self.holders: list[Store] = [house.open(Terms()) for _ in range(HOLDERS)]
        self.answers: dict[str, Answer] = {}
        self.asked: list[Ticket] = []
        self.ended: set[str] = set()
        self._owner: dict[str, Store] = {}
        self._turn = 0
        self._before = oracle.Picture(self.house.glance(self.store))

    @property
    def store(self) -> Store:
        """Any holder; what it does to others' tickets is what anyone could do."""
        return self.holders[0]

    # -- what holders do ------------------------------------------------------------------

    def ask(
        self,
        *wanted: str,
        by: int | None = None,
        wait: bool = True,
        task: str | None = None,
        weight: int = 1,
        priority: int = 0,
        parent: Ticket | tuple[Ticket, ...] | None = None,
        within: tuple[Ticket, ...] = (),
        around: tuple[Ticket, ...] = (),
        timed: bool = False,
        name: str = "",
    ) -> Ticket:
        """Request slots; the answer is kept beside the ticket."""
        if by is None:
            by, self._turn = self._turn, (self._turn + 1) % len(self.holders)
        store = self.holders[by]
        parents = (parent,) if isinstance(parent, Ticket) else parent or ()
        ticket = Ticket(
            store.new_id(name),
            wanted,
            keys.path(wanted),
            task=task,
            weight=weight,
            priority=priority,
            parents=tuple(lease.id for lease in parents),
            within=tuple(lease.id for lease in within),
            around=tuple(lease.id for lease in around),
            timed=timed,
        )
        self.asked.append(ticket)
        self._owner[ticket.id] = store
        self.answers[ticket.id] = answer = store.request(ticket, wait=wait)
        assert answer.ticket_id == ticket.id
        self.look(ended={ticket.id} if isinstance(answer, Refused) else set())
        return ticket

    def release(self, ticket: Ticket, held_seconds: float = 1.0) -> bool:
        if ticket.id in self._before.leases:
            self._diary.answered(ticket.id)
        was_lease = self.owner(ticket).release(ticket, held_seconds)
        self.look(ended={ticket.id})
        return was_lease

    def hand_over(self, lender: Ticket, borrower: Ticket) -> None:
        """A lease ends whose borrower goes on with the work."""
        self._diary.hand_over(lender.id, borrower.id)
        self.owner(lender).release(lender, 0.0)
        self.look(ended={lender.id})

    def withdraw(self, ticket: Ticket) -> Decision | None:
        decision = self.owner(ticket).withdraw(ticket)
        self.look(ended=set() if isinstance(decision, Granted) else {ticket.id})
        return decision

    def cancel(self, ticket: Ticket) -> bool:
        cancelled = self.store.cancel(ticket.id)
        self.look(ended={ticket.id} if cancelled else set())
        return cancelled

    def revoke(self, ticket: Ticket, reason: str = "by hand") -> bool:
        revoked = self.store.revoke(ticket.id, reason)
        self.look(ended={ticket.id} if revoked else set())
        return revoked

    def limit(self, **lines: int | None) -> None:
        """Set limits; see ``limits``. For keys that are plain words."""
        self.limits(lines)

    def limits(self, lines: Mapping[str, Limit | None]) -> None:
        """Set limits all at once; ``None`` takes a line away."""
        terms = self.store.terms()
        for pattern, limit in lines.items():
            terms = terms.without(pattern)
            if limit is not None:
                terms = terms.with_lines([line(pattern, limit, source=CODE, where=pattern)])
        self.set_terms(terms)

    def unlimit(self, pattern: str) -> None:
        self.limits({pattern: UNLIMITED})

    def cool(self, key: str, seconds: float | None = 20.0, *, jitter: float = 0.0) -> float:
        """A provider wants to be left alone; how long it will be."""
        left = self.store.cool_down(key, seconds, "429", jitter=jitter)
        self._diary.cool(key, self.clock() + left)
        self.look()
        return left

    def warm(self, key: str) -> bool:
        """Somebody ends that before its time."""
        was_cooling = self.store.end_cool_down(key)
        self._diary.open(key)
        self.look()
        return was_cooling

    def answer(self, ticket: Ticket) -> None:
        """The provider answers a lease."""
        self._diary.answered(ticket.id)
        self.owner(ticket).prove(ticket)
        self.look()

    def stand_back(self, ticket: Ticket) -> None:
        """The provider will not answer a lease."""
        self._diary.stood_back(ticket.id)
        self.owner(ticket).stand_back(ticket)
        self.look()

    def wait(self, seconds: float) -> None:
        """Time passes, and somebody looks after what that brings."""
        self.clock.move(seconds)
        self.store.tend()
        self.look()

    def pause(self, *paused: str) -> None:
        terms = self.store.terms()
        self.set_terms(terms.with_paused(terms.paused | set(paused)))

    def resume(self, *resumed: str) -> None:
        terms = self.store.terms()
        self.set_terms(terms.with_paused(terms.paused - set(resumed)))

    def restart(self, uptime_seconds: float) -> None:
        """The machine was started anew, so long ago; what was noted before is of another time."""
        self.clock.now = uptime_seconds
        self.forget()

    def forget(self) -> None:
        """What was noted of requests and cool-downs says nothing any more."""
        self._diary = Diary(self.clock)

    def set_terms(self, terms: Terms) -> None:
        assert self.store.set_terms(terms, expected=self.store.terms())
        self.look()

    def kill(self, number: int) -> str:
        """End a holder as ``kill -9`` does; nobody has noticed yet."""
        dead = self.holders.pop(number)
        return self.house.kill(dead)

    # -- what can be seen -----------------------------------------------------------------

    def look(self, ended: set[str] | frozenset[str] = frozenset()) -> oracle.Picture:
        """The whole store now, checked."""
        census = self.house.glance(self.store)
        assert not miscounts(census)
        now = oracle.Picture(census)
        self.ended |= {ticket_id for ticket_id in ended if ticket_id not in now.tickets()}
        oracle.check(now)
        self._diary.check(self._before, now)
        oracle.check_step(self._before, now, self.ended)
        self._before = now
        return now

    def owner(self, ticket: Ticket) -> Store:
        return self._owner[ticket.id]

    def runs(self, *tickets: Ticket) -> bool:
        """Whether all of these are leases."""
        return {ticket.id for ticket in tickets} <= self.look().leases.keys()

    def waits(self, *tickets: Ticket) -> bool:
        """Whether all of these wait."""
        return {ticket.id for ticket in tickets} <= self.look().waiting.keys()

    def gone(self, *tickets: Ticket) -> bool:
        """Whether the store has forgotten all of these."""
        return not {ticket.id for ticket in tickets} & self.look().tickets().keys()

    def running(self, *tickets: Ticket) -> list[Ticket]:
        """Those of the tickets that are leases."""
        leases = self.look().leases
        return [ticket for ticket in tickets if ticket.id in leases]

    def at(self, ticket: Ticket) -> str | None:
        """The key that a ticket waits at."""
        return self.look().at.get(ticket.id)

    def state(self, key: str) -> KeyState:
        return self.store.survey([key])[0]

    def refusal(self, ticket: Ticket) -> tuple[str, str] | None:
        """Why and at which key a request was refused."""
        answer = self.answers[ticket.id]
        return (answer.reason, answer.key) if isinstance(answer, Refused) else None

    def was_told_to_wait(self, ticket: Ticket) -> bool:
        return isinstance(self.answers[ticket.id], Waiting)

    def news(self) -> set[tuple[str, str]]:
        """What has been decided since the last look, by name and ticket, for all holders."""
        return {(name, decision.ticket_id) for name, decision in self.decisions()}

    def decisions(self) -> list[tuple[str, Decision]]:
        """The same, with the decisions themselves."""
        found: list[tuple[str, Decision]] = []
        self.house.deliver()
        for store in {id(store): store for store in self.holders}.values():
            if store.shared:
                store.listen(0)  # whatever messages there are
                store.listen(0)  # and, without any, a look at the store itself
            while store.news:
                decision = store.news.popleft()
                found.append((_NAMES[type(decision)], decision))
        return found


_NAMES = {
    Granted: "granted",
    Refused: "refused",
    Withdrawn: "withdrawn",
    Revoked: "revoked",
}
