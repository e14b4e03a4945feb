"""The slot comes back after every end, and with it everything else."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.kit import until
from tests.harness.speech import answer, begun, printed, said, spoken, used

from headway.harness import Cancellation, ClaudeCode, events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.kit import Stage

    from headway.harness import Harness
    from headway.harness.events import AgentEvent

HANG = 'echo $$ >> "$HERE/started"; sleep 600'


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """The test leaves no descriptors and no children, zombies included."""
    before = len(os.listdir("/proc/self/fd"))
    children = psutil.Process().children()
    yield
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "the end of all descriptors")
    assert [child for child in psutil.Process().children() if child not in children] == []


def is_free(agent: Harness) -> bool:
    """Whether all slots are free, and one really can be had."""
    assert agent.guard.capacity(agent.key(None)).used == 0
    assert agent.guard.capacity(agent.key(None)).waiting == 0
    return not agent.guard.snapshot().leases


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (spoken("claude"), "succeeded", 0),
        ("exit 3", "failed", 3),
        ("kill -9 $$", "failed", 137),
        ("kill -TERM $$", "failed", 143),
        ("kill -SEGV $$", "failed", 139),
        ("exit 255", "failed", 255),
    ],
)
def test_after_an_end_by_itself(stage: Stage, script: str, status: str, code: int) -> None:
    """Whichever."""
    agent = stage.agent("claude", script, max_concurrent=1)
    for _ in range(2):
        result = agent.execute("x")

        assert (result.status, result.exit_code) == (status, code)
        assert is_free(agent)


def test_after_a_program_that_is_not_there(stage: Stage) -> None:
    """With how to get it."""
    agent = ClaudeCode(executable="no-such-claude", env=stage.environ)

    result = agent.execute("x")

    assert (result.status, result.exit_code, result.attempts) == ("failed", 127, 0)
    assert result.reason == (
        "no-such-claude: no such program; to install it: npm install -g @anthropic-ai/claude-code"
    )
    assert is_free(agent)


def _not_executable(path: str) -> None:
    os.chmod(path, stat.S_IRUSR)


def _bad_interpreter(path: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/no/such/interpreter\n")


def _directory(path: str) -> None:
    os.unlink(path)
    os.mkdir(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_not_executable, "is not a program that may be executed"),
        (_bad_interpreter, "No such file or directory"),
        (_directory, "is not a program that may be executed"),
    ],
)
def test_after_a_program_that_cannot_be_started(stage: Stage, spoil: Any, reason: str) -> None:
    """As a shell answers, and it is not tried again."""
    agent = stage.agent("claude", "true", max_concurrent=1)
    spoil(agent.executable)

    result = agent.execute("x", retries=3)

    assert (result.status, result.exit_code) == ("failed", 126)
    assert result.attempts <= 1
    assert reason in (result.reason or "")
    assert is_free(agent)


def test_a_script_without_its_first_line_runs_as_in_a_shell(stage: Stage) -> None:
    """The kernel refuses it, every shell does not."""
    agent = stage.agent("claude", "true")
    with open(agent.executable, "w", encoding="utf-8") as file:
        file.write(f"{spoken('claude')}\n")

    assert agent.execute("x").ok


def test_after_a_directory_that_is_not_there(stage: Stage) -> None:
    """Or is a file."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=1)
    for place in (stage.directory / "nowhere", agent.executable):
        result = agent.execute("x", cwd=place)

        assert (result.status, result.exit_code) == ("failed", 126)
        assert str(place) in (result.reason or "")
        assert is_free(agent)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_after_a_directory_that_is_forbidden(stage: Stage) -> None:
    """As one that is not there."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=1)
    closed = stage.directory / "closed"
    closed.mkdir(mode=0)

    assert agent.execute("x", cwd=closed).exit_code == 126
    assert is_free(agent)


def test_the_directory_is_where_it_works(stage: Stage) -> None:
    """The present one if none is given."""
    agent = stage.agent("here", "pwd")
    place = stage.directory / "a place"
    place.mkdir()

    assert agent.execute("x", cwd=place).text == f"{place}\n"
    assert agent.execute("x").text == f"{os.getcwd()}\n"


@pytest.mark.parametrize("spare", range(14))
def test_when_there_are_no_descriptors_left(stage: Stage, spare: int) -> None:
    """It failed, it says so, and the next time it works."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=1)
    assert agent.execute("x").ok

    async def main() -> str:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir("/proc/self/fd"))) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
        try:
            result = await agent.aexecute("x")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert result.ok or "Too many open files" in (result.reason or ""), result
        return result.status

    assert asyncio.run(main()) in {"failed", "succeeded"}
    assert is_free(agent)
    assert agent.execute("x").ok


