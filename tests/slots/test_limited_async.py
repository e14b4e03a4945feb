"""``@limited`` on async generators: streams that hold a slot until they end."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import assert_clean, auntil, waiting_tasks

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

    from headway import Governor

Stream = Callable[[], AsyncGenerator[str, Any]]


def stream_of(governor: Governor) -> Stream:
    """A limited stream that gives back what it is sent, and survives a KeyError."""

    @governor.limited("k")
    async def stream() -> AsyncGenerator[str, Any]:
        said: object = "started"
        while said != "end":
            try:
                said = yield f"{said}"
                if said == "fail":
                    raise ZeroDivisionError("mine")
                await asyncio.sleep(0)
            except KeyError as error:
                if error.args[0] == "return":
                    return
                said = f"caught {error.args[0]}"

    return stream


def used(governor: Governor) -> int:
    """How many slots of ``k`` are taken."""
    return governor.capacity("k").used


def test_a_stream_holds_its_slot_until_it_is_exhausted(govern: Govern) -> None:
    """From the first value to the end."""
    governor = govern({"k": 1})

    @governor.limited("k")
    async def count() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number

    async def consume() -> None:
        assert inspect.isasyncgenfunction(count)
        stream = count()
        assert used(governor) == 0
        seen = [(number, used(governor)) async for number in stream]
        assert seen == [(0, 1), (1, 1), (2, 1)]
        assert used(governor) == 0

    asyncio.run(consume())
    assert_clean(governor)


def test_what_a_stream_is_sent_and_thrown_passes_through(govern: Govern) -> None:
    """``asend`` and ``athrow``, several in a row, work as without a slot."""
    governor = govern({"k": 1})

    async def consume() -> None:
        stream = stream_of(governor)()
        assert await anext(stream) == "started"
        assert await stream.asend("one") == "one"
        assert await stream.athrow(KeyError("x")) == "caught x"
        assert await stream.athrow(KeyError("y")) == "caught y"
        assert await stream.asend("two") == "two"
        assert used(governor) == 1
        with pytest.raises(StopAsyncIteration):
            await stream.asend("end")
        assert used(governor) == 0

    asyncio.run(consume())


def test_a_stream_may_end_because_of_what_was_thrown(govern: Govern) -> None:
    """A stream that returns on an error has ended, nothing more."""
    governor = govern({"k": 1})

    async def consume() -> None:
        stream = stream_of(governor)()
        await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await stream.athrow(KeyError("return"))
        assert used(governor) == 0

    asyncio.run(consume())


def test_a_streams_own_error_reaches_its_consumer(govern: Govern) -> None:
    """The very error of the body comes out, once, and the slot is free."""
    governor = govern({"k": 1})

    @governor.limited("k")
    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise ZeroDivisionError("mine")

    async def consume() -> None:
        stream_of_one = broken()
        assert await anext(stream_of_one) == 1
        with pytest.raises(ZeroDivisionError, match="mine"):
            await anext(stream_of_one)
        assert used(governor) == 0

        stream = stream_of(governor)()
        await anext(stream)
        with pytest.raises(ZeroDivisionError, match="mine"):
            await stream.asend("fail")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert used(governor) == 0

    asyncio.run(consume())


def test_an_error_thrown_and_not_caught_comes_out(govern: Govern) -> None:
    """And it ends the lease."""
    governor = govern({"k": 1})

    async def consume() -> None:
        stream = stream_of(governor)()
        await anext(stream)
        with pytest.raises(ZeroDivisionError):
            await stream.athrow(ZeroDivisionError())
        assert used(governor) == 0

    asyncio.run(consume())


def test_a_closed_stream_gives_its_slot_back_after_its_own_clean_up(govern: Govern) -> None:
    """The body's ``finally`` still runs under the slot."""
    governor = govern({"k": 1})
    seen = []

    @governor.limited("k")
    async def tidy() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            seen.append(used(governor))

    async def consume() -> None:
        stream = tidy()
        await anext(stream)
        await stream.aclose()
        assert (seen, used(governor)) == ([1], 0)

    asyncio.run(consume())


