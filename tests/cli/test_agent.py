"""``headway agent``: one prompt, one answer, counted in the home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.kit import PROGRAM, until
from tests.cli.test_reference import DOCS, agrees, shape

from headway.cli.agent_view import View
from headway.harness.events import Finished, Usage
from headway.harness.result import Result

if TYPE_CHECKING:
    from tests.cli.kit import Shell

    from headway.harness.result import Status

_PRETENDED = Path(__file__).parents[2] / "examples" / "pretend"
_EVENTS = {
    "init": {"type": "system", "subtype": "init", "session_id": "s1"},
    "call": {
        "type": "assistant",
        "message": {
            "content": [
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
            ]
        },
    },
    "got": {
        "type": "user",
        "message": {
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": "no\x1b[31m",
                    "is_error": True,
                }
            ]
        },
    },
    "text": {"type": "assistant", "message": {"content": [{"type": "text", "text": "well"}]}},
    "retry": {
        "type": "system",
        "subtype": "api_retry",
        "error": "rate_limit",
        "error_status": 429,
        "retry_delay_ms": 2000,
    },
    "end": {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "all done\nreally",
        "session_id": "s1",
        "total_cost_usd": 0.25,
        "usage": {"input_tokens": 1200, "output_tokens": 34},
    },
}


@pytest.fixture
def claude(shell: Shell) -> Claude:
    """A program called claude on the path, which does as the test says."""
    return Claude(shell)


class Claude:
    """Stands in for Claude Code."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.path = shell.directory / "bin" / "claude"
        self.path.parent.mkdir()
        shell.environ["PATH"] = f"{self.path.parent}{os.pathsep}{shell.environ['PATH']}"

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{script}\n")
        self.path.chmod(0o755)

    def prints(self, *events: str, then: str = "") -> None:
        lines = "\n".join(f"printf '%s\\n' '{json.dumps(_EVENTS[event])}'" for event in events)
        self.does(f'cat > prompt; echo "$@" > words\n{lines}\n{then}')

    def prompt(self) -> str:
        return (self._shell.directory / "prompt").read_text()


def test_the_answer_is_on_stdout_and_the_rest_on_stderr(shell: Shell, claude: Claude) -> None:
    """Data here, talk there."""
    claude.prints("init", "call", "got", "text", "end")
    done = shell.run("agent", "claude", "do it", "-m", "opus", "--task", "issue-16")

    assert (done.returncode, done.stdout) == (0, "all done\nreally\n")
    started, call, failed, finished = done.stderr.splitlines()
    assert re.fullmatch(r"headway: started with opus \(pid \d+\)", started)
    assert (call, failed) == ("  → Bash ls", "  ✗ no?[31m")
    assert re.fullmatch(
        r"headway: succeeded after (under )?\d+ s · 1 tool call · 1,200 tokens in, 34 out"
        r" · \$0\.2500 · session s1",
        finished,
    )
    assert claude.prompt() == "do it"


def test_what_it_says_on_its_way_is_told_once(shell: Shell, claude: Claude) -> None:
    """Between its calls in a line; a rest that is no answer is printed as such, and only there."""
    claude.prints("init", "text", "text", "retry", "call", "text", then="exit 1")
    done = shell.run("agent", "claude", "do it")

    assert (done.returncode, done.stdout) == (1, "well\n")
    _, said, retry, call, finished = done.stderr.splitlines()
    assert (said, call) == ("  · well well", "  → Bash ls")
    assert retry == "  ↻ tries again in 2 s: 429, rate_limit"
    assert "truncated after" in finished


def test_quiet_means_the_answer_alone(shell: Shell, claude: Claude) -> None:
    """Unless there is none: then the reason."""
    claude.prints("init", "end")
    done = shell.run("agent", "claude", "do it", "-q")
    assert (done.stdout, done.stderr) == ("all done\nreally\n", "")

    claude.prints("init", "text")
    done = shell.run("agent", "claude", "do it", "-q")
    assert (done.returncode, done.stdout) == (1, "well\n")
    assert done.stderr.startswith("headway: truncated: its output ended before claude said")


def test_json_has_a_line_for_each_event(shell: Shell, claude: Claude) -> None:
    """And nothing else on stdout; the documented shape is the real one."""
    claude.prints("init", "call", "got", "text", "end")
    done = shell.run("agent", "claude", "do it", "--json", "--task", "t")
    events = [json.loads(line) for line in done.stdout.splitlines()]

    kinds = ["started", "tool_call", "tool_result", "text", "usage", "finished"]
    assert [event["event"] for event in events] == kinds
    assert {event["task"] for event in events} == {"t"}
    assert done.stderr == ""
    page = (DOCS / "json.md").read_text(encoding="utf-8")
    (example,) = re.findall(
        r"<!-- the last line of headway agent --json -->\n```json\n(.*?)```", page, re.DOTALL
    )
    assert agrees(shape(json.loads(example)), shape(events[-1]))


