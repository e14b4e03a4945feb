"""``retry=``: a request that was turned away gives its slot back and queues anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import stamina
import tenacity.nap
from tests.slots.support import Held
from tests.transport.kit import URL, Heard, Provider, ask, async_client_of, client_of, used
from tests.transport.kit import stream as streamed

from headway import Governor, QueueTimeout
from headway.llm import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stamina.instrumentation import RetryDetails


class Moody(Provider):
    """Answers with these statuses one after another; an error is raised."""

    def __init__(self, lib: Any, *moods: int | Exception, **options: Any) -> None:
        super().__init__(lib, [b"{}"], **options)
        self._moods = list(moods)

    def handle_request(self, request: Any) -> Any:
        mood = self._moods.pop(0) if self._moods else 200
        self.refuses = mood if isinstance(mood, Exception) else None
        self.status = mood if isinstance(mood, int) else 200
        return super().handle_request(request)


@pytest.fixture
def waits() -> Iterator[list[float]]:
    """How long stamina wanted to wait each time; it does not wait here."""
    seen: list[float] = []

    def remember(details: RetryDetails) -> None:
        seen.append(details.wait_for)

    stamina.instrumentation.set_on_retry_hooks([remember])
    yield seen
    stamina.instrumentation.set_on_retry_hooks(None)


class NoTime:
    """Stands in for the module ``time`` where tenacity sleeps."""

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self.sleep = sleep


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between two attempts take no time."""
    monkeypatch.setattr(tenacity.nap, "time", NoTime(lambda _: None))
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _: sleep(0))


