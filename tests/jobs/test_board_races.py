"""Whatever races on one job: it gets one end, and every record tells the same."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.jobs import boards
from tests.jobs.boards import keep, query, seen

from headway import clocks
from headway.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headway.jobs.board import Board

THREADS, PROCESSES, JOBS = 6, 4, 30
DEEDS = ("begin", "begin", "cancel", "cancel", "expire", "bury", "bury")
# A time at which the first job has expired, and the next one not yet.
STEP_SECONDS = 1_000.0


class Ahead(threading.local):
    """How far ahead the clock of this thread is."""

    seconds = 0.0


AHEAD, _boot_microseconds = Ahead(), clocks.boot_microseconds


@pytest.fixture(autouse=True)
def _clock_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "boot_microseconds", ahead)


def ahead() -> int:
    """The time as this thread sees it."""
    return _boot_microseconds() + int(AHEAD.seconds * 1e6)


def do(board: Board, deed: str, job: int, jobs: list[int]) -> list[tuple[int, str]]:
    """Try one thing on one job; what it achieved, and for which."""
    if deed == "cancel":
        before = board.cancel(job, "by hand")
        return [(job, "end cancelled")] if before == "queued" else []
    if deed == "expire":
        AHEAD.seconds = STEP_SECONDS * (jobs.index(job) + 1.5)
        expired = board.expire()
        AHEAD.seconds = 0.0
        return [(one, "end expired") for one in expired]
    if deed == "bury":  # as a worker does that finds its predecessor's attempts
        found = board.under_way(job)
        ends = [boards.end(board, job, number, "interrupted") for _, number, _ in found]
        return [(job, f"end {end}") for end in ends if end is not None]
    beginning = board.begin(job, holder="holder", lease="lease")
    if beginning is None:
        return []
    ends = [boards.end(board, job, beginning.number, state) for state in ("succeeded", "failed")]
    return [(job, "start"), *((job, f"end {end}") for end in ends if end is not None)]


def everything_at_once(board: Board, name: str, jobs: list[int]) -> list[tuple[int, str]]:
    """Do all deeds on all jobs, in an order of this participant's own."""
    chance = random.Random(name)
    achieved = []
    for job in jobs:
        for deed in chance.sample(DEEDS, len(DEEDS)):
            achieved += do(board, deed, job, jobs)
    return achieved


def assert_one_end_each(board: Board, jobs: list[int], achieved: list[tuple[int, str]]) -> None:
    """Exactly one participant has ended each job, and the board says the same everywhere."""
    count = Counter(achieved)
    for job in jobs:
        ends = [what for (one, what), times in count.items() for _ in range(times) if one == job]
        ends = [what.removeprefix("end ") for what in ends if what.startswith("end ")]
        starts = count[job, "start"]
        found = seen(board, job)
        assert ends == [found.state]
        assert starts == found.attempts == (found.started_at is not None)
        rows = query(board, f"select state, ended_at is null from attempts where job = {job}")
        told = [row[0] for row in query(board, f"select event from news where job = {job}")]
        word = {"succeeded": "finished"}.get(found.state, found.state)
        assert told == ["queued", *["started"] * starts, word]
        if not starts:
            assert rows == []
        elif found.state == "cancelled":  # it was marked, and then buried
            assert rows == [("interrupted", 0)]
        else:
            assert rows == [(found.state, 0)]
    assert board.under_way() == []
    assert board.counts_ready() == 0


def new_jobs(board: Board) -> list[int]:
    """Jobs whose every event is written down."""
    times = [STEP_SECONDS * (number + 1) for number in range(JOBS)]
    return [keep(board, notify=["json://nowhere"], expire=seconds) for seconds in times]


def test_threads_race_and_every_job_has_one_end(board: Board) -> None:
    """All share one board and its connection."""
    jobs, achieved, start = new_jobs(board), list[tuple[int, str]](), threading.Barrier(THREADS)

    def race(name: str) -> None:
        start.wait()
        achieved.extend(everything_at_once(board, name, jobs))

    _in_threads([partial(race, str(name)) for name in range(THREADS)])

    assert_one_end_each(board, jobs, achieved)


