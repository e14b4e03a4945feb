"""``slots.db`` after a power cut, and with a page damaged under those who use it.

The file is written without waiting for the disk, so a power cut leaves any mixture of old, new,
half-written and missing pages. Nothing durable is in it: every home has to open again.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.crash.actor import Board

import headway
from headway.errors import AtCapacity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.kit import Crew

PAGE = 1024
LIMIT = 2
TABLES = ["facts", "lines", "paused", "keys", "cooldowns", "admitted"]
TABLES += ["leases", "waiting", "loans", "verdicts", "awaited"]
# Leases, loans, reservations, waiting tickets, a budget and a cool-down: something in every table.
_USE = """
governor = headway.Governor()
governor.set_limit("llm/slow", {"slots": 3, "requests_per_minute": 100})
governor.pause("llm/paused")
with governor.slot("llm/slow"): pass
outer = governor.slot("k", "llm/slow").__enter__()
inner = governor.slot("k", parent=outer).__enter__()
other = governor.slot("k", "z").__enter__()
def wait(*keys):
    def run():
        with governor.slot(*keys, on_wait=queued): pass
    threading.Thread(target=run, daemon=True).start()
wait("k")
wait("m", "z", "k")
governor.cool_down("llm/cool", 100)
for number in range(60):
    with governor.slot(f"llm/many/{number}", task="x" * 50): pass
