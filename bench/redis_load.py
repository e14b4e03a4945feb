"""What one Redis server pays for each thing that a fleet does: processor time and memory."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import redis

from bench.contenders import KEY, LIMITED_KEY
from bench.figure import Effort, Figure, Findings
from bench.redis_contenders import Headway
from bench.redis_server import server
from bench.report import Row
from headway import Governor
from headway.keys import path
from headway.limits import CODE, Line
from headway.stores import open_store
from headway.stores.redis import RedisStore
from headway.tickets import Granted, Ticket, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

_IDLE_BEATS = 10
_WAITING_SECONDS = 20.0


class Fleet:
    """Some processes of a fleet, all of them in this one, and their server's own account."""

    def __init__(self, url: str, contender: Headway) -> None:
        contender.move_in()
        self._client: Any = redis.Redis.from_url(url)
        self.first, self.crowd = _store(), _store()
        self._idle: list[Governor] = []
        terms, line = self.first.terms(), Line(LIMITED_KEY, contender.limit, CODE)
        assert self.first.set_terms(terms.with_lines([line]), expected=terms)

    def come(self) -> None:
        """One more process that has used a slot, and now only lives and listens."""
        self._idle.append(Governor())
        with self._idle[-1].slot("other"):
            pass

    def cost_of_idling_us(self) -> float:
        """How much of the server's processor it takes that one process lives for a beat."""
        seconds = _IDLE_BEATS * self.first._session.pause_seconds
        return self._cost_of_a_second_us(seconds) * seconds / _IDLE_BEATS

    def cost_of_waiting_us(self) -> float:
        """How much it takes that one process waits for a second."""
        lease = self.request(self.first, is_granted=True)
        waits = [threading.Thread(target=_wait, args=(governor,)) for governor in self._idle]
        for each in waits:
            each.start()
        while self.first.survey((LIMITED_KEY,))[0].waiting < len(waits):
            time.sleep(0.01)
        cost_us = self._cost_of_a_second_us(_WAITING_SECONDS)
        self.first.release(lease, 0)
        for each in waits:
            each.join()
        return cost_us

    def _cost_of_a_second_us(self, seconds: float) -> float:
        before = self._busy_seconds()
        time.sleep(seconds)
        return (self._busy_seconds() - before) / seconds / len(self._idle) * 1e6

    def request(self, store: RedisStore, *, is_granted: bool) -> Ticket:
        ticket = Ticket(store.new_id(), (KEY,), path((KEY,)))
        answer = store.request(ticket, wait=True)
        assert isinstance(answer, Granted if is_granted else Waiting)
        return ticket

    def cost_us(self, work: Callable[[], object], times: int) -> float:
        """How much of the server's processor one of many takes, with all that goes with it."""
        before = self._busy_seconds()
        for _ in range(times):
            work()
        return (self._busy_seconds() - before) / times * 1e6

    def _busy_seconds(self) -> float:
        told = self._client.info("cpu")
        return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])

    def size(self, work: Callable[[], object], times: int) -> float:
        """How many bytes one of many takes."""
        before = self._client.info("memory")["used_memory"]
        for _ in range(times):
            work()
        return (int(self._client.info("memory")["used_memory"]) - int(before)) / times

    def close(self) -> None:
        for governor in self._idle:
            governor.close()
        self.first.close()
        self.crowd.close()
        self._client.close()


def _wait(governor: Governor) -> None:
    with governor.slot(KEY):
        pass


def _store() -> RedisStore:
    store, _ = open_store(None)
    assert isinstance(store, RedisStore)
    return store


def measure(effort: Effort, directory: str) -> Findings:
    times, many = effort.pick(5_000, 500), effort.pick(20_000, 1_000)
    with server(directory) as url:
        fleet = Fleet(url, Headway(directory, url, 1))
        try:
            rows = _measure(fleet, times, many, others=effort.pick(200, 20))
        finally:
            fleet.close()
    return Findings(rows, ["three levels, one of them limited; append-only file, fsync everysec"])


def _measure(fleet: Fleet, times: int, many: int, others: int) -> list[Row]:
    first, crowd = fleet.first, fleet.crowd
    pair = fleet.cost_us(lambda: first.release(fleet.request(first, is_granted=True), 0), times)
    process = fleet.size(fleet.come, others)
    idling, listening = fleet.cost_of_idling_us(), fleet.cost_of_waiting_us()
    relay = Relay(fleet)
    waiting = fleet.size(lambda: fleet.request(crowd, is_granted=False), many)
    last = fleet.request(crowd, is_granted=False)
    return [
        Row("acquire + release, nobody waits", "µs", pair),
        Row("one process more", "bytes", process),
        Row(f"it lives for a beat, one of {others}", "µs", idling),
        Row("it waits for a second", "µs", listening),
        Row("one more that waits", "bytes", waiting),
        Row("a look at a place in line", "µs", fleet.cost_us(partial(_look, crowd, last), times)),
        Row(f"hand-over of {many:,}, and a new one", "µs", fleet.cost_us(relay.hand_over, times)),
    ]


def _look(store: RedisStore, ticket: Ticket) -> None:
    store.version()
    store.positions([ticket])


class Relay:
    """One slot that goes from one to the next, of whom there are as many as before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._holder = fleet, fleet.first
        self._lease = fleet.request(self._holder, is_granted=True)

    def hand_over(self) -> None:
        self._holder.release(self._lease, 0.01)
        self._holder = crowd = self._fleet.crowd
        while not crowd.news:
            crowd.listen(1.0)
        own = crowd.own_ticket(crowd.news.popleft().ticket_id)
        assert own is not None
        self._lease = own
        self._fleet.request(crowd, is_granted=False)


FIGURE = Figure("redis-load", "what a Redis server pays for a fleet", measure)
