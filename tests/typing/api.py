"""What users write against the public API: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import assert_type

import anthropic
import httpx
import httpx2
import openai

import headway
from headway import (
    UNLIMITED,
    AtCapacity,
    BlockedBy,
    Capacity,
    Governor,
    Lease,
    QueueTimeout,
    Slot,
    Snapshot,
)
from headway.events import Event, Queued
from headway.harness import (
    Cancellation,
    ClaudeCode,
    Harness,
    Invocation,
    Options,
    Order,
    Record,
    Result,
    Story,
)
from headway.harness.events import AgentEvent, Finished, ToolCall
from headway.harness.result import Status
from headway.llm import AsyncHeadwayTransport, HeadwayTransport, Retry, TruncatedStream


def plain() -> None:
    """A slot with everything it takes, and its lease."""
    with headway.slot("llm/anthropic/claude-opus-4") as lease:
        assert_type(lease, Lease)
        assert_type(lease.id, str)
        assert_type(lease.task, str | None)
        assert_type(lease.keys, tuple[str, ...])
        assert_type(lease.waited_seconds, float)
        assert_type(lease.token, int)
        assert_type(lease.lost, bool)
        assert_type(lease.environ(), dict[str, str])
    slot = headway.slot("a", "b", task="t", weight=2, priority=-5, timeout="10m", wait=False)
    assert_type(slot, Slot)
    headway.slot("a", timeout=1.5, parent=lease)
    headway.slot("a", timeout=None, parent=lease.id, on_wait=hear)
    headway.slot("a", parent="current")
    assert_type(headway.current_lease(), Lease | None)
    slot.id  # type: ignore[attr-defined] # noqa: B018 - that is the lease's
    slot()  # type: ignore[operator]
    headway.slot(3)  # type: ignore[arg-type]
    headway.slot("a", "b", 3)  # type: ignore[arg-type]
    headway.slot("a", weight="2")  # type: ignore[arg-type]
    headway.slot("a", timeout=["10m"])  # type: ignore[arg-type]
    headway.slot("a", tsk="t")  # type: ignore[call-arg]


async def in_task() -> None:
    """The same object in a coroutine, and the async twins."""
    await headway.slot("a")  # type: ignore[misc]
    async with headway.slot("agent/opencode", task="issue-16", priority=5, timeout="10m") as lease:
        assert_type(lease, Lease)
    governor = Governor("memory://", limits={"llm/openai": 2, "llm/*": UNLIMITED})
    assert_type(await governor.acapacity("a"), Capacity)
    assert_type(await governor.asnapshot(), Snapshot)
    assert_type(await governor.acancel("x"), bool)
    await governor.aset_limit("a", 3)
    await governor.aclose()


def hear(event: Event) -> None:
    """A hook narrows the kinds of events it wants."""
    assert_type(event.ticket_id, str)
    if isinstance(event, Queued):
        assert_type(event.position, int)
        assert_type(event.blocked_by, BlockedBy)
        assert_type(event.estimated_wait_seconds, float | None)


def governing() -> None:
    """Everything a governor does."""
    with Governor() as governor:
        assert_type(governor, Governor)
        capacity = governor.capacity("agent/opencode")
        assert_type(capacity.used, int)
        assert_type(capacity.blocked_by, BlockedBy | None)
        assert_type(governor.snapshot().as_dict(), dict[str, object])
        governor.set_limit("llm/openai", 3)
        governor.set_limit("llm/openai", "unlimited")
        governor.set_limit("llm/openai", 1.5)  # type: ignore[arg-type]
        governor.pause("a")
        governor.resume("a")
        assert_type(governor.cancel("x"), bool)
        unsubscribe: Callable[[], None] = governor.subscribe(hear)
        unsubscribe()
        Governor("memory://", limits={"a": 2.5})  # type: ignore[dict-item]


@headway.limited("llm/openai")
def function(prompt: str, *, temperature: float = 1.0) -> int:
    """Keeps its signature."""
    return len(prompt) * int(temperature)


@headway.limited("llm/openai", task="t", timeout=3, parent="current")
async def coroutine(prompt: str) -> bytes:
    """Stays a coroutine function."""
    return prompt.encode()


@headway.limited("llm/openai")
def generator(most: int) -> Iterator[int]:
    """Stays a generator function."""
    yield from range(most)


@headway.limited("llm/openai")
async def stream(most: int) -> AsyncIterator[str]:
    """Stays an async generator function."""
    for number in range(most):
        yield str(number)


async def using_limited() -> None:
    """Arguments and answers are checked as before."""
    assert_type(function("x", temperature=2), int)
    assert_type(await coroutine("x"), bytes)
    assert_type(generator(3), Iterator[int])
    async for piece in stream(3):
        assert_type(piece, str)
    function(3)  # type: ignore[arg-type]
    function("x", temprature=2)  # type: ignore[call-arg]
    await coroutine()  # type: ignore[call-arg]


def errors() -> None:
    """What can be caught, and what it carries."""
    try:
        plain()
    except AtCapacity as error:
        assert_type(error.capacity, Capacity)
        assert_type(error.reason, str)
    except QueueTimeout as late:
        timeout: TimeoutError = late
        raise timeout from late


def tell(event: AgentEvent) -> None:
    """A hook of an agent narrows events in the same way."""
    assert_type(event.task, str | None)
    if isinstance(event, ToolCall):
        assert_type(event.tool, str)
    elif isinstance(event, Finished):
        assert_type(event.result, Result)
        assert_type(event.result.status, Status)


async def agents() -> None:
    """The harness of any program, with what it takes and answers."""
    agent: Harness = ClaudeCode(model="opus", max_concurrent=UNLIMITED, governor=Governor())
    common: Options = {"timeout": "10m", "max_runtime": 3600, "on_event": tell, "cwd": Path()}
    assert_type(await agent.aexecute("x", **common), Result)
    result = agent.execute("x", task="t", cancellation=Cancellation(), on_event=print)
    assert_type(result.text, str)
    assert_type(result.session_id, str | None)
    assert_type(result.exit_code, int | None)
    agent.execute("x", tsk="t")  # type: ignore[call-arg]
    agent.execute("x", retries="2")  # type: ignore[arg-type]


class Goose(Harness):
    """A program of the user's own."""

    program = "goose"

    def invocation(self, order: Order, model: str | None) -> Invocation:
        return Invocation(words=[self.executable, model or "any"], prompt=order.prompt)

    def read(self, record: Record, story: Story) -> None:
        if record.text("type") == "end":
            story.completes(record.text("answer"))


