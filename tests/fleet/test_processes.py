"""Threads, forks, signals and ends: what a process does with its store while it is asked."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.crash.kit import PATIENCE_SECONDS
from tests.fleet.conftest import LEASE_SECONDS

from headway import Governor, StoreUnavailable, config
from headway.stores.redis import RedisStore
from headway.tickets import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.conftest import Fleet
    from tests.fleet.proxy import Proxy
    from tests.fleet.server import Server

_FORKS = """
governor = headway.Governor()
with governor.slot("k") as lease:
    child = os.fork()
    if child == 0:
        with governor.slot("k", on_wait=queued) as own:
            say("child granted", own.id)
            hear()
        governor.close()
        os._exit(0)
    say("parent", lease.id)
    hear()
    lease.check()
say("parent left")
hear()
with governor.slot("k"):
    say("parent again")
os.waitpid(child, 0)
hear()
"""
_IS_INTERRUPTED = """
armed = False
def strike(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, strike)
governor = headway.Governor()
say("ready")
while True:
    try:
        while True:
            armed = True
            with governor.slot("k"):
                pass
    except KeyboardInterrupt:
        say("interrupted")
        if hear() == "end":
            break
governor.close()
say("closed")
hear()
"""
_CLOSES_IN_HANDLER = """
governor = headway.Governor()
def close(*_):
    governor.close()
    say("handled")
signal.signal(signal.SIGTERM, close)
lease = governor.slot("j").__enter__()
say("ready")
try:
    while True:
        governor.capacity("k")
except headway.HeadwayError as error:
    say("refused", error)
hear()
"""
_MANY_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [open("/dev/null") for _ in range(1100)]
governor = headway.Governor()
with governor.slot("k", on_wait=queued):
    say("granted")
    hear()
"""


def commands(server: Server) -> dict[str, int]:
    """How often each was called so far."""
    stats: dict[str, Any] = server.client.info("commandstats")
    return {name: int(each["calls"]) for name, each in stats.items()}


def test_a_forked_child_is_a_holder_of_its_own(fleet: Fleet) -> None:
    """It waits for its parent, whose connections it does not touch."""
    process = fleet.start(_FORKS)
    said = {process.line().partition(" ")[0] for _ in range(2)}
    assert said == {"parent", "waiting"}

    process.tell("leave")
    said = {process.line().rpartition(" ")[0] for _ in range(2)}
    assert any(each.startswith("child granted") for each in said), process.report()
    process.tell("child, leave")
    process.tell("parent, go on")
    process.expect("parent again")


def test_ctrl_c_in_the_middle_of_operations(fleet: Fleet) -> None:
    """Whatever it strikes, nothing stays behind, and the governor can be used."""
    process, watcher = fleet.start(_IS_INTERRUPTED), fleet.watcher()
    process.expect("ready")
    for number in range(30):
        time.sleep(0.003 * (number % 7))
        process.signal(signal.SIGINT)
        while (said := process.line_within(0.2)) is None:  # it struck where nothing can be raised
            process.signal(signal.SIGINT)
        assert said == "interrupted"
        if number < 29:
            process.tell("go on")
    assert watcher.ask("audit", "audited") == "fine"
    watcher.ask("take-all k 1", "took all")
    process.ask("end", "closed")
    assert watcher.ask("leases", "leases") == "0"


def test_a_signal_handler_that_closes_in_the_middle_of_an_operation(fleet: Fleet) -> None:
    """Its leases are given back at once, and whoever asks further is refused."""
    process, watcher = fleet.start(_CLOSES_IN_HANDLER), fleet.watcher()
    process.expect("ready")

    process.signal(signal.SIGTERM)

    process.expect("handled")
    process.expect("refused this governor is closed")
    assert watcher.ask("leases", "leases") == "0"
    assert "Traceback" not in process.logged()


def test_a_waiter_with_many_open_files(fleet: Fleet) -> None:
    """Descriptors may have any height."""
    holder = fleet.holding("k")
    waiter = fleet.start(_MANY_FILES)
    waiter.expect("waiting")

    holder.ask("leave", "left")

    waiter.expect("granted")


