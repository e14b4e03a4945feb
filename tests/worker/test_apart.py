"""A worker that was started from inside a lease or a job belongs to neither."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import PROGRAM, House, until

from headway.jobs.post import Post

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[House]:
    """Another home, which has no worker yet."""
    directory = tmp_path / "neighbour"
    directory.mkdir()
    house = House(directory)
    yield house
    house.close()


def test_a_run_that_submits_gives_its_slot_back(house: House) -> None:
    """Though the worker that it has started lives on."""
    done = house.run("run", "--on", "agent/test", "--", PROGRAM, "submit", "--", "sleep", "600")

    assert (done.returncode, done.stderr) == (0, "")
    assert house.holders() == 0
    house.running(1)


def test_a_job_that_submits_elsewhere_ends_by_itself(house: House, neighbour: House) -> None:
    """Its slot is free, and the other home's worker is neither waited for nor killed."""
    house.worker()
    script = f"HEADWAY_HOME={neighbour.home} '{PROGRAM}' submit -q -- sleep 600"
    job = house.submit(script)

    assert house.ended(job).state == "succeeded"
    assert house.holders() == 0
    neighbour.running(1)


def test_the_end_of_a_job_does_not_reach_a_worker_that_it_has_started(
    house: House, neighbour: House
) -> None:
    """Neither its cancellation nor what the next worker finds of it."""
    worker = house.worker()
    script = (
        f"HEADWAY_HOME={neighbour.home} '{PROGRAM}' submit -q -- sleep 600; echo up > up; sleep 600"
    )
    first, second = house.submit(script), house.submit("echo $PPID > parent; sleep 600")
    house.file("up")
    neighbour.running(1)
    house.jobs.cancel(first)
    house.ended(first)
    house.file("parent")
    for pid in (worker.pid, house.nursery(worker), house.supervisor(second)):
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
    until(lambda: Post(str(house.home)).holder() is None, "the end of the worker")
    house.worker()

    assert house.ended(second).state == "interrupted"
    assert neighbour.state(1) == "running"


def test_a_worker_in_front_of_everything_counts_as_any_command(house: House) -> None:
    """Who puts a slot in front of a worker on purpose holds it as long as that works."""
    with house.governor.slot("agent/other"):
        done = house.run(
            "run", "--on", "agent/test", "--", PROGRAM, "worker", "--idle-exit", "10ms"
        )

    assert done.returncode == 0
    assert house.holders() == 0