"""


class Wreck:
    """A home as a power cut leaves it: its files, which a test may damage again and again."""

    def __init__(self, crew: Crew, *, checkpointed: bool) -> None:
        self.home = crew.home
        crew.limits(k=LIMIT, z=1)
        child = crew.start(_USE + "\nsay('used')\nhear()\n")
        while child.line() != "used":
            pass
        if checkpointed:
            connection = sqlite3.connect(self.path)
            connection.execute("pragma wal_checkpoint(truncate)")
            connection.close()
        child.stop()
        self._kept = crew.scratch / "kept"
        self._kept.mkdir()
        os.link(self.path, self._kept / "slots.db")  # its inode is part of it
        for name in ("slots.db-wal", "slots.lock"):
            shutil.copy(self.home / name, self._kept / name)
        self._content = self.path.read_bytes()
        child.kill()
        shutil.copytree(self.home / "live", self._kept / "live", ignore=_sockets)

    @property
    def path(self) -> Path:
        return self.home / "slots.db"

    def restore(self) -> None:
        """Be as right after the power cut."""
        for name in os.listdir(self.home):
            if name.startswith("slots.db"):
                (self.home / name).unlink()
        os.link(self._kept / "slots.db", self.path)
        self.path.write_bytes(self._content)
        for name in ("slots.db-wal", "slots.lock"):
            (self.home / name).write_bytes((self._kept / name).read_bytes())
        shutil.copytree(self._kept / "live", self.home / "live", dirs_exist_ok=True)


def _sockets(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".sock")]


def _overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def _some_page(file: Path, chance: random.Random) -> int:
    return chance.randrange(max(1, file.stat().st_size // PAGE)) * PAGE


def _zero_a_page(home: Path, chance: random.Random) -> None:
    _overwrite(home / "slots.db", _some_page(home / "slots.db", chance), bytes(PAGE))


def _fill_a_page_with_noise(home: Path, chance: random.Random) -> None:
    _overwrite(home / "slots.db", _some_page(home / "slots.db", chance), chance.randbytes(PAGE))


def _write_half_a_page(home: Path, chance: random.Random) -> None:
    """The second half of a page, where rows are, is of another page."""
    path = home / "slots.db"
    source = path.read_bytes()
    start, other = _some_page(path, chance), _some_page(path, chance)
    _overwrite(path, start + PAGE // 2, source[other + PAGE // 2 : other + PAGE])


def _swap_two_pages(home: Path, chance: random.Random) -> None:
    path = home / "slots.db"
    source = path.read_bytes()
    one, other = _some_page(path, chance), _some_page(path, chance)
    _overwrite(path, one, source[other : other + PAGE])
    _overwrite(path, other, source[one : one + PAGE])


def _cut_off_the_end(home: Path, chance: random.Random) -> None:
    path = home / "slots.db"
    os.truncate(path, chance.randrange(path.stat().st_size))


def _flip_bits(home: Path, chance: random.Random) -> None:
    path = home / "slots.db"
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 20)):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _flip_a_byte_of_the_header(home: Path, chance: random.Random) -> None:
    # But for the last byte of the format's number: a newer format is another test.
    offset = chance.choice([offset for offset in range(100) if offset != 63])
    value = (home / "slots.db").read_bytes()[offset]
    _overwrite(home / "slots.db", offset, bytes([value ^ chance.randint(1, 255)]))


def _tear_the_log(home: Path, chance: random.Random) -> None:
    log = home / "slots.db-wal"
    os.truncate(log, chance.randrange(log.stat().st_size + 1))


def _noise_in_the_log(home: Path, chance: random.Random) -> None:
    log = home / "slots.db-wal"
    _overwrite(log, chance.randrange(log.stat().st_size + 1), chance.randbytes(100))


def _lose_the_log(home: Path, _: random.Random) -> None:
    (home / "slots.db-wal").unlink()


def _noise_in_the_index(home: Path, chance: random.Random) -> None:
    (home / "slots.db-shm").write_bytes(chance.randbytes(32768))


def _lose_pages_and_log(home: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 5)):
        _zero_a_page(home, chance)
    _tear_the_log(home, chance)


def _cut_the_lock_file_short(home: Path, chance: random.Random) -> None:
    os.truncate(home / "slots.lock", chance.choice([0, 5, 512]))


def _noise_in_the_lock_file(home: Path, chance: random.Random) -> None:
    (home / "slots.lock").write_bytes(chance.randbytes(4096))


DAMAGES = [
    _zero_a_page,
    _fill_a_page_with_noise,
    _write_half_a_page,
    _swap_two_pages,
    _cut_off_the_end,
    _flip_bits,
    _flip_a_byte_of_the_header,
    _tear_the_log,
    _noise_in_the_log,
    _lose_the_log,
    _noise_in_the_index,
    _lose_pages_and_log,
    _cut_the_lock_file_short,
    _noise_in_the_lock_file,
]


@contextmanager
def _governor(home: Path) -> Iterator[headway.Governor]:
    governor = headway.Governor(f"sqlite:///{home}")
    try:
        yield governor
    finally:
        governor.close()


def _use(governor: headway.Governor) -> None:
    """As many get in as the limits allow, and everyone who looks gets an answer."""
    with ExitStack() as held:
        for _ in range(LIMIT):
            held.enter_context(governor.slot("k", wait=False))
        with pytest.raises(AtCapacity), governor.slot("k", wait=False):
            pass
        held.enter_context(governor.slot("z", "llm/many/1", wait=False))
        with pytest.raises(AtCapacity), governor.slot("z", wait=False):
            pass
        assert len(governor.snapshot().leases) == LIMIT + 1
        assert governor.capacity("k").used == LIMIT
    assert governor.capacity("k").used == 0


@pytest.mark.parametrize("checkpointed", [False, True])
def test_every_home_opens_after_a_power_cut(crew: Crew, checkpointed: bool) -> None:  # noqa: FBT001
    """Whatever a power cut made of its files, a home opens and grants what its limits allow."""
    wreck = Wreck(crew, checkpointed=checkpointed)
    for damage in DAMAGES:
        for seed in range(12):
            chance = random.Random(f"{damage.__name__} {seed}")
            wreck.restore()
            damage(wreck.home, chance)
            try:
                for _ in range(2):
                    with _governor(wreck.home) as governor:
                        _use(governor)
            except BaseException as error:
                raise AssertionError(f"{damage.__name__}, seed {seed}") from error


def test_only_the_last_damaged_files_are_kept(tmp_path: Path) -> None:
    """A damaged file is kept for a look, and the oldest of several goes."""
    for day in range(1, 6):
        (tmp_path / f"slots.db.damaged-2020010{day}-000000").write_bytes(b"of old")
    (tmp_path / "slots.db").write_bytes(b"not a database")
    with _governor(tmp_path):
        pass
    kept = sorted(name for name in os.listdir(tmp_path) if ".damaged-" in name)
    assert kept[:2] == [f"slots.db.damaged-2020010{day}-000000" for day in (4, 5)]
    assert (tmp_path / kept[2]).read_bytes() == b"not a database"
    assert len(kept) == 3


def test_a_file_from_before_the_machine_was_started_is_not_used(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    """It makes way without a word: what power was lost on may look sound and not be so."""
    wreck = Wreck(crew, checkpointed=True)
    connection = sqlite3.connect(wreck.path)
    connection.execute("update facts set value = 'another' where name = 'boot'")
    connection.commit()
    connection.close()
    before = wreck.path.stat().st_ino
    with _governor(wreck.home) as governor:
        _use(governor)
    assert wreck.path.stat().st_ino != before
    assert not [name for name in os.listdir(wreck.home) if ".damaged-" in name]
    assert not caplog.records


@pytest.mark.parametrize("damage", [_cut_the_lock_file_short, _noise_in_the_lock_file])
def test_fencing_tokens_grow_over_a_damaged_lock_file(
    tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    """Whatever was left of the counters, no token is given out twice."""
    tokens = []
    for seed in range(20):
        with _governor(tmp_path) as governor, governor.slot("k") as lease:
            tokens.append(lease.token)
        damage(tmp_path, random.Random(seed))
    assert tokens == sorted(set(tokens))
    assert max(tokens) < 1 << 53


def _wait_in_vain(governor: headway.Governor) -> None:
    def wait() -> None:
        with governor.slot("k", timeout=0.01):
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait).result()


def test_a_lock_file_damaged_in_use_reaches_no_caller(tmp_path: Path) -> None:
    """Counters that nobody counted up to are started anew, and tokens go on growing."""
    tokens = []
    (tmp_path / "config.toml").write_text("[limits]\nk = 1\n")
    with _governor(tmp_path) as governor:
        for _ in range(10):
            with governor.slot("k") as lease:
                tokens.append(lease.token)
                with (tmp_path / "slots.lock").open("r+b") as file:
                    file.write(b"\xfe" * 16)
                with pytest.raises(headway.QueueTimeout):
                    _wait_in_vain(governor)
    assert tokens == sorted(set(tokens))
    assert max(tokens) < 1 << 53


# -- with others alive ------------------------------------------------------------------------


def _damage_table(home: Path, table: str, content: bytes) -> None:
    """Overwrite the first page of a table, where those read it who do not know it yet."""
    connection = sqlite3.connect(home / "slots.db", timeout=30)
    connection.execute("pragma wal_checkpoint(truncate)")
    query = "select rootpage from sqlite_master where name = ?"
    (root,) = connection.execute(query, (table,)).fetchone()
    connection.close()
    _overwrite(home / "slots.db", (root - 1) * PAGE, content)


_ROUNDS = """
from tests.crash.actor import Board
board, governor = Board({board!r}), headway.Governor()
say("open")
while True:
    word = hear()
    try:
        if word == "take":
            with governor.slot("k", on_wait=queued) as lease:
                with board.inside({me}, 2):
                    say("granted")
                    hear()
                    lease.check()
            say("left")
        elif word == "look":
            governor.snapshot(), governor.capacity("k")
            say("looked")
    except BaseException as error:
        say("FAILED", type(error).__name__, error)