def test_nobody_asks_while_nothing_happens(fleet: Fleet, server: Server) -> None:
    """Who holds and who waits is heard now and then, and that is all."""
    fleet.holding("k")
    waiters = [fleet.waiter("k") for _ in range(2)]
    assert waiters[0].line_within(2 * LEASE_SECONDS) is None  # since the server started
    before = commands(server)
    seconds = 3 * LEASE_SECONDS
    assert waiters[0].line_within(seconds) is None
    after = commands(server)

    processes, beats = 3, 3 * seconds / LEASE_SECONDS + 2
    asked = after["cmdstat_evalsha"] - before["cmdstat_evalsha"]
    waited = after["cmdstat_blpop"] - before["cmdstat_blpop"]
    assert asked <= 2 * processes * beats
    assert waited <= processes * beats


def test_to_be_heard_costs_little_also_for_who_has_asked_for_nothing(server: Server) -> None:
    """Most of a fleet is idle most of the time: its server need not go through all the rules."""
    with Governor(server.url) as governor, governor.slot("k"), Governor(server.url) as idle:
        session = idle._store._session  # type: ignore[attr-defined]
        session.look(b"version")
        before = commands(server)["cmdstat_hexists"]
        session.beat()
        assert commands(server)["cmdstat_hexists"] == before


def test_processes_of_one_machine_tell_arrivals_by_one_clock(server: Server) -> None:
    """However long it took the server to hear what time they have."""
    settings = config.load()

    def clock(late: float) -> Callable[[], float]:
        return lambda: 7.0 - late

    stores = [
        RedisStore(settings, RedisStore.link(server.url, settings), clock=clock(late))
        for late in (0.0, 0.05)
    ]
    tickets = [Ticket(store.new_id(), ("k",), ("k",)) for store in stores]
    for store, ticket in zip(stores, tickets, strict=True):
        store.place(ticket, arrival=1, since=0.0)
        store.close()
    assert tickets[0].arrival == tickets[1].arrival


def test_its_threads_end_with_it(server: Server) -> None:
    """Neither the heart nor the listener outlives a closed governor."""
    before = threads()
    with Governor(server.url) as governor, governor.slot("k"):
        assert threads() > before
    deadline = time.monotonic() + PATIENCE_SECONDS
    while threads() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def threads() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))


def test_nothing_stays_open(server: Server) -> None:
    """A governor that is closed takes all its connections with it."""
    with Governor(server.url) as governor, governor.slot("k"):
        pass
    before = descriptors()
    for _ in range(5):
        with Governor(server.url) as governor, governor.slot("k"):
            pass
    deadline = time.monotonic() + PATIENCE_SECONDS
    while descriptors() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closing_while_others_ask(server: Server) -> None:
    """They are refused or served, nobody hangs, and nothing is left."""
    with Governor(server.url) as watcher:
        for _ in range(10):
            governor = Governor(server.url)
            ends: list[str] = []
            workers = [
                threading.Thread(target=_use_until_closed, args=(governor, ends)) for _ in range(4)
            ]
            for worker in workers:
                worker.start()
            while not watcher.snapshot().leases:
                pass
            governor.close()
            for worker in workers:
                worker.join(PATIENCE_SECONDS)
            assert len(ends) == len(workers)
            assert set(ends) <= {"StoreClosed", "Cancelled"}
            assert watcher.snapshot().leases == ()


def _use_until_closed(governor: Governor, ends: list[str]) -> None:
    try:
        while True:
            with governor.slot("k"):
                pass
    except Exception as error:  # noqa: BLE001 - its name is looked at
        ends.append(type(error).__name__)


def test_closing_without_a_server(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried as long as is set, and told; the next one who waits has the slot in time."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1s")
    monkeypatch.setenv("HEADWAY_LIMITS", "k=1")
    governor = Governor(proxy.url)
    governor.slot("k").__enter__()
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        governor.close()
    governor.close()  # safe to repeat
    with Governor(server.url) as other, other.slot("k", timeout=PATIENCE_SECONDS):
        pass
