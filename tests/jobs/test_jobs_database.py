"""``jobs.db`` as a file: private, durable, and never thrown away."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.jobs.boards import (
    begin,
    column,
    details,
    keep,
    line,
    open_board,
    order,
    query,
    run,
    seen,
)

from headway.errors import StoreUnavailable
from headway.jobs import database
from headway.jobs.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.jobs.board import Board

DATA = Path(__file__).parents[1] / "data"


def test_everything_is_the_owners_alone(home: Path) -> None:
    """Environments are in there; whatever the umask, nobody else can read them."""
    before = os.umask(0)
    try:
        board = open_board(home)
        keep(board)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    finally:
        os.umask(before)
    board.database.close()

    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_commit_is_on_disk_before_it_returns(board: Board) -> None:
    """WAL alone would lose the last ones in a power cut."""
    keep(board)

    assert query(board, "pragma synchronous") == [(2,)]
    assert query(board, "pragma journal_mode") == [("wal",)]


def test_every_commit_is_synced(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the name of a file that was just made."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not tell what a descriptor is")
    monkeypatch.setattr(os, "fsync", note)
    keep(board)

    assert synced == [os.path.dirname(board.database.path)]


def test_looking_for_jobs_where_there_are_none_makes_nothing(home: Path) -> None:
    """Nobody has ever kept a job here."""
    board = open_board(home)

    assert Listing(board).all() == []
    assert Listing(board).counts() == {}
    assert not board.database.exists()
    assert not home.exists()


def test_what_was_kept_is_there_for_who_comes_next(home: Path) -> None:
    """Closing and opening it changes nothing."""
    first = open_board(home)
    job = keep(first, task="t")
    run(first, job)
    first.database.close()
    first.database.close()

    second = open_board(home)
    assert seen(second, job).state == "succeeded"
    second.database.close()
    assert keep(second) == job + 1
    second.database.close()


def test_a_newer_format_is_refused(home: Path) -> None:
    """By its number, and nothing is changed."""
    board = open_board(home)
    keep(board)
    board.database.close()
    other = sqlite3.connect(board.database.path)
    other.execute("pragma user_version = 3")
    other.close()
    before = Path(board.database.path).read_bytes()

    for call in (lambda: keep(board), lambda: seen(board, 1)):
        with pytest.raises(StoreUnavailable, match=r"newer Headway.*format 3.*knows 2"):
            call()

    assert Path(board.database.path).read_bytes() == before


@pytest.mark.parametrize("where", ["everything", "the start", "the middle"])
def test_a_damaged_file_is_refused_and_nothing_is_thrown_away(home: Path, where: str) -> None:
    """It holds the jobs: a person has to decide."""
    board = open_board(home)
    board.submit([order(task="x" * 500) for _ in range(100)])
    board.database.close()
    path = Path(board.database.path)
    whole = path.read_bytes()
    damaged = {
        "everything": b"no database at all, but somebody's only copy of something" * 100,
        "the start": b"\xff" * 100 + whole[100:],
        "the middle": whole[:4096] + b"\xff" * (len(whole) - 4096),
    }[where]
    path.write_bytes(damaged)

    calls: list[Callable[[], object]] = [lambda: keep(board), lambda: Listing(board).all()]
    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"damaged.*nothing was thrown away"):
            call()

    assert path.read_bytes() == damaged
    board.database.close()
    path.write_bytes(whole)
    assert len(line(board)) == 100
    board.database.close()


def test_a_file_that_was_taken_away_is_made_anew(board: Board) -> None:
    """Also while it is open; ids start over, because nobody knows the old ones."""
    keep(board)
    os.rename(board.database.path, f"{board.database.path}.aside")
    for suffix in ("-wal", "-shm"):
        os.unlink(board.database.path + suffix)

    assert line(board) == []
    assert keep(board) == 1
    assert line(open_board(os.path.dirname(board.database.path))) == [1]


def test_a_file_that_was_put_back_is_read(board: Board) -> None:
    """A backup that was restored under our hands counts from then on."""
    keep(board, task="in the backup")
    board.database.close()
    path = board.database.path
    shutil.copyfile(path, f"{path}.backup")
    keep(board, task="since then")
    os.unlink(path)
    for suffix in ("-wal", "-shm"):
        os.unlink(path + suffix)
    os.rename(f"{path}.backup", path)

    assert [job.task for job in Listing(board).all()] == ["in the backup"]


def test_an_error_inside_leaves_everything_as_it_was(board: Board) -> None:
    """And the next one gets in."""
    keep(board)

    def fail(connection: Any) -> None:
        connection.execute("delete from jobs")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board.database.change(fail)

    assert line(board) == [1]
    assert keep(board) == 2


def test_what_is_read_is_one_state_and_changes_nothing(board: Board, home: Path) -> None:
    """Others may write meanwhile without being seen, and nobody waits."""
    keep(board)
    other = open_board(home)

    def read(connection: Any) -> list[int]:
        counts = []
        for _ in range(2):
            counts += connection.execute("select count(*) from jobs").fetchone()
            keep(other)
        return counts

    assert board.database.read(read) == [1, 1]
    assert line(board) == [1, 2, 3]
    other.database.close()


# -- several processes -----------------------------------------------------------------------


def test_a_forked_child_submits_on_its_own(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although another thread of its parent was inside; the parent goes on as before."""
    keep(board)
    inside, forking = threading.Event(), threading.Event()
    come_to_rest = board.database.come_to_rest

    def stay(_: object) -> None:
        inside.set()
        assert forking.wait(60)

    def note() -> bool:
        forking.set()
        return come_to_rest()

    monkeypatch.setattr(board.database, "come_to_rest", note)
    thread = threading.Thread(target=board.database.change, args=(stay,))
    thread.start()
    assert inside.wait(60)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if keep(board, task="child") and len(line(board)) == 2 else 2
        finally:
            os._exit(code)
    thread.join(60)
    assert os.waitpid(pid, 0)[1] == 0

    assert [job.task for job in Listing(board).all()] == [None, "child"]
    keep(board)
    assert query(board, "pragma integrity_check") == [("ok",)]


