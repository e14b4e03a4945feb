"""The real agents behind the harness: whole answers, in parallel, through trouble."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.real.agents import Gemini
from tests.real.harnessed import harness, left_over

from headway import Governor
from headway.events import RateLimited
from headway.harness.events import Retrying, Started, Text, ToolCall, ToolResult, UsageReported

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.real.kit import Equipped

    from headway.events import Event
    from headway.harness import Result
    from headway.harness.events import AgentEvent

pytestmark = pytest.mark.real
# Claude Code would go on for minutes.
_IMPATIENT = {"CLAUDE_CODE_MAX_RETRIES": "1"}


def test_an_answer_comes_back_whole(equipped: Equipped, server: Server) -> None:
    """The prompt reaches the model as it is, whatever is in it, and so does the answer."""
    prompt = '-x --help $(touch hacked) `id` \'a\' "b"\n\tzwölf ☃\nPlease say: grüße, "alle" $HOME'
    result = harness(equipped).execute(prompt, cwd=equipped.directory)

    assert (result.status, result.reason) == ("succeeded", None)
    assert result.text.strip() == 'grüße, "alle" $HOME'
    assert [request.prompt.strip() for request in server.requests()] == [prompt]
    assert result.session_id
    assert result.usage.output_tokens > 0
    assert list(equipped.directory.iterdir()) == []


def test_a_long_prompt_is_passed_on(equipped: Equipped, server: Server) -> None:
    """Longer than any argument of a command may be."""
    filler = "\n".join(f"line {number} of a long prompt" for number in range(20_000))
    result = harness(equipped).execute(f"{filler}\nsay: i read it all", cwd=equipped.directory)

    assert (result.status, result.text.strip()) == ("succeeded", "i read it all")
    assert filler in server.requests()[0].prompt


def test_tools_are_seen(equipped: Equipped) -> None:
    """Calls and their results are told in order, and only what was said last is the answer."""
    events: list[AgentEvent] = []
    result = harness(equipped).execute(
        "[tool: echo one > one.txt] [tool: ls nothing-here] say: both done",
        cwd=equipped.directory,
        on_event=events.append,
    )

    assert (result.status, result.text.strip()) == ("succeeded", "both done")
    assert (equipped.directory / "one.txt").read_text() == "one\n"
    calls = [event for event in events if isinstance(event, ToolCall)]
    answers = [event for event in events if isinstance(event, ToolResult)]
    assert ["echo one" in str(call.arguments) for call in calls] == [True, False]
    assert [answer.id for answer in answers] == [call.id for call in calls]
    assert "nothing-here" in answers[1].output
    assert result.tool_calls == tuple(calls)
    kinds = [type(event) for event in events]
    assert kinds.index(Started) < kinds.index(ToolCall) < kinds.index(Text)
    assert UsageReported in kinds


def test_a_session_goes_on(equipped: Equipped, server: Server) -> None:
    """A second prompt in the same session finds the first."""
    agent = harness(equipped)
    first = agent.execute("remember 4711. say: i will", cwd=equipped.directory)
    second = agent.execute("say: still here", cwd=equipped.directory, session=first.session_id)

    assert (second.status, second.text.strip()) == ("succeeded", "still here")
    assert second.session_id == first.session_id
    assert "remember 4711" in str(server.requests()[-1].body)


@pytest.mark.parametrize("session", ["an id", "my-lost-session"])
def test_a_session_that_is_not_there_is_no_success(
    equipped: Equipped, server: Server, session: str
) -> None:
    """Neither by an id nor by a name does a program go on without what was said before."""
    if session == "an id":
        session = "ses_0000000000000000000000000x"
        if equipped.agent.name != "opencode":
            session = "0199aa00-0000-7000-8000-000000000001"
    result = harness(equipped).execute(
        "say: what was it", cwd=equipped.directory, session=session, max_runtime="60s"
    )

    assert (result.status, bool(result.reason)) == ("failed", True)
    assert server.requests() == []


@pytest.mark.parametrize(("most", "tasks"), [(2, 4), (8, 8)])
def test_several_work_side_by_side(
    equipped: Equipped, server: Server, most: int, tasks: int
) -> None:
    """From a cold start, each with its own whole answer, and never more than may."""
    server.plan(chunk_delay=0.05)
    agent = harness(equipped, max_concurrent=most)

    async def scene() -> list[Result]:
        return await asyncio.gather(
            *(
                agent.aexecute(f"say: i am {n} of them", task=f"t{n}", cwd=equipped.directory)
                for n in range(tasks)
            )
        )

    results = asyncio.run(scene())

    assert [(result.status, result.reason) for result in results] == [("succeeded", None)] * tasks
    assert [result.text.strip() for result in results] == [
        f"i am {n} of them" for n in range(tasks)
    ]
    assert len({result.session_id for result in results}) == tasks
    assert server.peak() <= most


@pytest.mark.parametrize("agent", [Gemini()], indirect=True, ids=["gemini"])
def test_gemini_has_rewritten_old_settings_before_it_works(equipped: Equipped) -> None:
    """It does so in place, and copies that start just then would read half of them."""
    settings = equipped.home / ".gemini/settings.json"
    old = json.loads(settings.read_text())
    old["general"]["disableAutoUpdate"] = True
    settings.write_text(json.dumps(old))
    environ = {**os.environ, **equipped.environ}

    words = harness(equipped).preparation(equipped.program, environ)

    assert words is not None
    subprocess.run(words, env=environ, cwd=equipped.directory, check=True, timeout=100)
    assert "disableAutoUpdate" not in json.loads(settings.read_text())["general"]
    assert harness(equipped).preparation(equipped.program, environ) is None


def test_a_limit_of_the_home_holds_for_all_instances(equipped: Equipped, server: Server) -> None:
    """Three harness objects share one governor with one slot."""

    async def scene() -> None:
        with Governor("memory://", limits={f"agent/{equipped.agent.name}": 1}) as governor:
            agents = [harness(equipped, governor=governor) for _ in range(3)]
            results = await asyncio.gather(
                *(
                    agent.aexecute(f"say: {n}", cwd=equipped.directory)
                    for n, agent in enumerate(agents)
                )
            )

        assert [result.status for result in results] == ["succeeded"] * 3
        assert server.peak() == 1

    asyncio.run(scene())


def test_too_many_requests_are_noticed(equipped: Equipped, server: Server) -> None:
    """The program tries again by itself; everybody who listens to the governor is told."""
    heard: list[Event] = []
    events: list[AgentEvent] = []
    server.plan(status=429, retry_after="1", retry_delay="1s", times=1)
    with Governor("memory://") as governor:
        governor.subscribe(heard.append)
        result = harness(equipped, governor=governor).execute(
            "say: patience", cwd=equipped.directory, on_event=events.append
        )

    assert (result.status, result.text.strip()) == ("succeeded", "patience")
    told = [event for event in heard if isinstance(event, RateLimited)]
    retrying = [event for event in events if isinstance(event, Retrying)]
    if equipped.agent.name == "opencode":  # it does so in silence
        assert (told, retrying) == ([], [])
    else:
        assert retrying
        assert retrying[0].status == 429
        assert told[0].keys == (harness(equipped).llm_key(result.model),)


def test_giving_up_on_too_many_requests_is_a_failure(equipped: Equipped, server: Server) -> None:
    """With the reason, and known as what it is."""
    if equipped.agent.name in ("opencode", "gemini"):
        pytest.skip("it goes on trying for minutes, and cannot be told not to")
    server.plan(status=429)
    result = harness(equipped).execute("say: never", cwd=equipped.directory, env=_IMPATIENT)

    assert result.status == "failed"
    assert result.is_rate_limited
    assert "429" in (result.reason or "")


def test_a_failure_is_tried_on_another_model(equipped: Equipped, server: Server) -> None:
    """A fallback is an attempt of its own, with slots of its own."""
    prefix = "fake/" if equipped.agent.name == "opencode" else ""
    server.plan(model=equipped.agent.model, status=401)
    agent = harness(equipped)
    other = f"{prefix}{'fake-small' if prefix else 'another-model'}"
    result = agent.execute("say: plan b", cwd=equipped.directory, fallbacks=[other], env=_IMPATIENT)

    assert (result.status, result.text.strip()) == ("succeeded", "plan b")
    assert (result.model, result.attempts) == (other, 2)


def test_a_cut_stream_is_no_success(equipped: Equipped, server: Server) -> None:
    """Either the program gets the whole answer in another way, or it is said that it did not."""
    server.plan(cut="reset", say="one two three four five six seven eight", times=1)
    result = harness(equipped).execute("please answer", cwd=equipped.directory)

    if result.ok:
        assert result.text.strip().endswith("one two three four five six seven eight")
    else:
        assert result.status in ("truncated", "failed")
        assert result.reason
    assert left_over(equipped) == []


def test_no_login_is_a_failure_in_words(equipped: Equipped, server: Server) -> None:
    """A provider that refuses us is named in the reason."""
    server.plan(status=401)
    result = harness(equipped).execute("say: no", cwd=equipped.directory, env=_IMPATIENT)

    assert result.status == "failed"
    assert result.reason
    assert result.exit_code != 0