def test_processes_race_and_every_job_has_one_end(board: Board, home: Path) -> None:
    """Each has a board of its own on the same home."""
    jobs = new_jobs(board)

    answers = _in_processes(home, "race", jobs)

    achieved = [(job, what) for answer in answers for job, what in answer]
    assert_one_end_each(board, jobs, achieved)


def test_cancel_races_the_end_and_both_agree(board: Board) -> None:
    """An attempt that was marked is never run again, whoever was first."""
    for _ in range(JOBS):
        job = keep(board, retries=1)
        number, start = boards.begin(board, job), threading.Barrier(2)
        answers: list[Any] = [None, None]

        _in_threads(
            [
                partial(_at, start, answers, 0, partial(board.cancel, job, "stop")),
                partial(_at, start, answers, 1, partial(boards.end, board, job, number, "failed")),
            ]
        )

        # Either the job was marked and then ended, or queued again and then cancelled.
        assert tuple(answers) in {("running", "failed"), ("queued", "queued")}
        found = seen(board, job)
        assert found.state == ("failed" if answers[0] == "running" else "cancelled")
        assert found.attempts == 1


def _at(
    start: threading.Barrier, answers: list[Any], place: int, work: Callable[[], object]
) -> None:
    start.wait()
    answers[place] = work()


def test_a_name_is_given_once_whoever_asks(board: Board, home: Path) -> None:
    """Processes that submit the same name at once get the same job, and one of them made it."""
    answers = _in_processes(home, "dedupe", list(range(JOBS)))

    for number in range(JOBS):
        kept = [answer[number] for answer in answers]
        assert len({job for job, _ in kept}) == 1
        assert sorted(is_new for _, is_new in kept) == [*[False] * (PROCESSES - 1), True]
    assert len(boards.line(board)) == JOBS


def test_the_bound_holds_whoever_submits(home: Path) -> None:
    """Processes that fill the queue at once leave exactly as many as it may have."""
    (home).mkdir(mode=0o700)
    (home / "config.toml").write_text(f"[queue]\nmax_jobs = {JOBS}\n")

    answers = _in_processes(home, "fill", list(range(JOBS)))

    assert sum(map(sum, answers)) == JOBS
    assert len(boards.line(boards.open_board(home))) == JOBS


def test_processes_submit_at_once_and_nothing_is_lost(board: Board, home: Path) -> None:
    """Every id is one job's, and the line has them in the order of their arrivals."""
    answers = _in_processes(home, "submit", list(range(JOBS)))

    ids = [job for answer in answers for job in answer]
    assert len(set(ids)) == len(ids) == PROCESSES * JOBS
    assert boards.line(board) == sorted(ids)
    assert all(answer == sorted(answer) for answer in answers)
    numbers = [wish.revision for wish in board.wishes("true order by id")]
    assert numbers == sorted(set(numbers))


def _in_threads(calls: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def call(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=call, args=(work,), daemon=True) for work in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


def _in_processes(home: Path, what: str, jobs: list[int]) -> list[Any]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.test_board_races", what, str(name), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            text=True,
        )
        for name in range(PROCESSES)
    ]
    try:
        for child in children:
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
        # Written to all before any is read: they start together.
        for child in children:
            assert child.stdin
            child.stdin.write(json.dumps(jobs) + "\n")
            child.stdin.flush()
        return [json.loads(child.communicate(timeout=60)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _take_part(what: str, name: str, home: str) -> None:
    """What one of the processes does; its answer is printed."""
    clocks.boot_microseconds = ahead
    board = boards.open_board(home)
    board.counts_ready()
    print("ready", flush=True)
    jobs: list[int] = json.loads(sys.stdin.readline())
    answer: list[Any] = []
    if what == "race":
        answer = everything_at_once(board, name, jobs)
    elif what == "submit":
        answer = [keep(board) for _ in jobs]
    elif what == "dedupe":
        for job in jobs:
            (kept,) = board.submit([boards.order(dedupe=f"name {job}")])
            answer.append((kept.id, kept.is_new))
    else:
        for _ in jobs:
            try:
                keep(board)
            except QueueFull:
                answer.append(0)
            else:
                answer.append(1)
    print(json.dumps(answer))


if __name__ == "__main__":
    _take_part(*sys.argv[1:])
