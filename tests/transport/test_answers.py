"""What an answer teaches: cool-downs before its slot is free, and ends that came too early."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.transport.kit import (
    CUT,
    KEY,
    SSE,
    WHOLE,
    Heard,
    Provider,
    ask,
    async_client_of,
    client_of,
    open_stream,
    used,
)
from tests.transport.kit import stream as streamed

from headway import Governor, HeadwayError
from headway.llm import TruncatedStream, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Call = tuple[str, float | None, str, int]


@pytest.fixture(params=["plain", "async"])
def call(request: pytest.FixtureRequest, lib: Any, governor: Governor) -> Callable[..., Any]:
    """Makes one call and returns its response, read to the end."""

    def plain(provider: Provider, **options: Any) -> Any:
        return ask(client_of(lib, governor, provider, **options))

    def on_a_loop(provider: Provider, **options: Any) -> Any:
        return asyncio.run(ask(async_client_of(lib, governor, provider, **options)))

    return plain if request.param == "plain" else on_a_loop


@pytest.fixture
def cooled(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The cool-downs that were asked for, with how many slots were taken just then."""
    calls: list[Call] = []

    def cool_down(key: str, seconds: float | None, *, reason: str) -> float:
        calls.append((key, seconds, reason, used(governor)))
        return 0.0

    monkeypatch.setattr(governor, "cool_down", cool_down)
    return calls


