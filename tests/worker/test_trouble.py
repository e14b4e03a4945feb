"""What people do to a board and its files while jobs are there; nothing is lost or stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.worker.kit import House


def test_a_job_kept_after_others_were_forgotten_is_news(house: House) -> None:
    """A worker that has seen all changes before would never look at it otherwise."""
    board = house.jobs.board
    house.jobs.cancel(house.submit("true"))
    seen = board.changed_since(0)[-1].revision
    house.jobs.prune()

    job = house.submit("true")

    assert [wish.id for wish in board.changed_since(seen)] == [job]
