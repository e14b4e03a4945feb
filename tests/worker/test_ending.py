"""Ending jobs: by cancel, by their own end, and whatever they do against it."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import is_alive, until

from headway.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tests.worker.kit import House

# A tool in a session of its own, whose parent ends at once: what agents do.
_STRAY = (
    "setsid sh -c 'echo $$ > stray; trap \"\" HUP; sleep 600' &"
    " until test -s stray; do sleep 0.01; done; "
)


@pytest.mark.parametrize("hold", [False, True])
def test_a_job_that_waits_is_cancelled_at_once(house: House, hold: bool) -> None:  # noqa: FBT001
    """It never starts, and nothing is left in line."""
    house.governor.set_limit("agent", 1)
    house.worker()
    with house.governor.slot("agent/other"):
        job = house.submit("echo > started", hold=hold)
        if not hold:
            until(lambda: house.governor.snapshot().waiting, "its ticket")

        assert house.jobs.cancel(job, "not needed") == ("held" if hold else "queued")

        until(lambda: not house.governor.snapshot().waiting, "the end of its ticket")
    ended = house.jobs.get(job)
    assert (ended.state, ended.end_reason, ended.attempts) == ("cancelled", "not needed", 0)
    assert not (house.directory / "started").exists()


def test_a_job_that_runs_is_asked_to_end(house: House) -> None:
    """It gets SIGTERM and may clear up."""
    house.worker()
    job = house.submit("trap 'echo bye; exit 5' TERM; echo > started; while :; do sleep 0.05; done")
    until((house.directory / "started").exists, "its start")

    house.jobs.cancel(job)

    ended = house.ended(job)
    assert (ended.state, ended.exit_code) == ("cancelled", 5)
    assert house.output(job).endswith("bye\n")


def test_a_job_that_ignores_that_is_killed(house: House) -> None:
    """After the grace period, with everything that it started."""
    house.worker()
    job = house.submit("trap '' TERM; " + _STRAY + "while :; do sleep 0.05; done")
    stray = int(house.file("stray"))

    house.jobs.cancel(job)

    ended = house.ended(job)
    assert (ended.state, ended.exit_code) == ("cancelled", 137)
    assert not is_alive(stray)
    assert house.holders() == 0


def test_a_stopped_job_can_be_cancelled(house: House) -> None:
    """It is told to go on, so that it can end."""
    house.worker()
    job = house.submit("echo > started; kill -STOP $$; echo not reached")
    until((house.directory / "started").exists, "its start")

    house.jobs.cancel(job)

    assert house.ended(job).state == "cancelled"


def test_cancelling_twice_or_after_the_end_changes_nothing(house: House) -> None:
    """The end that a job has is the one it keeps."""
    house.worker()
    job = house.submit("exit 0")
    house.ended(job)

    assert house.jobs.cancel(job) is None
    assert house.state(job) == "succeeded"


def test_what_a_job_leaves_behind_is_ended(house: House) -> None:
    """Also a tool in a session of its own. The job's end is that of its first process."""
    house.worker()
    job = house.submit(_STRAY + "exit 0")

    ended = house.ended(job)

    assert (ended.state, ended.exit_code) == ("succeeded", 0)
    assert not is_alive(int(house.file("stray")))
    assert not house.processes()


def test_a_grandchild_that_keeps_the_pipes_open_holds_nobody_up(house: House) -> None:
    """Its output is kept as long as it lives."""
    house.worker()
    job = house.submit("(echo from below; exec sleep 600) & echo from above")

    assert house.ended(job).state == "succeeded"
    assert sorted(house.output(job).splitlines()) == ["from above", "from below"]


def test_a_job_that_closes_its_output_runs_on(house: House) -> None:
    """It ends when it ends."""
    house.worker()
    job = house.submit("exec >&- 2>&-; until test -e go; do sleep 0.01; done; exit 4")
    house.running(job)
    (house.directory / "go").touch()

    assert house.ended(job).exit_code == 4


def test_a_job_that_forks_on_and_on_is_ended(house: House) -> None:
    """New children come while the old are being killed."""
    house.worker()
    script = "trap '' TERM; f() { while :; do sleep 0.02 & (sleep 0.1 &) ; wait; done; }; f & f & f"
    job = house.submit(f"echo > started; {script}")
    until((house.directory / "started").exists, "its start")

    house.jobs.cancel(job)

    assert house.ended(job).state == "cancelled"
    assert not house.processes()


