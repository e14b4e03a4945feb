"""``headway pause`` and ``headway resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.kit import until

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_a_pause_stops_admission_and_not_work(shell: Shell) -> None:
    """Who runs goes on, who asks waits, and resuming lets them in."""
    lease = shell.holding("agent")

    paused = shell.run("pause", "agent")
    waiter = shell.hold("agent")
    until(shell.waits(1))

    assert paused.stdout == (
        "agent paused: nobody is let in here or below, 1 slot in use until given back\n"
    )
    assert [x["id"] for x in shell.status()["leases"]] == [lease]
    resumed = shell.run("resume", "agent")
    assert resumed.stdout == "agent resumed: 2/3 in use\n"
    assert waiter.stdout
    assert waiter.stdout.readline()


def test_a_pause_stands_in_the_file(shell: Shell) -> None:
    """It lasts, and a person can see it there."""
    shell.run("pause", "llm/openai")
    assert 'paused = ["llm/openai"]' in (shell.home / "config.toml").read_text()

    shell.run("resume", "llm/openai")
    assert "llm/openai" not in (shell.home / "config.toml").read_text()


def test_pausing_twice_is_no_error(shell: Shell) -> None:
    """The second time one learns that it was so already."""
    shell.run("pause", "agent")

    seen = shell.run("pause", "agent")

    assert seen.returncode == 0
    assert seen.stdout == "agent was paused already; to end that: headway resume agent\n"


def test_resuming_what_is_not_paused_names_what_is(shell: Shell) -> None:
    """A wrong key is told apart from the right one."""
    assert shell.run("resume", "agent").stderr == "headway: agent was not paused; nothing is\n"
    shell.run("pause", "llm/openai")

    seen = shell.run("resume", "llm")

    assert seen.returncode == 1
    assert seen.stderr == "headway: llm was not paused; paused are: llm/openai\n"


def test_a_pattern_cannot_be_paused(shell: Shell) -> None:
    """A pause is for a key and all below it, so a pattern is bad usage."""
    assert shell.run("pause", "llm/*").returncode == 64
    assert shell.run("resume", "llm/*").returncode == 64
