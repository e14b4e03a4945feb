"""The plain transport: the slot is taken before a request is sent, and freed once."""

from __future__ import annotations

import gc
import io
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Held, Worker, assert_clean, until, waiting_tasks
from tests.transport.kit import (
    ASK,
    KEY,
    SSE,
    URL,
    WHOLE,
    Heard,
    Provider,
    ask,
    client_of,
    open_stream,
    spoil_releases,
    used,
)
from tests.transport.kit import stream as streamed

import headway
from headway import DeadlockRefused, Governor, QueueTimeout, background
from headway.llm import HeadwayTransport, dropped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slots.conftest import Govern


def test_a_call_has_its_slot_while_it_is_sent_and_none_when_it_is_answered(
    lib: Any, govern: Govern
) -> None:
    """The provider is asked under the lease; the caller sees the answer after it."""
    governor = govern({"llm": 1})
    seen: list[tuple[str, ...]] = []
    provider = Provider(lib)
    provider.on_request = lambda: seen.extend(row.keys for row in governor.snapshot().leases)

    answer = ask(client_of(lib, governor, provider))

    assert answer.json() == {}
    assert seen == [(KEY,)]
    assert used(governor) == 0
    assert_clean(governor)


def test_a_stream_keeps_its_slot_to_its_end(lib: Any, govern: Govern) -> None:
    """Between its chunks the request is in flight; after the last it is not."""
    governor = govern({"llm": 1})
    client = client_of(lib, governor, Provider(lib, WHOLE, headers=SSE))

    with streamed(client) as response:
        counts = [used(governor) for _ in response.iter_raw()]
        assert used(governor) == 0, "free before the block is left"

    assert counts == [1, 1]
    assert_clean(governor)


def test_an_exhausted_body_needs_no_closing(lib: Any, governor: Governor) -> None:
    """The last piece was its end."""
    transport: Any = HeadwayTransport(None, governor, Provider(lib, WHOLE))  # type: ignore[arg-type]
    response = transport.handle_request(lib.Request("POST", URL, json=ASK))
    assert used(governor) == 1
    assert list(response.stream) == WHOLE
    assert used(governor) == 0


def test_every_end_of_a_stream_frees_its_slot_once(lib: Any, governor: Governor) -> None:
    """Exhausted, closed early, closed twice, failed: one release each."""
    heard = Heard(governor)
    error = lib.ReadError("the line broke")
    whole = Provider(lib, WHOLE, headers=SSE)

    response = open_stream(client_of(lib, governor, whole))
    response.read()
    response.close()
    assert (used(governor), heard.kinds().count("released")) == (0, 1)

    response = open_stream(client_of(lib, governor, whole))
    next(response.iter_raw())
    response.close()
    response.close()
    assert (used(governor), heard.kinds().count("released")) == (0, 2)

    response = open_stream(client_of(lib, governor, Provider(lib, [b"x", error])))
    with pytest.raises(lib.ReadError):
        response.read()
    assert (used(governor), heard.kinds().count("released")) == (0, 3)
    response.close()
    assert heard.kinds().count("released") == 3
    assert whole.open == 0


def test_the_provider_is_hung_up_on_before_the_next_is_let_in(lib: Any, governor: Governor) -> None:
    """Otherwise two would be in flight where one may be."""
    provider = Provider(lib, WHOLE)
    counts: list[int] = []
    provider.on_close = lambda: counts.append(used(governor))

    response = open_stream(client_of(lib, governor, provider))
    response.close()

    assert counts == [1]
    assert used(governor) == 0


def test_an_error_of_the_transport_below_frees_the_slot(lib: Any, governor: Governor) -> None:
    """The error arrives as it was raised."""
    error = lib.ConnectError("nobody there")
    client = client_of(lib, governor, Provider(lib, refuses=error))

    with pytest.raises(lib.ConnectError) as raised:
        ask(client)

    assert raised.value is error
    assert used(governor) == 0


