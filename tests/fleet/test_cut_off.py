"""A process that its server does not hear: what it knows by itself, and what it does not begin."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.crash.kit import PATIENCE_SECONDS
from tests.fleet.conftest import LEASE_SECONDS

from headway.stores.redis import RedisStore
from headway.tickets import Granted, Revoked

if TYPE_CHECKING:
    from tests.fleet.away import Away
    from tests.fleet.conftest import Fleet, Persons
    from tests.fleet.proxy import Proxy
    from tests.fleet.server import Server

_KNOWS_BY_ITSELF = """
import asyncio
governor = headway.Governor()
async def hold():
    async with governor.slot("k") as lease:
        say("holding")
        while not lease.lost:  # nothing else runs on this loop
            time.sleep(0.01)
        try:
            lease.check()
        except headway.LeaseLost as error:
            say("lost", str(error).replace("\\n", " "))
        hear()
        while lease.lost:
            time.sleep(0.01)
        lease.check()
        say("held", lease.token)
        hear()
asyncio.run(hold())
say("left")
hear()
"""


def test_a_holder_knows_by_itself_that_its_slot_may_be_anothers(fleet: Fleet, proxy: Proxy) -> None:
    """On a blocked loop and without an answer; if the slot is still its own, it learns that too."""
    holder = fleet.start(
        _KNOWS_BY_ITSELF, HEADWAY_STORE_URL=proxy.url, HEADWAY_STORE_TIMEOUT="500ms"
    )
    holder.expect("holding")

    proxy.cut()

    assert "is unavailable" in holder.expect("lost")
    until(
        lambda: f"the store was not reached for {LEASE_SECONDS} s" in holder.logged(), "a warning"
    )
    proxy.heal()
    assert int(holder.ask("go on", "held")) > 0  # nobody else was there to take it
    holder.ask("leave", "left")


def test_a_beat_that_waits_for_long_does_not_hide_the_silence(fleet: Fleet, proxy: Proxy) -> None:
    """The warning comes when the time of the lease is over, whatever store.timeout is."""
    holder = fleet.holding("k", HEADWAY_STORE_URL=proxy.url, HEADWAY_STORE_TIMEOUT="1h")
    proxy.cut()
    until(lambda: "so its slot may be another's by now" in holder.logged(), "a warning")


@pytest.mark.parametrize("kind_of_silence", ["cut", "stopped"])
def test_what_is_granted_and_lost_unnoticed_queues_again(
    fleet: Fleet, proxy: Proxy, kind_of_silence: str
) -> None:
    """Its block does not begin with a lease that is another's; its turn comes after that one's."""
    holder = fleet.holding("k")
    silent = fleet.start(
        """
        governor = headway.Governor()
        with governor.slot("k", on_wait=queued) as lease:
            lease.check()
            say("granted", lease.lost)
            hear()
        say("left")
        hear()
        """,
        HEADWAY_STORE_URL=proxy.url,
        HEADWAY_STORE_TIMEOUT="500ms",
    )
    silent.expect("waiting")
    first, second = fleet.waiter("k"), fleet.waiter("k")
    if kind_of_silence == "cut":
        proxy.cut()
    else:
        silent.signal(signal.SIGSTOP)

    holder.ask("leave", "left")
    first.expect("granted")
    if kind_of_silence == "cut":
        proxy.heal()
    else:
        silent.signal(signal.SIGCONT)

    assert silent.line_within(LEASE_SECONDS / 2) is None
    first.ask("leave", "left")
    assert silent.expect("granted") == "False"  # before the second: it kept its arrival
    silent.ask("leave", "left")
    second.expect("granted")
    assert "lost" not in silent.logged()


@pytest.mark.parametrize("is_told_twice", [False, True])
def test_a_grant_that_arrives_after_its_loss_is_not_believed(
    away: Away, *, is_told_twice: bool
) -> None:
    """The holder has told the server that it waits, and then reads the old message."""
    away.limit(k=1)
    running = away.ask("k", by=0)
    waiting = away.ask("k", by=1)
    away.release(running)
    (token,) = [lease.token for lease in away.store.census().leases]
    away.lose_sight_of(1)
    other = away.ask("k", by=2)
    store = away.holders[1]
    assert isinstance(store, RedisStore)
    store.version()
    if is_told_twice:  # the first answer got lost
        store._own._void.clear()
        store._session.announce()

    store._session.take_note(waiting.id, ["granted", token])

    assert not store.news
    assert waiting.at == "k"
    away.release(other)
    store._listening.look_after([waiting.id])
    (granted,) = store.news
    assert isinstance(granted, Granted)
    assert granted.token > token


@pytest.mark.parametrize("reached_by", ["a grant", "a check"])
def test_who_reaches_the_server_again_is_heard_before_its_next_beat(
    away: Away, reached_by: str
) -> None:
    """What it is told then to be its own is not under suspicion."""
    away.limit(k=2)
    running = away.ask("k", by=1)
    store = away.holders[1]
    assert isinstance(store, RedisStore)
    store._session._heard_until = 0.0
    assert store.is_unheard

    if reached_by == "a grant":
        away.ask_unseen("k", by=1)
        assert [decision.__class__ for decision in store.news] == [Granted]
    else:
        assert not store.is_lost(running)

    assert not store.is_unheard


def test_a_lease_that_was_taken_by_hand_before_it_was_known_is_lost(away: Away) -> None:
    """A person has ended it: that is told, and it does not queue again."""
    away.limit(k=1)
    running = away.ask("k", by=0)
    waiting = away.ask("k", by=1)
    away.release(running)
    assert away.store.revoke(waiting.id, "by hand")

    store = away.holders[1]
    assert isinstance(store, RedisStore)
    store._listening.look_after([waiting.id])

    assert isinstance(waiting.verdict, Revoked)


def test_a_command_goes_on_and_its_terminal_is_told(person: Persons, server: Server) -> None:
    """The work is worth more than the limit; whoever started it hears of it."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_TIMEOUT"] = "500ms"
    command = "sh", "-c", "echo started; read _; echo done"
    process = ann.start("run", "--on", "k", "--", *command, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    server.send(signal.SIGSTOP)
    assert process.stderr is not None
    while "may be another's by now" not in process.stderr.readline():
        pass
    server.send(signal.SIGCONT)
    out, _ = process.communicate("\n", PATIENCE_SECONDS)
    assert (out, process.returncode) == ("done\n", 0)


def test_a_job_goes_on_and_says_so_in_its_log(person: Persons, server: Server) -> None:
    """As when its slot is lost for certain."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_TIMEOUT"] = "500ms"
    ann.run("submit", "--", "sh", "-c", "echo started; until test -e done; do sleep 0.05; done")
    until(lambda: "started" in ann.run("logs", "1").stdout, "its start")
    server.send(signal.SIGSTOP)
    until(lambda: "may be another's by now" in ann.run("logs", "1").stdout, "the warning")
    server.send(signal.SIGCONT)
    (ann.directory / "done").touch()
    assert ann.run("wait", "1").returncode == 0
    ann.run("worker", "stop")
