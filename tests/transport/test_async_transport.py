"""The async transport: the same, also when tasks are cancelled and loops are closed over them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Steps,
    always_busy,
    assert_clean,
    auntil,
    until,
    waiting_tasks,
)
from tests.transport.kit import (
    KEY,
    SSE,
    WHOLE,
    Heard,
    Provider,
    ask,
    open_stream,
    spoil_releases,
    used,
)
from tests.transport.kit import async_client_of as client_of
from tests.transport.kit import stream as streamed

from headway import DeadlockRefused, Governor, HeadwayError, QueueTimeout
from headway.llm import AsyncHeadwayTransport, dropped

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

MOMENTS = ["falling asleep", "waking up", "again and again"]


def test_a_call_has_its_slot_while_it_is_sent_and_none_when_it_is_answered(
    lib: Any, govern: Govern
) -> None:
    """The provider is asked under the lease; the caller sees the answer after it."""
    governor = govern({"llm": 1})
    seen: list[tuple[str, ...]] = []
    provider = Provider(lib)
    provider.on_request = lambda: seen.extend(row.keys for row in governor.snapshot().leases)

    async def main() -> None:
        answer = await ask(client_of(lib, governor, provider))
        assert answer.json() == {}
        assert used(governor) == 0

    asyncio.run(main())
    assert seen == [(KEY,)]
    assert_clean(governor)


def test_a_stream_keeps_its_slot_to_its_end(lib: Any, govern: Govern) -> None:
    """Between its chunks the request is in flight; after the last it is not."""
    governor = govern({"llm": 1})

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE, headers=SSE))
        async with streamed(client) as response:
            assert [used(governor) async for _ in response.aiter_raw()] == [1, 1]
            assert used(governor) == 0, "free before the block is left"

    asyncio.run(main())
    assert_clean(governor)


def test_every_end_of_a_stream_frees_its_slot_once(lib: Any, governor: Governor) -> None:
    """Exhausted, closed early, closed twice, failed: one release each."""
    heard = Heard(governor)
    whole = Provider(lib, WHOLE, headers=SSE)

    def released() -> tuple[int, int]:
        return used(governor), heard.kinds().count("released")

    async def main() -> None:
        response = await open_stream(client_of(lib, governor, whole))
        await response.aread()
        await response.aclose()
        assert released() == (0, 1)

        response = await open_stream(client_of(lib, governor, whole))
        async with aclosing(response.aiter_raw()) as pieces:
            await anext(pieces)
            await response.aclose()
            await response.aclose()
        assert released() == (0, 2)

        broken = Provider(lib, [b"x", lib.ReadError("the line broke")])
        response = await open_stream(client_of(lib, governor, broken))
        with pytest.raises(lib.ReadError):
            await response.aread()
        assert released() == (0, 3)
        await response.aclose()
        assert released() == (0, 3)

        refusing = Provider(lib, refuses=lib.ConnectError("nobody there"))
        with pytest.raises(lib.ConnectError):
            await ask(client_of(lib, governor, refusing))
        assert released() == (0, 4)

    asyncio.run(main())
    assert whole.open == 0


def test_trouble_when_closing_does_not_keep_the_slot_nor_hide_the_error(
    lib: Any, governor: Governor
) -> None:
    """What broke first is raised, and says of the second."""
    provider = Provider(lib, [b"x", lib.ReadError("first")])

    def fail() -> None:
        raise lib.CloseError("second")

    provider.on_close = fail

    async def main() -> None:
        response = await open_stream(client_of(lib, governor, provider))
        with pytest.raises(lib.ReadError, match="first") as raised:
            [_ async for _ in response.aiter_raw()]
        assert "second" in raised.value.__notes__[0]
        assert used(governor) == 0

        response = await open_stream(client_of(lib, governor, provider))
        with pytest.raises(lib.CloseError):
            await response.aclose()
        assert used(governor) == 0

    asyncio.run(main())


def test_a_response_that_is_read_already_holds_nothing(lib: Any, governor: Governor) -> None:
    """Transports that answer from memory hand over responses that nobody will read or close."""

    async def main() -> None:
        inner = lib.MockTransport(lambda _: lib.Response(200, json={"from": "memory"}))
        async with streamed(client_of(lib, governor, inner)):
            assert used(governor) == 0

    asyncio.run(main())


class Run:
    """One task that makes two calls beside a rival, and is cancelled at its n-th step."""

    def __init__(self, lib: Any, governor: Governor, *, at: int, moment: str) -> None:
        self._at, self._moment, self._governor = at, moment, governor
        self._provider = Provider(lib, WHOLE, headers=SSE)
        self._lib = lib
        self.was_cancelled = False
        self.answers: list[bytes] = []

    async def work(self) -> None:
        client = client_of(self._lib, self._governor, self._provider, task="it")
        self.answers.append((await ask(client)).content)
        async with streamed(client) as response:
            self.answers.append(b"".join([piece async for piece in response.aiter_raw()]))

    def _cancel(self, _: object = None) -> None:
        self.was_cancelled = True
        self._task.cancel()

    def _pausing(self, step: int, paused_on: asyncio.Future[Any] | None) -> None:
        if step < self._at or (step > self._at and self._moment != "again and again"):
            return
        if self._moment == "waking up" and paused_on is not None:
            paused_on.add_done_callback(self._cancel)
        else:
            self._cancel()

    async def main(self) -> None:
        heard = Heard(self._governor)
        self._task = asyncio.create_task(self._stepped())
        rival = asyncio.create_task(self._compete())
        await asyncio.wait({self._task, rival})
        rival.result()
        assert self._task.cancelled() == self.was_cancelled, "a cancellation was swallowed"
        granted, released = (
            [event.ticket_id for event in heard.events if event.kind == kind]
            for kind in ("granted", "released")
        )
        assert set(granted) <= set(released), "not released"
        assert len(released) == len(set(released)), "released twice"
        assert_clean(self._governor)

    async def _stepped(self) -> None:
        await Steps(self.work(), pausing=self._pausing)

    async def _compete(self) -> None:
        client = client_of(self._lib, self._governor, Provider(self._lib, WHOLE), task="rival")
        for _ in range(3):
            await ask(client)


@pytest.mark.parametrize("busy", [False, True], ids=["on the loop", "in threads"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_caller_can_be_cancelled_at_every_step(
    lib: Any, govern: Govern, monkeypatch: pytest.MonkeyPatch, moment: str, *, busy: bool
) -> None:
    """In the queue, between grant and sending, at each chunk, while freeing: once free, for all."""
    governor = govern({"llm": 1})
    if busy:
        always_busy(governor.turnstile.store, monkeypatch)

    step = 1
    while True:
        run = Run(lib, governor, at=step, moment=moment)
        asyncio.run(run.main())
        if not run.was_cancelled:
            break
        step += 1

    assert run.answers == [b"".join(WHOLE)] * 2
    assert step > 8, "the driver has lost its steps"


def test_a_stream_that_was_dropped_is_given_back(lib: Any, governor: Governor) -> None:
    """By a task that goes on, and by a loop that was closed over it."""

    async def drop() -> None:
        response = await open_stream(client_of(lib, governor, Provider(lib, WHOLE)))
        pieces = response.aiter_raw()
        await anext(pieces)
        assert used(governor) == 1
        del response, pieces
        gc.collect()
        await auntil(lambda: used(governor) == 0)

    asyncio.run(drop())
    kept: list[Any] = []

    async def forget() -> None:
        response = await open_stream(client_of(lib, governor, Provider(lib, WHOLE)))
        pieces = response.aiter_raw()
        await anext(pieces)
        kept.extend((response, pieces))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(forget())
    loop.close()
    assert used(governor) == 1
    kept.clear()
    gc.collect()
    assert used(governor) == 0


# Httpx closes the response on the way out, and Python says that this cannot be awaited there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_closed_over_tasks_leaves_no_slot_behind(lib: Any, governor: Governor) -> None:
    """One reads, one waits in the queue; neither will ever run again."""
    provider = Provider(lib, WHOLE)
    started: list[Any] = []

    async def read() -> None:
        async with streamed(client_of(lib, governor, provider)) as response:
            started.append(response)
            await asyncio.Event().wait()

    async def main() -> None:
        tasks.append(asyncio.create_task(read()))
        await auntil(lambda: started)
        tasks.append(asyncio.create_task(ask(client_of(lib, governor, provider, task="waits"))))
        await auntil(lambda: waiting_tasks(governor) == ["waits"])

    tasks: list[asyncio.Task[Any]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(main())
    loop.close()
    for task in tasks:
        # What asyncio says of tasks that are thrown away is no trouble of the transport.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    started.clear()
    tasks.clear()
    task = None  # type: ignore[assignment]
    gc.collect()
    until(lambda: used(governor) == 0 and waiting_tasks(governor) == [])
    assert_clean(governor)


def test_a_stream_dropped_by_a_loop_that_sits_still_is_found(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else makes objects, and still another caller gets the slot."""
    monkeypatch.setattr(dropped, "LOOK_SECONDS", 0.01)

    async def forget() -> None:
        response = await open_stream(client_of(lib, governor, Provider(lib, WHOLE)))
        pieces = response.aiter_raw()
        await anext(pieces)
        response.circle = response, pieces

    async def main() -> None:
        gc.collect()
        gc.disable()
        try:
            await asyncio.create_task(forget())
            assert (await ask(client_of(lib, governor, Provider(lib)))).status_code == 200
        finally:
            gc.enable()

    asyncio.run(main())
    assert_clean(governor)