def test_what_follows_two_dashes_is_the_programs(shell: Shell, claude: Claude) -> None:
    """Its own options are passed on as they are."""
    claude.prints("init", "end")
    shell.run("agent", "claude", "do it", "--session", "s0", "--", "--max-turns", "3")

    words = (shell.directory / "words").read_text().split()
    assert words[-4:] == ["--resume", "s0", "--max-turns", "3"]


def test_a_prompt_may_come_by_stdin(shell: Shell, claude: Claude) -> None:
    """Of any size."""
    claude.prints("init", "end")
    prompt = "line\n" * 100_000
    done = subprocess.run(
        [PROGRAM, "agent", "claude", "-"],
        input=prompt,
        env=shell.environ,
        cwd=shell.directory,
        text=True,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0
    assert claude.prompt() == prompt


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("echo usage: claude; exit 0", 1, "it printed no event of claude, but: usage: claude"),
        ("echo broken >&2; exit 9", 9, "failed after under 1 s: exit code 9: broken"),
        ("kill -9 $$", 137, "ended by SIGKILL"),
    ],
)
def test_failures_have_their_code_and_reason(
    shell: Shell, claude: Claude, script: str, code: int, said: str
) -> None:
    """The program's own code, or 1 if that is 0."""
    claude.does(script)
    done = shell.run("agent", "claude", "do it")

    assert done.returncode == code
    assert said in done.stderr


def test_a_program_that_is_not_there_is_named(shell: Shell) -> None:
    """With the way to get it."""
    shell.environ["PATH"] = str(shell.directory)
    done = shell.run("agent", "codex", "do it")

    assert done.returncode == 127
    assert "codex: no such program; to install it: npm install -g @openai/codex" in done.stderr


def test_it_counts_in_the_home(shell: Shell, claude: Claude) -> None:
    """Another shell has to wait, or is told that there is no slot."""
    shell.run("limits", "set", "agent/claude", "1")
    claude.prints("init", then="echo up > up; sleep 600")
    first = shell.start("agent", "claude", "do it", "--task", "one")
    until((shell.directory / "up").exists, "the agent")

    (lease,) = shell.status()["leases"]
    assert (lease["task"], lease["keys"]) == ("one", ["agent/claude"])
    refused = shell.run("agent", "claude", "me too", "--no-wait")
    assert refused.returncode == 75
    assert "refused: no slot free on agent/claude" in refused.stderr
    waited = shell.run("agent", "claude", "me too", "--timeout", "150ms")
    assert waited.returncode == 124
    assert "waiting for agent/claude, which is full: place 1" in waited.stderr
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM
    assert shell.status()["leases"] == []


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("refused", "headway: refused: no slot free\n"),
        ("timed_out", "headway: timed_out after 7 s in the queue: no slot free\n"),
    ],
)
def test_whoever_is_refused_was_in_no_queue(
    capsys: pytest.CaptureFixture[str], status: Status, told: str
) -> None:
    """However long it took to find that out."""
    result = Result(
        status=status,
        reason="no slot free",
        text="",
        task=None,
        model=None,
        session_id=None,
        usage=Usage(),
        tool_calls=(),
        exit_code=None,
        attempts=0,
        waited_seconds=7.0,
        run_seconds=0.0,
    )

    View().show(Finished(task=None, result=result))

    assert capsys.readouterr().err == told


def test_signals_while_it_waits_end_the_wait(shell: Shell, claude: Claude) -> None:
    """With the code that a shell would give, and the time that was waited."""
    shell.run("pause", "agent")
    claude.does("touch started")
    agent = shell.start("agent", "claude", "do it")
    until(
        lambda: any(time.time() - one["since"] > 0.5 for one in shell.status()["waiting"]),
        "a wait worth telling of",
    )
    agent.send_signal(signal.SIGINT)
    _, errors = agent.communicate()

    assert agent.returncode == 128 + signal.SIGINT
    last = errors.splitlines()[-1]
    assert re.fullmatch(r"headway: cancelled after (under )?\d+ s in the queue: by SIGINT", last)
    assert not (shell.directory / "started").exists()


def test_whoever_asks_twice_is_told_how_long_it_takes(shell: Shell, claude: Claude) -> None:
    """An agent that will not end has its grace period."""
    claude.prints("init", then="trap '' TERM; echo up > up; while :; do sleep 0.1; done")
    agent = shell.start("agent", "claude", "do it")
    until((shell.directory / "up").exists, "the agent")
    agent.send_signal(signal.SIGINT)
    agent.send_signal(signal.SIGTERM)
    _, errors = agent.communicate()

    assert agent.returncode in {128 + signal.SIGINT, 128 + signal.SIGTERM}
    assert "headway: it is being ended, which takes 5 s at most" in errors


def test_a_prompt_from_a_closed_stdin_is_refused(shell: Shell) -> None:
    """In a line."""
    command = f'exec "{PROGRAM}" agent claude - <&-'
    done = subprocess.run(
        ["sh", "-c", command], env=shell.environ, text=True, capture_output=True, check=False
    )

    assert done.returncode == 64
    assert done.stderr == "headway: there is no standard input to read the prompt from\n"