def llm_clients(governor: Governor) -> None:
    """The transports fit into clients of both packages, and wrap the transports of both."""
    plain = HeadwayTransport(
        "openai",
        governor,
        httpx.HTTPTransport(),
        task="issue-16",
        priority=5,
        timeout="10m",
        on_wait=lambda event: print(event.kind),
        raise_truncated=True,
        retry=Retry(attempts=3, max_wait="1m"),
    )
    openai.OpenAI(http_client=httpx.Client(transport=plain))
    anthropic.Anthropic(http_client=httpx2.Client(transport=HeadwayTransport()))
    assert_type(plain.handle_request(httpx.Request("GET", "https://x")), httpx.Response)
    assert_type(plain.handle_request(httpx2.Request("GET", "https://x")), httpx2.Response)


async def async_llm_clients() -> None:
    """The same for coroutines."""
    transport = AsyncHeadwayTransport(transport=httpx2.AsyncHTTPTransport(), retry=3)
    openai.AsyncOpenAI(http_client=httpx.AsyncClient(transport=AsyncHeadwayTransport()))
    anthropic.AsyncAnthropic(http_client=httpx2.AsyncClient(transport=transport))
    try:
        answer = await transport.handle_async_request(httpx2.Request("GET", "https://x"))
    except TruncatedStream as error:
        assert_type(error.reason, str)
    else:
        assert_type(answer, httpx2.Response)