def test_any_bytes_are_kept_as_they_are(house: House) -> None:
    """Output need not be text."""
    house.worker()
    job = house.submit("printf '\\000\\377\\r\\n\\033[0m'")

    house.ended(job)

    assert b"".join(house.jobs.output(job)) == b"\0\xff\r\n\x1b[0m"


def test_a_gigabyte_of_output_is_cut_to_its_size(house: House) -> None:
    """Its beginning and its end are there, and a mark between; memory is not used for it."""
    (house.home / "config.toml").write_text('[jobs]\nmax_log = "1MB"\n')
    house.worker()
    job = house.submit("echo begin; head -c 1000000000 /dev/zero; echo; echo end")

    assert house.ended(job).state == "succeeded"
    kept = b"".join(house.jobs.output(job))
    assert kept.startswith(b"begin\n\0")
    assert kept.endswith(b"\0\nend\n")
    assert b"bytes were cut here]" in kept
    assert len(kept) <= 1_000_100
    assert [path.name for path in (house.home / "logs").iterdir()] == [f"{job}.1.log"]


def test_logs_can_be_followed_while_they_grow(house: House) -> None:
    """Everything comes, once, and then it ends."""
    house.worker()
    job = house.submit("for i in 1 2 3; do echo $i; until test -e go$i; do sleep 0.01; done; done")
    seen = []
    for part in house.jobs.follow(job):
        seen.append(part)
        for line in b"".join(seen).split():
            (house.directory / f"go{line.decode()}").touch()

    assert b"".join(seen) == b"1\n2\n3\n"


def test_what_was_followed_is_not_told_again_while_a_job_waits_for_its_next_attempt(
    house: House,
) -> None:
    """The output of each attempt comes once, however long the time between them."""
    (house.home / "config.toml").write_text('[jobs]\napprove = "retries"\n')
    house.worker()
    job = house.submit("echo $HEADWAY_JOB; test $HEADWAY_JOB = 1.2", retries=1)
    seen: list[bytes] = []
    follower = threading.Thread(target=lambda: seen.extend(house.jobs.follow(job)))
    follower.start()
    until(lambda: seen and house.state(job) == "held", "the end of the first attempt")
    house.jobs.move_first(job)  # refused, but its bell rings
    house.jobs.approve(job)

    follower.join()

    assert seen == [b"1.1\n", b"1.2\n"]


def test_a_job_that_stops_its_supervisor_can_be_cancelled(house: House) -> None:
    """The supervisor is told to go on."""
    house.worker()
    job = house.submit("kill -STOP $PPID; echo > done; sleep 600")
    until((house.directory / "done").exists, "what it does to its supervisor")

    house.jobs.cancel(job)

    assert house.ended(job).state == "cancelled"


def test_the_time_to_wait_is_that_for_all_jobs(house: House) -> None:
    """However many they are; none gets all of it anew."""
    jobs = [house.submit("true", hold=True) for _ in range(2)]
    house.jobs.cancel(jobs[0])
    timeouts: list[object] = []

    class Jobs:
        """Remembers how long it was to wait."""

        def wait_for(self, _: int, *, timeout: object) -> object:
            timeouts.append(timeout)
            return house.jobs.get(jobs[0])

    wait_for_all(SimpleNamespace(jobs=Jobs()), jobs, timeout_seconds=60.0)  # type: ignore[arg-type]

    assert isinstance(timeouts[1], float)
    assert timeouts[1] < 60.0


def test_supervisors_leave_as_well_as_they_came(house: House) -> None:
    """Neither those who made room for others nor those who were ready are taken for dead."""
    house.worker()
    jobs = [house.submit("until test -e go; do sleep 0.01; done") for _ in range(3)]
    for job in jobs:
        house.running(job)
    (house.directory / "go").touch()
    for job in jobs:
        house.ended(job)

    house.run("worker", "stop")

    findings = json.loads(house.run("doctor", "--json").stdout)["findings"]
    assert not [one["text"] for one in findings if one["level"] == "warning"]