def test_commands_that_hand_on_to_an_agent_count_on_it(shell: Shell, claude: Claude) -> None:
    """So that they wait at its limit, and hold no slot that others could use."""
    shell.run("limits", "set", "agent/claude", "1")
    claude.prints("init", "end")
    for words in ("submit", "--no-start"), ("submit", "--no-start", "--on", "agent/mine"):
        shell.run(*words, "--", PROGRAM, "agent", "claude", "do it")
    done = shell.run("run", "--", PROGRAM, "agent", "claude", "-m", "opus", "do it")

    jobs = json.loads(shell.run("jobs", "--json").stdout)
    assert [job["keys"] for job in jobs] == [["agent/claude"], ["agent/mine"]]
    assert (done.returncode, done.stdout) == (0, "all done\nreally\n")


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_answer_that_cannot_be_written_is_said(
    shell: Shell, claude: Claude, words: list[str]
) -> None:
    """In a line, and it is no success."""
    claude.prints("init", "end")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "agent", "claude", "do it", *words],
            env=shell.environ,
            cwd=shell.directory,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    said = "headway: cannot write to the standard output: No space left on device"
    assert done.stderr.splitlines()[-1] == said


def test_taking_its_slot_back_ends_it_and_everyone_says_so(shell: Shell, claude: Claude) -> None:
    """Other work would go on."""
    claude.prints("init", "text", then="echo up > up; exec sleep 600")
    agent = shell.start("agent", "claude", "do it", "--task", "one")
    until((shell.directory / "up").exists, "the agent")

    assert "take its slot back; its agent is ended" in shell.run("why", "one").stdout
    released = shell.run("release", "one", "--force").stdout
    assert released.endswith("is told; its agent is ended.\n")
    answer, errors = agent.communicate()
    assert (agent.returncode, answer) == (125, "well\n")
    assert "its slot was lost: taken back by hand" in errors
    assert "who was told; its agent was ended" in shell.run("why", "one").stdout


def test_killing_it_ends_the_agent_and_then_frees_the_slot(shell: Shell, claude: Claude) -> None:
    """With -9, while a tool runs in a session of its own."""
    claude.prints("init", then="setsid sh -c 'echo $$ > tool; exec sleep 600' & wait")
    agent = shell.start("agent", "claude", "do it")
    tool = shell.directory / "tool"
    until(lambda: tool.exists() and tool.read_text().strip(), "the tool")
    assert len(shell.status()["leases"]) == 1
    agent.kill()
    agent.wait()

    until(shell.holds(0), "the end of the lease")
    with pytest.raises(ProcessLookupError):
        os.kill(int(tool.read_text()), 0)


def test_a_watchdog_says_which_option_it_was(shell: Shell, claude: Claude) -> None:
    """And a value that is very small is flagged before."""
    claude.prints(*["init", *["call"] * 4], then="sleep 600")
    done = shell.run("agent", "claude", "do it", "--max-repeated-calls", "3")

    assert done.returncode == 1
    flag, *_, last = done.stderr.splitlines()
    assert flag.startswith("headway: warning: --max-repeated-calls may end usual work soon: ")
    assert "killed by the watchdog max_repeated_calls: --max-repeated-calls = 3" in last


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vim", "x"], "'vim' is not one of"),
        (["claude"], "Missing argument 'PROMPT'"),
        (["claude", " "], "prompt must be text and not empty"),
        (["claude", "x", "--max-runtime", "soon"], "max_runtime must be a duration"),
        (["claude", "x", "--max-tool-calls", "0"], "max_tool_calls must be a whole number"),
        (["claude", "x", "--idle-kill", "2m", "--max-runtime", "1m"], "can never act"),
        (["claude", "x", "--session", "-s"], "must not begin with a dash"),
        (["claude", "x", "--priority", "101"], "is not in the range"),
    ],
)
def test_wrong_usage_is_said(shell: Shell, claude: Claude, words: list[str], said: str) -> None:
    """Before anything is started."""
    claude.does("touch started")
    done = shell.run("agent", *words)

    assert done.returncode == 64
    assert said in done.stderr
    assert not (shell.directory / "started").exists()


def test_the_pretended_agents_of_the_example_answer(shell: Shell) -> None:
    """As the example and the page about agents need them."""
    directory = shell.directory / "bin"
    shutil.copytree(_PRETENDED, directory)
    shell.environ["PATH"] = f"{directory}{os.pathsep}{shell.environ['PATH']}"
    answers: list[dict[str, Any]] = []
    for program in ("claude", "codex"):
        done = shell.run("agent", program, "hello", "--json", "--retries", "5")
        answers.append(json.loads(done.stdout.splitlines()[-1])["result"])

    assert [answer["status"] for answer in answers] == ["succeeded"] * 2
    assert [answer["text"] for answer in answers] == [
        f"{program} has looked at: hello" for program in ("claude", "codex")
    ]