def test_a_forked_child_keeps_nothing_of_its_parents_lock(home: Path) -> None:
    """The parent is killed inside; the child lives on and has the board open itself."""
    child, read, write = _killed_inside(home)
    try:
        other = open_board(home, HEADWAY_STORE_TIMEOUT="20s")
        assert keep(other) == 2
        other.database.close()
    finally:
        os.close(write)
        os.close(read)
        os.kill(child, signal.SIGKILL)


def _killed_inside(home: Path) -> tuple[int, int, int]:
    """A process that dies in the middle of a change, and its child that does not."""
    read, told = os.pipe()
    waits, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(write)
        board = open_board(home)
        keep(board)
        guard = board.database._guard
        assert guard is not None
        guard.acquire(patient=True)
        if os.fork() == 0:
            line(board)
            os.write(told, f"{os.getpid()}\n".encode())
            os.read(waits, 1)
            os._exit(0)
        threading.Event().wait()
    os.close(told)
    os.close(waits)
    child = int(os.read(read, 100))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    return child, read, write


_FREEZES_INSIDE = """
import os, signal, sys
from headway import config
from headway.jobs.board import Board
Board(config.load(sys.argv[1])).database.change(lambda _: os.kill(os.getpid(), signal.SIGSTOP))
"""


def test_a_stopped_process_inside_is_named_in_time(home: Path) -> None:
    """Nobody hangs for it, reading goes on, and when it goes on so does everybody."""
    board = open_board(home, HEADWAY_STORE_TIMEOUT="100ms")
    job = keep(board)
    stopped = subprocess.Popen([sys.executable, "-c", _FREEZES_INSIDE, str(home)])
    try:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)

        calls: list[Callable[[], object]] = [
            lambda: keep(board),
            lambda: board.cancel(job, "x"),
            lambda: begin(board, job),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match=rf"jobs\.lock.*{stopped.pid}.*0\.1 s"):
                call()
        assert seen(board, job).state == "queued"

        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(60) == 0
        patient = open_board(home)
        assert keep(patient) == job + 1
        patient.database.close()
    finally:
        stopped.kill()
        stopped.wait()
        board.database.close()


