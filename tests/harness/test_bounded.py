"""Bounded: whatever a program prints, and whatever a prompt contains."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.harness.kit import HARNESSES, until
from tests.harness.speech import begun, done, printed, said, spoken

from headway import ConfigError
from headway.harness import ClaudeCode, Command, events
from headway.harness.feed import Feed

if TYPE_CHECKING:
    from typing import Self

    from tests.harness.kit import Stage

    from headway.harness.events import AgentEvent

MANY_BYTES = 1 << 30


def resident_bytes() -> int:
    """What this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Peak:
    """How much more memory this process ever had."""

    def __enter__(self) -> Self:
        self._before = self._most = resident_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._is_over.wait(0.005):
            self._most = max(self._most, resident_bytes())

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        """Above what it was."""
        return (self._most - self._before) / (1 << 20)


def test_a_gigabyte_of_noise(stage: Stage) -> None:
    """On both streams; the answer after it is found."""
    script = f"head -c {MANY_BYTES // 2} /dev/zero >&2\nhead -c {MANY_BYTES // 2} /dev/zero; echo\n"
    with Peak() as peak:
        result = stage.agent("claude", script + spoken("claude")).execute("x")

    assert (result.status, result.text) == ("succeeded", "All done.")
    assert peak.megabytes < 150


def test_a_line_of_fifty_megabytes(stage: Stage) -> None:
    """It is left out, with a warning; what comes after it is read."""
    warnings: list[str] = []

    def hear(event: AgentEvent) -> None:
        if isinstance(event, events.Warned):
            warnings.append(event.warning)

    line = f'printf \'{{"type":"\'; head -c {50 << 20} /dev/zero | tr "\\0" x; echo \'"}}\'\n'
    with Peak() as peak:
        result = stage.agent("claude", line + spoken("claude")).execute("x", on_event=hear)

    assert (result.status, result.text) == ("succeeded", "All done.")
    assert len(warnings) == 1
    assert "longer than 16MB was left out" in warnings[0]
    assert peak.megabytes < 200


def test_an_answer_that_was_left_out_is_no_success(stage: Stage) -> None:
    """The terminal event itself was too long."""
    begin, end = 'printf \'{"type":"result","result":"\'', "echo '\"}'"
    line = f'{begin}; head -c {20 << 20} /dev/zero | tr "\\0" x; {end}'
    result = stage.agent("claude", f"{printed(*begun('claude'))}\n{line}").execute("x")

    assert result.status == "truncated"
    assert "an event longer than 16MB was left out" in (result.reason or "")


def test_a_plain_answer_without_end(stage: Stage) -> None:
    """Its beginning is kept, and it says that it was cut."""
    agent = stage.agent("loud", f"head -c {200 << 20} /dev/zero | tr '\\0' x")
    with Peak() as peak:
        result = agent.execute("x")

    assert (result.status, len(result.text)) == ("truncated", 16 << 20)
    assert peak.megabytes < 200


def test_tool_calls_without_end(stage: Stage) -> None:
    """Which nobody answers, each with an id of its own."""
    record = '{"type":"tool_use","tool_name":"t","tool_id":"ID","parameters":{"a":"b"}}'
    loop = f"for i in range(300_000): print('{record}'.replace('ID', str(i)))"
    (stage.directory / "flood.py").write_text(loop)
    script = f'"{sys.executable}" -S -E "$HERE/flood.py"'
    with Peak() as peak:
        result = stage.agent("gemini", f"{script}\n{spoken('gemini')}").execute("x")

    assert result.ok
    assert len(result.tool_calls) == 1000
    assert peak.megabytes < 60


