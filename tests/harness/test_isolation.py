"""Isolation is by task: each has its own output, session and files; what they share is ready."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import HARNESSES, until
from tests.harness.speech import spoken

from headway.harness import Cancellation, Gemini, OpenCode, warming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.harness.kit import Stage

    from headway.harness import Harness, Result

# Reads its prompt, waits until all are there, and answers with it in pieces.
ECHO = """
prompt=$(cat)
echo "$prompt" >> "$HERE/started"
until [ $(wc -l < "$HERE/started") -ge 8 ]; do sleep 0.02; done
"""
# As the real one: two that make the database at once break each other.
COLD = """
db="$XDG_DATA_HOME/opencode/opencode.db"
if [ ! -e "$db" ]; then
    mkdir -p "${db%/*}"
    echo cold >> "$HERE/cold"
    if ! mkdir "$HERE/migrating" 2>/dev/null; then
        echo "database is locked" >&2; echo >> "$HERE/broken"; exit 1
    fi
    until [ ! -e "$HERE/hold" ]; do sleep 0.02; done
    sleep 0.1
    echo made > "$db"
    rmdir "$HERE/migrating"
fi
if [ "$1" = db ]; then echo "$db"; exit; fi
"""

# As the real one: settings of an older form are written anew, in place, by whoever reads them.
OLD_SETTINGS = """
settings="$GEMINI_CLI_HOME/.gemini/settings.json"
case "$(cat "$settings")" in
    new) ;;
    old) : > "$settings"; echo old >> "$HERE/rewritten"; sleep 0.1; echo new > "$settings" ;;
    *) echo "Please fix the configuration file(s)" >&2; exit 52 ;;
esac
if [ "$1" = --version ]; then echo 0.61.0; exit; fi
"""


def burst(agent: Harness, prompts: Sequence[str], **options: Any) -> list[Result]:
    """All at once."""

    async def main() -> list[Result]:
        calls = (agent.aexecute(prompt, task=prompt, **options) for prompt in prompts)
        return await asyncio.gather(*calls)

    return asyncio.run(main())


def cold(stage: Stage, script: str = "", **options: Any) -> OpenCode:
    """An opencode whose database is not there yet."""
    path = stage.script("opencode", f"{COLD}{script or spoken('opencode')}", first="#! /bin/sh")
    return OpenCode(executable=path, env=stage.environ, max_concurrent=8, **options)


@pytest.mark.parametrize("program", list(HARNESSES))
def test_eight_tasks_on_one_model_each_get_their_own_text(stage: Stage, program: str) -> None:
    """Complete, although all run at the same time."""
    text = spoken(program, "PROMPT" * 50, session="session-PROMPT").replace("PROMPT", "$prompt")
    script = ECHO + text.replace("'END_OF_EVENTS'", "END_OF_EVENTS")
    agent = stage.agent(program, script, model="a/b", max_concurrent=8)
    prompts = [f"task-{i}" for i in range(8)]

    results = burst(agent, prompts)

    assert [result.text for result in results] == [prompt * 50 for prompt in prompts]
    assert [result.session_id for result in results] == [f"session-{one}" for one in prompts]
    assert [result.task for result in results] == prompts
    assert {result.status for result in results} == {"succeeded"}


def test_each_runs_in_a_group_and_tree_of_its_own(stage: Stage) -> None:
    """And bears a mark of its own."""
    script = 'echo $$ $(ps -o pgid= -p $$) $HEADWAY_ATTEMPT >> "$HERE/ids"; echo hello'
    agent = stage.agent("other", script)
    for _ in range(2):
        agent.execute("x")

    first, second = (line.split() for line in stage.lines("ids"))
    assert first[0] == first[1] != str(os.getpgid(0))
    assert len({first[2], second[2]}) == 2


def test_it_sees_the_users_environment_and_what_was_set_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's defaults, ours, the object's and the call's, the later before the earlier."""
    monkeypatch.setenv("MINE", "user")
    monkeypatch.setenv("BOTH", "user")
    monkeypatch.setenv("DISABLE_AUTOUPDATER", "0")
    script = 'echo "$MINE $BOTH $ALL $DISABLE_AUTOUPDATER" >> "$HERE/seen"'
    agent = stage.agent("claude", script, env={"BOTH": "object", "ALL": "object"})

    agent.execute("x", env={"ALL": "call"})

    assert stage.lines("seen") == ["user object call 0"]


# -- opencode's warm-up ------------------------------------------------------------------------


def test_eight_cold_copies_are_warmed_by_one(stage: Stage) -> None:
    """The others wait for it, and none breaks."""
    results = burst(cold(stage), [f"t{i}" for i in range(8)])

    assert [result.status for result in results] == ["succeeded"] * 8
    assert stage.lines("cold") == ["cold"]
    assert not stage.lines("broken")


