"""What Headway says to those who nearly typed the right thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.kit import Shell


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["limits", "agent", "3"], "To set a limit: headway limits set agent 3"),
        (["limits", "llm/*", "8"], "To set a limit: headway limits set 'llm/*' 8"),
        (["limits", "agent=3"], "To set a limit: headway limits set agent 3"),
        (["limits", "agent"], "To see its limit: headway status agent"),
        (["limits", "sett", "agent", "3"], "Did you mean set?"),
        (["limits", "a//b"], "There is no command 'a//b'."),
        (["limits", "set", "agent", "0"], "To stop admission: headway pause agent"),
        (["limits", "set", "llm/*", "0"], "To stop admission: headway pause 'llm/*'"),
        (["run", "--tsk", "x", "--", "true"], "no option --tsk; did you mean --task?"),
        (["submit", "--prio=5", "--", "true"], "no option --prio; did you mean --priority?"),
    ],
)
def test_a_near_miss_gets_the_right_words(shell: Shell, words: list[str], hint: str) -> None:
    """It is bad usage all the same, and changes nothing."""
    seen = shell.run(*words)

    assert (seen.returncode, seen.stdout) == (64, "")
    assert hint in " ".join(seen.stderr.split())
    assert not (shell.home / "config.toml").exists()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("llm/anthropic = 4", '; a key with / * @ or : needs quotes: "llm/anthropic"'),
        ("llm/* = 8", ': "llm/*"'),
        ("  agent/open:code=1", ': "agent/open:code"'),
    ],
)
def test_a_key_without_quotes_in_the_file_is_shown_with_them(
    shell: Shell, line: str, hint: str
) -> None:
    """TOML's own message speaks of a missing equals sign, and there is one."""
    shell.home.mkdir(mode=0o700, exist_ok=True)
    (shell.home / "config.toml").write_text(f"[limits]\nagent = 2\n{line}\n")

    seen = shell.run("config", "check")

    assert seen.returncode == 78
    assert "line 3" in seen.stderr
    assert seen.stderr.endswith(f"{hint}\n")


@pytest.mark.parametrize("line", ["[limits", "agent = ", '"llm/x" = = 4', "# a/b = 1\nx y = 2"])
def test_other_mistakes_in_the_file_get_no_such_hint(shell: Shell, line: str) -> None:
    """Only a key can lack quotes."""
    shell.home.mkdir(mode=0o700, exist_ok=True)
    (shell.home / "config.toml").write_text(f"{line}\n")

    seen = shell.run("config", "check")

    assert (seen.returncode, "needs quotes" in seen.stderr) == (78, False)
