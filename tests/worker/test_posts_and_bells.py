"""Posts and bells at the moments in which somebody else looks at them."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from headway.jobs.bell import Bells
from headway.jobs.post import Post

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_who_looks_for_a_worker_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes the lock for a moment, in which a worker may want it."""
    post, flock = Post(str(tmp_path)), fcntl.flock
    with open(tmp_path / "worker.lock", "wb") as look:
        flock(look, fcntl.LOCK_SH)

        def try_and_leave(lock: int, kind: int) -> None:
            try:
                flock(lock, kind)
            finally:
                look.close()

        monkeypatch.setattr(fcntl, "flock", try_and_leave)
        assert post.take()
    assert not Post(str(tmp_path)).take()
    post.leave()


def test_a_holder_without_its_first_words_is_waited_for(tmp_path: Path) -> None:
    """Its pid is never told as 0, which stands for a whole group of processes."""
    path = tmp_path / "worker.lock"
    with path.open("wb", buffering=0) as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        looking = pool.submit(Post(str(tmp_path)).holder)
        assert wait({looking}, timeout=0.1).not_done

        lock.write(b"123 456.789 here\n")

        assert looking.result(60) == (123, 456.789)
        assert Post(str(tmp_path)).note() == "here"
    assert Post(str(tmp_path)).holder() is None


def test_a_post_whose_file_was_deleted_or_replaced_is_not_held(tmp_path: Path) -> None:
    """Its lock keeps nobody out any more."""
    post, other = Post(str(tmp_path)), Post(str(tmp_path))
    assert post.take()
    assert post.is_held()
    (tmp_path / "worker.lock").unlink()
    assert not post.is_held()

    assert other.take()

    assert not post.is_held()
    assert other.is_held()
    for one in (post, other):
        one.leave()
        assert not one.is_held()


def test_a_bell_may_be_rung_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for one that nobody hears."""
    bells, make = Bells(str(tmp_path)), os.mkfifo

    def make_and_ring(path: str, mode: int) -> None:
        make(path, mode)
        bells.ring([1])

    monkeypatch.setattr(os, "mkfifo", make_and_ring)
    with bells.watch(1):
        assert len(os.listdir(tmp_path / "bells")) == 1