"""


@pytest.mark.parametrize("table", TABLES)
def test_a_page_damaged_under_holders_and_waiters(crew: Crew, table: str) -> None:
    """Live holders come over into a new file, waiters are served, and nobody is let in beside."""
    crew.limits(k=LIMIT)
    path = str(crew.scratch / "board")
    board = Board.create(path, 8)
    crowd = [crew.start(_ROUNDS.format(board=path, me=me)) for me in range(6)]
    for one in crowd:
        one.expect("open")
    holders, (waiter, idle, looker, late) = crowd[:2], crowd[2:]
    for holder in holders:
        holder.ask("take", "granted")
    waiter.ask("take", "waiting")

    _damage_table(crew.home, table, random.Random(table).randbytes(PAGE))

    looker.ask("look", "looked")
    idle.ask("take", "waiting")
    late.ask("take", "waiting")
    assert board.present() == [0, 1]
    for leaving, following in zip((*holders, waiter), (waiter, idle, late), strict=True):
        leaving.ask("leave", "left")
        following.expect("granted")
    for one in (idle, late):
        one.ask("leave", "left")
    looker.ask("look", "looked")
    watcher = crew.watcher()
    assert watcher.ask(f"take-all k {LIMIT}", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"


@pytest.mark.parametrize("table", TABLES)
def test_those_who_only_look_get_over_a_damaged_page(crew: Crew, table: str) -> None:
    """A command that looks at a damaged file ends as it does with a good one."""
    crew.limits(k=LIMIT)
    holder = crew.holding("k")
    for command in (["status"], ["queue"], ["status", "--json"], ["limits"], ["doctor"]):
        _damage_table(crew.home, table, bytes(PAGE))
        ended = crew.start(
            f"""
            import subprocess, sys
            run = subprocess.run([sys.executable, "-m", "headway", *{command!r}],
                                 capture_output=True, text=True)
            say("ended", run.returncode, run.stderr)
            """
        ).expect("ended")
        assert ended.startswith("0"), f"{command}: {ended}"
        assert "Traceback" not in ended
    holder.ask("leave", "left")