def test_trouble_when_closing_does_not_keep_the_slot_nor_hide_the_error(
    lib: Any, governor: Governor
) -> None:
    """What broke first is raised, and says of the second."""
    provider = Provider(lib, [b"x", lib.ReadError("first")])

    def fail() -> None:
        raise lib.CloseError("second")

    provider.on_close = fail
    response = open_stream(client_of(lib, governor, provider))
    with pytest.raises(lib.ReadError, match="first") as raised:
        b"".join(response.iter_raw())
    assert "second" in raised.value.__notes__[0]
    assert used(governor) == 0

    response = open_stream(client_of(lib, governor, provider))
    with pytest.raises(lib.CloseError):
        response.close()
    assert used(governor) == 0


def test_a_response_that_is_read_already_holds_nothing(lib: Any, governor: Governor) -> None:
    """Transports that answer from memory hand over responses that nobody will read or close."""
    inner = lib.MockTransport(lambda _: lib.Response(200, json={"from": "memory"}))
    client = client_of(lib, governor, inner)

    with streamed(client) as response:
        assert used(governor) == 0
        assert response.read() == ask(client).content
    assert used(governor) == 0


def test_a_dropped_stream_is_given_back(lib: Any, governor: Governor) -> None:
    """Nobody closed it, and nobody has it any more."""
    client = client_of(lib, governor, Provider(lib, WHOLE))

    response = open_stream(client)
    pieces = response.iter_raw()
    next(pieces)
    assert used(governor) == 1
    del response, pieces
    gc.collect()

    assert used(governor) == 0


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Python collects nothing by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("begun", [False, True], ids=["unread", "half read"])
def test_a_stream_dropped_by_a_program_that_sits_still_is_found(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """The response is in a circle of references: only the collector finds it."""
    monkeypatch.setattr(dropped, "LOOK_SECONDS", 0.01)
    response = open_stream(client_of(lib, governor, Provider(lib, WHOLE)))
    pieces = response.iter_raw() if begun else None
    if pieces is not None:
        next(pieces)
    response.circle = response, pieces
    assert used(governor) == 1
    del response, pieces

    until(lambda: used(governor) == 0)


def test_an_answer_that_nobody_can_look_after_is_an_answer(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system without threads to spare, or a program at its end, has none for us."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    gc.collect()
    until(lambda: not dropped._is_watched)
    monkeypatch.setattr(background, "start", fail)

    assert ask(client_of(lib, governor, Provider(lib))).content == b"{}"
    assert used(governor) == 0


def _looking_by_hand(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nobody looks but the test; the answer grows with every collection."""
    gc.collect()
    until(lambda: not dropped._is_watched)
    collected: list[int] = []
    monkeypatch.setattr(dropped, "_start", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    return collected


def test_a_stream_that_stands_still_is_looked_for_ever_more_rarely(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collecting takes time; a slow reader does not cause it again and again."""
    collected = _looking_by_hand(monkeypatch)
    response = open_stream(client_of(lib, governor, Provider(lib, WHOLE)))
    pieces = response.iter_raw()

    def times(looks: int) -> int:
        collected.clear()
        for _ in range(looks):
            assert dropped._look()
        return len(collected)

    assert [times(1), times(1), times(14), times(16), times(32)] == [0, 1, 3, 1, 1]
    next(pieces)
    assert [times(1), times(1), times(1)] == [0, 1, 0]
    response.close()
    assert not dropped._look()
    assert used(governor) == 0


def test_a_stream_that_somebody_waits_for_is_not_looked_for(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model may think for as long as it likes."""
    collected = _looking_by_hand(monkeypatch)

    def pieces() -> Iterator[bytes]:
        for _ in range(8):
            assert dropped._look()
        yield b"at last"

    provider = Provider(lib)
    provider.pieces = pieces()  # type: ignore[assignment]
    assert ask(client_of(lib, governor, provider)).content == b"at last"
    assert collected == []


@pytest.mark.usefixtures("_no_collector")
def test_who_forgot_a_stream_is_not_refused_because_of_it(lib: Any, governor: Governor) -> None:
    """The next call of the same thread has the slot of the stream it dropped before."""
    client = client_of(lib, governor, Provider(lib, WHOLE))
    response = open_stream(client)
    response.circle = response
    del response

    assert ask(client).status_code == 200
    assert used(governor) == 0


def test_a_call_inside_a_stream_that_has_the_only_slot_is_refused(
    lib: Any, governor: Governor
) -> None:
    """It would wait for itself."""
    client = client_of(lib, governor, Provider(lib, WHOLE))

    with streamed(client):
        with pytest.raises(DeadlockRefused):
            ask(client)
        assert used(governor) == 1
    assert ask(client).status_code == 200


def test_a_stream_that_another_thread_reads_can_be_waited_for(lib: Any, governor: Governor) -> None:
    """Who opened it does not wait for itself; who reads it still would."""
    client = client_of(lib, governor, Provider(lib, WHOLE))
    go_on = threading.Event()
    waiting = client_of(lib, governor, Provider(lib), on_wait=lambda _: go_on.set())
    response = open_stream(client)

    def read() -> None:
        for _ in response.iter_raw():
            assert go_on.wait(20)
            with pytest.raises(DeadlockRefused):
                ask(client)

    reader = Worker(read)
    assert ask(waiting).status_code == 200
    reader.result()
    assert used(governor) == 0


def test_waiting_is_told_and_bounded(lib: Any, governor: Governor) -> None:
    """``on_wait`` hears of it; ``timeout`` ends it with an error that is not the provider's."""
    waits: list[str] = []
    provider = Provider(lib)
    client = client_of(
        lib, governor, provider, timeout=0.15, on_wait=lambda event: waits.append(event.kind)
    )

    with Held(governor, "llm"), pytest.raises(QueueTimeout, match=KEY) as raised:
        ask(client)

    assert waits == ["queued"]
    assert provider.asked == []
    assert not isinstance(raised.value, lib.TimeoutException)
    assert_clean(governor)


def test_those_who_wait_are_let_in_by_the_end_of_a_stream(lib: Any, governor: Governor) -> None:
    """And stand in line with their task and priority until then."""
    provider = Provider(lib, WHOLE)
    response = open_stream(client_of(lib, governor, provider))
    late = Worker(lambda: ask(client_of(lib, governor, provider, task="late")))
    until(lambda: waiting_tasks(governor) == ["late"])
    first = Worker(lambda: ask(client_of(lib, governor, provider, task="first", priority=5)))
    until(lambda: waiting_tasks(governor) == ["first", "late"])
    assert len(provider.asked) == 1

    response.close()

    assert first.result().status_code == late.result().status_code == 200
    assert_clean(governor)


def test_without_a_governor_the_homes_counts(lib: Any) -> None:
    """It is found when the first request comes, and again when it was closed."""
    provider = Provider(lib)
    client = client_of(lib, None, provider)
    counts: list[int] = []
    provider.on_request = lambda: counts.append(headway.governor.default().capacity(KEY).used)

    ask(client)
    headway.governor.default().close()
    ask(client)

    assert counts == [1, 1]
    headway.governor.default().close()


def test_the_model_comes_from_the_body_or_the_path_or_is_not_known(
    lib: Any, governor: Governor
) -> None:
    """A body that is still to be read is left alone; then the provider counts alone."""
    provider, keys = Provider(lib), list[str]()
    provider.on_request = lambda: keys.extend(governor.snapshot().leases[0].keys)
    client = client_of(lib, governor, provider)
    named = lib.Client(transport=HeadwayTransport("mine", governor, provider))  # type: ignore[arg-type]

    client.post(URL, json=ASK)
    client.post(URL, content=iter([json.dumps(ASK).encode()]))
    client.get("https://api.openai.com/v1/models")
    client.post("https://example.org/v1beta/models/gemini-9:generateContent", json={"model": "x"})
    named.post(URL, json=ASK)
    client.post(URL, data={"model": "ears"}, files={"file": io.BytesIO(b"la la la")})
    client.post(URL, files={"model": ("model.bin", b"no name")})

    assert keys == [
        KEY,
        "llm/openai",
        "llm/openai",
        "llm/example.org/gemini-9",
        "llm/mine/gpt",
        "llm/openai/ears",
        "llm/openai",
    ]
    assert b"".join(provider.asked[1].stream) == json.dumps(ASK).encode(), "it was read before"
    assert b"la la la" in b"".join(provider.asked[5].stream), "its file was read before"


def test_two_streams_of_one_model_do_not_touch_each_other(lib: Any) -> None:
    """Interleaved, one closed half-way: the other has all of its own."""
    with Governor("memory://", limits={KEY: 2}) as governor:
        one = open_stream(client_of(lib, governor, Provider(lib, [b"a1", b"a2", b"a3"])))
        two = open_stream(client_of(lib, governor, Provider(lib, [b"b1", b"b2", b"b3"])))
        ones, twos = one.iter_raw(), two.iter_raw()
        assert [next(ones), next(twos), next(ones)] == [b"a1", b"b1", b"a2"]
        one.close()
        assert used(governor) == 1
        assert list(twos) == [b"b2", b"b3"]
        assert used(governor) == 0


def test_a_stream_may_end_in_another_thread(lib: Any, governor: Governor) -> None:
    """The slot goes with the response, and its opener is under no lease any more."""
    client = client_of(lib, governor, Provider(lib, WHOLE))
    response = open_stream(client)

    Worker(response.read).result()

    assert used(governor) == 0
    assert ask(client).status_code == 200


def test_threads_that_close_at_once_release_once(lib: Any, governor: Governor) -> None:
    """However many think that they are the last."""
    heard = Heard(governor)
    client = client_of(lib, governor, Provider(lib, WHOLE))
    for _ in range(20):
        response = open_stream(client)
        together = threading.Barrier(4)

        def close(body: Any = response.stream, together: threading.Barrier = together) -> None:
            together.wait()
            body.close()

        for worker in [Worker(close) for _ in range(4)]:
            worker.result()
    assert heard.kinds().count("released") == 20
    assert_clean(governor)


def test_a_transport_is_entered_and_closed_with_its_client(lib: Any, governor: Governor) -> None:
    """And so is the one below."""
    seen: list[str] = []

    class Below(Provider):
        def __enter__(self) -> None:
            seen.append("entered")

        def __exit__(self, *_: object) -> None:
            seen.append("left")

        def close(self) -> None:
            seen.append("closed")

    with client_of(lib, governor, Below(lib)) as client:
        ask(client)
    client_of(lib, governor, Below(lib)).close()
    assert seen == ["entered", "left", "closed"]


def test_a_redirect_has_a_slot_for_each_hop(lib: Any, governor: Governor) -> None:
    """The first is over before the second is asked."""
    heard = Heard(governor)

    def answer(request: Any) -> Any:
        if request.url.path == "/old":
            return lib.Response(307, headers={"location": "/new"}, stream=lib.ByteStream(b"moved"))
        return lib.Response(200, stream=lib.ByteStream(b"here"))

    client = client_of(lib, governor, lib.MockTransport(answer))
    response = client.post("https://example.org/old", json=ASK, follow_redirects=True)

    assert response.content == b"here"
    assert heard.kinds() == ["granted", "released", "granted", "released"]


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_store_in_trouble_never_replaces_the_answer(
    lib: Any, govern: Govern, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The release is repeated until it works; the caller has the answer meanwhile."""
    governor = govern({"llm": 1})
    end_of_trouble = spoil_releases(governor, monkeypatch)
    client = client_of(lib, governor, Provider(lib, WHOLE, headers=SSE))

    if how == "whole":
        assert ask(client).content == b"".join(WHOLE)
    else:
        with streamed(client) as response:
            assert list(response.iter_raw()) == WHOLE
    assert used(governor) == 1
    end_of_trouble()
    until(lambda: used(governor) == 0)
    assert_clean(governor)
