"""Fencing tokens grow, also if the server loses its data and its clock is put back."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

import pytest

from headway.limits import STORE, Line, Terms
from headway.stores.hand_set import HandSet
from headway.stores.home_record import TOKEN_LEAD, HomeRecord
from headway.tickets import Ticket

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet.away import Away

    from headway.stores.base import Store


def _token(store: Store) -> int:
    ticket = Ticket(store.new_id(), ("deploy",), ("deploy",))
    store.request(ticket, wait=True)
    store.release(ticket, 1.0)
    return ticket.token


def _put_clock_back_and_lose_all(away: Away) -> None:
    away.clock.move(-1800)
    away.forget_all()


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_token_after_a_loss_with_the_clock_put_back_is_larger(
    away: Away, *, is_alive: bool
) -> None:
    """A process that is alive brings the largest, and so does a newcomer of its home."""
    away.clock.move(7200)
    before = _token(away.store)
    if not is_alive:
        away.house.close(away.holders)
    _put_clock_back_and_lose_all(away)
    if is_alive:
        away.store.version()

    newcomer = away.house.open(Terms())
    after = _token(newcomer)
    newcomer.close()

    assert after > before


def test_a_home_that_comes_late_raises_the_tokens_too(away: Away) -> None:
    """Otherwise all that it does would be refused until the clock has caught up."""
    away.clock.move(7200)
    before = _token(away.store)
    away.house.close(away.holders)
    away.clock.move(-7200)
    away.forget_all()
    path = away.store._record.path  # type: ignore[attr-defined]
    os.rename(path, path + ".away")
    with_nothing = away.house.open(Terms())
    assert _token(with_nothing) < before
    os.rename(path + ".away", path)

    late = away.house.open(Terms())
    after = _token(late)
    late.close()
    with_nothing.close()

    assert after > before


def test_tokens_leap_only_when_data_was_lost(away: Away) -> None:
    """Who comes and goes does not push them ahead of the clock."""
    _token(away.store)
    for _ in range(3):
        newcomer = away.house.open(Terms())
        away.clock.move(1)
        assert _token(newcomer) < (away.clock() + 60) * 1e6 + TOKEN_LEAD
        newcomer.close()


def test_the_home_is_written_once_in_an_hour_of_tokens(tmp_path: Path) -> None:
    """A grant must not wait for a disk each time."""
    record = HomeRecord(str(tmp_path / "home"), "redis://somewhere")
    record.saw_token(1000)
    written = os.stat(record.path).st_mtime_ns, os.stat(record.path).st_ino
    record.saw_token(1000 + TOKEN_LEAD - 1)
    same = os.stat(record.path).st_mtime_ns, os.stat(record.path).st_ino
    record.saw_token(1000 + TOKEN_LEAD)

    assert same == written
    assert os.stat(record.path).st_ino != written[1]
    assert HomeRecord(str(tmp_path / "home"), "redis://somewhere").tokens() == (
        1000 + TOKEN_LEAD,
        1000 + 2 * TOKEN_LEAD,
    )


def test_two_processes_of_a_home_add_to_one_file(tmp_path: Path) -> None:
    """Neither takes away what the other one has written; other servers have files of their own."""
    home = str(tmp_path / "home")
    one, other = HomeRecord(home, "redis://a"), HomeRecord(home, "redis://a")
    assert (one.tokens(), other.tokens()) == ((0, 0), (0, 0))
    known = HandSet({}).changed(Terms(), Terms([Line("a", 1, STORE)], ["b"]), version=7)
    one.keep(known, is_own=True)
    other.saw_token(5)

    third = HomeRecord(home, "redis://a")
    assert (third.hand_set, third.tokens()[1]) == (known, 5 + TOKEN_LEAD)
    assert not HomeRecord(home, "redis://b").hand_set
    assert stat.S_IMODE(os.stat(third.path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(third.path)) == [os.path.basename(third.path)]


def test_what_another_process_has_written_is_not_written_again(tmp_path: Path) -> None:
    """Each process of a home hears of each change."""
    home = str(tmp_path / "home")
    one, other = HomeRecord(home, "redis://a"), HomeRecord(home, "redis://a")
    assert not other.hand_set
    known = HandSet({}).changed(Terms(), Terms([Line("a", 1, STORE)]), version=7)
    one.keep(known, is_own=True)
    written = os.stat(one.path).st_ino

    other.keep(known)

    assert os.stat(one.path).st_ino == written


def test_a_process_that_was_stopped_while_it_wrote_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Its lock is passed over after a second."""
    record = HomeRecord(str(tmp_path), "redis://a")
    record.saw_token(5)
    directory = os.open(os.path.dirname(record.path), os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)

    record.saw_token(5 + TOKEN_LEAD)

    assert HomeRecord(str(tmp_path), "redis://a").tokens()[0] == 5 + TOKEN_LEAD
    os.close(directory)


def test_whoever_only_looks_makes_no_home(tmp_path: Path) -> None:
    """Limits that others have set are kept where there is a home."""
    home = tmp_path / "home"
    known = HandSet({}).changed(Terms(), Terms([Line("a", 1, STORE)]), version=7)
    HomeRecord(str(home), "redis://a").keep(known)
    assert not home.exists()

    home.mkdir(mode=0o700)
    HomeRecord(str(home), "redis://a").keep(known)

    assert HomeRecord(str(home), "redis://a").hand_set == known


@pytest.mark.parametrize("text", ["", "{", "[]", '{"store": 1}', "\xff"])
def test_a_damaged_file_is_said_and_written_anew(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is known goes into it; nothing fails."""
    record = HomeRecord(str(tmp_path), "redis://a")
    record.saw_token(5)
    with open(record.path, "w", encoding="latin-1") as file:
        file.write(text)

    late = HomeRecord(str(tmp_path), "redis://a")
    assert late.tokens() == (0, 0)
    assert "cannot be read" in caplog.text
    late.saw_token(9)

    assert HomeRecord(str(tmp_path), "redis://a").tokens() == (9, 9 + TOKEN_LEAD)