def in_a_process(work: Callable[[], object]) -> int:
    """Do this in a process of its own, which has nothing open; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def test_processes_that_open_a_fresh_home_at_once_make_one_board(tmp_path: Path) -> None:
    """Nobody meets a half-made file, whether they came to write or to read."""
    for number in range(20):
        home = tmp_path / str(number)
        home.mkdir()
        wait, start = os.pipe()

        def write(home: Path = home, wait: int = wait, start: int = start) -> None:
            os.close(start)
            os.read(wait, 1)
            keep(open_board(home))

        def read(home: Path = home, wait: int = wait, start: int = start) -> None:
            os.close(start)
            os.read(wait, 1)
            open_board(home).under_way()

        pids = [in_a_process(work) for work in (write, read, write, read)]
        os.close(wait)
        os.close(start)

        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
        board = open_board(home)
        assert line(board) == [1, 2]
        board.database.close()


def test_a_second_board_in_a_process_takes_nothing_from_the_first(home: Path) -> None:
    """Whoever closes the last connection removes the log of the file: it must not be ours."""
    first = open_board(home)
    keep(first, task="first")
    second = open_board(home)
    keep(second, task="second")

    visitor = [sys.executable, "-c", _COMES_AND_GOES, str(home)]
    assert subprocess.run(visitor, check=True, capture_output=True).stdout.split() == [b"3"]
    keep(first, task="first again")
    keep(second, task="second again")

    assert subprocess.run(visitor, check=True, capture_output=True).stdout.split() == [b"6"]
    assert [job.id for job in Listing(first).all()] == [1, 2, 3, 4, 5, 6]
    first.database.close()
    second.database.close()


_COMES_AND_GOES = """
import sys
from headway import config
from headway.jobs.board import Board
from headway.jobs.orders import Order
board = Board(config.load(sys.argv[1]))
print(board.submit([Order(["true"])])[0].id)
board.database.close()
"""


# -- other versions --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4096])
def test_a_board_that_lost_its_content_is_not_taken_for_a_new_one(home: Path, size: int) -> None:
    """It had jobs: nothing is written into it, and the message says what to do."""
    board = open_board(home)
    keep(board)
    board.database.close()
    for name in ("jobs.db-wal", "jobs.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "jobs.db").write_bytes(b"")
    if size:
        with closing(sqlite3.connect(home / "jobs.db")) as empty:
            empty.execute("pragma journal_mode = wal")
    left = (home / "jobs.db").read_bytes()

    with pytest.raises(StoreUnavailable, match=f"lost its content \\({size} bytes.* backup"):
        keep(open_board(home))

    assert len(left) == size
    assert (home / "jobs.db").read_bytes() == left


def test_a_new_board_is_complete_when_it_has_its_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed while making it leaves none behind; and an old log is not taken for its."""
    board = open_board(home)
    keep(board)
    (home / "jobs.db").unlink()
    assert (home / "jobs.db-wal").exists()

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "killed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fail)
        with pytest.raises(OSError, match="killed"):
            keep(open_board(home))
    assert not (home / "jobs.db").exists()

    again = open_board(home)
    assert keep(again) == 1
    assert sorted(path.name for path in home.glob("*.new")) == []


def test_there_is_a_sample_of_this_format() -> None:
    """Whoever changes the format makes one more: ``tests/data/make_jobs_sample.py``."""
    assert (DATA / f"jobs-format-{database.FORMAT}.db").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("jobs-format-*.db")))
def test_a_board_of_every_format_so_far_is_complete(home: Path, name: str) -> None:
    """All jobs with all they had, and they can go on."""
    home.mkdir(mode=0o700)
    shutil.copyfile(DATA / name, home / "jobs.db")
    board = open_board(home)

    assert [(job.id, job.state) for job in Listing(board).all()] == [
        (1, "succeeded"),
        (2, "failed"),
        (3, "cancelled"),
        (4, "expired"),
        (5, "interrupted"),
        (6, "running"),
        (7, "queued"),
        (8, "held"),
        (9, "queued"),
        (10, "queued"),
        (11, "cancelled"),
    ]
    assert line(board) == [9, 7, 10]
    assert seen(board, 1).task == "issue-1"
    assert seen(board, 2).command == ("agent", "two words", "new\nline", os.fsdecode(b"\xff"))
    assert (seen(board, 3).keys, seen(board, 3).weight) == (("agent/x", "llm/y"), 2)
    assert seen(board, 3).end_reason == "not needed"
    assert seen(board, 11).end_reason == "it was to run after job 3, which was cancelled"
    attempts = details(board, 2).attempts
    assert [(attempt.number, attempt.exit_code) for attempt in attempts] == [(1, 3), (2, 143)]
    assert attempts[1].ended_by is not None
    assert attempts[1].ended_by["mechanism"] == "max_runtime"
    assert Listing(board).attempt_is_over(2, 1) == 12
    found = details(board, 5)
    assert found.options == {"max_runtime_seconds": 3600.0, "idle_warn_seconds": 300.0}
    assert [event for _, job, event, _, _ in board.news.unsent() if job == 5] == [
        "queued",
        "started",
        "interrupted",
    ]
    assert (details(board, 6).dedupe, details(board, 6).umask) == ("only one", 0o077)
    assert details(board, 6).cancel_reason == "stop"
    assert board.under_way() == [(6, 1, "holder")]
    assert details(board, 9).expire_at is None
    assert details(board, 10).after == (7, 8)
    assert [column(board, "is_read", job) for job in (1, 2)] == [1, 0]
    assert board.archive.take_dropped() == [101, 102]

    beginning = board.begin(9, holder="h", lease="l")
    assert beginning is not None
    assert (beginning.environ, beginning.directory) == ({"LANG": "C"}, "/")
    assert board.approve(8)
    run(board, 7)
    run(board, 8)
    assert board.wish(10) is not None
    assert keep(board, dedupe="only one") == 6
    assert keep(board) == 12
    board.database.close()
