"""``slots.db`` deleted, replaced, damaged or overwritten under those who hold and wait."""

from __future__ import annotations

import os
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tests.crash.actor import Board

from headway import Governor, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.kit import Child, Crew


def _delete(file: Path, _: Path) -> None:
    file.unlink()


def _delete_all(file: Path, _: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _put_garbage_in_its_place(file: Path, spare: Path) -> None:
    spare.write_bytes(os.urandom(8192))
    os.replace(spare, file)


def _put_an_empty_file_in_its_place(file: Path, spare: Path) -> None:
    spare.write_bytes(b"")
    os.replace(spare, file)


def _put_the_older_state_in_its_place(file: Path, spare: Path) -> None:
    os.replace(spare, file)


def _write_garbage_over_it(file: Path, _: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(os.urandom(file.stat().st_size))


def _truncate(file: Path, _: Path) -> None:
    os.truncate(file, 0)


def _cut_in_half(file: Path, _: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _write_the_older_state_over_it(file: Path, spare: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(spare.read_bytes())


WAYS = [
    _delete,
    _delete_all,
    _put_garbage_in_its_place,
    _put_an_empty_file_in_its_place,
    _put_the_older_state_in_its_place,
    _write_garbage_over_it,
    _truncate,
    _cut_in_half,
    _write_the_older_state_over_it,
]


def _participant(crew: Crew, board: str, me: int) -> Child:
    """Someone who holds a slot on k while inside, on two conditions: granted, and not too many."""
    return crew.start(
        f"""
        from tests.crash.actor import Board
        board, governor = Board({board!r}), headway.Governor()
        while True:
            with governor.slot("k", on_wait=queued) as lease:
                with board.inside({me}, 2):
                    say("granted")
                    hear()
                    lease.check()
            say("left")
            hear()
        """
    )


def _older_state(crew: Crew) -> Path:
    """A whole copy of the database with nobody in it, checkpointed."""
    spare = crew.scratch / "older.db"
    source = sqlite3.connect(crew.home / "slots.db")
    target = sqlite3.connect(spare)
    source.backup(target)
    source.close()
    target.close()
    return spare


@pytest.mark.parametrize("way", WAYS)
def test_holders_and_waiters_move_over(crew: Crew, way: Callable[[Path, Path], None]) -> None:
    """However the file goes, nobody comes in beside those who hold, and waiters are served."""
    crew.limits(k=2)
    path = str(crew.scratch / "board")
    board = Board.create(path, 6)
    crew.start("headway.Governor().close(); say('made')").expect("made")
    spare = _older_state(crew)
    holders = [_participant(crew, path, me) for me in (0, 1)]
    for holder in holders:
        holder.expect("granted")
    waiters = [_participant(crew, path, me) for me in (2, 3)]
    for waiter in waiters:
        waiter.expect("waiting")

    way(crew.home / "slots.db", spare)
    newcomer = _participant(crew, path, 4)
    newcomer.expect("waiting")

    assert board.present() == [0, 1]
    for holder in holders:
        holder.ask("leave", "left")
    for waiter in waiters:
        waiter.expect("granted")
        waiter.ask("leave", "left")
    newcomer.expect("granted")
    newcomer.ask("leave", "left")
    watcher = crew.watcher()
    assert watcher.ask("take-all k 2", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


@pytest.mark.parametrize("way", [_put_garbage_in_its_place, _put_the_older_state_in_its_place])
def test_a_damaged_file_is_set_aside_and_that_is_said(
    crew: Crew, way: Callable[[Path, Path], None]
) -> None:
    """A file that cannot be used is kept for a look, and a log line says where."""
    crew.limits(k=1)
    holder = crew.holding("k")
    way(crew.home / "slots.db", _older_state(crew))

    asker = crew.waiter("k")

    aside = [name for name in os.listdir(crew.home) if ".damaged-" in name]
    assert len(aside) == 1
    assert aside[0] in asker.logged() + holder.logged()
    holder.ask("leave", "left")
    asker.expect("granted")


def test_a_file_of_another_home_is_not_taken_for_ours(crew: Crew) -> None:
    """A file that another home uses, moved here, brings no foreign leases with it."""
    crew.limits(k=1)
    holder = crew.holding("k")
    elsewhere = str(crew.scratch / "elsewhere")
    stranger = crew.holding("k", "z", HEADWAY_HOME=elsewhere)
    shutil.copy(os.path.join(elsewhere, "slots.db"), crew.scratch / "copy")
    os.replace(crew.scratch / "copy", crew.home / "slots.db")

    waiter = crew.waiter("k")
    holder.ask("leave", "left")

    waiter.expect("granted")
    assert crew.watcher().ask("leases", "leases") == "1"
    stranger.ask("leave", "left")


def test_the_same_file_brought_back_later_counts_nothing_twice(crew: Crew) -> None:
    """A file moved away and back, with grants and releases in between, is not believed."""
    crew.limits(k=2)
    path = str(crew.scratch / "board")
    Board.create(path, 6)
    early, late = _participant(crew, path, 0), _participant(crew, path, 1)
    early.expect("granted")
    late.expect("granted")
    third = _participant(crew, path, 2)
    third.expect("waiting")
    os.rename(crew.home / "slots.db", crew.scratch / "away")
    # Someone makes a new one, and all move there.
    crew.watcher()
    for participant in (early, late, third):
        crew.wait_until_moved(participant)
    early.ask("leave", "left")
    third.expect("granted")
    os.rename(crew.scratch / "away", crew.home / "slots.db")

    newcomer = _participant(crew, path, 3)
    newcomer.expect("waiting")
    late.ask("leave", "left")
    newcomer.expect("granted")
    newcomer.ask("leave", "left")
    third.ask("leave", "left")
    watcher = crew.watcher()
    assert watcher.ask("take-all k 2", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


def test_a_frozen_holder_is_waited_for_and_named(crew: Crew) -> None:
    """Until everyone alive has said what they hold, a new file grants nothing and says why."""
    crew.limits(k=1)
    holder = crew.holding("k")
    holder.stop()
    (crew.home / "slots.db").unlink()

    asker = crew.start(
        """
        while True:
            try:
                governor = headway.Governor()
                with governor.slot("k", on_wait=queued):
                    say("granted")
            except headway.StoreUnavailable as error:
                say("unavailable", error)
            hear()
        """,
        HEADWAY_STORE_TIMEOUT="300ms",
    )
    complaint = asker.expect("unavailable")
    holder.wake()

    assert f"pid {holder.pid} " in complaint
    assert "stopped" in complaint
    while asker.ask("again", "") != "waiting":
        pass
    holder.ask("leave", "left")
    asker.expect("granted")


@pytest.mark.parametrize("own_doing", [True, False])
def test_a_waiter_that_is_next_in_a_new_file_is_told(
    crew: Crew,
    own_doing: bool,  # noqa: FBT001
) -> None:
    """A waiter that finds both the holder and the file gone has its turn at once."""
    crew.limits(k=1)
    holder, first, second = crew.holding("k"), crew.waiter("k"), crew.waiter("k")
    first.stop()
    second.stop()
    holder.kill()
    (crew.home / "slots.db").unlink()

    # Whoever moves over last finds that all have said what they hold, and serves the line.
    for waiter in (second, first) if own_doing else (first, second):
        waiter.wake()
        crew.wait_until_moved(waiter)

    first.expect("granted")
    first.ask("leave", "left")
    second.expect("granted")


def test_one_who_holds_nothing_keeps_nobody_waiting(crew: Crew) -> None:
    """A process that opened the home and then sits idle does not block a new file."""
    crew.limits(k=1)
    idle = crew.start("governor = headway.Governor(); say('open'); hear()")
    idle.expect("open")
    once = crew.start("governor = headway.Governor(); governor.snapshot(); say('open'); hear()")
    once.expect("open")
    holder = crew.holding("k")
    (crew.home / "slots.db").unlink()

    waiter = crew.waiter("k")
    holder.ask("leave", "left")

    waiter.expect("granted")


def test_one_who_held_nothing_does_not_go_on_in_a_file_that_was_moved(crew: Crew) -> None:
    """A process that was not waited for asks in the new file, not in the one it has open."""
    crew.limits(k=1)
    idle = crew.start(
        """
        governor = headway.Governor()
        governor.snapshot()
        say("open")
        hear()
        with governor.slot("k", on_wait=queued):
            say("granted")
            hear()
        """
    )
    idle.expect("open")
    os.rename(crew.home / "slots.db", crew.scratch / "away")
    holder = crew.holding("k")

    idle.ask("take", "waiting")
    holder.ask("leave", "left")
    idle.expect("granted")


@pytest.mark.parametrize("under_holders", [False, True])
def test_a_newer_format_is_left_alone(crew: Crew, under_holders: bool) -> None:  # noqa: FBT001
    """A file of a newer Headway is refused with a way out, and not touched."""
    crew.limits(k=1)
    crew.start("headway.Governor().close(); say('made')").expect("made")
    database = sqlite3.connect(crew.home / "slots.db")
    database.execute("pragma user_version = 99")
    database.close()
    holder = crew.start("say('there'); hear()")
    if under_holders:
        spare = crew.scratch / "newer.db"
        shutil.copy(crew.home / "slots.db", spare)
        (crew.home / "slots.db").unlink()
        holder = crew.holding("k")
        os.replace(spare, crew.home / "slots.db")

    asker = crew.start(
        """
        try:
            headway.Governor()
        except headway.StoreUnavailable as error:
            say("unavailable", error)
        """
    )

    complaint = asker.expect("unavailable")
    assert "newer" in complaint
    assert "99" in complaint
    assert not [name for name in os.listdir(crew.home) if ".damaged-" in name]
    (crew.home / "slots.db").unlink()
    if under_holders:
        waiter = crew.waiter("k")
        holder.ask("leave", "left")
        waiter.expect("granted")


def test_an_older_format_is_set_aside(crew: Crew) -> None:
    """A file of an older Headway makes way for a new one."""
    crew.limits(k=1)
    crew.start("headway.Governor().close(); say('made')").expect("made")
    database = sqlite3.connect(crew.home / "slots.db")
    database.execute("pragma user_version = 0")
    database.close()

    crew.holding("k").ask("leave", "left")

    assert [name for name in os.listdir(crew.home) if ".damaged-" in name]


def test_a_process_of_a_home_that_was_replaced_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """It is told to restart, instead of setting the database of the others aside."""
    home = tmp_path / "home"
    old = Governor(f"sqlite:///{home}")
    with old.slot("k"):
        pass
    shutil.rmtree(home)
    new = Governor(f"sqlite:///{home}")
    with new.slot("k") as lease:
        with pytest.raises(StoreUnavailable, match="restart this process"), old.slot("k"):
            pass

        old.close()

        lease.check()
        assert [one.id for one in new.snapshot().leases] == [lease.id]
    assert not list(home.glob("*.damaged-*"))
    new.close()
