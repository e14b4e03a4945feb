"""Jobs by the names of their tasks instead of their numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import until

if TYPE_CHECKING:
    from tests.worker.kit import House


def test_a_job_can_be_looked_at_and_waited_for_by_its_task(house: House) -> None:
    """`show`, `logs`, `wait` and `why` find the one job that has the name."""
    house.worker()
    job = house.submit("echo written; exit 3", task="issue-16")
    house.ended(job)

    assert house.run("logs", "issue-16").stdout == "written\n"
    assert house.run("show", "issue-16").stdout.startswith(f"Job {job}: failed (issue-16)")
    assert house.run("wait", "issue-16").returncode == 3
    assert house.run("why", "issue-16").stdout.startswith(f"Job {job} failed")
    assert house.run("logs", f"job{job}").stdout == "written\n"


def test_a_job_can_be_changed_by_its_task(house: House) -> None:
    """`approve`, `move`, `retry` and `cancel` do, while its key is paused."""
    house.governor.pause("agent")
    house.submit("true", task="other")
    job = house.submit("true", task="issue 16", hold=True)

    approved = house.run("approve", "issue 16")
    moved = house.run("move", "issue 16", "--first")
    ended = house.run("cancel", "issue 16")
    again = house.run("retry", "issue 16")

    assert approved.stdout == f"job {job} queued\n"
    assert moved.stdout == f"job {job} is next\n"
    assert ended.stdout == f"job {job} cancelled; it was queued\n"
    assert again.stdout == f"job {job} queued again\n"


def test_a_held_job_is_cancelled_by_its_task(house: House) -> None:
    """It has no ticket that the name could be found on."""
    job = house.submit("true", task="issue-16", hold=True)

    assert house.run("why", "issue-16").stdout.startswith(f"Job {job} is held")
    assert house.run("cancel", "issue-16").stdout == f"job {job} cancelled; it was held\n"


def test_a_job_comes_after_another_by_its_task(house: House) -> None:
    """`--after` takes numbers and names side by side."""
    house.submit("true", task="build")
    house.submit("true")

    said = house.run("submit", "--no-start", "--after=build", "--after", "2", "--", "true")

    assert said.stdout == "queued as 3, after job 1 and job 2\n"


def test_of_several_the_one_that_can_be_meant_is_taken(house: House) -> None:
    """The state that the command is about decides, where it leaves one."""
    ended, held, queued = (house.submit("true", task="issue-16", hold=n == 1) for n in range(3))
    house.jobs.cancel(ended)

    assert house.run("move", "issue-16", "--first").stdout == f"job {queued} is next\n"
    house.jobs.cancel(queued)
    assert house.run("show", "issue-16").stdout.startswith(f"Job {held}: held")
    assert house.run("approve", "issue-16").stdout == f"job {held} queued\n"


@pytest.mark.parametrize("words", [["retry"], ["logs"], ["show"], ["wait"], ["cancel"], ["why"]])
def test_several_jobs_of_one_name_are_listed(house: House, words: list[str]) -> None:
    """Nothing is done to any of them; the newest is named first."""
    for script in ("echo 1", "echo 2"):
        house.jobs.cancel(house.submit(script, task="issue-16"))

    refused = house.run(*words, "issue-16")

    assert (refused.returncode, refused.stdout) == (1, "")
    newest, oldest = (f"job {n} (cancelled: sh -c echo {n})" for n in (2, 1))
    assert f"'issue-16' fits {newest}, {oldest}; give the number of one" in refused.stderr
    assert [job.state for job in house.jobs.all()] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("isue-16", 1, "no job is called 'isue-16': did you mean issue-16?"),
        ("deployment", 1, "no job is called 'deployment': see: headway jobs"),
        ("77", 1, "there is no job 77"),
        ("0", 64, "0 is not the number of a job"),
        ("9" * 30, 64, "is not the number of a job"),
    ],
)
def test_a_name_that_no_job_has_is_refused(house: House, name: str, code: int, said: str) -> None:
    """With the nearest names, or where to look."""
    house.submit("true", task="issue-16")

    refused = house.run("logs", name)

    assert refused.returncode == code
    assert said in refused.stderr


def test_an_unknown_name_stops_a_command_before_it_does_anything(house: House) -> None:
    """Also what was named before it stays as it is."""
    house.submit("true", task="issue-16", hold=True)

    refused = house.run("approve", "issue-16", "issue-17")

    assert refused.returncode == 1
    assert house.jobs.get(1).state == "held"


def test_why_advises_commands_for_jobs(house: House) -> None:
    """What is done to a ticket or lease leaves its job in a state that nobody wants."""
    house.governor.set_limit("agent", 1)
    house.worker()
    running = house.submit("sleep 60", task="first")
    until(lambda: house.jobs.get(running).state == "running")
    waiting = house.submit("true", task="second")
    until(lambda: "job" in house.run("why", "second").stdout)

    of_running = house.run("why", "first").stdout
    of_waiting = house.run("why", str(waiting)).stdout

    assert f"headway logs -f {running} " in of_running
    assert f"headway cancel {running} " in of_running
    assert "headway release" not in of_running
    assert f"headway cancel {waiting} " in of_waiting
    assert f"headway cancel {running} " in of_waiting
    assert json.loads(house.run("why", "first", "--json").stdout)["job"] == running


def test_a_job_without_a_worker_is_explained_by_its_task(house: House) -> None:
    """In words for people; JSON keeps the word for programs."""
    house.submit("true", task="lonely")

    assert "is queued, but no worker runs" in house.run("why", "lonely").stdout
    assert "agent: no worker runs, 1 waiting" in house.run("queue").stdout
    status = house.run("status").stdout
    assert " no worker runs " in status
    assert "agent no worker" not in status
    waiting = json.loads(house.run("status", "--json").stdout)["waiting"]
    assert waiting[0]["blocked_by"] == {"key": "agent", "reason": "no_worker"}
