"""Cool-downs and budgets as callers meet them: they say why they are, and end by themselves."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    holding_tasks,
    is_waiting,
    until,
    waiting_tasks,
)

from headway import AtCapacity, ConfigError, CoolingDown, Governor, QueueTimeout
from headway import events as kinds
from headway.stores import book, redis_link, redis_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.slots.conftest import Govern

    from headway.events import Event

MODEL, PROVIDER = "llm/openai/gpt", "llm/openai"


def enter(governor: Governor, task: str, **options: Any) -> str:
    """Take a slot and give it back."""
    with governor.slot(MODEL, task=task, **options) as lease:
        return lease.id


def aenter(governor: Governor, task: str, **options: Any) -> str:
    """The same in a task."""

    async def work() -> str:
        async with governor.slot(MODEL, task=task, **options) as lease:
            return lease.id

    return asyncio.run(work())


@pytest.fixture(params=[enter, aenter], ids=["thread", "task"])
def ask(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Takes a slot and gives it back, in plain code and in a task."""
    function: Callable[..., str] = request.param
    return function


@pytest.fixture
def short_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of a third of a second."""
    monkeypatch.setattr(book, "WINDOW_SECONDS", 0.3)
    script = redis_script.script().replace(b"WINDOW_MS = 61000", b"WINDOW_MS = 300")
    monkeypatch.setattr(redis_link, "script", lambda: script)


def test_who_waits_is_let_in_when_the_time_has_come(
    govern: Govern, ask: Callable[..., str]
) -> None:
    """Nothing else happens in this process or in any other."""
    governor = govern()
    governor.cool_down(PROVIDER, 0.3, reason="429")
    workers = [Worker(partial(ask, governor, f"t{n}")) for n in range(3)]
    until(lambda: len(waiting_tasks(governor)) == 3)
    for worker in workers:
        assert worker.result()
    assert_clean(governor)


@pytest.mark.parametrize("reason", [None, 429, b"429"])
def test_a_reason_that_is_no_text_is_refused(govern: Govern, reason: Any) -> None:
    """And nothing is paused for it."""
    governor = govern()
    with pytest.raises(ConfigError, match="reason must be text"):
        governor.cool_down(PROVIDER, 60, reason=reason)
    enter(governor, "t")


def test_whatever_a_provider_says_is_a_reason(govern: Govern) -> None:
    """Half a character, and more than anyone reads."""
    governor = govern()
    governor.cool_down(PROVIDER, 60, reason="slow down\ud83d" + "!" * 100_000)
    with pytest.raises(CoolingDown, match=r"\(slow down\?!!!") as refusal:
        enter(governor, "t", wait=False)
    assert len(str(refusal.value)) < 1000


def test_a_wait_that_began_before_the_cool_down_ends_with_it(
    govern: Govern, ask: Callable[..., str]
) -> None:
    """Whoever waited for a slot waits for the provider now."""
    governor = govern({PROVIDER: 1})
    held = Held(governor, MODEL)
    worker = Worker(lambda: ask(governor, "it"))
    until(lambda: is_waiting(governor, "it"))
    governor.cool_down(PROVIDER, 0.3)
    held.let_go()
    assert is_waiting(governor, "it") or worker.result()
    assert worker.result()


def test_waiting_says_why(govern: Govern, ask: Callable[..., str]) -> None:
    """To the hook, in the snapshot, and to planners."""
    governor = govern()
    told: list[Event] = []
    governor.cool_down(PROVIDER, 60, reason="429, retry-after 60 s")
    worker = Worker(lambda: ask(governor, "it", on_wait=told.append))
    until(lambda: told)
    (event,) = [event for event in told if isinstance(event, kinds.Queued)]
    assert (event.blocked_by.key, event.blocked_by.reason) == (PROVIDER, "cooling")
    assert event.estimated_wait_seconds is not None
    assert 50 < event.estimated_wait_seconds <= 66
    (limit,) = [limit for limit in governor.snapshot().limits if limit.key == PROVIDER]
    assert limit.cooling_until is not None
    assert 50 < limit.cooling_until - time.time() <= 66
    assert limit.cooling_reason == "429, retry-after 60 s"
    capacity = governor.capacity(MODEL)
    assert capacity.blocked_by is not None
    assert (capacity.free, capacity.blocked_by.reason) == (0, "cooling")
    governor.resume(PROVIDER)
    worker.result()


def test_who_would_wait_too_long_fails_with_the_end(
    govern: Govern, ask: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who wait already and those who come later."""
    monkeypatch.setenv("HEADWAY_COOLDOWN_MAX_WAIT", "5s")
    governor = govern()
    governor.cool_down(PROVIDER, 3)
    waiting = Worker(lambda: ask(governor, "it"))
    until(lambda: is_waiting(governor, "it"))
    until_ = governor.cool_down(PROVIDER, 600, reason="529")
    with pytest.raises(CoolingDown, match=r"llm/openai is cooling until .* \(529\)") as caught:
        waiting.result()
    with pytest.raises(CoolingDown) as again:
        ask(governor, "late")
    for error in (caught.value, again.value):
        assert error.until == pytest.approx(until_, abs=1)
        assert isinstance(error, AtCapacity)
        assert error.capacity.blocked_by is not None
    assert_clean(governor)


