"""The environments of finished jobs: how long they are kept, and that nothing is left of them."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from tests.jobs.boards import column, keep, open_board, query, run, seen

from headway.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from headway.jobs.board import Board

# Once for a page of its own, and once long enough to fill several.
SECRETS = ["hunter2-" + "s" * 20, "hunter3-" + "l" * 20_000]


@pytest.fixture(params=SECRETS, ids=["short", "long"])
def secret(request: pytest.FixtureRequest) -> str:
    """Something in the environment of a job that must not stay."""
    return str(request.param)


def is_anywhere(home: Path, secret: str) -> bool:
    """Whether any file of the home has it, as a thief would look."""
    return any(secret[:24].encode() in path.read_bytes() for path in home.rglob("*db*"))


def drop(board: Board) -> None:
    """What the worker does when jobs.retry_within is over for all that has ended."""
    board.archive.drop_environments(ended_before=time.time() + 1)
    board.archive.scrub()


def test_nothing_is_left_of_the_environment_of_a_job_that_cannot_be_retried(
    home: Path, board: Board, secret: str
) -> None:
    """Neither in the database nor in its log, also while the database is open."""
    others = [keep(board, environ={"LANG": "C", "N": str(n)}) for n in range(50)]
    job = keep(board, environ={"TOKEN": secret})
    run(board, job)
    assert is_anywhere(home, secret)

    drop(board)

    assert not is_anywhere(home, secret)
    assert seen(board, job).state == "succeeded"
    assert {seen(board, other).state for other in others} == {"queued"}
    assert query(board, "select count(*) from environments") == [(50,)]


def test_nothing_is_left_of_a_job_that_was_pruned(home: Path, board: Board, secret: str) -> None:
    """What is forgotten is gone."""
    run(board, keep(board, environ={"TOKEN": secret}))
    keep(board)

    board.archive.prune()

    assert not is_anywhere(home, secret)


def test_what_an_older_version_has_deleted_is_gone_as_well(
    home: Path, board: Board, secret: str
) -> None:
    """It only marked it as free: the whole file is written anew, once."""
    kept = keep(board, environ={"LANG": "C"})
    board.database.close()
    with sqlite3.connect(home / "jobs.db") as old:
        old.execute("pragma secure_delete = off")
        old.execute("delete from facts where name = 'overwrites deleted'")
        old.execute("insert into environments values (99, x'00', ?)", (secret.encode(),))
        old.commit()
        old.execute("delete from environments where id = 99")
    old.close()
    assert is_anywhere(home, secret)
    newer = open_board(home)

    newer.archive.scrub()

    assert not is_anywhere(home, secret)
    begun = newer.begin(kept, holder="holder", lease="holder-1")
    assert begun is not None
    assert begun.environ == {"LANG": "C"}
    newer.database.close()


def test_a_reader_only_delays_it(home: Path, board: Board, secret: str) -> None:
    """While somebody looks the log cannot be emptied; the next time it is."""
    run(board, keep(board, environ={"TOKEN": secret}))
    reading = sqlite3.connect(home / "jobs.db")
    reading.execute("begin")
    reading.execute("select count(*) from jobs").fetchone()

    drop(board)
    assert is_anywhere(home, secret)
    reading.close()
    board.archive.scrub()

    assert not is_anywhere(home, secret)


@pytest.mark.parametrize("state", ["succeeded", "failed", "interrupted"])
def test_a_job_can_be_retried_until_then(board: Board, state: str) -> None:
    """With its environment; afterwards the error says why not, and what to do."""
    job = keep(board, environ={"TOKEN": "x"})
    run(board, job, state)
    board.archive.drop_environments(ended_before=time.time() - 60)

    assert board.retry(job) == "queued"
    begun = board.begin(job, holder="holder", lease="holder-1")
    assert begun is not None
    assert begun.environ == {"TOKEN": "x"}

    board.cancel(job, "enough")
    late = keep(board)
    run(board, late, state)
    drop(board)
    with pytest.raises(ConfigError, match=r"jobs.retry_within; submit .* headway show"):
        board.retry(late)
    assert seen(board, late).state == state


def test_an_environment_is_kept_as_long_as_any_job_needs_it(board: Board) -> None:
    """Jobs of one shell share it."""
    ended, waits = keep(board), keep(board)
    run(board, ended)

    drop(board)

    assert column(board, "environment", ended) == 0
    begun = board.begin(waits, holder="holder", lease="holder-1")
    assert begun is not None
    assert begun.environ == {"LANG": "C"}


def test_a_new_environment_is_never_taken_for_a_dropped_one(board: Board) -> None:
    """Its row may get the number of one that was deleted."""
    job = keep(board, environ={"TOKEN": "mine"})
    run(board, job)
    drop(board)
    keep(board, environ={"TOKEN": "another's"})

    with pytest.raises(ConfigError, match="cannot be retried any more"):
        board.retry(job)
