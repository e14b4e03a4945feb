"""Jobs on a terminal: questions, progress; and places in line that people change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import Shell
from tests.worker.kit import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.worker.kit import House


@pytest.fixture
def shell(house: House) -> Iterator[Shell]:
    """A shell in the home of the house."""
    shell = Shell(house.home, house.directory)
    yield shell
    shell.clean_up()


@pytest.mark.parametrize(("answer", "left"), [("n", 2), ("y", 0)])
def test_prune_asks_on_a_terminal(house: House, shell: Shell, answer: str, left: int) -> None:
    """And forgets nothing unless somebody says yes."""
    for job in [house.submit("true") for _ in range(2)]:
        house.jobs.cancel(job)

    terminal = shell.terminal("prune", "--keep", "0")
    terminal.wait_for("Forget 2 finished jobs and delete their logs? [y/N]")
    terminal.press(f"{answer}\r")
    terminal.wait()

    assert len(house.jobs.all()) == left


def test_prune_keeps_what_the_settings_keep(house: House) -> None:
    """Without options it is what a worker does by itself."""
    (house.home / "config.toml").write_text("[jobs]\nkeep_count = 1\n")
    for job in [house.submit("true") for _ in range(3)]:
        house.jobs.cancel(job)

    assert house.run("prune", "--dry-run").stdout == "2 jobs would be forgotten: 1, 2\n"
    assert house.run("prune").stdout == "2 jobs forgotten\n"

    assert [job.id for job in house.jobs.all()] == [3]


def test_wait_shows_what_the_job_does(house: House, shell: Shell) -> None:
    """On one line: its place, then for how long it runs; and how it ended stays."""
    house.governor.set_limit("agent", 1)
    house.worker()
    first = house.submit("until test -e go; do sleep 0.01; done", task="first")
    second = house.submit("until test -e on; do sleep 0.01; done", task="second")
    house.running(first)

    terminal = shell.terminal("wait", str(second))

    terminal.wait_for(f"headway: job {second} (second) is queued, place 1")
    (house.directory / "go").touch()
    terminal.wait_for(f"headway: job {second} (second) is running for ")
    (house.directory / "on").touch()
    terminal.wait_for(f"job {second} succeeded after")
    assert terminal.wait() == 0


def test_a_job_can_be_moved_behind_others_and_given_another_priority(house: House) -> None:
    """The line of the worker follows at once; what does not wait has no place."""
    house.governor.pause("agent")
    house.worker()
    jobs = [house.submit("true") for _ in range(3)]
    first, second, third = jobs

    def in_line() -> list[int]:
        waiting = house.governor.snapshot().waiting
        return [int(one.id.rpartition("-job")[2]) for one in waiting]

    until(lambda: in_line() == jobs, "their places")
    assert house.run("move", str(first), "--last").stdout == f"job {first} is last\n"
    until(lambda: in_line() == [second, third, first], "the new last")
    moved = house.run("move", str(third), "--priority", "5")
    assert moved.stdout == f"job {third} has priority 5 now\n"
    until(lambda: in_line() == [third, second, first], "the new first")
    assert house.jobs.get(third).priority == 5
    house.run("move", str(third), "--priority", "-5")
    until(lambda: in_line() == [second, first, third], "the new last")
    for words in ([], ["--first", "--last"], ["--first", "--priority", "1"], ["--priority", "101"]):
        assert house.run("move", str(first), *words).returncode == 64
    house.jobs.cancel(first)
    for words in (["--last"], ["--priority", "1"]):
        assert house.run("move", str(first), *words).returncode == 1


def test_logs_can_be_cut_to_their_last_lines(house: House) -> None:
    """Whole lines, and what follows when it is followed."""
    house.worker()
    job = house.submit("for n in 1 2 3 4 5; do echo $n; done; printf end")
    house.ended(job)

    assert house.run("logs", "-n", "2", str(job)).stdout == "5\nend"
    assert house.run("logs", "--lines", "0", str(job)).stdout == ""
    assert house.run("logs", "-n", "99", str(job)).stdout == "1\n2\n3\n4\n5\nend"
    assert house.run("logs", "-f", "-n", "1", str(job)).stdout == "end"
