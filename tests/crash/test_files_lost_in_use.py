"""Files of the database deleted or overwritten under those who use it, also its log and index.

SQLite opens these two by name. A process that comes later makes new ones, and the two groups then
write into one file without knowing of each other.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.crash.actor import Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.kit import Child, Crew

NAMES = ["slots.db-shm", "slots.db-wal", "slots.db-shm slots.db-wal", "slots.db slots.db-wal"]
_LIMIT = 2
_PROCESSES = 5
_TIMES = 12

_HAMMER = """
from tests.crash.actor import Board
board, governor, ended = Board({board!r}), headway.Governor(), threading.Event()
def work():
    while not ended.is_set():
        try:
            with governor.slot("k") as lease:
                with board.inside({me}, {limit}):
                    time.sleep(0.001)
                    lease.check()
        except BaseException as error:
            say("FAILED", type(error).__name__, error)
            return
thread = threading.Thread(target=work)
thread.start()
say("open")
hear()
ended.set()
thread.join()
say("done")
hear()
"""


def _delete(crew: Crew, names: str) -> None:
    for name in names.split():
        (crew.home / name).unlink(missing_ok=True)


def _wait_for_entries(board: Board, participants: range, children: list[Child]) -> None:
    """Until each of them has been inside twice more."""
    wanted = [board.entries(me) + 2 for me in participants]
    deadline = time.monotonic() + 30
    while any(board.entries(me) < count for me, count in zip(participants, wanted, strict=True)):
        said = [child.line_within(0) for child in children]
        assert not any(said), said
        assert time.monotonic() < deadline, "somebody is not served"
        time.sleep(0.005)


def _hammer(crew: Crew, harm: Callable[[], None]) -> None:
    """Do harm again and again to a home that many use; none may notice more than a delay."""
    crew.limits(k=_LIMIT)
    path = str(crew.scratch / "board")
    board = Board.create(path, _PROCESSES + _TIMES)
    children: list[Child] = []

    def join() -> None:
        code = _HAMMER.format(board=path, me=len(children), limit=_LIMIT)
        child = crew.start(code)
        child.expect("open")
        children.append(child)

    for _ in range(_PROCESSES):
        join()
    for number in range(_TIMES):
        _wait_for_entries(board, range(len(children)), children)
        harm()
        if number % 4 == 0:
            join()  # who comes later makes new files
    _wait_for_entries(board, range(len(children)), children)
    for child in children:
        child.tell("end")
    for child in children:
        child.expect("done")
    watcher = crew.watcher()
    assert watcher.ask(f"take-all k {_LIMIT}", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


@pytest.mark.parametrize("names", NAMES)
def test_under_load_the_limit_holds(crew: Crew, names: str) -> None:
    """However often files go, nobody is let in beside two others, and everyone is served."""
    _hammer(crew, lambda: _delete(crew, names))


def test_pages_overwritten_under_load(crew: Crew) -> None:
    """Noise and zeros in the file and in its log lead to new files, and to nothing else."""
    chance = random.Random(17)

    def harm() -> None:
        name, start, step = chance.choice([("slots.db", 0, 1024), ("slots.db-wal", 56, 1048)])
        with contextlib.suppress(FileNotFoundError), (crew.home / name).open("r+b") as file:
            pages = max(1, os.fstat(file.fileno()).st_size // step)
            file.seek(start + chance.randrange(pages) * step)
            file.write(chance.choice([bytes(1024), chance.randbytes(1024), chance.randbytes(512)]))

    _hammer(crew, harm)


@pytest.mark.parametrize("names", NAMES)
def test_a_newcomer_waits_for_those_who_hold(crew: Crew, names: str) -> None:
    """Holders that were there before are counted, and waiters are served in their order."""
    crew.limits(k=1)
    holder, waiter = crew.holding("k"), crew.waiter("k")

    _delete(crew, names)

    newcomer = crew.waiter("k")
    holder.ask("leave", "left")
    waiter.expect("granted")
    waiter.ask("leave", "left")
    newcomer.expect("granted")
    newcomer.ask("leave", "left")


@pytest.mark.parametrize("names", NAMES)
def test_one_who_looks_sees_all_who_hold(crew: Crew, names: str) -> None:
    """A look from a process that has the files open, and from a new one."""
    crew.limits(k=2)
    early = crew.watcher()
    holder = crew.holding("k")
    assert early.ask("leases", "leases") == "1"

    _delete(crew, names)
    second = crew.holding("k")

    assert early.ask("leases", "leases") == "2"
    assert crew.watcher().ask("leases", "leases") == "2"
    for one in (holder, second):
        one.ask("leave", "left")
