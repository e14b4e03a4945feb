from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import until

if TYPE_CHECKING:
    from tests.worker.kit import House


def order(house: House) -> list[str]:
    """In which order jobs have written their names."""
    return (house.directory / "order").read_text().split()


def test_jobs_run_in_the_order_they_came(house: House) -> None:
    """First come, first served, when one slot is there for all."""
    house.governor.set_limit("agent", 1)
    jobs = [house.submit(f"echo {name} >> order") for name in "abcdef"]
    house.worker()

    for job in jobs:
        house.ended(job)

    assert order(house) == list("abcdef")


def test_priority_is_a_head_start(house: House) -> None:
    """Ten minutes for each step."""
    house.governor.set_limit("agent", 1)
    jobs = [
        house.submit(f"echo {name} >> order", priority=priority)
        for name, priority in (("c", 0), ("d", -1), ("a", 2), ("b", 1))
    ]
    house.worker()

    for job in jobs:
        house.ended(job)

    assert order(house) == ["a", "b", "c", "d"]


def test_a_job_moved_first_is_next_before_everyone(house: House) -> None:
    """Before the other jobs, and before whoever else waits."""
    house.governor.set_limit("agent", 1)
    house.worker()
    with house.governor.slot("agent/other"):
        first = house.submit("echo first >> order")
        until(lambda: len(house.governor.snapshot().waiting) == 1, "its place")
        outsider = _outsider(house)
        until(lambda: len(house.governor.snapshot().waiting) == 2, "the outsider")
        moved = house.submit("echo moved >> order")
        until(lambda: len(house.governor.snapshot().waiting) == 3, "its place")
        assert house.jobs.move_first(moved)
        until(lambda: house.governor.snapshot().waiting[0].id.endswith(f"-job{moved}"), "the move")
        assert [house.jobs.get(job).position for job in (moved, first)] == [1, 2]
    for job in (moved, first):
        house.ended(job)
    outsider.join()

    assert order(house) == ["moved", "first", "outsider"]


def test_jobs_keep_their_places_when_the_worker_restarts(house: House) -> None:
    """Among jobs and among everyone else who waits."""
    house.governor.set_limit("agent", 1)
    worker = house.worker()
    with house.governor.slot("agent/other"):
        first = house.submit("echo first >> order")
        until(lambda: len(house.governor.snapshot().waiting) == 1, "its place")
        outsider = _outsider(house)
        until(lambda: len(house.governor.snapshot().waiting) == 2, "the outsider")
        second = house.submit("echo second >> order")
        until(lambda: len(house.governor.snapshot().waiting) == 3, "its place")
        worker.kill()
        worker.wait()
        house.worker()
        until(lambda: len(house.governor.snapshot().waiting) == 3, "their places")
    for job in (first, second):
        house.ended(job)
    outsider.join()

    assert order(house) == ["first", "outsider", "second"]


def _outsider(house: House) -> threading.Thread:
    """Someone who is no job and waits in line."""

    def wait() -> None:
        with house.governor.slot("agent/outsider"), (house.directory / "order").open("a") as file:
            file.write("outsider\n")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_never_more_jobs_run_than_there_are_slots(house: House) -> None:
    """Counted by the jobs themselves, each of which keeps a lock while it runs."""
    house.governor.set_limit("agent", 3)
    script = "mkdir running.$$; ls -d running.* | wc -l >> peaks; sleep 0.05; rmdir running.$$"
    jobs = [house.submit(script) for _ in range(20)]
    house.worker()

    for job in jobs:
        assert house.ended(job).state == "succeeded"

    peaks = [int(line) for line in (house.directory / "peaks").read_text().split()]
    assert len(peaks) == 20
    assert max(peaks) == 3


def test_a_hot_model_does_not_stop_other_jobs(house: House) -> None:
    """A job waits only for the keys that it needs."""
    house.governor.set_limit("agent/hot", 1)
    house.worker()
    with house.governor.slot("agent/hot"):
        blocked = house.submit("true", keys="agent/hot")
        free = house.submit("true", keys="agent/cold")
        assert house.ended(free).state == "succeeded"
        assert house.state(blocked) == "queued"

    assert house.ended(blocked).state == "succeeded"


def test_a_job_runs_after_those_it_depends_on(house: House) -> None:
    """Though there is room for all of them at once."""
    house.worker()
    first = house.submit("until test -e go; do sleep 0.01; done; echo first >> order")
    second = house.submit("echo second >> order", after=[first])
    third = house.submit("echo third >> order", after=[first, second])
    house.running(first)
    assert {house.state(second), house.state(third)} == {"queued"}
    (house.directory / "go").touch()

    assert house.ended(third).state == "succeeded"
    assert order(house) == ["first", "second", "third"]


def test_the_end_of_a_job_that_others_depend_on_reaches_them(house: House) -> None:
    """They are cancelled, and the reason names the one that failed."""
    house.worker()
    first = house.submit("exit 7")
    second = house.submit("true", after=[first])
    third = house.submit("true", after=[second])

    ended = house.ended(third)

    assert ended.state == "cancelled"
    assert ended.end_reason == f"it was to run after job {second}, which was cancelled"
    assert house.jobs.get(second).end_reason == f"it was to run after job {first}, which failed"


@pytest.mark.parametrize("limit", [1, 2])
def test_raising_a_limit_starts_jobs_at_once(house: House, limit: int) -> None:
    """And pausing stops admission, not what runs."""
    house.governor.set_limit("agent", limit)
    house.worker()
    jobs = [house.submit("until test -e go; do sleep 0.01; done") for _ in range(limit + 1)]
    for job in jobs[:limit]:
        house.running(job)
    assert house.state(jobs[limit]) == "queued"

    house.governor.set_limit("agent", limit + 1)

    house.running(jobs[limit])
    (house.directory / "go").touch()
    for job in jobs:
        house.ended(job)
