"""Jobs on a server: whoever of those round one is killed, its slot is free when it is gone."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.cli.kit import until

from headway.jobs.post import Post

if TYPE_CHECKING:
    from tests.cli.kit import Shell
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server

pytestmark = pytest.mark.linux


def processes_round_a_job(shell: Shell) -> dict[str, int]:
    """The pids of worker, nursery and supervisor while one job runs."""
    (lease,) = shell.status()["leases"]
    supervisor: int = lease["holder"]["pid"]
    holder = Post(str(shell.home)).holder()
    assert holder is not None
    return {
        "worker": holder[0],
        "nursery": psutil.Process(supervisor).ppid(),
        "supervisor": supervisor,
    }


@pytest.mark.parametrize("who", ["worker", "nursery", "supervisor"])
def test_the_next_one_runs_when_the_job_is_gone(person: Persons, who: str) -> None:
    """And not before, on whatever machine it waits."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "agent", "1")
    ann.run("submit", "--", "sh", "-c", "echo $$ > pid; exec sleep 600")
    pid = ann.directory / "pid"
    until(lambda: pid.exists() and pid.read_text().endswith("\n"), "the start")

    os.kill(processes_round_a_job(ann)[who], signal.SIGKILL)

    still_there = f"kill -0 {pid.read_text().strip()}"
    found = bob.run("run", "--timeout", "60s", "--", "sh", "-c", f"! {still_there} 2>/dev/null")
    assert found.returncode == 0, found.stderr
    ann.run("worker", "stop")


def test_a_job_of_a_machine_that_died_is_not_shown_as_running(person: Persons) -> None:
    """Neither to others on the server, nor at home when the machine is back."""
    ann, bob = person("ann"), person("bob")
    ann.run("submit", "--retries", "0", "--", "sh", "-c", "echo $$ > pid; exec sleep 600")
    pid = ann.directory / "pid"
    until(lambda: pid.exists() and pid.read_text().endswith("\n"), "the start")
    until(lambda: bob.status()["leases"], "its lease")
    pids = [*processes_round_a_job(ann).values(), int(pid.read_text())]

    for each in pids:
        os.kill(each, signal.SIGSTOP)
    for each in pids:
        os.kill(each, signal.SIGKILL)

    until(lambda: not bob.status()["leases"], "the end of its lease")
    assert "job 1" not in bob.run("status").stdout
    (job,) = json.loads(ann.run("jobs", "--json").stdout)
    assert job["state"] == "interrupted"
    assert ann.status()["leases"] == []
    assert "running" not in ann.run("why", "1").stdout
    ann.run("worker", "stop")


def test_a_job_is_kept_once_though_the_server_does_not_answer(
    person: Persons, server: Server
) -> None:
    """Whoever is told that it failed would submit it again."""
    ann = person("ann")
    ann.environ["HEADWAY_STORE_TIMEOUT"] = "100ms"
    server.kill()

    told = ann.run("submit", "--no-start", "--notify", "json://127.0.0.1:9", "--", "true")
    facts = ann.run("submit", "--no-start", "--json", "--", "true")

    assert (told.returncode, told.stdout) == (0, "queued as 1\n")
    assert "headway: where it stands is not known: store unix://" in told.stderr
    assert facts.returncode == 0
    assert json.loads(facts.stdout)["position"] is None
    server.start()
    assert [job["id"] for job in json.loads(ann.run("jobs", "--json").stdout)] == [1, 2]


def test_what_became_of_a_job_can_be_seen_without_the_server(
    person: Persons, server: Server
) -> None:
    """The board is in the home."""
    ann = person("ann")
    ann.run("submit", "--no-start", "--", "true")
    ann.run("cancel", "1")
    server.kill()

    for words in (("jobs",), ("show", "1"), ("show", "1", "--json")):
        assert "cancelled" in ann.run(*words).stdout
