"""Continuing a session: a program that began a new one instead has not done what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.harness.kit import HARNESSES
from tests.harness.speech import spoken

if TYPE_CHECKING:
    from tests.harness.kit import Stage

EVERY = pytest.mark.parametrize("program", list(HARNESSES))
ASKED = "0199aa00-0000-7000-8000-00000000000a"
OTHER = "0199aa00-0000-7000-8000-00000000000b"


@EVERY
def test_a_session_that_goes_on_is_a_success(stage: Stage, program: str) -> None:
    """Its id may be written in capitals as well."""
    agent = stage.agent(program, spoken(program, session=ASKED))

    assert agent.execute("go on", session=ASKED).ok
    assert agent.execute("go on", session=ASKED.upper()).ok


@EVERY
def test_another_session_than_the_one_asked_for_is_a_failure(stage: Stage, program: str) -> None:
    """With both ids in the reason, and no second attempt that would begin a third one."""
    script = f'echo one >> "$HERE/runs"\n{spoken(program, session=OTHER)}'
    result = stage.agent(program, script).execute("go on", session=ASKED, retries=1)

    assert (result.status, result.session_id, result.attempts) == ("failed", OTHER, 1)
    assert f"it did not continue session {ASKED}" in str(result.reason)
    assert f"began a new one, {OTHER}" in str(result.reason)
    assert stage.lines("runs") == ["one"]


def test_codex_takes_no_name_for_a_session(stage: Stage) -> None:
    """It begins a new session for a name it does not know, so nothing is started."""
    agent = stage.agent("codex", 'touch "$HERE/started"')

    for name in ("my-lost-session", "latest", ASKED[:-1], f"{ASKED}\n"):
        result = agent.execute("go on", session=name, retries=1)
        assert (result.status, result.session_id, result.attempts) == ("failed", None, 0)
        assert f"session {name!r} is not an id of Codex, which is a UUID" in str(result.reason)
    assert not (stage.directory / "started").exists()


@pytest.mark.parametrize(
    ("program", "session", "arguments"),
    [
        ("claude", "a title", []),
        ("claude", ASKED, ["--fork-session"]),
        ("gemini", "latest", []),
        ("gemini", "5", []),
        ("opencode", "ses_1", ["--fork"]),
    ],
)
def test_names_and_forks_have_other_ids(
    stage: Stage, program: str, session: str, arguments: list[str]
) -> None:
    """Where the program finds sessions by other texts too, or is to copy one."""
    agent = stage.agent(program, spoken(program, session=OTHER), arguments=arguments)

    assert agent.execute("go on", session=session).ok