@pytest.mark.parametrize("size", [20, 100_000])
def test_a_blocked_loop_and_a_flood(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The program is held up, not our memory used up; later all is there."""
    record = printed(*said("claude", "x" * size)).replace("cat <<", "cat > $HERE/line <<")
    count = (300 << 20) // (size + 100)
    script = f'{record}\nyes "$(cat $HERE/line)" | head -n {min(count, 30_000)}\n{spoken("claude")}'
    agent = stage.agent("claude", script)
    heard: list[int] = []
    pauses, is_paused = Feed.pauses, threading.Event()

    def noted(feed: Feed[Any]) -> bool:
        is_full = pauses(feed)
        if is_full:
            is_paused.set()
        return is_full

    monkeypatch.setattr(Feed, "pauses", noted)

    def hear(event: AgentEvent) -> None:
        if isinstance(event, events.Text):
            heard.append(len(event.text))
            assert is_paused.wait(60)  # the whole loop stands still until too much has come

    with Peak() as peak:
        result = asyncio.run(agent.aexecute("x", on_event=hear))

    assert result.text == "All done."
    assert len(heard) == min(count, 30_000) + 1
    assert peak.megabytes < 250


def test_a_blocked_loop_does_not_stop_the_watchdogs(stage: Stage) -> None:
    """They look from a thread of their own."""
    agent = stage.agent("claude", f"{printed(*begun('claude'), *said('claude', 'x'))}\nsleep 600")
    seen: list[list[int]] = []

    def hear(event: AgentEvent) -> None:
        if isinstance(event, events.Text):
            until(lambda: not stage.processes(), "the end of the agent")
            seen.append(stage.processes())

    result = agent.execute("x", max_runtime=0.5, on_event=hear)

    assert (result.status, seen) == ("timed_out", [[]])


# -- prompts -----------------------------------------------------------------------------------

PROMPTS = [
    "--help",
    "-",
    "-p x",
    "'\"`$(touch hacked); rm -rf / #",
    "a\nb\r\n\n\tc\n",
    "Grüße, 世界 😀 \u202e \u0007\u001b[31m",
    "{prompt}",
    "{model} %s \\n",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompts_of_any_content_pass(stage: Stage, prompt: str) -> None:
    """As they are, by standard input."""
    agent = stage.agent("claude", f'cat > "$HERE/prompt"; {spoken("claude")}')

    assert agent.execute(prompt).ok
    assert (stage.directory / "prompt").read_bytes() == prompt.encode()
    assert not (stage.directory / "hacked").exists()


@pytest.mark.parametrize("program", [*HARNESSES, "other"])
def test_a_nul_in_a_prompt_is_refused_before_anything_starts(stage: Stage, program: str) -> None:
    """Whether the prompt would be a word of the command, a part of one, or read."""
    agent = stage.agent(program, 'touch "$HERE/started"')

    with pytest.raises(ConfigError, match=r"NUL at character 5,.*remove it"):
        agent.execute("nul \0 inside")
    assert not (stage.directory / "started").exists()


def test_a_nul_in_an_argument_is_refused() -> None:
    """When the harness is made, with the argument."""
    with pytest.raises(ConfigError, match=r"without a NUL, got 'a\\x00b'"):
        ClaudeCode(arguments=["-v", "a\0b"])
    with pytest.raises(ConfigError, match=r"a NUL in them, got 'a\\x00b'"):
        Command("aider", "a\0b")


def test_a_prompt_of_ten_megabytes(stage: Stage) -> None:
    """Also to a program that does not read it."""
    prompt = "0123456789" * (1 << 20)
    agent = stage.agent("claude", f'cat > "$HERE/prompt"; {spoken("claude")}')
    assert agent.execute(prompt).ok
    assert (stage.directory / "prompt").read_text() == prompt
    assert stage.agent("claude", spoken("claude")).execute(prompt).ok


@pytest.mark.linux
def test_whoever_does_not_wait_until_it_was_read_is_read_all_the_same(stage: Stage) -> None:
    """As programs on node do: what does not fit into the pipe at their end is gone."""
    script = "import os; os.set_blocking(1, False); os.write(1, b'x' * 1_000_000)"
    agent = Command(sys.executable, "-c", script, "{prompt}", env=stage.environ)

    assert len(agent.execute("hello").text) == 1_000_000


def test_a_prompt_as_a_word_of_a_command(stage: Stage) -> None:
    """Never through a shell, and never another word."""
    path = stage.script("echo-words", 'for word in "$@"; do printf "[%s]" "$word"; done; cat')
    agent = Command(path, "-m", "{prompt}", "{model}", "x{prompt}", model="big", env=stage.environ)

    result = agent.execute("--yes '; $(ls)\n")

    assert result.text == "[-m][--yes '; $(ls)\n][big][x{prompt}]"
    with pytest.raises(ConfigError, match="NUL"):
        agent.execute("a\0b")
    long = agent.execute("x" * 200_000)
    assert (long.status, long.reason) == (
        "failed",
        "it could not be run: Argument list too long",
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(prompt="\r")
@example(prompt="a\0b")
@given(prompt=st.text(min_size=1))
def test_random_prompts_pass(stage: Stage, prompt: str) -> None:
    """What is blank or not text is refused; the rest comes out as it went in."""
    agent = Command("cat", env=stage.environ)
    is_broken = any("\ud800" <= letter <= "\udfff" for letter in prompt)
    if is_broken or prompt.isspace() or "\0" in prompt:
        with pytest.raises(ConfigError, match=r"broken text|not empty|NUL"):
            agent.execute(prompt)
        return
    assert agent.execute(prompt).text == prompt


@pytest.mark.parametrize("prompt", ["", None, 7, b"bytes", "half \ud800", ["x"]])
def test_what_is_no_prompt_is_refused(prompt: object) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match="prompt"):
        Command("cat").execute(prompt)  # type: ignore[arg-type]


def test_done_is_not_said_before_its_time(stage: Stage) -> None:
    """A terminal event in the answer of a tool is only text."""
    import json  # noqa: PLC0415

    fake = json.dumps(done("claude", "fake")[0])
    script = printed(*begun("claude"), *said("claude", fake)) + "\nexit 0"

    assert stage.agent("claude", script).execute("x").status == "truncated"
