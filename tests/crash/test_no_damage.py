"""Errors that no damage of ``slots.db`` has caused: nothing is destroyed for them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import headway
from headway.errors import StoreUnavailable
from headway.stores.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def _governor(home: Path) -> Iterator[headway.Governor]:
    governor = headway.Governor(f"sqlite:///{home}")
    try:
        yield governor
    finally:
        governor.close()


def _sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("told by a test")
    error.sqlite_errorcode = code
    return error


NO_DAMAGE = [
    *map(
        _sqlite_error,
        [
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_IOERR_WRITE,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_NOMEM,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_PROTOCOL,
        ],
    ),
    # What the file cannot be blamed for once it has been looked at.
    _sqlite_error(sqlite3.SQLITE_ERROR),
    _sqlite_error(sqlite3.SQLITE_CONSTRAINT),
    OSError(5, "Input/output error"),
    OSError(28, "No space left on device"),
    PermissionError(13, "Permission denied"),
]


@pytest.mark.parametrize("error", NO_DAMAGE, ids=repr)
@pytest.mark.parametrize("moment", ["opening", "an operation", "a look"])
def test_an_error_that_is_no_damage_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, moment: str
) -> None:
    """A full disk, a lack of rights or an I/O error is StoreUnavailable, and the file stays."""
    is_open_to_doubt = getattr(error, "sqlite_errorcode", 0) in (
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
    )
    if moment == "opening" and is_open_to_doubt:
        pytest.skip("before the first operation that is taken for damage")

    def fail(*_: object, **__: object) -> None:
        raise error

    with _governor(tmp_path) as governor, governor.slot("k"):
        before = (tmp_path / "slots.db").stat().st_ino
        where = {
            "opening": "headway.stores.recovery.Recovery.announce",
            "an operation": "headway.stores.shortcuts.Shortcuts.come",
            "a look": "headway.stores.reader.lease_from",
        }[moment]
        deeds = {
            "opening": lambda: headway.Governor(f"sqlite:///{tmp_path}").slot("k").__enter__(),
            "an operation": lambda: governor.slot("z").__enter__(),
            "a look": governor.snapshot,
        }
        with monkeypatch.context() as patch:
            patch.setattr(where, fail)
            with pytest.raises(StoreUnavailable) as unavailable:
                deeds[moment]()
        assert str(tmp_path) in str(unavailable.value)
        assert (tmp_path / "slots.db").stat().st_ino == before
        assert not [name for name in os.listdir(tmp_path) if "damaged" in name]
        assert len(governor.snapshot().leases) == 1
        with governor.slot("z", wait=False):
            pass


def test_a_mistake_in_the_program_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that a sound file did not cause reaches the caller as it is."""

    def fail(*_: object, **__: object) -> None:
        raise TypeError("a mistake")

    with _governor(tmp_path) as governor, governor.slot("k"):
        before = (tmp_path / "slots.db").stat().st_ino
        with monkeypatch.context() as patch:
            patch.setattr("headway.stores.shortcuts.Shortcuts.come", fail)
            with pytest.raises(TypeError, match="a mistake"):
                governor.slot("z").__enter__()
        assert (tmp_path / "slots.db").stat().st_ino == before


@pytest.mark.parametrize("moment", ["opening", "an operation"])
def test_a_disk_that_damages_every_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """If the new file is damaged as well, that is the end of it: no file after file."""
    made: list[int] = []
    create = Database.create

    def damage(database: Database, generation: int, *rest: object) -> None:
        create(database, generation, *rest)  # type: ignore[arg-type]
        made.append(generation)
        os.truncate(database.path, 1100)

    with _governor(tmp_path) as governor:
        with governor.slot("k"):
            pass
        monkeypatch.setattr("headway.stores.database.Database.create", damage)
        (tmp_path / "slots.db").unlink()
        if moment == "opening":
            with pytest.raises(StoreUnavailable, match=r"damaged"):
                headway.Governor(f"sqlite:///{tmp_path}")
        else:
            with pytest.raises(StoreUnavailable, match=r"damaged"):
                governor.slot("k").__enter__()
        assert len(made) <= 2
        monkeypatch.undo()
        # As if the time was over in which no new ones are made.
        governor._store._home._new_ones_fail_until = 0.0  # type: ignore[attr-defined]
        with governor.slot("k", wait=False):
            pass