def test_a_stream_closed_in_another_task_gives_its_slot_back(govern: Govern) -> None:
    """Where it was started does not matter."""
    governor = govern({"k": 1})

    async def consume() -> None:
        stream = stream_of(governor)()
        assert await asyncio.create_task(anext_of(stream)) == "started"
        await asyncio.create_task(stream.aclose())
        assert used(governor) == 0
        async with governor.slot("k", wait=False):
            pass

    asyncio.run(consume())
    assert_clean(governor)


async def anext_of(stream: AsyncGenerator[str, Any]) -> str:
    """The next value, as a coroutine that a task can run."""
    return await anext(stream)


def test_a_dropped_stream_gives_its_slot_back(govern: Govern) -> None:
    """The loop closes what nobody has any more."""
    governor = govern({"k": 1})

    async def consume() -> None:
        stream = stream_of(governor)()
        await anext(stream)
        del stream
        gc.collect()
        await auntil(lambda: used(governor) == 0)

    asyncio.run(consume())
    assert_clean(governor)


def test_a_stream_left_at_the_end_of_the_loop_gives_its_slot_back(govern: Govern) -> None:
    """``asyncio.run`` closes open streams, and their slots are free after it."""
    governor = govern({"k": 1})
    kept = []

    async def consume() -> None:
        kept.append(stream_of(governor)())
        await anext(kept[0])

    asyncio.run(consume())

    assert used(governor) == 0
    assert_clean(governor)


def test_a_consumer_cancelled_between_values_gives_the_slot_back(govern: Govern) -> None:
    """A task that is cancelled while it reads a stream leaves nothing behind."""
    governor = govern({"k": 1})
    reading = asyncio.Event

    async def consume(ready: asyncio.Event) -> None:
        async for _ in stream_of(governor)():
            ready.set()
            await asyncio.Event().wait()

    async def main() -> None:
        ready = reading()
        task = asyncio.create_task(consume(ready))
        await ready.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await auntil(lambda: used(governor) == 0)

    asyncio.run(main())
    assert_clean(governor)


def test_a_stream_cancelled_inside_its_body_sees_the_cancellation(govern: Govern) -> None:
    """Cancelling the consumer while the body awaits reaches the body first."""
    governor = govern({"k": 1})
    seen = []

    @governor.limited("k")
    async def slow(inside: asyncio.Event) -> AsyncGenerator[int, None]:
        try:
            inside.set()
            await asyncio.Event().wait()
            yield 1
        except asyncio.CancelledError:
            seen.append(used(governor))
            raise

    async def main() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(anext_of(slow(inside)))  # type: ignore[arg-type]
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (seen, used(governor)) == ([1], 0)

    asyncio.run(main())


def test_consumers_of_streams_take_turns(govern: Govern) -> None:
    """Twenty streams on a limit of three peak at three and all end."""
    governor = govern({"k": 3})
    peak = 0

    async def consume(number: int) -> int:
        nonlocal peak
        values = 0
        async for _ in zip_streams(stream_of(governor)(), 3):
            values += 1
            peak = max(peak, used(governor))
        return values + number

    async def main() -> None:
        answers = await asyncio.gather(*(consume(number) for number in range(20)))
        assert answers == [3 + number for number in range(20)]
        assert waiting_tasks(governor) == []

    asyncio.run(main())
    assert peak == 3
    assert_clean(governor)


async def zip_streams(stream: AsyncGenerator[str, Any], most: int) -> AsyncGenerator[str, None]:
    """The first few values of a stream, which is closed then."""
    try:
        for _ in range(most):
            yield await anext(stream)
    finally:
        await stream.aclose()


def test_two_streams_do_not_touch_each_other(govern: Govern) -> None:
    """Closing one leaves the other's slot and values alone."""
    governor = govern({"k": 2})

    async def main() -> None:
        one, two = stream_of(governor)(), stream_of(governor)()
        await anext(one)
        await anext(two)
        await one.aclose()
        assert used(governor) == 1
        assert await two.asend("still here") == "still here"
        await two.aclose()

    asyncio.run(main())
    assert_clean(governor)