def test_who_forgot_a_stream_is_not_refused_because_of_it(lib: Any, governor: Governor) -> None:
    """The next call of the same task has the slot of the stream it dropped before."""

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE))
        gc.collect()
        gc.disable()
        try:
            response = await open_stream(client)
            pieces = response.aiter_raw()
            await anext(pieces)
            response.circle = response, pieces
            del response, pieces
            assert (await ask(client)).status_code == 200
        finally:
            gc.enable()

    asyncio.run(main())
    assert_clean(governor)


def test_a_call_inside_a_stream_that_has_the_only_slot_is_refused(
    lib: Any, governor: Governor
) -> None:
    """Also when another task has read a piece of it; one started inside waits for its end."""

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE))
        async with streamed(client):
            with pytest.raises(DeadlockRefused):
                await ask(client)
            inside = asyncio.create_task(ask(client))
            await auntil(lambda: governor.snapshot().waiting)
        assert (await inside).status_code == 200
        async with streamed(client) as response:
            pieces = response.aiter_raw()
            await asyncio.ensure_future(anext(pieces))
            with pytest.raises(DeadlockRefused):
                await ask(client)
        assert (await ask(client)).status_code == 200

    asyncio.run(main())
    assert_clean(governor)


def test_a_stream_that_another_task_reads_can_be_waited_for(lib: Any, governor: Governor) -> None:
    """Who opened it does not wait for itself; who reads it still would."""

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE))
        go_on = asyncio.Event()
        waiting = client_of(lib, governor, Provider(lib), on_wait=lambda _: go_on.set())
        response = await open_stream(client)

        async def read() -> None:
            async for _ in response.aiter_raw():
                await go_on.wait()
                with pytest.raises(DeadlockRefused):
                    await ask(client)

        reader = asyncio.create_task(read())
        assert (await ask(waiting)).status_code == 200
        await reader

    asyncio.run(main())
    assert used(governor) == 0


