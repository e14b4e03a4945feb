"""Workers, nurseries and supervisors are killed; nothing is lost, runs twice, or stays behind."""

from __future__ import annotations

import fcntl
import os
import signal
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import PROGRAM, is_alive, kill, until

from headway.cli import worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.kit import House

# Says its pid and that of a tool in a session of its own, and stays.
_AGENT = (
    "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; sleep 600' &"
    " until test $(wc -l < pids) -ge 2; do sleep 0.01; done; echo up > up; sleep 600"
)


def pids(house: House) -> list[int]:
    """The processes of the job, when it is up."""
    house.file("up")
    return [int(pid) for pid in (house.directory / "pids").read_text().split()]


def test_when_the_worker_is_killed_its_jobs_end_with_it(house: House) -> None:
    """The whole tree; the slots come back; the attempt says why."""
    worker = house.worker()
    job = house.submit(_AGENT)
    family = pids(house)

    kill(worker.pid)

    ended = house.ended(job)
    assert (ended.state, ended.end_reason) == ("interrupted", "its worker ended")
    assert not any(map(is_alive, family))
    until(lambda: house.holders() == 0, "the slot")


def test_an_interrupted_job_is_run_again_if_that_is_allowed(house: House) -> None:
    """By the next worker, at its old place, and never two at once."""
    house.governor.set_limit("agent", 1)
    worker = house.worker()
    job = house.submit("echo run >> runs; test -e go || sleep 600", retries=1)
    other = house.submit("cp runs seen")
    house.file("runs")
    kill(worker.pid)
    until(lambda: house.state(job) == "queued", "its return to the queue")
    (house.directory / "go").touch()
    house.worker()

    ended = house.ended(job)
    house.ended(other)

    assert (ended.state, ended.attempts) == ("succeeded", 2)
    assert house.file("seen").split() == ["run", "run"]
    first, second = house.jobs.details(job).attempts
    assert (first.state, first.end_reason) == ("interrupted", "its worker ended")
    assert second.started_at >= (first.ended_at or 0)


def test_when_a_supervisor_is_killed_its_job_ends(house: House) -> None:
    """Nothing of it is left when its slot is free, and the worker goes on."""
    house.governor.set_limit("agent", 1)
    house.worker()
    job = house.submit(_AGENT)
    family = pids(house)
    following = house.submit(" || ".join(f"kill -0 {pid}" for pid in family) + " && exit 9; exit 0")

    kill(house.supervisor(job))

    assert house.ended(job).state == "interrupted"
    assert house.jobs.get(job).end_reason == "its supervisor was killed"
    assert house.ended(following).exit_code == 0
    assert not any(map(is_alive, family))


def test_when_the_nursery_is_killed_its_jobs_end_and_another_takes_its_place(house: House) -> None:
    """Queued jobs are run afterwards as if nothing had happened."""
    worker = house.worker()
    job = house.submit(_AGENT)
    family = pids(house)

    kill(house.nursery(worker))

    assert house.ended(job).state == "interrupted"
    assert not any(map(is_alive, family))
    assert house.ended(house.submit("echo on")).state == "succeeded"


def test_when_all_are_killed_at_once_the_next_worker_clears_up(house: House) -> None:
    """What still runs of the job is ended before it could run a second time."""
    worker = house.worker()
    job = house.submit(_AGENT, retries=1)
    family = pids(house)
    supervisor, nursery = house.supervisor(job), house.nursery(worker)
    everyone = [worker.pid, nursery, supervisor]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)

    for pid in everyone:
        kill(pid)
    assert all(map(is_alive, family))
    (house.directory / "pids").write_text("")
    (house.directory / "up").unlink()
    house.worker()

    again = pids(house)
    assert not any(map(is_alive, family))
    assert all(map(is_alive, again))
    first = house.jobs.details(job).attempts[0]
    assert first.state == "interrupted"
    assert "processes of it were still running" in (first.end_reason or "")