@pytest.fixture(autouse=True)
def _no_cool_down(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is not closed meanwhile, or it would wait there too."""
    monkeypatch.setattr(governor, "cool_down", lambda *_, **__: 0.0)


@pytest.fixture(params=["plain", "async"])
def call(request: pytest.FixtureRequest, lib: Any, governor: Governor) -> Callable[..., Any]:
    """Makes one call and returns its response, read to the end."""

    def plain(provider: Provider, *, content: Any = None, **options: Any) -> Any:
        client = client_of(lib, governor, provider, **options)
        return ask(client) if content is None else client.post(URL, content=iter(content))

    def on_a_loop(provider: Provider, *, content: Any = None, **options: Any) -> Any:
        async def pieces() -> Any:
            for piece in content:
                yield piece

        async def main() -> Any:
            async with async_client_of(lib, governor, provider, **options) as client:
                if content is None:
                    return await ask(client)
                return await client.post(URL, content=pieces())

        return asyncio.run(main())

    return plain if request.param == "plain" else on_a_loop


@pytest.mark.usefixtures("_at_once")
def test_a_request_that_was_turned_away_is_sent_again(
    lib: Any, call: Callable[..., Any], governor: Governor, waits: list[float]
) -> None:
    """Each attempt has a slot of its own, and none while it waits in between."""
    heard = Heard(governor)
    provider = Moody(lib, 429, 503, 529, headers={"retry-after": "3"})

    assert call(provider, retry=4).status_code == 200

    assert len(provider.asked) == 4
    kinds = [kind for kind in heard.kinds() if kind != "rate limited"]
    assert kinds == ["granted", "released"] * 4
    assert all(3.0 <= wait <= 4.0 for wait in waits), waits
    assert len(set(waits)) == 3, "no jitter"
    assert provider.open == 0


@pytest.mark.usefixtures("_at_once")
def test_without_advice_it_waits_longer_each_time(
    lib: Any, call: Callable[..., Any], waits: list[float]
) -> None:
    """As stamina does, with its jitter."""
    call(Moody(lib, 429, 503, 529), retry=Retry(attempts=4))
    bases = (0.5, 1.0, 2.0)
    assert all(base <= wait <= base + 1 for base, wait in zip(bases, waits, strict=True)), waits


@pytest.mark.usefixtures("_at_once", "waits")
def test_the_last_answer_is_the_callers(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """With its body, when all attempts were turned away."""
    provider = Moody(lib, 429, 429, 429)

    response = call(provider, retry=2)

    assert (response.status_code, response.content) == (429, b"{}")
    assert len(provider.asked) == 2
    assert used(governor) == 0


@pytest.mark.usefixtures("_at_once", "waits")
def test_the_last_answer_can_be_read_in_every_way(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """As it came, and as if it just had: what a client notes when it is read is there too."""
    assert call(Moody(lib, 429, 429), retry=2).elapsed.total_seconds() >= 0.0

    with streamed(client_of(lib, governor, Moody(lib, 429, 429), retry=2)) as response:
        assert used(governor) == 0
        assert b"".join(response.iter_raw()) == b"{}"

    async def main() -> bytes:
        client = async_client_of(lib, governor, Moody(lib, 429, 429), retry=2)
        async with streamed(client) as response:
            assert used(governor) == 0
            return b"".join([piece async for piece in response.aiter_raw()])

    assert asyncio.run(main()) == b"{}"


@pytest.mark.usefixtures("_at_once", "waits")
def test_a_provider_that_asks_for_a_long_wait_is_not_asked_again(
    lib: Any, call: Callable[..., Any]
) -> None:
    """The caller is told instead of being kept."""
    provider = Moody(lib, 429, headers={"retry-after": "61"})
    assert call(provider, retry=Retry(attempts=3, max_wait="1m")).status_code == 429
    assert len(provider.asked) == 1


@pytest.mark.usefixtures("_at_once", "waits")
def test_connection_errors_before_an_answer_are_tried_again(
    lib: Any, call: Callable[..., Any], governor: Governor
) -> None:
    """Others are not: a timeout while reading may mean that the model is at work."""
    broken = [lib.ConnectError("no"), lib.RemoteProtocolError("hung up"), lib.ReadError("reset")]
    assert call(Moody(lib, *broken), retry=4).status_code == 200

    slow = Moody(lib, lib.ReadTimeout("slow"))
    with pytest.raises(lib.ReadTimeout):
        call(slow, retry=4)
    assert len(slow.asked) == 1

    gone = Moody(lib, *broken)
    with pytest.raises(lib.RemoteProtocolError):
        call(gone, retry=2)
    assert len(gone.asked) == 2
    assert used(governor) == 0


@pytest.mark.usefixtures("_at_once", "waits")
@pytest.mark.parametrize("status", [400, 401, 500])
def test_other_answers_are_not_tried_again(lib: Any, call: Callable[..., Any], status: int) -> None:
    """They would be the same."""
    provider = Moody(lib, status)
    assert call(provider, retry=4).status_code == status
    assert len(provider.asked) == 1


@pytest.mark.usefixtures("_at_once", "waits")
def test_a_body_that_can_be_read_once_is_sent_once(lib: Any, call: Callable[..., Any]) -> None:
    """It could not be sent again."""
    provider = Moody(lib, 429)
    assert call(provider, retry=4, content=[b"once"]).status_code == 429
    assert len(provider.asked) == 1


@pytest.mark.usefixtures("_at_once", "waits")
def test_no_retry_without_being_asked(lib: Any, call: Callable[..., Any]) -> None:
    """The clients do that by themselves."""
    provider = Moody(lib, 429)
    assert call(provider).status_code == 429
    assert len(provider.asked) == 1


@pytest.mark.usefixtures("waits")
def test_a_retry_waits_in_the_queue_like_everyone(
    lib: Any, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came while it was away goes first, and the queue's timeout holds for it too."""
    others: list[Held] = []
    comes = NoTime(lambda _: others.append(Held(governor, "llm")))
    monkeypatch.setattr(tenacity.nap, "time", comes)
    provider = Moody(lib, 429)
    with pytest.raises(QueueTimeout):
        ask(client_of(lib, governor, provider, retry=3, timeout=0.01))

    assert len(provider.asked) == 1
    others[0].let_go()
    assert used(governor) == 0