def test_when_there_is_no_thread_to_be_had(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=1)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("headway.harness.attempt.background.start", refuse)
        result = agent.execute("x")

    assert result.status == "failed"
    assert "can't start new thread" in (result.reason or "")
    assert is_free(agent)
    assert agent.execute("x").ok


def test_after_a_word_or_an_environment_that_is_too_long(stage: Stage) -> None:
    """The system says no; the reason says what."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=1)
    for options in ({"env": {"X": "x" * 200_000}}, {"session": "s" * 200_000}):
        result = agent.execute("x", **options)

        assert result.status == "failed"
        assert "Argument list too long" in (result.reason or "")
        assert is_free(agent)
    env = {f"VARIABLE_{i}": "x" * 100_000 for i in range(30)}
    assert "Argument list too long" in (agent.execute("x", env=env).reason or "")
    assert agent.execute("x").ok


@pytest.mark.parametrize("how", ["timeout", "handle", "task"])
def test_after_it_was_ended(stage: Stage, how: str) -> None:
    """By its clock, by a handle, with its task."""
    agent = stage.agent("claude", HANG, max_concurrent=1)
    handle = Cancellation()

    async def main() -> str:
        task = asyncio.create_task(
            agent.aexecute("x", cancellation=handle, max_runtime=0.3 if how == "timeout" else "off")
        )
        await asyncio.to_thread(until, lambda: stage.lines("started"))
        if how == "handle":
            handle.cancel()
        if how == "task":
            task.cancel()
        try:
            return (await task).status
        except asyncio.CancelledError:
            return "raised"

    assert (
        asyncio.run(main())
        == {"timeout": "timed_out", "handle": "cancelled", "task": "raised"}[how]
    )
    assert not stage.processes()
    assert is_free(agent)


class BoomError(Exception):
    """What a callback raises."""


KINDS = {
    "started": events.Started,
    "text": events.Text,
    "tool_call": events.ToolCall,
    "tool_result": events.ToolResult,
    "usage": events.UsageReported,
    "retrying": events.Retrying,
    "warned": events.Warned,
    "finished": events.Finished,
}


@pytest.mark.parametrize(
    "error", [BoomError, SystemExit, KeyboardInterrupt, asyncio.CancelledError]
)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_callback_that_raises(stage: Stage, kind: str, error: type[BaseException]) -> None:
    """At whichever event: the error comes out, and nothing runs any more."""
    retry = {"type": "system", "subtype": "api_retry", "error": "rate_limit", "error_status": 429}
    end = answer("claude", "Done.")
    script = printed(*begun("claude"), *said("claude", "hm"), *used("claude", "ls"), retry, *end)
    agent = stage.agent("claude", f"{script}\nsleep 600", max_concurrent=1)
    raised = threading.Event()

    def callback(event: AgentEvent) -> None:
        assert not raised.is_set(), "it was called again after it had failed"
        if isinstance(event, KINDS[kind]):
            raised.set()
            raise error

    with pytest.raises(error):
        agent.execute("x", on_event=callback, max_runtime=2)

    assert raised.is_set()
    assert not stage.processes()
    assert is_free(agent)


def test_after_a_callback_that_raises_while_it_waits(stage: Stage) -> None:
    """At ``queued``."""
    agent = stage.agent("claude", HANG, max_concurrent=1)
    handle = Cancellation()
    first = threading.Thread(target=lambda: agent.execute("x", cancellation=handle))
    first.start()
    until(lambda: stage.lines("started"), "the first")

    def callback(event: AgentEvent) -> None:
        assert isinstance(event, events.Queued)
        raise BoomError

    with pytest.raises(BoomError):
        agent.execute("x", on_event=callback)
    assert agent.guard.capacity(agent.key(None)).waiting == 0
    handle.cancel()
    first.join()
    assert len(stage.lines("started")) == 1
    assert is_free(agent)