def test_a_worker_that_comes_while_the_old_jobs_still_end_waits_for_them(house: House) -> None:
    """An attempt that refuses to end is neither forgotten nor run again beside itself."""
    (house.home / "config.toml").write_text('[jobs]\ngrace = "2s"\n')
    worker = house.worker()
    job = house.submit(
        "mkdir one || echo twice > twice; trap '' TERM; echo up > up;"
        " test -e go || while :; do sleep 0.05; done; rmdir one",
        retries=1,
    )
    house.file("up")
    kill(worker.pid)
    house.worker()
    (house.directory / "go").touch()
    (house.directory / "one").rmdir()

    assert house.ended(job).attempts == 2
    assert not (house.directory / "twice").exists()


def test_a_cancel_is_not_forgotten_when_the_worker_dies(house: House) -> None:
    """Who wanted a job ended does not find it queued again."""
    worker = house.worker()
    job = house.submit(_AGENT, retries=5)
    pids(house)
    worker.send_signal(signal.SIGSTOP)
    house.jobs.cancel(job, "enough")

    kill(worker.pid)

    ended = house.ended(job)
    assert (ended.state, ended.end_reason) == ("cancelled", "enough")


def test_a_stopped_worker_leaves_the_queue_to_the_next(house: House) -> None:
    """Jobs that wait keep waiting, those that run finish first."""
    house.governor.set_limit("agent", 1)
    worker = house.worker()
    running = house.submit("echo up > up; until test -e go; do sleep 0.01; done")
    waiting = house.submit("true")
    house.file("up")
    worker.send_signal(signal.SIGTERM)
    until(lambda: not house.governor.snapshot().waiting, "its leaving the line")
    (house.directory / "go").touch()
    worker.wait()

    assert house.state(running) == "succeeded"
    assert house.state(waiting) == "queued"
    house.worker()
    assert house.ended(waiting).state == "succeeded"


def test_a_worker_stopped_now_interrupts_what_runs(house: House) -> None:
    """And is gone only when that is gone."""
    worker = house.worker()
    job = house.submit(_AGENT)
    family = pids(house)

    stopped = house.run("worker", "stop", "--now")

    assert stopped.stdout == f"Worker {worker.pid} stopped.\n"
    assert not any(map(is_alive, family))
    assert house.jobs.get(job).end_reason == "the worker was stopped"


def test_there_is_one_worker(house: House) -> None:
    """A second one says who runs, and ends."""
    worker = house.worker()

    second = house.run("worker")

    assert second.returncode == 1
    assert f"a worker runs already: pid {worker.pid}, since" in second.stderr


def test_submit_starts_a_worker_when_none_runs(house: House) -> None:
    """And says where the job stands; with --no-start it does not."""
    quiet = house.run("submit", "--no-start", "--", "true")
    assert house.jobs.worker() is None
    assert "no worker runs" in quiet.stderr

    started = house.run("submit", "--", "true")

    assert started.stdout.startswith("queued as 2, position ")
    assert house.ended(1).state == house.ended(2).state == "succeeded"
    assert house.jobs.worker() is not None


def test_a_worker_may_leave_when_there_is_nothing_to_do(house: House) -> None:
    """A job that comes in the moment it leaves is not forgotten."""
    worker = house.worker("--idle-exit", "50ms")
    job = house.submit("true")

    assert house.ended(job).state == "succeeded"
    worker.wait()
    assert house.jobs.worker() is None


def test_a_job_may_stop_the_worker(house: House) -> None:
    """It does not wait for the worker, which waits for the job."""
    worker = house.worker()
    job = house.submit(f"{PROGRAM} worker stop")

    ended = house.ended(job)

    assert ended.state == "succeeded"
    assert house.output(job).startswith(f"Worker {worker.pid} stops when this job")
    worker.wait()


def _stop() -> None:
    worker.stop.callback(now=False)  # type: ignore[misc]


def test_stopping_a_worker_that_has_not_said_its_name_yet_ends_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its lock and its first words there is no pid to send a signal to."""
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, _: pytest.fail(f"told {pid}"))
    with ThreadPoolExecutor(1) as pool:
        with (tmp_path / "worker.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stopping = pool.submit(_stop)
            assert wait({stopping}, timeout=0.1).not_done
        stopping.result(60)

    assert capsys.readouterr().out == "No worker runs.\n"
