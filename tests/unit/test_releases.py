"""The record of leases that were taken back by hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway import Governor, releases
from headway.views import HolderView, LeaseView

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HOLDER = HolderView(pid=42, host="box", command="agent")


def lease(number: int) -> LeaseView:
    """One of many."""
    return LeaseView(f"abc-{number}", "t", ("a", "b"), 2, 1000.0, HOLDER)


def test_what_was_recorded_is_read_newest_first(tmp_path: Path) -> None:
    """With all that is known about it."""
    for number in range(3):
        releases.record(str(tmp_path), lease(number), reason="why not", task="mine")

    found = releases.read(str(tmp_path))

    assert [one.lease for one in found] == [lease(2), lease(1), lease(0)]
    assert {(one.reason, one.by.pid, one.by.task) for one in found} == {
        ("why not", os.getpid(), "mine")
    }


def test_the_record_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is taken back, the newest are there and two files are all there is."""
    monkeypatch.setattr(releases, "_MAX_BYTES", 2000)
    for number in range(100):
        releases.record(str(tmp_path), lease(number), reason="r", task=None)

    found = [one.lease.id for one in releases.read(str(tmp_path))]

    assert found == [f"abc-{99 - place}" for place in range(len(found))]
    assert len(found) > 3
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6000


def test_lines_that_mean_nothing_are_passed_over(tmp_path: Path) -> None:
    """Cut short by a full disk, or of another program."""
    releases.record(str(tmp_path), lease(1), reason="r", task=None)
    path = tmp_path / releases.FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + b"\n[]\n{}\n\xff\n" + whole + whole[:-9])

    assert [one.lease for one in releases.read(str(tmp_path))] == [lease(1)]
    assert releases.read(str(tmp_path / "nowhere")) == []


def test_a_record_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The slot is what matters; that there is no record is said."""
    (tmp_path / releases.FILE_NAME).mkdir()
    with Governor(f"sqlite:///{tmp_path}") as governor, governor.slot("k") as held:
        assert governor.revoke(held.id)
        assert held.lost
    assert "could not be recorded" in caplog.text


def test_a_store_in_memory_keeps_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes no file."""
    monkeypatch.chdir(tmp_path)
    with Governor("memory://") as governor, governor.slot("k") as held:
        assert governor.revoke(held.id)
    assert list(tmp_path.iterdir()) == []
