"""A store that cannot be used: locked, full, read-only or not there. Clear errors, no hangs."""

from __future__ import annotations

import os
import sqlite3
import sys
from typing import TYPE_CHECKING

import pytest
from tests.crash.kit import unshare

if TYPE_CHECKING:
    from tests.crash.kit import Crew

# Takes k whenever told to, and says how that went.
_ASKER = """
governor = None
while True:
    try:
        governor = governor or headway.Governor()
        with governor.slot("k", timeout=20):
            say("granted")
    except headway.StoreUnavailable as error:
        say("unavailable", error)
    except Exception as error:
        say("failed", type(error).__name__, error)
    hear()
"""


@pytest.mark.parametrize("mode", ["immediate", "exclusive"])
@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_stranger_who_locks_the_database_is_named(crew: Crew, mode: str, opened: str) -> None:
    """Another program's lock ends in StoreUnavailable with its pid, and is got over."""
    crew.limits(k=1)
    holder = crew.holding("k")
    holder.ask("leave", "left")
    asker = crew.start(_ASKER, HEADWAY_STORE_TIMEOUT="300ms") if opened == "before" else None
    if asker:
        asker.expect("granted")
    stranger = crew.start(
        f"""
        import sqlite3
        database = sqlite3.connect({str(crew.home / "slots.db")!r}, isolation_level=None)
        database.execute("begin {mode}")
        say("locked")
        hear()
        database.execute("rollback")
        say("unlocked")
        hear()
        """
    )
    stranger.expect("locked")
    if asker:
        asker.tell("again")
    else:
        asker = crew.start(_ASKER, HEADWAY_STORE_TIMEOUT="300ms")

    assert f"pid {stranger.pid} " in asker.expect("unavailable")
    stranger.ask("unlock", "unlocked")
    asker.ask("again", "granted")


def test_a_release_during_a_strangers_lock_is_made_up_for(crew: Crew) -> None:
    """A lease that cannot be given back at once is given back later; its result stands."""
    crew.limits(k=1)
    holder = crew.start(
        """
        governor = headway.Governor()
        def work():
            with governor.slot("k"):
                say("holding")
                hear()
                return "the answer"
        say("result", work())
        hear()
        """,
        HEADWAY_STORE_TIMEOUT="200ms",
    )
    holder.expect("holding")
    waiter = crew.waiter("k")
    database = sqlite3.connect(crew.home / "slots.db", isolation_level=None)
    database.execute("begin immediate")
    assert holder.ask("leave", "result") == "the answer"
    database.execute("rollback")
    database.close()

    waiter.expect("granted")


def test_a_reclaim_during_a_strangers_lock_is_made_up_for(crew: Crew) -> None:
    """A dead holder found while the database was locked is cleared away when it is not."""
    crew.limits(k=1)
    holder = crew.holding("k")
    waiter = crew.waiter("k", HEADWAY_STORE_TIMEOUT="200ms")
    database = sqlite3.connect(crew.home / "slots.db", isolation_level=None)
    database.execute("begin immediate")
    holder.kill()
    asker = crew.start(_ASKER, HEADWAY_STORE_TIMEOUT="500ms")
    asker.expect("unavailable")
    database.execute("rollback")
    database.close()

    waiter.expect("granted")


# A home on a file system of its own, with room for next to nothing more.
_SMALL_DISK = """
import shutil, subprocess
home = os.environ["HEADWAY_HOME"]
os.makedirs(home, exist_ok=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", home], check=True)
with open(os.path.join(home, "config.toml"), "w") as file:
    file.write('[limits]\\n"k" = 1\\n')
def fill():
    with open(os.path.join(home, "ballast"), "ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
def free():
    os.unlink(os.path.join(home, "ballast"))
def grow(governor):
    # Until the log itself has no room.
    for turn in range(4000):
        try:
            with governor.slot(f"grow/{turn}"):
                pass
        except headway.StoreUnavailable as error:
            return str(error)
    return "never full"
"""


def _on_a_small_disk(crew: Crew, code: str) -> str:
    before = unshare("--mount")
    return crew.start(_SMALL_DISK + code, before=before, HEADWAY_STORE_TIMEOUT="1s").expect("end")


def test_a_full_disk_refuses_requests_and_is_got_over(crew: Crew) -> None:
    """On a full disk a request ends in StoreUnavailable; with space again, all works."""
    said = _on_a_small_disk(
        crew,
        """
governor = headway.Governor()
fill()
said = grow(governor)
free()
with governor.slot("k", timeout=20):
    say("end", said)
""",
    )
    assert "unavailable" in said


def test_a_full_disk_at_the_opening(crew: Crew) -> None:
    """A home that has no room for its files says so, and opens when it has."""
    said = _on_a_small_disk(
        crew,
        """
fill()
try:
    headway.Governor()
    said = "opened"
except headway.StoreUnavailable as error:
    said = str(error)
free()
with headway.Governor().slot("k", timeout=20):
    say("end", said)
""",
    )
    assert "unavailable" in said


def test_a_release_on_a_full_disk_is_repeated_until_it_succeeds(crew: Crew) -> None:
    """What could not be given back for want of space is given back when there is some."""
    said = _on_a_small_disk(
        crew,
        """
governor = headway.Governor()
def work():
    with governor.slot("k"):
        fill()
        trouble = grow(governor)
        return "the answer after " + trouble
said = work()
still_held = governor._store._reader.survey(["k"])[0].used if "never" not in said else 1
free()
other = subprocess.run(
    [sys.executable, "-c",
     "import headway\\nwith headway.Governor().slot('k', timeout=20): print('granted')"],
    capture_output=True, text=True,
)
say("end", said, "then", other.stdout, other.stderr)
""",
    )
    assert said.startswith("the answer after")
    assert "unavailable" in said
    assert said.endswith("then granted")


