"""Ways to call: plain code, threads, loops, nested; options; events; many times."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.kit import HARNESSES, Diary, until
from tests.harness.speech import answer, begun, printed, said, spoken, used

from headway import ConfigError
from headway.harness import ClaudeCode, Command, OpenCode, events

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.kit import Stage

    from headway.harness import Harness, Result
    from headway.harness.events import AgentEvent

EVERY = pytest.mark.parametrize("program", list(HARNESSES))


# -- events ------------------------------------------------------------------------------------


@EVERY
def test_one_vocabulary_in_one_order(stage: Stage, program: str) -> None:
    """For the four programs the same; and each can be made JSON."""
    diary = Diary()
    records = [*begun(program), *said(program, "Let me see."), *used(program, "ls")]
    script = printed(*records, *answer(program, "Done."))

    result = stage.agent(program, script, model="a/b").execute("x", task="t-1", on_event=diary)

    kinds = [kind for kind in diary.kinds if kind != "usage"]
    assert kinds == ["started", "text", "tool_call", "tool_result", "text", "finished"]
    assert diary.has("usage")
    assert diary.result == result
    assert {event.task for event in diary.events} == {"t-1"}
    assert [event.at for event in diary.events] == sorted(event.at for event in diary.events)
    texts = [event.text for event in diary.events if isinstance(event, events.Text)]
    assert "".join(texts) == "Let me see.Done."
    for event in diary.events:
        told = json.loads(json.dumps(event.as_dict()))
        assert told["event"] == event.kind
    started = diary.events[0]
    assert isinstance(started, events.Started)
    assert (started.model, started.attempt) == ("a/b", 1)


def test_waiting_is_told_with_the_position(stage: Stage) -> None:
    """And again when it has moved up; ``queued`` comes before ``started``."""
    script = 'echo >> "$HERE/started"; until [ -e "$HERE/go-$N" ]; do sleep 0.02; done\n'
    agent = stage.agent("claude", script + spoken("claude"), max_concurrent=1)
    diaries = [Diary() for _ in range(3)]
    threads = []
    for i, diary in enumerate(diaries):
        options: dict[str, Any] = {"on_event": diary, "env": {"N": str(i)}}
        threads.append(threading.Thread(target=agent.execute, args=("x",), kwargs=options))
        threads[-1].start()
        diary.wait_for("queued" if i else "started")

    stage.touch("go-0")
    until(lambda: len([e for e in diaries[2].events if e.kind == "queued"]) == 2, "its move")
    for i in (1, 2):
        stage.touch(f"go-{i}")
    for thread in threads:
        thread.join()

    queued = [event for event in diaries[2].events if isinstance(event, events.Queued)]
    assert [event.position for event in queued] == [2, 1]
    assert {(event.key, event.reason) for event in queued} == {("agent/claude", "max_concurrent")}
    assert diaries[2].kinds[:2] == ["queued", "started"]
    assert diaries[2].kinds[-1] == "finished"


def test_a_retry_is_told(stage: Stage) -> None:
    """By the program, and by us."""
    diary = Diary()
    retry = {"type": "system", "subtype": "api_retry", "error_status": 529, "retry_delay_ms": 50}
    script = f"{printed(*begun('claude'), retry)}\nexit 1"

    result = stage.agent("claude", script).execute("x", retries=1, on_event=diary)

    told = [event for event in diary.events if isinstance(event, events.Retrying)]
    assert [(event.by, event.status) for event in told] == [
        ("program", 529),
        ("headway", None),
        ("program", 529),
    ]
    assert (result.attempts, result.is_rate_limited) == (2, False)


def test_callbacks_run_in_the_context_of_the_call(stage: Stage) -> None:
    """Whichever thread an event comes from."""
    variable = contextvars.ContextVar("variable", default="")
    seen: set[tuple[str, str]] = set()
    agent = stage.agent("claude", spoken("claude"))

    def hear(event: AgentEvent) -> None:
        seen.add((event.kind, variable.get()))

    async def main() -> None:
        variable.set("mine")
        await agent.aexecute("x", on_event=hear)

    asyncio.run(main())
    assert {value for _, value in seen} == {"mine"}


# -- from everywhere ---------------------------------------------------------------------------


def test_from_plain_code_threads_and_loops(stage: Stage) -> None:
    """One object serves them all at once."""
    agent = stage.agent("other", "cat", max_concurrent=3)
    results: list[str] = []

    async def several(name: str) -> None:
        done = await asyncio.gather(*(agent.aexecute(f"{name}{i}") for i in range(4)))
        results.extend(result.text for result in done)

    threads = [
        threading.Thread(target=lambda: asyncio.run(several("a"))),
        threading.Thread(target=lambda: asyncio.run(several("b"))),
        threading.Thread(target=lambda: results.append(agent.execute("plain").text)),
    ]
    for thread in threads:
        thread.start()
    results.append(agent.execute("main").text)
    for thread in threads:
        thread.join()

    assert sorted(results) == sorted(
        [*(f"a{i}" for i in range(4)), *(f"b{i}" for i in range(4)), "plain", "main"]
    )
    assert agent.guard.capacity(agent.key(None)).used == 0


def test_execute_inside_a_running_loop(stage: Stage) -> None:
    """It blocks the loop, which its caller chose; errors come out as they are."""
    agent = stage.agent("other", "cat")

    class BrokenError(Exception):
        pass

    def fail(_: AgentEvent) -> None:
        raise BrokenError

    async def main() -> Result:
        with pytest.raises(BrokenError):
            agent.execute("x", on_event=fail)
        return agent.execute("inside")

    assert asyncio.run(main()).text == "inside"


def test_execute_inside_a_callback_does_not_wait_for_itself(stage: Stage) -> None:
    """With one slot it is refused and told why; with two it works."""
    nested: list[Result] = []

    def ask_again(agent: Harness) -> None:
        def hear(event: AgentEvent) -> None:
            if isinstance(event, events.Started):
                nested.append(agent.execute("inner"))

        agent.execute("outer", on_event=hear)

    ask_again(stage.agent("other", "cat", max_concurrent=1))
    ask_again(stage.agent("other", "cat", max_concurrent=2))

    assert [result.status for result in nested] == ["refused", "succeeded"]


def test_a_loop_that_is_closed_over_its_task_leaves_nothing(stage: Stage) -> None:
    """Nobody can wait for it any more."""
    agent = stage.agent("claude", 'echo >> "$HERE/started"; sleep 600')
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.aexecute("x"))
    while not stage.lines("started"):
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()

    stage.gone()

    def is_free() -> bool:
        gc.collect()
        return agent.guard.capacity(agent.key(None)).used == 0

    until(is_free, "its slot")


def test_dropped_objects_leave_no_thread(stage: Stage) -> None:
    """Also those with somebody who waited."""

    def use() -> None:
        agent = stage.agent("other", "sleep 0.3; cat", max_concurrent=1)
        diary = Diary()

        async def main() -> None:
            await asyncio.gather(*(agent.aexecute("x", on_event=diary) for _ in range(2)))

        asyncio.run(main())
        assert diary.has("queued")

    use()
    gc.collect()
    before = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        use()

    def are_gone() -> bool:
        gc.collect()
        return len(os.listdir("/proc/self/task")) <= before

    until(are_gone, "the end of all threads")


# -- options -----------------------------------------------------------------------------------


def test_unknown_options_are_refused(stage: Stage) -> None:
    """A misspelt watchdog would be none."""
    agent = stage.agent("claude", "true")
    with pytest.raises(TypeError, match="max_runtme"):
        agent.execute("x", max_runtme="1h")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {"fallbacks": "small"},
        {"fallbacks": ["-x"]},
        {"fallbacks": [""]},
        {"fallbacks": 7},
        {"session": "--help"},
        {"session": ""},
        {"session": "a\0b"},
        {"retries": -1},
        {"retries": 1.0},
        {"retries": True},
        {"env": {"A=B": "x"}},
        {"env": {"A": 7}},
        {"env": {"A": "x\0"}},
        {"env": {"": "x"}},
        {"cwd": b"/tmp"},
        {"cwd": 7},
        {"task": ""},
        {"on_event": 7},
    ],
)
def test_bad_options_are_refused(stage: Stage, options: dict[str, Any]) -> None:
    """Before anything runs."""
    agent = stage.agent("claude", 'echo >> "$HERE/started"')
    with pytest.raises(ConfigError, match=next(iter(options))):
        agent.execute("x", **options)
    assert not stage.lines("started")


def test_a_coroutine_is_no_callback(stage: Stage) -> None:
    """Nobody would await it."""

    async def hear(_: AgentEvent) -> None:
        pass

    with pytest.raises(ConfigError, match="on_event must be a plain function"):
        stage.agent("claude", "true").execute("x", on_event=hear)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"model": "-x"}, {"model": 7}, {"model": "a\0"}, {"arguments": "-v"}]
)
def test_bad_objects_are_refused(options: dict[str, Any]) -> None:
    """When they are made."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        ClaudeCode(**options)


