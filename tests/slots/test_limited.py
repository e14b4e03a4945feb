"""``@limited`` on functions, coroutines and generators."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Crowd, Held, Worker, assert_clean, auntil, until, waiting_tasks

import headway
from headway import AtCapacity, ConfigError, DeadlockRefused, Governor

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.slots.conftest import Govern


def used(governor: Governor) -> int:
    """How many slots of ``k`` are taken."""
    return governor.capacity("k").used


def echo(governor: Governor) -> Callable[[], Generator[str, Any, str]]:
    """A limited generator that gives back what it is sent, and survives a KeyError."""

    @governor.limited("k")
    def generator() -> Generator[str, Any, str]:
        said: object = "started"
        while said != "end":
            try:
                said = yield f"{said}"
            except KeyError as error:
                said = f"caught {error.args[0]}"
        return "returned"

    return generator


def test_a_function_runs_under_a_slot_and_keeps_its_signature(govern: Govern) -> None:
    """Arguments and answer pass through, and the function looks like itself."""
    governor = govern({"k": 1})

    @governor.limited("k", task="sum")
    def add(a: int, *, b: int = 2) -> int:
        """Adds."""
        assert used(governor) == 1
        return a + b

    assert add(1) == 3
    assert add(1, b=5) == 6
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert str(inspect.signature(add)) == "(a: 'int', *, b: 'int' = 2) -> 'int'"
    assert_clean(governor)


def test_a_functions_error_passes_through(govern: Govern) -> None:
    """The very same exception comes out, and the slot is free."""
    governor = govern({"k": 1})
    mine = KeyError("mine")

    @governor.limited("k")
    def fail() -> None:
        raise mine

    with pytest.raises(KeyError) as caught:
        fail()

    assert caught.value is mine
    assert_clean(governor)


def test_a_coroutine_function_stays_one(govern: Govern) -> None:
    """It can be awaited, asked about, and its error passes through."""
    governor = govern({"k": 2})

    @governor.limited("k")
    async def ask(prompt: str) -> str:
        assert used(governor) == 1
        if prompt == "fail":
            raise KeyError(prompt)
        await asyncio.sleep(0)
        return prompt.upper()

    assert inspect.iscoroutinefunction(ask)
    assert asyncio.run(ask("hi")) == "HI"
    with pytest.raises(KeyError):
        asyncio.run(ask("fail"))
    assert_clean(governor)


def test_a_coroutine_takes_its_slot_when_it_runs_and_not_when_it_is_made(govern: Govern) -> None:
    """Making a coroutine costs nothing, and one that is never awaited never held a slot."""
    governor = govern({"k": 1})

    @governor.limited("k")
    async def ask() -> None:
        raise AssertionError("never awaited")

    made = ask()
    assert used(governor) == 0
    made.close()
    assert_clean(governor)


def test_ten_calls_never_exceed_the_limit(govern: Govern) -> None:
    """Ten at once on a limit of two peak at two, in tasks and in threads."""
    governor = govern({"k": 2})
    crowd = Crowd()

    @governor.limited("k")
    async def task() -> None:
        crowd.enter()
        await auntil(lambda: crowd.peak == 2)
        crowd.leave()

    @governor.limited("k")
    def thread() -> None:
        crowd.enter()
        until(lambda: crowd.peak == 2 or not waiting_tasks(governor))
        crowd.leave()

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(10)))

    asyncio.run(tasks())
    assert (crowd.peak, crowd.running) == (2, 0)
    for worker in [Worker(thread) for _ in range(10)]:
        worker.result()
    assert (crowd.peak, crowd.running) == (2, 0)
    assert_clean(governor)


def test_a_generator_holds_its_slot_until_it_is_exhausted(govern: Govern) -> None:
    """From the first value to the end, and not before."""
    governor = govern({"k": 1})

    @governor.limited("k")
    def count(most: int) -> Generator[int, None, None]:
        yield from range(most)

    assert inspect.isgeneratorfunction(count)
    generator = count(2)
    assert used(governor) == 0
    assert [(value, used(governor)) for value in generator] == [(0, 1), (1, 1)]
    assert used(governor) == 0
    assert_clean(governor)


def test_what_a_generator_is_sent_and_thrown_passes_through(govern: Govern) -> None:
    """``send``, ``throw`` and the return value work as without a slot."""
    governor = govern({"k": 1})
    generator = echo(governor)()

    assert next(generator) == "started"
    assert generator.send("one") == "one"
    assert generator.throw(KeyError("x")) == "caught x"
    assert generator.throw(KeyError("y")) == "caught y"
    assert used(governor) == 1
    with pytest.raises(StopIteration) as stop:
        generator.send("end")
    assert stop.value.value == "returned"
    assert used(governor) == 0


def test_a_generators_error_ends_its_lease(govern: Govern) -> None:
    """An error of its own or one thrown at it comes out once, and the slot is free."""
    governor = govern({"k": 1})
    generator = echo(governor)()
    next(generator)

    with pytest.raises(ZeroDivisionError):
        generator.throw(ZeroDivisionError)

    assert used(governor) == 0
    assert list(generator) == []


def test_a_closed_generator_gives_its_slot_back(govern: Govern) -> None:
    """Its own clean-up runs first, under the slot."""
    governor = govern({"k": 1})
    seen = []

    @governor.limited("k")
    def tidy() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            seen.append(used(governor))

    generator = tidy()
    next(generator)
    generator.close()

    assert seen == [1]
    assert used(governor) == 0


def test_a_dropped_generator_gives_its_slot_back(govern: Govern) -> None:
    """Nobody has to close what nobody has any more."""
    governor = govern({"k": 1})
    generator = echo(governor)()
    next(generator)

    del generator
    gc.collect()

    assert used(governor) == 0
    assert_clean(governor)


def test_a_generator_moves_between_threads(govern: Govern) -> None:
    """Started in one thread, used in a second, closed in a third: one slot, given back once."""
    governor = govern({"k": 1})
    generator = echo(governor)()

    assert Worker(lambda: next(generator)).result() == "started"
    assert Worker(lambda: generator.send("x")).result() == "x"
    Worker(generator.close).result()

    assert_clean(governor)
    with governor.slot("k", wait=False):
        pass


def test_consumers_of_one_generator_function_take_turns(govern: Govern) -> None:
    """Each call holds its own slot; a third consumer starts when one has finished."""
    governor = govern({"k": 2})
    first, second = echo(governor)(), echo(governor)()
    Worker(lambda: (next(first), next(second))).result()
    third = Worker(lambda: list(zip(echo(governor)(), "x", strict=False)))
    until(lambda: len(waiting_tasks(governor)) == 1)

    first.close()

    assert third.result() == [("started", "x")]
    second.close()
    assert_clean(governor)


def test_a_consumer_that_would_wait_for_its_own_generator_is_told(govern: Govern) -> None:
    """While it waits it could never finish the generator that has the slot."""
    governor = govern({"k": 1})
    generator = echo(governor)()
    next(generator)

    with pytest.raises(DeadlockRefused), governor.slot("k"):
        pass

    generator.close()
    with governor.slot("k"):
        pass


def test_the_options_of_a_slot_are_the_options_of_limited(govern: Govern) -> None:
    """Weight, task, priority, timeout and no waiting, as for a slot."""
    governor = govern({"k": 3})

    @governor.limited("k", "other", task="t", weight=2, priority=3, timeout="1m", wait=False)
    def call() -> tuple[int, str | None]:
        (row,) = [lease for lease in governor.snapshot().leases if lease.task == "t"]
        return row.weight, row.task

    assert call() == (2, "t")
    with Held(governor, "k", weight=2), pytest.raises(AtCapacity):
        call()


def test_a_class_method_can_be_limited(govern: Govern) -> None:
    """``self`` passes through like any other argument."""
    governor = govern({"k": 1})

    class Client:
        name = "client"

        @governor.limited("k")
        def ask(self, what: str) -> str:
            return f"{self.name}: {what}"

        @classmethod
        @governor.limited("k")
        def make(cls) -> str:
            return cls.__name__

    assert Client().ask("x") == "client: x"
    assert Client.make() == "Client"


def test_the_home_is_looked_up_at_the_call(
    home: str, tmp_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decorating reads nothing; the home at the time of the call counts."""

    @headway.limited("agent/x")
    def call() -> int:
        with Governor(f"sqlite:///{home}") as governor:
            return governor.capacity("agent").used

    monkeypatch.setenv("HEADWAY_HOME", f"{tmp_path}/elsewhere")
    assert call() == 0
    monkeypatch.setenv("HEADWAY_HOME", home)
    assert call() == 1
    headway.governor.default().close()


def test_the_module_level_decorator_works_more_than_once(govern: Govern) -> None:
    """Using it loads what it needs, and takes nothing away."""
    govern().limited("k")(len)

    @headway.limited("agent/x")
    def one() -> int:
        return 1

    @headway.limited("agent/x")
    def two() -> int:
        return 2

    assert one() + two() == 3
    headway.governor.default().close()


def test_bad_options_are_refused(govern: Govern) -> None:
    """At the latest when the function is called."""
    governor = govern()

    @governor.limited("k", weight=0)
    def call() -> None:
        raise AssertionError("not granted")

    with pytest.raises(ConfigError, match="weight"):
        call()
