"""Many jobs from many processes, and cancels that race with everything."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import until

if TYPE_CHECKING:
    from tests.worker.kit import House

_SUBMITTERS, _EACH = 8, 625
_SUBMITTER = """
import sys, headway
jobs = headway.Governor().jobs
for number in range(int(sys.argv[2])):
    job = jobs.submit(["sh", "-c", "echo >> ran"], keys="agent/test",
                      task=f"{sys.argv[1]}-{number}", start=False)
    print(job.id)
"""


def submit_from_many(house: House, each: int) -> list[list[int]]:
    """Jobs from eight processes at once; the ids that each of them got, in its order."""
    submitters = [
        subprocess.Popen(
            [sys.executable, "-c", _SUBMITTER, str(number), str(each)],
            env=house.environ,
            cwd=house.directory,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(_SUBMITTERS)
    ]
    outputs = [submitter.communicate()[0] for submitter in submitters]
    assert [submitter.returncode for submitter in submitters] == [0] * _SUBMITTERS
    return [[int(line) for line in output.split()] for output in outputs]


def test_thousands_of_jobs_are_kept_from_many_processes(house: House) -> None:
    """None is lost, none is there twice, and each process's own are in its order."""
    ids = submit_from_many(house, _EACH)

    kept = {job.id: job.task for job in house.jobs.all()}

    assert len(kept) == _SUBMITTERS * _EACH
    assert sorted(one for own in ids for one in own) == sorted(kept)
    for number, own in enumerate(ids):
        assert own == sorted(own)
        assert [kept[job] for job in own] == [f"{number}-{place}" for place in range(_EACH)]
    assert [job.position for job in house.jobs.waiting()] == list(range(1, len(kept) + 1))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_thousands_of_jobs_are_run(house: House) -> None:
    """Each of them once."""
    house.governor.set_limit("agent", 3)
    house.worker()
    submit_from_many(house, _EACH)

    until(lambda: house.jobs.counts() == {"succeeded": _SUBMITTERS * _EACH}, "all of them")

    assert len((house.directory / "ran").read_bytes()) == _SUBMITTERS * _EACH


def test_a_cancel_may_come_at_any_moment(house: House) -> None:
    """Before, at and after the start and the end: each job has one end that fits what it did."""
    house.governor.set_limit("agent", 2)
    house.worker()
    chance = random.Random(0)
    jobs = [house.submit("echo ran") for _ in range(40)]

    def cancel_all() -> None:
        for job in jobs:
            threading.Event().wait(chance.random() * 0.05)
            house.jobs.cancel(job, "raced")

    racing = threading.Thread(target=cancel_all)
    racing.start()
    racing.join()

    ends = [house.ended(job) for job in jobs]
    for end in ends:
        attempts = house.jobs.details(end.id).attempts
        if end.state == "succeeded":
            assert [attempt.state for attempt in attempts] == ["succeeded"]
            assert house.output(end.id) == "ran\n"
        else:
            assert (end.state, end.end_reason) == ("cancelled", "raced")
            assert [attempt.state for attempt in attempts] in ([], ["cancelled"])
    until(lambda: house.holders() == 0, "all slots")
    assert not house.processes()
