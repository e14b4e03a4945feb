"""Retries that wait for a while, and the ends after which there is one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from tests.jobs.boards import begin, details, end, keep, line, open_board, order, ready, run, seen

from headway import clocks
from headway.errors import ConfigError
from headway.jobs.retries import delay_seconds
from headway.jobs.states import Ending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headway.jobs.board import Board


@pytest.fixture
def board(home: Path) -> Iterator[Board]:
    """A board with the delay that is the default."""
    board = open_board(home, HEADWAY_JOBS_RETRY_DELAY="10s")
    yield board
    board.database.close()


def later(board: Board, seconds: float) -> list[int]:
    """The jobs that are let into the line, as if so much later."""
    then = clocks.boot_microseconds() + int(seconds * 1e6)
    with mock.patch.object(clocks, "boot_microseconds", return_value=then):
        return board.retries.release_due()


def test_a_failed_job_is_retried_after_a_delay_that_doubles(board: Board) -> None:
    """It stands in no line until then, and has its old place afterwards."""
    job, other = keep(board, retries=3), keep(board)
    for delay in (10, 20, 40):
        run(board, job, "failed")
        found = seen(board, job)
        assert (found.state, found.blocked_by and found.blocked_by.reason) == (
            "queued",
            "retry_delay",
        )
        assert found.retry_at == pytest.approx(time.time() + delay, abs=5)
        assert ready(board) == [other]
        assert board.retries.seconds_to_release() == pytest.approx(delay, abs=5)

        assert later(board, delay - 5) == []
        assert later(board, delay) == [job]

        assert (seen(board, job).retry_at, line(board), ready(board)) == (
            None,
            [job, other],
            [job, other],
        )
        assert board.retries.seconds_to_release() is None
    assert run(board, job, "failed") == "failed"


def test_the_delay_has_an_end() -> None:
    """Ten minutes, or the first delay if that is longer."""
    assert [delay_seconds(10, n) for n in (0, 1, 5, 6, 7, 999)] == [10, 20, 320, 600, 600, 600]
    assert [delay_seconds(3600, n) for n in (0, 5)] == [3600, 3600]
    assert delay_seconds(0, 5) == 0


def test_a_job_may_have_a_delay_of_its_own(board: Board) -> None:
    """Also none at all."""
    slow, fast = keep(board, retries=1, retry_delay="1h"), keep(board, retries=1, retry_delay=0)
    run(board, slow, "failed")
    run(board, fast, "failed")

    assert ready(board) == [fast]
    assert seen(board, slow).retry_at == pytest.approx(time.time() + 3600, abs=5)
    assert details(board, slow).options == {"retry_delay_seconds": 3600.0}


def test_what_ended_with_its_worker_is_not_put_off(board: Board) -> None:
    """It did nothing wrong, and the next worker takes its time anyway."""
    job = keep(board, retries=1)
    ending = Ending("interrupted", "its worker ended", is_of_worker=True)

    assert board.end(job, begin(board, job), ending, holder="holder") == "queued"

    assert ready(board) == [job]


@pytest.mark.parametrize(
    ("retry_on", "ends", "wanted"),
    [
        ((), [("failed", 3), ("interrupted", None)], ["queued", "queued"]),
        (["any"], [("failed", 3), ("interrupted", None)], ["queued", "queued"]),
        (["failed"], [("failed", 3), ("interrupted", None)], ["queued", "interrupted"]),
        (["interrupted"], [("failed", 3)], ["failed"]),
        ([75, "interrupted"], [("failed", 75), ("failed", 3)], ["queued", "failed"]),
        (["75"], [("interrupted", None)], ["interrupted"]),
    ],
)
def test_only_the_chosen_ends_are_followed_by_a_retry(
    board: Board, retry_on: list[Any], ends: list[tuple[str, int | None]], wanted: list[str]
) -> None:
    """A kind of end, or an exit code; all of them if none was chosen."""
    job = keep(board, retries=5, retry_delay=0, retry_on=retry_on)

    found = [
        board.end(job, begin(board, job), Ending(state, "", exit_code=code), holder="holder")
        for state, code in ends
    ]

    assert found == wanted


@pytest.mark.parametrize("wrong", ["", "never", "0", "256", 0, 256, -1, 1.5, True, None, "1x"])
def test_other_ends_are_refused(wrong: Any) -> None:
    """With the words that can be chosen."""
    with pytest.raises(ConfigError, match=f"any, failed, interrupted .* got {wrong!r}"):
        order(retry_on=[wrong])


def test_somebody_may_end_the_delay(board: Board) -> None:
    """By retry, and by moving it to the front."""
    first, second = keep(board, retries=1), keep(board, retries=1)
    run(board, first, "failed")
    run(board, second, "failed")

    assert board.retry(first) == "queued"
    assert board.move_first(second, before=None)

    assert ready(board) == [second, first]
    assert board.retry(first) is None
    assert later(board, 1000) == []


def test_a_job_that_is_cancelled_while_it_is_put_off_can_be_retried(board: Board) -> None:
    """Nothing of the delay is left."""
    job = keep(board, retries=1)
    run(board, job, "failed")
    board.cancel(job, "enough")
    assert later(board, 1000) == []

    assert board.retry(job) == "queued"

    assert ready(board) == [job]


def test_what_needs_approval_is_not_put_off_as_well(home: Path) -> None:
    """A person decides when."""
    board = open_board(home, HEADWAY_JOBS_APPROVE="retries", HEADWAY_JOBS_RETRY_DELAY="10s")
    job = keep(board, retries=1)
    assert run(board, job, "failed") == "held"

    assert board.approve(job)

    assert ready(board) == [job]


def test_a_delay_survives_a_restart_of_the_machine(home: Path, board: Board) -> None:
    """Its clock begins anew, and the time that is left stays."""
    job = keep(board, retries=1, retry_delay="1h")
    end(board, job, begin(board, job), "failed")
    board.database.close()
    uptime = 5_000_000
    with (
        mock.patch.object(clocks, "boot_name", return_value="another"),
        mock.patch.object(clocks, "boot_microseconds", return_value=uptime),
        mock.patch.object(clocks, "boot_seconds", return_value=uptime / 1e6),
    ):
        after = open_board(home)
        assert after.retries.seconds_to_release() == pytest.approx(3600, abs=30)
        after.database.close()