def test_waiting_is_told_and_bounded(lib: Any, governor: Governor) -> None:
    """``on_wait`` hears of it; ``timeout`` ends it with an error that is not the provider's."""
    waits: list[str] = []
    provider = Provider(lib)

    async def main() -> None:
        client = client_of(
            lib, governor, provider, timeout="150ms", on_wait=lambda event: waits.append(event.kind)
        )
        with pytest.raises(QueueTimeout, match=KEY):
            await ask(client)

    with Held(governor, "llm"):
        asyncio.run(main())
    assert waits == ["queued"]
    assert provider.asked == []
    assert_clean(governor)


def test_a_stream_may_end_in_another_task(lib: Any, governor: Governor) -> None:
    """The slot goes with the response, and its opener is under no lease any more."""

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE))
        response = await open_stream(client)
        await asyncio.create_task(response.aread())
        assert used(governor) == 0
        assert (await ask(client)).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_store_in_trouble_never_replaces_the_answer(
    lib: Any, govern: Govern, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The release is repeated until it works; the caller has the answer meanwhile."""
    governor = govern({"llm": 1})
    end_of_trouble = spoil_releases(governor, monkeypatch)

    async def main() -> None:
        client = client_of(lib, governor, Provider(lib, WHOLE, headers=SSE))
        if how == "whole":
            assert (await ask(client)).content == b"".join(WHOLE)
        else:
            async with streamed(client) as response:
                assert [piece async for piece in response.aiter_raw()] == WHOLE

    asyncio.run(main())
    assert used(governor) == 1
    end_of_trouble()
    until(lambda: used(governor) == 0)
    assert_clean(governor)


def test_another_event_loop_is_refused_in_plain_words(lib: Any, governor: Governor) -> None:
    """Whoever drives the coroutine without asyncio, as trio does."""
    transport = AsyncHeadwayTransport(None, governor, Provider(lib))  # type: ignore[arg-type]
    coroutine = transport.handle_async_request(lib.Request("GET", "https://api.openai.com/v1"))

    with pytest.raises(HeadwayError, match="asyncio"):
        coroutine.send(None)


def test_a_transport_is_entered_and_closed_with_its_client(lib: Any, governor: Governor) -> None:
    """And so is the one below."""
    seen: list[str] = []

    class Below(Provider):
        async def __aenter__(self) -> None:
            seen.append("entered")

        async def __aexit__(self, *_: object) -> None:
            seen.append("left")

        async def aclose(self) -> None:
            seen.append("closed")

    async def main() -> None:
        async with client_of(lib, governor, Below(lib)) as client:
            await ask(client)
        await client_of(lib, governor, Below(lib)).aclose()

    asyncio.run(main())
    assert seen == ["entered", "left", "closed"]