def test_cold_copies_in_several_programs(stage: Stage) -> None:
    """The lock is a file beside the database."""
    cold(stage)
    code = """
agent = OpenCode(executable=stage.directory / "bin/opencode", env=stage.environ)
async def main():
    return await asyncio.gather(*(agent.aexecute("x") for _ in range(3)))
print([result.status for result in asyncio.run(main())])
"""
    programs = [stage.caller(code) for _ in range(3)]
    for program in programs:
        output, errors = program.communicate(timeout=100)
        assert output == "['succeeded', 'succeeded', 'succeeded']\n", errors

    assert stage.lines("cold") == ["cold"]


def test_a_warm_up_that_was_ended_half_way_is_done_again(stage: Stage) -> None:
    """By the next one; it neither counts as done nor blocks."""
    agent = cold(stage)
    stage.touch("hold")
    handle = Cancellation()
    results: list[Result] = []
    thread = threading.Thread(
        target=lambda: results.append(agent.execute("x", cancellation=handle))
    )
    thread.start()
    until(lambda: stage.lines("cold"), "a warm-up")

    handle.cancel()
    thread.join()

    assert results[0].status == "cancelled"
    assert not stage.processes()
    os.rmdir(stage.directory / "migrating")
    (stage.directory / "hold").unlink()
    assert agent.execute("x").ok
    assert stage.lines("cold") == ["cold", "cold"]


def test_it_is_warmed_again_after_an_update_or_a_loss(stage: Stage) -> None:
    """And otherwise not."""
    agent = cold(stage, 'echo "$1" >> "$HERE/calls"\n' + spoken("opencode"))
    database = stage.directory / "data/opencode/opencode.db"
    stamp = f"{database}.headway"
    assert agent.execute("x").ok
    assert agent.execute("x").ok
    assert stage.lines("cold") == ["cold"]
    assert warming.is_warm(stamp, str(agent.executable))

    database.unlink()
    assert not warming.is_warm(stamp, str(agent.executable))
    assert agent.execute("x").ok
    assert stage.lines("cold") == ["cold", "cold"]

    os.utime(agent.executable, ns=(1, 1))
    assert not warming.is_warm(stamp, str(agent.executable))
    assert agent.execute("x").ok
    assert warming.is_warm(stamp, str(agent.executable))


def test_a_warm_up_that_fails_hides_nothing(stage: Stage) -> None:
    """The program itself says what is wrong."""
    path = stage.script("opencode", "echo no disk >&2; exit 3", first="#! /bin/sh")
    result = OpenCode(executable=path, env=stage.environ).execute("x")

    assert (result.status, result.reason) == ("failed", "exit code 3: no disk")


def test_a_database_in_memory_needs_no_warm_up(stage: Stage) -> None:
    """Each has one of its own."""
    agent = cold(stage, spoken("opencode"))
    environ = {**stage.environ, "OPENCODE_DB": ":memory:"}

    assert agent.preparation(str(agent.executable), environ) is None
    for database in ("/abs/x.db", "x.db"):
        words = agent.preparation(str(agent.executable), {**environ, "OPENCODE_DB": database})
        expected = database if database[0] == "/" else f"{stage.directory}/data/opencode/{database}"
        assert words is not None
        assert f"{expected}.headway" in words


@pytest.mark.parametrize("text", ["", "\n", "x\n", "x\n\n", "a 1 2\n/\n"])
def test_a_stamp_that_says_nothing_true_is_cold(stage: Stage, text: str) -> None:
    """Half written, or another's."""
    stamp = stage.directory / "stamp"
    stamp.write_text(text)

    assert not warming.is_warm(str(stamp), __file__)
    assert not warming.is_warm(str(stage.directory / "none"), __file__)


# -- gemini's ----------------------------------------------------------------------------------


def test_eight_copies_of_gemini_find_settings_of_its_own_form(stage: Stage) -> None:
    """One has written them anew before; without any there is nothing to do."""
    settings = stage.directory / ".gemini/settings.json"
    path = stage.script("gemini", OLD_SETTINGS + spoken("gemini"))
    agent = Gemini(executable=path, env=stage.environ, max_concurrent=8)
    assert agent.preparation(path, stage.environ) is None

    settings.parent.mkdir()
    settings.write_text("old\n")
    results = burst(agent, [f"t{i}" for i in range(8)])

    assert [(result.status, result.reason) for result in results] == [("succeeded", None)] * 8
    assert stage.lines("rewritten") == ["old"]
    assert agent.preparation(path, stage.environ) is None
    os.utime(path, ns=(1, 1))
    assert agent.preparation(path, stage.environ) is not None