def test_who_does_not_wait_is_refused_with_the_reason(govern: Govern) -> None:
    """As always with ``wait=False``, whatever the time that is left."""
    governor = govern({"llm/mistral": {"requests_per_minute": 1}})
    governor.cool_down(PROVIDER, 60)
    with pytest.raises(CoolingDown):
        enter(governor, "it", wait=False)
    with governor.slot("llm/mistral"):
        pass
    with (
        pytest.raises(AtCapacity, match="requests for this minute"),
        governor.slot("llm/mistral", wait=False),
    ):
        pass


def test_a_queue_timeout_is_its_own_error(govern: Govern, ask: Callable[..., str]) -> None:
    """Also when it is a cool-down that takes so long."""
    governor = govern()
    governor.cool_down(PROVIDER, 60)
    with pytest.raises(QueueTimeout):
        ask(governor, "it", timeout=0.05)
    assert_clean(governor)


@pytest.mark.usefixtures("short_minutes")
def test_a_budget_lets_in_as_time_goes_by(govern: Govern, ask: Callable[..., str]) -> None:
    """Two at a time, without anyone asking again."""
    governor = govern({PROVIDER: {"requests_per_minute": 2}})
    at: list[float] = []

    def work() -> None:
        ask(governor, "it")
        at.append(time.monotonic())

    started = time.monotonic()
    workers = [Worker(work) for _ in range(6)]
    for worker in workers:
        worker.result()
    at.sort()
    # Nobody can notice too early; how late they do is the machine's affair.
    assert at[2] - started > 0.29
    assert at[4] - started > 0.58
    (limit,) = [limit for limit in governor.snapshot().limits if limit.key == PROVIDER]
    assert limit.requests_per_minute == 2


@pytest.mark.usefixtures("short_minutes")
def test_a_budget_that_is_set_while_someone_waits_is_kept(govern: Govern) -> None:
    """The wait for a slot becomes one for the budget, and that ends by itself."""
    governor = govern({PROVIDER: 1})
    held = Held(governor, MODEL)
    workers = [Worker(lambda: enter(governor, "it")) for _ in range(3)]
    until(lambda: len(waiting_tasks(governor)) == 3)
    governor.set_limit(PROVIDER, {"requests_per_minute": 1})
    held.let_go()
    for worker in workers:
        worker.result()
    assert governor.capacity(PROVIDER).limit == 1


def test_resuming_ends_a_cool_down(govern: Govern) -> None:
    """For a person who knows better."""
    governor = govern()
    governor.cool_down(PROVIDER, 500)
    worker = Worker(lambda: enter(governor, "it"))
    until(lambda: is_waiting(governor, "it"))
    governor.resume(PROVIDER)
    worker.result()


def test_one_goes_first_and_the_rest_when_it_was_answered(govern: Govern) -> None:
    """Though there is room for all."""
    governor = govern()
    governor.cool_down(PROVIDER, 0.1)
    helds: list[Held] = []

    def hold() -> None:
        helds.append(Held(governor, MODEL))

    workers = [Worker(hold) for _ in range(3)]
    until(lambda: holding_tasks(governor))
    until(lambda: len(helds) == 1)
    assert len(waiting_tasks(governor)) == 2
    (first,) = governor.snapshot().leases
    ticket = governor.turnstile.store.own_ticket(first.id)
    assert ticket is not None
    governor.turnstile.prove(ticket)
    for worker in workers:
        worker.result()
    assert len(helds) == 3
    for held in helds:
        held.let_go()


@pytest.mark.parametrize("seconds", [-1, float("nan"), "soon", True, 10**400])
def test_bad_times_are_refused(govern: Govern, seconds: Any) -> None:
    """A number of seconds or nothing."""
    with pytest.raises(ConfigError, match="seconds"):
        govern().cool_down(PROVIDER, seconds)


def test_a_cool_down_is_at_most_a_week(govern: Govern) -> None:
    """Whatever a header says."""
    end = govern().cool_down(PROVIDER, 30 * 86400)
    assert end - time.time() < 7.1 * 86400


def test_the_async_twin(govern: Govern) -> None:
    """Does the same."""
    governor = govern()
    end = asyncio.run(governor.acool_down(PROVIDER, 60, reason="429"))
    assert 50 < end - time.time() <= 66


def test_ctrl_c_in_the_middle_leaves_no_probe_that_nobody_is() -> None:
    """A memory store makes its counts anew from its tickets, and so who tries first."""
    with Governor("memory://", limits={"llm": 1}) as governor:
        store: Any = governor.turnstile.store
        with Held(governor, "llm") as held:
            governor.cool_down(PROVIDER, 0.01)
            worker = Worker(lambda: enter(governor, "it"))
            until(lambda: governor.snapshot().waiting[0].blocked_by.key == "llm")
            store._book.recount(store._admission)
            assert governor.snapshot().waiting[0].blocked_by.key == "llm"
            held.let_go()
        worker.result()