def test_a_waiter_gets_over_a_full_disk(crew: Crew) -> None:
    """A holder that dies while the disk is full is cleared away once there is space."""
    said = _on_a_small_disk(
        crew,
        """
governor = headway.Governor()
holder = subprocess.Popen(
    [sys.executable, "-u", "-c",
     "import headway, signal\\nwith headway.Governor().slot('k'): print('held'); signal.pause()"],
    stdout=subprocess.PIPE, text=True,
)
holder.stdout.readline()
in_line, served = threading.Event(), threading.Event()
def wait():
    with governor.slot("k", on_wait=lambda event: in_line.set()):
        served.set()
waiting = threading.Thread(target=wait, daemon=True)
waiting.start()
in_line.wait()
fill()
trouble = grow(governor)
holder.kill()
holder.wait()
try:
    with governor.slot("k", timeout=1):
        pass
except headway.HeadwayError as error:
    trouble += " / " + type(error).__name__
free()
say("end", trouble, "then", served.wait(20))
""",
    )
    assert said.endswith("then True")


_READ_ONLY = """
import subprocess
home = os.environ["HEADWAY_HOME"]
subprocess.run(["mount", "--bind", home, home], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
try:
    with headway.Governor().slot("k"):
        say("end granted")
except headway.StoreUnavailable as error:
    say("end", error)
"""


@pytest.mark.parametrize("used", [False, True])
def test_a_home_that_cannot_be_written(crew: Crew, used: bool) -> None:  # noqa: FBT001
    """A read-only home, new or used, is a clear StoreUnavailable with what to look at."""
    crew.limits(k=1)
    if used:
        crew.holding("k").ask("leave", "left")
    said = crew.start(_READ_ONLY, before=unshare("--mount")).expect("end")
    assert "unavailable" in said
    assert str(crew.home) in said


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/nothing", "/dev/null/home"])
def test_a_home_that_cannot_be(crew: Crew, place: str) -> None:
    """A home that is a file, or that cannot be made, is a clear StoreUnavailable."""
    if place.startswith("/proc") and sys.platform != "linux":
        pytest.skip("there is no /proc here")
    file = crew.scratch / "file"
    file.write_text("not a directory")
    home = {"a file": str(file), "below a file": str(file / "home")}.get(place, place)

    asker = crew.start(_ASKER, HEADWAY_HOME=home)

    said = asker.expect("unavailable")
    assert home in said
    assert "HEADWAY_HOME" in said


@pytest.mark.parametrize("what", ["slots.db", "slots.lock", "live"])
def test_a_directory_or_file_where_another_thing_belongs(crew: Crew, what: str) -> None:
    """What is in the way inside a home is reported with its path."""
    crew.limits(k=1)
    if what == "live":
        (crew.home / what).write_text("in the way")
    else:
        (crew.home / what).mkdir()

    said = crew.start(_ASKER, HEADWAY_STORE_TIMEOUT="300ms").line()

    assert said.startswith("unavailable"), said
    assert str(crew.home) in said


def test_too_many_open_files(crew: Crew) -> None:
    """A process that has run out of descriptors is told so, and goes on when it has some."""
    crew.limits(k=1, full=1)
    holder = crew.holding("full")
    asker = crew.start(
        """
        governor = headway.Governor()
        def wait():
            with governor.slot("full", on_wait=queued):
                say("served")
        threading.Thread(target=wait).start()
        hear()
        hoard = []
        try:
            while True:
                hoard.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for turn in range(3):
            try:
                with governor.slot("full", timeout=0.4):
                    pass
            except headway.HeadwayError as error:
                pass
            except Exception as error:
                os.write(1, b"failed " + type(error).__name__.encode() + b"\\n")
        os.write(1, b"hoarded\\n")
        os.read(0, 1)
        for descriptor in hoard:
            os.close(descriptor)
        say("freed")
        with governor.slot("k", timeout=20):
            say("granted")
        hear()
        """,
        before=["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"],
    )
    asker.expect("waiting")
    asker.ask("hoard", "hoarded")
    holder.kill()
    late = crew.start(_ASKER.replace('"k"', '"other"'))
    late.expect("granted")
    os.write(asker._stdin.fileno(), b"\n")
    lines = {asker.line() for _ in range(3)}
    assert lines == {"freed", "granted", "served"}


@pytest.mark.parametrize("length", [480, 600, 3000])
def test_a_home_with_a_very_long_path(crew: Crew, length: int) -> None:
    """It works as far as SQLite does; where not, the error names the reason and the fix."""
    home = crew.scratch / "h"
    while len(str(home)) < length:
        home /= "d" * min(200, max(1, length - len(str(home)) - 1))
    asker = crew.start(_ASKER, HEADWAY_HOME=str(home))
    said = asker.line()
    if length < 500:
        assert said == "granted"
    else:
        assert said.startswith("unavailable")
        assert f"its path has {len(str(home)) + len('/slots.db')} bytes" in said
        assert "HEADWAY_HOME to a directory with a shorter path" in said


@pytest.mark.parametrize("beside_others", [False, True])
def test_drafts_of_killed_processes_are_cleared_away(crew: Crew, beside_others: bool) -> None:  # noqa: FBT001
    """What somebody was making when it was killed goes when the next process comes."""
    crew.limits(k=2)
    holder = crew.holding("k")
    if not beside_others:
        holder.kill()
    left = ["live/abcdef.new", "slots.db.12345.new", "slots.db.12345.new-journal"]
    left += [] if beside_others else ["slots.lock.1.2.new", "config.toml.x.new"]
    for name in left:
        (crew.home / name).write_text("half")

    crew.holding("k").ask("leave", "left")

    assert not [name for name in left if (crew.home / name).exists()]