@pytest.fixture
def proven(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The leases whose requests were answered well."""
    ids: list[str] = []
    monkeypatch.setattr(governor.turnstile, "prove", lambda ticket: ids.append(ticket.id))
    return ids


def test_a_429_cools_its_model_down_before_its_slot_is_free(
    lib: Any, call: Callable[..., Any], governor: Governor, cooled: list[Call], proven: list[str]
) -> None:
    """So nobody slips in between; the caller gets the answer, and listeners an event."""
    heard = Heard(governor)
    provider = Provider(lib, status=429, headers={"retry-after": "7"})

    response = call(provider)

    assert response.status_code == 429
    [(key, seconds, reason, taken)] = cooled
    assert (key, seconds, taken) == (KEY, 7.0, 1)
    assert "429" in reason
    event = heard.only("rate limited")
    assert (event.keys, event.retry_after_seconds) == ((KEY,), 7.0)
    assert heard.kinds() == ["granted", "rate limited", "released"]
    assert proven == []


def test_an_overloaded_provider_cools_down_as_a_whole(
    lib: Any, call: Callable[..., Any], cooled: list[Call]
) -> None:
    """Its other models would fare no better."""
    call(Provider(lib, status=529))

    assert [(key, seconds) for key, seconds, _, _ in cooled] == [("llm/openai", None)]


def test_a_503_without_advice_teaches_nothing(
    lib: Any, call: Callable[..., Any], cooled: list[Call], proven: list[str]
) -> None:
    """Neither that the provider is well nor that it is to be left alone."""
    assert call(Provider(lib, status=503)).status_code == 503
    assert (cooled, proven) == ([], [])


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_any_other_answer_proves_the_provider_well(
    lib: Any, call: Callable[..., Any], cooled: list[Call], proven: list[str], status: int
) -> None:
    """Those who wait behind a probe may go on."""
    assert call(Provider(lib, status=status)).status_code == status
    assert len(proven) == 1
    assert cooled == []


def test_headers_are_enough_to_prove(lib: Any, governor: Governor, proven: list[str]) -> None:
    """The others need not wait for the end of a long stream."""
    response = open_stream(client_of(lib, governor, Provider(lib, WHOLE, headers=SSE)))

    assert len(proven) == 1
    response.close()


@pytest.mark.parametrize("how", ["refused", "timed out", "cancelled"])
def test_a_probe_without_an_answer_proves_nothing(
    lib: Any, call: Callable[..., Any], governor: Governor, how: str
) -> None:
    """The next one tries, alone again: a provider in trouble is not stormed by all who wait."""
    errors = {"timed out": lib.ReadTimeout("slow"), "cancelled": asyncio.CancelledError()}
    governor.set_limit("llm", 3)
    governor.cool_down(KEY, 0)

    with contextlib.suppress(lib.ReadTimeout, asyncio.CancelledError):
        call(Provider(lib, status=503, refuses=errors.get(how)))

    with governor.slot(KEY, wait=False):
        blocked_by = governor.capacity(KEY).blocked_by
        assert blocked_by is not None
        assert blocked_by.reason == "cooling"
    assert governor.capacity(KEY).blocked_by is None


def test_trouble_with_what_an_answer_teaches_never_replaces_it(
    lib: Any,
    call: Callable[..., Any],
    governor: Governor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It goes to the log; the slot is free."""

    def fail(*_: object, **__: object) -> float:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(governor, "cool_down", fail)
    monkeypatch.setattr(governor.turnstile, "prove", fail)
    monkeypatch.setattr(governor.turnstile, "stand_back", fail)
    assert call(Provider(lib, status=429)).status_code == 429
    assert call(Provider(lib)).status_code == 200
    monkeypatch.setattr(calls, "advice_of", fail)
    assert call(Provider(lib, status=429)).status_code == 429

    assert used(governor) == 0
    assert [record.levelname for record in caplog.records].count("WARNING") == 4
    assert "the disk is on fire" in caplog.text


def test_trouble_when_closing_never_replaces_a_cancellation(
    lib: Any, call: Callable[..., Any], governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes while the others are told of the answer, which is given up then."""
    provider = Provider(lib)

    def strike(_: object) -> None:
        raise asyncio.CancelledError("enough")

    def fail() -> None:
        raise lib.CloseError("second")

    monkeypatch.setattr(governor.turnstile, "prove", strike)
    provider.on_close = fail
    with pytest.raises(asyncio.CancelledError, match="enough") as raised:
        call(provider)

    assert "second" in raised.value.__notes__[0]
    assert (used(governor), provider.open) == (0, 0)


# -- ends that came too early ------------------------------------------------------------


def test_a_whole_stream_is_not_truncated(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """Nor is a body that is no stream."""
    heard = Heard(governor)
    call(Provider(lib, WHOLE, headers=SSE), raise_truncated=True)
    call(Provider(lib, [b'{"half": '], headers={"content-type": "text/plain"}))
    assert "truncated" not in heard.kinds()


def test_a_stream_without_its_last_event_is_told(
    lib: Any, call: Callable[..., Any], governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    """As an event and in the log; the caller has what there was."""
    heard = Heard(governor)

    response = call(Provider(lib, CUT, headers=SSE))

    assert response.content == b"".join(CUT)
    event = heard.only("truncated")
    assert event.keys == (KEY,)
    assert heard.kinds() == ["granted", "released", "truncated"]
    assert "truncated" in caplog.text


def test_a_stream_without_its_last_event_is_raised_if_asked(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """As an error of Headway's and of the client's package, when the slot is free."""
    heard = Heard(governor)

    with pytest.raises(TruncatedStream, match="cut") as raised:
        call(Provider(lib, CUT, headers=SSE), raise_truncated=True)

    assert isinstance(raised.value, HeadwayError)
    assert isinstance(raised.value, lib.RemoteProtocolError)
    assert raised.value.request.method == "POST"
    assert raised.value.keys == (KEY,)
    assert heard.kinds() == ["granted", "released", "truncated"]
    assert used(governor) == 0


def test_the_error_can_travel(lib: Any, call: Callable[..., Any]) -> None:
    """To another process, which may not have the client's package."""
    with pytest.raises(TruncatedStream) as raised:
        call(Provider(lib, CUT, headers=SSE), raise_truncated=True)

    received = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own

    assert type(received) is TruncatedStream
    assert (received.keys, str(received)) == (raised.value.keys, str(raised.value))


def test_a_stream_that_fails_is_told_as_well(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """The error is the caller's; the event says what it was."""
    heard = Heard(governor)
    provider = Provider(lib, [*CUT, lib.ReadError("reset")], headers=SSE)

    with pytest.raises(lib.ReadError):
        call(provider)

    assert heard.only("truncated").reason == "ReadError: reset"


def test_a_stream_that_was_whole_before_it_failed_is_not_truncated(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """The last event was there."""
    heard = Heard(governor)
    with pytest.raises(lib.ReadError):
        call(Provider(lib, [*WHOLE, lib.ReadError("reset")], headers=SSE))
    assert "truncated" not in heard.kinds()


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_who_closes_a_stream_under_its_reader_is_told_nothing(
    lib: Any, governor: Governor, *, breaks: bool
) -> None:
    """Somebody pressed a stop button; the reader finds the connection gone, or nothing more."""
    heard = Heard(governor)
    end = [lib.ReadError("closed")] if breaks else []

    def closed_under_it() -> Iterator[bytes]:
        yield CUT[0]
        response.close()
        for error in end:
            raise error

    provider = Provider(lib, headers=SSE)
    provider.pieces = closed_under_it()  # type: ignore[assignment]
    response = open_stream(client_of(lib, governor, provider, raise_truncated=True))
    with contextlib.suppress(lib.ReadError):
        assert b"".join(response.iter_raw()) == CUT[0]

    async def on_a_loop() -> None:
        provider = Provider(lib, [*CUT, *(end or [b""])], headers=SSE)
        client = async_client_of(lib, governor, provider, raise_truncated=True)
        response = await open_stream(client)
        pieces = response.aiter_raw()
        await anext(pieces)
        reading = asyncio.ensure_future(anext(pieces, b""))
        await asyncio.sleep(0)
        await response.aclose()
        with contextlib.suppress(lib.ReadError):
            assert await reading == b""

    asyncio.run(on_a_loop())
    assert heard.kinds() == ["granted", "released"] * 2


def test_who_leaves_early_is_told_nothing(lib: Any, governor: Governor) -> None:
    """Closing, Ctrl-C and cancellation are the consumer's own doing."""
    heard = Heard(governor)
    cut = Provider(lib, CUT, headers=SSE)
    with streamed(client_of(lib, governor, cut)) as response:
        pieces = response.iter_raw()
        next(pieces)
    pieces.close()
    struck = Provider(lib, [*CUT, KeyboardInterrupt()], headers=SSE)
    with pytest.raises(KeyboardInterrupt):
        ask(client_of(lib, governor, struck))

    async def cancelled() -> None:
        provider = Provider(lib, [*CUT, asyncio.CancelledError()], headers=SSE)
        with pytest.raises(asyncio.CancelledError):
            await ask(async_client_of(lib, governor, provider))

    async def left() -> None:
        async with streamed(async_client_of(lib, governor, cut)) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
        await pieces.aclose()

    asyncio.run(cancelled())
    asyncio.run(left())
    gc.collect()
    assert "truncated" not in heard.kinds()
    assert used(governor) == 0


def test_an_error_page_is_no_truncated_stream(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """Whatever its type says."""
    heard = Heard(governor)
    call(Provider(lib, CUT, status=500, headers=SSE), raise_truncated=True)
    assert "truncated" not in heard.kinds()
