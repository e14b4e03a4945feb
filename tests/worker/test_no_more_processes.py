"""A user who may start no more processes or threads: what is kept stays kept."""

from __future__ import annotations

import _thread
import errno
import os
from typing import TYPE_CHECKING, NoReturn

from headway.jobs.post import Post

if TYPE_CHECKING:
    import pytest
    from tests.worker.kit import House


def test_a_submitted_job_is_returned_although_no_worker_starts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason; and the next call that can start one does."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_spawn", _no_process)
        job = house.jobs.submit(["true"])
        assert "ulimit -u" in str(job.worker_error)
        house.jobs.cancel(job.id)
        assert house.jobs.retry(job.id) == "queued"
    assert [one.id for one in house.jobs.all()] == [job.id]

    assert house.jobs.submit(["true"]).worker_error is None

    assert house.ended(job.id).state == "succeeded"


def test_a_worker_is_one_although_no_thread_can_wait_for_its_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread only takes note of the end of that process."""
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", _no_thread)
        job = house.jobs.submit(["true"])

    assert job.worker_error is None
    assert house.ended(job.id).state == "succeeded"
    assert Post(str(house.home)).holder() is not None


def _no_process(*_: object, **__: object) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def _no_thread(*_: object) -> NoReturn:
    raise RuntimeError("can't start new thread")
