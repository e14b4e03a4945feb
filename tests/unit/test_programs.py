from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headway import programs

if TYPE_CHECKING:
    from pathlib import Path


def _program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def _code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_script_without_its_first_line_is_run_by_a_shell(tmp_path: Path) -> None:
    """As every shell runs it, with its words and its environment."""
    script = _program(tmp_path / "script", 'exit "$(($1 + $MORE))"\n')

    pid = programs.start(script, ["called", "3"], {"MORE": "4"}, setsigmask=[])

    assert _code(pid) == 7


def test_what_the_system_refuses_is_raised(tmp_path: Path) -> None:
    """Only that one refusal is made good."""
    script = _program(tmp_path / "script", "#!/nowhere/interpreter\n")

    with pytest.raises(FileNotFoundError):
        programs.start(script, [script], {})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/opt/bin/opencode", "run", "x"], "opencode"),
        (["/opt/bin/headway", "agent", "claude", "x"], "claude"),
        (["headway", "agent", "-m", "opus", "codex", "x"], "codex"),
        (["headway", "agent", "--help"], "headway"),
        (["headway", "status"], "headway"),
        (["headway"], "headway"),
        (["agent", "claude"], "agent"),
    ],
)
def test_a_command_is_known_by_what_does_its_work(words: list[str], name: str) -> None:
    """One that only hands it on is looked through."""
    assert programs.agent_of(words) == name
    assert programs.agent_of(tuple(words)) == name
