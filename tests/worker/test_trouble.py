"""What people do to a board and its files while jobs are there; nothing is lost or stuck."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.worker.kit import kill, until

from headway.jobs.line import Line
from headway.jobs.orders import Order
from headway.stores.reader import Reader

if TYPE_CHECKING:
    import pytest
    from tests.worker.kit import House


def _despair(worker: subprocess.Popen[str]) -> None:
    """Wait until a worker has said that something does not work."""
    assert worker.stderr is not None
    assert any("; trying again" in line for line in worker.stderr)


def test_a_job_kept_after_others_were_forgotten_is_news(house: House) -> None:
    """A worker that has seen all changes before would never look at it otherwise."""
    board = house.jobs.board
    house.jobs.cancel(house.submit("true"))
    seen = board.changed_since(0)[-1].revision
    house.jobs.prune()

    job = house.submit("true")

    assert [wish.id for wish in board.changed_since(seen)] == [job]


def test_a_job_can_end_whose_followers_are_forgotten(house: House) -> None:
    """Its end is written, and the worker goes on."""
    worker = house.worker()
    job = house.submit("until test -e go; do sleep 0.01; done; exit 3")
    house.jobs.cancel(house.submit("true", after=[job]))
    house.jobs.prune()
    (house.directory / "go").touch()

    ended = house.ended(job)

    assert (ended.state, ended.exit_code) == ("failed", 3)
    assert house.ended(house.submit("true")).state == "succeeded"
    assert worker.poll() is None


def test_the_end_of_a_job_reaches_the_last_of_a_long_chain(house: House) -> None:
    """Longer than Python's stack is deep."""
    first = last = house.submit("true")
    for _ in range(sys.getrecursionlimit()):
        last = house.submit("true", after=[last])

    house.jobs.cancel(first)

    ended = house.jobs.get(last)
    assert ended.state == "cancelled"
    assert ended.end_reason == f"it was to run after job {last - 1}, which was cancelled"


def test_hundreds_of_jobs_may_start_at_once(house: House) -> None:
    """The worker has more to say to its nursery, and that to it, than fits into a socket."""
    order = Order(["true"], keys="free", directory=str(house.directory))
    house.jobs.submit_many([order] * 350, start=False)

    house.worker()

    until(lambda: house.jobs.counts() == {"succeeded": 350}, "the end of all")


