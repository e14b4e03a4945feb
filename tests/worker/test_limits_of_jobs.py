"""Watchdogs, expiry, holding and dedupe, with a real worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import until

if TYPE_CHECKING:
    from tests.worker.kit import House


def test_a_job_that_runs_too_long_is_ended_with_a_record(house: House) -> None:
    """Which watchdog, its setting and value, and the last activity; and it warned before."""
    house.worker()
    job = house.submit("echo working; sleep 600", max_runtime=0.5)

    ended = house.ended(job)

    assert ended.state == "failed"
    assert (ended.end_reason or "").startswith(
        "killed by the watchdog max_runtime: --max-runtime = 0.5 s, last activity"
    )
    (attempt,) = house.jobs.details(job).attempts
    assert attempt.ended_by is not None
    assert attempt.ended_by["mechanism"] == "max_runtime"
    assert attempt.ended_by["setting"] == "--max-runtime"
    assert attempt.started_at <= attempt.ended_by["last_activity_at"] <= (attempt.ended_at or 0)
    lines = house.output(job).splitlines()
    assert lines[0] == "working"
    assert lines[1].startswith("[headway: warning: max_runtime (0.5 s) ends this in")


def test_a_silent_job_that_does_nothing_is_idle(house: House) -> None:
    """It is warned of and then ended, as the settings say."""
    (house.home / "config.toml").write_text(
        '[watchdog]\nidle_warn = "300ms"\nidle_kill = "600ms"\n'
    )
    house.worker()
    job = house.submit("sleep 600")

    ended = house.ended(job)

    assert "killed by the watchdog idle_kill: watchdog.idle_kill = 0.6 s" in (
        ended.end_reason or ""
    )
    assert "no output and no CPU time" in house.output(job)


def test_a_silent_job_that_computes_is_not_idle(house: House) -> None:
    """A long completion that prints nothing is left alone."""
    house.worker()
    job = house.submit(
        "(while :; do :; done) & sleep 1.5; kill $!", idle_warn="200ms", idle_kill="500ms"
    )

    assert house.ended(job).state == "succeeded"
    assert house.output(job) == ""


def test_a_job_that_writes_too_much_is_ended(house: House) -> None:
    """Warned of at four fifths."""
    house.worker()
    job = house.submit(
        "head -c 900000 /dev/zero; until test -e go; do sleep 0.01; done; cat /dev/zero",
        max_output="1MB",
    )
    path = house.home / "logs" / f"{job}.1.log.0"
    until(lambda: path.exists() and b"warning: max_output" in path.read_bytes(), "a warning")
    (house.directory / "go").touch()

    assert "max_output: --max-output = 1MB" in (house.ended(job).end_reason or "")


def test_no_job_starts_while_memory_is_short(house: House) -> None:
    """It has its slot and waits; what happens is said; and it starts when there is enough."""
    settings = house.home / "config.toml"
    settings.write_text('[watchdog]\nmin_free_memory = "900TB"\n')
    worker = house.worker()
    job = house.submit("true")
    assert worker.stderr is not None
    assert "watchdog.min_free_memory: no new job starts" in worker.stderr.readline()
    assert house.state(job) == "queued"
    assert house.holders() == 1
    assert "starts when there is more memory" in house.run("why", str(job)).stdout

    settings.write_text('[watchdog]\nmin_free_memory = "1MB"\n')

    assert house.ended(job).state == "succeeded"


def test_a_job_that_waits_too_long_expires(house: House) -> None:
    """Without ever having run; what depends on it is told."""
    house.worker()
    with house.governor.slot("agent/test", weight=3):
        job = house.submit("echo > started", expire="300ms")
        follower = house.submit("true", after=[job], expire="never")

        ended = house.ended(job)

    assert (ended.state, ended.attempts) == ("expired", 0)
    assert ended.end_reason == "it had not started 0.3 s after it was submitted"
    assert house.ended(follower).state == "cancelled"
    assert not (house.directory / "started").exists()


def test_a_job_that_comes_later_expires_in_its_time(house: House) -> None:
    """The worker has looked after everything and would not do so again for a minute."""
    house.worker()
    assert house.ended(house.submit("true")).state == "succeeded"
    with house.governor.slot("agent/test", weight=3):
        ended = house.ended(house.submit("true", expire="300ms"))

    assert ended.state == "expired"
    assert ended.ended_at is not None
    assert ended.ended_at - ended.submitted_at < 30


def test_waiting_never_counts_as_running(house: House) -> None:
    """A job may wait longer than it may run, and may run longer than it may wait."""
    house.worker()
    with house.governor.slot("agent/test", weight=3):
        job = house.submit("sleep 0.1", max_runtime=2)
        until(lambda: house.governor.snapshot().waiting, "its wait")
    assert house.ended(job).state == "succeeded"

    job = house.submit("sleep 0.6", expire="300ms")
    assert house.ended(job).state == "succeeded"


def test_a_held_job_runs_when_it_is_approved(house: House) -> None:
    """Not before."""
    house.worker()
    job = house.submit("true", hold=True)
    other = house.submit("true")
    house.ended(other)
    assert house.state(job) == "held"

    house.jobs.approve(job)

    assert house.ended(job).state == "succeeded"


@pytest.mark.parametrize("approve", ["retries", "always"])
def test_retries_wait_for_approval_if_the_settings_say_so(house: House, approve: str) -> None:
    """By hand and by themselves."""
    (house.home / "config.toml").write_text(f'[jobs]\napprove = "{approve}"\n')
    house.worker()
    job = house.submit("exit 1", retries=1, hold=False)

    until(lambda: house.state(job) == "held", "its wait for approval")
    house.jobs.approve(job)

    assert house.ended(job).attempts == 2


def test_failing_jobs_are_run_again_as_often_as_allowed(house: House) -> None:
    """The first success ends it."""
    house.worker()
    lucky = house.submit("echo x >> tries; test $(wc -l < tries) -ge 3", retries=5)
    hopeless = house.submit("exit 1", retries=2)

    assert (house.ended(lucky).state, house.ended(lucky).attempts) == ("succeeded", 3)
    assert (house.ended(hopeless).state, house.ended(hopeless).attempts) == ("failed", 3)


def test_a_second_submit_of_an_unfinished_job_returns_the_first(house: House) -> None:
    """With a name to tell by; when it has ended, the name is free."""
    house.worker()
    first = house.keep(["sleep", "600"], dedupe="nightly")
    house.running(first.id)
    second = house.keep(["sleep", "600"], dedupe="nightly")
    assert (second.id, second.is_new, second.state) == (first.id, False, "running")
    house.jobs.cancel(first.id)
    house.ended(first.id)

    assert house.keep(["true"], dedupe="nightly").id != first.id


def test_a_job_heavier_than_a_lowered_limit_is_refused(house: House) -> None:
    """It could never run, so it says so instead of waiting for ever."""
    house.governor.set_limit("agent", 3)
    house.worker()
    with house.governor.slot("agent/other"):
        job = house.submit("true", weight=3)
        until(lambda: house.governor.snapshot().waiting, "its wait")

        house.governor.set_limit("agent", 2)

        assert house.ended(job).end_reason == "it can never fit on agent: its weight is 3"


def test_a_full_house_can_be_refused(house: House) -> None:
    """With exit code 75, and nothing is kept."""
    house.governor.set_limit("agent", 1)
    with house.governor.slot("agent/test"):
        refused = house.run("submit", "--no-start", "--when-full", "reject", "--", "true")

    assert refused.returncode == 75
    assert "no slot now on agent (1 of 1 in use); nothing was queued" in refused.stderr
    assert not house.jobs.all()
    kept = house.run("submit", "--no-start", "--when-full", "reject", "--", "true")
    assert kept.returncode == 0
    again = house.run("submit", "--no-start", "--when-full", "reject", "--", "true")
    assert again.returncode == 75
    named = ["submit", "--no-start", "--dedupe", "x", "--", "true"]
    house.run(*named)
    assert house.run(*named[:2], "--when-full", "reject", *named[2:]).returncode == 0


def test_one_can_wait_for_a_job_in_the_foreground(house: House) -> None:
    """Its code is the answer."""
    house.worker()

    seen = house.run("submit", "--when-full", "wait", "--", "sh", "-c", "exit 7")

    assert seen.returncode == 7
    assert seen.stdout.split(",")[0].strip() in {"queued as 1", "started as 1"}
    assert "job 1 failed" in seen.stderr
