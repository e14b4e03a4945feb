"""Queued jobs and no worker: all commands tell the same, and some start one."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.worker.kit import is_alive, kill, until

from headway.jobs.post import Post

if TYPE_CHECKING:
    from tests.worker.kit import House

_FOR_EVER = "echo $$ > $HEADWAY_JOB; sleep 600"


def crash(house: House) -> tuple[int, int, int]:
    """Kill a worker and all supervisors at once; a job that ran, one to be retried, its pid."""
    worker = house.worker()
    once = house.submit(_FOR_EVER, task="once")
    again = house.submit(f"test $HEADWAY_JOB = {once + 1}.2 || {{ {_FOR_EVER}; }}", retries=1)
    pid = int(house.file(f"{once}.1"))
    house.file(f"{again}.1")
    everyone = [worker.pid, house.nursery(worker), *(house.supervisor(j) for j in (once, again))]
    for one in everyone:
        os.kill(one, signal.SIGSTOP)
    for one in everyone:
        kill(one)
    worker.communicate()
    return once, again, pid


def printed(house: House, *words: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(house.run(*words, "--json").stdout)


@pytest.mark.parametrize("first", ["status", "queue", "show", "why", "jobs"])
def test_all_commands_tell_the_same_after_a_crash(house: House, first: str) -> None:
    """Whichever looks first; what was killed is over, and what runs of it is ended."""
    once, again, pid = crash(house)
    assert is_alive(pid)
    found = [one["text"] for one in printed(house, "doctor")["findings"] if one["about"] == "jobs"]
    assert f"worker and supervisor of jobs {once}, {again} were killed" in found[1]
    words = [str(once)] if first in ("show", "why") else []
    house.governor.pause("agent")  # what `headway jobs` starts shall not get on

    assert house.run(first, *words).returncode == 0

    states = {one["id"]: one["state"] for one in printed(house, "jobs")}
    assert states == {once: "interrupted", again: "queued"}
    assert not is_alive(pid)
    assert house.run("why", str(once)).stdout.startswith(f"Job {once} interrupted after")
    assert printed(house, "show", str(once))["state"] == "interrupted"
    waiting = printed(house, "status")["waiting"]
    assert [one["id"].rpartition("-")[2] for one in waiting] == [f"job{again}"]
    house.governor.resume("agent")
    assert house.ended(again).state == "succeeded"


def test_status_queue_show_and_doctor_say_that_no_worker_runs(house: House) -> None:
    """They only look, and start none."""
    _, again, _ = crash(house)

    for words in (["status"], ["queue"], ["show", str(again)]):
        said = house.run(*words).stderr
        assert said == (
            "headway: no worker runs, so queued jobs do not start: headway worker --detach\n"
        )
    assert "no worker runs" in house.run("why", str(again)).stdout
    findings = printed(house, "doctor")["findings"]
    assert "1 job is queued, and no worker runs" in [one["text"] for one in findings]
    assert printed(house, "status")["worker"] is None
    assert Post(str(house.home)).holder() is None


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "--summary"], ["wait", "2"]])
def test_jobs_and_wait_start_a_worker_that_is_missing(house: House, words: list[str]) -> None:
    """And say so."""
    _, again, _ = crash(house)
    assert again == 2

    done = house.run(*words)

    assert "no worker was running, so one was started" in done.stderr
    assert done.returncode == 0
    assert house.ended(again).state == "succeeded"


def test_who_waits_is_not_left_alone_by_a_worker_that_is_killed(house: House) -> None:
    """Another one is started, also for waiters in Python."""
    worker = house.worker()
    job = house.submit("test -e second || { touch second; sleep 600; }", retries=1)
    until((house.directory / "second").exists, "the first attempt")

    kill(worker.pid)

    assert house.ended(job).state == "succeeded"


@pytest.mark.parametrize("stopped", [["worker", "stop"], []])
def test_no_worker_is_started_where_somebody_wants_none(house: House, stopped: list[str]) -> None:
    """It was stopped by hand, or the job was submitted with --no-start."""
    house.run("submit", "--no-start", "--", "true")
    how = "a job was submitted with --no-start"
    if stopped:
        house.run(*stopped)
        how = "its worker was stopped by hand"

    for words in (["jobs"], ["jobs", "--json"], ["wait", "1", "--timeout", "2s"]):
        said = house.run(*words).stderr
        assert "no worker runs, so queued jobs do not start: headway worker --detach\n" in said
        assert f": {how}\n" in said
    assert Post(str(house.home)).holder() is None

    house.run("submit", "--", "true")

    assert house.ended(1).state == "succeeded"


def test_the_worker_is_in_the_json_of_listings(house: House) -> None:
    """Its pid and since when it runs."""
    worker = house.worker()
    house.ended(house.submit("true"))

    for found in (
        json.loads(house.run("submit", "--json", "--", "true").stdout),
        printed(house, "status"),
        printed(house, "jobs", "--summary"),
        printed(house, "jobs")[0],
        printed(house, "show", "1"),
    ):
        assert found["worker"]["pid"] == worker.pid
        assert found["worker"]["since"] > 0