def test_a_worker_outlives_a_board_that_cannot_be_written(house: House) -> None:
    """What it has to write down is written as soon as that is possible."""
    (house.home / "config.toml").write_text('[store]\ntimeout = "50ms"\n')
    worker = house.worker()
    job = house.submit("sleep 600", retries=1)
    house.running(job)
    with open(house.home / "jobs.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kill(house.supervisor(job))
        _despair(worker)
        assert house.state(job) == "running"

    until(lambda: house.jobs.get(job).attempts == 2, "its second attempt")
    assert house.jobs.details(job).attempts[0].end_reason == "its supervisor was killed"


def test_a_job_is_not_forgotten_because_the_slots_cannot_be_written(house: House) -> None:
    """It gets its place in line as soon as that is possible."""
    (house.home / "config.toml").write_text('[store]\ntimeout = "50ms"\n')
    worker = house.worker()
    house.ended(house.submit("true"))
    with open(house.home / "slots.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = house.submit("true")
        _despair(worker)

    assert house.ended(job).state == "succeeded"


def test_jobs_of_a_board_that_took_the_place_of_another_are_run(house: House) -> None:
    """Such as one that begins anew; also its first change is news."""
    house.worker()
    for _ in range(3):
        house.ended(house.submit("true"))
    for path in house.home.glob("jobs.db*"):
        path.rename(house.directory / path.name)

    job = house.submit("true")

    assert job == 1
    assert house.ended(job).state == "succeeded"


_FAILING = """
import os, sys
from headway import Governor
from headway.jobs import attempt
from headway.wire import Wire

home, job = sys.argv[1], int(sys.argv[2])
UP = os.path.abspath("up")
near, far = Wire.pair()

def fail(run):
    if os.path.exists(UP):
        raise RuntimeError("boom")

attempt.Run._watch = fail
with Governor(f"sqlite:///{home}").slot("agent/test") as lease:
    near.send("start", job=job, lease=lease.id)
    attempt.Attendant(home, far).serve()
"""


def test_nothing_outlives_a_supervisor_that_fails(house: House) -> None:
    """Its own fault is told as the reason, and the slot is free when all is gone."""
    job = house.submit("setsid sleep 600 & echo > up; while :; do echo; sleep 0.01; done")

    subprocess.run(
        [sys.executable, "-c", _FAILING, str(house.home), str(job)],
        env=house.environ,
        cwd=house.directory,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )

    assert not house.processes()
    ended = house.jobs.get(job)
    assert (ended.state, ended.end_reason) == (
        "interrupted",
        "its supervisor failed: RuntimeError: boom",
    )


_LOSING = """
import sys, threading
from headway import Governor
from headway.jobs import attempt
from headway.jobs.board import Board
from headway.wire import Wire

home, job, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
governor, begin = Governor(f"sqlite:///{home}"), Board.begin
near, far = Wire.pair()

def lose():
    [taken] = [one for one in governor.snapshot().leases if one.id.endswith(f"-job{job}")]
    assert governor.revoke(taken.id, "somebody wanted it")

class LosingSlot(attempt.Slot):
    def __enter__(self):
        lease = super().__enter__()
        lose()
        return lease

def losing_begin(board, *args, **kwargs):
    beginning = begin(board, *args, **kwargs)
    lose()
    return beginning

if when == "before":
    attempt.Slot = LosingSlot
else:
    Board.begin = losing_begin

def hear():
    while (message := near.receive())["kind"] != "idle":
        print(message["kind"], message.get("reason"))
    near.close()

with governor.slot("agent/test") as lease:
    near.send("start", job=job, lease=lease.id)
    threading.Thread(target=hear).start()
    attempt.Attendant(home, far).serve()
"""


def _lose_slot(house: House, job: int, when: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _LOSING, str(house.home), str(job), when],
        env=house.environ,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_slot_that_is_lost_before_the_attempt_begins_leaves_the_job_queued(house: House) -> None:
    """Nothing was started, so nothing has ended; it stands in line again."""
    job = house.submit("echo started > started")

    told, _ = _lose_slot(house, job, "before").communicate(timeout=60)

    assert told.startswith("declined lease ")
    assert "somebody wanted it" in told
    assert (house.state(job), house.jobs.get(job).attempts) == ("queued", 0)
    assert not (house.directory / "started").exists()


def test_a_slot_that_is_lost_when_the_attempt_has_begun_does_not_end_it(house: House) -> None:
    """Between its beginning and its command's start, as at any time later: it says so."""
    os.mkfifo(house.directory / "end")
    job = house.submit("cat < end")

    supervisor = _lose_slot(house, job, "after")

    until(lambda: "its slot was lost, somebody wanted it" in house.output(job), "its word")
    (house.directory / "end").write_text("the end")
    assert supervisor.communicate(timeout=60)[0] == "took None\n"
    assert house.state(job) == "succeeded"
    assert "the end" in house.output(job)


def test_names_that_are_no_text_do_no_harm(house: House) -> None:
    """A program of such a name may be missing, as any other."""
    program = house.directory / "\udcff"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    job = house.keep(["./\udcff", "\udcfe"]).id
    program.unlink()
    house.worker()

    ended = house.ended(job)

    assert (ended.state, ended.exit_code) == ("failed", 127)
    assert ended.end_reason == "./\\udcff: no such program"
    for command in ("show", "why", "wait", "logs"):
        assert "Traceback" not in house.run(command, str(job), errors="replace").stderr


def test_who_has_many_places_in_line_does_not_look_at_all_of_them_when_one_moves_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has thousands, and something happens at their head all the time."""
    looks: list[str] = []

    def look(_: Reader, holder: str) -> list[str]:
        looks.append(holder)
        return []

    house.governor.pause("agent")
    line = Line(house.governor.turnstile)
    for _ in range(20):
        line.stand(house.jobs.board.wishes("id = ?", house.submit("true"))[0])
    monkeypatch.setattr(Reader, "in_front_of", look)

    for job in line.jobs():
        line.leave(job)

    assert len(looks) < 10  # now and then, by those who listen