def test_a_command_is_words() -> None:
    """At least one, and each of them text."""
    for words in ((), ("",), (7,), ("a", None)):
        with pytest.raises(ConfigError, match="a command is words"):
            Command(*words)


def test_a_present_directory_that_is_gone(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to do; with a place to work all is well."""
    agent = stage.agent("other", "pwd")
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()

    with pytest.raises(ConfigError, match="cwd="):
        agent.execute("x")
    assert agent.execute("x", cwd=tmp_path).text == f"{tmp_path}\n"


@EVERY
def test_how_a_program_is_called(stage: Stage, program: str) -> None:
    """Model, session and further words; the prompt is not among them."""
    agent = stage.agent(
        program,
        'for word in "$@"; do echo "$word" >> "$HERE/words"; done',
        model="a/b",
        arguments=["--extra"],
    )
    session = "0199aa00-0000-7000-8000-000000000001"
    agent.execute("the prompt", session=session)

    words = stage.lines("words")
    assert words[words.index("--model") + 1] == "a/b"
    assert "--extra" in words
    assert session in words
    assert "the prompt" not in words


# -- a thousand --------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_thousand_leave_nothing(stage: Stage) -> None:
    """No process, descriptor, thread, temporary file or slot."""
    agent = stage.agent("claude", spoken("claude"), max_concurrent=8)
    path = stage.script("claude", printed(*answer("claude", "x")).replace("cat", "exec cat", 1))
    assert str(agent.executable) == path

    async def burst(count: int) -> set[str]:
        done = await asyncio.gather(*(agent.aexecute("x") for _ in range(count)))
        return {result.status for result in done}

    assert asyncio.run(burst(50)) == {"succeeded"}

    def leftovers() -> tuple[int, int, int]:
        gc.collect()
        names = os.listdir(tempfile.gettempdir())  # other tests have theirs there too
        files = [name for name in names if name.startswith("headway-prompt-")]
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(files)

    before, children = leftovers(), psutil.Process().children()
    assert asyncio.run(burst(950)) == {"succeeded"}

    until(lambda: leftovers() <= before, "the end of everything")
    assert agent.guard.capacity(agent.key(None)).used == 0
    assert not agent.guard.snapshot().leases
    assert not stage.processes()
    assert [child for child in psutil.Process().children() if child not in children] == []


def test_opencode_is_not_asked_for_a_title() -> None:
    """The task or the prompt is one, as a word that cannot be an option."""
    from headway.config import defaults  # noqa: PLC0415
    from headway.harness.order import order  # noqa: PLC0415

    agent = OpenCode()
    for prompt, title in (("-x\n y", "-x y"), ("a" * 500, "a" * 60)):
        words = agent.invocation(order(prompt, None, {}, defaults()), None).words
        assert words[-1] == f"--title={title}"
